"""equinox-lstm: equinox.nn.LSTMCell under jax.lax.scan, with jax.vmap over the batch.

::

    i, f, g, o = W x_t + U h_{t−1} + b        (gates in this order, one bias)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(g)
    h_t = σ(o) ⊙ tanh(c_t)

The network is written for one sequence (time, features), and jax.vmap extends it to a batch. W is
``cells.l{k}[_reverse].weight_ih`` (4·hidden, inputs), U is ``weight_hh`` (4·hidden, hidden), b is
``bias`` (4·hidden). ``cell="gru"`` is ``GRUCell`` (gates r z n, the reset gate after the matmul),
whose gate n has a second bias, ``bias_n``, which starts at zero. After the end of a sequence, a
mask sets its state to 0. Source: the documentation of equinox.nn.LSTMCell and GRUCell; Equinox's
example "Convolutional and recurrent networks: train an RNN".
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
    """The network for one sequence."""

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
        """Map one sequence (time[, features]) to outputs ([time,] classes)."""
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
        """Return the outputs (time, hidden) of a cell in time order."""
        cell, is_lstm = self.cells[name], self.workload.cell == "lstm"

        def step(state: Any, given: Any) -> Any:
            x, is_alive = given
            state = cell(x, state)
            # set the state to 0 after the end of the sequence
            if is_alive is not None:
                state = jax.tree.map(lambda values: jnp.where(is_alive, values, 0), state)
            return state, state[0] if is_lstm else state

        zeros = jnp.zeros(self.workload.hidden, steps.dtype)
        start = (zeros, zeros) if is_lstm else zeros
        reverse = name.endswith("_reverse")
        return jax.lax.scan(step, start, (steps, alive), reverse=reverse)[1]


def slot(layer: int, suffix: str) -> str:
    return "l{}{}".format(layer, suffix)


def suffixes(workload: Workload) -> Any:
    return ("", "_reverse")[: workload.directions]


class Network:
    """The parameters by path, and the tree structure to rebuild ``Layers``."""

    def __init__(self, workload: Workload) -> None:
        # compute only the parameters' shapes; ``load`` sets the values
        layers = equinox.filter_eval_shape(Layers, workload)
        leaves, self.structure = jax.tree_util.tree_flatten_with_path(layers)
        self.workload = workload
        self.arrays = {
            jax.tree_util.keystr(path): np.zeros(leaf.shape, np.float32) for path, leaf in leaves
        }


def build(workload: Workload) -> Network:
    return Network(workload)


def apply(module: Network, arrays: Mapping[str, Any], inputs: Any, lengths: Any = None) -> Any:
    """Map inputs (batch, time[, features]) to outputs (batch, [time,] classes)."""
    leaves = [arrays[path] for path in module.arrays]
    layers = jax.tree_util.tree_unflatten(module.structure, leaves)
    return jax.vmap(layers)(inputs) if lengths is None else jax.vmap(layers)(inputs, lengths)


def parameters(module: Network) -> Dict[str, Any]:
    return dict(module.arrays)


def _shared_names(module: Network) -> Dict[str, str]:
    """Map the paths of parameters to lstmprof's names."""
    own = {".embedding.weight": "embedding", ".head.weight": "head"}
    for name in parameter_shapes(module.workload):
        kind, _, place = name.partition("_l")
        own[".cells['l{}'].{}".format(place, kind)] = name
    return {path: own[path] for path in module.arrays if path in own}


def load(module: Network, weights: Mapping[str, Any]) -> None:
    names = _shared_names(module)
    for path, array in module.arrays.items():
        # set the second bias of Equinox's GRU to 0, because lstmprof's GRU has one bias
        shared = weights[names[path]] if path in names else np.zeros_like(array)
        module.arrays[path] = np.asarray(shared)


def canonical(module: Network, arrays: Mapping[str, Any]) -> Dict[str, Any]:
    return {name: np.asarray(arrays[path]) for path, name in _shared_names(module).items()}
