"""LSTMs of TensorFlow operators; they run under ``tf.function``."""
