"""Who has each nanosecond: which event, of what state and part, from when to when; stated once.

Reads linked and categorised events. The ledger sums the stretches by part, diagnosis by event, the
timeline draws them by time. With device activities in a rank the lanes are its devices, else its
host threads, merged into one. The definition, part by part: docs/ledger.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lstmprof.breakdown import host
from lstmprof.events.annotate.steps import Window
from lstmprof.events.groups import Groups
from lstmprof.events.intervals import (
    Covered,
    Flags,
    Ints,
    Segments,
    filled,
    foremost,
    overlaps,
    places_among,
)
from lstmprof.events.narrow import Packed
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import NONE, UNKNOWN, EventTable
from lstmprof.events.threads import HOST, STATES, content_order, innermost, state_codes, thread_ids

CALL, LATENCY, QUEUED = "launch call", "launch latency", "queued"
UNATTRIBUTED, OTHER = "unattributed", "other"
TAIL = "tail:"
#: A launch reaches an idle device within so many times the median of the profile, and this time at
#: least; what is later the host could not have helped (docs/ledger.md).
LATENCIES, LEAST_LATENCY_NS = 10, 100_000
#: Where more of the events than this may tell of a wait, looking for the others does not pay.
MOST_ASKED = 0.7
_NEVER = np.iinfo(np.int64).min

#: What a thread does; first its states, by their codes. The last where no thread is known.
_OF_THREAD = (*STATES, HOST, UNATTRIBUTED)
#: What a device waits for, and the same at the end of a window.
_CAUSES = (*_OF_THREAD, CALL, LATENCY, QUEUED, *(TAIL + cause for cause in _OF_THREAD))
_FIRST_TAIL = _CAUSES.index(TAIL + _OF_THREAD[0])

#: The order among activities that run at once: compute, collective, copy, memset.
_KIND_CLASS = {"memcpy": 2, "memset": 3}
_COLLECTIVE_CLASS = 1

#: (state, part) of the ledger
Label = tuple[str, str]


@dataclass(frozen=True)
class Stretches:
    """Stretches of time of one lane, one entry each: they fill their windows and do not overlap.

    ``window`` is a place in the list of windows, ``row`` a row of events or ``NONE``, ``label`` a
    place in ``labels``.
    """

    labels: tuple[Label, ...]
    window: Ints
    row: Ints
    label: Ints
    start_ns: Ints
    end_ns: Ints

    def cut_at(self, borders_ns: Ints) -> Stretches:
        """The same, none over one of ``borders_ns``."""
        borders_ns = np.unique(borders_ns)
        first = np.searchsorted(borders_ns, self.start_ns, side="right")
        inside = np.searchsorted(borders_ns, self.end_ns, side="left") - first
        old = np.repeat(np.arange(len(inside)), inside + 1)
        place = np.arange(len(old)) - np.repeat(np.cumsum(inside + 1) - inside - 1, inside + 1)
        border = np.append(borders_ns, 0)[np.minimum(first[old] + place, len(borders_ns))]
        previous = np.append(0, border[:-1])[: len(old)]
        start = np.where(place == 0, self.start_ns[old], previous)
        end = np.where(place == inside[old], self.end_ns[old], border)
        return Stretches(self.labels, self.window[old], self.row[old], self.label[old], start, end)

    def by_time(self) -> Stretches:
        """The same, each window's in the order of time."""
        order = np.lexsort((self.start_ns, self.window))
        columns = (self.window, self.row, self.label, self.start_ns, self.end_ns)
        return Stretches(self.labels, *(column[order] for column in columns))


@dataclass(frozen=True)
class Waits:
    """When a device was idle before an activity, and for how long at most a launch reaches it.

    They are of the whole profile, whatever part of it is looked at.
    """

    since_ns: Ints  # when the device had fallen idle
    until_ns: Ints  # when the activity began
    called_ns: Ints  # when its launch was called, ``until_ns`` where nobody knows
    latency_ns: int
    ends_ns: int  # when the device had done its last activity

    def since(self, until_ns: Ints) -> Ints:
        """When the device had fallen idle that began to work at each instant."""
        return self.since_ns[np.searchsorted(self.until_ns, until_ns)]


