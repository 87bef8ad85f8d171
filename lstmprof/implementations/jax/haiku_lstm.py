"""haiku-lstm: haiku.LSTM under haiku.dynamic_unroll, with their default options.

::

    i, g, f, o = [x_t, h_{t−1}] W + b        (gates in this order, one matmul, one bias)
    c_t = σ(f + 1) ⊙ c_{t−1} + σ(i) ⊙ tanh(g)
    h_t = σ(o) ⊙ tanh(c_t)

W is ``l{k}[_reverse]/linear/w`` (inputs + hidden, 4·hidden), b is ``…/b`` (4·hidden); time-major.
Haiku always adds the 1 to the forget gate, so the cell gets b − 1, which costs a subtraction of
4·hidden numbers per step. Haiku's GRU and VanillaRNN differ from other frameworks' (reset gate
before the matmul; ReLU). Source: haiku.LSTM and haiku.dynamic_unroll in haiku/_src/recurrent.py
(dm-haiku 0.0.17).
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Tuple

import haiku
import jax
import jax.numpy as jnp
import numpy as np

from lstmprof.workloads import Workload, reordered

TIME_MAJOR = True
KERNELS = (("while", "XLA's fused operators in a while loop"),)

#: Indices that convert Haiku's gate order i g f o to i f g o, and back.
GATE_POSITIONS = (0, 2, 1, 3)
FORGET, GATES = 2, 4
#: Haiku's name of a parameter outside of cells -> framework-independent name.
_ENDS = {"embedding/embeddings": "embedding", "head/w": "head"}


def outputs(workload: Workload, inputs: Any) -> Any:
    """Return the network's outputs; ``haiku.transform`` makes this function pure."""
    steps = inputs
    if workload.vocabulary:
        steps = haiku.Embed(workload.vocabulary, workload.features, name="embedding")(inputs)
    for layer in range(workload.layers):
        directions = [
            _direction(workload, "l{}{}".format(layer, suffix), steps)
            for suffix in ("", "_reverse")[: workload.directions]
        ]
        steps = jnp.concatenate(directions, axis=2)
    if not workload.every_step:
        steps = steps[-1]
    if not workload.head:
        return steps
    return haiku.Linear(workload.classes, with_bias=False, name="head")(steps)


def _direction(workload: Workload, name: str, steps: Any) -> Any:
    """Return one direction's outputs (time, batch, hidden) in time order."""
    core = haiku.LSTM(workload.hidden, name=name)
    start = core.initial_state(steps.shape[1])
    return haiku.dynamic_unroll(core, steps, start, reverse=name.endswith("_reverse"))[0]


class Network:
    """The network as a pure function, with its parameters by path."""

    def __init__(self, workload: Workload) -> None:
        transformed = haiku.transform(lambda inputs: outputs(workload, inputs))
        self.apply = haiku.without_apply_rng(transformed).apply
        place = (workload.time_steps, workload.batch)
        inputs = np.zeros((*place, workload.features), np.float32)
        if workload.vocabulary:
            inputs = np.zeros(place, np.int32)
        shapes = jax.eval_shape(transformed.init, jax.random.PRNGKey(0), inputs)
        self.arrays = {
            "{}/{}".format(of, name): np.zeros(array.shape, np.float32)
            for of, arrays in shapes.items()
            for name, array in arrays.items()
        }
        ones = np.zeros((GATES, workload.hidden), np.float32)
        ones[FORGET] = 1
        self.added = ones.ravel()
        self.hidden = workload.hidden


def build(workload: Workload) -> Network:
    return Network(workload)


def apply(module: Network, arrays: Mapping[str, Any], inputs: Any) -> Any:
    """Map inputs (time, batch[, features]) to outputs ([time,] batch, classes)."""
    tree: Dict[str, Dict[str, Any]] = {}
    for path, array in arrays.items():
        of, _, name = path.rpartition("/")
        tree.setdefault(of, {})[name] = array - module.added if name == "b" else array
    return module.apply(tree, inputs)


def parameters(module: Network) -> Dict[str, Any]:
    return dict(module.arrays)


def load(module: Network, weights: Mapping[str, Any]) -> None:
    for path in module.arrays:
        if path in _ENDS:
            rows = weights[_ENDS[path]]
        else:
            parts = [reordered(weights[name], GATE_POSITIONS) for name in _shared(path)]
            rows = np.concatenate(parts, axis=-1)
        module.arrays[path] = rows if path == "embedding/embeddings" else rows.T


def _shared(path: str) -> Tuple[str, ...]:
    """Map a parameter to lstmprof's names: ``l0/linear/b`` -> ``("bias_l0",)``."""
    slot, _, kind = path.split("/")
    if kind == "b":
        return ("bias_" + slot,)
    return "weight_ih_" + slot, "weight_hh_" + slot


def canonical(module: Network, arrays: Mapping[str, Any]) -> Dict[str, Any]:
    shared: Dict[str, Any] = {}
    for path in module.arrays:
        own = np.asarray(arrays[path])
        if path in _ENDS:
            shared[_ENDS[path]] = own if path == "embedding/embeddings" else own.T
        else:
            parts = _parts(module, own.T)
            shared.update(zip(_shared(path), parts))  # noqa: B905
    return shared


def _parts(module: Network, rows: Any) -> List[Any]:
    """Split a matrix into the weights of inputs and of h; a bias stays whole."""
    ordered = reordered(rows, GATE_POSITIONS)
    if ordered.ndim == 1:
        return [ordered]
    return [ordered[:, : -module.hidden], ordered[:, -module.hidden :]]
