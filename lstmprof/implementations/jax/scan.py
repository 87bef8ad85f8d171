"""jax-scan: the LSTM written by hand under jax.lax.scan.

::

    i, f, g, o = x_t W + h_{t−1} U + b        (gates in this order, one bias)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(g)
    h_t = σ(o) ⊙ tanh(c_t)

W is ``weight_ih`` (inputs, 4·hidden), U is ``weight_hh`` (hidden, 4·hidden), b is ``bias``
(4·hidden); time-major. Both matmuls are inside the scan, which XLA compiles to a while loop. After
the end of a sequence, a mask sets h_t and c_t to 0. Source: F. Gers et al., "Learning to forget"
(2000), without peepholes; the documentation of jax.lax.scan.
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
    """The weights, transposed except the embedding."""

    def __init__(self, workload: Workload) -> None:
        self.layers, self.hidden = workload.layers, workload.hidden
        self.suffixes = ("", "_reverse")[: workload.directions]
        self.every_step = workload.every_step
        shapes = parameter_shapes(workload).items()
        self.arrays = {name: _turned(name, np.zeros(shape, np.float32)) for name, shape in shapes}


def _turned(name: str, array: Any) -> Any:
    """Transpose a weight (except the embedding) to or from lstmprof's layout."""
    return array if name == "embedding" else array.T


def build(workload: Workload) -> Network:
    return Network(workload)


def apply(module: Network, arrays: Arrays, inputs: Any, lengths: Any = None) -> Any:
    """Map inputs (time, batch[, features]) to outputs ([time,] batch, classes)."""
    steps = arrays["embedding"][inputs] if "embedding" in arrays else inputs
    masks = None if lengths is None else _masks(steps, lengths)
    for layer in range(module.layers):
        outputs = [
            _direction(module, arrays, "_l{}{}".format(layer, suffix), steps, masks)
            for suffix in module.suffixes
        ]
        steps = outputs[0] if len(outputs) == 1 else jnp.concatenate(outputs, 2)
    if not module.every_step:
        last = (-1,) if lengths is None else (lengths - 1, jnp.arange(steps.shape[1]))
        steps = steps[last]
    return steps @ arrays["head"] if "head" in arrays else steps


def _masks(steps: Any, lengths: Any) -> Any:
    """Return a mask (time, batch, 1): 0 after the end of a sequence."""
    alive = jnp.arange(steps.shape[0])[:, None, None] < lengths[None, :, None]
    return alive.astype(steps.dtype)


def _direction(module: Network, arrays: Arrays, slot: str, steps: Any, masks: Any) -> Any:
    """Return one direction's outputs (time, batch, hidden) in time order."""
    weights = [arrays[name + slot] for name in ("weight_ih", "weight_hh", "bias")]

    def cell(state: Tuple[Any, Any], step: Tuple[Any, Any]) -> Tuple[Tuple[Any, Any], Any]:
        (h, c), (x, mask), (w, u, b) = state, step, weights
        i, f, g, o = jnp.split(x @ w + h @ u + b, 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        if mask is not None:
            h, c = h * mask, c * mask
        return (h, c), h

    zeros = jnp.zeros((steps.shape[1], module.hidden), steps.dtype)
    reverse = slot.endswith("_reverse")
    return jax.lax.scan(cell, (zeros, zeros), (steps, masks), reverse=reverse)[1]


def parameters(module: Network) -> Dict[str, Any]:
    return dict(module.arrays)


def load(module: Network, weights: Arrays) -> None:
    module.arrays = {name: jnp.asarray(_turned(name, weights[name])) for name in module.arrays}


def canonical(module: Network, arrays: Arrays) -> Dict[str, Any]:
    return {name: _turned(name, np.asarray(arrays[name])) for name in module.arrays}
