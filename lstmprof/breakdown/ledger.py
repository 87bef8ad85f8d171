"""The ledger: every nanosecond of a step, for each device, once.

Reads linked and categorised events; returns rows (rank, step, device, state, part, ns) that sum to
their window exactly. With device activities in a rank the lanes are its devices, else its host
threads, with ``device`` null. The definition, part by part: docs/ledger.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lstmprof.breakdown import host
from lstmprof.events.annotate.steps import Window, is_kind, of_rank
from lstmprof.events.batches import Batch
from lstmprof.events.columns import DEVICE, RANK, STEP, Column, schema
from lstmprof.events.intervals import Ints, Segments, foremost, gaps, time_per_code, time_per_label
from lstmprof.events.schema import ACTIVITY_KINDS, ints, texts
from lstmprof.events.threads import (
    HOST,
    STATES,
    UNKNOWN,
    content_order,
    innermost,
    state_codes,
    thread_ids,
)

COLUMNS = (
    RANK,
    STEP,
    DEVICE,
    Column("state", pa.string(), "", "busy or idle"),
    Column("part", pa.string(), "", "of busy time its category, of idle time its cause"),
    Column("ns", pa.int64(), "ns", "time of the step's window that is this part's"),
)
SCHEMA = schema(COLUMNS)

LATENCY = "launch latency"
CALL = "launch call"
UNATTRIBUTED = "unattributed"
TAIL = "tail:"
OTHER = "other"

#: The order among activities that run at once: compute, collective, copy, memset.
_KIND_CLASS = {"memcpy": 2, "memset": 3}
_COLLECTIVE_CLASS = 1


@dataclass(frozen=True)
class Lane:
    """One device of one rank: its activities and who has each instant."""

    device: int
    start_ns: Ints  # of the activities, by (start, end, correlation id)
    end_ns: Ints
    launch: Ints  # row of the launch, −1 unknown
    busy: Segments  # owner: row of events


def ledger(events: pa.Table, windows: list[Window]) -> pa.Table:
    """The account of ``windows``: one row a part that has time in it, ``SCHEMA``."""
    gathered = GatheredLedger(windows)
    start_ns = min((w.start_ns for w in windows), default=0)
    end_ns = max((w.end_ns for w in windows), default=0)
    gathered.add_time(events, start_ns, end_ns)
    return gathered.table()


class GatheredLedger:
    """The account of ``windows``, gathered from batches of events.

    A batch has its part of every window that it overlaps; a part's times sum to the whole.
    """

    def __init__(self, windows: list[Window]) -> None:
        self.windows = windows
        self._start = np.array([w.start_ns for w in windows], dtype=np.int64)
        self._end = np.array([w.end_ns for w in windows], dtype=np.int64)
        self._ranks = list(dict.fromkeys(w.rank for w in windows))
        self._spent: dict[_Place, dict[tuple[str, str], int]] = {}
        self._categories: dict[str, None] = {}

    def add(self, batch: Batch) -> None:
        """Account for the time of ``batch``."""
        self.add_time(batch.events, batch.start_ns, batch.end_ns)

    def add_time(self, events: pa.Table, start_ns: int, end_ns: int) -> None:
        """Account for [start_ns, end_ns), of which ``events`` has all that bears on it."""
        overlap = np.flatnonzero((self._start < end_ns) & (self._end > start_ns)).tolist()
        pieces = [_Piece(n, self.windows[n], start_ns, end_ns) for n in overlap]
        hosts = _Hosts(events)
        self._categories |= dict.fromkeys(hosts.categories)
        for place, rank in enumerate(self._ranks):
            mine = [piece for piece in pieces if piece.window.rank == rank]
            if not mine:
                continue
            lanes = list(device_lanes(events, rank))
            for lane in lanes:
                for piece in mine:
                    parts = _device_parts(lane, piece, hosts)
                    self._count((place, lane.device, piece.number), parts)
            if not lanes:
                found = host.parts(events, rank, [piece.clipped for piece in mine])
                for piece, parts in zip(mine, found, strict=True):
                    self._count((place, None, piece.number), parts)

    def _count(self, place: _Place, parts: Iterable[tuple[str, str, int]]) -> None:
        spent = self._spent.setdefault(place, {})
        for state, part, ns in parts:
            spent[state, part] = spent.get((state, part), 0) + ns

    def table(self) -> pa.Table:
        """The account so far, ``SCHEMA``: by rank, device and step, busy before idle."""
        order = {label: place for place, label in enumerate(_labels([*self._categories]))}
        rows = []
        for place in sorted(self._spent, key=lambda p: (p[0], p[1] is not None, p[1] or 0, p[2])):
            window = self.windows[place[2]]
            parts = sorted(self._spent[place].items(), key=lambda part: order[part[0]])
            rows += [(window.rank, window.step, place[1], *label, ns) for label, ns in parts if ns]
        columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
        return pa.table(
            [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
        )


#: (place of the rank, device, number of the window)
_Place = tuple[int, int | None, int]


def _labels(categories: list[str]) -> list[tuple[str, str]]:
    """Every (state, part) in the order of the table."""
    waits = (*STATES, HOST, UNATTRIBUTED)
    tails = [TAIL + cause for cause in waits]
    idle = [*tails, UNATTRIBUTED, CALL, LATENCY, *STATES, HOST]
    return [("busy", c) for c in categories] + [("idle", cause) for cause in idle]


@dataclass(frozen=True)
class _Piece:
    """Window ``number`` of all, and the batch of which a part of it is accounted for."""

    number: int
    window: Window
    batch_start_ns: int
    batch_end_ns: int

    @property
    def clipped(self) -> Window:
        """The part of the window that lies in the batch."""
        start_ns = max(self.window.start_ns, self.batch_start_ns)
        end_ns = min(self.window.end_ns, self.batch_end_ns)
        return replace(self.window, start_ns=start_ns, end_ns=end_ns)


def device_lanes(events: pa.Table, rank: int | None) -> Iterator[Lane]:
    """The devices of ``rank`` that have activities, by number."""
    rows = of_rank(events, rank)
    rows = rows[is_kind(events, *ACTIVITY_KINDS)[rows]]
    device = ints(events, "device", UNKNOWN)
    for one in np.unique(device[rows]):
        if one != UNKNOWN:
            yield _lane(events, int(one), rows[device[rows] == one])


def _lane(events: pa.Table, device: int, rows: Ints) -> Lane:
    start = ints(events, "start_ns", 0)[rows]
    end = start + ints(events, "dur_ns", 0)[rows]
    correlation = ints(events, "correlation_id", np.iinfo(np.int64).max)[rows]
    tie = content_order(events, rows)
    first = np.lexsort((tie, end, correlation, start, _classes(events)[rows]))
    busy = foremost(start, end, first)
    runs = np.flatnonzero(end > start)
    order = runs[np.lexsort((tie[runs], correlation[runs], end[runs], start[runs]))]
    return Lane(
        device,
        start[order],
        end[order],
        launch_rows(events)[rows[order]],
        Segments(busy.start_ns, busy.end_ns, rows[busy.owner]),
    )


def _classes(events: pa.Table) -> Ints:
    categories, category_names = texts(events, "category")
    kinds, kind_names = texts(events, "kind")
    collective = np.array([c == "collective" for c in category_names] + [False])[categories]
    by_kind = np.array([_KIND_CLASS.get(k, 0) for k in kind_names] or [0])[kinds]
    return np.where((by_kind == 0) & collective, _COLLECTIVE_CLASS, by_kind)


def launch_rows(events: pa.Table) -> Ints:
    """For each row the row number of its launch, −1 where it has none."""
    event_id = ints(events, "event_id", -1)
    launch = ints(events, "launch_id", -1)
    order = np.argsort(event_id)
    if not len(order):
        return launch
    found = order[np.minimum(np.searchsorted(event_id[order], launch), len(order) - 1)]
    return np.where((launch >= 0) & (event_id[found] == launch), found, -1)


def _device_parts(lane: Lane, piece: _Piece, hosts: _Hosts) -> Iterable[tuple[str, str, int]]:
    """(state, part, ns) of one device in one piece of a window; a part may come twice."""
    clipped = piece.clipped
    inside = lane.busy.within(clipped.start_ns, clipped.end_ns)
    spent = time_per_code(hosts.category[inside.owner], len(hosts.categories), inside)
    yield from (("busy", c, ns) for c, ns in zip(hosts.categories, spent, strict=True) if ns)
    starts, ends = gaps(lane.busy, clipped.start_ns, clipped.end_ns)
    idle = _idle(lane, piece.window, hosts, starts, ends)
    yield from (("idle", part, ns) for part, ns in idle if ns)


def _idle(
    lane: Lane, window: Window, hosts: _Hosts, starts: Ints, ends: Ints
) -> Iterator[tuple[str, int]]:
    following = np.searchsorted(lane.start_ns, ends)
    begins = np.append(lane.start_ns, window.end_ns)[following]
    tail = begins >= window.end_ns
    for part, ns in hosts.spent(window.thread, starts[tail], ends[tail]):
        yield TAIL + part, ns
    starts, ends, following = starts[~tail], ends[~tail], following[~tail]
    launch = lane.launch[following]
    known = launch >= 0
    yield UNATTRIBUTED, int((ends - starts)[~known].sum())
    starts, ends, launch = starts[known], ends[known], launch[known]
    called = np.clip(hosts.start_ns[launch], starts, ends)
    returned = np.clip(hosts.end_ns[launch], starts, ends)
    yield CALL, int((returned - called).sum())
    yield LATENCY, int((ends - returned).sum())
    for thread in np.unique(hosts.thread[launch]):
        mine = hosts.thread[launch] == thread
        yield from hosts.spent(int(thread), starts[mine], called[mine])


class _Hosts:
    """The host threads of a profile; a thread's innermost segments are made when asked for."""

    def __init__(self, events: pa.Table) -> None:
        self.events = events
        self.thread = thread_ids(events)
        self.state = state_codes(events)
        self.start_ns = ints(events, "start_ns", 0)
        self.end_ns = self.start_ns + ints(events, "dur_ns", 0)
        codes, names = texts(events, "category")
        self.categories = [*names, OTHER]
        self.category = np.where(codes < 0, len(names), codes)
        self._segments: dict[int, Segments] = {}

    def spent(self, thread: int | None, starts: Ints, ends: Ints) -> Iterator[tuple[str, int]]:
        """(cause, ns) of the intervals [starts, ends) by the innermost event of ``thread``."""
        whole = int((ends - starts).sum())
        if thread is None or thread < 0:
            yield UNATTRIBUTED, whole
            return
        if thread not in self._segments:
            self._segments[thread] = innermost(self.events, np.flatnonzero(self.thread == thread))
        if not len(starts):
            return
        segments = self._segments[thread].within(int(starts.min()), int(ends.max()))
        spent = time_per_label(segments, self.state[segments.owner], len(STATES), starts, ends)
        yield from zip(STATES, spent.sum(axis=0).tolist(), strict=True)
        yield HOST, whole - int(spent.sum())
