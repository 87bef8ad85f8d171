"""Loops of cells in PyTensor and Theano: a ``Scan``, whose operators come round once a time step.

Scans of as many time steps may be merged into one, whose name joins theirs with ``&``: both
directions of a layer. The products' operands tell the cells, since activations are within
``Composite``. A gradient's Scan is called
``grad_of_<loop>``.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from lstmprof.breakdown.recurrent.call import Call
from lstmprof.breakdown.recurrent.cells import unit_of_products
from lstmprof.breakdown.recurrent.loop import Loop, calls_of
from lstmprof.breakdown.recurrent.network import Network, Shape, dtype_named
from lstmprof.breakdown.recurrent.profiles.recorded import Inputs
from lstmprof.breakdown.recurrent.profiles.repeats import Repeat, repeats
from lstmprof.events.annotate.links import inherited
from lstmprof.events.groups import Groups
from lstmprof.events.intervals import Ints
from lstmprof.events.table import NONE, UNKNOWN, EventTable
from lstmprof.implementations import LOOP

LEAST = 3

_SCAN = re.compile(r"pytensor::Scan\{([^,}]*)")
_PRODUCT = re.compile(r"pytensor::(?:Dot22|Gemm|Dot|BatchedDot)\b")
_OF_GRADIENT = "grad_of_"


def pytensor_calls(events: EventTable) -> Iterator[Call]:
    """A call of each Scan that holds cells."""
    scans = np.flatnonzero(events.is_kind("op") & events.where_name(lambda n: bool(_SCAN.match(n))))
    if not len(scans):
        return
    own = np.full(len(events), NONE, dtype=np.int64)
    own[scans] = scans
    inside = inherited(events, events.rows_named("parent_id"), own)
    is_product = events.where_name(lambda name: bool(_PRODUCT.match(name)))
    products = np.flatnonzero((inside != NONE) & is_product)
    inputs, (codes, texts) = Inputs(events), events.texts("name")
    keys = (events.ints(name, UNKNOWN)[scans] for name in ("rank", "step"))
    for members in Groups(*keys).members():
        rows = scans[members][np.argsort(events.start_ns[scans[members]], kind="stable")].tolist()
        labels = {row: _label(texts[codes[row]]) for row in rows}
        loops = [
            loop
            for row in rows
            if not labels[row].startswith(_OF_GRADIENT)
            for loop in _loop(events, inputs, row, products[inside[products] == row], labels)
        ]
        yield from calls_of(events, "pytensor", loops)


def _label(name: str) -> str:
    match = _SCAN.match(name)
    return match[1] if match else ""


def _loop(
    events: EventTable, inputs: Inputs, row: int, products: Ints, labels: dict[int, str]
) -> Iterator[Loop]:
    """The Scan ``row`` as a loop, if its products tell cells."""
    products = products[np.argsort(events.start_ns[products], kind="stable")]
    operands = [_operands(inputs, product) for product in products.tolist()]
    run = _turns(operands)
    if run is None:
        return
    weights = [pair[1] for pair in operands[run.start : run.start + run.period] if pair]
    batches = {pair[0][0] for pair in operands if pair}
    dtype = dtype_named(next(iter(inputs.dtypes(int(products[0]))), None))
    units = _units(
        weights, Network(batch=batches.pop() if len(batches) == 1 else None, dtype=dtype)
    )
    merged = labels[row].count("&") + 1
    if not units or merged % len(units) or run.count * len(units) % merged:
        return
    units, turns = units * (merged // len(units)), run.count * len(units) // merged
    products_a_turn = len(products) // turns
    back = [r for r, label in labels.items() if label.replace(_OF_GRADIENT, "") == labels[row]]
    yield Loop(
        form=LOOP,
        op=f"Scan, {products_a_turn} product" + "s" * (products_a_turn != 1),
        count=turns,
        units=units,
        rows=np.array([row]),
        backward=np.array([r for r in back if r != row], dtype=np.int64),
        time_steps_told=True,
    )


def _operands(inputs: Inputs, row: int) -> tuple[Shape, Shape] | None:
    """Both matrices of a product; of ``Gemm(z, a, x, y, b)`` x and y."""
    matrices = [s for s in inputs.shapes(row) if isinstance(s, tuple) and len(s) == 2]
    return (matrices[-2], matrices[-1]) if len(matrices) >= 2 else None


def _turns(operands: Sequence[tuple[Shape, Shape] | None]) -> Repeat | None:
    """All products as one pattern that comes round; None where they are not, or not recorded."""
    if None in operands or len(operands) < LEAST:
        return None
    seen: dict[object, int] = {}
    codes = np.array([seen.setdefault(pair, len(seen)) for pair in operands], dtype=np.int64)
    found = repeats(codes, wanted=lambda _: True, begins=lambda _: True, least=LEAST)
    whole = [run for run in found if run.period * run.count == len(operands)]
    return whole[0] if whole else None


def _units(weights: Sequence[Shape], known: Network) -> tuple[Network, ...]:
    """The cells of a time step: as many alike as the products come in equal numbers."""
    counts = Counter(weights)
    alike = math.gcd(*counts.values())
    for cells in sorted({n for n in range(1, alike + 1) if alike % n == 0}):
        one = [weight for weight, count in counts.items() for _ in range(count // cells)]
        unit = unit_of_products(one)
        if unit.hidden:
            network = replace(known, cell=unit.cell, inputs=unit.inputs, hidden=unit.hidden)
            return (network,) * cells
    return ()
