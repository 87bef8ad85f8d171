"""Layers and directions of a TensorFlow cell with one kernel and one bias.

::

    h_t, c_t = cell(x_t, h_{t−1}, c_{t−1}),   h_0 = c_0 = 0

The reverse direction runs from the last time step to the first; both outputs at a time step, the
forward one first, are the next layer's input. The loop is tf.while_loop, which reads and writes
TensorArrays, unless a ``Direction`` brings its own ``run``. Of a sequence that has ended h_t and
c_t are 0: a mask selects them. The ends of the network are those of ``_tf_ends``.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Tuple, Type

import numpy as np
import tensorflow as tf

from lstmprof.implementations._gates import reordered
from lstmprof.implementations.tensorflow import _ends
from lstmprof.implementations.tensorflow._ends import parameters
from lstmprof.workloads import Workload

__all__ = [
    "Direction",
    "Network",
    "canonical",
    "load",
    "mask",
    "mixed_precision",
    "parameters",
    "reversed_in_time",
]


class Direction(tf.Module):  # type: ignore[misc]
    """One direction of one layer: ``kernel`` (inputs + hidden, 4·hidden), ``bias`` (4·hidden)."""

    #: the cell's own gates by their place in the shared order i f g o; its own inverse
    GATES: Tuple[int, ...] = (0, 1, 2, 3)

    def __init__(self, inputs: int, hidden: int, name: str) -> None:
        super().__init__(name=name)
        self.hidden = hidden
        self.kernel = tf.Variable(tf.zeros([inputs + hidden, 4 * hidden]), name=name + "/kernel")
        self.bias = tf.Variable(tf.zeros([4 * hidden]), name=name + "/bias")

    def __call__(self, x: tf.Tensor, h: tf.Tensor, c: tf.Tensor) -> Any:
        """The next h and c, each (batch, hidden)."""
        raise NotImplementedError

    def run(self, inputs: tf.Tensor, reverse: bool, lengths: Optional[tf.Tensor]) -> tf.Tensor:
        """Inputs (time, batch, inputs); outputs (time, batch, hidden), in the order of time."""
        steps, batch = inputs.shape[0], inputs.shape[1]
        read = tf.TensorArray(tf.float32, steps).unstack(inputs)
        alive = None
        if lengths is not None:
            alive = tf.TensorArray(tf.bool, steps).unstack(mask(lengths, steps))
        zeros = tf.zeros([batch, self.hidden])

        def body(k: tf.Tensor, h: tf.Tensor, c: tf.Tensor, written: tf.TensorArray) -> Any:
            t = steps - 1 - k if reverse else k
            with tf.name_scope(type(self).__name__):
                h, c = self(read.read(t), h, c)
                if alive is not None:
                    here = alive.read(t)
                    h, c = tf.where(here, h, 0.0), tf.where(here, c, 0.0)
            return k + 1, h, c, written.write(t, h)

        start = (tf.constant(0), zeros, zeros, tf.TensorArray(tf.float32, steps))
        end = tf.while_loop(lambda k, *_: k < steps, body, start, maximum_iterations=steps)
        return tf.ensure_shape(end[3].stack(), [steps, batch, self.hidden])


def mask(lengths: tf.Tensor, steps: int) -> tf.Tensor:
    """Whether a sequence has not ended (time, batch, 1)."""
    return tf.transpose(tf.sequence_mask(lengths, steps))[:, :, None]


def reversed_in_time(outputs: tf.Tensor, lengths: Optional[tf.Tensor]) -> tf.Tensor:
    """``outputs`` (time, batch, width) from each sequence's end to its beginning."""
    if lengths is None:
        return tf.reverse(outputs, [0])
    return tf.reverse_sequence(outputs, lengths, seq_axis=0, batch_axis=1)


class Network(_ends.Network):
    """``l{k}[_reverse]/kernel`` and ``/bias`` between the ends."""

    def __init__(self, workload: Workload, direction: Type[Direction]) -> None:
        super().__init__(workload)
        width = workload.directions * workload.hidden
        suffixes = ("", "_reverse")[: workload.directions]
        self.layers = [
            [
                direction(
                    width if layer else workload.features,
                    workload.hidden,
                    "l{}{}".format(layer, suffix),
                )
                for suffix in suffixes
            ]
            for layer in range(workload.layers)
        ]

    def run(self, inputs: tf.Tensor, lengths: Optional[tf.Tensor]) -> tf.Tensor:
        """Inputs (time, batch, features); the last layer's outputs (time, batch, width)."""
        for directions in self.layers:
            outputs = [each.run(inputs, bool(n), lengths) for n, each in enumerate(directions)]
            inputs = outputs[0] if len(outputs) == 1 else tf.concat(outputs, 2)
        return inputs


def mixed_precision(precision: str) -> None:
    """Let TensorFlow rewrite every graph from now on: GEMMs and their like in 16 bits.

    The rewrite inserts the casts; weights stay float32. To float16 it goes on NVIDIA GPUs only, to
    bfloat16 on CPUs only. Source: tensorflow/core/grappler/optimizers/auto_mixed_precision.cc.
    """
    option = {
        "amp-fp16": "auto_mixed_precision",
        "amp-bf16": "auto_mixed_precision_onednn_bfloat16",
    }[precision]
    tf.config.optimizer.set_experimental_options({option: True})


def load(module: Network, weights: Mapping[str, Any]) -> None:
    """Set the shared weights."""
    _ends.load(module, weights)
    for each in (each for directions in module.layers for each in directions):
        both = (weights["weight_ih_" + each.name], weights["weight_hh_" + each.name])
        each.kernel.assign(reordered(np.concatenate(both, axis=1), each.GATES).T)
        each.bias.assign(reordered(weights["bias_" + each.name], each.GATES))


def canonical(module: Network, arrays: Mapping[str, Any]) -> Dict[str, Any]:
    """``arrays``, one a parameter by its own name, in the shared names and layout."""
    shared = _ends.canonical(arrays)
    for each in (each for directions in module.layers for each in directions):
        kernel = reordered(np.asarray(arrays[each.name + "/kernel"]).T, each.GATES)
        shared["weight_ih_" + each.name] = kernel[:, : -each.hidden]
        shared["weight_hh_" + each.name] = kernel[:, -each.hidden :]
        shared["bias_" + each.name] = reordered(np.asarray(arrays[each.name + "/bias"]), each.GATES)
    return shared
