"""Keras's LSTM layers, one after the other, and the head; on TensorFlow.

The weights' order of gates, i f c̃ o, is the shared one; Keras holds them transposed.
``unit_forget_bias`` concerns the initial weights only, which ``load`` replaces. Source: the
documentation of keras.layers.LSTM.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, Mapping, Tuple

import keras
import numpy as np

from lstmprof.workloads import Workload


class Network(keras.Model):  # type: ignore[misc]
    """``lstms``, each an LSTM or a Bidirectional of one, and ``head``."""

    def __init__(self, workload: Workload, lstm: Callable[[int], Any]) -> None:
        super().__init__()
        self.every_step = workload.loss == "ctc"
        layers = [lstm(workload.hidden) for _ in range(workload.layers)]
        both = workload.bidirectional
        self.lstms = [keras.layers.Bidirectional(layer) if both else layer for layer in layers]
        self.head = keras.layers.Dense(workload.classes, use_bias=False)

    def call(self, inputs: Any) -> Any:
        """Inputs (batch, time, features); outputs (batch, classes), for CTC one a time step."""
        for lstm in self.lstms:
            inputs = lstm(inputs)
        return self.head(inputs if self.every_step else inputs[:, -1])


def mixed_precision(precision: str) -> None:
    """Set Keras's policy for every layer made from now on: computes in 16 bits, weights float32."""
    keras.mixed_precision.set_global_policy(
        {"amp-fp16": "mixed_float16", "amp-bf16": "mixed_bfloat16"}[precision]
    )


def built(workload: Workload, lstm: Callable[[int], Any]) -> Network:
    """The network of layers ``lstm(hidden)``, every parameter made, weights not yet set."""
    module = Network(workload, lstm)
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
