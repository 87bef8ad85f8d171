"""Find loops of recurrent cells that PyTorch runs one time step at a time.

Example: ``aten::linear``, ``aten::sigmoid`` and ``aten::tanh`` repeat on a thread, or a cell op
repeats (``aten::lstm_cell``), or the matmuls of a compiled cell repeat.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lstmprof.breakdown.recurrent.call import Call, Loop, calls_of, in_words
from lstmprof.breakdown.recurrent.cells import (
    BOUNDARY,
    CELL,
    PRODUCT,
    SIGMOID,
    TANH,
    Op,
    cells_of,
    may_be_cell,
    unit_of,
)
from lstmprof.breakdown.recurrent.network import GATES, Network, Shape, dtype_named
from lstmprof.breakdown.recurrent.profiles.recorded import Inputs, Repeat, repeats, shape_at
from lstmprof.breakdown.recurrent.profiles.torch_compiled import (
    compiled_regions,
    gated_units,
    name_of,
    ran_once,
)
from lstmprof.breakdown.recurrent.profiles.torch_layers import layer_rows, within
from lstmprof.events.groups import Groups
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.table import NONE, UNKNOWN, EventTable
from lstmprof.events.threads import thread_ids
from lstmprof.implementations import CELL_OP, LOOP

#: Smallest number of repetitions at which lstmprof treats repeated ops as a loop. Any network may
#: run ops twice.
LEAST_REPETITIONS = 3

_CELL = re.compile(r"aten::(?:(lstm|gru|rnn_tanh|rnn_relu)_cell|_thnn_fused_(lstm|gru)_cell)")
_PRODUCT = re.compile(r"aten::(?:linear|matmul|mm|addmm|addmm_|bmm|baddbmm|mv|addmv|einsum)")
_ACTIVATION = re.compile(r"aten::(sigmoid|tanh)_?")
#: Pattern of ops before or after a loop, which make initial states or join outputs.
_BOUNDARY = re.compile(r"aten::(?:zeros|new_zeros|new_full|stack|unbind|flip)")
#: Op → number of its inputs. TorchScript records its whole stack, which ends with these inputs.
_INPUTS = {"linear": 3, "matmul": 2, "mm": 2, "bmm": 2, "sigmoid": 1, "tanh": 1}
_GRADIENT = "torch::autograd::AccumulateGrad"
_BACKWARD = re.compile(r"autograd::engine::evaluate_function|\w*Backward\d*$")


@dataclass(frozen=True)
class _Tokens:
    """The ops ("tokens") of one thread and step that can show a loop of cells."""

    rows: Ints
    roles: Ints
    codes: Ints  # equal for equal ops
    ops: Ints  # the thread's outermost ops
    positions: Ints  # index of each token in ``ops``
    regions: Ints  # compiled region around each token


def loop_calls(events: EventTable) -> Iterator[Call]:
    """Yield a ``Call`` for each loop of cells that PyTorch ran op by op."""
    roles = np.where(events.is_kind("op"), events.mapped("name", _role, NONE), NONE)
    hides = (roles != NONE) | layer_rows(events)
    hides |= events.is_kind("op") & events.where_name(_BACKWARD.match)
    rows = np.flatnonzero((roles != NONE) & ~within(events, hides))
    reader = _Reader(events, Inputs(events), roles)
    if not np.isin(roles[rows], (CELL, SIGMOID)).any() and not reader.may_compute_gates(
        rows[roles[rows] == PRODUCT]
    ):
        return
    ops, regions = _around(events, rows), compiled_regions(events)
    is_token = np.bincount(rows, minlength=len(events)) > 0
    step, rank = events.ints("step", UNKNOWN)[ops], events.ints("rank", UNKNOWN)[ops]
    for members in Groups(rank, thread_ids(events)[ops], step).members():
        thread_rows = ops[members]
        thread_rows = thread_rows[
            np.lexsort((-events.dur_ns[thread_rows], events.start_ns[thread_rows]))
        ]
        positions = np.flatnonzero(is_token[thread_rows])
        tokens = thread_rows[positions]
        codes = reader.codes(tokens, roles[tokens], regions[tokens] != NONE)
        yield from _calls(
            events,
            reader,
            _Tokens(tokens, roles[tokens], codes, thread_rows, positions, regions[tokens]),
        )


def _role(name: str) -> int:
    activation = _ACTIVATION.fullmatch(name)
    if activation:
        return SIGMOID if activation[1] == "sigmoid" else TANH
    patterns = {CELL: _CELL, PRODUCT: _PRODUCT, BOUNDARY: _BOUNDARY}
    return next((role for role, p in patterns.items() if p.fullmatch(name)), NONE)


def _around(events: EventTable, rows: Ints) -> Ints:
    """Return ``rows`` and the outermost ops beside ``rows``; no op contains another."""
    parent = events.rows_named("parent_id")
    holds = np.zeros(len(events), dtype=np.bool_)
    above = parent[rows]
    while (above := np.unique(above[above != NONE])).size:
        above = above[~holds[above]]
        holds[above] = True
        above = parent[above]
    ops = events.is_kind("op") & ~holds
    return np.flatnonzero(ops & ~within(events, ops))


class _Reader:
    """Reads the recorded inputs of matmuls, activations and cell ops."""

    def __init__(self, events: EventTable, inputs: Inputs, roles: Ints) -> None:
        self.inputs = inputs
        inner, parent = (
            np.flatnonzero(np.isin(roles, (CELL, PRODUCT))),
            events.rows_named("parent_id"),
        )
        inner = inner[parent[inner] != NONE]
        self._inside = np.full(len(events), NONE)
        self._inside[parent[inner]] = inner
        self.names, self.texts = events.texts("name")
        self._shapes = events.texts("shapes")[0]
        self._rank_and_step = tuple(events.ints(column, UNKNOWN) for column in ("rank", "step"))
        self._gradients = np.flatnonzero(events.is_one_of("name", _GRADIENT))
        self._memory: dict[tuple[int, int], tuple[Shape | None, Shape | None]] = {}
        self._counts: dict[tuple[int, ...], Counter[Shape | None]] = {}

    def name(self, row: int) -> str:
        return self.texts[int(self.names[row])]

    def operands(self, row: int) -> tuple[Shape | None, Shape | None]:
        """Return a matmul's data and weight (inner, outer), or another op's (input, None)."""
        key = (int(self.names[row]), int(self._shapes[row]))
        if key not in self._memory:
            self._memory[key] = _operands(self.name(row), self.inputs.shapes(row))
        return self._memory[key]

    def may_compute_gates(self, products: Ints) -> bool:
        """Return whether any matmul has 3 or 4 times as many outputs as inputs."""
        distinct = products[np.unique(self._shapes[products], return_index=True)[1]]
        weights = (self.operands(row)[1] for row in distinct.tolist())
        return any(w and w[1] in (GATES["lstm"] * w[0], GATES["gru"] * w[0]) for w in weights)

    def gradients(self, row: int) -> Counter[Shape | None]:
        """Count the weights' gradients in the step of ``row``, by sorted shape."""
        if not self._counts:
            for gradient in self._gradients.tolist():
                step = self._counts.setdefault(self._step_of(gradient), Counter())
                step[_sorted(self.operands(gradient)[0])] += 1
        return self._counts.get(self._step_of(row), Counter())

    def _step_of(self, row: int) -> tuple[int, ...]:
        return tuple(int(column[row]) for column in self._rank_and_step)

    def dtype(self, row: int) -> str | None:
        """Return the element type of the innermost op, which computes under autocast."""
        inside = int(self._inside[row])
        named = (dtype_named(dtype) for dtype in self.inputs.dtypes(row))
        own = next((dtype for dtype in named if dtype), None)
        return own if inside == NONE else self.dtype(inside) or own

    def codes(self, rows: Ints, roles: Ints, compiled: Flags) -> Ints:
        """Return equal numbers for ops of equal name, widths, role and ``compiled``."""
        seen: dict[tuple[object, ...], int] = {}
        codes = np.empty(len(rows), dtype=np.int64)
        listed = zip(rows.tolist(), roles.tolist(), compiled.tolist(), strict=True)
        for position, (row, role, inside) in enumerate(listed):
            data, weight = self.operands(row)
            width = None if data is None else data[-1]
            key = (role, inside, self.name(row), weight if role == PRODUCT else None, width)
            codes[position] = seen.setdefault(key, len(seen))
        return codes