def attributed(
    events: EventTable,
    windows: Sequence[Window],
    rank: int | None,
    waits: Mapping[int, Waits] | None = None,
    within: tuple[int, int] | None = None,
) -> dict[int | None, Stretches]:
    """Device → every nanosecond of ``windows``, all of ``rank``; None → those of the host.

    ``within`` are start and end of what ``events`` tell all about, if that is not all time; then
    ``waits`` are those of each device in the whole profile.
    """
    return Attribution(events).of(windows, rank, waits, within)


class Attribution:
    """``attributed`` of ``events``, asked rank by rank: what all ranks share is worked out once."""

    def __init__(self, events: EventTable) -> None:
        self._events = events
        self._hosts: dict[tuple[str, ...], _Hosts] = {}

    def of(
        self,
        windows: Sequence[Window],
        rank: int | None,
        waits: Mapping[int, Waits] | None = None,
        within: tuple[int, int] | None = None,
    ) -> dict[int | None, Stretches]:
        """What ``attributed`` says of ``windows``, all of ``rank``."""
        at = _Instants(windows, within)
        ranges = tuple(windows[0].framework_ranges) if windows else ()
        if ranges not in self._hosts:
            self._hosts[ranges] = _Hosts(self._events, ranges)
        hosts = self._hosts[ranges]
        lanes = list(device_lanes(self._events, rank))
        if not lanes:
            return {None: _of_host(hosts, at, rank)}
        return {
            lane.device: _of_device(
                hosts, at, lane, (waits or {}).get(lane.device) or waits_of(lane)
            )
            for lane in lanes
        }


class _Instants:
    """The windows, as far as they are looked at; arrays have an entry a window."""

    def __init__(self, windows: Sequence[Window], within: tuple[int, int] | None) -> None:
        self.start_ns, self.ends_ns, self.thread = (
            np.array(column, dtype=np.int64)
            for column in (
                [w.start_ns for w in windows],
                [w.end_ns for w in windows],
                [NONE if w.thread is None else w.thread for w in windows],
            )
        )
        self.end_ns = self.ends_ns
        if within is not None:
            self.start_ns = np.maximum(self.start_ns, within[0])
            self.end_ns = np.minimum(self.ends_ns, within[1])


class _Hosts:
    """The host threads of a profile; a thread's innermost segments are made when asked for."""

    def __init__(self, events: EventTable, framework_ranges: Sequence[str]) -> None:
        self.events = events
        self.thread = thread_ids(events)
        self.state = state_codes(events, framework_ranges)
        self.start_ns, self.end_ns = events.start_ns, events.end_ns
        codes, names = events.texts("category")
        self.categories = (*names, OTHER)
        self.category = np.where(codes < 0, len(names), codes)
        self._segments: dict[int, Segments] = {}

    @cached_property
    def labels(self) -> tuple[Label, ...]:
        """What a stretch can be: a category, then the causes of idle time."""
        return (*(("busy", c) for c in self.categories), *(("idle", c) for c in _CAUSES))

    @cached_property
    def computes(self) -> Flags:
        """A boolean a row: an op that computes on the host."""
        return host.computing(self.events)

    @cached_property
    def _rows_of_threads(self) -> dict[int, Ints]:
        """The rows of each thread that has some."""
        group = Groups(self.thread)
        threads = self.thread[group.first].tolist()
        return dict(zip(threads, group.members(), strict=True))

    def idle(self, cause: str) -> int:
        """The place of a cause in ``labels``."""
        return len(self.categories) + _CAUSES.index(cause)

    def segments(self, thread: int) -> Segments:
        """What ``thread`` was doing at every instant."""
        if thread not in self._segments:
            rows = self._rows_of_threads.get(thread, np.empty(0, dtype=np.int64))
            self._segments[thread] = filled(innermost(self.events, rows))
        return self._segments[thread]

    def state_labels(self, row: Ints) -> Ints:
        """The label of time in which each ``row``, or no event, is innermost on a thread."""
        if not len(self.state):
            return np.full(len(row), self.idle(HOST), dtype=np.int64)
        at_work = row != NONE
        return self.idle(STATES[0]) + np.where(at_work, self.state[row], len(STATES))


