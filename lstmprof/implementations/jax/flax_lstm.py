"""flax-lstm: flax.linen.OptimizedLSTMCell under flax.linen.RNN, with their default options.

::

    i, f, g, o = [x_t W_i, x_t W_f, …] + [h_{t−1} U_i + b_i, …]   (one matrix per gate, bias with h)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(g)
    h_t = σ(o) ⊙ tanh(c_t)

W is ``l{k}[_reverse]/i{gate}/kernel`` (inputs, hidden), U is ``…/h{gate}/kernel`` (hidden, hidden),
b is ``…/h{gate}/bias`` (hidden); batch-major. The cell concatenates its matrices at every time step
and computes two matmuls.

``cell="gru"`` is ``GRUCell``: gates r z n, the reset gate after the matmul, six matmuls per time
step, biases with x; gate n has a second bias, ``…/hn/bias``, which starts at zero. ``cell="rnn"``
is ``SimpleCell`` with tanh, its bias with x.

Flax also runs over the padding of short sequences, which does not affect the time steps before it;
the reverse direction starts at each sequence's own end. Source: the documentation of flax.linen's
cells, of flax.linen.RNN and of flax.linen.Bidirectional.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, NamedTuple, Optional

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen, traverse_util

from lstmprof.workloads import Workload

TIME_MAJOR = False
KERNELS = (("while", "XLA's fused operators in a while loop"),)

CELLS = {"lstm": linen.OptimizedLSTMCell, "gru": linen.GRUCell, "rnn": linen.SimpleCell}
#: Flax's letters of the gates, in the framework-independent order.
LETTERS = {"lstm": ("i", "f", "g", "o"), "gru": ("r", "z", "n"), "rnn": ("",)}


class Layers(linen.Module):  # type: ignore[misc]
    workload: Workload

    @linen.compact  # type: ignore[untyped-decorator, unused-ignore]
    def __call__(self, inputs: Any, lengths: Any = None) -> Any:
        """Map inputs (batch, time[, features]) to outputs (batch, [time,] classes)."""
        workload, steps = self.workload, inputs
        if workload.vocabulary:
            steps = linen.Embed(workload.vocabulary, workload.features, name="embedding")(inputs)
        for layer in range(workload.layers):
            name = "l{}".format(layer)
            rnn = self._direction(name)
            if workload.bidirectional:
                rnn = linen.Bidirectional(rnn, self._direction(name + "_reverse"))
            steps = rnn(steps, seq_lengths=lengths)
        seen = _masked(steps, lengths) if workload.every_step else _last(steps, lengths)
        if not workload.head:
            return seen
        return linen.Dense(workload.classes, use_bias=False, name="head")(seen)

    def _direction(self, name: str) -> Any:
        # build a forward layer for both directions, because ``Bidirectional`` reverses the second
        return linen.RNN(CELLS[self.workload.cell](self.workload.hidden, name=name))


def _masked(steps: Any, lengths: Any) -> Any:
    """Set outputs (batch, time, width) to zero after the end of each sequence."""
    if lengths is None:
        return steps
    return jnp.where(jnp.arange(steps.shape[1])[:, None] < lengths[:, None, None], steps, 0)


def _last(steps: Any, lengths: Any) -> Any:
    """Return the last output of each sequence: (batch, time, width) -> (batch, width)."""
    if lengths is None:
        return steps[:, -1]
    return steps[jnp.arange(steps.shape[0]), lengths - 1]


class Network:
    """The network as a Flax module, with its parameters by path."""

    def __init__(self, workload: Workload) -> None:
        self.layers = Layers(workload)
        place = (workload.batch, workload.time_steps)
        inputs = np.zeros((*place, workload.features), np.float32)
        if workload.vocabulary:
            inputs = np.zeros(place, np.int32)
        shapes = jax.eval_shape(self.layers.init, jax.random.key(0), inputs)["params"]
        paths = traverse_util.flatten_dict(shapes, sep="/").items()
        self.arrays = {path: np.zeros(array.shape, np.float32) for path, array in paths}


def build(workload: Workload) -> Network:
    return Network(workload)


def apply(module: Network, arrays: Mapping[str, Any], inputs: Any, lengths: Any = None) -> Any:
    """Map inputs (batch, time[, features]) to outputs (batch, [time,] classes)."""
    tree = {"params": traverse_util.unflatten_dict(arrays, sep="/")}
    return module.layers.apply(tree, inputs, lengths)


def parameters(module: Network) -> Dict[str, Any]:
    return dict(module.arrays)


class Place(NamedTuple):
    """The weight and the gate to which a Flax parameter belongs."""

    shared: str  # name of the weight
    gate: int = 0
    gates: int = 1


#: Flax's name of a parameter outside of cells -> framework-independent name.
_ENDS = {"embedding/embedding": "embedding", "head/kernel": "head"}


def _place(cell: str, path: str) -> Optional[Place]:
    """Find a parameter's weight: ``l0/if/kernel`` -> ``Place("weight_ih_l0", 1, 4)``."""
    if path in _ENDS:
        return Place(_ENDS[path])
    slot, dense, kind = path.split("/")
    if cell == "gru" and (dense, kind) == ("hn", "bias"):
        return None
    name = "bias" if kind == "bias" else "weight_{}h".format(dense[0])
    letters = LETTERS[cell]
    return Place("{}_{}".format(name, slot), letters.index(dense[1:]), len(letters))


def _turned(path: str, array: Any) -> Any:
    """Transpose a weight (except the embedding) to or from lstmprof's layout."""
    return array if path == "embedding/embedding" else array.T


def load(module: Network, weights: Mapping[str, Any]) -> None:
    for path, array in module.arrays.items():
        place = _place(module.layers.workload.cell, path)
        if place is None:
            module.arrays[path] = np.zeros_like(array)  # GRU's second bias
        else:
            rows = np.split(weights[place.shared], place.gates)[place.gate]
            module.arrays[path] = _turned(path, rows)


def canonical(module: Network, arrays: Mapping[str, Any]) -> Dict[str, Any]:
    rows: Dict[str, Dict[int, Any]] = {}
    for path in module.arrays:
        place = _place(module.layers.workload.cell, path)
        if place is not None:
            gates = rows.setdefault(place.shared, {})
            gates[place.gate] = _turned(path, np.asarray(arrays[path]))
    return {
        shared: np.concatenate([gates[gate] for gate in sorted(gates)])
        for shared, gates in rows.items()
    }
