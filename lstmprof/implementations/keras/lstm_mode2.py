"""keras-lstm-mode2: keras.layers.LSTM with implementation=2 and no cuDNN, on TensorFlow.

::

    i, f, c̃, o = x_t K + h_{t−1} R + b        (gates in this order, one bias)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(c̃)
    h_t = σ(o) ⊙ tanh(c_t)

``kernel`` K is (inputs, 4·hidden), ``recurrent_kernel`` R (hidden, 4·hidden), ``bias`` (4·hidden);
batch-major. ``implementation=2``: the gates together, two products per step forward (one on x_t,
one on h_{t−1}). That this is "mode 2" of the kernel study is our reading of it. Keras 3's LSTM
minds ``implementation`` in its own loop alone, hence use_cudnn=False: on a CPU this is what
keras-lstm does. GRU (equations in ``keras_lstm``) likewise; SimpleRNN has one gate and no modes.
Source: keras/src/layers/rnn/lstm.py 3.15, LSTMCell.call; gru.py.
"""

from __future__ import annotations

from lstmprof.implementations import keras as layers
from lstmprof.implementations.keras import canonical, load, mixed_precision, parameters
from lstmprof.workloads import Workload

__all__ = ["KERNELS", "TIME_MAJOR", "build", "canonical", "load", "mixed_precision", "parameters"]

TIME_MAJOR = False
KERNELS = (("while", "one product for all gates in Keras's while loop"),)


def build(workload: Workload) -> layers.Network:
    """Return the network of ``workload`` without its weights."""
    return layers.built(workload, implementation=2, use_cudnn=False)