def _operands(name: str, shapes: list[object]) -> tuple[Shape | None, Shape | None]:
    count = _INPUTS.get(name.removeprefix("aten::").rstrip("_"), len(shapes))
    shapes = shapes[max(len(shapes) - count, 0) :]
    at = 1 if re.fullmatch(r"aten::(?:addmm_?|baddbmm|addmv)", name) else 0
    data = next((s for s in shapes[at : at + 1] if isinstance(s, tuple)), None)
    weight = next((s for s in shapes[at + 1 : at + 2] if isinstance(s, tuple)), None)
    if not _PRODUCT.fullmatch(name):
        return data, None
    if data is None or weight is None or len(weight) < 2:
        return data, None
    inner, outer = (weight[-1], weight[-2]) if name == "aten::linear" else weight[-2:]
    return data, (inner, outer)


def _calls(events: EventTable, reader: _Reader, tokens: _Tokens) -> Iterator[Call]:
    """Yield one call per stack of layers of one thread in one step."""
    position_of = dict(zip(tokens.codes.tolist(), range(len(tokens.codes)), strict=True))

    def positions(pattern: Ints) -> list[int]:
        return [position_of[code] for code in pattern.tolist()]

    repeated = repeats(
        tokens.codes,
        wanted=lambda pattern: _holds_cell(reader, tokens, positions(pattern)),
        begins=lambda pattern: _begins(tokens.roles[positions(pattern)].tolist()),
        least=LEAST_REPETITIONS,
    )
    candidates = [_Run(reader, tokens, run) for run in repeated]
    runs = [run for run in candidates if run.units]
    certain = bool(runs) and _weights_show_cells(reader, runs)
    yield from calls_of(events, "torch", [run.loop(certain) for run in runs])


