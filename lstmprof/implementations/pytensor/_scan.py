"""The LSTM written by hand under ``scan`` of Theano or of its successor, PyTensor.

::

    i, f, g, o = x_t W + h_{t−1} U + b        (gates in this order, one bias)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(g)
    h_t = σ(o) ⊙ tanh(c_t)

W is ``weight_ih`` (inputs, 4·hidden), U is ``weight_hh`` (hidden, 4·hidden), b is ``bias``
(4·hidden); time-major. Each direction is a Scan named ``l{layer}`` or ``l{layer}_reverse``; its
gradient is ``grad_of_`` and this name. After the end of a sequence, a mask sets h_t and c_t to 0.
Source: the documentation of theano.scan and pytensor.scan; F. Gers et al., "Learning to forget"
(2000), without peepholes.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, NamedTuple

import numpy as np

from lstmprof.workloads import Workload, parameter_shapes


class Library(NamedTuple):
    """Functions that have different names in Theano and PyTensor."""

    tensor: Any  # module of operators
    shared: Callable[..., Any]
    sigmoid: Callable[[Any], Any]
    # function that runs a cell over time, and returns the h of every time step
    scan: Callable[..., Any]


class Network:
    """The weights as variables, transposed except the embedding."""

    def __init__(self, workload: Workload, library: Library) -> None:
        self.library = library
        self.layers, self.hidden = workload.layers, workload.hidden
        self.suffixes = ("", "_reverse")[: workload.directions]
        self.every_step = workload.every_step
        self.variables = {
            name: library.shared(_turned(name, np.zeros(shape, np.float32)), name=name)
            for name, shape in parameter_shapes(workload).items()
        }


def _turned(name: str, array: Any) -> Any:
    """Transpose a weight (except the embedding) to or from lstmprof's layout."""
    return array if name == "embedding" else np.ascontiguousarray(array.T)


def apply(module: Network, inputs: Any, mode: Any, lengths: Any = None) -> Any:
    """Map inputs (time, batch[, features]) to outputs ([time,] batch, classes)."""
    variables, tensor = module.variables, module.library.tensor
    steps = variables["embedding"][inputs] if "embedding" in variables else inputs
    masks = [] if lengths is None else [mask_of(tensor, steps, lengths)]
    for layer in range(module.layers):
        slots = ["l{}{}".format(layer, suffix) for suffix in module.suffixes]
        outputs = [_direction(module, slot, [steps, *masks], mode) for slot in slots]
        steps = outputs[0] if len(outputs) == 1 else tensor.concatenate(outputs, axis=2)
    if not module.every_step:
        last = -1 if lengths is None else (lengths - 1, tensor.arange(steps.shape[1]))
        steps = steps[last]
    return tensor.dot(steps, variables["head"]) if "head" in variables else steps


def mask_of(tensor: Any, steps: Any, lengths: Any) -> Any:
    """Return a mask (time, batch, 1): 0 after the end of a sequence."""
    alive = tensor.arange(steps.shape[0])[:, None, None] < lengths[None, :, None]
    return alive.astype("float32")


def _direction(module: Network, slot: str, sequences: List[Any], mode: Any) -> Any:
    """Return one direction's outputs (time, batch, hidden) in time order."""
    names = ("weight_ih_", "weight_hh_", "bias_")
    size, library = module.hidden, module.library
    tensor, sigmoid = library.tensor, library.sigmoid

    def cell(x: Any, *others: Any) -> Any:
        *mask, h, c, w, u, b = others
        gates = tensor.dot(x, w) + tensor.dot(h, u) + b
        i, f, g, o = (gates[:, k * size : (k + 1) * size] for k in range(4))
        c = sigmoid(f) * c + sigmoid(i) * tensor.tanh(g)
        h = sigmoid(o) * tensor.tanh(c)
        return (h * mask[0], c * mask[0]) if mask else (h, c)

    zeros = tensor.zeros((sequences[0].shape[1], size), dtype="float32")
    outputs = library.scan(
        cell,
        sequences=sequences,
        outputs_info=[zeros, zeros],
        non_sequences=[module.variables[name + slot] for name in names],
        go_backwards=slot.endswith("_reverse"),
        name=slot,
        mode=mode,
    )
    return outputs[::-1] if slot.endswith("_reverse") else outputs


def parameters(module: Network) -> Dict[str, Any]:
    return dict(module.variables)


def load(module: Network, weights: Mapping[str, Any]) -> None:
    for name, variable in module.variables.items():
        variable.set_value(_turned(name, weights[name]))


def canonical(module: Network, arrays: Mapping[str, Any]) -> Dict[str, Any]:
    return {name: _turned(name, np.asarray(arrays[name])) for name in module.variables}
