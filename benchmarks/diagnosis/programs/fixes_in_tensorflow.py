"""Pairs of TensorFlow training steps: with a mistake, and with its fix, by the fix's name."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

TIME, BATCH, FEATURES, HIDDEN = 20, 16, 64, 128
Step = Callable[[], object]


class ByHand(tf.Module):
    """An LSTM written in separate ops."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = tf.Variable(tf.random.normal((FEATURES + HIDDEN, 4 * HIDDEN), stddev=0.1))

    def __call__(self, x: Any) -> Any:
        """Return the last hidden state for inputs (time, batch, features)."""
        h = c = tf.zeros((BATCH, HIDDEN))
        for t in range(TIME):
            gates = tf.concat([x[t], h], 1) @ self.kernel
            i, f, g, o = tf.split(gates, 4, axis=1)
            c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
            h = tf.sigmoid(o) * tf.tanh(c)
        return h


def training(model: Any, x: Any, **function: Any) -> Step:
    """Return a training step in a tf.function with the options ``function``; eager without any."""

    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x)))
        for variable, gradient in zip(
            model.trainable_variables,
            tape.gradient(loss, model.trainable_variables),
            strict=True,
        ):
            variable.assign_sub(1e-3 * gradient)

    return tf.function(step, **function) if function else step


def by_hand(**function: Any) -> Step:
    """Return a step that trains the hand-written LSTM."""
    return training(ByHand(), tf.random.normal((TIME, BATCH, FEATURES)), **function)


def keras(unroll: bool) -> Step:
    """Return a step that trains a Keras LSTM, with a loop or unrolled over time steps."""
    layer = tf.keras.layers.LSTM(HIDDEN, unroll=unroll)
    x = tf.random.normal((BATCH, TIME, FEATURES))
    layer(x)
    return training(layer, x, reduce_retracing=True)


PAIRS: dict[str, tuple[Callable[[], Step], Callable[[], Step]]] = {
    "one tf.function": (by_hand, lambda: by_hand(reduce_retracing=True)),
    "XLA": (lambda: by_hand(reduce_retracing=True), lambda: by_hand(jit_compile=True)),
    "XLA (unroll a Keras layer)": (lambda: keras(False), lambda: keras(True)),
}
