"""The networks in float64 NumPy, forward and backward through time, for tests to compare with.

::

    i, f, g, o = W x_t + U h_{t−1} + b;  c_t = σ(f) c_{t−1} + σ(i) tanh(g);  h_t = σ(o) tanh(c_t)

The head looks at the last time step of every direction (ce, mse) or at every time step (ctc). CTC
by forward and backward sums over the extended targets, in log space: A. Graves et al.,
"Connectionist temporal classification" (2006), equations 6–16; blank 0, mean over sequences.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstmprof.workloads import Batch, Workload

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Outcome:
    """Loss, head outputs, and the gradient of the loss by every weight's shared name."""

    loss: float
    outputs: Array
    gradients: dict[str, Array]


@dataclass(frozen=True)
class Trace:
    """One direction of one layer, kept for the way back; leading axis time, in running order."""

    inputs: Array
    gates: tuple[Array, Array, Array, Array]
    cells: Array  # c_{-1} first
    hiddens: Array  # h_{-1} first


def outcome(workload: Workload, weights: dict[str, Any], batch: Batch) -> Outcome:
    """The reference for one step of ``workload``."""
    w = {name: np.asarray(value, np.float64) for name, value in weights.items()}
    layers, hidden = _forward(workload, w, np.asarray(batch.inputs, np.float64))
    every_step = workload.loss == "ctc"
    outputs = (hidden if every_step else hidden[-1]) @ w["head"].T
    loss, d_outputs = _LOSSES[workload.loss](outputs, batch)
    d_hidden = np.zeros_like(hidden)
    d_hidden[slice(None) if every_step else -1] = d_outputs @ w["head"]
    seen = hidden if every_step else hidden[-1]
    gradients = {"head": _rows(d_outputs).T @ _rows(seen)}
    for layer in reversed(range(workload.layers)):
        d_hidden = _layer_back(w, layer, layers[layer], d_hidden, gradients)
    return Outcome(loss, outputs, gradients)


def _forward(
    workload: Workload, w: dict[str, Array], inputs: Array
) -> tuple[list[dict[str, Trace]], Array]:
    layers = []
    for layer in range(workload.layers):
        traces = {
            s: _direction(w, f"l{layer}{s}", inputs[:: -1 if s else 1])
            for s in ("", "_reverse")[: workload.directions]
        }
        layers.append(traces)
        inputs = np.concatenate(
            [t.hiddens[1:][:: -1 if s else 1] for s, t in traces.items()], axis=2
        )
    return layers, inputs


def _rows(x: Array) -> Array:
    """(time, batch, features) or (batch, features) as rows of features."""
    return x.reshape(-1, x.shape[-1])


def _sigmoid(x: Array) -> Array:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)))


def _direction(w: dict[str, Array], slot: str, inputs: Array) -> Trace:
    hidden = w[f"weight_hh_{slot}"].shape[1]
    h = c = np.zeros((inputs.shape[1], hidden))
    hiddens, cells, gates = [h], [c], []
    for x in inputs:
        raw = x @ w[f"weight_ih_{slot}"].T + h @ w[f"weight_hh_{slot}"].T + w[f"bias_{slot}"]
        i, f, g, o = np.split(raw, 4, axis=1)
        i, f, g, o = _sigmoid(i), _sigmoid(f), np.tanh(g), _sigmoid(o)
        c = f * c + i * g
        h = o * np.tanh(c)
        gates.append((i, f, g, o))
        cells.append(c)
        hiddens.append(h)
    i, f, g, o = (np.stack(gate) for gate in zip(*gates, strict=True))
    return Trace(inputs, (i, f, g, o), np.stack(cells), np.stack(hiddens))


def _layer_back(
    w: dict[str, Array],
    layer: int,
    traces: dict[str, Trace],
    d_outputs: Array,
    gradients: dict[str, Array],
) -> Array:
    """Adds the layer's gradients; returns the gradient of its inputs, in the order of time."""
    parts = np.split(d_outputs, len(traces), axis=2)
    return sum(
        _direction_back(w, f"l{layer}{s}", trace, part[:: -1 if s else 1], gradients)[
            :: -1 if s else 1
        ]
        for (s, trace), part in zip(traces.items(), parts, strict=True)
    )


