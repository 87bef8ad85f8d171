"""tf1-cudnnlstm: TensorFlow 1's CudnnLSTM, one operator for all layers; NVIDIA GPUs only.

::

    i, f, c̃, o = W x_t + b_W + R h_{t−1} + b_R        (gates in this order, two biases)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(c̃)
    h_t = σ(o) ⊙ tanh(c_t)

``opaque_kernel`` is one buffer in cuDNN's layout, which TensorFlow's operators convert to W
(hidden, inputs) and R (hidden, hidden) of each gate, and back. b_R starts at zero. Time-major; no
forget bias. Sequence lengths need TensorFlow 1.14. Source:
tensorflow/contrib/cudnn_rnn/python/layers/cudnn_rnn.py and …/ops/cudnn_rnn_ops.py 1.15; the ASR
study (arXiv:1806.01818).
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.contrib import cudnn_rnn
from tensorflow.contrib.cudnn_rnn.python.ops import cudnn_rnn_ops

from lstmprof.implementations.tensorflow1 import (
    Ends,
    canonical_ends,
    load_ends,
    own_name,
    parameters,
)
from lstmprof.workloads import GATES, Workload

__all__ = ["KERNELS", "TIME_MAJOR", "build", "canonical", "load", "parameters"]

TIME_MAJOR = True
KERNELS = (("CudnnRNN", "cuDNN"),)
MODE = "lstm"


class Network(Ends):
    """A network with one CudnnLSTM for all recurrent layers."""

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        self.lstm: Any = None

    @property
    def direction(self) -> str:
        return "bidirectional" if self.workload.bidirectional else "unidirectional"

    def run(self, inputs: tf.Tensor, lengths: Optional[tf.Tensor]) -> tf.Tensor:
        """Map (time, batch, features) to the last layer's outputs (time, batch, width)."""
        workload = self.workload
        self.lstm = cudnn_rnn.CudnnLSTM(workload.layers, workload.hidden, direction=self.direction)
        arguments = {} if lengths is None else {"sequence_lengths": lengths}
        outputs, _ = self.lstm(inputs, training=True, **arguments)
        outputs.set_shape(
            [workload.time_steps, workload.batch, workload.directions * workload.hidden]
        )
        return outputs

    @property
    def variables(self) -> Tuple[Any, ...]:
        """Return the one variable with all recurrent weights, in cuDNN's layout."""
        return (self.lstm.kernel,)

    @property
    def slots(self) -> Iterator[str]:
        """Yield suffixes of weight names in cuDNN's order: ``_l0``, ``_l0_reverse`` …"""
        for layer in range(self.workload.layers):
            for suffix in ("", "_reverse")[: self.workload.directions]:
                yield "_l{}{}".format(layer, suffix)

    @property
    def sizes(self) -> Tuple[str, int, int, int]:
        """Return the first arguments of both functions that convert cuDNN's layout."""
        return MODE, self.workload.layers, self.workload.hidden, self.workload.features


def build(workload: Workload) -> Network:
    """Return the network, which creates its parameters at its first call."""
    return Network(workload)


def load(module: Network, weights: Mapping[str, Any]) -> None:
    load_ends(module, weights)
    matrices, biases = per_gate(module, weights)
    opaque = cudnn_rnn_ops.cudnn_rnn_canonical_to_opaque_params(
        *module.sizes, weights=matrices, biases=biases, direction=module.direction
    )
    tf.get_default_session().run(tf.assign(module.lstm.kernel, opaque, validate_shape=False))


def per_gate(module: Network, weights: Mapping[str, Any]) -> Tuple[List[Any], List[Any]]:
    """Split the weights into one matrix and one bias per gate, in cuDNN's order."""
    # append W's gates, then R's gates, for each layer and direction; R's biases are zeros
    matrices, biases = [], []
    for slot in module.slots:
        for name in ("weight_ih", "weight_hh"):
            matrices += np.split(weights[name + slot], GATES[MODE])
        bias = np.split(weights["bias" + slot], GATES[MODE])
        biases += bias + [np.zeros_like(each) for each in bias]
    return matrices, biases


def canonical(module: Network, arrays: Mapping[str, Any]) -> Dict[str, Any]:
    converted = cudnn_rnn_ops.cudnn_rnn_opaque_params_to_canonical(
        *module.sizes,
        params=tf.constant(arrays[own_name(module.lstm.kernel)]),
        direction=module.direction,
    )
    matrices, biases = tf.get_default_session().run(converted)
    shared, gates = canonical_ends(arrays), GATES[MODE]
    for place, slot in enumerate(module.slots):
        start = 2 * gates * place
        for number, name in enumerate(("weight_ih", "weight_hh")):
            first = start + number * gates
            shared[name + slot] = np.concatenate(matrices[first : first + gates])
        shared["bias" + slot] = np.concatenate(biases[start : start + gates])
    return shared
