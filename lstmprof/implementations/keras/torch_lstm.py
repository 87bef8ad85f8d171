"""keras-torch-lstm: keras.layers.LSTM with its default options, on PyTorch.

The network is that of keras-lstm; it is also a torch module. ``KERAS_BACKEND=torch`` selects the
backend when keras is first imported. On a CPU, Keras projects the inputs of LSTM and GRU for all
time steps at once and indexes the result at every time step. The gradient of each index is as large
as all projected inputs, so the backward pass grows with the square of the number of time steps.
With a mask, and for SimpleRNN, Keras's general loop runs, which does not grow like this. Source:
the documentation of keras.layers.LSTM; keras/src/backend/torch/rnn.py 3.15.
"""

from __future__ import annotations

from lstmprof.implementations.keras.lstm import build, canonical, load, parameters

__all__ = ["KERNELS", "TIME_MAJOR", "build", "canonical", "load", "parameters"]

TIME_MAJOR = False
KERNELS = (("aten::_cudnn_rnn", "cuDNN"), ("aten::tanh", "separate ATen operators in Keras's loop"))
