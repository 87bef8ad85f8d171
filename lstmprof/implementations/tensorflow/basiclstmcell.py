"""tf-basiclstmcell: TensorFlow 1's BasicLSTMCell under tf.nn.dynamic_rnn, in TensorFlow 2.

::

    i, j, f, o = [x_t, h_{t−1}] K + b        (gates in this order, j the candidate; one bias)
    c_t = σ(f + forget_bias) ⊙ c_{t−1} + σ(i) ⊙ tanh(j)
    h_t = σ(o) ⊙ tanh(c_t)

``kernel`` K is (inputs + hidden, 4·hidden), ``bias`` b (4·hidden); time-major. ``forget_bias``
(default 1) is 0 here, but still added, so that the operators are the same. TensorFlow 2.16 moved
the class to the package tf-keras, so this file repeats its operators; a test compares both. The
reverse direction reverses inputs and outputs, each sequence up to its own end. Source:
tf_keras/src/layers/rnn/legacy_cells.py 2.21; the ASR study (arXiv:1806.01818).
"""

from __future__ import annotations

from typing import Any, Optional, Tuple

import tensorflow as tf

from lstmprof.implementations import tensorflow as layers
from lstmprof.implementations.tensorflow import canonical, load, mixed_precision, parameters
from lstmprof.workloads import Workload

__all__ = ["KERNELS", "TIME_MAJOR", "build", "canonical", "load", "mixed_precision", "parameters"]

TIME_MAJOR = True
KERNELS = (("rnn/while", "separate TensorFlow operators under dynamic_rnn"),)

FORGET_BIAS = 0.0


class BasicLSTMCell(layers.Direction):
    """One direction of one layer, as a cell for dynamic_rnn."""

    GATES = (0, 2, 1, 3)  # i j f o
    get_initial_state = None  # so that dynamic_rnn calls zero_state

    @property
    def output_size(self) -> int:
        return self.hidden

    @property
    def state_size(self) -> Tuple[int, int]:
        return self.hidden, self.hidden

    def zero_state(self, batch: Any, dtype: Any) -> Any:
        return tf.zeros([batch, self.hidden], dtype), tf.zeros([batch, self.hidden], dtype)

    def __call__(self, x: tf.Tensor, state: Any) -> Any:  # type: ignore[override]
        """Run one time step; return h and the state (c, h)."""
        c, h = state
        gates = tf.nn.bias_add(tf.matmul(tf.concat([x, h], 1), self.kernel), self.bias)
        i, j, f, o = tf.split(gates, 4, axis=1)
        forgotten = tf.multiply(c, tf.sigmoid(tf.add(f, tf.constant(FORGET_BIAS))))
        c = tf.add(forgotten, tf.multiply(tf.sigmoid(i), tf.tanh(j)))
        h = tf.multiply(tf.tanh(c), tf.sigmoid(o))
        return h, (c, h)

    def run(self, inputs: tf.Tensor, reverse: bool, lengths: Optional[tf.Tensor]) -> tf.Tensor:
        """Map (time, batch, features) to outputs (time, batch, hidden), in time order."""
        inputs = layers.reversed_in_time(inputs, lengths) if reverse else inputs
        outputs, _ = tf.compat.v1.nn.dynamic_rnn(
            self, inputs, sequence_length=lengths, dtype=tf.float32, time_major=True
        )
        return layers.reversed_in_time(outputs, lengths) if reverse else outputs


def build(workload: Workload) -> layers.Network:
    return layers.Network(workload, BasicLSTMCell)