def _of_host(hosts: _Hosts, at: _Instants, rank: int | None) -> Stretches:
    computes = hosts.computes
    merged = filled(host.merged_lanes(hosts.events, rank, computes, hosts.state))
    merged = host.with_whole_copies(hosts.events, merged, computes)
    shared = overlaps(merged, at.start_ns, at.end_ns)
    row = merged.owner[shared.segment]
    label = hosts.state_labels(row)
    if len(computes):
        label = np.where((row != NONE) & computes[row], hosts.category[row], label)
    return Stretches(hosts.labels, shared.interval, row, label, shared.start_ns, shared.end_ns)


#: window, row, label, start, end of some stretches
_Columns = tuple[Ints, Ints, Ints, Ints, Ints]


def _of_device(hosts: _Hosts, at: _Instants, lane: Lane, waits: Waits) -> Stretches:
    busy = overlaps(lane.busy, at.start_ns, at.end_ns)
    row = lane.busy.owner[busy.segment]
    parts = [(busy.interval, row, hosts.category[row], busy.start_ns, busy.end_ns)]
    parts += _idle(hosts, at, lane, waits)
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    some = columns[4] > columns[3]
    return Stretches(hosts.labels, *(column[some] for column in columns))


def _idle(hosts: _Hosts, at: _Instants, lane: Lane, waits: Waits) -> Iterator[_Columns]:
    """The gaps of ``lane``, each divided by the launch of the activity that ends it."""
    everything = filled(lane.busy)
    free = np.flatnonzero(everything.owner == NONE)
    idle = Segments(everything.start_ns[free], everything.end_ns[free], everything.owner[free])
    gaps = overlaps(idle, at.start_ns, at.end_ns)
    window, start, end = gaps.interval, gaps.start_ns, gaps.end_ns
    until = idle.end_ns[gaps.segment]  # when an activity begins, if one does
    tail = until >= at.ends_ns[window]
    following = np.searchsorted(lane.start_ns, until)
    launch = np.where(tail, NONE, np.append(lane.launch, NONE)[following])
    linked = np.flatnonzero(launch != NONE)
    issued = launch[linked]
    called, returned = hosts.start_ns[issued], hosts.end_ns[issued]
    queued = returned <= waits.since(until[linked])
    borders = [
        np.where(queued, start[linked], np.clip(instant, start[linked], end[linked]))
        for instant in (called, returned, returned + waits.latency_ns)
    ]
    thread = np.where(tail, at.thread[window], NONE)
    thread[linked] = hosts.thread[issued]
    begins = end.copy()
    begins[linked] = borders[0]
    yield from _of_threads(hosts, window, thread, tail, start, begins)
    borders.append(end[linked])
    holders = (issued, issued, lane.row[following[linked]])
    for place, cause in enumerate((CALL, LATENCY, QUEUED)):
        label = np.full(len(linked), hosts.idle(cause), dtype=np.int64)
        yield window[linked], holders[place], label, borders[place], borders[place + 1]


def _of_threads(
    hosts: _Hosts, window: Ints, thread: Ints, tail: Flags, start: Ints, end: Ints
) -> Iterator[_Columns]:
    """What each ``thread`` did in the intervals [start, end); ``tail``: at the end of a window."""
    first = hosts.idle(_OF_THREAD[0]) + np.where(tail, _FIRST_TAIL, 0)
    unknown = thread == NONE
    nobody = np.full(int(unknown.sum()), NONE, dtype=np.int64)
    label = first[unknown] + _OF_THREAD.index(UNATTRIBUTED)
    yield window[unknown], nobody, label, start[unknown], end[unknown]
    for number in np.unique(thread[~unknown]).tolist():
        places = np.flatnonzero(thread == number)
        segments = hosts.segments(number)
        shared = overlaps(segments, start[places], end[places])
        row, interval = segments.owner[shared.segment], places[shared.interval]
        label = hosts.state_labels(row) + np.where(tail[interval], _FIRST_TAIL, 0)
        yield window[interval], row, label, shared.start_ns, shared.end_ns


@dataclass(frozen=True)
class Lane:
    """One device of one rank: its activities and who has each instant."""

    device: int
    start_ns: Ints  # of the activities that take time, by (start, end, correlation id)
    end_ns: Ints
    row: Ints
    launch: Ints  # row of the launch, ``NONE`` unknown
    called_ns: Ints  # when that was called, where it is known
    returned_ns: Ints  # when it returned
    busy: Segments  # owner: row of events


