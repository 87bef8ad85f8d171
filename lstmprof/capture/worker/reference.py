"""Reference networks: forward and backward pass through time, in float64 NumPy.

W, U and b contain the gates in the order of the left sides (GRU: r, z, n)::

    lstm   i, f, g, o = W x_t + U h_{t−1} + b
           c_t = σ(f) c_{t−1} + σ(i) tanh(g)
           h_t = σ(o) tanh(c_t)
    gru    r, z = σ(W x_t + U h_{t−1} + b)
           n = tanh(W x_t + b + r (U h_{t−1}))
           h_t = (1 − z) n + z h_{t−1}
    rnn    h_t = tanh(W x_t + U h_{t−1} + b)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Tuple

import numpy as np

from lstmprof.workloads import Batch, Workload

Array = Any  # of float64


@dataclass(frozen=True)
class DirectionTrace:
    """Values that a direction's backward pass needs; the first processed step is first."""

    inputs: Array
    steps: List[Tuple[Array, ...]]  # what the cell keeps for each step
    hiddens: Array  # h_{-1} first


def sigmoid(x: Array) -> Array:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)))


def lstm(x: Array, u: Array, h: Array, c: Array) -> Tuple[Array, Array, Tuple[Array, ...]]:
    """Compute an LSTM step from x = W x_t + b and u = U h; return (h, c, saved values)."""
    i, f, g, o = np.split(x + u, 4, axis=1)
    i, f, g, o = sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)
    following = f * c + i * g
    return o * np.tanh(following), following, (i, f, g, o, c, following)


def lstm_back(saved: Tuple[Array, ...], d_h: Array, d_c: Array) -> Tuple[Array, Array, Any, Array]:
    """Return the gradients of W x + b, of U h, of h (not through U h), and of c."""
    i, f, g, o, c, following = saved
    squashed = np.tanh(following)
    d_c = d_c + d_h * o * (1 - squashed**2)
    d_raw = np.concatenate(
        [
            d_c * g * i * (1 - i),
            d_c * c * f * (1 - f),
            d_c * i * (1 - g**2),
            d_h * squashed * o * (1 - o),
        ],
        axis=1,
    )
    return d_raw, d_raw, 0.0, d_c * f


def gru(x: Array, u: Array, h: Array, c: Array) -> Tuple[Array, Array, Tuple[Array, ...]]:
    """Compute a GRU step, like ``lstm``; c is unchanged."""
    (xr, xz, xn), (ur, uz, un) = np.split(x, 3, axis=1), np.split(u, 3, axis=1)
    r, z = sigmoid(xr + ur), sigmoid(xz + uz)
    n = np.tanh(xn + r * un)
    return (1 - z) * n + z * h, c, (r, z, n, un, h)


def gru_back(saved: Tuple[Array, ...], d_h: Array, d_c: Array) -> Tuple[Array, Array, Any, Array]:
    """Compute the gradients of a GRU step, like ``lstm_back``."""
    r, z, n, un, h = saved
    d_n = d_h * (1 - z) * (1 - n**2)
    d_z = d_h * (h - n) * z * (1 - z)
    d_r = d_n * un * r * (1 - r)
    d_x = np.concatenate([d_r, d_z, d_n], axis=1)
    return d_x, np.concatenate([d_r, d_z, d_n * r], axis=1), d_h * z, d_c


def rnn(x: Array, u: Array, h: Array, c: Array) -> Tuple[Array, Array, Tuple[Array, ...]]:
    """Compute an RNN step, like ``lstm``; c is unchanged."""
    h = np.tanh(x + u)
    return h, c, (h,)


def rnn_back(saved: Tuple[Array, ...], d_h: Array, d_c: Array) -> Tuple[Array, Array, Any, Array]:
    """Compute the gradients of an RNN step, like ``lstm_back``."""
    d_raw = d_h * (1 - saved[0] ** 2)
    return d_raw, d_raw, 0.0, d_c


CELLS: Dict[str, Tuple[Callable[..., Any], Callable[..., Any]]] = {
    "lstm": (lstm, lstm_back),
    "gru": (gru, gru_back),
    "rnn": (rnn, rnn_back),
}


def forward(cell: str, w: Dict[str, Array], slot: str, inputs: Array) -> DirectionTrace:
    """Run a direction, such as ``l0_reverse``, over (time, batch, features)."""
    h = c = np.zeros((inputs.shape[1], w[f"weight_hh_{slot}"].shape[1]))
    hiddens, steps = [h], []
    for x in inputs:
        into = x @ w[f"weight_ih_{slot}"].T + w[f"bias_{slot}"]
        h, c, saved = CELLS[cell][0](into, h @ w[f"weight_hh_{slot}"].T, h, c)
        hiddens.append(h)
        steps.append(saved)
    return DirectionTrace(inputs, steps, np.stack(hiddens))


