"""Find loops of recurrent cells in programs that XLA compiled (JAX and TensorFlow).

``op_name`` is the path of an instruction in the user's program, such as
``jit(step)/transpose(jvp(forward))/while/body/…/dot_general`` (``transpose``: backward pass).
Fusions often hide sigmoid and tanh, so shapes of matmuls show a cell (``formats.xplane.events``).
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lstmprof.breakdown.recurrent.call import Call, Loop, calls_of
from lstmprof.breakdown.recurrent.cells import layer_named, unit_beside_tanh, unit_of_products
from lstmprof.breakdown.recurrent.network import GATES, Network, Shape, dtype_named
from lstmprof.breakdown.recurrent.profiles.recorded import (
    Inputs,
    by_step,
    in_order,
    repeats,
    shape_at,
)
from lstmprof.events.groups import Groups
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import NONE, UNKNOWN, EventTable
from lstmprof.implementations import LOOP

#: Smallest number of repetitions at which lstmprof treats repeated kernels as a loop.
LEAST_REPETITIONS = 3

_LATEST = np.iinfo(np.int64).max
_WHILE = re.compile(r"while(?:\.\d+)?")
_BODY = re.compile(r"(.*?/while)/body/")
#: Pattern of the shapes of several operands, as of a matmul; a tanh has one operand.
_SEVERAL = re.compile(r"\],\s*\[")
_DOT = re.compile(r"(?:^|/)dot_general$")
_TRANSPOSED = re.compile(r"transpose\((jvp\([^()]*\))\)")


@dataclass(frozen=True, eq=False)
class _LoopRun:
    path: str
    count: int
    rows: Ints
    products: tuple[int, ...]  # matmuls of one time step
    tanhs: tuple[int, ...]  # of one time step
    start_ns: int

    @property
    def backward(self) -> bool:
        return "transpose(" in self.path

    @property
    def forward_path(self) -> str:
        """Return the loop's path; for a backward loop, return the path of its forward loop."""
        return _TRANSPOSED.sub(r"\1", self.path)


def xla_calls(events: EventTable) -> Iterator[Call]:
    """Yield a ``Call`` for each loop of cells in a program that XLA compiled."""
    loops = np.flatnonzero(events.is_kind("op") & events.where_name(_WHILE.fullmatch))
    inside = events.where("op_name", _BODY.match)
    kernels = np.flatnonzero(inside & events.is_kind(*ACTIVITY_KINDS))
    if not len(loops) and not len(kernels):
        return
    reader = _Reader(events)
    rows = np.concatenate([loops, kernels])
    for step_rows in by_step(events, rows):
        runs = list(_on_device(events, reader, step_rows[np.isin(step_rows, kernels)]))
        runs = runs or list(_on_host(events, reader, step_rows[np.isin(step_rows, loops)]))
        runs.sort(key=lambda run: run.start_ns)
        framework = "jax" if any("jit(" in run.path for run in runs) else "tensorflow"
        after = reader.next_matmul_inputs(runs)
        yield from calls_of(events, framework, list(_loops(reader, runs, after)))


class _Reader:
    """Reads paths of instructions, and shapes of the operands of matmuls and tanhs."""

    def __init__(self, events: EventTable) -> None:
        self.codes, self._paths = events.texts("op_name")
        self.names = events.texts("name")[0]
        several = events.where("shapes", _SEVERAL.search)
        self.is_tanh = (events.texts("shapes")[0] != NONE) & ~several
        self.is_product = several | (~self.is_tanh & events.where("op_name", _DOT.search))
        self.start_ns, self.end_ns = events.start_ns, events.end_ns
        self.rank, self.step = (events.ints(name, UNKNOWN) for name in ("rank", "step"))
        self.ops = self._in_order(events.is_kind("op") & (self.codes != NONE))
        self._products = self._in_order(self.is_product)
        self._inputs = Inputs(events)

    def _in_order(self, mask: Flags) -> dict[int, tuple[Ints, Ints]]:
        """Return {rank: (rows, starts)} of the events in ``mask``, sorted by start."""
        rows = np.flatnonzero(mask)
        rows = rows[np.argsort(self.start_ns[rows], kind="stable")]
        ranks = np.unique(self.rank[rows]).tolist()
        by_rank = {rank: rows[self.rank[rows] == rank] for rank in ranks}
        return {rank: (own, self.start_ns[own]) for rank, own in by_rank.items()}

    def path(self, row: int) -> str:
        code = int(self.codes[row])
        return self._paths[code] if code != NONE else ""

    def operands(self, row: int) -> tuple[Shape, Shape] | None:
        if row == NONE:
            return None
        shapes = self._inputs.shapes(row)
        left, right = shape_at(shapes, 0, 2), shape_at(shapes, 1, 2)
        return (left, right) if left and right else None

    def widths(self, row: int) -> Shape:
        """Return the shape of a tanh's input."""
        return shape_at(self._inputs.shapes(row), 0, 2) or ()

    def next_matmul_inputs(self, runs: Sequence[_LoopRun]) -> int | None:
        """Return the input width of the first matmul after the forward loops."""
        ends = [int(self.end_ns[loop.rows].max()) for loop in runs if not loop.backward]
        if not ends:
            return None
        at = int(runs[0].rows[0])
        products, starts = self._products[int(self.rank[at])]
        later = map(int, products[np.searchsorted(starts, max(ends)) :])
        in_step = itertools.takewhile(lambda row: self.step[row] == self.step[at], later)
        outside = (row for row in in_step if not _BODY.match(self.path(row)))
        operands = self.operands(next(outside, NONE))
        shared = set(operands[0]) & set(operands[1]) if operands else set()  # the inner dimension
        return shared.pop() if len(shared) == 1 else None

    def dtype(self, row: int) -> str | None:
        return dtype_named(next(iter(self._inputs.dtypes(row)), None))


