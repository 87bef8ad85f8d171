"""An LSTM in TensorFlow whose gradients are subtracted by hand, in a compiled step."""

import sys

import tensorflow as tf

BATCH, TIME, FEATURES, RATE = 8, 7, 6, 0.05
LSTM, HEAD = tf.keras.layers.LSTM(16), tf.keras.layers.Dense(1)


@tf.function
def train_step(series, targets, epoch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((HEAD(LSTM(series)) - targets) ** 2)
    variables = [*LSTM.trainable_variables, *HEAD.trainable_variables]
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        variable.assign_sub(RATE / (1 + epoch) * gradient)
    return loss


@tf.function
def evaluate(series, targets):
    return tf.reduce_mean((HEAD(LSTM(series)) - targets) ** 2)


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    tf.random.set_seed(0)
    HEAD(LSTM(tf.zeros((1, TIME, FEATURES))))
    for number in range(count):
        series = tf.random.normal((BATCH, TIME, FEATURES))
        targets = tf.reduce_sum(series, (1, 2))[:, None]
        loss = train_step(series, targets, number)  # a Python number: traced anew for each
        if number % 10 == 0:
            print(f"step {number}: {float(loss):.3f} {float(evaluate(series, targets)):.3f}")


if __name__ == "__main__":
    main()
