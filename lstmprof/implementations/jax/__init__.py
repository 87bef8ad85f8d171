"""Implementations in JAX and its libraries, compiled by XLA."""
