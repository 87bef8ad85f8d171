"""LSTMs of PyTorch."""
