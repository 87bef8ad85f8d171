"""Layers of TensorFlow 1's own cells between the embedding and the head, as nodes of its graph.

A network is called once, with placeholders, and that call makes its parameters, as TensorFlow 1's
layers do: they take their scope from where they are first called. The reverse direction runs from
the end of each sequence to its beginning; both outputs at a time step, the forward one first, are
the next layer's input.

Its cells hold one kernel (inputs + hidden, 4·hidden) and one bias (4·hidden). They add
``forget_bias``, 1 by default, to the forget gate at every time step, trained or not; here it is 0,
and added all the same. Source: tensorflow/python/ops/rnn_cell_impl.py and
tensorflow/contrib/rnn/python/ops/lstm_ops.py 1.15; the ASR study (arXiv:1806.01818).
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Tuple, Type

import numpy as np
import tensorflow.compat.v1 as tf

from lstmprof.workloads import Workload, reordered

FORGET_BIAS = 0.0


class Ends:
    """The embedding and the head around the layers, which a subclass provides.

    ``embedding`` (vocabulary, features) exists if the inputs are tokens, ``head``
    (directions·hidden, classes, no bias) if the workload has one. Both have their shared names.
    """

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.embedding: Any = None
        self.head: Any = None

    def __call__(self, inputs: tf.Tensor, lengths: Optional[tf.Tensor] = None) -> tf.Tensor:
        """Return outputs (batch, classes), or one per step, for (time, batch, …) or tokens."""
        asked = self.workload
        if asked.vocabulary:
            self.embedding = _variable("embedding", (asked.vocabulary, asked.features))
            inputs = tf.nn.embedding_lookup(self.embedding, inputs)
        outputs = self.run(inputs, lengths)
        if not asked.every_step:
            outputs = _last(outputs, lengths, asked.batch)
        if asked.head:
            self.head = _variable("head", (asked.directions * asked.hidden, asked.classes))
            outputs = tf.tensordot(outputs, self.head, 1)
        return outputs

    def run(self, inputs: tf.Tensor, lengths: Optional[tf.Tensor]) -> tf.Tensor:
        """Return the last layer's outputs (time, batch, width) for inputs (time, batch,
        features).
        """
        raise NotImplementedError

    @property
    def variables(self) -> Tuple[Any, ...]:
        """Return the variables of the layers, in order."""
        raise NotImplementedError


def _variable(name: str, shape: Tuple[int, ...]) -> Any:
    return tf.get_variable(name, shape, initializer=tf.zeros_initializer())


def _last(outputs: tf.Tensor, lengths: Optional[tf.Tensor], batch: int) -> tf.Tensor:
    """Return each sequence's last of ``outputs`` (time, batch, width)."""
    if lengths is None:
        return outputs[-1]
    return tf.gather_nd(outputs, tf.stack([lengths - 1, tf.range(batch)], 1))


def reversed_in_time(outputs: tf.Tensor, lengths: Optional[tf.Tensor]) -> tf.Tensor:
    """Return ``outputs`` (time, batch, width) from each sequence's end to its beginning."""
    if lengths is None:
        return tf.reverse(outputs, [0])
    return tf.reverse_sequence(outputs, lengths, seq_axis=0, batch_axis=1)


class Direction:
    """One direction of one layer; ``kernel`` and ``bias`` exist after its first call."""

    #: positions of the cell's gates in the shared order i f g o; this is its own inverse
    GATES: Tuple[int, ...] = (0, 2, 1, 3)

    def __init__(self, name: str, hidden: int) -> None:
        self.name, self.hidden = name, hidden
        self.kernel: Any = None
        self.bias: Any = None

    def cell(self) -> Any:
        """Return TensorFlow's own cell, for dynamic_rnn."""
        raise NotImplementedError

    def unrolled(self, inputs: tf.Tensor, lengths: Optional[tf.Tensor]) -> Tuple[Any, tf.Tensor]:
        """Return the object with the parameters, and its outputs (time, batch, hidden)."""
        cell = self.cell()
        outputs, _ = tf.nn.dynamic_rnn(
            cell, inputs, sequence_length=lengths, dtype=tf.float32, time_major=True
        )
        return cell, outputs

    def run(self, inputs: tf.Tensor, reverse: bool, lengths: Optional[tf.Tensor]) -> tf.Tensor:
        """Return outputs (time, batch, hidden) in time order for inputs (time, batch, inputs)."""
        inputs = reversed_in_time(inputs, lengths) if reverse else inputs
        with tf.variable_scope(self.name):
            cell, outputs = self.unrolled(inputs, lengths)
        self.kernel, self.bias = cell.trainable_variables
        return reversed_in_time(outputs, lengths) if reverse else outputs


