"""keras-torch-lstm: keras.layers.LSTM as it comes, on PyTorch.

Equations, gate order (i f c̃ o, one bias) and layout are those of ``keras_lstm``, whose network this
is; batch-major. Here the network is a torch module too, and torch's loop trains it. The backend is
the environment's ``KERAS_BACKEND=torch``, read when keras is first imported: one backend a process.
On a CPU Keras indexes the projected inputs of LSTM and GRU at every time step, and the gradient of
each index is as large as all of them: the backward pass grows with the square of the time steps.
For SimpleRNN and with a mask, which cuDNN's path here refuses too, Keras takes its general loop,
which projects at every time step and does not grow so. Source: the documentation of
keras.layers.LSTM; keras/src/backend/torch/rnn.py 3.15.
"""

from __future__ import annotations

from lstmprof.implementations.keras.lstm import build, canonical, load, parameters

__all__ = ["KERNELS", "TIME_MAJOR", "build", "canonical", "load", "parameters"]

TIME_MAJOR = False
KERNELS = (
    ("aten::_cudnn_rnn", "cuDNN"),
    ("aten::tanh", "separate ATen operators in Keras's loop"),
)
