"""A TensorFlow 1 graph: an LSTM by hand, whose sessions run one training op per step."""

import sys
import time

import numpy as np
import tensorflow as tf

TIME, BATCH, INPUTS, HIDDEN = 12, 32, 32, 64
v1 = tf.compat.v1


def build():
    """Return the placeholder of a batch, the loss and the op that trains."""
    series = v1.placeholder(tf.float32, (TIME, BATCH, INPUTS))
    of_inputs = v1.get_variable("of_inputs", (INPUTS, 4 * HIDDEN))
    of_hidden = v1.get_variable("of_hidden", (HIDDEN, 4 * HIDDEN))
    bias = v1.get_variable("bias", (4 * HIDDEN,))

    def cell(states, inputs):
        hidden, memory = states
        gates = tf.matmul(inputs, of_inputs) + tf.matmul(hidden, of_hidden) + bias
        i, j, f, o = tf.split(gates, 4, 1)
        memory = memory * tf.sigmoid(f) + tf.sigmoid(i) * tf.tanh(j)
        return tf.tanh(memory) * tf.sigmoid(o), memory

    zeros = tf.zeros((BATCH, HIDDEN))
    hidden, _ = tf.scan(cell, series, (zeros, zeros))
    guess = tf.reduce_sum(hidden[-1], 1)
    loss = tf.reduce_mean((guess - tf.reduce_sum(series, (0, 2))) ** 2)
    return series, loss, v1.train.GradientDescentOptimizer(0.001).minimize(loss)


def main():
    v1.disable_eager_execution()
    series, loss, train = build()
    generator = np.random.default_rng(0)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for number in range(int(sys.argv[1]) if len(sys.argv) > 1 else 40):
            time.sleep(0.02)  # waits for a queue of batches
            batch = generator.normal(size=(TIME, BATCH, INPUTS))
            value, _ = session.run([loss, train], {series: batch})
            if number % 10 == 0:
                print(f"step {number}: loss {value:.3f}", flush=True)


if __name__ == "__main__":
    main()
