"""Trains an LSTM in TensorFlow, whose next batch another thread replaces under a lock."""

import sys
import threading
import time

import numpy as np
import tensorflow as tf

BATCH, TIME, FEATURES = 8, 7, 6
LSTM, HEAD = tf.keras.layers.LSTM(16), tf.keras.layers.Dense(1)
OPTIMIZER = tf.keras.optimizers.SGD(0.05)


class Store:
    """The newest batch, which a thread reads from a slow disk."""

    def __init__(self):
        self.lock = threading.Lock()
        self.generator = np.random.default_rng(0)
        self.read()
        threading.Thread(target=self.refresh, daemon=True).start()

    def read(self):
        self.series = self.generator.normal(size=(BATCH, TIME, FEATURES)).astype("float32")

    def refresh(self):
        while True:
            with self.lock:
                time.sleep(0.02)  # reads a file
                self.read()
            time.sleep(0.0005)


@tf.function
def train_step(series, targets):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((HEAD(LSTM(series)) - targets) ** 2)
    variables = [*LSTM.trainable_variables, *HEAD.trainable_variables]
    OPTIMIZER.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
    return loss


def step(store):
    with store.lock:
        series = tf.constant(store.series)
    return train_step(series, tf.reduce_sum(series, (1, 2))[:, None])


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    tf.random.set_seed(0)
    HEAD(LSTM(tf.zeros((1, TIME, FEATURES))))
    store = Store()
    for number in range(count):
        loss = step(store)
        if number % 10 == 0:
            print(f"step {number}: {float(loss):.3f}")


if __name__ == "__main__":
    main()
