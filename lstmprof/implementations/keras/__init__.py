"""A network of Keras's recurrent layers, with the embedding before and the head after them.

Keras's weights are transposed, and GRU's gates are z r h instead of r z n. GRU (``reset_after``)
has two biases, which are the rows of one variable. The second bias is added to the product with
h_{t−1} and starts at zero. If sequences have different lengths, the layers get a mask, and outputs
after the end of a sequence are 0. ``_second`` and ``_third`` contain what differs between Keras 2
and Keras 3. Source: the documentation of keras.layers.LSTM, GRU, SimpleRNN and Bidirectional.
"""

from __future__ import annotations

import importlib
from typing import Any, Dict, Iterator, Mapping, Optional, Tuple

import numpy as np

from lstmprof.implementations.keras._installed import IS_SECOND, keras
from lstmprof.workloads import Workload, reordered

own: Any = importlib.import_module(
    "lstmprof.implementations.keras." + ("_second" if IS_SECOND else "_third")
)

#: Cell -> indices that convert lstmprof's gate order to Keras's gate order, and back.
GATES = {"lstm": (0, 1, 2, 3), "gru": (1, 0, 2), "rnn": (0,)}


class Network(own.Model):  # type: ignore[misc]
    def __init__(self, workload: Workload, options: Mapping[str, Any]) -> None:
        super().__init__()
        self.workload = workload
        self.embedding: Any = None
        if workload.vocabulary:
            self.embedding = keras.layers.Embedding(workload.vocabulary, workload.features)
        self.lstms = [_layer(workload, options) for _ in range(workload.layers)]
        self.head: Any = None
        if workload.head:
            self.head = keras.layers.Dense(workload.classes, use_bias=False)

    def call(self, inputs: Any, lengths: Optional[Any] = None) -> Any:
        """Map inputs (batch, time[, features]) to outputs (batch, [time,] classes)."""
        outputs = inputs if self.embedding is None else self.embedding(inputs)
        mask = None
        if lengths is not None:
            lengths, mask = own.masked(lengths, self.workload.time_steps)
        for lstm in self.lstms:
            outputs = lstm(outputs, mask=mask)
        outputs = own.ended_at_0(outputs, mask)
        if not self.workload.every_step:
            padded = lengths is not None
            outputs = own.last(outputs, lengths, self.workload) if padded else outputs[:, -1]
        return outputs if self.head is None else self.head(outputs)


def _layer(workload: Workload, options: Mapping[str, Any]) -> Any:
    """Return a recurrent layer with all its directions."""
    if workload.cell == "rnn":
        options = {}  # SimpleRNN has none
    layer = own.layer(workload, options)
    if not workload.bidirectional:
        return layer
    both = keras.layers.Bidirectional(layer)
    if "implementation" in options:  # Bidirectional does not copy this option
        for each in (both.forward_layer, both.backward_layer):
            each.cell.implementation = options["implementation"]
    return both


def mixed_precision(precision: str) -> None:
    """Make layers that Keras creates from now on compute in 16 bits (weights: float32)."""
    keras.mixed_precision.set_global_policy(
        {"amp-fp16": "mixed_float16", "amp-bf16": "mixed_bfloat16"}[precision]
    )


def built(workload: Workload, **options: Any) -> Network:
    """Return a network with Keras options such as ``use_cudnn=False``."""
    module = Network(workload, options)
    place = (workload.batch, workload.time_steps)
    if workload.vocabulary:
        own.make(module, np.zeros(place, np.int64))
    else:
        own.make(module, np.zeros((*place, workload.features), np.float32))
    return module


def parameters(module: Network) -> Dict[str, Any]:
    variables: Dict[str, Any] = own.values(module.trainable_variables)
    return variables


def load(module: Network, weights: Mapping[str, Any]) -> None:
    for variable, name in _shared_names(module):
        own.assign(variable, native(weights[name], name, module.workload.cell))


def canonical(module: Network, arrays: Mapping[str, Any]) -> Dict[str, Any]:
    return {
        name: from_native(np.asarray(arrays[own.own_name(variable)]), name, module.workload.cell)
        for variable, name in _shared_names(module)
    }


def native(weight: Any, name: str, cell: str) -> Any:
    """Convert a weight from lstmprof's layout to Keras's layout."""
    if name == "embedding":
        return weight
    if name != "head":
        weight = reordered(weight, GATES[cell])
    if name.startswith("bias") and cell == "gru":
        return np.stack([weight, np.zeros_like(weight)])
    return np.ascontiguousarray(weight.T)


def from_native(array: Any, name: str, cell: str) -> Any:
    """Convert a Keras parameter to lstmprof's layout."""
    if name == "embedding":
        return array
    if name.startswith("bias") and cell == "gru":
        array = array[0]
    return array.T if name == "head" else reordered(array.T, GATES[cell])


def _shared_names(module: Network) -> Iterator[Tuple[Any, str]]:
    """Yield (Keras variable, lstmprof's name), such as ``(kernel, "weight_ih_l0")``."""
    if module.embedding is not None:
        yield module.embedding.embeddings, "embedding"
    if module.head is not None:
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