def _on_host(events: EventTable, reader: _Reader, loops: Ints) -> Iterator[_LoopRun]:
    """Yield the runs of loops on a CPU, the last run first."""
    if not len(loops):
        return
    ops, _ = reader.ops.get(int(reader.rank[loops[0]]), (loops[:0], loops[:0]))
    ops = ops[reader.step[ops] == reader.step[loops[0]]]
    start, next_ns = events.start_ns[ops], dict[str, int]()
    for loop in loops[::-1].tolist():
        path, start_ns = reader.path(loop), int(events.start_ns[loop])
        # search until the loop's next run, because XLA may run the body after the loop's event
        first, last = np.searchsorted(start, [start_ns, next_ns.get(path, _LATEST)])
        next_ns[path] = start_ns
        body = [r for r in ops[first:last].tolist() if reader.path(r).startswith(path + "/body")]
        products = [row for row in body if reader.is_product[row]]
        tanhs = {int(reader.names[row]): row for row in body if reader.is_tanh[row]}
        if products:
            distinct = {int(reader.names[row]): row for row in reversed(products)}
            counts = {sum(reader.names[products] == name) for name in distinct}
            if len(counts) == 1:
                ended_ns = max(events.end_ns[loop], events.start_ns[products[-1]])
                rows = np.array(body)
                early = events.start_ns[rows] <= ended_ns
                # omit ops that run only after the loop: XLA moved such ops out of the loop
                rows = rows[early | np.isin(reader.names[rows], reader.names[rows[early]])]
                yield _LoopRun(
                    path,
                    int(counts.pop()),
                    np.append(loop, rows),
                    tuple(sorted(distinct.values())),
                    tuple(tanhs.values()),
                    start_ns,
                )


def _has_product(products: Mapping[int, bool], pattern: Ints) -> bool:
    return any(products[code] for code in pattern.tolist())


def _on_device(events: EventTable, reader: _Reader, kernels: Ints) -> Iterator[_LoopRun]:
    """Yield the runs of loops on a GPU: repeated patterns of kernels on a stream."""
    if not len(kernels):
        return
    device, stream = (events.ints(name, UNKNOWN)[kernels] for name in ("device", "stream"))
    for members in Groups(device, stream).members():
        rows = in_order(events, kernels[members])
        paths = np.unique(reader.codes[rows], return_inverse=True)[1]
        codes = paths * (int(reader.names.max(initial=0)) + 1) + reader.names[rows]
        products = dict(zip(codes.tolist(), reader.is_product[rows].tolist(), strict=True))
        for run in repeats(
            codes,
            wanted=functools.partial(_has_product, products),
            begins=lambda pattern: True,
            least=LEAST_REPETITIONS,
        ):
            pattern = rows[run.start : run.start + run.period].tolist()
            match = _BODY.match(reader.path(pattern[0]))
            yield _LoopRun(
                match[1] if match else "",
                run.count,
                rows[run.start : run.end],
                tuple(row for row in pattern if reader.is_product[row]),
                tuple(row for row in pattern if reader.is_tanh[row]),
                int(events.start_ns[pattern[0]]),
            )


