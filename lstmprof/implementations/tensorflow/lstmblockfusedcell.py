"""tf-lstmblockfusedcell: BlockLSTM, one fused operator per layer and direction.

::

    i, c̃, f, o = [x_t, h_{t−1}] K + b        (gates in this order, c̃ the candidate; one bias)
    c_t = σ(f + forget_bias) ⊙ c_{t−1} + σ(i) ⊙ tanh(c̃)
    h_t = σ(o) ⊙ tanh(c_t)

``kernel`` K is (inputs + hidden, 4·hidden), ``bias`` b (4·hidden); time-major. ``forget_bias``
(default 1) is 0 here, and ``cell_clip`` −1, which turns clipping of c off. Its successor
BlockLSTMV2 (gates i f c̃ o) is not used, because its gradients are wrong: TensorFlow 2.21 registers
BlockLSTM's gradient for it, which expects the other gate order. Outputs in the padding are set to
0, as LSTMBlockFusedCell did. Source: TensorFlow 1's tensorflow/contrib/rnn/python/ops/lstm_ops.py;
the ASR study (arXiv:1806.01818).
"""

from __future__ import annotations

from typing import Optional

import tensorflow as tf

from lstmprof.implementations import tensorflow as layers
from lstmprof.implementations.tensorflow import canonical, load, mixed_precision, parameters
from lstmprof.workloads import Workload

__all__ = ["KERNELS", "TIME_MAJOR", "build", "canonical", "load", "mixed_precision", "parameters"]

TIME_MAJOR = True
KERNELS = (("BlockLSTM", "TensorFlow's fused layer"),)

FORGET_BIAS = 0.0
NO_CLIP = -1.0


class BlockLayer(layers.Direction):
    GATES = (0, 2, 1, 3)  # i c̃ f o

    def run(self, inputs: tf.Tensor, reverse: bool, lengths: Optional[tf.Tensor]) -> tf.Tensor:
        """Map (time, batch, features) to outputs (time, batch, hidden), in time order."""
        inputs = layers.reversed_in_time(inputs, lengths) if reverse else inputs
        zeros = tf.zeros([inputs.shape[1], self.hidden])
        outputs = tf.raw_ops.BlockLSTM(
            seq_len_max=tf.constant(inputs.shape[0], tf.int64),
            x=inputs,
            cs_prev=zeros,
            h_prev=zeros,
            w=self.kernel,
            b=self.bias,
            forget_bias=FORGET_BIAS,
            cell_clip=NO_CLIP,
            use_peephole=False,
            **dict.fromkeys(("wci", "wcf", "wco"), tf.zeros([self.hidden])),
        ).h
        if lengths is not None:
            outputs = tf.where(layers.mask(lengths, inputs.shape[0]), outputs, 0.0)
        return layers.reversed_in_time(outputs, lengths) if reverse else outputs


def build(workload: Workload) -> layers.Network:
    return layers.Network(workload, BlockLayer)
