"""Make the rows of counters, such as memory, in the timelines of steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lstmprof.base.numbers import quantity, shown_name
from lstmprof.events.annotate.steps import Window
from lstmprof.events.counters import ALLOCATED, BYTES, RESERVED, SINCE_BEGIN, Series, levels
from lstmprof.events.intervals import Flags, Ints
from lstmprof.report.model import Lane

#: Largest number of counters drawn per step; memory comes first.
MOST_LANES = 8
#: Largest number of values drawn per step. Longer series are cut into ``PARTS`` equal parts, and
#: only the extremes of each part are drawn.
MOST_VALUES, PARTS = 4_000, 500
_FIRST = (ALLOCATED, RESERVED, SINCE_BEGIN)
_LABEL = 120

_Floats = NDArray[np.float64]


def lanes(
    read: Callable[[], Iterable[pa.Table]], windows: Sequence[Window]
) -> list[tuple[Lane, ...]]:
    """Return the counters to draw in each step; calls ``read`` twice."""
    drawn: list[dict[Series, _Drawn]] = [defaultdict(_Drawn) for _ in windows]
    for series, time_ns, values in levels(read):
        for window, of_window in zip(windows, drawn, strict=True):
            if series.rank != window.rank:
                continue
            first, end = np.searchsorted(time_ns, (window.start_ns, window.end_ns)).tolist()
            if first:
                of_window[series].before = float(values[first - 1])
            if end > first:
                at_ns = time_ns[first:end] - window.start_ns
                of_window[series].add(at_ns, values[first:end], window.length_ns)
    all_lanes = []
    for of_window in drawn:
        ordered = sorted(of_window.items(), key=lambda item: _order(item[0]))
        several = len({series.pid for series in of_window}) > 1
        shown = ordered[:MOST_LANES]
        all_lanes.append(tuple(_lane(series, values, several) for series, values in shown))
    return all_lanes


@dataclass
class _Drawn:
    """The values of one counter to draw in one step."""

    before: float | None = None  # last value before the step
    # times since the begin of the step
    at_ns: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    values: _Floats = field(default_factory=lambda: np.empty(0, dtype=np.float64))
    left_out: int = 0

    def add(self, at_ns: Ints, values: _Floats, length_ns: int) -> None:
        at_ns, values = np.append(self.at_ns, at_ns), np.append(self.values, values)
        if len(at_ns) > MOST_VALUES:
            is_extreme = _extremes(at_ns, values, length_ns)
            self.left_out += int(len(is_extreme) - np.count_nonzero(is_extreme))
            at_ns, values = at_ns[is_extreme], values[is_extreme]
        self.at_ns, self.values = at_ns, values


def _extremes(at_ns: Ints, values: _Floats, length_ns: int) -> Flags:
    """Choose what to draw: each part's first, least, largest and last value."""
    part = at_ns * PARTS // max(length_ns, 1)
    order = np.lexsort((values, part))
    begins = np.append(True, part[1:] != part[:-1])
    ends = np.append(begins[1:], True)
    is_extreme = begins | ends
    is_extreme[order[begins]] = is_extreme[order[ends]] = True
    return np.asarray(is_extreme, dtype=np.bool_)


def _order(series: Series) -> tuple[object, ...]:
    name = _FIRST.index(series.name) if series.name in _FIRST else len(_FIRST)
    place = series.device is None, series.device or 0, series.allocator or "", series.pid or 0
    return name == len(_FIRST), *place, name, series.name, series.unit or ""


def _lane(series: Series, drawn: _Drawn, several: bool) -> Lane:
    """Return a counter as a row labelled ``device 0: allocated memory, at most 1.2 GB``."""
    where = "host" if series.device is None else f"device {series.device}"
    where += f", {shown_name(series.allocator, _LABEL)}" if series.allocator else ""
    where += f", process {series.pid}" if several and series.pid is not None else ""
    at_ns, values = drawn.at_ns.tolist(), drawn.values.tolist()
    if drawn.before is not None and (not at_ns or at_ns[0] > 0):
        at_ns, values = [0, *at_ns], [drawn.before, *values]
    unit = shown_name(series.unit or "", _LABEL)
    most = quantity(max(values), unit) if unit == BYTES else f"{max(values):,.6g} {unit}".strip()
    return Lane(
        label=f"{where}: {shown_name(series.name, _LABEL)}, at most {most}",
        unit=unit,
        at_ns=tuple(at_ns),
        values=tuple(int(v) if v.is_integer() else v for v in values),
        left_out=drawn.left_out,
    )
