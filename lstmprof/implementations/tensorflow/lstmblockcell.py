"""tf-lstmblockcell: LSTMBlockCell, one fused operator per time step, under tf.while_loop.

::

    i, c̃, f, o = [x_t, h_{t−1}] K + b        (gates in this order, c̃ the candidate; one bias)
    c_t = σ(f + forget_bias) ⊙ c_{t−1} + σ(i) ⊙ tanh(c̃)
    h_t = σ(o) ⊙ tanh(c_t)

``kernel`` K is (inputs + hidden, 4·hidden), ``bias`` b (4·hidden); time-major. ``forget_bias``
(default 1) is 0 here, and ``cell_clip`` −1, which turns clipping of c off. TensorFlow 2 registers
no gradient for the operator; as in TensorFlow 1, LSTMBlockCellGrad and two matmuls compute it.
Source: TensorFlow 1's tensorflow/contrib/rnn/python/ops/lstm_ops.py; the ASR study
(arXiv:1806.01818).
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from lstmprof.implementations import tensorflow as layers
from lstmprof.implementations.tensorflow import canonical, load, mixed_precision, parameters
from lstmprof.workloads import Workload

__all__ = ["KERNELS", "TIME_MAJOR", "build", "canonical", "load", "mixed_precision", "parameters"]

TIME_MAJOR = True
KERNELS = (("LSTMBlockCell", "TensorFlow's fused cell in a while loop"),)

FORGET_BIAS = 0.0
NO_CLIP = -1.0


class BlockCell(layers.Direction):
    GATES = (0, 2, 1, 3)  # i c̃ f o

    def __call__(self, x: tf.Tensor, h: tf.Tensor, c: tf.Tensor) -> Any:
        """Run one time step; return the next h and c, each (batch, hidden)."""
        return _fused(x, h, c, tf.convert_to_tensor(self.kernel), tf.convert_to_tensor(self.bias))


@tf.custom_gradient  # type: ignore[untyped-decorator, unused-ignore]
def _fused(x: tf.Tensor, h: tf.Tensor, c: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> Any:
    """Return the next (h, c), and the gradient function for ``tf.custom_gradient``."""
    given = {"x": x, "h_prev": h, "cs_prev": c, "w": kernel, "b": bias, "use_peephole": False}
    given.update(dict.fromkeys(("wci", "wcf", "wco"), tf.zeros([h.shape[1]])))
    block = tf.raw_ops.LSTMBlockCell(forget_bias=FORGET_BIAS, cell_clip=NO_CLIP, **given)

    def gradients(h_grad: tf.Tensor, c_grad: tf.Tensor) -> Any:
        kept = {name: getattr(block, name) for name in ("i", "cs", "f", "o", "ci", "co")}
        gradient = tf.raw_ops.LSTMBlockCellGrad(cs_grad=c_grad, h_grad=h_grad, **kept, **given)
        gates = gradient.dicfo
        x_grad, h_before = tf.split(
            tf.matmul(gates, kernel, transpose_b=True), [x.shape[1], h.shape[1]], 1
        )
        kernel_grad = tf.matmul(tf.concat([x, h], 1), gates, transpose_a=True)
        return x_grad, h_before, gradient.cs_prev_grad, kernel_grad, tf.reduce_sum(gates, 0)

    return (block.h, block.cs), gradients


def build(workload: Workload) -> layers.Network:
    return layers.Network(workload, BlockCell)
