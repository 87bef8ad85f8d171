"""keras-lstm: keras.layers.LSTM as it comes, on TensorFlow.

::

    i, f, c̃, o = x_t K + h_{t−1} R + b        (gates in this order, one bias)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(c̃)
    h_t = σ(o) ⊙ tanh(c_t)

``kernel`` K is (inputs, 4·hidden), ``recurrent_kernel`` R (hidden, 4·hidden), ``bias`` (4·hidden);
batch-major. With ``use_cudnn="auto"``, the default, Keras calls cuDNN on a GPU, elsewhere its own
loop with ``implementation=2``: ``KERNELS`` tells from the operators of a profile.

GRU (``cell="gru"``) is keras.layers.GRU with the reset gate after the product, gates z r h::

    z, r = σ(x_t K + b + h_{t−1} R + b_R)
    h̃ = tanh(x_t K + b + r ⊙ (h_{t−1} R + b_R))
    h_t = z ⊙ h_{t−1} + (1 − z) ⊙ h̃

and ``cell="rnn"`` keras.layers.SimpleRNN, h_t = tanh(x_t K + h_{t−1} R + b), which has no cuDNN.
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
KERNELS = (
    ("CudnnRNN", "cuDNN"),
    ("while", "separate TensorFlow operators in Keras's while loop"),
)


def build(workload: Workload) -> Network:
    """Return the network of ``workload`` without its weights."""
    return layers.built(workload)
