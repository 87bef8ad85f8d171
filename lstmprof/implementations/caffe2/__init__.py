"""Implementations in Caffe2, which is part of PyTorch\'s packages since 1.0."""
