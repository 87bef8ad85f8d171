"""Loss scaling for TensorFlow's float16, which has gradients that only a scaled loss keeps above 0.

The scale is TensorFlow's own DynamicLossScale, the same for Keras's policy and for the graph
rewrite: 2¹⁵ at first, halved when a gradient is not finite (that step changes no weight), doubled
after 2000 finite ones. Source: tensorflow/python/training/experimental/loss_scale.py 2.21.
"""

from __future__ import annotations

from typing import Any, List

import tensorflow as tf


class Unscaled:
    """The loss as it is: for every precision but float16."""

    def scaled(self, loss: tf.Tensor) -> tf.Tensor:
        """What is differentiated."""
        return loss

    def apply(self, optimizer: Any, gradients: List[tf.Tensor], variables: List[Any]) -> None:
        """One step of the optimizer."""
        optimizer.apply_gradients(list(zip(gradients, variables)))


class DynamicallyScaled(Unscaled):
    """The loss times the scale, the gradients divided by it."""

    def __init__(self) -> None:
        self.scale = tf.compat.v1.mixed_precision.DynamicLossScale()

    def scaled(self, loss: tf.Tensor) -> tf.Tensor:
        """What is differentiated."""
        return loss * self.scale()

    def apply(self, optimizer: Any, gradients: List[tf.Tensor], variables: List[Any]) -> None:
        """One step of the optimizer where every gradient is finite; the next scale."""
        unscaled = [_divided(gradient, self.scale()) for gradient in gradients]
        _, finite = self.scale.update([_values(gradient) for gradient in unscaled])

        def step() -> tf.Operation:
            return optimizer.apply_gradients(list(zip(unscaled, variables)))

        tf.cond(finite, step, tf.no_op)


def _values(gradient: Any) -> tf.Tensor:
    """The numbers in a gradient: those of an embedding's are rows with their places beside."""
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def _divided(gradient: Any, scale: tf.Tensor) -> Any:
    values = _values(gradient) / scale
    if not isinstance(gradient, tf.IndexedSlices):
        return values
    return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)


def loss_scaling(precision: str) -> Unscaled:
    """The scaling that ``precision`` needs."""
    return DynamicallyScaled() if precision == "amp-fp16" else Unscaled()
