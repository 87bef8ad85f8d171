"""keras-theano-lstm: keras.layers.LSTM of Keras 2 on Theano.

::

    i, f, c̃, o = x_t K + h_{t−1} R + b        (gates in this order, one bias)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(c̃)
    h_t = σ(o) ⊙ tanh(c_t)

K is ``kernel`` (inputs, 4·hidden), R is ``recurrent_kernel`` (hidden, 4·hidden), b is ``bias``
(4·hidden); batch-major. The default, ``implementation=1``, computes one matmul per gate.
``recurrent_activation`` is ``sigmoid``, because Keras 2.1's default, ``hard_sigmoid``, makes a
different network. ``cell="gru"`` has the reset gate after the matmul (``reset_after=True``), gates
z r h and two biases. ``cell="rnn"`` is SimpleRNN. After the end of a sequence, the layers repeat
their last output; these outputs are set to 0. Source: keras/layers/recurrent.py and
keras/backend/theano_backend.py 2.1.6.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, Mapping, Tuple

import keras
import numpy as np

from lstmprof.implementations.keras import from_native, native
from lstmprof.implementations.theano import KERNELS, last, mask_of
from lstmprof.workloads import Workload

__all__ = ["KERNELS", "TIME_MAJOR", "Network", "apply", "build", "canonical", "load", "parameters"]

TIME_MAJOR = False
LAYERS = {"lstm": keras.layers.LSTM, "gru": keras.layers.GRU, "rnn": keras.layers.SimpleRNN}
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "lstm": {"recurrent_activation": "sigmoid"},
    "gru": {"recurrent_activation": "sigmoid", "reset_after": True},
    "rnn": {},
}


class Network:
    """The embedding, the recurrent layers and the output layer of a network."""

    def __init__(self, workload: Workload) -> None:
        self.cell, self.every_step = workload.cell, workload.every_step
        self.place = (workload.batch, workload.time_steps)
        self.widths = [workload.features]
        self.widths += [workload.directions * workload.hidden] * workload.layers
        self.recurrent = [_recurrent(workload) for _ in range(workload.layers)]
        for layer, width in zip(self.recurrent, self.widths):  # noqa: B905
            layer.build((*self.place, width))
        self.embedding: Any = None
        if workload.vocabulary:
            self.embedding = keras.layers.Embedding(workload.vocabulary, workload.features)
            self.embedding.build(self.place)
        self.head: Any = None
        if workload.head:
            self.head = keras.layers.Dense(workload.classes, use_bias=False)
            self.head.build((None, self.widths[-1]))


def _recurrent(workload: Workload) -> Any:
    kind, options = LAYERS[workload.cell], OPTIONS[workload.cell]
    layer = kind(workload.hidden, return_sequences=True, **options)
    return keras.layers.Bidirectional(layer) if workload.bidirectional else layer


def build(workload: Workload) -> Network:
    return Network(workload)


def apply(module: Network, inputs: Any, mode: Any, lengths: Any = None) -> Any:
    """Map inputs (batch, time[, features]) to outputs (batch, [time,] classes)."""
    steps = inputs if module.embedding is None else module.embedding.call(inputs)
    mask = None if lengths is None else mask_of(steps, lengths)
    for layer, width in zip(module.recurrent, module.widths):  # noqa: B905
        steps._keras_shape = (*module.place, width)
        steps = layer.call(steps, mask=mask)
    if module.every_step and mask is not None:
        steps = steps * mask[:, :, None]
    seen = steps if module.every_step else last(steps, lengths)
    return seen if module.head is None else module.head.call(seen)


def _own_names(module: Network) -> Iterator[Tuple[str, str, Any]]:
    """Yield (lstmprof's name, Keras's name, variable): ``("bias_l0", "l0.bias", …)``."""
    if module.embedding is not None:
        yield "embedding", "embedding.embeddings", module.embedding.embeddings
    if module.head is not None:
        yield "head", "head.kernel", module.head.kernel
    for number, layer in enumerate(module.recurrent):
        directions = [("l{}".format(number), layer)]
        if isinstance(layer, keras.layers.Bidirectional):
            directions = [(directions[0][0], layer.forward_layer)]
            directions.append((directions[0][0] + "_reverse", layer.backward_layer))
        for slot, each in directions:
            for shared, own in (
                ("weight_ih", "kernel"),
                ("weight_hh", "recurrent_kernel"),
                ("bias", "bias"),
            ):
                variable = getattr(each.cell, own)
                yield "{}_{}".format(shared, slot), "{}.{}".format(slot, own), variable


def parameters(module: Network) -> Dict[str, Any]:
    return {own: variable for _, own, variable in _own_names(module)}


def load(module: Network, weights: Mapping[str, Any]) -> None:
    for shared, _, variable in _own_names(module):
        variable.set_value(native(weights[shared], shared, module.cell))


def canonical(module: Network, arrays: Mapping[str, Any]) -> Dict[str, Any]:
    return {
        shared: from_native(np.asarray(arrays[own]), shared, module.cell)
        for shared, own, _ in _own_names(module)
    }
