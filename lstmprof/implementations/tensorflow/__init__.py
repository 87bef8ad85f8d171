"""A TensorFlow network whose LSTM layers have one kernel and one bias per direction.

::

    h_t, c_t = cell(x_t, h_{t−1}, c_{t−1}),   h_0 = c_0 = 0

The reverse direction runs from the last time step to the first. The loop is tf.while_loop with
TensorArrays, unless a subclass of ``Direction`` overrides ``run``. After the end of a sequence, a
mask sets h_t and c_t to 0.
"""

from __future__ import annotations

import pathlib
import re
from typing import Any, Dict, Mapping, Optional, Tuple, Type

import numpy as np
import tensorflow as tf

from lstmprof.base.errors import CaptureError
from lstmprof.implementations.tensorflow1 import canonical_ends, last, reversed_in_time
from lstmprof.workloads import Workload, reordered

__all__ = [
    "Direction",
    "Ends",
    "Network",
    "canonical",
    "canonical_ends",
    "load",
    "load_ends",
    "mask",
    "mixed_precision",
    "parameters",
    "reversed_in_time",
]


class Ends(tf.Module):  # type: ignore[misc]
    """Base class that puts an embedding and a head around the layers of ``run``."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.every_step = workload.every_step
        # its gradient is sparse, so SGD updates some rows, and Adam needs several operators
        self.embedding: Any = None
        if workload.vocabulary:
            shape = [workload.vocabulary, workload.features]
            self.embedding = tf.Variable(tf.zeros(shape), name="embedding")
        self.head: Any = None
        if workload.head:
            width = workload.directions * workload.hidden
            self.head = tf.Variable(tf.zeros([width, workload.classes]), name="head")

    def __call__(self, inputs: tf.Tensor, lengths: Optional[tf.Tensor] = None) -> tf.Tensor:
        """Map inputs (time, batch[, features]) to outputs ([time,] batch, classes)."""
        lengths = None if lengths is None else tf.cast(lengths, tf.int32)
        if self.embedding is not None:
            inputs = tf.nn.embedding_lookup(self.embedding, inputs)
        outputs = self.run(inputs, lengths)
        if not self.every_step:
            outputs = last(outputs, lengths, outputs.shape[1])
        return outputs if self.head is None else tf.tensordot(outputs, self.head, 1)

    def run(self, inputs: tf.Tensor, lengths: Optional[tf.Tensor]) -> tf.Tensor:
        """Map (time, batch, features) to the last layer's outputs (time, batch, width)."""
        raise NotImplementedError


class Direction(tf.Module):  # type: ignore[misc]
    """The weights and the time loop of one direction of one LSTM layer."""

    #: Permutation for ``reordered`` between gates i f g o and the cell's gate order.
    GATES: Tuple[int, ...] = (0, 1, 2, 3)

    def __init__(self, inputs: int, hidden: int, name: str) -> None:
        super().__init__(name=name)
        self.hidden = hidden
        self.kernel = tf.Variable(tf.zeros([inputs + hidden, 4 * hidden]), name=name + "/kernel")
        self.bias = tf.Variable(tf.zeros([4 * hidden]), name=name + "/bias")

    def __call__(self, x: tf.Tensor, h: tf.Tensor, c: tf.Tensor) -> Any:
        """Run one time step; return the next h and c, each (batch, hidden)."""
        raise NotImplementedError

    def run(self, inputs: tf.Tensor, reverse: bool, lengths: Optional[tf.Tensor]) -> tf.Tensor:
        """Map (time, batch, features) to outputs (time, batch, hidden), in time order."""
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
    """Return a mask (time, batch, 1) that is False after the end of a sequence."""
    return tf.transpose(tf.sequence_mask(lengths, steps))[:, :, None]


class Network(Ends):
    """A network of LSTM layers; a layer has one or two directions."""

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
        """Map (time, batch, features) to the last layer's outputs (time, batch, width)."""
        for directions in self.layers:
            outputs = [each.run(inputs, bool(n), lengths) for n, each in enumerate(directions)]
            inputs = outputs[0] if len(outputs) == 1 else tf.concat(outputs, 2)
        return inputs


def parameters(module: Ends) -> Dict[str, tf.Variable]:
    return {variable.name.split(":")[0]: variable for variable in module.trainable_variables}


def load_ends(module: Ends, weights: Mapping[str, Any]) -> None:
    if module.embedding is not None:
        module.embedding.assign(weights["embedding"])
    if module.head is not None:
        module.head.assign(weights["head"].T)


def mixed_precision(precision: str) -> None:
    """Turn on 16-bit matmuls in all graphs that TensorFlow creates from now on."""
    # refuse, because auto_mixed_precision.cc would silently keep float32
    if precision == "amp-bf16" and not _computes_in_bfloat16():
        raise CaptureError(
            "on a CPU, TensorFlow needs AVX-512 to compute in bfloat16, and this CPU lacks it",
            "use another --precision",
        )
    option = {
        "amp-fp16": "auto_mixed_precision",
        "amp-bf16": "auto_mixed_precision_onednn_bfloat16",
    }[precision]
    tf.config.optimizer.set_experimental_options({option: True})


def _computes_in_bfloat16() -> bool:
    """Return False only for x86 CPUs that cannot compute TensorFlow's bfloat16."""
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    flags = re.findall(r"^flags\s*:.*", text, re.MULTILINE)
    return not flags or "avx512f" in flags[0] or "avx_ne_convert" in flags[0]


def load(module: Network, weights: Mapping[str, Any]) -> None:
    load_ends(module, weights)
    for each in (each for directions in module.layers for each in directions):
        both = (weights["weight_ih_" + each.name], weights["weight_hh_" + each.name])
        each.kernel.assign(reordered(np.concatenate(both, axis=1), each.GATES).T)
        each.bias.assign(reordered(weights["bias_" + each.name], each.GATES))


def canonical(module: Network, arrays: Mapping[str, Any]) -> Dict[str, Any]:
    shared = canonical_ends(arrays)
    for each in (each for directions in module.layers for each in directions):
        kernel = reordered(np.asarray(arrays[each.name + "/kernel"]).T, each.GATES)
        shared["weight_ih_" + each.name] = kernel[:, : -each.hidden]
        shared["weight_hh_" + each.name] = kernel[:, -each.hidden :]
        shared["bias_" + each.name] = reordered(np.asarray(arrays[each.name + "/bias"]), each.GATES)
    return shared
