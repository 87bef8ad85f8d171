"""The memory table: the memory of each step and phase on each device.

::

    allocated    __|‾‾‾|_____|‾‾|___|‾|__    a value is valid until the next
    spans        [    step 1    )[ step 2 )  peak: the largest value in a span

Only peaks and sums between starts or ends of spans are stored, so that profiles of any length fit
into memory.
"""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lstmprof.events.annotate.steps import Window
from lstmprof.events.counters import (
    ALLOCATED,
    ALLOCATED_BY,
    ALLOCATOR,
    CHANGE,
    RESERVED,
    by_series,
)
from lstmprof.events.groups import Groups
from lstmprof.events.intervals import Ints
from lstmprof.events.narrow import Packed
from lstmprof.events.schema import RANK, Column, schema
from lstmprof.events.table import NONE, UNKNOWN

_NO_TOTAL = "the profile does not record it"
_NO_CHANGE = "allocations are not recorded, or the row is a line of code"
COLUMNS = (
    RANK,
    Column.integer(
        "device", "number of the device", "the row is host memory, or the allocator names no device"
    ),
    replace(ALLOCATOR, type=pa.string()),
    Column.integer("step", "number of the step", "the row covers the whole profile"),
    Column.text("phase", "phase of the step", "the row covers a whole step or the whole profile"),
    Column.text(
        "line",
        "line of code that allocated the memory (PyTorch's memory snapshots)",
        "the row covers all allocations",
    ),
    Column.integer(
        "peak_allocated_bytes",
        "largest amount of memory that was allocated at one time",
        _NO_TOTAL,
    ),
    Column.integer(
        "peak_reserved_bytes",
        "largest amount of memory that the allocator reserved",
        "the profile does not record it, or the row is a line of code",
    ),
    Column.integer(
        "grown_bytes",
        "growth of the allocated memory over the step, phase or profile",
        "the profile does not record it, or the row is a line of code",
    ),
    Column.integer("allocations", "number of allocations", _NO_CHANGE),
    Column.integer("allocated_bytes", "total size of the allocations", _NO_CHANGE),
    Column.integer("frees", "number of frees", _NO_CHANGE),
    Column.integer("freed_bytes", "total size of the frees", _NO_CHANGE),
)
#: Columns of the events to read.
READS = ("start_ns", "dur_ns", "rank", "device", "step", "phase")

_Rank = int | None
#: Owner of memory: (rank, device, allocator, line of code).
_Owner = tuple[_Rank, int | None, str | None, str | None]
_Floats = NDArray[np.float64]
_Parts = Sequence[slice]
_TOTALS = (ALLOCATED, RESERVED)
_NAMES = (*_TOTALS, CHANGE)
_SIZES = [column.name for column in COLUMNS[6:]]


@dataclass(frozen=True)
class _Span:
    """A step or a phase; a phase may have several time intervals within a step."""

    step: int | None
    phase: str | None
    start_ns: Ints
    end_ns: Ints


def memory(counters: Iterable[pa.Table], events: Packed, windows: Sequence[Window]) -> pa.Table:
    """Return the memory use of the profile, each step, each phase and each line of code."""
    spans: dict[_Rank, list[_Span]] = defaultdict(list)
    for window in windows:
        if window.step is not None:
            ends = (np.array([ns], dtype=np.int64) for ns in (window.start_ns, window.end_ns))
            spans[window.rank].append(_Span(window.step, None, *ends))
    for rank, span in _phases(events):
        spans[rank].append(span)
    memories = _counted(counters, {rank: _borders(of_rank) for rank, of_rank in spans.items()})
    rows = [
        {"rank": rank, "device": device, "allocator": allocator, "line": line, **row}
        for (rank, device, allocator, line), by_process in memories.items()
        for row in _rows([*by_process.values()], spans[rank] if line is None else [])
    ]
    rows.sort(key=_order)
    return pa.Table.from_pylist(rows, schema=schema(COLUMNS))


