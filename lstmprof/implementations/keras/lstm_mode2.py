"""keras-lstm-mode2: keras.layers.LSTM with implementation=2 and no cuDNN, on TensorFlow.

::

    i, f, c̃, o = x_t K + h_{t−1} R + b        (gates in this order, one bias)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(c̃)
    h_t = σ(o) ⊙ tanh(c_t)

K is ``kernel`` (inputs, 4·hidden), R is ``recurrent_kernel`` (hidden, 4·hidden), b is ``bias``
(4·hidden); batch-major. ``implementation=2`` computes all gates together: two matmuls per time
step. We assume that "mode 2" in the kernel study (analyses/README.md) means this setting.
``use_cudnn`` is False, because only Keras's own loop uses ``implementation``; on a CPU, keras-lstm
computes the same. Source: Keras 3.15, keras/src/layers/rnn/lstm.py (LSTMCell.call); GRU: gru.py.
"""

from __future__ import annotations

from lstmprof.implementations import keras as layers
from lstmprof.implementations.keras import canonical, load, mixed_precision, parameters
from lstmprof.workloads import Workload

__all__ = ["KERNELS", "TIME_MAJOR", "build", "canonical", "load", "mixed_precision", "parameters"]

TIME_MAJOR = False
KERNELS = (("while", "one product for all gates in Keras's while loop"),)


def build(workload: Workload) -> layers.Network:
    return layers.built(workload, implementation=2, use_cudnn=False)
