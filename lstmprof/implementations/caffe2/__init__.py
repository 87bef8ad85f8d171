"""Implementations in Caffe2, which is in PyTorch's packages since version 1.0."""
