"""LSTMs of JAX: compiled by XLA."""
