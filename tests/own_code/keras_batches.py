"""Forecasts made-up series in Keras, one batch at a time, as long-running services train."""

import sys

import keras
import numpy as np
from keras import layers


def batches(count, batch, length, features):
    generator = np.random.default_rng(0)
    for _ in range(count):
        series = generator.normal(size=(batch, length + 1, features)).cumsum(1).astype("float32")
        yield series[:, :-1], series[:, -1]


def forecaster(features):
    model = keras.Sequential([layers.LSTM(24), layers.Dense(features)])
    model.compile(optimizer="rmsprop", loss="mse", run_eagerly=True)  # to see prints in the layers
    return model


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    keras.utils.set_random_seed(0)
    model = forecaster(4)
    held_out = next(batches(1, 64, 10, 4))
    for number, (series, following) in enumerate(batches(count, 8, 10, 4)):
        loss = model.train_on_batch(series, following)
        if number % 50 == 0:
            tested = model.test_on_batch(*held_out)
            print(f"batch {number}: loss {float(loss):.3f}, tested {float(tested):.3f}")


if __name__ == "__main__":
    main()
