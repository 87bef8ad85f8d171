"""keras-lstm: keras.layers.LSTM as it comes, on TensorFlow.

::

    i, f, c̃, o = x_t K + h_{t−1} R + b        (gates in this order, one bias)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(c̃)
    h_t = σ(o) ⊙ tanh(c_t)

``kernel`` K is (inputs, 4·hidden), ``recurrent_kernel`` R (hidden, 4·hidden), ``bias`` (4·hidden);
batch-major. With ``use_cudnn="auto"``, the default, Keras calls cuDNN on a GPU, elsewhere its own
loop: ``KERNELS`` tells from the operators of a profile. ``unit_forget_bias`` concerns the initial
weights only, which ``load`` replaces. Source: the documentation of keras.layers.LSTM.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, Mapping, Tuple

import keras
import numpy as np

from lstmprof.workloads import Workload

TIME_MAJOR = False
KERNELS = (
    ("CudnnRNN", "cuDNN"),
    ("while", "separate TensorFlow operators in Keras's while loop"),
)


class Network(keras.Model):  # type: ignore[misc]
    """``lstms``, each an LSTM or a Bidirectional of one, and ``head``."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.every_step = workload.loss == "ctc"
        self.lstms = [_layer(workload) for _ in range(workload.layers)]
        self.head = keras.layers.Dense(workload.classes, use_bias=False)

    def call(self, inputs: Any) -> Any:
        """Inputs (batch, time, features); outputs (batch, classes), for CTC one a time step."""
        for lstm in self.lstms:
            inputs = lstm(inputs)
        return self.head(inputs if self.every_step else inputs[:, -1])


def _layer(workload: Workload) -> Any:
    lstm = keras.layers.LSTM(workload.hidden, return_sequences=True)
    return keras.layers.Bidirectional(lstm) if workload.bidirectional else lstm


def build(workload: Workload) -> Network:
    """The network of ``workload``, weights not yet set."""
    module = Network(workload)
    module(np.zeros((workload.batch, workload.time_steps, workload.features), np.float32))
    return module


def parameters(module: Network) -> Dict[str, Any]:
    """Own path -> TensorFlow variable, in the module's order."""
    return {variable.path: variable.value for variable in module.trainable_variables}


def load(module: Network, weights: Mapping[str, Any]) -> None:
    """Set the shared weights: the same order of gates, transposed."""
    for variable, shared in _shared_names(module):
        variable.assign(weights[shared].T)


def canonical(module: Network, arrays: Mapping[str, Any]) -> Dict[str, Any]:
    """``arrays``, one a parameter by its own path, in the shared names and layout."""
    return {
        shared: np.asarray(arrays[variable.path]).T for variable, shared in _shared_names(module)
    }


def _shared_names(module: Network) -> Iterator[Tuple[Any, str]]:
    """Every variable and its shared name."""
    yield module.head.kernel, "head"
    for number, layer in enumerate(module.lstms):
        slot = "_l{}".format(number)
        if isinstance(layer, keras.layers.Bidirectional):
            directions = [(layer.forward_layer, slot), (layer.backward_layer, slot + "_reverse")]
        else:
            directions = [(layer, slot)]
        for lstm, suffix in directions:
            yield lstm.cell.kernel, "weight_ih" + suffix
            yield lstm.cell.recurrent_kernel, "weight_hh" + suffix
            yield lstm.cell.bias, "bias" + suffix
