"""The recorded shapes and element types of an op's inputs, and repeating patterns of ops."""

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

#: Most elements of a tensor; a larger shape is a damaged record.
_MOST_ELEMENTS = 2**48


def in_order(events: EventTable, rows: Ints) -> Ints:
    return rows[np.argsort(events.start_ns[rows], kind="stable")]


def by_step(events: EventTable, rows: Ints) -> Iterator[Ints]:
    """Yield the events ``rows`` of each rank and step, sorted by start."""
    keys = (events.ints(name, UNKNOWN)[rows] for name in ("rank", "step"))
    for members in Groups(*keys).members():
        yield in_order(events, rows[members])


class Inputs:
    """Reads the recorded shapes and element types of an op's inputs."""

    def __init__(self, events: EventTable) -> None:
        self._shapes = events.texts("shapes")
        self._dtypes = events.texts("dtypes")

    def shapes(self, row: int) -> list[Any]:
        """Return a shape, a list of shapes or None per input, such as ``[(2, 3), None]``."""
        return [_shape(entry) for entry in _listed(*self._shapes, row)]

    def dtypes(self, row: int) -> list[str]:
        """Return the element type of each input, such as ``["float", "long int"]``."""
        return [str(entry) for entry in _listed(*self._dtypes, row)]


def _listed(codes: Any, texts: list[str], row: int) -> list[Any]:
    if codes[row] == NONE:
        return []
    return recorded_inputs(texts[codes[row]])


def _shape(entry: Any) -> Any:
    """Convert ``[2, 3]`` to ``(2, 3)``, also inside a list of tensors."""
    if not isinstance(entry, list) or not entry:
        return None
    if all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in entry):
        whole = max(math.prod(entry), *entry)
        return tuple(entry) if whole <= _MOST_ELEMENTS else None
    return [_shape(part) for part in entry]


def shape_at(shapes: list[Any], number: int, dimensions: int) -> Shape | None:
    """Return the shape of input ``number`` (None: not this number of ``dimensions``)."""
    shape = shapes[number] if number < len(shapes) else None
    return shape if isinstance(shape, tuple) and len(shape) == dimensions else None


def shapes_at(shapes: list[Any], number: int) -> list[Shape]:
    """Return the shapes of the tensors in input ``number``, a list of tensors."""
    listed = shapes[number] if number < len(shapes) else None
    if not isinstance(listed, list):
        return []
    return [shape for shape in listed if isinstance(shape, tuple)]


#: Most entries in a pattern: a cell has fewer than ten entries, such as matmuls and activations,
#: and several layers have some dozens.
LONGEST = 96


@dataclass(frozen=True)
class Repeat:
    """A pattern that repeats: ``a b a b a b`` has period 2 and count 3."""

    start: int
    period: int
    count: int

    @property
    def end(self) -> int:
        return self.start + self.period * self.count


def repeats(
    codes: Ints,
    wanted: Callable[[Ints], bool],
    begins: Callable[[Ints], bool],  # chooses among the rotations of a pattern
    least: int,  # fewest repetitions
) -> list[Repeat]:
    """Find stretches of ``codes`` that repeat a pattern which ``wanted`` accepts."""
    runs: list[Repeat] = []
    free = np.ones(len(codes), dtype=np.bool_)
    # try the longest repetitions first
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
    """Yield (start, period, length) of each longest stretch of ``codes`` that repeats."""
    for period in range(1, min(LONGEST, len(codes) // least) + 1):
        same = np.concatenate(([0], (codes[period:] == codes[:-period]).astype(np.int8), [0]))
        edges = np.diff(same)
        starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
        long = ends - starts + period >= least * period
        for start, end in zip(starts[long].tolist(), ends[long].tolist(), strict=True):
            yield start, period, end - start + period