def _direction_back(
    w: dict[str, Array], slot: str, trace: Trace, d_hiddens: Array, gradients: dict[str, Array]
) -> Array:
    d_raw = np.empty((*d_hiddens.shape[:2], w[f"bias_{slot}"].size))
    d_h = d_c = np.zeros_like(trace.cells[0])
    for t in reversed(range(len(d_hiddens))):
        i, f, g, o = (gate[t] for gate in trace.gates)
        squashed = np.tanh(trace.cells[t + 1])
        d_h = d_h + d_hiddens[t]
        d_c = d_c + d_h * o * (1 - squashed**2)
        d_raw[t] = np.concatenate(
            [
                d_c * g * i * (1 - i),
                d_c * trace.cells[t] * f * (1 - f),
                d_c * i * (1 - g**2),
                d_h * squashed * o * (1 - o),
            ],
            axis=1,
        )
        d_c = d_c * f
        d_h = d_raw[t] @ w[f"weight_hh_{slot}"]
    gradients[f"weight_ih_{slot}"] = np.einsum("tbg,tbx->gx", d_raw, trace.inputs)
    gradients[f"weight_hh_{slot}"] = np.einsum("tbg,tbh->gh", d_raw, trace.hiddens[:-1])
    gradients[f"bias_{slot}"] = d_raw.sum((0, 1))
    return d_raw @ w[f"weight_ih_{slot}"]


def _log_softmax(x: Array) -> Array:
    shifted = x - x.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))


def _ce(outputs: Array, batch: Batch) -> tuple[float, Array]:
    scores, rows = _log_softmax(outputs), np.arange(len(outputs))
    d_outputs = np.exp(scores)
    d_outputs[rows, batch.targets] -= 1
    return -float(scores[rows, batch.targets].mean()), d_outputs / len(outputs)


def _mse(outputs: Array, batch: Batch) -> tuple[float, Array]:
    difference = outputs - np.asarray(batch.targets, np.float64)
    return float((difference**2).mean()), 2 * difference / difference.size


def _ctc(outputs: Array, batch: Batch) -> tuple[float, Array]:
    scores, d_outputs, losses = _log_softmax(outputs), np.zeros_like(outputs), []
    for n, (length, target) in enumerate(zip(batch.lengths, batch.targets, strict=True)):
        loss, occupancy = _ctc_one(scores[:length, n], np.asarray(target))
        d_outputs[:length, n] = np.exp(scores[:length, n]) - occupancy
        losses.append(loss)
    return float(np.mean(losses)), d_outputs / len(losses)


def _ctc_one(scores: Array, target: NDArray[np.int64]) -> tuple[float, Array]:
    """−log p(target), and the expected share of each class at each time step (time, classes)."""
    spelled = np.zeros(2 * len(target) + 1, np.int64)
    spelled[1::2] = target
    alpha = _path_sums(scores, spelled)
    beta = _path_sums(scores[::-1], spelled[::-1])[::-1, ::-1]  # both count step t's own score
    likelihood = np.logaddexp(alpha[-1, -1], alpha[-1, -2])
    share = np.exp(alpha + beta - scores[:, spelled] - likelihood)
    occupancy = np.zeros_like(scores)
    np.add.at(occupancy, (slice(None), spelled), share)
    return -float(likelihood), occupancy


def _path_sums(scores: Array, spelled: NDArray[np.int64]) -> Array:
    """log of the summed probability of every path that is at symbol s at time t."""
    sums = np.full((len(scores), len(spelled)), -np.inf)
    sums[0, :2] = scores[0, spelled[:2]]
    may_skip = np.zeros(len(spelled), bool)
    may_skip[2:] = (spelled[2:] != 0) & (spelled[2:] != spelled[:-2])
    for t in range(1, len(scores)):
        before = sums[t - 1]
        one, two = np.full_like(before, -np.inf), np.full_like(before, -np.inf)
        one[1:], two[2:] = before[:-1], before[:-2]
        reached = np.logaddexp(before, one)
        sums[t] = np.where(may_skip, np.logaddexp(reached, two), reached)
        sums[t] += scores[t, spelled]
    return sums


_LOSSES = {"ce": _ce, "mse": _mse, "ctc": _ctc}
