"""keras-torch-lstm: keras.layers.LSTM with its default options, on PyTorch.

The network is the one of keras-lstm, and also a torch module. ``KERAS_BACKEND=torch`` selects the
backend when keras is first imported. On a CPU, Keras projects the inputs of LSTM and GRU for all
time steps at once and indexes the result at every time step. The gradient of each indexing op is as
large as all projected inputs, so the time of the backward pass grows with the square of the number
of time steps. Keras runs its general loop for SimpleRNN and for inputs with a mask; the backward
pass of this loop does not grow with the square. Source: the documentation of keras.layers.LSTM;
keras/src/backend/torch/rnn.py 3.15.
"""

from __future__ import annotations

from lstmprof.implementations.keras.lstm import build, canonical, load, parameters

__all__ = ["KERNELS", "TIME_MAJOR", "build", "canonical", "load", "parameters"]

TIME_MAJOR = False
KERNELS = (("aten::_cudnn_rnn", "cuDNN"), ("aten::tanh", "separate ATen operators in Keras's loop"))
