"""Forecasts made-up series in Keras, whose batches a generator takes from a slow disk."""

import sys
import time

import keras
import numpy as np
from keras import layers

BATCH, TIME, FEATURES = 8, 10, 4


def batches():
    generator = np.random.default_rng(0)
    while True:
        time.sleep(0.1)  # reads a file
        series = generator.normal(size=(BATCH, TIME + 1, FEATURES)).cumsum(1)
        yield series[:, :-1], series[:, -1]


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    keras.utils.set_random_seed(0)
    model = keras.Sequential([layers.LSTM(24), layers.Dense(FEATURES)])
    model.compile(optimizer="rmsprop", loss="mse")
    model.fit(batches(), steps_per_epoch=count, epochs=1, verbose=0)
    print("fitted")


if __name__ == "__main__":
    main()
