"""lasagne-lstm: lasagne.layers.LSTMLayer without peepholes.

::

    i, f, c̃, o = x_t W + h_{t−1} U + b        (per gate: matrices W and U, and one bias)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(c̃)
    h_t = σ(o) ⊙ tanh(c_t)

W is ``W_in_to_{ingate, forgetgate, cell, outgate}`` (inputs, hidden), U is ``W_hid_to_…`` (hidden,
hidden), b is ``b_…`` (hidden); batch-major. Lasagne multiplies the inputs of all time steps by W
before the Scan (``precompute_input``). Peepholes, its default, are off: Lasagne 0.1, the only
version on PyPI, adds the output gate's after the sigmoid (``o = σ(…) + w ⊙ c_t``), unlike F. Gers
et al. (2002). ``grad_clipping`` stays False, because 0 would clip every gradient to 0.

``cell="gru"`` is GRULayer, whose update gate is 1 − z of other frameworks, so its weights are
negated. ``cell="rnn"`` is RecurrentLayer with tanh. After the end of a sequence, the layers repeat
h_t and c_t; these outputs are set to 0. Source: lasagne/layers/recurrent.py 0.1.
"""

from __future__ import annotations

import sys
import types
from typing import Any, Dict, List, Mapping, Tuple

import numpy as np
import theano.tensor.signal.pool

from lstmprof.implementations.theano import KERNELS, last, mask_of
from lstmprof.workloads import Workload

__all__ = ["KERNELS", "TIME_MAJOR", "Network", "apply", "build", "canonical", "load", "parameters"]

TIME_MAJOR = False
#: Cell -> Lasagne's names of the gates, in the framework-independent order.
GATES = {
    "lstm": ("ingate", "forgetgate", "cell", "outgate"),
    "gru": ("resetgate", "updategate", "hidden_update"),
    "rnn": ("hid",),
}
NEGATED = {"updategate"}


def _lasagne() -> Any:
    """Import Lasagne after replacing a module that Theano 1.0 no longer has."""
    name = "theano.tensor.signal.downsample"
    stand_in: Any = types.ModuleType(name)
    stand_in.max_pool_2d = theano.tensor.signal.pool.pool_2d
    sys.modules.setdefault(name, stand_in)
    vars(theano.tensor.signal).setdefault("downsample", stand_in)
    import lasagne

    return lasagne


class Network:
    """The layers of a network. ``recurrent`` maps names, such as ``l0``, to layers."""

    def __init__(self, workload: Workload) -> None:
        lasagne = _lasagne()
        self.cell, self.every_step = workload.cell, workload.every_step
        self.suffixes = ("", "_reverse")[: workload.directions]
        self.recurrent: Dict[str, Any] = {}
        for number in range(workload.layers):
            width = workload.directions * workload.hidden if number else workload.features
            for suffix in self.suffixes:
                layer = _recurrent(lasagne, workload, width, bool(suffix))
                self.recurrent["l{}{}".format(number, suffix)] = layer
        self.layers, self.embedding, self.head = workload.layers, None, None
        if workload.vocabulary:
            tokens = lasagne.layers.InputLayer((None, None))
            sizes = (workload.vocabulary, workload.features)
            self.embedding = lasagne.layers.EmbeddingLayer(tokens, *sizes)
        if workload.head:
            self.head = lasagne.layers.DenseLayer(
                lasagne.layers.InputLayer((None, workload.directions * workload.hidden)),
                workload.classes,
                b=None,
                nonlinearity=None,
            )


def _recurrent(lasagne: Any, workload: Workload, width: int, backwards: bool) -> Any:
    incoming = lasagne.layers.InputLayer((None, None, width))
    if workload.cell == "lstm":
        kind, options = lasagne.layers.LSTMLayer, {"peepholes": False}
    elif workload.cell == "gru":
        kind, options = lasagne.layers.GRULayer, {}
    else:
        kind = lasagne.layers.RecurrentLayer
        options = {"nonlinearity": lasagne.nonlinearities.tanh}
    return kind(incoming, workload.hidden, backwards=backwards, learn_init=False, **options)


def build(workload: Workload) -> Network:
    return Network(workload)


def apply(module: Network, inputs: Any, mode: Any, lengths: Any = None) -> Any:
    """Map inputs (batch, time[, features]) to outputs (batch, [time,] classes)."""
    steps = inputs if module.embedding is None else module.embedding.get_output_for(inputs)
    mask = [] if lengths is None else [mask_of(steps, lengths)]
    for number in range(module.layers):
        slots = ["l{}{}".format(number, suffix) for suffix in module.suffixes]
        outputs = [module.recurrent[slot].get_output_for([steps, *mask]) for slot in slots]
        steps = theano.tensor.concatenate(outputs, axis=2) if len(outputs) > 1 else outputs[0]
    if module.every_step and mask:
        steps = steps * mask[0][:, :, None]
    seen = steps if module.every_step else last(steps, lengths)
    if module.head is None:
        return seen
    if not module.every_step:
        return module.head.get_output_for(seen)
    scores = module.head.get_output_for(seen.reshape((-1, seen.shape[2])))
    return scores.reshape((seen.shape[0], seen.shape[1], module.head.num_units))


def _own_names(module: Network) -> Dict[str, List[Tuple[str, Any, str]]]:
    """Map a weight, such as ``bias_l0``, to (Lasagne's name, variable, gate) per gate."""
    names: Dict[str, List[Tuple[str, Any, str]]] = {}
    for slot, layer in module.recurrent.items():
        for shared, own in (("weight_ih", "W_in_to_"), ("weight_hh", "W_hid_to_"), ("bias", "b_")):
            parts = []
            for gate in GATES[module.cell]:
                name = "b" if (own, gate) == ("b_", "hid") else own + gate
                parts.append(("{}.{}".format(slot, name), getattr(layer, name), gate))
            names["{}_{}".format(shared, slot)] = parts
    for end, layer in (("head", module.head), ("embedding", module.embedding)):
        if layer is not None:
            names[end] = [("{}.W".format(end), layer.W, "")]
    return names


def parameters(module: Network) -> Dict[str, Any]:
    return {name: own for parts in _own_names(module).values() for name, own, _ in parts}


def load(module: Network, weights: Mapping[str, Any]) -> None:
    for shared, parts in _own_names(module).items():
        arrays = np.split(weights[shared], len(parts))
        for rows, (_, variable, gate) in zip(arrays, parts):  # noqa: B905
            signed = -rows if gate in NEGATED else rows
            variable.set_value(signed if shared == "embedding" else np.ascontiguousarray(signed.T))


def canonical(module: Network, arrays: Mapping[str, Any]) -> Dict[str, Any]:
    arrays_by_name = {}
    for shared, parts in _own_names(module).items():
        gates = []
        for name, _, gate in parts:
            array = np.asarray(arrays[name])
            rows = array if shared == "embedding" else array.T
            gates.append(-rows if gate in NEGATED else rows)
        arrays_by_name[shared] = np.concatenate(gates)
    return arrays_by_name