def _weights_show_cells(reader: _Reader, runs: Sequence[_Run]) -> bool:
    """Return whether each weight of the loops has exactly one gradient."""
    # two equal layers in turn look like one layer, but have twice as many gradients
    counts = reader.gradients(runs[0].pattern[0])
    needed = Counter(_sorted(weight) for run in runs for weight in run.weights())
    return None not in needed and all(counts[w] == n for w, n in needed.items())


def _sorted(shape: Shape | None) -> Shape | None:
    """Sort the dimensions, so that a matrix equals its transpose."""
    return None if shape is None else tuple(sorted(shape))


def _holds_cell(reader: _Reader, tokens: _Tokens, positions: Sequence[int]) -> bool:
    roles = set(tokens.roles[list(positions)].tolist())
    if BOUNDARY in roles:
        return False
    if CELL in roles or roles >= {PRODUCT, SIGMOID, TANH}:
        return True
    return bool(_units_of_gates(reader, tokens, positions))


def _units_of_gates(
    reader: _Reader, tokens: _Tokens, positions: Sequence[int]
) -> tuple[Network, ...]:
    """Return the cells if each matmul computes all gates for x or for h."""
    at = np.array(positions)
    roles = tokens.roles[at]
    if CELL in roles:
        return ()
    rows = tokens.rows[at[roles == PRODUCT]].tolist()
    dtype = reader.dtype(rows[0]) if rows else None
    return gated_units([reader.operands(row) for row in rows], dtype) if rows else ()


def _begins(roles: Sequence[int]) -> bool:
    return roles[0] in (PRODUCT, CELL) and roles[-1] != PRODUCT


