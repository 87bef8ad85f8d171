"""tf-cudnnlstm: cuDNN's LSTM, one operator for all layers and directions; NVIDIA GPUs only.

::

    i, f, c̃, o = W x_t + b_W + R h_{t−1} + b_R        (gates in this order, two biases)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(c̃)
    h_t = σ(o) ⊙ tanh(c_t)

``params`` is one buffer in cuDNN's layout: for every layer and direction (forward first) W
(4·hidden, inputs) and R (4·hidden, hidden), row by row; then, in the same order, b_W and b_R. b_R
starts at zero. Time-major. After the end of a sequence, the outputs are 0. As in Keras, cuDNN
always gets sequence lengths, and is_training is true. Source: tf.raw_ops.CudnnRNNV3; for the order
of ``params`` keras/src/backend/tensorflow/rnn.py 3.15 (one layer) and get_parameters in PyTorch's
aten/src/ATen/native/cudnn/RNN.cpp (any).
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, Mapping, Optional, Tuple

import numpy as np
import tensorflow as tf

from lstmprof.implementations.tensorflow import (
    Ends,
    canonical_ends,
    load_ends,
    mixed_precision,
    parameters,
)
from lstmprof.workloads import Workload

__all__ = ["KERNELS", "TIME_MAJOR", "build", "canonical", "load", "mixed_precision", "parameters"]

TIME_MAJOR = True
KERNELS = (("CudnnRNN", "cuDNN"),)


class Network(Ends):
    """A network with all recurrent weights in one variable, in cuDNN's layout."""

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        self.workload = workload
        size = sum(int(np.prod(shape)) for _, shape in self.places())
        self.params = tf.Variable(tf.zeros([size]), name="params")

    def places(self) -> Iterator[Tuple[str, Tuple[int, ...]]]:
        """Yield (name, shape) of each weight in the buffer. A second bias has no name."""
        asked = self.workload
        suffixes = ("", "_reverse")[: asked.directions]
        slots = [(n, "_l{}{}".format(n, s)) for n in range(asked.layers) for s in suffixes]
        for layer, slot in slots:
            inputs = asked.directions * asked.hidden if layer else asked.features
            yield "weight_ih" + slot, (4 * asked.hidden, inputs)
            yield "weight_hh" + slot, (4 * asked.hidden, asked.hidden)
        for _, slot in slots:
            yield "bias" + slot, (4 * asked.hidden,)
            yield "", (4 * asked.hidden,)  # cuDNN's second bias

    def run(self, inputs: tf.Tensor, lengths: Optional[tf.Tensor]) -> tf.Tensor:
        """Map (time, batch, features) to the last layer's outputs (time, batch, width)."""
        workload, (steps, batch) = self.workload, inputs.shape[:2]
        zeros = tf.zeros([workload.layers * workload.directions, batch, workload.hidden])
        return tf.raw_ops.CudnnRNNV3(
            input=inputs,
            input_h=zeros,
            input_c=zeros,
            params=tf.convert_to_tensor(self.params),
            sequence_lengths=tf.fill([batch], steps) if lengths is None else lengths,
            rnn_mode="lstm",
            direction="bidirectional" if workload.bidirectional else "unidirectional",
            is_training=True,
            time_major=True,
        ).output


def build(workload: Workload) -> Network:
    return Network(workload)


def load(module: Network, weights: Mapping[str, Any]) -> None:
    """Copy the weights into cuDNN's buffer. Both have the gate order i f g o."""
    load_ends(module, weights)
    parts = [
        np.ravel(weights[name] if name else np.zeros(shape, np.float32))
        for name, shape in module.places()
    ]
    module.params.assign(np.concatenate(parts))


def canonical(module: Network, arrays: Mapping[str, Any]) -> Dict[str, Any]:
    shared, start = canonical_ends(arrays), 0
    for name, shape in module.places():
        end = start + int(np.prod(shape))
        if name:
            shared[name] = np.asarray(arrays["params"])[start:end].reshape(shape)
        start = end
    return shared
