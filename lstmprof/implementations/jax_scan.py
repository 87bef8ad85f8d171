"""jax-scan: the LSTM written by hand under jax.lax.scan.

::

    i, f, g, o = x_t W + h_{t−1} U + b        (gates in this order, one bias)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(g)
    h_t = σ(o) ⊙ tanh(c_t)

``weight_ih`` W is (inputs, 4·hidden), ``weight_hh`` U (hidden, 4·hidden), ``bias`` b (4·hidden);
time-major. Both products stand inside the scan, which XLA makes a while loop. No peepholes, no
forget bias beyond b. Source: F. Gers et al., "Learning to forget" (2000), without peepholes; the
documentation of jax.lax.scan.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Tuple

import jax
import jax.numpy as jnp
import numpy as np

from lstmprof.workloads import Workload, parameter_shapes

TIME_MAJOR = True
KERNELS = (("while", "XLA's fused operators in a while loop"),)

Arrays = Mapping[str, Any]


class Network:
    """``arrays``: the weights by their shared names, matrices transposed."""

    def __init__(self, workload: Workload) -> None:
        self.layers, self.hidden = workload.layers, workload.hidden
        self.suffixes = ("", "_reverse")[: workload.directions]
        self.every_step = workload.loss == "ctc"
        shapes = parameter_shapes(workload).items()
        self.arrays = {name: np.zeros(shape[::-1], np.float32) for name, shape in shapes}


def build(workload: Workload) -> Network:
    """The network of ``workload``, weights not yet set."""
    return Network(workload)


def apply(module: Network, arrays: Arrays, inputs: Any) -> Any:
    """Inputs (time, batch, features); outputs (batch, classes), for CTC one a time step."""
    for layer in range(module.layers):
        outputs = [
            _direction(module, arrays, "_l{}{}".format(layer, suffix), inputs)
            for suffix in module.suffixes
        ]
        inputs = outputs[0] if len(outputs) == 1 else jnp.concatenate(outputs, 2)
    return (inputs if module.every_step else inputs[-1]) @ arrays["head"]


def _direction(module: Network, arrays: Arrays, slot: str, inputs: Any) -> Any:
    """Outputs (time, batch, hidden), in the order of time."""
    weights = [arrays[name + slot] for name in ("weight_ih", "weight_hh", "bias")]

    def cell(state: Tuple[Any, Any], x: Any) -> Tuple[Tuple[Any, Any], Any]:
        (h, c), (w, u, b) = state, weights
        i, f, g, o = jnp.split(x @ w + h @ u + b, 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((inputs.shape[1], module.hidden), inputs.dtype)
    return jax.lax.scan(cell, (zeros, zeros), inputs, reverse=slot.endswith("_reverse"))[1]


def parameters(module: Network) -> Dict[str, Any]:
    """Own name -> array, in the module's order."""
    return dict(module.arrays)


def load(module: Network, weights: Arrays) -> None:
    """Set the shared weights."""
    module.arrays = {name: jnp.asarray(weights[name].T) for name in module.arrays}


def canonical(module: Network, arrays: Arrays) -> Dict[str, Any]:
    """``arrays``, one a parameter by its own name, in the shared names and layout."""
    return {name: np.asarray(arrays[name]).T for name in module.arrays}
