"""chainer-lstm: chainer.links.LSTM, called once per time step from a Python loop.

::

    a, i, f, o = W x_t + b + U h_{t−1}        (rows a i f o of each unit in turn; one bias)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(a)
    h_t = σ(o) ⊙ tanh(c_t)

W is ``upward.W`` (4·hidden, inputs), U is ``lateral.W`` (4·hidden, hidden), b is ``upward.b``
(4·hidden); row 4·u + g is gate g of unit u. The link (Chainer's layer) keeps h and c between calls
until ``reset_state``. The reverse direction is a second link. After the end of a sequence, a mask
sets h_t and c_t to 0. Source: the documentation of chainer.links.LSTM and F.lstm, Chainer 7.8.1.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np

from lstmprof.implementations import chainer as ends
from lstmprof.implementations.chainer import parameters
from lstmprof.workloads import Workload

__all__ = ["KERNELS", "TIME_MAJOR", "build", "canonical", "load", "parameters"]

TIME_MAJOR = True
KERNELS = (("chainer::LSTM", "the link's functions on NumPy, time step by time step"),)
#: Indices that convert gate order i f g o to Chainer's a i f o, and the inverse indices.
TO_LINK, TO_SHARED = (2, 0, 1, 3), (1, 2, 0, 3)
KINDS = {"weight_ih_": "upward/W", "weight_hh_": "lateral/W", "bias_": "upward/b"}


class Network(ends.Ends):
    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        self.suffixes = ("", "_reverse")[: workload.directions]
        width = workload.directions * workload.hidden
        sizes = [workload.features] + [width] * (workload.layers - 1)
        with self.init_scope():
            # ordered l0, l0_reverse, l1 …
            self.cells = chainer.ChainList(
                *(L.LSTM(size, workload.hidden) for size in sizes for _ in self.suffixes)
            )

    def forward(self, inputs: Any, lengths: Optional[Any] = None) -> Any:
        """Map inputs (time, batch[, features]) to outputs ([time,] batch, classes)."""
        steps = list(F.separate(self.embedded(inputs)) if self.embedding is not None else inputs)
        masks = None if lengths is None else _masks(len(steps), lengths)
        for first in range(0, len(self.cells), len(self.suffixes)):
            directions = [
                _run(self.cells[first + n], steps, masks, suffix == "_reverse")
                for n, suffix in enumerate(self.suffixes)
            ]
            steps = directions[0]
            if len(directions) == 2:
                steps = [F.concat(pair, axis=1) for pair in zip(*directions)]  # noqa: B905
        if self.every_step:
            return self.headed(F.stack(steps))
        return self.headed(steps[-1] if lengths is None else ends.last(F.stack(steps), lengths))


def _masks(count: int, lengths: Any) -> List[Any]:
    """Return a mask (batch, 1) per time step, which is 0 after a sequence's end."""
    alive = np.arange(count)[:, None] < lengths[None, :]
    return list(alive[:, :, None].astype(np.float32))


def _run(cell: Any, steps: List[Any], masks: Optional[List[Any]], reverse: bool) -> List[Any]:
    cell.reset_state()
    outputs = []
    order = range(len(steps))
    for t in reversed(order) if reverse else order:
        output = cell(steps[t])
        if masks is not None:
            output = output * masks[t]
            cell.set_state(cell.c * masks[t], output)
        outputs.append(output)
    return outputs[::-1] if reverse else outputs


def build(workload: Workload) -> Network:
    return Network(workload)


def _shared_names(module: Network) -> Dict[str, str]:
    """Map Chainer's names to lstmprof's: ``/cells/0/upward/W`` -> ``weight_ih_l0``."""
    names = {}
    for number in range(len(module.cells)):
        layer, direction = divmod(number, len(module.suffixes))
        for kind, own in KINDS.items():
            slot = "l{}{}".format(layer, module.suffixes[direction])
            names["/cells/{}/{}".format(number, own)] = kind + slot
    return names


def _reordered(rows: Any, places: Any, interleave: bool) -> Any:
    """Reorder gates; group rows by unit if ``interleave``, else by gate."""
    rest = rows.shape[1:]
    if interleave:
        gates = rows.reshape((4, -1, *rest))[list(places)]
        return np.moveaxis(gates, 0, 1).reshape((-1, *rest))
    gates = np.moveaxis(rows.reshape((-1, 4, *rest)), 1, 0)[list(places)]
    return gates.reshape((-1, *rest))


def load(module: Network, weights: Mapping[str, Any]) -> None:
    arrays = {own: weights[name] for own, name in ends.end_names(module).items()}
    for own, name in _shared_names(module).items():
        arrays[own] = _reordered(weights[name], TO_LINK, interleave=True)
    ends.set_to(module, arrays)


def canonical(module: Network, arrays: Mapping[str, Any]) -> Dict[str, Any]:
    shared = {name: arrays[own] for own, name in ends.end_names(module).items()}
    for own, name in _shared_names(module).items():
        shared[name] = _reordered(np.asarray(arrays[own]), TO_SHARED, interleave=False)
    return shared
