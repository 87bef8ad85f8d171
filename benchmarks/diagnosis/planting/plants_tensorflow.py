"""Causes of known kind that can be planted in a TensorFlow step, and the trainer that runs them.

Planted calls in the graph are operators, each on the result of the previous one. The forward pass
waits for the last one, so that none is dropped. Grappler, which would combine them, is off in all
runs.
Tensors are large, because TensorFlow's profiler does not record cheap operators.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from planted_steps import (
    PRODUCT_SIZE,
    SIZE,
    UNITS,
    Cause,
    PlantedPrograms,
    Unit,
    fastest_ns,
    input_work,
    sleep,
    spin,
    thread_wait,
)


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


class PlantedTensorflow(PlantedPrograms):
    """The worker's own trainer, whose steps also run what is planted."""

    def __init__(self, *given: Any) -> None:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
        super().__init__(*given)
        self.plant()

    def cause(self, name: str) -> Cause:
        return BY_NAME[name]

    def unit_ns(self, cause: Cause, unit: Unit) -> float:
        return _unit_ns(cause) if cause.in_program else super().unit_ns(cause, unit)

    def _forward(self, inputs: tf.Tensor, lengths: Any, targets: Any) -> tf.Tensor:
        grown = [_grown(BY_NAME[p.name], p.count) for p in self.plants if p.in_program]
        with tf.control_dependencies(grown):
            inputs = tf.identity(inputs)
        return super()._forward(inputs, lengths, targets)  # type: ignore[misc]


def _grown(cause: Cause, count: int) -> tf.Tensor:
    """Add ``count`` calls of ``cause`` to the graph under construction; return the last result."""
    with tf.init_scope():  # outside of the graph: not constant-folded
        x = tf.fill((cause.size, cause.size), 0.5 / cause.size)  # keeps matmuls finite
    for _ in range(count):
        x = cause.unit(x)
    return tf.stop_gradient(x)


def _unit_ns(cause: Cause) -> float:
    many, none = (
        tf.function(lambda n=n: tf.reduce_sum(_grown(cause, n)), autograph=False)
        for n in (UNITS, 0)
    )
    return max(1.0, (fastest_ns(many) - fastest_ns(none)) / UNITS)


def planted_trainer(trainer: type, plan: dict[str, Any]) -> type:
    """Return a subclass of ``trainer`` whose steps also run what ``plan`` says."""
    return type("Trainer", (PlantedTensorflow, trainer), {"plan": plan})