def _order(row: dict[str, Any]) -> tuple[Any, ...]:
    rank, device = (NONE if row[name] is None else row[name] for name in ("rank", "device"))
    peak = 0 if row["line"] is None else -(row["peak_allocated_bytes"] or 0)
    return rank, device, row["allocator"] or "", row["line"] is not None, peak


def _phases(events: Packed) -> Iterator[tuple[_Rank, _Span]]:
    rows = np.flatnonzero(
        events.has_value("phase") & events.has_value("step") & ~events.has_value("device")
    )
    if not len(rows):
        return
    ranked = events.has_value("rank")[rows]
    rank = np.where(ranked, events.values("rank")[rows].astype(np.int64), UNKNOWN)
    order = np.argsort(rank, kind="stable")
    rows, rank = rows[order], rank[order]
    step, phase = events.values("step")[rows].astype(np.int64), events.codes("phase")[rows]
    start = events.values("start_ns")[rows].astype(np.int64)
    end = start + events.values("dur_ns")[rows]
    keys = np.stack([rank, step, phase.astype(np.int64)])
    first = np.flatnonzero(np.append(True, (keys[:, 1:] != keys[:, :-1]).any(axis=0)))
    end, start, keys = np.maximum.reduceat(end, first), start[first], keys[:, first]
    same_rank = np.append(keys[0, 1:] == keys[0, :-1], False)
    end = np.where(same_rank, np.minimum(end, np.append(start[1:], 0)), end)
    texts, groups = events.texts("phase"), Groups(*keys)
    for of, members in zip(groups.first.tolist(), groups.members(), strict=True):
        named, number, code = keys[:, of].tolist()
        yield (
            None if named == UNKNOWN else named,
            _Span(number, texts[code], start[members], end[members]),
        )


def _borders(spans: Sequence[_Span]) -> Ints:
    """Return the times at which a step or phase begins or ends."""
    if not spans:
        return np.empty(0, dtype=np.int64)
    return np.unique(np.concatenate([ns for span in spans for ns in (span.start_ns, span.end_ns)]))


_Memories = dict[_Owner, dict[int | None, "_ProcessMemory"]]


def _counted(counters: Iterable[pa.Table], borders: Mapping[_Rank, Ints]) -> _Memories:
    """Collect memory counters by owner (device, allocator, line of code) and process."""
    memories: _Memories = defaultdict(dict)
    no_border = np.empty(0, dtype=np.int64)
    for series, time_ns, values in itertools.chain.from_iterable(map(by_series, counters)):
        line = series.name.removeprefix(ALLOCATED_BY)
        is_line = line != series.name
        if is_line or series.name in _NAMES:
            of_rank = no_border if is_line else borders.get(series.rank, no_border)
            owner = series.rank, series.device, series.allocator, line if is_line else None
            memory = memories[owner].setdefault(series.pid, _ProcessMemory())
            interval = np.searchsorted(of_rank, time_ns, side="right")
            memory.add(ALLOCATED if is_line else series.name, time_ns, interval, values)
    return memories


