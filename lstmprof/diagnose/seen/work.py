"""Copies, fills, changing shapes, and embedding tables that are updated completely."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from lstmprof.diagnose.seen.lane import Fact, Lane
from lstmprof.events.groups import Groups
from lstmprof.events.intervals import Flags
from lstmprof.events.launch_config import recorded_inputs
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import NONE

_EMPTY_OP = re.compile(r"aten::(?:new_)?empty(?:_like|_strided)?$")
#: Ops of torch that copy by calling each other.
_ARRANGING = ("aten::copy_", "aten::clone", "aten::contiguous", "aten::reshape", "aten::flatten")
_WORK = ("rnn", "gemm", "conv", "attention", "embedding")
_LOOK_UP, _TABLE_GRADIENT = "aten::embedding", "aten::embedding_dense_backward"
#: An op over several tensors is of a table that has this share of their elements.
_MOST_OF_LIST = 0.9


@dataclass(frozen=True)
class DenseTable:
    """An embedding table whose gradient is as large as the table.

    A step looks up ``looked_up`` of its ``rows``, and spends ``ns`` in ops over the whole table.
    """

    rows: int
    looked_up: float
    ns: int


def moved(lane: Lane) -> tuple[Fact, ...]:
    """Return work that moves elements, by kernel or op; ``within`` is the outermost arranging
    op.
    """
    rows = np.flatnonzero(lane.copies)
    within = lane.around(rows)
    arranges = lane.events.is_one_of("name", *_ARRANGING)
    for _ in _ARRANGING:
        outer = np.where(within != NONE, lane.around(within), NONE)
        within = np.where((outer != NONE) & arranges[outer], outer, within)
    return lane.by_name(rows, within, lane.busy)


def filled(lane: Lane) -> tuple[Fact, ...]:
    """Return memory that is filled when it is allocated."""
    return _beneath(lane, lane.events.is_one_of("name", "aten::fill_"), _EMPTY_OP)


def _beneath(lane: Lane, which: Flags, pattern: re.Pattern[str]) -> tuple[Fact, ...]:
    """Return the rows of ``which`` that an op matching ``pattern``, or a call inside it, issued."""
    rows = np.flatnonzero(which & lane.here)
    within = lane.around(rows)
    fits = lane.events.is_kind("op") & lane.events.where_name(pattern.match)
    chosen = (within != NONE) & fits[within]
    spent = lane.busy if lane.events.is_kind(*ACTIVITY_KINDS)[rows].all() else lane.held
    return lane.by_name(rows[chosen], within[chosen], spent)


def shapes(lane: Lane) -> tuple[str, tuple[str, ...]] | None:
    """Return the first matmul or layer that all steps call equally often, but with other shapes."""
    if not lane.marked:
        return None
    events = lane.events
    codes, texts = events.texts("shapes")
    works = lane.here & events.is_kind("op") & events.is_one_of("category", *_WORK)
    rows = np.flatnonzero(works & (codes != NONE) & (lane.step >= 0))
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    for members in sorted(Groups(lane.names[rows]).members(), key=lambda places: places[0]):
        of_name = rows[members]
        steps = [sorted(codes[of_name[m]].tolist()) for m in Groups(lane.step[of_name]).members()]
        alike = set(steps[0]).intersection(*steps)
        if len(steps) == lane.steps and len({len(step) for step in steps}) == 1:
            others = [c for c in dict.fromkeys(codes[of_name].tolist()) if c not in alike]
            if others and any(step != steps[0] for step in steps):
                return str(lane.text(int(of_name[0]))), tuple(texts[code] for code in others)
    return None


def dense_tables(lane: Lane) -> tuple[DenseTable, ...]:
    """Return the embedding tables with dense gradients, the slowest first.

    A table that a matmul reads, too, has a dense gradient in any case and is left out.
    """
    events, ops = lane.events, lane.here & lane.events.is_kind("op")
    if not (ops & events.is_one_of("name", _TABLE_GRADIENT)).any():
        return ()
    codes, texts = events.texts("shapes")
    inputs = [recorded_inputs(text) for text in texts]
    looks_up = ops & events.is_one_of("name", _LOOK_UP) & (codes != NONE)
    looked_up: dict[tuple[int, int], int] = {}
    for code, times in zip(*np.unique(codes[looks_up], return_counts=True), strict=True):
        table, ids = (*inputs[code], None, None)[:2]
        if _is_shape(table, 2) and _is_shape(ids):
            rows, width = table
            key = rows, width
            looked_up[key] = looked_up.get(key, 0) + int(times) * prod(ids)
    multiplies = ops & events.is_one_of("category", "gemm") & (codes != NONE)
    multiplied = [one for code in np.unique(codes[multiplies]) for one in inputs[code]]
    tables = []
    for (rows, width), number in looked_up.items():
        if [rows, width] in multiplied or [width, rows] in multiplied:
            continue
        whole = np.array([_is_over([rows, width], entries) for entries in inputs] + [False])
        forward = lane.inside(np.asarray(looks_up, np.bool_)) != NONE
        roots = ops & whole[codes] & ~forward
        if len(looked_up) == 1:
            roots |= ops & events.is_one_of("name", _TABLE_GRADIENT)
        ns = sum(fact.ns for fact in lane.spent_in(np.asarray(roots, np.bool_)))
        tables.append(DenseTable(rows, number / lane.steps, ns))
    return tuple(sorted(tables, key=lambda table: -table.ns))


def _is_shape(entry: Any, dimensions: int | None = None) -> bool:
    sizes = isinstance(entry, list) and all(isinstance(size, int) for size in entry)
    return sizes and (dimensions is None or len(entry) == dimensions)


def _is_over(table: list[int], entries: list[Any]) -> bool:
    """Return whether the first input is of the shape ``table``, or a list that is mostly it."""
    first = entries[0] if entries else None
    if first == table:
        return True
    if not isinstance(first, list) or not first or not all(map(_is_shape, first)):
        return False
    return table in first and prod(table) >= _MOST_OF_LIST * sum(map(prod, first))
