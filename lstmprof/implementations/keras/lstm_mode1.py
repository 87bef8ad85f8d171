"""keras-lstm-mode1: keras.layers.LSTM with implementation=1 and no cuDNN, on TensorFlow.

::

    i = σ(x_t K_i + h_{t−1} R_i + b_i)        (likewise f and o; gates i f c̃ o, one bias)
    c̃ = tanh(x_t K_c + h_{t−1} R_c + b_c)
    c_t = f ⊙ c_{t−1} + i ⊙ c̃
    h_t = o ⊙ tanh(c_t)

``kernel`` K is (inputs, 4·hidden), ``recurrent_kernel`` R (hidden, 4·hidden), ``bias`` (4·hidden);
batch-major. ``implementation=1``: a product for each gate, eight a time step forward (four on x_t,
four on h_{t−1}), on slices of the weights. That this is "mode 1" of the kernel study is our reading
of it. Keras 3's LSTM minds ``implementation`` in its own loop alone, hence use_cudnn=False. GRU
(equations in ``keras_lstm``) has six such products; SimpleRNN has one gate and no modes. Source:
keras/src/layers/rnn/lstm.py 3.15, LSTMCell.call; gru.py.
"""

from __future__ import annotations

from lstmprof.implementations import keras as layers
from lstmprof.implementations.keras import canonical, load, mixed_precision, parameters
from lstmprof.workloads import Workload

__all__ = ["KERNELS", "TIME_MAJOR", "build", "canonical", "load", "mixed_precision", "parameters"]

TIME_MAJOR = False
KERNELS = (("while", "separate products for each gate in Keras's while loop"),)


def build(workload: Workload) -> layers.Network:
    """Return the network of ``workload`` without its weights."""
    return layers.built(workload, implementation=1, use_cudnn=False)
