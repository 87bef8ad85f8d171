"""Causes of known kind that can be planted in a TensorFlow step, and the trainer they grow in.

Units of the graph are operators, each on the result of the one before, and the forward pass waits
for the last, so that none is left out. Grappler, which would join them, is off for the steps with
and without them. TensorFlow records no operator that it takes for cheap: tensors are large.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from turns import (
    PRODUCT_SIZE,
    SIZE,
    UNITS,
    Cause,
    Plant,
    Turns,
    Unit,
    fastest_ns,
    input_work,
    sleep,
    spin,
    thread_wait,
)

from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker.loops import tensorflow

set_threads = tensorflow.set_threads


def _cast(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.cast(x, tf.float64), tf.float32)


def _product(x: tf.Tensor) -> tf.Tensor:
    return tf.matmul(x, x)


def _tiny_op() -> Unit:
    one = tf.constant(1.0)
    return lambda: tf.raw_ops.Mul(x=one, y=one)


CAUSES = (
    Cause("casts", _cast, SIZE),
    Cause("tiny ops", _tiny_op),
    Cause("busy wait", lambda: spin),
    Cause("sleep", lambda: sleep),
    Cause("thread wait", thread_wait),
    Cause("layout copies", tf.transpose, SIZE),
    Cause("doubled GEMM", _product, PRODUCT_SIZE),
    Cause("pointwise", tf.tanh, SIZE),
    Cause("input work", input_work, in_input=True),
    Cause("input wait", lambda: spin, in_input=True),
)
BY_NAME = {cause.name: cause for cause in CAUSES}


class PlantedTrainer(Turns, tensorflow.Trainer):
    """The worker's own trainer, whose steps do what is planted besides."""

    def __init__(self, request: CaptureRequest, device: str) -> None:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
        super().__init__(request, device)

    def planted(self, name: str, target_ns: float) -> Plant:
        """As many units of the cause as take ``target_ns``, and at least one."""
        cause = BY_NAME[name]
        unit = cause.unit if cause.in_program else cause.unit()
        unit_ns = _unit_ns(cause) if cause.in_program else fastest_ns(unit)
        count = max(1, round(target_ns / unit_ns))
        return Plant(name, unit, count, cause.in_input, cause.in_program)

    def _program(self) -> Any:
        return tf.function(self._train, autograph=False)

    def _forward(self, inputs: tf.Tensor, lengths: Any, targets: Any) -> tf.Tensor:
        grown = [_grown(BY_NAME[p.name], p.count) for p in self.plants if p.in_program]
        with tf.control_dependencies(grown):
            inputs = tf.identity(inputs)
        return super()._forward(inputs, lengths, targets)


def _grown(cause: Cause, count: int) -> tf.Tensor:
    """The last of ``count`` units, in the graph that is being traced."""
    with tf.init_scope():  # an argument of the graph, which costs nothing and is not folded
        x = tf.fill((cause.size, cause.size), 0.5 / cause.size)  # bounded as a product
    for _ in range(count):
        x = cause.unit(x)
    return tf.stop_gradient(x)


def _unit_ns(cause: Cause) -> float:
    many, none = (
        tf.function(lambda n=n: tf.reduce_sum(_grown(cause, n)), autograph=False)
        for n in (UNITS, 0)
    )
    return max(1.0, (fastest_ns(many) - fastest_ns(none)) / UNITS)
