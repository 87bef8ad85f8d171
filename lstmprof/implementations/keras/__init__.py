"""Keras's LSTM layer, on each of its backends."""
