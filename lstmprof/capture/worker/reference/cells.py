"""One direction of one recurrent layer in float64 NumPy, forward and backward through time.

::

    lstm   i, f, g, o = W x_t + U h_{t−1} + b
           c_t = σ(f) c_{t−1} + σ(i) tanh(g)
           h_t = σ(o) tanh(c_t)
    gru    r, z = σ(W x_t + U h_{t−1} + b)
           n = tanh(W x_t + b + r (U h_{t−1}))
           h_t = (1 − z) n + z h_{t−1}
    rnn    h_t = tanh(W x_t + U h_{t−1} + b)

Gates stand in this order in W, U and b. A cell gives, for each step back, the gradients of what W
and of what U multiplies, and of h and c before the step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Tuple

import numpy as np

Array = Any  # of float64


@dataclass(frozen=True)
class Trace:
    """One direction, kept for the way back; leading axis time, in running order."""

    inputs: Array
    steps: List[Tuple[Array, ...]]  # what the cell keeps of each step
    hiddens: Array  # h_{-1} first


def sigmoid(x: Array) -> Array:
    """The logistic function."""
    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)))


def lstm(x: Array, u: Array, h: Array, c: Array) -> Tuple[Array, Array, Tuple[Array, ...]]:
    """The next h and c, and what the way back needs."""
    i, f, g, o = np.split(x + u, 4, axis=1)
    i, f, g, o = sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)
    following = f * c + i * g
    return o * np.tanh(following), following, (i, f, g, o, c, following)


def lstm_back(kept: Tuple[Array, ...], d_h: Array, d_c: Array) -> Tuple[Array, Array, Any, Array]:
    """The gradients of W x + b, of U h, of h beside it, and of c."""
    i, f, g, o, c, following = kept
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
    """As ``lstm``, of a GRU; c is passed on."""
    (xr, xz, xn), (ur, uz, un) = np.split(x, 3, axis=1), np.split(u, 3, axis=1)
    r, z = sigmoid(xr + ur), sigmoid(xz + uz)
    n = np.tanh(xn + r * un)
    return (1 - z) * n + z * h, c, (r, z, n, un, h)


def gru_back(kept: Tuple[Array, ...], d_h: Array, d_c: Array) -> Tuple[Array, Array, Any, Array]:
    """As ``lstm_back``, of a GRU."""
    r, z, n, un, h = kept
    d_n = d_h * (1 - z) * (1 - n**2)
    d_z = d_h * (h - n) * z * (1 - z)
    d_r = d_n * un * r * (1 - r)
    d_x = np.concatenate([d_r, d_z, d_n], axis=1)
    return d_x, np.concatenate([d_r, d_z, d_n * r], axis=1), d_h * z, d_c


def rnn(x: Array, u: Array, h: Array, c: Array) -> Tuple[Array, Array, Tuple[Array, ...]]:
    """As ``lstm``, of a plain RNN; c is passed on."""
    h = np.tanh(x + u)
    return h, c, (h,)


def rnn_back(kept: Tuple[Array, ...], d_h: Array, d_c: Array) -> Tuple[Array, Array, Any, Array]:
    """As ``lstm_back``, of a plain RNN."""
    d_raw = d_h * (1 - kept[0] ** 2)
    return d_raw, d_raw, 0.0, d_c


CELLS: Dict[str, Tuple[Callable[..., Any], Callable[..., Any]]] = {
    "lstm": (lstm, lstm_back),
    "gru": (gru, gru_back),
    "rnn": (rnn, rnn_back),
}


def forward(cell: str, w: Dict[str, Array], slot: str, inputs: Array) -> Trace:
    """The layer's direction ``slot`` over ``inputs`` (time, batch, features)."""
    h = c = np.zeros((inputs.shape[1], w[f"weight_hh_{slot}"].shape[1]))
    hiddens, steps = [h], []
    for x in inputs:
        into = x @ w[f"weight_ih_{slot}"].T + w[f"bias_{slot}"]
        h, c, kept = CELLS[cell][0](into, h @ w[f"weight_hh_{slot}"].T, h, c)
        hiddens.append(h)
        steps.append(kept)
    return Trace(inputs, steps, np.stack(hiddens))


def backward(
    cell: str,
    w: Dict[str, Array],
    slot: str,
    trace: Trace,
    d_hiddens: Array,
    gradients: Dict[str, Array],
) -> Array:
    """Sets the gradients of the direction's weights; returns that of its inputs."""
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
