"""flax-lstm: flax.linen.OptimizedLSTMCell under flax.linen.RNN, as they come.

::

    i, f, g, o = [x_t W_i, x_t W_f, …] + [h_{t−1} U_i + b_i, …]   (one matrix per gate, bias with h)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(g)
    h_t = σ(o) ⊙ tanh(c_t)

``l{k}[_reverse]/i{gate}/kernel`` is (inputs, hidden), ``…/h{gate}/kernel`` (hidden, hidden) and
``…/h{gate}/bias`` (hidden); batch-major. The cell concatenates its matrices at every time step and
takes two products (``LSTMCell`` takes eight, with the same parameters).

GRU is ``GRUCell`` (gates r z n, the reset gate after the product: six products per step; biases
with x, and a second one of n with h, ``…/hn/bias``, which holds zeros and is trained as Flax has
it), RNN (tanh) is ``SimpleCell``, whose one gate has no letter and whose bias is with x.

Of sequences of variable length the reverse direction is turned by the lengths. Flax computes every
time step of the padding too and leaves what it found there, which no step within a sequence sees:
outputs of every step are set to zero there after the last layer. Source: the documentation of
flax.linen's cells, of flax.linen.RNN and of flax.linen.Bidirectional.
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
#: The letters of a cell's gates, in the shared order
LETTERS = {"lstm": ("i", "f", "g", "o"), "gru": ("r", "z", "n"), "rnn": ("",)}


class Layers(linen.Module):  # type: ignore[misc]
    """The embedding (for tokens), the layers, and the head if there is one."""

    workload: Workload

    @linen.compact  # type: ignore[untyped-decorator, unused-ignore]
    def __call__(self, inputs: Any, lengths: Any = None) -> Any:
        """Return outputs (batch, classes), or one per step, for (batch, time, …) or tokens."""
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
        """Return one direction of a layer; Bidirectional reverses the second."""
        return linen.RNN(CELLS[self.workload.cell](self.workload.hidden, name=name))


def _masked(steps: Any, lengths: Any) -> Any:
    """Return ``steps`` (batch, time, width) with zeros after the end of each sequence."""
    if lengths is None:
        return steps
    return jnp.where(jnp.arange(steps.shape[1])[:, None] < lengths[:, None, None], steps, 0)


def _last(steps: Any, lengths: Any) -> Any:
    """Return each sequence's last of ``steps`` (batch, time, width)."""
    if lengths is None:
        return steps[:, -1]
    return steps[jnp.arange(steps.shape[0]), lengths - 1]


class Network:
    """``layers``, and their parameters ``arrays`` by path."""

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
    """Return the network of ``workload`` without its weights."""
    return Network(workload)


def apply(module: Network, arrays: Mapping[str, Any], inputs: Any, lengths: Any = None) -> Any:
    """Return outputs (batch, classes), or one per step, for (batch, time, …) or tokens.

    ``lengths`` (batch,).
    """
    tree = {"params": traverse_util.unflatten_dict(arrays, sep="/")}
    return module.layers.apply(tree, inputs, lengths)


def parameters(module: Network) -> Dict[str, Any]:
    """Return own path -> array, in the module's order."""
    return dict(module.arrays)


class Place(NamedTuple):
    """The place of a parameter among the shared weights: the rows of one gate."""

    shared: str
    gate: int = 0
    gates: int = 1


#: Parameters outside of cells: path -> shared name.
_ENDS = {"embedding/embedding": "embedding", "head/kernel": "head"}


def _place(cell: str, path: str) -> Optional[Place]:
    """Return the place of the parameter at ``path``; None for GRU's second bias, which is not
    shared.
    """
    if path in _ENDS:
        return Place(_ENDS[path])
    slot, dense, kind = path.split("/")
    if cell == "gru" and (dense, kind) == ("hn", "bias"):
        return None
    name = "bias" if kind == "bias" else "weight_{}h".format(dense[0])
    letters = LETTERS[cell]
    return Place("{}_{}".format(name, slot), letters.index(dense[1:]), len(letters))


def _turned(path: str, array: Any) -> Any:
    """Convert the shared layout to the own one, or back."""
    return array if path == "embedding/embedding" else array.T


def load(module: Network, weights: Mapping[str, Any]) -> None:
    """Set the shared weights, and GRU's second bias to zero."""
    for path, array in module.arrays.items():
        place = _place(module.layers.workload.cell, path)
        if place is None:
            module.arrays[path] = np.zeros_like(array)
        else:
            rows = np.split(weights[place.shared], place.gates)[place.gate]
            module.arrays[path] = _turned(path, rows)


def canonical(module: Network, arrays: Mapping[str, Any]) -> Dict[str, Any]:
    """Return ``arrays`` (one per parameter, by own path) with the shared names and layout."""
    rows: Dict[str, Dict[int, Any]] = {}
    for path in module.arrays:
        place = _place(module.layers.workload.cell, path)
        if place is not None:
            of_gates = rows.setdefault(place.shared, {})
            of_gates[place.gate] = _turned(path, np.asarray(arrays[path]))
    return {
        shared: np.concatenate([of_gates[gate] for gate in sorted(of_gates)])
        for shared, of_gates in rows.items()
    }