def device_lanes(events: EventTable, rank: int | None) -> Iterator[Lane]:
    """The devices of ``rank`` that have activities, by number."""
    rows = events.of_rank(rank)
    rows = rows[events.is_kind(*ACTIVITY_KINDS)[rows]]
    device = events.ints("device", UNKNOWN)
    for number in np.unique(device[rows]).tolist():
        if number != UNKNOWN:
            yield _lane(events, number, rows[device[rows] == number])


def _lane(events: EventTable, device: int, rows: Ints) -> Lane:
    starts, ends = events.start_ns, events.end_ns
    start, end = starts[rows], ends[rows]
    correlation = events.ints("correlation_id", np.iinfo(np.int64).max)[rows]
    tie = content_order(events, rows)
    first = np.lexsort((tie, end, correlation, start, _class_of(events)[rows]))
    busy = foremost(start, end, first)
    runs = np.flatnonzero(end > start)
    order = runs[np.lexsort((tie[runs], correlation[runs], end[runs], start[runs]))]
    row = rows[order]
    launch = events.rows_named("launch_id")[row]
    owned = Segments(busy.start_ns, busy.end_ns, rows[busy.owner])
    return Lane(device, start[order], end[order], row, launch, starts[launch], ends[launch], owned)


def _class_of(events: EventTable) -> Ints:
    return events.once(_classes, "kind", "category")


def _classes(events: EventTable) -> Ints:
    collective = events.is_one_of("category", "collective")
    by_kind = events.mapped("kind", lambda kind: _KIND_CLASS.get(kind, 0), 0)
    return np.where((by_kind == 0) & collective, _COLLECTIVE_CLASS, by_kind)


def waits_of(lane: Lane) -> Waits:
    """The waits of a device whose ``lane`` is of the whole profile."""
    gaps = _Gaps()
    gaps.add(lane)
    return gaps.waits()