class Network(Ends):
    """A network whose directions have one class, between embedding and head."""

    def __init__(self, workload: Workload, direction: Type[Direction]) -> None:
        super().__init__(workload)
        suffixes = ("", "_reverse")[: workload.directions]
        self.layers = [
            [direction("l{}{}".format(layer, suffix), workload.hidden) for suffix in suffixes]
            for layer in range(workload.layers)
        ]

    def run(self, inputs: tf.Tensor, lengths: Optional[tf.Tensor]) -> tf.Tensor:
        """Return the last layer's outputs (time, batch, width) for inputs (time, batch,
        features).
        """
        for directions in self.layers:
            outputs = [each.run(inputs, bool(n), lengths) for n, each in enumerate(directions)]
            inputs = outputs[0] if len(outputs) == 1 else tf.concat(outputs, 2)
        return inputs

    @property
    def directions(self) -> Tuple[Direction, ...]:
        """Return all directions, in order."""
        return tuple(each for directions in self.layers for each in directions)

    @property
    def variables(self) -> Tuple[Any, ...]:
        """Return kernel and bias of each direction."""
        return tuple(v for each in self.directions for v in (each.kernel, each.bias))


def own_name(variable: Any) -> str:
    """Return ``l0/rnn/basic_lstm_cell/kernel`` for ``l0/rnn/basic_lstm_cell/kernel:0``."""
    return str(variable.name).split(":")[0]


def parameters(module: Ends) -> Dict[str, Any]:
    """Return own name -> variable, in the module's order."""
    ends = [module.embedding, *module.variables, module.head]
    return {own_name(variable): variable for variable in ends if variable is not None}


def load_ends(module: Ends, weights: Mapping[str, Any]) -> None:
    """Set the embedding and the head, in the default session."""
    if module.embedding is not None:
        module.embedding.load(weights["embedding"])
    if module.head is not None:
        module.head.load(weights["head"].T)


def canonical_ends(arrays: Mapping[str, Any]) -> Dict[str, Any]:
    """Return the embedding and the head in ``arrays`` in the shared layout."""
    shared = {name: np.asarray(arrays[name]) for name in ("embedding", "head") if name in arrays}
    return {name: array.T if name == "head" else array for name, array in shared.items()}


def load(module: Network, weights: Mapping[str, Any]) -> None:
    """Set the shared weights, in the default session."""
    load_ends(module, weights)
    for each in module.directions:
        both = (weights["weight_ih_" + each.name], weights["weight_hh_" + each.name])
        each.kernel.load(reordered(np.concatenate(both, axis=1), each.GATES).T)
        each.bias.load(reordered(weights["bias_" + each.name], each.GATES))


def canonical(module: Network, arrays: Mapping[str, Any]) -> Dict[str, Any]:
    """Return ``arrays`` (one per parameter, by own name) with the shared names and layout."""
    shared = canonical_ends(arrays)
    for each in module.directions:
        kernel = reordered(np.asarray(arrays[own_name(each.kernel)]).T, each.GATES)
        shared["weight_ih_" + each.name] = kernel[:, : -each.hidden]
        shared["weight_hh_" + each.name] = kernel[:, -each.hidden :]
        shared["bias_" + each.name] = reordered(np.asarray(arrays[own_name(each.bias)]), each.GATES)
    return shared
