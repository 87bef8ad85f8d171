"""Adds numbers with a GRU in TensorFlow: a loop of one's own around GradientTape."""

import sys

import numpy as np
import tensorflow as tf

BATCH, TIME = 8, 10


class Adder(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.gru, self.head = tf.keras.layers.GRU(20), tf.keras.layers.Dense(1)

    def call(self, numbers):
        return self.head(self.gru(numbers))


def train_step(model, optimizer, numbers, sums):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(numbers) - sums) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    generator = np.random.default_rng(0)
    model, optimizer = Adder(), tf.keras.optimizers.Adam(1e-2)
    for number in range(count):
        numbers = generator.random((BATCH, TIME, 2)).astype("float32")
        loss = train_step(model, optimizer, numbers, numbers.sum((1, 2))[:, None])
        if number % 10 == 0:
            print(f"step {number}: loss {float(loss):.3f}")


if __name__ == "__main__":
    main()
