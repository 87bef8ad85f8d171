"""A TensorFlow script that trains a tagger and profiles itself. Arguments: FOLDER graph|eager."""

import sys

import numpy as np
import tensorflow as tf

import lstmprof as lp

TIME, BATCH, INPUTS, HIDDEN, TAGS = 20, 8, 32, 64, 20


class Tagger(tf.Module):
    """A hand-written LSTM with an output layer."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = _weights(INPUTS, 4 * HIDDEN)
        self.recurrent = _weights(HIDDEN, 4 * HIDDEN)
        self.bias = _weights(4 * HIDDEN)
        self.head = _weights(HIDDEN, TAGS)

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        """Return scores (time, batch, tags) for inputs (time, batch, features)."""
        h = c = tf.zeros((BATCH, HIDDEN))
        outputs = []
        for x in tf.unstack(inputs):
            gates = x @ self.kernel + h @ self.recurrent + self.bias
            i, f, g, o = tf.split(gates, 4, axis=1)
            c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
            h = tf.sigmoid(o) * tf.tanh(c)
            outputs.append(h)
        return tf.stack(outputs) @ self.head


def _weights(*shape: int) -> tf.Variable:
    return tf.Variable(tf.random.normal(shape, stddev=0.1))


def main() -> None:
    """Train for some steps under ``lp.profile``."""
    place, form = sys.argv[1:]
    tagger, optimizer = Tagger(), tf.keras.optimizers.SGD(0.1)

    def step(inputs: tf.Tensor, tags: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            of_each = tf.nn.sparse_softmax_cross_entropy_with_logits(tags, tagger(inputs))
            loss = tf.reduce_mean(of_each)
        gradients = tape.gradient(loss, tagger.trainable_variables)
        optimizer.apply_gradients(zip(gradients, tagger.trainable_variables, strict=True))

    train = step if form == "eager" else tf.function(step)
    generator = np.random.default_rng(0)
    with lp.profile(place, force=True) as profile:
        for _ in range(400):
            inputs = tf.constant(generator.normal(size=(TIME, BATCH, INPUTS)), tf.float32)
            train(inputs, tf.constant(generator.integers(TAGS, size=(TIME, BATCH))))
            profile.step()


main()
