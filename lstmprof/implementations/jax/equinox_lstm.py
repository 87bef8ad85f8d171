"""equinox-lstm: equinox.nn.LSTMCell under jax.lax.scan, the batch by jax.vmap.

::

    i, f, g, o = W x_t + U h_{t−1} + b        (gates in this order, one bias)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(g)
    h_t = σ(o) ⊙ tanh(c_t)

The network is written for one sequence, (time, features); jax.vmap makes it one for a batch, in
which both products stand inside the scan. ``cells.l{k}[_reverse].weight_ih`` W is (4·hidden,
inputs), ``weight_hh`` U (4·hidden, hidden), ``bias`` b (4·hidden): PyTorch's layout.

GRU is ``GRUCell`` (gates r z n, the reset gate after the product; a second bias of n alone,
``bias_n``, which holds zeros and is trained as Equinox has it). If a sequence has
ended, a mask sets its state to 0. Source: the documentation of equinox.nn.LSTMCell and GRUCell;
Equinox's example "Convolutional and recurrent networks: train an RNN".
"""

from __future__ import annotations

from typing import Any, Dict, Mapping

import equinox
import jax
import jax.numpy as jnp
import numpy as np

from lstmprof.workloads import Workload, parameter_shapes

TIME_MAJOR = False
KERNELS = (("while", "XLA's fused operators in a while loop"),)

CELLS = {"lstm": equinox.nn.LSTMCell, "gru": equinox.nn.GRUCell}


class Layers(equinox.Module):  # type: ignore[misc]
    """The ``cells`` by layer and direction; ``embedding`` and ``head`` if the workload has them."""

    cells: Dict[str, Any]
    embedding: Any
    head: Any
    workload: Workload = equinox.field(static=True)

    def __init__(self, workload: Workload) -> None:
        key, width = jax.random.PRNGKey(0), workload.directions * workload.hidden
        cell = CELLS[workload.cell]
        self.workload, self.embedding, self.head = workload, None, None
        self.cells = {
            slot(layer, suffix): cell(
                width if layer else workload.features, workload.hidden, key=key
            )
            for layer in range(workload.layers)
            for suffix in suffixes(workload)
        }
        if workload.vocabulary:
            self.embedding = equinox.nn.Embedding(workload.vocabulary, workload.features, key=key)
        if workload.head:
            self.head = equinox.nn.Linear(width, workload.classes, use_bias=False, key=key)

    def __call__(self, inputs: Any, length: Any = None) -> Any:
        """Return outputs (classes,), or one per step, for one sequence (time, …) or tokens."""
        steps = inputs if self.embedding is None else jax.vmap(self.embedding)(inputs)
        alive = None if length is None else jnp.arange(len(steps)) < length
        for layer in range(self.workload.layers):
            directions = [
                self._direction(slot(layer, suffix), steps, alive)
                for suffix in suffixes(self.workload)
            ]
            steps = jnp.concatenate(directions, axis=1)
        if not self.workload.every_step:
            last = steps[-1 if length is None else length - 1]
            return last if self.head is None else self.head(last)
        return steps if self.head is None else jax.vmap(self.head)(steps)

    def _direction(self, name: str, steps: Any, alive: Any) -> Any:
        """Return outputs (time, hidden), in the order of time."""
        cell, is_lstm = self.cells[name], self.workload.cell == "lstm"

        def step(state: Any, given: Any) -> Any:
            x, is_alive = given
            state = cell(x, state)
            if is_alive is not None:
                state = jax.tree.map(lambda values: jnp.where(is_alive, values, 0), state)
            return state, state[0] if is_lstm else state

        zeros = jnp.zeros(self.workload.hidden, steps.dtype)
        start = (zeros, zeros) if is_lstm else zeros
        reverse = name.endswith("_reverse")
        return jax.lax.scan(step, start, (steps, alive), reverse=reverse)[1]


def slot(layer: int, suffix: str) -> str:
    """Return the name of a layer's direction."""
    return "l{}{}".format(layer, suffix)


def suffixes(workload: Workload) -> Any:
    """Return one suffix per direction."""
    return ("", "_reverse")[: workload.directions]


class Network:
    """``layers``, and their parameters ``arrays`` by path."""

    def __init__(self, workload: Workload) -> None:
        # no values are drawn, because ``load`` sets them
        layers = equinox.filter_eval_shape(Layers, workload)
        leaves, self.structure = jax.tree_util.tree_flatten_with_path(layers)
        self.workload = workload
        self.arrays = {
            jax.tree_util.keystr(path): np.zeros(leaf.shape, np.float32) for path, leaf in leaves
        }


def build(workload: Workload) -> Network:
    """Return the network of ``workload`` without its weights."""
    return Network(workload)


def apply(module: Network, arrays: Mapping[str, Any], inputs: Any, lengths: Any = None) -> Any:
    """Return outputs (batch, classes), or one per step, for (batch, time, …) or tokens.

    ``lengths`` (batch,).
    """
    leaves = [arrays[path] for path in module.arrays]
    layers = jax.tree_util.tree_unflatten(module.structure, leaves)
    return jax.vmap(layers)(inputs) if lengths is None else jax.vmap(layers)(inputs, lengths)


def parameters(module: Network) -> Dict[str, Any]:
    """Return own path -> array, in the module's order."""
    return dict(module.arrays)


def _shared_names(module: Network) -> Dict[str, str]:
    """Return own path -> shared name; GRU's second bias has none."""
    own = {".embedding.weight": "embedding", ".head.weight": "head"}
    for name in parameter_shapes(module.workload):
        kind, _, place = name.partition("_l")
        own[".cells['l{}'].{}".format(place, kind)] = name
    return {path: own[path] for path in module.arrays if path in own}


def load(module: Network, weights: Mapping[str, Any]) -> None:
    """Set the shared weights, and GRU's second bias to zero."""
    names = _shared_names(module)
    for path, array in module.arrays.items():
        shared = weights[names[path]] if path in names else np.zeros_like(array)
        module.arrays[path] = np.asarray(shared)


def canonical(module: Network, arrays: Mapping[str, Any]) -> Dict[str, Any]:
    """Return ``arrays`` (one per parameter, by own path) with the shared names and layout."""
    return {name: np.asarray(arrays[path]) for path, name in _shared_names(module).items()}
