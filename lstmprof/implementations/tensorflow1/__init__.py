"""A network of TensorFlow 1's own LSTM cells, with an embedding and a head.

A network is called once, with placeholders. This call creates the parameters, because TensorFlow
1's layers take their variable scope from their first call. A cell has one kernel (inputs + hidden,
4·hidden) and one bias (4·hidden). ``forget_bias`` (default 1) is 0 here. The networks for
TensorFlow 2 import ``last``, ``reversed_in_time`` and ``canonical_ends``. Source:
tensorflow/python/ops/rnn_cell_impl.py and tensorflow/contrib/rnn/python/ops/lstm_ops.py 1.15; the
ASR study (arXiv:1806.01818).
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Tuple, Type

import numpy as np
import tensorflow.compat.v1 as tf

from lstmprof.workloads import Workload, reordered

FORGET_BIAS = 0.0


class Ends:
    """Base class that puts an embedding and a head around the layers of ``run``."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.embedding: Any = None
        self.head: Any = None

    def __call__(self, inputs: tf.Tensor, lengths: Optional[tf.Tensor] = None) -> tf.Tensor:
        """Map inputs (time, batch[, features]) to outputs ([time,] batch, classes)."""
        workload = self.workload
        if workload.vocabulary:
            self.embedding = _variable("embedding", (workload.vocabulary, workload.features))
            inputs = tf.nn.embedding_lookup(self.embedding, inputs)
        outputs = self.run(inputs, lengths)
        if not workload.every_step:
            outputs = last(outputs, lengths, workload.batch)
        if workload.head:
            self.head = _variable("head", (workload.directions * workload.hidden, workload.classes))
            outputs = tf.tensordot(outputs, self.head, 1)
        return outputs

    def run(self, inputs: tf.Tensor, lengths: Optional[tf.Tensor]) -> tf.Tensor:
        """Map (time, batch, features) to the last layer's outputs (time, batch, width)."""
        raise NotImplementedError

    @property
    def variables(self) -> Tuple[Any, ...]:
        """Return the recurrent layers' variables."""
        raise NotImplementedError


def _variable(name: str, shape: Tuple[int, ...]) -> Any:
    return tf.get_variable(name, shape, initializer=tf.zeros_initializer())


def last(outputs: tf.Tensor, lengths: Optional[tf.Tensor], batch: int) -> tf.Tensor:
    """Return the last output of each sequence: (time, batch, width) -> (batch, width)."""
    if lengths is None:
        return outputs[-1]
    return tf.gather_nd(outputs, tf.stack([lengths - 1, tf.range(batch)], 1))


def reversed_in_time(outputs: tf.Tensor, lengths: Optional[tf.Tensor]) -> tf.Tensor:
    """Reverse each sequence in outputs (time, batch, width); padding stays at the end."""
    if lengths is None:
        return tf.reverse(outputs, [0])
    return tf.reverse_sequence(outputs, lengths, seq_axis=0, batch_axis=1)


class Direction:
    """One direction of one LSTM layer. ``run`` creates the kernel and the bias."""

    #: Permutation for ``reordered`` between gates i f g o and the cell's gate order.
    GATES: Tuple[int, ...] = (0, 2, 1, 3)

    def __init__(self, name: str, hidden: int) -> None:
        self.name, self.hidden = name, hidden
        self.kernel: Any = None
        self.bias: Any = None

    def cell(self) -> Any:
        """Return TensorFlow's cell, which ``tf.nn.dynamic_rnn`` runs."""
        raise NotImplementedError

    def unrolled(self, inputs: tf.Tensor, lengths: Optional[tf.Tensor]) -> Tuple[Any, tf.Tensor]:
        """Return a new cell, and its outputs (time, batch, hidden) for the inputs."""
        cell = self.cell()
        outputs, _ = tf.nn.dynamic_rnn(
            cell, inputs, sequence_length=lengths, dtype=tf.float32, time_major=True
        )
        return cell, outputs

    def run(self, inputs: tf.Tensor, reverse: bool, lengths: Optional[tf.Tensor]) -> tf.Tensor:
        """Map (time, batch, features) to outputs (time, batch, hidden), in time order."""
        inputs = reversed_in_time(inputs, lengths) if reverse else inputs
        with tf.variable_scope(self.name):
            cell, outputs = self.unrolled(inputs, lengths)
        self.kernel, self.bias = cell.trainable_variables
        return reversed_in_time(outputs, lengths) if reverse else outputs


class Network(Ends):
    """A network of LSTM layers; a layer has one or two directions."""

    def __init__(self, workload: Workload, direction: Type[Direction]) -> None:
        super().__init__(workload)
        suffixes = ("", "_reverse")[: workload.directions]
        self.layers = [
            [direction("l{}{}".format(layer, suffix), workload.hidden) for suffix in suffixes]
            for layer in range(workload.layers)
        ]

    def run(self, inputs: tf.Tensor, lengths: Optional[tf.Tensor]) -> tf.Tensor:
        """Map (time, batch, features) to the last layer's outputs (time, batch, width)."""
        for directions in self.layers:
            outputs = [each.run(inputs, bool(n), lengths) for n, each in enumerate(directions)]
            inputs = outputs[0] if len(outputs) == 1 else tf.concat(outputs, 2)
        return inputs

    @property
    def directions(self) -> Tuple[Direction, ...]:
        """Return the directions of all layers: l0, l0_reverse, l1 …"""
        return tuple(each for directions in self.layers for each in directions)

    @property
    def variables(self) -> Tuple[Any, ...]:
        return tuple(v for each in self.directions for v in (each.kernel, each.bias))


def own_name(variable: Any) -> str:
    return str(variable.name).split(":")[0]


def parameters(module: Ends) -> Dict[str, Any]:
    ends = [module.embedding, *module.variables, module.head]
    return {own_name(variable): variable for variable in ends if variable is not None}


def load_ends(module: Ends, weights: Mapping[str, Any]) -> None:
    """Set the embedding and the head in TensorFlow's default session."""
    if module.embedding is not None:
        module.embedding.load(weights["embedding"])
    if module.head is not None:
        module.head.load(weights["head"].T)


def canonical_ends(arrays: Mapping[str, Any]) -> Dict[str, Any]:
    """Return embedding and head in the framework-independent layout."""
    shared = {name: np.asarray(arrays[name]) for name in ("embedding", "head") if name in arrays}
    return {name: array.T if name == "head" else array for name, array in shared.items()}


def load(module: Network, weights: Mapping[str, Any]) -> None:
    load_ends(module, weights)
    for each in module.directions:
        both = (weights["weight_ih_" + each.name], weights["weight_hh_" + each.name])
        each.kernel.load(reordered(np.concatenate(both, axis=1), each.GATES).T)
        each.bias.load(reordered(weights["bias_" + each.name], each.GATES))


def canonical(module: Network, arrays: Mapping[str, Any]) -> Dict[str, Any]:
    shared = canonical_ends(arrays)
    for each in module.directions:
        kernel = reordered(np.asarray(arrays[own_name(each.kernel)]).T, each.GATES)
        shared["weight_ih_" + each.name] = kernel[:, : -each.hidden]
        shared["weight_hh_" + each.name] = kernel[:, -each.hidden :]
        shared["bias_" + each.name] = reordered(np.asarray(arrays[own_name(each.bias)]), each.GATES)
    return shared
