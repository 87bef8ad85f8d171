"""Implementations in PyTensor, the successor of Theano."""
