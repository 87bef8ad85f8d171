"""keras-lstm: keras.layers.LSTM with its default options, on TensorFlow.

::

    i, f, c̃, o = x_t K + h_{t−1} R + b        (gates in this order, one bias)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(c̃)
    h_t = σ(o) ⊙ tanh(c_t)

K is ``kernel`` (inputs, 4·hidden), R is ``recurrent_kernel`` (hidden, 4·hidden), b is ``bias``
(4·hidden); batch-major. With the default, ``use_cudnn="auto"``, Keras calls cuDNN on a GPU and its
own loop, with ``implementation=2``, on a CPU. The operators in a profile show which of the two ran
(``KERNELS``).

``cell="gru"`` is keras.layers.GRU with the reset gate after the matmul, gates z r h::

    z, r = σ(x_t K + b + h_{t−1} R + b_R)
    h̃ = tanh(x_t K + b + r ⊙ (h_{t−1} R + b_R))
    h_t = z ⊙ h_{t−1} + (1 − z) ⊙ h̃

``cell="rnn"`` is keras.layers.SimpleRNN, h_t = tanh(x_t K + h_{t−1} R + b), which never uses cuDNN.
Source: the documentation of keras.layers.LSTM, GRU and SimpleRNN; keras/src/layers/rnn/lstm.py and
gru.py 3.15.
"""

from __future__ import annotations

from lstmprof.implementations import keras as layers
from lstmprof.implementations.keras import Network, canonical, load, mixed_precision, parameters
from lstmprof.workloads import Workload

__all__ = [
    "KERNELS",
    "TIME_MAJOR",
    "Network",
    "build",
    "canonical",
    "load",
    "mixed_precision",
    "parameters",
]

TIME_MAJOR = False
KERNELS = (("CudnnRNN", "cuDNN"), ("while", "separate TensorFlow operators in Keras's while loop"))


def build(workload: Workload) -> Network:
    return layers.built(workload)