class _Run:
    """A repeated pattern of ops, and the cells in one repetition."""

    def __init__(self, reader: _Reader, tokens: _Tokens, run: Repeat) -> None:
        self._reader, self._tokens, self._run = reader, tokens, run
        self.pattern = tokens.rows[run.start : run.start + run.period].tolist()
        self.roles = tokens.roles[run.start : run.start + run.period].tolist()
        activated = {SIGMOID, TANH} <= set(self.roles)
        positions = range(run.start, run.start + run.period)
        self._gated = () if activated else _units_of_gates(reader, tokens, positions)
        self.units = tuple(self._units())

    def loop(self, certain: bool) -> Loop:
        units = self.units
        first = units[0]
        apart = first.inputs is not None and first.inputs != first.hidden
        regions = self._regions()
        cell_op = CELL in self.roles or len(regions) == self._run.count * len(units)
        return Loop(
            form=CELL_OP if cell_op else LOOP,
            op=self._name(regions),
            count=self._run.count,
            units=units,
            rows=self._rows(regions),
            backward=np.empty(0, dtype=np.int64),
            time_steps_certain=certain or (apart and self._is_one_loop(regions)),
            batch_varies=len(self._batches()) > 1,
            next_matmul_inputs=self._next_matmul_inputs(),
        )

    def _regions(self) -> list[int]:
        """Return the compiled regions of the matmuls, or [] if a matmul is in none."""
        regions = self._tokens.regions[self._run.start : self._run.end]
        if not self._gated or NONE in regions:
            return []
        return list(dict.fromkeys(regions.tolist()))

    def _rows(self, regions: Sequence[int]) -> Ints:
        """Return the rows of the loop's ops, and of each repetition's compiled region."""
        positions, run = self._tokens.positions, self._run
        rows = self._tokens.ops[positions[run.start] : self._last_op() + 1]
        whole = regions if len(regions) >= run.count else ()
        return np.unique(np.concatenate([rows, np.array(whole, dtype=np.int64)]))

    def _is_one_loop(self, regions: Sequence[int]) -> bool:
        """Return whether all repetitions certainly belong to one layer."""
        names = [self._reader.name(row) for row in regions]
        return not regions or (len(names) >= self._run.count and ran_once(names))

    def weights(self) -> list[Shape | None]:
        """Return the weights' shapes in one repetition; a cell op has two weights."""
        listed: list[Shape | None] = []
        for row, role in zip(self.pattern, self.roles, strict=True):
            if role == PRODUCT:
                listed.append(self._reader.operands(row)[1])
            elif role == CELL:
                shapes = self._reader.inputs.shapes(row)
                listed += [shape_at(shapes, position, 2) for position in (2, 3)]
        return listed

    def _name(self, regions: Sequence[int]) -> str:
        if CELL in self.roles:
            return self._reader.name(self.pattern[self.roles.index(CELL)])
        if regions:
            return name_of(self._reader.name(regions[0]), len(self.roles))
        return in_words(self.roles)

    def _last_op(self) -> int:
        """Return the index in ``ops`` of the loop's last op."""
        positions, run = self._tokens.positions, self._run
        last, before = int(positions[run.end - 1]), int(positions[run.end - 1 - run.period])
        tail = int(positions[run.end - run.period]) - before - 1
        names, ops = self._reader.names, self._tokens.ops
        # add the trailing ops that the previous repetition also has
        for offset in range(1, tail + 1):
            place = last + offset
            if place >= len(ops) or names[ops[place]] != names[ops[before + offset]]:
                return place - 1
        return last + tail

    def _units(self) -> Iterator[Network]:
        """Yield the cells of one repetition: one per layer and direction."""
        if CELL in self.roles:
            rows = (row for row, s in zip(self.pattern, self.roles, strict=True) if s == CELL)
            yield from (self._cell_op(row) for row in rows)
            return
        if self._gated:
            yield from self._gated
            return
        operands, dtype = self._reader.operands, self._reader.dtype
        ops = [
            Op(role, *operands(row), dtype(row))
            for row, role in zip(self.pattern, self.roles, strict=True)
        ]
        for positions in cells_of(ops):
            cell_ops = [ops[position] for position in positions]
            if not may_be_cell(cell_ops):
                continue
            unit = unit_of(cell_ops)
            inputs = unit.inputs or self._inputs_before(unit)
            yield replace(unit, inputs=inputs)

    def _cell_op(self, row: int) -> Network:
        match = _CELL.fullmatch(self._reader.name(row))
        cell = (match[1] or match[2]) if match else None
        shapes, dtype = self._reader.inputs.shapes(row), self._reader.dtype(row)
        if match and match[2]:
            state = shape_at(shapes, 2, 2)
            hidden = state[1] if state else None
            return Network(cell, batch=state[0] if state else None, hidden=hidden, dtype=dtype)
        data, recurrent = shape_at(shapes, 0, 2), shape_at(shapes, 3, 2)
        return Network(
            cell,
            batch=data[0] if data else None,
            inputs=data[1] if data else None,
            hidden=recurrent[1] if recurrent else None,
            dtype=dtype,
        )

    def _inputs_before(self, unit: Network) -> int | None:
        """Return the width of x if a matmul before the loop reads x of all time steps."""
        tokens, position = self._tokens, self._run.start - 1
        while position >= 0 and tokens.roles[position] in (PRODUCT, BOUNDARY):
            _, weight = self._reader.operands(int(tokens.rows[position]))
            if weight and unit.hidden and weight[1] == GATES[unit.cell or "lstm"] * unit.hidden:
                return int(weight[0])
            position -= 1
        return None

    def _next_matmul_inputs(self) -> int | None:
        tokens, end = self._tokens, self._run.end
        later = np.flatnonzero(tokens.roles[end:] == PRODUCT)
        if not len(later):
            return None
        _, weight = self._reader.operands(int(tokens.rows[end + int(later[0])]))
        return int(weight[0]) if weight else None

    def _batches(self) -> set[Shape | None]:
        """Return the distinct input shapes of the pattern's first op."""
        first = self._tokens.rows[self._run.start : self._run.end : self._run.period].tolist()
        return {self._reader.operands(row)[0] for row in first}