class _Gaps:
    """When a device was idle before an activity, gathered from its lane, part by part in time."""

    def __init__(self) -> None:
        self._reached = _NEVER
        self._parts: list[tuple[Ints, Ints, Ints]] = []
        self._latencies_ns: list[Ints] = []

    def add(self, lane: Lane) -> None:
        """Take in the next part of the lane."""
        reached = np.maximum.accumulate(np.append(self._reached, lane.end_ns))
        self._reached = int(reached[-1])
        after_gap = np.flatnonzero(lane.start_ns > reached[:-1])
        # of some that begin together nobody knows which one the gap waits for
        alone = np.append(lane.start_ns[1:] > lane.start_ns[:-1], True)[after_gap]
        columns = (reached, lane.start_ns, lane.launch, lane.called_ns, lane.returned_ns)
        since, until, launch, called, returned = (column[after_gap] for column in columns)
        known = launch != NONE
        self._parts.append((since, until, np.where(known & alone, called, until)))
        # before its first activity a device has not fallen idle: what it did then is not recorded
        waited = known & (returned > since) & (since > _NEVER)
        self._latencies_ns.append((until - returned)[waited])

    def waits(self) -> Waits:
        """Those of all parts."""
        since, until, called = (np.concatenate(side) for side in zip(*self._parts, strict=True))
        latencies = np.sort(np.concatenate(self._latencies_ns))
        median = int(latencies[(len(latencies) - 1) // 2]) if len(latencies) else 0
        latency_ns = max(LATENCIES * median, LEAST_LATENCY_NS)
        return Waits(since, until, called, latency_ns, self._reached)


def all_waits(packed: Packed, ranks: Sequence[int | None]) -> dict[int | None, dict[int, Waits]]:
    """Those of each device of ``ranks``, of a whole profile, sorted and numbered by start."""
    gaps: dict[tuple[int, int], _Gaps] = {}
    late: dict[tuple[int, int], Ints] = {}  # what began last waits for what begins with it
    start_ns = packed.values("start_ns")
    for piece in packed.pieces():
        for lane, rows in _activities(packed, piece):
            mine = np.concatenate([late.get(lane, rows[:0]), rows])
            last = int(np.searchsorted(start_ns[mine], start_ns[mine[-1]]))
            late[lane] = mine[last:]
            gaps.setdefault(lane, _Gaps()).add(_packed_lane(packed, lane[1], mine[:last]))
    for lane, rows in late.items():
        gaps[lane].add(_packed_lane(packed, lane[1], rows))
    number_of = {UNKNOWN if rank is None else rank: rank for rank in ranks}
    of_ranks: dict[int | None, dict[int, Waits]] = {rank: {} for rank in ranks}
    for rank, device in sorted(gaps):
        if rank in number_of:
            of_ranks[number_of[rank]][device] = gaps[rank, device].waits()
    return of_ranks


def _activities(packed: Packed, piece: slice) -> Iterator[tuple[tuple[int, int], Ints]]:
    """(rank, ``UNKNOWN`` for null, and device), rows of those that take time there."""
    kinds = [kind in ACTIVITY_KINDS for kind in packed.texts("kind")]
    chosen = np.array([*kinds, False])[packed.codes("kind", piece)]
    chosen &= (packed.values("dur_ns", piece) > 0) & packed.known("device", piece)
    rows = np.flatnonzero(chosen)
    rank, device = (packed.ints(name, piece)[rows] for name in ("rank", "device"))
    group = Groups(rank, device)
    for first, members in zip(group.first.tolist(), group.members(), strict=True):
        yield (int(rank[first]), int(device[first])), piece.start + rows[members]


def _packed_lane(packed: Packed, device: int, rows: Ints) -> Lane:
    """What ``waits_of`` asks of a lane."""
    start_ns, dur_ns = packed.values("start_ns"), packed.values("dur_ns")
    rows = rows[_few_swapped(packed, rows)]
    start = start_ns[rows].astype(np.int64)
    launch = packed.values("launch_id")[rows]
    called = start_ns[launch].astype(np.int64)
    nobody = Segments(start[:0], start[:0], start[:0])
    return Lane(
        device, start, start + dur_ns[rows], rows, launch, called, called + dur_ns[launch], nobody
    )


def asked_about(
    packed: Packed, windows: Sequence[Window], waits: Mapping[int, Waits]
) -> Flags | None:
    """A boolean a row: it may tell of what a device waited for; None where nearly all may.

    Of host threads a device asks only while it is idle and until the launch is called that it
    waits for. ``waits`` are those of all devices, ``windows`` those of the only rank; ``packed``
    is sorted by start.
    """
    begins, ends = _asked_intervals(windows, waits.values())
    rows = [kind in (*ACTIVITY_KINDS, "step", "range") for kind in packed.texts("kind")]
    always = np.array([*rows, False])
    asked = np.empty(len(packed), dtype=np.bool_)
    for piece in packed.pieces():
        start = packed.values("start_ns", piece).astype(np.int64)
        place = places_among(ends, start)
        asked[piece] = begins[place] < start + packed.values("dur_ns", piece)
        asked[piece] |= always[packed.codes("kind", piece)]
    return asked if asked.mean() < MOST_ASKED else None


def _asked_intervals(windows: Sequence[Window], waits: Iterable[Waits]) -> tuple[Ints, Ints]:
    """Begins and ends of the time in which devices ask for host threads, and one after all time."""
    always = np.iinfo(np.int64).max
    closed = np.sort(np.array([window.end_ns for window in windows], dtype=np.int64))
    parts = []
    for of in waits:
        # to a window's end the thread of the window is asked about
        has_end = np.searchsorted(closed, of.since_ns, "right") < np.searchsorted(
            closed, of.until_ns, "right"
        )
        until = np.where(has_end, of.until_ns, np.minimum(of.called_ns, of.until_ns))
        some = until > of.since_ns
        parts.append((np.append(of.since_ns[some], of.ends_ns), np.append(until[some], always)))
    begins, ends = (np.concatenate(side) for side in zip(*parts, strict=True))
    if len(parts) > 1:
        begins, ends = Covered(begins, ends).bounds
    return np.append(begins, always), np.append(ends, always)


def _few_swapped(packed: Packed, rows: Ints) -> Ints:
    """The order of ``rows`` by (start, end, correlation id), of those that are sorted by start."""
    start = packed.values("start_ns")[rows]
    alike = start[1:] == start[:-1]
    tied = np.flatnonzero(np.append(alike, False) | np.append(False, alike)[: len(rows)])
    of_tied = packed.table(("correlation_id",), rows[tied])
    unknown_last = of_tied.ints("correlation_id", np.iinfo(np.int64).max)
    keys = (unknown_last, packed.values("dur_ns")[rows[tied]], start[tied])
    order = np.arange(len(rows))
    order[tied] = tied[np.lexsort(keys)]
    return order