class _ProcessMemory:
    """One process's memory of one owner, per interval between starts or ends of spans."""

    def __init__(self) -> None:
        self._parts: dict[str, list[tuple[Ints, _Floats]]] = defaultdict(list)
        self._first: dict[str, tuple[int, float]] = {}

    def add(self, name: str, time_ns: Ints, interval: Ints, values: _Floats) -> None:
        """Add the next values of the counter ``name``."""
        self._first.setdefault(name, (int(time_ns[0]), float(values[0])))
        first = np.flatnonzero(np.append(True, interval[1:] != interval[:-1]))
        if name == CHANGE:
            freed = values < 0
            each = (values > 0, np.where(freed, 0, values), freed, np.where(freed, -values, 0))
            sums = np.add.reduceat(np.stack(each).astype(np.float64), first, axis=1)
        else:
            last = np.append(first[1:], len(values)) - 1
            sums = np.stack([np.maximum.reduceat(values, first), values[last]])
        self._parts[name].append((interval[first], sums))

    def has_values(self, parts: _Parts) -> bool:
        return any(first < end for name in self._parts for first, end in self._within(name, parts))

    def peak(self, name: str, parts: _Parts) -> float:
        """Return the counter's largest value in ``parts``, or NaN."""
        _, (most, _) = self._joined[name]
        peaks = [
            np.fmax.reduce(most[first:end], initial=self._last_before(name, first))
            for first, end in self._within(name, parts)
        ]
        return float(np.fmax.reduce(peaks))

    def grown(self, parts: _Parts) -> float:
        """Return the growth of allocated memory in bytes in the time intervals ``parts``."""
        changes = self.changes(parts)
        if ALLOCATED not in self._parts and changes is not None:
            return float(changes[1] - changes[3])
        last = functools.partial(self._last_before, ALLOCATED)
        return float(sum(last(end) - last(first) for first, end in self._within(ALLOCATED, parts)))

    def changes(self, parts: _Parts) -> _Floats | None:
        """Return [allocations, bytes allocated, frees, bytes freed]."""
        if CHANGE not in self._parts:
            return None
        _, each = self._joined[CHANGE]
        within = self._within(CHANGE, parts)
        sums = [each[:, first:end].sum(axis=1) for first, end in within]
        return np.asarray(np.sum(sums, axis=0), dtype=np.float64)

    @cached_property
    def _joined(self) -> dict[str, tuple[Ints, _Floats]]:
        """Join each counter's batches into an array of intervals and an array of values."""
        # begin with empty arrays of peaks and last values; ``CHANGE`` has four sums instead
        joined = {name: (np.empty(0, dtype=np.int64), np.empty((2, 0))) for name in _TOTALS}
        for name, added in self._parts.items():
            intervals, values = zip(*added, strict=True)
            joined[name] = np.concatenate(intervals), np.concatenate(values, axis=1)
        return joined

    def _within(self, name: str, parts: _Parts) -> list[tuple[int, int]]:
        """Return each part's range (first, end) of indices of the counter's intervals."""
        interval, _ = self._joined[name]
        ends = np.searchsorted(interval, [(part.start, part.stop) for part in parts])
        return [(first, end) for first, end in ends.tolist()]

    def _last_before(self, name: str, index: int) -> float:
        """Return the counter's last value before the interval with this index."""
        _, (_, last) = self._joined[name]
        return float(last[index - 1]) if index else self._before(name)

    def _before(self, name: str) -> float:
        """Return the bytes allocated before the first recorded allocation, or NaN."""
        total, change = self._first.get(name), self._first.get(CHANGE)
        if name != ALLOCATED or total is None or change is None or total[0] != change[0]:
            return np.nan
        return total[1] - change[1]


def _rows(processes: Sequence[_ProcessMemory], spans: Sequence[_Span]) -> Iterator[dict[str, Any]]:
    borders = _borders(spans)
    yield {"step": None, "phase": None, **_sizes_of(processes, [slice(0, len(borders) + 1)])}
    for span in sorted(spans, key=lambda s: (s.step, s.phase is not None, s.start_ns[0])):
        start, end = (
            (np.searchsorted(borders, ns) + 1).tolist() for ns in (span.start_ns, span.end_ns)
        )
        parts = [slice(*ends) for ends in zip(start, end, strict=True)]
        yield {"step": span.step, "phase": span.phase, **_sizes_of(processes, parts)}


def _sizes_of(processes: Sequence[_ProcessMemory], parts: _Parts) -> dict[str, int | None]:
    """Return the columns of sizes, such as ``peak_allocated_bytes``."""
    used = [process for process in processes if process.has_values(parts)] or processes
    allocated, reserved = (
        np.fmax.reduce([process.peak(name, parts) for process in used]) for name in _TOTALS
    )
    grown = sum(process.grown(parts) for process in used)
    process_changes = [sums for process in used if (sums := process.changes(parts)) is not None]
    changes = np.sum(process_changes, axis=0).tolist() if process_changes else [np.nan] * 4
    numbers = (allocated, reserved, grown, *changes)
    return {
        name: int(number) if abs(number) < 2**63 else None  # NaN: unknown; 2**63 or more: damaged
        for name, number in zip(_SIZES, numbers, strict=True)
    }
