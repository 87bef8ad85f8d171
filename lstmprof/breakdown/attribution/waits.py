"""Find the idle times of each device, and which host events may show the causes.

The search covers the whole profile, because a device may become idle before a step begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lstmprof.events.annotate.steps import Window
from lstmprof.events.event_types import event_types
from lstmprof.events.groups import Groups
from lstmprof.events.intervals import Covered, Flags, Ints, Segments, foremost, places_among
from lstmprof.events.narrow import Packed
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import NONE, UNKNOWN, EventTable
from lstmprof.events.threads import content_order
from lstmprof.runs.invariants import MOST_NS

#: Kind of activity → priority if several run at once (lowest first; compute: 0).
_KIND_CLASS = {"memcpy": 2, "memset": 3}
_COLLECTIVE_CLASS = 1


@dataclass(frozen=True)
class DeviceActivity:
    """A device's activities, sorted by start."""

    number: int
    start_ns: Ints
    end_ns: Ints
    row: Ints
    launch: Ints  # row of the launch; ``NONE`` if unknown
    returned_ns: Ints  # end of the launch call, if the launch is known
    busy: Segments  # ``owner`` is the row of the activity


def device_activities(events: EventTable, rank: int | None) -> Iterator[DeviceActivity]:
    rows = events.rows_of_rank(rank)
    rows = rows[events.is_kind(*ACTIVITY_KINDS)[rows]]
    device = events.ints("device", UNKNOWN)
    for number in np.unique(device[rows]).tolist():
        if number != UNKNOWN:
            yield _device_activity(events, number, rows[device[rows] == number])


def _device_activity(events: EventTable, device: int, rows: Ints) -> DeviceActivity:
    ends = events.end_ns
    start, end = events.start_ns[rows], ends[rows]
    correlation = events.ints("correlation_id", np.iinfo(np.int64).max)[rows]
    tie = content_order(events, rows)
    first = np.lexsort(
        (tie, end, correlation, start, events.once(_classes, "kind", "category")[rows])
    )
    busy = foremost(start, end, first)
    runs = np.flatnonzero(end > start)
    order = runs[np.lexsort((tie[runs], correlation[runs], end[runs], start[runs]))]
    row = rows[order]
    launch = events.rows_named("launch_id")[row]
    owned = Segments(busy.start_ns, busy.end_ns, rows[busy.owner])
    return DeviceActivity(device, start[order], end[order], row, launch, ends[launch], owned)


def _classes(events: EventTable) -> Ints:
    collective = events.is_one_of("category", "collective")
    by_kind = events.mapped("kind", lambda kind: _KIND_CLASS.get(kind, 0), 0)
    return np.where((by_kind == 0) & collective, _COLLECTIVE_CLASS, by_kind)


#: Longest launch latency: this multiple of the median, but at least this many ns (docs/ledger.md).
LATENCIES, LEAST_LATENCY_NS = 10, 100_000
#: Largest share of events to select. For a larger share, reading all is faster.
MOST_EXPLAINING = 0.7
_NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Waits:
    """When a device was idle in a profile, and the longest wait that counts as latency."""

    since_ns: Ints  # when the device became idle, for each time that it was idle
    until_ns: Ints  # when the next activity began
    host_until_ns: Ints  # until when a host thread may show the reason; ``since_ns`` if queued
    latency_ns: int
    ends_ns: int  # end of the device's last activity

    def since(self, until_ns: Ints) -> Ints:
        """Return the starts of the idle times that ended at ``until_ns``."""
        return self.since_ns[np.searchsorted(self.until_ns, until_ns)]


#: Rank → device number → its idle times.
AllWaits = Mapping[int | None, Mapping[int, Waits]]


def waits_of(device: DeviceActivity) -> Waits:
    gaps = _Gaps()
    gaps.add(device)
    return gaps.waits()


