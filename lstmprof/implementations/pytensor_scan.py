"""pytensor-scan: the LSTM written by hand under pytensor.scan.

::

    i, f, g, o = x_t W + h_{t−1} U + b        (gates in this order, one bias)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(g)
    h_t = σ(o) ⊙ tanh(c_t)

``weight_ih`` W is (inputs, 4·hidden), ``weight_hh`` U (hidden, 4·hidden), ``bias`` b (4·hidden);
time-major. PyTensor is the heir of Theano; this stands in for Lasagne's LSTMLayer, without its
peepholes and learned first state, and with its gates in one matrix. Each direction is a Scan called
``l{k}[_reverse]``, whose gradient PyTensor calls ``grad_of_l{k}[_reverse]``. Source: the
documentation of pytensor.scan; F. Gers et al., "Learning to forget" (2000), without peepholes.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping

import numpy as np
import pytensor
import pytensor.tensor as pt

from lstmprof.workloads import Workload, parameter_shapes

TIME_MAJOR = True
KERNELS = (("Scan{", "separate PyTensor operators in a Scan"),)


class Network:
    """``variables``: shared variables by the shared names, matrices transposed."""

    def __init__(self, workload: Workload) -> None:
        self.layers, self.hidden = workload.layers, workload.hidden
        self.suffixes = ("", "_reverse")[: workload.directions]
        self.variables = {
            name: pytensor.shared(np.zeros(shape[::-1], np.float32), name=name)
            for name, shape in parameter_shapes(workload).items()
        }


def build(workload: Workload) -> Network:
    """The network of ``workload``, weights not yet set."""
    return Network(workload)


def apply(module: Network, inputs: Any, mode: Any) -> Any:
    """Symbolic inputs (time, batch, features); outputs (batch, classes).

    ``mode``: PyTensor's, of what stands within the Scans.
    """
    for layer in range(module.layers):
        slots = ["l{}{}".format(layer, suffix) for suffix in module.suffixes]
        outputs = [_direction(module, slot, inputs, mode) for slot in slots]
        inputs = outputs[0] if len(outputs) == 1 else pt.concatenate(outputs, axis=2)
    return pt.dot(inputs[-1], module.variables["head"])


def _direction(module: Network, slot: str, inputs: Any, mode: Any) -> Any:
    """Outputs (time, batch, hidden), in the order of time."""
    names = ("weight_ih_", "weight_hh_", "bias_")
    size = module.hidden

    def cell(x: Any, h: Any, c: Any, w: Any, u: Any, b: Any) -> Any:
        gates = pt.dot(x, w) + pt.dot(h, u) + b
        i, f, g, o = (gates[:, k * size : (k + 1) * size] for k in range(4))
        c = pt.sigmoid(f) * c + pt.sigmoid(i) * pt.tanh(g)
        return pt.sigmoid(o) * pt.tanh(c), c

    zeros = pt.zeros((inputs.shape[1], size), dtype="float32")
    outputs, _ = pytensor.scan(
        cell,
        sequences=[inputs],
        outputs_info=[zeros, zeros],
        non_sequences=[module.variables[name + slot] for name in names],
        go_backwards=slot.endswith("_reverse"),
        name=slot,
        mode=mode,
        return_updates=False,
    )
    return outputs[::-1] if slot.endswith("_reverse") else outputs


def parameters(module: Network) -> Dict[str, Any]:
    """Own name -> shared variable, in the module's order."""
    return dict(module.variables)


def load(module: Network, weights: Mapping[str, Any]) -> None:
    """Set the shared weights."""
    for name, variable in module.variables.items():
        variable.set_value(np.ascontiguousarray(weights[name].T))


def canonical(module: Network, arrays: Mapping[str, Any]) -> Dict[str, Any]:
    """``arrays``, one a parameter by its own name, in the shared names and layout."""
    return {name: np.asarray(arrays[name]).T for name in module.variables}
