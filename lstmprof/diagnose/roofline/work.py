"""The least work of one step of a workload: operations and bytes of each part.

A layer has D inputs, H units, G = gates·H and d directions. A batch has B sequences with N time
steps in all. The head computes C outputs for R of these time steps. Then the parts need:

==========  ==================  ====================  ==================================
part        work                flops                 elements read and written
==========  ==================  ====================  ==================================
input       forward             2·N·D·G·d             W, inputs
            backward_data       2·N·D·G·d             W, gradient of the inputs
            backward_weights    2·N·D·G·d             inputs, gradient of W
recurrent   forward             2·N·H·G·d             U
            backward_data       2·(N − B)·H·G·d       U
            backward_weights    2·N·H·G·d             outputs, gradient of U
cell        forward             ``CELLS``·N·H·d       biases, outputs, saved numbers
            backward_data       ``CELLS``·N·H·d       saved numbers; gradients of biases and outputs
head        all three           2·R·d·H·C             both operands and the result
embedding   forward             0                     tokens, rows of the table, inputs
            backward_weights    N·D                   tokens, gradients of rows and inputs
loss        forward             not counted           outputs, in training their gradient
cast        forward             0                     weights and inputs (amp-* only)
optimizer   optimizer           ``OPTIMIZERS``        parameters, gradients, state
==========  ==================  ====================  ==================================

The product of an m×k and a k×n matrix takes 2·m·k·n flops. Gradients on which no weight's gradient
depends are not counted: the gradients of the input features and of the initial states (hence N −
B). N is the sum of the sequence lengths if they vary, else batch·time. Each layer runs over all N
time steps in each direction, as in every framework, even if the loss uses only the last time step.

Bytes are the least that memory has to move. Each pass reads a weight once, for any number of time
steps. Gates and their gradients stay on the chip. Outputs that a later part reads are written once.
Operands of matmuls, and numbers saved for the backward pass, have 4 bytes each (2 in amp-*).
Biases, gradients of weights, parameters and the optimizer's state have 4 bytes, tokens 8. A cast
reads 4 bytes and writes 2. Copies between host and device are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from lstmprof import workloads
from lstmprof.workloads import GATES, Workload, parameter_shapes

FORWARD, DATA, WEIGHTS, UPDATE = "forward", "backward_data", "backward_weights", "optimizer"
#: Bytes of a parameter or its gradient (float32) and of a token (int64), and bytes that a cast from
#: float32 to 16 bits reads and writes.
MASTER_BYTES, TOKEN_BYTES, CAST_BYTES = 4, 8, 6


@dataclass(frozen=True)
class Pointwise:
    """Numbers of elementwise operations of a cell, per unit and time step."""

    forward: int  # σ, tanh and √ count as 1
    backward: int
    saved: int  # numbers kept for backward: LSTM gates and c, GRU gates and U h


#: Cell → elementwise work, counted from the equations. The backward pass also adds up the gradients
#: of bias and h, and computes tanh(c) again.
CELLS = {"lstm": Pointwise(17, 28, 5), "gru": Pointwise(14, 21, 4), "rnn": Pointwise(3, 5, 0)}

#: Optimizer → (operations, numbers read or written besides the gradient), both per parameter. The
#: numbers of Adam are from arXiv:1412.6980, section 2.
OPTIMIZERS = {"adam": (12, 6), "sgd": (2, 2)}

#: Loss → category of its work.
_LOSS = {"ce": "softmax_loss", "mse": "softmax_loss", "ctc": "ctc", "mean": "reduction"}


@dataclass(frozen=True)
class Cost:
    """The work of one part of a step in one pass, with both directions of a layer."""

    part: str
    work: str
    category: str
    layer: int | None
    flops: int | None  # None: not counted
    moved_bytes: int


@dataclass(frozen=True)
class _Sizes:
    """Sizes that depend on the data, the mode and the precision of a step."""

    rows: int  # N: time steps of all sequences
    outputs: int  # R: time steps whose outputs the loss uses
    tokens: int  # number of different tokens in the batch
    element_bytes: int
    training: bool


def costs(
    workload: Workload, mode: str = "train", precision: str = "fp32", seed: int = 0
) -> tuple[Cost, ...]:
    """Return the work of one step: forward, backward, optimizer."""
    w, s = workload, _sizes(workload, mode, precision, seed)
    rows = [*_embedding(w, s), *_casts(w, s)]
    for layer in range(w.layers):
        rows += _layer(w, s, layer)
    rows += [*_head(w, s), _loss(w, s)]
    if s.training:
        rows.append(_optimizer(w, s))
    return tuple(sorted(rows, key=lambda cost: (FORWARD, DATA, WEIGHTS, UPDATE).index(cost.work)))


def flops(rows: Iterable[Cost], category: str | None = None) -> int:
    return sum(row.flops or 0 for row in rows if category in (None, row.category))


def _sizes(w: Workload, mode: str, precision: str, seed: int) -> _Sizes:
    rows, tokens = w.batch * w.time_steps, 0
    if w.data:  # assume one distinct token, because the user's data file may be gone
        tokens = 1
    elif w.variable_length or w.vocabulary:  # generate data only if sizes depend on it
        batch: Any = workloads.batch(w, seed)
        lengths = batch.lengths if w.variable_length else np.full(w.batch, w.time_steps)
        rows = int(lengths.sum())
        unpadded = np.arange(w.time_steps)[:, None] < lengths[None, :]
        tokens = len(np.unique(batch.inputs[unpadded])) if w.vocabulary else 0
    outputs = rows if w.every_step else w.batch
    element_bytes = 2 if precision.startswith("amp-") else MASTER_BYTES
    return _Sizes(rows, outputs, tokens, element_bytes, mode == "train")


def _layer(w: Workload, s: _Sizes, layer: int) -> Iterator[Cost]:
    width, element = w.directions * w.hidden, s.element_bytes
    inputs = width if layer else w.features
    inflow, outflow = s.rows * inputs, s.rows * width
    into, back = GATES[w.cell] * width * inputs, GATES[w.cell] * width * w.hidden
    yield from _cell(w, s, layer)
    # count no writes of the gates: gates and gradients of gates can stay on the chip
    yield _gemm("input", FORWARD, layer, s.rows * into, element * (into + inflow))
    yield _gemm("recurrent", FORWARD, layer, s.rows * back, element * back)
    if not s.training:
        return
    # the input features need no gradient
    if layer or w.vocabulary:
        yield _gemm("input", DATA, layer, s.rows * into, element * (into + inflow))
    # omit each sequence's first time step, because the initial state needs no gradient
    if s.rows > w.batch:
        yield _gemm("recurrent", DATA, layer, (s.rows - w.batch) * back, element * back)
    for part, read, matrix in (("input", inflow, into), ("recurrent", outflow, back)):
        moved_bytes = element * read + MASTER_BYTES * matrix
        yield _gemm(part, WEIGHTS, layer, s.rows * matrix, moved_bytes)


def _gemm(part: str, work: str, layer: int | None, sums: int, moved_bytes: int) -> Cost:
    """Return the cost of a matmul with this many multiply-adds."""
    return Cost(part, work, "gemm", layer, 2 * sums, moved_bytes)


def _cell(w: Workload, s: _Sizes, layer: int) -> Iterator[Cost]:
    width = w.directions * w.hidden
    units, seen = s.rows * width, (s.outputs if layer == w.layers - 1 else s.rows) * width
    written = units * (1 + CELLS[w.cell].saved) if s.training else seen
    biases = MASTER_BYTES * GATES[w.cell] * width
    moved_bytes = s.element_bytes * written + biases
    forward, backward = CELLS[w.cell].forward * units, CELLS[w.cell].backward * units
    yield Cost("cell", FORWARD, "pointwise", layer, forward, moved_bytes)
    if s.training:
        moved_bytes = s.element_bytes * (units * CELLS[w.cell].saved + seen) + biases
        yield Cost("cell", DATA, "pointwise", layer, backward, moved_bytes)


def _head(w: Workload, s: _Sizes) -> Iterator[Cost]:
    if not w.head:
        return
    width, element = w.directions * w.hidden, s.element_bytes
    matrix, both = w.classes * width, s.outputs * (width + w.classes)
    sums = s.outputs * matrix
    yield _gemm("head", FORWARD, None, sums, element * (matrix + both))
    if s.training:
        yield _gemm("head", DATA, None, sums, element * (matrix + both))
        yield _gemm("head", WEIGHTS, None, sums, element * both + MASTER_BYTES * matrix)


def _loss(w: Workload, s: _Sizes) -> Cost:
    moved_bytes = s.element_bytes * s.outputs * w.classes * (2 if s.training else 1)
    return Cost("loss", FORWARD, _LOSS[w.loss], None, None, moved_bytes)


def _embedding(w: Workload, s: _Sizes) -> Iterator[Cost]:
    if not w.vocabulary:
        return
    elements, used = s.rows * w.features, s.tokens * w.features
    moved_bytes = TOKEN_BYTES * s.rows + MASTER_BYTES * used + s.element_bytes * elements
    yield Cost("embedding", FORWARD, "embedding", None, 0, moved_bytes)
    if s.training:
        yield Cost("embedding", WEIGHTS, "embedding", None, elements, moved_bytes)


def _casts(w: Workload, s: _Sizes) -> Iterator[Cost]:
    if s.element_bytes == MASTER_BYTES:
        return
    shapes = parameter_shapes(w).items()
    cast = sum(prod(shape) for name, shape in shapes if name.startswith(("weight", "head")))
    cast += 0 if w.vocabulary else s.rows * w.features
    yield Cost("cast", FORWARD, "cast", None, 0, CAST_BYTES * cast)


def _optimizer(w: Workload, s: _Sizes) -> Cost:
    operations, accesses = OPTIMIZERS[w.optimizer]
    parameters = sum(prod(shape) for shape in parameter_shapes(w).values())
    unused = (w.vocabulary - s.tokens) * w.features if w.vocabulary else 0
    used = parameters - unused
    # Adam changes all rows of the embedding, also rows outside the batch
    changed = parameters if w.optimizer == "adam" else used
    moved_bytes = MASTER_BYTES * (accesses * changed + used)
    return Cost("optimizer", UPDATE, "optimizer", None, operations * changed, moved_bytes)