def backward(
    cell: str,
    w: Dict[str, Array],
    slot: str,
    trace: DirectionTrace,
    d_hiddens: Array,
    gradients: Dict[str, Array],
) -> Array:
    """Write the gradients of a direction's weights; return the gradient of its inputs."""
    d_x = np.empty((*d_hiddens.shape[:2], w[f"bias_{slot}"].size))
    d_u = np.empty_like(d_x)
    d_h = d_c = np.zeros_like(trace.hiddens[0])
    for t in reversed(range(len(d_hiddens))):
        d_x[t], d_u[t], kept_h, d_c = CELLS[cell][1](trace.steps[t], d_h + d_hiddens[t], d_c)
        d_h = d_u[t] @ w[f"weight_hh_{slot}"] + kept_h
    gradients[f"weight_ih_{slot}"] = np.einsum("tbg,tbx->gx", d_x, trace.inputs)
    gradients[f"weight_hh_{slot}"] = np.einsum("tbg,tbh->gh", d_u, trace.hiddens[:-1])
    gradients[f"bias_{slot}"] = d_x.sum((0, 1))
    return np.asarray(d_x @ w[f"weight_ih_{slot}"])


@dataclass(frozen=True)
class ReferenceStep:
    """Loss, outputs, and the gradient of each shared weight."""

    loss: float
    outputs: Array
    gradients: Dict[str, Array]


def outcome(workload: Workload, weights: Mapping[str, Any], batch: Batch) -> ReferenceStep:
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
    return ReferenceStep(loss, outputs, gradients)


def _parts(workload: Workload, batch: Batch) -> List[Tuple[slice, slice]]:
    """Return (time, batch) slices: one per sequence if lengths vary, else one."""
    # compute sequences of different lengths one at a time, because a mask could be wrong
    if not workload.variable_length:
        return [(slice(None), slice(None))]
    lengths = np.asarray(batch.lengths).tolist()
    return [(slice(length), slice(n, n + 1)) for n, length in enumerate(lengths)]


def _back(
    workload: Workload,
    w: Dict[str, Array],
    layers: List[Dict[str, DirectionTrace]],
    d_hidden: Array,
    gradients: Dict[str, Array],
) -> Array:
    """Run the backward pass of all layers; return the gradient of the inputs."""
    for layer in reversed(range(workload.layers)):
        gradients_by_name: Dict[str, Array] = {}
        d_hidden = _layer_back(workload.cell, w, layer, layers[layer], d_hidden, gradients_by_name)
        for name, gradient in gradients_by_name.items():
            gradients[name] = gradients.get(name, 0) + gradient
    return d_hidden


def _forward(
    workload: Workload, w: Dict[str, Array], inputs: Array
) -> Tuple[List[Dict[str, DirectionTrace]], Array]:
    layers = []
    for layer in range(workload.layers):
        traces = {
            s: forward(workload.cell, w, f"l{layer}{s}", inputs[:: -1 if s else 1])
            for s in ("", "_reverse")[: workload.directions]
        }
        layers.append(traces)
        inputs = np.concatenate(
            [t.hiddens[1:][:: -1 if s else 1] for s, t in traces.items()], axis=2
        )
    return layers, inputs


def _rows(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1])


def _layer_back(
    cell: str,
    w: Dict[str, Array],
    layer: int,
    traces: Dict[str, DirectionTrace],
    d_outputs: Array,
    gradients: Dict[str, Array],
) -> Array:
    """Write the gradients of a layer; return the gradient of its inputs."""
    parts = np.split(d_outputs, len(traces), axis=2)
    d_inputs = [
        backward(cell, w, f"l{layer}{s}", trace, part[:: -1 if s else 1], gradients)
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
        loss, occupancy = _sequence_ctc(scores[:length, n], np.asarray(target))
        d_outputs[:length, n] = np.exp(scores[:length, n]) - occupancy
        losses.append(loss)
    return float(np.mean(losses)), d_outputs / len(losses)


def _sequence_ctc(scores: Array, target: Array) -> Tuple[float, Array]:
    """Return CTC's loss −log p(target), and p(class | target) as (time, classes).

    A. Graves et al., "Connectionist temporal classification" (2006), equations 6–16.
    """
    # write a blank (class 0) before, between and after the labels
    spelled = np.zeros(2 * len(target) + 1, np.int64)
    spelled[1::2] = target
    alpha = _path_sums(scores, spelled)
    beta = _path_sums(scores[::-1], spelled[::-1])[::-1, ::-1]
    likelihood = np.logaddexp(alpha[-1, -1], alpha[-1, -2])
    # subtract each step's score once, because alpha and beta both contain the score
    share = np.exp(alpha + beta - scores[:, spelled] - likelihood)
    occupancy = np.zeros_like(scores)
    where: Any = (slice(None), spelled)
    np.add.at(occupancy, where, share)
    return -float(likelihood), occupancy


def _path_sums(scores: Array, spelled: Array) -> Array:
    """Return CTC's forward variables: log p of all paths to (time, symbol)."""
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