def _loops(reader: _Reader, runs: Sequence[_LoopRun], after: int | None) -> Iterator[Loop]:
    """Yield each forward run of a loop with its backward run."""
    backward: dict[str, list[_LoopRun]] = {}
    forward: dict[str, list[_LoopRun]] = {}
    for run in runs:
        (backward if run.backward else forward).setdefault(run.forward_path, []).append(run)
    for run in runs:
        units, of_cells = ((), ()) if run.backward else _units(reader, run)
        if not units:
            continue
        of_loop = run.rows
        if beside := list(set(run.products) - set(of_cells)):  # matmuls outside of cells
            of_body = [row for row in of_loop.tolist() if reader.path(row) != run.path]
            of_loop = np.array(of_body)[~np.isin(reader.names[of_body], reader.names[beside])]
        alike, back = forward[run.forward_path], backward.get(run.forward_path, [])
        paired = len(alike) == len(back)
        rows = back[::-1][alike.index(run)].rows if paired else np.empty(0, dtype=np.int64)
        products = len(of_cells)
        yield Loop(
            form=LOOP,
            op=f"while, {products} product" + "s" * (products != 1),
            count=run.count,
            units=units,
            rows=of_loop,
            backward=rows,
            time_steps_certain=True,
            next_matmul_inputs=after,
            library="XLA",
        )


def _units(reader: _Reader, run: _LoopRun) -> tuple[tuple[Network, ...], tuple[int, ...]]:
    """Return the cells of a time step, and the rows of their matmuls."""
    operands = [reader.operands(row) for row in run.products]
    tanhs = [shape for row in run.tanhs if (shape := reader.widths(row))]
    path = reader.path(run.products[0])
    named = layer_named(path[len(run.path) :]) or layer_named(run.path)
    # use only a cell's name in the path if the profile lacks shapes
    if None in operands:
        cell = Network(named if named in GATES else None)
        return ((cell,) if named else ()), run.products
    pairs = [pair for pair in operands if pair]
    for size in range(len(pairs), 0, -1):
        for first in range(len(pairs) - size + 1):
            units = _units_of(pairs[first : first + size], tanhs, named)
            # accept a part of the matmuls only if a tanh is as wide as the cell's state
            whole = size == len(pairs)
            if units and (whole or any(units[0].hidden in shape for shape in tanhs)):
                dtype = reader.dtype(run.products[first])
                rows = run.products[first : first + size]
                return tuple(_with(unit, dtype) for unit in units), rows
    return (), ()


def _units_of(
    pairs: Sequence[tuple[Shape, Shape]], tanhs: Sequence[Shape], named: str | None
) -> tuple[Network, ...]:
    for cells in range(1, len(pairs) + 1):
        size, rest = divmod(len(pairs), cells)
        if rest:
            continue
        starts = range(0, len(pairs), size)
        units = tuple(_unit(pairs[at : at + size], tanhs, named) for at in starts)
        if all(unit.hidden for unit in units):
            return units
    return ()


def _with(unit: Network, dtype: str | None) -> Network:
    return Network(unit.cell, batch=unit.batch, inputs=unit.inputs, hidden=unit.hidden, dtype=dtype)


def _unit(
    operands: Sequence[tuple[Shape, Shape]], tanhs: Sequence[Shape], named: str | None
) -> Network:
    """Return the cell that fits; the weight may be a matmul's left or right operand."""
    left, right = operands[0]
    fitting = []
    for batch in dict.fromkeys((_other(left, right), _other(right, left))):
        weights = [_weight_beside(batch, pair) for pair in operands]
        recorded = [weight for weight in weights if weight]
        if len(recorded) < len(weights):
            continue
        widths = (a if b == batch else b for a, b in tanhs if batch in (a, b))
        unit, hidden = unit_of_products(recorded, named), min(widths, default=None)
        if unit.hidden is None and hidden:
            unit = unit_beside_tanh(recorded, hidden)
        if unit.hidden:
            fitting.append(replace(unit, batch=batch))
    states = [set(shape) for shape in tanhs]
    in_tanhs = [unit for unit in fitting if {unit.batch, unit.hidden} in states]
    return next(iter(in_tanhs or fitting), Network())


def _weight_beside(batch: int | None, pair: tuple[Shape, Shape]) -> Shape | None:
    """Return the weight's shape (inner, outer), given that data have ``batch`` rows."""
    for data, weight in (pair, pair[::-1]):
        if batch is not None and _other(data, weight) == batch:
            return _weight(weight, data)
    return None


def _weight(weight: Shape, data: Shape) -> Shape | None:
    """Return the weight's shape as (dimension shared with ``data``, other dimension)."""
    if weight[0] in data:
        return weight
    return (weight[1], weight[0]) if weight[1] in data else None


def _other(data: Shape, weight: Shape) -> int | None:
    """Return the dimension of ``data`` that ``weight`` lacks."""
    if data[1] in weight:
        return data[0]
    return data[1] if data[0] in weight else None
