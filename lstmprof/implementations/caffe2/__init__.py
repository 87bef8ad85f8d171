"""Implementations in Caffe2, which PyTorch\'s packages contain since version 1.0."""
