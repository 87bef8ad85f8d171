"""Forecasts series in TensorFlow: a loop in Python calls an LSTM cell at each time step."""

import sys

import numpy as np
import tensorflow as tf

BATCH, TIME, FEATURES, SIZE = 8, 9, 4, 16


class Forecaster(tf.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = tf.keras.layers.LSTMCell(SIZE), tf.keras.layers.Dense(FEATURES)

    def __call__(self, series):
        states = [tf.zeros((BATCH, SIZE))] * 2
        for values in tf.unstack(series, axis=1):
            output, states = self.cell(values, states)
        return self.head(output)

    @property
    def weights(self):
        return self.cell.trainable_weights + self.head.trainable_weights


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    generator = np.random.default_rng(0)
    model = Forecaster()
    for number in range(count):
        series = generator.normal(size=(BATCH, TIME + 1, FEATURES)).cumsum(1).astype("float32")
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(series[:, :-1]) - series[:, -1]) ** 2)
        for weight, gradient in zip(model.weights, tape.gradient(loss, model.weights), strict=True):
            weight.assign_sub(0.01 * gradient)
        if number % 10 == 0:
            print(f"step {number}: loss {float(loss):.3f}")


if __name__ == "__main__":
    main()