class _Gaps:
    """Collects a device's idle times from batches of activities, sorted by start."""

    def __init__(self) -> None:
        self._reached = _NEVER
        self._parts: list[tuple[Ints, Ints, Ints]] = []
        self._latencies_ns: list[Ints] = []

    def add(self, device: DeviceActivity) -> None:
        reached = np.maximum.accumulate(np.append(self._reached, device.end_ns))
        self._reached = int(reached[-1])
        after_gap = np.flatnonzero(device.start_ns > reached[:-1])
        # mark gaps before one activity: if several start at once, the awaited activity is unknown
        alone = np.append(device.start_ns[1:] > device.start_ns[:-1], True)[after_gap]
        columns = (reached, device.start_ns, device.launch, device.returned_ns)
        since, until, launch, returned = (column[after_gap] for column in columns)
        known = launch != NONE
        queued = known & alone & (returned <= since)
        self._parts.append((since, until, np.where(queued, since, until)))
        # omit the gap before the first recorded activity, because earlier work is unknown
        waited = known & (returned > since) & (since > _NEVER)
        self._latencies_ns.append((until - returned)[waited])

    def waits(self) -> Waits:
        since, until, host_until = (np.concatenate(side) for side in zip(*self._parts, strict=True))
        latencies = np.sort(np.concatenate(self._latencies_ns))
        median = int(latencies[(len(latencies) - 1) // 2]) if len(latencies) else 0
        latency_ns = min(max(LATENCIES * median, LEAST_LATENCY_NS), MOST_NS)
        return Waits(since, until, host_until, latency_ns, self._reached)


def all_waits(packed: Packed, ranks: Sequence[int | None]) -> dict[int | None, dict[int, Waits]]:
    """Find the idle times of each device of ``ranks`` in events sorted by start."""
    gaps: dict[tuple[int, int], _Gaps] = {}
    # delay each device's last activities: the next piece may begin with an equal start_ns
    late: dict[tuple[int, int], Ints] = {}
    start_ns = packed.values("start_ns")
    for piece in packed.pieces():
        for key, rows in _activities(packed, piece):
            mine = np.concatenate([late.get(key, rows[:0]), rows])
            last = int(np.searchsorted(start_ns[mine], start_ns[mine[-1]]))
            late[key] = mine[last:]
            gaps.setdefault(key, _Gaps()).add(_packed_activity(packed, key[1], mine[:last]))
    for key, rows in late.items():
        gaps[key].add(_packed_activity(packed, key[1], rows))
    number_of = {UNKNOWN if rank is None else rank: rank for rank in ranks}
    by_rank: dict[int | None, dict[int, Waits]] = {rank: {} for rank in ranks}
    for rank, device in sorted(gaps):
        if rank in number_of:
            by_rank[number_of[rank]][device] = gaps[rank, device].waits()
    return by_rank


def _activities(packed: Packed, piece: slice) -> Iterator[tuple[tuple[int, int], Ints]]:
    """Yield the rows of activities with a duration, by (rank, device)."""
    kinds = [kind in ACTIVITY_KINDS for kind in packed.texts("kind")]
    chosen = np.array([*kinds, False])[packed.codes("kind", piece)]
    chosen &= (packed.values("dur_ns", piece) > 0) & packed.has_value("device", piece)
    rows = np.flatnonzero(chosen)
    rank, device = (packed.ints(name, piece)[rows] for name in ("rank", "device"))
    group = Groups(rank, device)
    for first, members in zip(group.first.tolist(), group.members(), strict=True):
        yield (int(rank[first]), int(device[first])), piece.start + rows[members]


def _packed_activity(packed: Packed, device: int, rows: Ints) -> DeviceActivity:
    """Return a device's activities, with only the fields that ``_Gaps`` reads."""
    start_ns, dur_ns = packed.values("start_ns"), packed.values("dur_ns")
    rows = rows[_exact_order(packed, rows)]
    start = start_ns[rows].astype(np.int64)
    launch = packed.values("launch_id")[rows]
    returned = start_ns[launch].astype(np.int64) + dur_ns[launch]
    no_segments = Segments(start[:0], start[:0], start[:0])
    return DeviceActivity(device, start, start + dur_ns[rows], rows, launch, returned, no_segments)


def may_explain_waits(packed: Packed, windows: Sequence[Window], waits: AllWaits) -> Flags | None:
    """Mark the events that may show what a device waited for, or return None for all."""
    of = event_types(packed)
    active = [kind in ACTIVITY_KINDS for kind in of.kind]
    devices = {*of.device[active].tolist()} - {UNKNOWN}
    if len(waits) != 1 or len(of.ranks) > 1 or not devices:
        return None
    (device_waits,) = waits.values()
    if devices != device_waits.keys():
        return None  # a device has no activity with a duration
    begins, ends = _explaining_intervals(windows, device_waits.values())
    rows = [kind in (*ACTIVITY_KINDS, "step", "range") for kind in packed.texts("kind")]
    always = np.array([*rows, False])
    explaining = np.empty(len(packed), dtype=np.bool_)
    for piece in packed.pieces():
        start = packed.values("start_ns", piece).astype(np.int64)
        place = places_among(ends, start)
        # mark events that run in a time in which host events may explain waits
        explaining[piece] = begins[place] < start + packed.values("dur_ns", piece)
        explaining[piece] |= always[packed.codes("kind", piece)]
    return explaining if explaining.mean() < MOST_EXPLAINING else None


def _explaining_intervals(windows: Sequence[Window], waits: Iterable[Waits]) -> tuple[Ints, Ints]:
    """Return the starts and ends of the times in which host events may explain waits."""
    always = np.iinfo(np.int64).max
    closed = np.sort(np.array([window.end_ns for window in windows], dtype=np.int64))
    parts = []
    for of in waits:
        # use host events of the whole wait if a step ends during the wait
        has_end = np.searchsorted(closed, of.since_ns, "right") < np.searchsorted(
            closed, of.until_ns, "right"
        )
        until = np.where(has_end, of.until_ns, of.host_until_ns)
        some = until > of.since_ns
        parts.append((np.append(of.since_ns[some], of.ends_ns), np.append(until[some], always)))
    begins, ends = (np.concatenate(side) for side in zip(*parts, strict=True))
    if len(parts) > 1:
        begins, ends = Covered(begins, ends).bounds
    return np.append(begins, always), np.append(ends, always)


def _exact_order(packed: Packed, rows: Ints) -> Ints:
    """Return indices that sort rows of equal start by end and correlation id."""
    start = packed.values("start_ns")[rows]
    alike = start[1:] == start[:-1]
    tied = np.flatnonzero(np.append(alike, False) | np.append(False, alike)[: len(rows)])
    tied_events = packed.table(("correlation_id",), rows[tied])
    unknown_last = tied_events.ints("correlation_id", np.iinfo(np.int64).max)
    keys = (unknown_last, packed.values("dur_ns")[rows[tied]], start[tied])
    order = np.arange(len(rows))
    order[tied] = tied[np.lexsort(keys)]
    return order
