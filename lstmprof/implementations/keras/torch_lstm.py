"""keras-torch-lstm: keras.layers.LSTM with its default options, on PyTorch.

The network is the same as in keras-lstm: equations, gate order (i f c̃ o, one bias) and layout;
batch-major. It is also a torch module, and lstmprof's PyTorch loop trains it. The environment
variable ``KERAS_BACKEND=torch`` selects the backend when keras is first imported, so a process has
one backend. On a CPU, Keras projects the inputs of LSTM and GRU for all time steps at once and
indexes the result at every time step. The gradient of each index is as large as all projected
inputs, so the time of the backward pass grows with the square of the number of time steps. For
SimpleRNN, and with a mask (which Keras's cuDNN code does not support either), Keras uses its
general loop, which projects the inputs of one time step at a time and does not grow like this.
Source: the documentation of keras.layers.LSTM; keras/src/backend/torch/rnn.py 3.15.
"""

from __future__ import annotations

from lstmprof.implementations.keras.lstm import build, canonical, load, parameters

__all__ = ["KERNELS", "TIME_MAJOR", "build", "canonical", "load", "parameters"]

TIME_MAJOR = False
KERNELS = (("aten::_cudnn_rnn", "cuDNN"), ("aten::tanh", "separate ATen operators in Keras's loop"))
