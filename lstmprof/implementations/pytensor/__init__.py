"""LSTMs of PyTensor."""
