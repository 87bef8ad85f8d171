"""The shapes and element types of an op's inputs, as a profile records them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from lstmprof.breakdown.recurrent.network import Shape
from lstmprof.events.groups import Groups
from lstmprof.events.intervals import Ints
from lstmprof.events.launch_config import recorded_inputs
from lstmprof.events.table import NONE, UNKNOWN, EventTable

#: No tensor has more elements than this; a larger shape is damaged and is treated as not recorded.
_MOST_ELEMENTS = 2**48


def in_order(events: EventTable, rows: Ints) -> Ints:
    """Return ``rows`` sorted by start."""
    return rows[np.argsort(events.start_ns[rows], kind="stable")]


def by_step(events: EventTable, rows: Ints) -> Iterator[Ints]:
    """Yield the ``rows`` of each rank and step, sorted by start."""
    keys = (events.ints(name, UNKNOWN)[rows] for name in ("rank", "step"))
    for members in Groups(*keys).members():
        yield in_order(events, rows[members])


class Inputs:
    """The recorded inputs of ops: each is a shape, a list of shapes, or None if not recorded."""

    def __init__(self, events: EventTable) -> None:
        self._shapes = events.texts("shapes")
        self._dtypes = events.texts("dtypes")

    def shapes(self, row: int) -> list[Any]:
        """Return per input a shape, a list of shapes, or None; [] if the op has no record."""
        return [_shape(entry) for entry in _listed(*self._shapes, row)]

    def dtypes(self, row: int) -> list[str]:
        """Return the element type of each input; [] if the op has no record."""
        return [str(entry) for entry in _listed(*self._dtypes, row)]


def _listed(codes: Any, texts: list[str], row: int) -> list[Any]:
    if codes[row] == NONE:
        return []
    return recorded_inputs(texts[codes[row]])


def _shape(entry: Any) -> Any:
    """Return ``entry`` as a shape or list of shapes; None for a scalar or an unrecorded input."""
    if not isinstance(entry, list) or not entry:
        return None
    if all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in entry):
        whole = max(math.prod(entry), *entry)
        return tuple(entry) if whole <= _MOST_ELEMENTS else None
    return [_shape(part) for part in entry]


def shape_at(shapes: list[Any], number: int, dimensions: int) -> Shape | None:
    """Return the shape of input ``number`` (0 is the first).

    Return None if this shape does not have exactly ``dimensions`` dimensions.
    """
    shape = shapes[number] if number < len(shapes) else None
    return shape if isinstance(shape, tuple) and len(shape) == dimensions else None


def shapes_at(shapes: list[Any], number: int) -> list[Shape]:
    """Return the shapes of the tensors in input ``number``; empty if the input is no list."""
    listed = shapes[number] if number < len(shapes) else None
    if not isinstance(listed, list):
        return []
    return [shape for shape in listed if isinstance(shape, tuple)]


#: Longest pattern (number of entries) that is searched. The pattern of a cell has fewer than ten
#: entries (matmuls and activations of a time step), the pattern of several layers some dozens.
LONGEST = 96


@dataclass(frozen=True)
class Repeat:
    """A pattern of ``period`` entries that occurs ``count`` times in a row, from ``start`` on."""

    start: int
    period: int
    count: int

    @property
    def end(self) -> int:
        """Return the index of the first entry after the last repetition."""
        return self.start + self.period * self.count


def repeats(
    codes: Ints,
    wanted: Callable[[Ints], bool],
    begins: Callable[[Ints], bool],
    least: int,
) -> list[Repeat]:
    """Find patterns in ``codes`` that repeat at least ``least`` times in a row, without overlaps.

    Only patterns for which ``wanted`` is True count. A run is a pattern with its repetitions. The
    longest run is chosen first. If two runs are equally long, the run with the shorter pattern is
    chosen first. If the number of entries of a run is not a multiple of the period, the run has
    several possible starts. It begins at the first possible start at which ``begins`` is True for
    the pattern. If there is no such start, the run begins at its first entry.
    """
    runs: list[Repeat] = []
    free = np.ones(len(codes), dtype=np.bool_)
    for start, period, covered in sorted(
        _periodic_parts(codes, least), key=lambda s: (-s[2], s[1])
    ):
        pattern = codes[start : start + period]
        if not wanted(pattern):
            continue
        spare = range(covered % period + 1)
        shift = next((n for n in spare if begins(np.roll(pattern, -n))), 0)
        run = Repeat(start + shift, period, (covered - shift) // period)
        if free[run.start : run.end].all():
            runs.append(run)
            free[run.start : run.end] = False
    return sorted(runs, key=lambda run: run.start)


def _periodic_parts(codes: Ints, least: int) -> Iterator[tuple[int, int, int]]:
    """Yield (start, period, length) of each longest possible periodic stretch of ``codes``.

    A stretch has at least ``least`` periods.
    """
    for period in range(1, min(LONGEST, len(codes) // least) + 1):
        same = np.concatenate(([0], (codes[period:] == codes[:-period]).astype(np.int8), [0]))
        edges = np.diff(same)
        starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
        long = ends - starts + period >= least * period
        for start, end in zip(starts[long].tolist(), ends[long].tolist(), strict=True):
            yield start, period, end - start + period
