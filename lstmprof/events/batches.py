"""Divide the events of a run into batches by time, so that only one batch is in memory.

A batch has the events that begin in a time span (``own``), and events that computations need:
earlier events that still run, linked events, and each device's next activity. The first event of
each event type is in every batch, so that all batches number the threads alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lstmprof.events.event_types import event_types
from lstmprof.events.groups import Groups
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.narrow import LINKS, Packed
from lstmprof.events.schema import ACTIVITY_KINDS, SCHEMA
from lstmprof.events.table import EventTable

#: Number of events in a batch: the fastest number from 2**16 to 2**20.
BATCH_EVENTS = 2**17


@dataclass(frozen=True)
class Batch:
    """The events that begin in a batch, and the other events that computations need."""

    events: EventTable
    rows: Ints  # row numbers in the run
    own: slice  # the events that begin in the batch
    start_ns: int
    end_ns: int


class Batches:
    """Divides a run into batches of about ``size`` events."""

    def __init__(
        self, packed: Packed, size: int = BATCH_EVENTS, columns: Sequence[str] = ()
    ) -> None:
        self._packed, self._size = packed, size
        self._names = [name for name in SCHEMA.names if name in (columns or packed.names)]
        self._start = packed.values("start_ns").astype(np.int64, copy=False)
        self._dur = packed.values("dur_ns")
        self._links = {name: packed.values(name) for name in LINKS if name in self._names}
        self.divisible = len(packed) > size and self._in_order()

    def _in_order(self) -> bool:
        """Return whether ids and links are row numbers, and rows are sorted by start."""
        count = len(self._packed)
        in_order = (self._start[1:] >= self._start[:-1]).all()
        return bool(
            in_order
            and self._packed.numbered
            and all(link.max() < count for link in self._links.values())
        )

    def __iter__(self) -> Iterator[Batch]:
        return self.about(None)

    def about(self, selected: Flags | None) -> Iterator[Batch]:
        """Yield the batches of the ``selected`` events (None: of all events)."""
        devices, first_rows = _activities_by_device(self._packed), event_types(self._packed).first
        table = _Tables(self._packed, self._names, self._links)
        count, first = len(self._packed), 0
        running = np.empty(0, dtype=np.int64)
        while first < count:
            last = self._until(first + max(self._size, len(running), len(first_rows)))
            end_ns = int(self._start[last]) if last < count else self._end()
            own = np.arange(first, last)
            own = own if selected is None else own[selected[first:last]]
            needed = np.concatenate([running, first_rows, *_next(devices, self._start, last)])
            rows = table.rows(own, needed)
            own_slice = slice(*np.searchsorted(rows, (first, last)).tolist())
            yield Batch(table.table_of(rows), rows, own_slice, int(self._start[first]), end_ns)
            begun = np.concatenate([running, own])
            running = begun[self._start[begun] + self._dur[begun] > end_ns]
            first = last

    def _end(self) -> int:
        return max(int((self._start[p] + self._dur[p]).max()) for p in self._packed.pieces())

    def _until(self, row: int) -> int:
        """Return a batch's end near ``row`` that keeps events with equal starts together."""
        if row >= len(self._start):
            return len(self._start)
        first = int(np.searchsorted(self._start, self._start[row]))
        if row - first < self._size:
            return first
        return int(np.searchsorted(self._start, self._start[row], side="right"))


class _Tables:
    """Makes an events table for each batch."""

    def __init__(
        self, packed: Packed, names: Sequence[str], links: Mapping[str, np.ndarray]
    ) -> None:
        self._packed, self._names, self._links = packed, names, links
        self._inside = np.zeros(len(packed), dtype=np.bool_)

    def rows(self, own: Ints, needed: Ints) -> Ints:
        """Return ``own``, ``needed`` and all rows to which their links lead, sorted."""
        self._inside[own] = True
        new = np.unique(needed[~self._inside[needed]])
        self._inside[new] = True
        parts = [own, new]
        links = self._links.values()
        named = [link[rows] for link in links for rows in (own, new)]
        while named:
            linked = np.concatenate(named)
            linked = linked[linked >= 0]
            new = np.unique(linked[~self._inside[linked]]).astype(np.int64)
            if not len(new):
                break
            self._inside[new] = True
            parts.append(new)
            named = [link[new] for link in links]
        rows = np.sort(np.concatenate(parts), kind="stable")
        self._inside[rows] = False
        return rows

    def table_of(self, rows: Ints) -> EventTable:
        """Make an events table of ``rows``, with ids and links renumbered from 0."""
        ids = {"event_id": pa.array(np.arange(len(rows)))}
        for name, link in self._links.items():
            named = link[rows]
            ids[name] = pa.array(np.searchsorted(rows, named), mask=named < 0)
        names = self._names
        events = self._packed.table([name for name in names if name not in ids], rows).arrow
        for name, numbers in sorted(ids.items(), key=lambda item: names.index(item[0])):
            place = names.index(name)
            events = events.add_column(place, SCHEMA.field(name), numbers)
        return EventTable(events)


def _activities_by_device(packed: Packed) -> list[np.ndarray]:
    """Return the rows of each device's activities, in order of start."""
    kinds = np.array([*(kind in ACTIVITY_KINDS for kind in packed.texts("kind")), False])
    narrow = np.int32 if len(packed) < 2**31 else np.int64
    parts: dict[tuple[int, ...], list[np.ndarray]] = {}
    for piece in packed.pieces():
        works = kinds[packed.codes("kind", piece)] & packed.has_value("device", piece)
        rows = np.flatnonzero(works & (packed.values("dur_ns", piece) > 0))
        keys = [packed.ints(name, piece)[rows] for name in ("rank", "device")]
        group = Groups(*keys)
        for first, members in zip(group.first.tolist(), group.members(), strict=True):
            lane = parts.setdefault(tuple(int(key[first]) for key in keys), [])
            lane.append((piece.start + rows[members]).astype(narrow))
    return [np.concatenate(lane) for lane in parts.values()]


def _next(devices: list[np.ndarray], start_ns: Ints, row: int) -> Iterator[np.ndarray]:
    """Yield the rows of each device's next activities (equal starts) from ``row`` on."""
    for rows in devices:
        first = int(np.searchsorted(rows, row))
        if first < len(rows):
            until = np.searchsorted(start_ns, start_ns[rows[first]], side="right")
            yield rows[first : int(np.searchsorted(rows, until))]
