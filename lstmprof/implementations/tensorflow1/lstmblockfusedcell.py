"""tf1-lstmblockfusedcell: TensorFlow 1's LSTMBlockFusedCell, one operator per layer and direction.

::

    i, c̃, f, o = [x_t, h_{t−1}] K + b        (gates in this order, c̃ the candidate; one bias)
    c_t = σ(f + forget_bias) ⊙ c_{t−1} + σ(i) ⊙ tanh(c̃)
    h_t = σ(o) ⊙ tanh(c_t)

``kernel`` K is (inputs + hidden, 4·hidden), ``bias`` b (4·hidden); time-major. ``forget_bias``
(default 1) is 0 here; clipping and peepholes are off by default. The layer sets outputs in the
padding to 0. Source: tensorflow/contrib/rnn/python/ops/lstm_ops.py 1.15; the ASR study
(arXiv:1806.01818).
"""

from __future__ import annotations

from typing import Any, Optional, Tuple

import tensorflow.compat.v1 as tf
from tensorflow.contrib import rnn

from lstmprof.implementations import tensorflow1 as layers
from lstmprof.implementations.tensorflow1 import FORGET_BIAS, canonical, load, parameters
from lstmprof.workloads import Workload

__all__ = ["KERNELS", "TIME_MAJOR", "build", "canonical", "load", "parameters"]

TIME_MAJOR = True
KERNELS = (("BlockLSTM", "TensorFlow's fused layer"),)


class BlockLayer(layers.Direction):
    def unrolled(self, inputs: tf.Tensor, lengths: Optional[tf.Tensor]) -> Tuple[Any, tf.Tensor]:
        """Return a new layer, and its outputs (time, batch, hidden) for the inputs."""
        layer = rnn.LSTMBlockFusedCell(self.hidden, forget_bias=FORGET_BIAS)
        outputs, _ = layer(inputs, dtype=tf.float32, sequence_length=lengths)
        return layer, outputs


def build(workload: Workload) -> layers.Network:
    """Return the network, which creates its parameters at its first call."""
    return layers.Network(workload, BlockLayer)
