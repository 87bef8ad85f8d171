"""chainer-nsteplstm: chainer.links.NStepLSTM, all layers, time steps and sequences in one call.

::

    i, f, c, o = W₀₋₃ x_t + b₀₋₃ + W₄₋₇ h_{t−1} + b₄₋₇        (gates in this order, two biases)
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(c)
    h_t = σ(o) ⊙ tanh(c_t)

Each layer and direction is a link, ``/lstm/{layer·directions + direction}``. Each gate has its own
matrices, ``w0`` … ``w7`` (hidden, inputs or hidden), and biases, ``b0`` … ``b7``; those from ``b4``
on start at zero. On a CPU there is no kernel for a layer: Chainer's functions concatenate the
matrices and split the gates at every time step. Inputs are a list with one array (time, features)
per sequence, without padding.

``cell="gru"`` is NStepGRU (gates r z n, the reset gate after the matmul), ``cell="rnn"`` is
NStepRNNTanh. Source: the documentation of NStepLSTM and F.n_step_lstm, Chainer 7.8.1; S. Tokui et
al., "Chainer: a deep learning framework for accelerating the research cycle" (KDD 2019).
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional

import chainer.functions as F
import chainer.links as L
import numpy as np

from lstmprof.implementations import chainer as ends
from lstmprof.implementations.chainer import parameters
from lstmprof.workloads import GATES, Workload

__all__ = ["KERNELS", "TIME_MAJOR", "build", "canonical", "load", "parameters"]

TIME_MAJOR = False
KERNELS = (("chainer::LinearFunction", "Chainer's functions on NumPy, one by one"),)
#: Kinds of parameters: (prefix of lstmprof's name, Chainer's letter, 1 if the kind multiplies h).
KINDS = (("weight_ih_", "w", 0), ("weight_hh_", "w", 1), ("bias_", "b", 0))
#: Cell -> Chainer's classes for one direction and for two directions.
LINKS = {
    "lstm": (L.NStepLSTM, L.NStepBiLSTM),
    "gru": (L.NStepGRU, L.NStepBiGRU),
    "rnn": (L.NStepRNNTanh, L.NStepBiRNNTanh),
}


class Network(ends.Ends):
    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        self.directions, self.gates = workload.directions, GATES[workload.cell]
        self.has_cells = workload.cell == "lstm"
        link = LINKS[workload.cell][workload.directions - 1]
        with self.init_scope():
            self.lstm = link(workload.layers, workload.features, workload.hidden, 0.0)

    def forward(self, inputs: Any, lengths: Optional[Any] = None) -> Any:
        """Map inputs (batch, time[, features]) to outputs (batch, [time,] classes)."""
        state = (None, None) if self.has_cells else (None,)
        final, *_, outputs = self.lstm(*state, self._sequences(inputs, lengths))
        if self.every_step:
            return self.headed(F.pad_sequence(outputs, inputs.shape[1]))
        if self.directions == 1:
            return self.headed(final[-1])
        return self.headed(F.stack([output[-1] for output in outputs]))

    def _sequences(self, inputs: Any, lengths: Optional[Any]) -> List[Any]:
        ends_of_each = [inputs.shape[1]] * len(inputs) if lengths is None else lengths.tolist()
        steps = self.embedded(inputs)
        if self.embedding is not None:
            steps = F.separate(steps)
        return [step[:end] for step, end in zip(steps, ends_of_each)]  # noqa: B905


def build(workload: Workload) -> Network:
    return Network(workload)


def _slots(module: Network) -> List[str]:
    """Return the names of layers and directions: l0, l0_reverse, l1 …"""
    suffixes = ("", "_reverse")[: module.directions]
    places = [divmod(number, len(suffixes)) for number in range(len(module.lstm))]
    return ["l{}{}".format(layer, suffixes[direction]) for layer, direction in places]


def load(module: Network, weights: Mapping[str, Any]) -> None:
    arrays: Dict[str, Any] = {own: weights[name] for own, name in ends.end_names(module).items()}
    for number, slot in enumerate(_slots(module)):
        place = "/lstm/{}/".format(number)
        kinds = [np.split(weights[k + slot], module.gates) for k in ("weight_ih_", "weight_hh_")]
        for gate, matrix in enumerate([*kinds[0], *kinds[1]]):
            arrays["{}w{}".format(place, gate)] = matrix
            arrays["{}b{}".format(place, gate)] = None
        for gate, bias in enumerate(np.split(weights["bias_" + slot], module.gates)):
            arrays["{}b{}".format(place, gate)] = bias
    ends.set_to(module, arrays)


def canonical(module: Network, arrays: Mapping[str, Any]) -> Dict[str, Any]:
    shared = {name: arrays[own] for own, name in ends.end_names(module).items()}
    for number, slot in enumerate(_slots(module)):
        for kind, letter, first in KINDS:
            gates = range(first * module.gates, (first + 1) * module.gates)
            parts = [arrays["/lstm/{}/{}{}".format(number, letter, gate)] for gate in gates]
            shared[kind + slot] = np.concatenate(parts)
    return shared
