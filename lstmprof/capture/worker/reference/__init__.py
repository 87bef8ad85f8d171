"""The networks in float64 NumPy, forward and backward through time, to compare with.

Cells are in ``cells``. The head looks at the last time step of every direction, or at
every time step; without one the outputs are the last layer's. Sequences of variable length are
computed one at a time, cut to their length: there is no mask to be wrong. CTC by forward and
backward sums over the extended targets, in log space: A. Graves et al., "Connectionist temporal
classification" (2006), equations 6–16; blank 0, mean over sequences.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Tuple

import numpy as np

from lstmprof.capture.worker.reference import cells
from lstmprof.capture.worker.reference.cells import Trace
from lstmprof.workloads import Batch, Workload

Array = Any  # of float64


@dataclass(frozen=True)
class Outcome:
    """Loss, head outputs, and the gradient of the loss by every weight's shared name."""

    loss: float
    outputs: Array
    gradients: Dict[str, Array]


def outcome(workload: Workload, weights: Mapping[str, Any], batch: Batch) -> Outcome:
    """The reference for one step of ``workload``."""
    w = {name: np.asarray(value, np.float64) for name, value in weights.items()}
    inputs = np.asarray(batch.inputs)
    embedded = w["embedding"][inputs] if workload.vocabulary else inputs.astype(np.float64)
    parts = [(p, _forward(workload, w, embedded[p])) for p in _parts(workload, batch)]
    hidden = np.zeros((*inputs.shape[:2], workload.directions * workload.hidden))
    for part, (_, found) in parts:
        hidden[part] = found
    last = (np.asarray(batch.lengths) - 1, np.arange(workload.batch))
    if not workload.variable_length:
        last = (np.full(workload.batch, workload.time_steps - 1), last[1])
    seen = hidden if workload.every_step else hidden[last]
    outputs = seen @ w["head"].T if workload.head else seen
    loss, d_outputs = _LOSSES[workload.loss](outputs, batch)
    gradients = {"head": _rows(d_outputs).T @ _rows(seen)} if workload.head else {}
    d_hidden = np.zeros_like(hidden)
    d_seen = d_outputs @ w["head"] if workload.head else d_outputs
    d_hidden[slice(None) if workload.every_step else last] = d_seen
    d_embedded = np.zeros_like(embedded)
    for part, (layers, _) in parts:
        d_embedded[part] = _back(workload, w, layers, d_hidden[part], gradients)
    if workload.vocabulary:
        gradients["embedding"] = np.zeros_like(w["embedding"])
        np.add.at(gradients["embedding"], inputs, d_embedded)
    return Outcome(loss, outputs, gradients)


def _parts(workload: Workload, batch: Batch) -> List[Tuple[slice, slice]]:
    """The (time, batch) slices that are computed together."""
    if not workload.variable_length:
        return [(slice(None), slice(None))]
    lengths = np.asarray(batch.lengths).tolist()
    return [(slice(length), slice(n, n + 1)) for n, length in enumerate(lengths)]


def _back(
    workload: Workload,
    w: Dict[str, Array],
    layers: List[Dict[str, Trace]],
    d_hidden: Array,
    gradients: Dict[str, Array],
) -> Array:
    """Adds the gradients of every layer; returns that of the inputs."""
    for layer in reversed(range(workload.layers)):
        found: Dict[str, Array] = {}
        d_hidden = _layer_back(workload.cell, w, layer, layers[layer], d_hidden, found)
        for name, gradient in found.items():
            gradients[name] = gradients.get(name, 0) + gradient
    return d_hidden


def _forward(
    workload: Workload, w: Dict[str, Array], inputs: Array
) -> Tuple[List[Dict[str, Trace]], Array]:
    layers = []
    for layer in range(workload.layers):
        traces = {
            s: cells.forward(workload.cell, w, f"l{layer}{s}", inputs[:: -1 if s else 1])
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


def _layer_back(
    cell: str,
    w: Dict[str, Array],
    layer: int,
    traces: Dict[str, Trace],
    d_outputs: Array,
    gradients: Dict[str, Array],
) -> Array:
    """Sets the layer's gradients; returns the gradient of its inputs, in the order of time."""
    parts = np.split(d_outputs, len(traces), axis=2)
    d_inputs = [
        cells.backward(cell, w, f"l{layer}{s}", trace, part[:: -1 if s else 1], gradients)
        for (s, trace), part in zip(traces.items(), parts)
    ]
    return sum(d[:: -1 if s else 1] for s, d in zip(traces, d_inputs))


def _log_softmax(x: Array) -> Array:
    shifted = x - x.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))


def _ce(outputs: Array, batch: Batch) -> Tuple[float, Array]:
    scores, targets = _rows(_log_softmax(outputs)), np.asarray(batch.targets).reshape(-1)
    rows = np.arange(len(targets))
    d_outputs = np.exp(scores)
    d_outputs[rows, targets] -= 1
    loss = -float(scores[rows, targets].mean())
    return loss, d_outputs.reshape(outputs.shape) / len(targets)


def _mse(outputs: Array, batch: Batch) -> Tuple[float, Array]:
    difference = outputs - np.asarray(batch.targets, np.float64)
    return float((difference**2).mean()), 2 * difference / difference.size


def _mean(outputs: Array, batch: Batch) -> Tuple[float, Array]:
    return float(outputs.mean()), np.full_like(outputs, 1 / outputs.size)


def _ctc(outputs: Array, batch: Batch) -> Tuple[float, Array]:
    scores, d_outputs, losses = _log_softmax(outputs), np.zeros_like(outputs), []
    lengths: Any = batch.lengths
    targets: Any = batch.targets
    for n, (length, target) in enumerate(zip(lengths, targets)):
        loss, occupancy = _ctc_one(scores[:length, n], np.asarray(target))
        d_outputs[:length, n] = np.exp(scores[:length, n]) - occupancy
        losses.append(loss)
    return float(np.mean(losses)), d_outputs / len(losses)


def _ctc_one(scores: Array, target: Array) -> Tuple[float, Array]:
    """−log p(target), and the expected share of each class at each time step (time, classes)."""
    spelled = np.zeros(2 * len(target) + 1, np.int64)
    spelled[1::2] = target
    alpha = _path_sums(scores, spelled)
    beta = _path_sums(scores[::-1], spelled[::-1])[::-1, ::-1]  # both count step t's own score
    likelihood = np.logaddexp(alpha[-1, -1], alpha[-1, -2])
    share = np.exp(alpha + beta - scores[:, spelled] - likelihood)
    occupancy = np.zeros_like(scores)
    where: Any = (slice(None), spelled)
    np.add.at(occupancy, where, share)
    return -float(likelihood), occupancy


def _path_sums(scores: Array, spelled: Array) -> Array:
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


_LOSSES = {"ce": _ce, "mse": _mse, "ctc": _ctc, "mean": _mean}
