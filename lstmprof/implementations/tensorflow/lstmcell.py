"""tf-lstmcell: the LSTM written by hand, under tf.while_loop.

::

    i, j, f, o = [x_t, h_{t−1}] K + b        (gates in this order, j the candidate; one bias)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(j)
    h_t = σ(o) ⊙ tanh(c_t)

``kernel`` K is (inputs + hidden, 4·hidden), ``bias`` b (4·hidden); time-major. No forget bias is
added. The results equal those of tf-basiclstmcell, but the loop is a plain tf.while_loop. Source:
the ASR study (arXiv:1806.01818); Hochreiter & Schmidhuber 1997, Gers et al. 1999.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from lstmprof.implementations import tensorflow as layers
from lstmprof.implementations.tensorflow import canonical, load, mixed_precision, parameters
from lstmprof.workloads import Workload

__all__ = ["KERNELS", "TIME_MAJOR", "build", "canonical", "load", "mixed_precision", "parameters"]

TIME_MAJOR = True
KERNELS = (("HandWrittenCell", "separate TensorFlow operators in a while loop"),)


class HandWrittenCell(layers.Direction):
    GATES = (0, 2, 1, 3)  # i j f o

    def __call__(self, x: tf.Tensor, h: tf.Tensor, c: tf.Tensor) -> Any:
        """Run one time step; return the next h and c, each (batch, hidden)."""
        gates = tf.matmul(tf.concat([x, h], 1), self.kernel) + self.bias
        i, j, f, o = tf.split(gates, 4, axis=1)
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(j)
        return tf.sigmoid(o) * tf.tanh(c), c


def build(workload: Workload) -> layers.Network:
    return layers.Network(workload, HandWrittenCell)
