"""tf1-basiclstmcell: TensorFlow 1's BasicLSTMCell under dynamic_rnn.

::

    i, j, f, o = [x_t, h_{t−1}] K + b        (gates in this order, j the candidate; one bias)
    c_t = σ(f + forget_bias) ⊙ c_{t−1} + σ(i) ⊙ tanh(j)
    h_t = σ(o) ⊙ tanh(c_t)

``kernel`` K is (inputs + hidden, 4·hidden), ``bias`` b (4·hidden); time-major. ``forget_bias``
(default 1) is 0 here. Source: tensorflow/python/ops/rnn_cell_impl.py 1.15; the ASR study
(arXiv:1806.01818).
"""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from lstmprof.implementations import tensorflow1 as layers
from lstmprof.implementations.tensorflow1 import FORGET_BIAS, canonical, load, parameters
from lstmprof.workloads import Workload

__all__ = ["KERNELS", "TIME_MAJOR", "build", "canonical", "load", "parameters"]

TIME_MAJOR = True
KERNELS = (("rnn/while", "separate TensorFlow operators under dynamic_rnn"),)


class BasicCell(layers.Direction):
    def cell(self) -> Any:
        return tf.nn.rnn_cell.BasicLSTMCell(self.hidden, forget_bias=FORGET_BIAS)


def build(workload: Workload) -> layers.Network:
    """Return the network, which creates its parameters at its first call."""
    return layers.Network(workload, BasicCell)
