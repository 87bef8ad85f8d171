"""Group events into types by kind and by host thread or device, such as all ops of one thread.

A profile of millions of events has a few hundred types. The types suffice to find the ranks that
use a device, the thread that ran the steps, and the beginnings of steps.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lstmprof.events.annotate.calls import is_kernel_launch
from lstmprof.events.annotate.steps import Window, windows
from lstmprof.events.groups import numbered
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.narrow import Packed
from lstmprof.events.processes import successive_processes
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import NONE, UNKNOWN

#: Columns that, besides the kind, are equal in all events of a type.
_SOURCE = ("rank", "pid", "tid", "device")
#: Columns that are needed to compute the step windows.
WINDOW_COLUMNS = ("kind", "name", "start_ns", "dur_ns", *_SOURCE)
#: Largest number of events at which all events are used to compute the step windows.
FEW_EVENTS = 2**17
#: Number of copies of the busiest thread's first op, so that this thread stays the busiest among
#: the few chosen events.
_REPEATS = 5
_NO_ROWS: Ints = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class EventTypes:
    """Columns with one entry per event type, such as the ops of a thread."""

    kind: list[str]
    launches: Flags
    rank: Ints
    pid: Ints
    tid: Ints
    device: Ints
    count: Ints
    first: Ints  # row of the event that begins first
    last: Ints  # row of the event that ends last

    @property
    def ranks(self) -> Ints:
        return np.unique(self.rank)

    @property
    def computing(self) -> Ints:
        """Return the ranks that compute on the CPU."""
        on_device = self._is_kind(*ACTIVITY_KINDS) | self.launches
        return np.setdiff1d(self.ranks, self.rank[on_device])

    def on_hosts(self, *kinds: str) -> Ints:
        """Return the indices of host-thread event types of these kinds, such as ops."""
        return np.flatnonzero(self._is_kind(*kinds) & (self.device == UNKNOWN))

    def _is_kind(self, *kinds: str) -> Flags:
        return np.array([kind in kinds for kind in self.kind], dtype=np.bool_)


def event_types(events: Packed) -> EventTypes:
    return events.once(_event_types)


def rows_of_ranks(events: Packed, ranks: Collection[int | None]) -> Ints:
    """Return all rows of ``ranks``, and the first row of every event type."""
    numbers = [NONE if rank is None else rank for rank in ranks]
    own = np.flatnonzero(np.isin(events.values("rank"), numbers))
    # Add each type's first event, to number the threads as in the whole profile.
    return np.union1d(own, event_types(events).first)


def _event_types(events: Packed) -> EventTypes:
    kinds = events.texts("kind")
    launching = np.array([*map(is_kernel_launch, events.texts("name")), False])
    runtime = [*kinds, "runtime"].index("runtime")
    parts = [_types_in(events, rows, launching, runtime) for rows in events.pieces()]
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)] or [_NO_ROWS] * 11
    keys, (count, first, begins, last, ends) = columns[:6], columns[6:]
    types = numbered(*keys)
    by_begin, by_end = np.lexsort((first, begins, types)), np.lexsort((last, -ends, types))
    heads = np.flatnonzero(np.append(True, np.diff(types[by_begin]) > 0)[: len(types)])
    first_of_type = by_begin[heads]
    counts = np.add.reduceat(count[by_begin], heads) if len(heads) else count
    kind, launches, rank, pid, tid, device = (key[first_of_type] for key in keys)
    names = [kinds[code] for code in kind.tolist()]
    last = last[by_end[heads]]
    return EventTypes(
        names, launches > 0, rank, pid, tid, device, counts, first[first_of_type], last
    )


def _types_in(events: Packed, rows: slice, launching: Flags, runtime: int) -> list[Ints]:
    """Find the event types in some rows, as columns for ``_event_types`` to merge."""
    kind = events.codes("kind", rows)
    keys = [kind, launching[events.codes("name", rows)] & (kind == runtime)]
    keys += [events.has_value(name, rows) for name in _SOURCE]
    keys += [events.values(name, rows) for name in _SOURCE]
    types = dense_numbers(keys)
    start = events.values("start_ns", rows).astype(np.int64)
    end = start + events.values("dur_ns", rows)
    count = np.bincount(types)
    begins = np.full(len(count), np.iinfo(np.int64).max)
    ends = np.full(len(count), UNKNOWN)
    np.minimum.at(begins, types, start)
    np.maximum.at(ends, types, end)
    first, last = np.empty_like(begins), np.empty_like(ends)
    for row, at, bound in ((first, start, begins), (last, end, ends)):
        hits = np.flatnonzero(at == bound[types])[::-1]
        row[types[hits]] = hits
    kind, launches, *source = (key[first].astype(np.int64) for key in keys)
    has_value, values = source[: len(_SOURCE)], source[len(_SOURCE) :]
    source = [np.where(k > 0, v, UNKNOWN) for k, v in zip(has_value, values, strict=True)]
    return [kind, launches, *source, count, first + rows.start, begins, last + rows.start, ends]


def dense_numbers(keys: list[np.ndarray]) -> Ints:
    """Give equal keys equal numbers, in order of first use: [7, 7, 3] -> [0, 0, 1]."""
    code = np.zeros(len(keys[0]), dtype=np.int64)
    room = 1
    for key in keys:
        low, high = int(key.min()), int(key.max())
        if high == low:
            continue
        if room * (high - low + 1) >= 2**62:
            code = numbered(code)
            room = int(code.max()) + 1
            key = numbered(key.astype(np.int64))
            low, high = 0, int(key.max())
        code = code * (high - low + 1) + (key.astype(np.int64) - low)
        room *= high - low + 1
    return np.asarray(pa.array(code).dictionary_encode().indices.to_numpy(), dtype=np.int64)


def windows_of(events: Packed, *, captured: bool) -> list[Window]:
    """Compute the step windows, from a few chosen events if the profile is large."""
    rows = None if len(events) <= FEW_EVENTS else _deciding(events)
    table = events.table(WINDOW_COLUMNS, rows)
    if rows is not None and any(
        len(successive_processes(table, table.rows_of_rank(r))) > 1 for r in table.ranks()
    ):
        activities = np.flatnonzero(events.is_kind(*ACTIVITY_KINDS))
        table = events.table(WINDOW_COLUMNS, np.union1d(rows, activities))
    return windows(table, captured=captured)


def _deciding(events: Packed) -> Ints:
    """Return the rows of the few events that suffice to compute the step windows."""
    types = event_types(events)
    rows = np.union1d(_steps(events), [*types.first, *types.last])
    return np.sort(np.append(rows, _busiest_first_rows(types))).astype(np.int64)


def _steps(events: Packed) -> Ints:
    """Return the rows of step markers on host threads."""
    step = [*events.texts("kind"), "step"].index("step")
    parts = [
        rows.start + np.flatnonzero(events.codes("kind", rows) == step) for rows in events.pieces()
    ]
    rows = np.concatenate([_NO_ROWS, *parts])
    return np.asarray(rows[~events.has_value("device", rows)], dtype=np.int64)


def _busiest_first_rows(types: EventTypes) -> Ints:
    """Return the first op and runtime call of each rank's busiest thread, repeated."""
    busiest = []
    for kind in ("op", "runtime"):
        chosen = types.on_hosts(kind)
        rank = types.rank[chosen]
        thread = numbered(rank, types.pid[chosen], types.tid[chosen])
        count = np.bincount(thread, types.count[chosen]).astype(np.int64)
        order = np.lexsort((thread, -count[thread], rank))
        first = np.append(True, np.diff(rank[order]) > 0)[: len(order)]
        busiest.append(types.first[chosen[order[first]]])
    return np.tile(np.concatenate(busiest), _REPEATS)
