"""Steps of TensorFlow as its issues tell them, each profiled into a folder: one argument, where to.

``eager`` has no tf.function, ``number`` gives one a Python number that changes, ``anew`` makes one
in every step, ``function`` is right. ``keras-eager`` and ``keras-mask`` are layers of Keras.
"""

import os
import sys
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf

TIME_STEPS, BATCH, FEATURES, HIDDEN = 12, 4, 8, 8
WARM, PROFILED = 2, 2

INPUTS = tf.random.normal([BATCH, TIME_STEPS, FEATURES])
WEIGHTS = tf.Variable(tf.random.normal([FEATURES + HIDDEN, 4 * HIDDEN]) * 0.1)


def lstm(inputs):
    """The last hidden state of a layer written in operators."""
    hidden = cell = tf.zeros([BATCH, HIDDEN])
    for now in tf.unstack(inputs, axis=1):
        gates = tf.split(tf.concat([now, hidden], 1) @ WEIGHTS, 4, axis=1)
        cell = tf.sigmoid(gates[0]) * cell + tf.sigmoid(gates[1]) * tf.tanh(gates[2])
        hidden = tf.sigmoid(gates[3]) * tf.tanh(cell)
    return hidden


def train(inputs, rate=0.1):
    """One step of gradient descent."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(lstm(inputs) ** 2)
    WEIGHTS.assign_sub(rate * tape.gradient(loss, WEIGHTS))
    return loss


def steps_of_keras(*layers, tokens, eagerly=False):
    """A step of a model of Keras with these layers under a Dense one."""
    model = keras.Sequential([*layers, keras.layers.Dense(2)])
    model.compile("sgd", "mse", run_eagerly=eagerly, jit_compile=False)
    inputs = np.zeros((BATCH, TIME_STEPS), np.int32) if tokens else INPUTS.numpy()
    if tokens:
        inputs[:, TIME_STEPS // 2 :] = 1  # texts of half the length, padded in front
    targets = np.zeros((BATCH, 2), np.float32)
    return lambda number: model.train_on_batch(inputs, targets)


FUNCTION = tf.function(train)
PROGRAMS = {
    "function": lambda number: FUNCTION(INPUTS),
    "eager": lambda number: train(INPUTS),
    "number": lambda number: FUNCTION(INPUTS, 0.1 / (1 + number)),
    "anew": lambda number: tf.function(train)(INPUTS),
    "keras-eager": steps_of_keras(keras.layers.LSTM(HIDDEN), tokens=False, eagerly=True),
    "keras-mask": steps_of_keras(
        keras.layers.Embedding(3, FEATURES, mask_zero=True),
        keras.layers.LSTM(HIDDEN),
        tokens=True,
    ),
    "keras": steps_of_keras(keras.layers.LSTM(HIDDEN), tokens=False),
}


def profile(step, folder, first):
    """Profile steps of this program, each marked."""
    tf.profiler.experimental.start(folder)
    for number in range(first, first + PROFILED):
        with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
            step(number)
    tf.profiler.experimental.stop()


if __name__ == "__main__":
    FOLDER = Path(sys.argv[1])
    for name, step in PROGRAMS.items():
        for number in range(WARM):
            step(number)
        profile(step, str(FOLDER / name), WARM)
