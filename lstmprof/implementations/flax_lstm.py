"""flax-lstm: flax.linen.OptimizedLSTMCell under flax.linen.RNN, as they come.

::

    i, f, g, o = [x_t W_i, x_t W_f, …] + [h_{t−1} U_i + b_i, …]   (a matrix a gate, bias with h)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(g)
    h_t = σ(o) ⊙ tanh(c_t)

``l{k}[_reverse]/i{gate}/kernel`` is (inputs, hidden), ``…/h{gate}/kernel`` (hidden, hidden) and
``…/h{gate}/bias`` (hidden); batch-major. The cell concatenates its matrices at every time step and
takes two products (``LSTMCell`` takes eight, with the same parameters). Source: the documentation
of flax.linen.OptimizedLSTMCell.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping

import jax
import numpy as np
from flax import linen, traverse_util

from lstmprof.workloads import Workload

TIME_MAJOR = False
KERNELS = (("while", "XLA's fused operators in a while loop"),)

GATES = "ifgo"


class Layers(linen.Module):  # type: ignore[misc]
    """The layers and the head."""

    workload: Workload

    @linen.compact  # type: ignore[untyped-decorator, unused-ignore]
    def __call__(self, inputs: Any) -> Any:
        """Inputs (batch, time, features); outputs (batch, classes), for CTC one a time step."""
        for layer in range(self.workload.layers):
            name = "l{}".format(layer)
            lstm = self._direction(name)
            if self.workload.bidirectional:
                lstm = linen.Bidirectional(lstm, self._direction(name + "_reverse"))
            inputs = lstm(inputs)
        inputs = inputs if self.workload.loss == "ctc" else inputs[:, -1]
        return linen.Dense(self.workload.classes, use_bias=False, name="head")(inputs)

    def _direction(self, name: str) -> Any:
        """One direction of a layer; Bidirectional reverses the second by itself."""
        return linen.RNN(linen.OptimizedLSTMCell(self.workload.hidden, name=name))


class Network:
    """``layers``, and their parameters ``arrays`` by path."""

    def __init__(self, workload: Workload) -> None:
        self.layers = Layers(workload)
        inputs = np.zeros((workload.batch, workload.time_steps, workload.features), np.float32)
        made = jax.eval_shape(self.layers.init, jax.random.key(0), inputs)["params"]
        paths = traverse_util.flatten_dict(made, sep="/").items()
        self.arrays = {path: np.zeros(array.shape, np.float32) for path, array in paths}


def build(workload: Workload) -> Network:
    """The network of ``workload``, weights not yet set."""
    return Network(workload)


def apply(module: Network, arrays: Mapping[str, Any], inputs: Any) -> Any:
    """Inputs (batch, time, features); outputs (batch, classes), for CTC one a time step."""
    return module.layers.apply({"params": traverse_util.unflatten_dict(arrays, sep="/")}, inputs)


def parameters(module: Network) -> Dict[str, Any]:
    """Own path -> array, in the module's order."""
    return dict(module.arrays)


def load(module: Network, weights: Mapping[str, Any]) -> None:
    """Set the shared weights: a gate's rows, transposed."""
    for path in module.arrays:
        slot, gate, kind = [*path.split("/"), "", ""][:3]
        if slot == "head":
            module.arrays[path] = weights["head"].T
            continue
        name = "bias" if kind == "bias" else "weight_{}h".format(gate[0])
        rows = np.split(weights["{}_{}".format(name, slot)], 4)[GATES.index(gate[1])]
        module.arrays[path] = rows.T


def canonical(module: Network, arrays: Mapping[str, Any]) -> Dict[str, Any]:
    """``arrays``, one a parameter by its own path, in the shared names and layout."""
    shared = {"head": np.asarray(arrays["head/kernel"]).T}
    for slot in {path.partition("/")[0] for path in module.arrays} - {"head"}:
        for name, part in (
            ("weight_ih", "i{}/kernel"),
            ("weight_hh", "h{}/kernel"),
            ("bias", "h{}/bias"),
        ):
            paths = [slot + "/" + part.format(gate) for gate in GATES]
            rows = [np.asarray(arrays[path]).T for path in paths]
            shared["{}_{}".format(name, slot)] = np.concatenate(rows)
    return shared
