"""Loops of cells in PyTensor and Theano: a ``Scan``, whose operators repeat once per time step.

Fused operators (``Composite``) hide the activations, so only the shapes of the matmuls show the
cells. One Scan may run both directions of a layer, with names joined by ``&``. The Scan of a
gradient is called ``grad_of_<loop>``.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lstmprof.breakdown.recurrent.call import Call, Loop, calls_of
from lstmprof.breakdown.recurrent.cells import unit_of_products
from lstmprof.breakdown.recurrent.network import Network, Shape, dtype_named
from lstmprof.breakdown.recurrent.profiles.recorded import (
    Inputs,
    Repeat,
    by_step,
    in_order,
    repeats,
)
from lstmprof.events.annotate.rules.graphs import GRADIENT, scan_label
from lstmprof.events.groups import nearest
from lstmprof.events.intervals import Ints
from lstmprof.events.table import NONE, UNKNOWN, EventTable
from lstmprof.implementations import LOOP

#: Smallest number of repetitions at which lstmprof treats repeated matmuls as a loop of cells.
LEAST_REPETITIONS = 3

_PRODUCT = re.compile(r"(?:pytensor|theano)::(?:Dot22|Dot22Scalar|Gemm|[Dd]ot|BatchedDot)\b")


def pytensor_calls(events: EventTable) -> Iterator[Call]:
    is_scan = events.where_name(lambda name: scan_label(name) is not None)
    is_scan = is_scan & events.is_kind("op")
    scans = np.flatnonzero(is_scan)
    if not len(scans):
        return
    inside = nearest(events.rows_named("parent_id"), is_scan)
    is_product = events.where_name(_PRODUCT.match)
    products = np.flatnonzero(is_product)
    inputs, (codes, texts) = Inputs(events), events.texts("name")
    names = {row: texts[codes[row]] for row in scans.tolist()}
    rank, step = (events.ints(name, UNKNOWN) for name in ("rank", "step"))
    for rows in by_step(events, scans):
        alike = (rank[products] == rank[rows[0]]) & (step[products] == step[rows[0]])
        ordered = in_order(events, products[alike])
        outside = ordered[inside[ordered] == NONE]
        loops = [
            loop
            for scan in _forward({row: names[row] for row in rows.tolist()})
            for loop in _loop(
                inputs,
                scan,
                ordered[inside[ordered] == scan.row],
                outside[events.start_ns[outside] < events.start_ns[scan.row]],
                codes[(inside == scan.row) & (np.arange(len(events)) != scan.row)],
            )
        ]
        library = names[int(rows[0])].partition("::")[0]
        yield from calls_of(events, library, loops)


@dataclass(frozen=True)
class _Scan:
    """A forward Scan, and the rows of its gradient Scans."""

    row: int
    merged: int  # number of Scans that were merged into this Scan
    gradients: list[int]


def _forward(names: Mapping[int, str]) -> list[_Scan]:
    """Return the forward Scans in execution order, with gradients, from {row: name}."""
    labels = {row: scan_label(name) or "" for row, name in names.items()}
    forward: dict[str, list[int]] = {}
    backward: dict[str, list[int]] = {}
    for row, label in labels.items():
        scans = backward if label.startswith(GRADIENT) else forward
        scans.setdefault(label.replace(GRADIENT, ""), []).append(row)
    gradients: dict[int, list[int]] = {}
    for label, rows in forward.items():
        gradients.update(zip(rows, _gradients(rows, backward.get(label, [])), strict=True))
    return [
        _Scan(row, label.count("&") + 1, gradients[row])
        for row, label in labels.items()
        if row in gradients
    ]


def _gradients(rows: Sequence[int], backward: Sequence[int]) -> list[list[int]]:
    """Return the gradient Scans of each Scan; gradients run in reverse order."""
    if len(rows) == 1:
        return [list(backward)]
    paired = len(rows) == len(backward)
    return [[row] for row in reversed(backward)] if paired else [[] for _ in rows]


def _loop(inputs: Inputs, scan: _Scan, products: Ints, before: Ints, names: Ints) -> Iterator[Loop]:
    """Yield ``scan`` as a loop if the shapes of its matmuls show cells."""
    operands = [_operands(inputs, product) for product in products.tolist()]
    run = _whole_repeat(operands)
    if run is None:
        return
    weights = [pair[1] for pair in operands[run.start : run.start + run.period] if pair]
    batches = {pair[0][0] for pair in operands if pair}
    dtype = dtype_named(next(iter(inputs.dtypes(int(products[0]))), None))
    batch = batches.pop() if len(batches) == 1 else None
    shared = Network(batch=batch, dtype=dtype)
    count, units = run.count, _units(weights, shared)
    longest = int(np.gcd.reduce(np.unique(names, return_counts=True)[1]))
    if not units and not count % longest:  # one matmul per gate, all of equal shapes
        count, weights = longest, weights * (count // longest)
        units = _units(weights, shared)
    if not units and batch and len(set(weights)) == 1:
        # add the matmul before the Scan, which may multiply x of all time steps
        units = _units([*weights, *_input_weight(inputs, before, weights[0], batch)], shared)
    merged = scan.merged
    if not units or merged % len(units) or count * len(units) % merged:
        return
    units, time_steps = units * (merged // len(units)), count * len(units) // merged
    products_per_step = len(products) // time_steps
    yield Loop(
        form=LOOP,
        op=f"Scan, {products_per_step} product" + "s" * (products_per_step != 1),
        count=time_steps,
        units=units,
        rows=np.array([scan.row]),
        backward=np.array(scan.gradients, dtype=np.int64),
        time_steps_certain=True,
    )


def _input_weight(inputs: Inputs, products: Ints, weight: Shape, batch: int) -> Iterator[Shape]:
    """Yield the weight of a matmul before the Scan that reads x of all time steps."""
    for product in reversed(products.tolist()):
        pair = _operands(inputs, product)
        if pair and pair[1][1] == weight[1] and not pair[0][0] % batch and pair[0][0] > batch:
            yield pair[1]
            return


def _operands(inputs: Inputs, row: int) -> tuple[Shape, Shape] | None:
    """Return the shapes of x and y of ``Gemm(z, a, x, y, b)``."""
    matrices = [s for s in inputs.shapes(row) if isinstance(s, tuple) and len(s) == 2]
    return (matrices[-2], matrices[-1]) if len(matrices) >= 2 else None


def _whole_repeat(operands: Sequence[tuple[Shape, Shape] | None]) -> Repeat | None:
    """Return the pattern that the list of matmuls repeats from start to end."""
    if None in operands or len(operands) < LEAST_REPETITIONS:
        return None
    numbers: dict[object, int] = {}
    codes = np.array([numbers.setdefault(pair, len(numbers)) for pair in operands], dtype=np.int64)
    runs = repeats(codes, wanted=lambda _: True, begins=lambda _: True, least=LEAST_REPETITIONS)
    whole = [run for run in runs if run.period * run.count == len(operands)]
    return whole[0] if whole else None


def _units(weights: Sequence[Shape], shared: Network) -> tuple[Network, ...]:
    """Divide the weights among equal cells; return one network per cell."""
    counts = Counter(weights)
    alike = math.gcd(*counts.values())
    for cells in sorted({n for n in range(1, alike + 1) if alike % n == 0}):
        share = [weight for weight, count in counts.items() for _ in range(count // cells)]
        unit = unit_of_products(share)
        if unit.hidden:
            network = replace(shared, cell=unit.cell, inputs=unit.inputs, hidden=unit.hidden)
            return (network,) * cells
    return ()
