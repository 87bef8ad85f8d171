"""keras-lstm-mode1: keras.layers.LSTM with implementation=1 and no cuDNN, on TensorFlow.

::

    i = σ(x_t K_i + h_{t−1} R_i + b_i)        (likewise f and o; gates i f c̃ o, one bias)
    c̃ = tanh(x_t K_c + h_{t−1} R_c + b_c)
    c_t = f ⊙ c_{t−1} + i ⊙ c̃
    h_t = o ⊙ tanh(c_t)

K is ``kernel`` (inputs, 4·hidden), R is ``recurrent_kernel`` (hidden, 4·hidden), b is ``bias``
(4·hidden); batch-major. ``implementation=1`` computes one matmul per gate on slices of the weights:
eight per time step (GRU: six). We assume that "mode 1" in the kernel study (analyses/README.md)
means this setting. ``use_cudnn`` is False, because only Keras's own loop uses ``implementation``.
Source: Keras 3.15, keras/src/layers/rnn/lstm.py (LSTMCell.call); GRU: gru.py.
"""

from __future__ import annotations

from lstmprof.implementations import keras as layers
from lstmprof.implementations.keras import canonical, load, mixed_precision, parameters
from lstmprof.workloads import Workload

__all__ = ["KERNELS", "TIME_MAJOR", "build", "canonical", "load", "mixed_precision", "parameters"]

TIME_MAJOR = False
KERNELS = (("while", "separate products for each gate in Keras's while loop"),)


def build(workload: Workload) -> layers.Network:
    return layers.built(workload, implementation=1, use_cudnn=False)
