"""Attribute each nanosecond of a step to an event, or to the cause of a wait.

::

    0 to 90 ns ("busy", "gemm")    90 to 100 ns ("idle", "launch latency")

Each device has separate intervals. A run without device activities has one list of intervals for
all host threads. docs/ledger.md defines the states and parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lstmprof.breakdown.attribution import host
from lstmprof.breakdown.attribution.waits import DeviceActivity, Waits, device_activities, waits_of
from lstmprof.events.annotate.calls import MIGRATION
from lstmprof.events.annotate.steps import Window
from lstmprof.events.groups import Groups
from lstmprof.events.intervals import (
    Flags,
    Ints,
    Segments,
    filled,
    overlaps,
)
from lstmprof.events.table import NONE, EventTable
from lstmprof.events.threads import HOST, STATES, innermost, state_codes, thread_ids

CALL, LATENCY, QUEUED = "launch call", "launch latency", "queued"
UNATTRIBUTED, OTHER = "unattributed", "other"
TAIL = "tail:"
#: Causes of idle time: a host thread's state, no event on the thread (``host``), unknown thread.
_THREAD_CAUSES = (*STATES, HOST, UNATTRIBUTED)
#: All causes of a device's idle time; ``tail:`` marks idle time after a step's last activity.
_CAUSES = (*_THREAD_CAUSES, CALL, LATENCY, QUEUED, *(TAIL + cause for cause in _THREAD_CAUSES))
_FIRST_TAIL = _CAUSES.index(TAIL + _THREAD_CAUSES[0])

#: State and part: ("busy", category of work) or ("idle", cause of the idle time).
Label = tuple[str, str]
#: Labels of time in which no op runs on any host thread.
BETWEEN_OPS: tuple[Label, ...] = (("idle", "python"), ("idle", HOST))


@dataclass(frozen=True)
class Intervals:
    """The activity of one device, or of the host, in each time interval of the steps."""

    labels: tuple[Label, ...]
    window: Ints  # index of the interval's step
    row: Ints  # row of the event that ran; ``NONE`` if no event ran
    label: Ints  # index in ``labels``
    start_ns: Ints
    end_ns: Ints

    def cut_at(self, borders_ns: Ints) -> Intervals:
        """Split the time intervals at each of the times ``borders_ns``."""
        borders_ns = np.unique(borders_ns)
        first = np.searchsorted(borders_ns, self.start_ns, side="right")
        inside = np.searchsorted(borders_ns, self.end_ns, side="left") - first
        old = np.repeat(np.arange(len(inside)), inside + 1)
        place = np.arange(len(old)) - np.repeat(np.cumsum(inside + 1) - inside - 1, inside + 1)
        border = np.append(borders_ns, 0)[np.minimum(first[old] + place, len(borders_ns))]
        previous = np.append(0, border[:-1])[: len(old)]
        start = np.where(place == 0, self.start_ns[old], previous)
        end = np.where(place == inside[old], self.end_ns[old], border)
        return Intervals(self.labels, self.window[old], self.row[old], self.label[old], start, end)

    def by_time(self) -> Intervals:
        order = np.lexsort((self.start_ns, self.window))
        columns = (self.window, self.row, self.label, self.start_ns, self.end_ns)
        return Intervals(self.labels, *(column[order] for column in columns))


def attributed(
    events: EventTable, windows: Sequence[Window], rank: int | None
) -> dict[int | None, Intervals]:
    """Return each device's time intervals, or the host's (key None) without devices."""
    return Attribution(events).intervals(windows, rank)


class Attribution:
    """Finds what hosts and devices did at each time, for one rank after another."""

    def __init__(self, events: EventTable) -> None:
        self._events = events
        self._hosts: dict[tuple[str, ...], _Hosts] = {}

    def intervals(
        self,
        windows: Sequence[Window],
        rank: int | None,
        waits: Mapping[int, Waits] | None = None,  # idle times in the whole profile
        within: tuple[int, int] | None = None,  # the section of the profile that is loaded
    ) -> dict[int | None, Intervals]:
        """Return each device's time intervals, or the host's (key None) without devices."""
        steps = _StepBounds(windows, within)
        ranges = tuple(windows[0].framework_ranges) if windows else ()
        if ranges not in self._hosts:
            self._hosts[ranges] = _Hosts(self._events, ranges)
        hosts = self._hosts[ranges]
        devices = list(device_activities(self._events, rank))
        if not devices:
            return {None: _host_intervals(hosts, steps, rank)}
        return {
            device.number: _device_intervals(
                hosts, steps, device, (waits or {}).get(device.number) or waits_of(device)
            )
            for device in devices
        }


class _StepBounds:
    """The start, end and thread of each step."""

    def __init__(self, windows: Sequence[Window], within: tuple[int, int] | None) -> None:
        self.start_ns, self.ends_ns, self.thread = (
            np.array(column, dtype=np.int64)
            for column in (
                [w.start_ns for w in windows],
                [w.end_ns for w in windows],
                [NONE if w.thread is None else w.thread for w in windows],
            )
        )
        self.end_ns = self.ends_ns  # ``ends_ns`` is never cut
        if within is not None:
            self.start_ns = np.maximum(self.start_ns, within[0])
            self.end_ns = np.minimum(self.ends_ns, within[1])


class _Hosts:
    """The host threads of a profile, and the innermost event of each thread at each time."""

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
        return (*(("busy", c) for c in self.categories), *(("idle", c) for c in _CAUSES))

    @cached_property
    def computes(self) -> Flags:
        return host.computing(self.events)

    @cached_property
    def _rows_of_threads(self) -> dict[int, Ints]:
        group = Groups(self.thread)
        threads = self.thread[group.first].tolist()
        return dict(zip(threads, group.members(), strict=True))

    @cached_property
    def migrates(self) -> Flags:
        """Mark the page migrations, which the driver starts without a launch call."""
        return self.events.where_name(MIGRATION.match)

    def idle(self, cause: str) -> int:
        return len(self.categories) + _CAUSES.index(cause)

    def segments(self, thread: int) -> Segments:
        """Return which event of ``thread`` is innermost at each time."""
        if thread not in self._segments:
            rows = self._rows_of_threads.get(thread, np.empty(0, dtype=np.int64))
            self._segments[thread] = filled(innermost(self.events, rows))
        return self._segments[thread]

    def blocked(
        self, thread: Ints, start: Ints, end: Ints
    ) -> Iterator[tuple[Ints, Flags, Ints, Ints]]:
        """Divide intervals into times with and without a blocking call on their thread."""
        for number in np.unique(thread).tolist():
            places = np.flatnonzero(thread == number)
            segments = self.segments(number)
            waits = np.append(self.state, NONE)[segments.owner] == STATES.index("sync")
            waits &= segments.owner != NONE
            calls = filled(
                Segments(segments.start_ns[waits], segments.end_ns[waits], segments.owner[waits])
            )
            shared = overlaps(calls, start[places], end[places])
            inside = calls.owner[shared.segment] != NONE
            # yield columns: index of the interval, whether the thread waited, start, end
            yield places[shared.interval], inside, shared.start_ns, shared.end_ns

    def state_labels(self, row: Ints) -> Ints:
        """Return idle labels, such as ``python``, for the innermost events at ``row``."""
        if not len(self.state):
            return np.full(len(row), self.idle(HOST), dtype=np.int64)
        at_work = row != NONE
        return self.idle(STATES[0]) + np.where(at_work, self.state[row], len(STATES))


def _host_intervals(hosts: _Hosts, steps: _StepBounds, rank: int | None) -> Intervals:
    computes = hosts.computes
    merged = filled(host.merged_threads(hosts.events, rank, computes, hosts.state))
    merged = host.with_whole_copies(hosts.events, merged, computes)
    shared = overlaps(merged, steps.start_ns, steps.end_ns)
    row = merged.owner[shared.segment]
    label = hosts.state_labels(row)
    if len(computes):
        label = np.where((row != NONE) & computes[row], hosts.category[row], label)
    return Intervals(hosts.labels, shared.interval, row, label, shared.start_ns, shared.end_ns)


#: Columns of ``Intervals``: step, event row, label, start and end.
_Columns = tuple[Ints, Ints, Ints, Ints, Ints]


def _device_intervals(
    hosts: _Hosts, steps: _StepBounds, device: DeviceActivity, waits: Waits
) -> Intervals:
    busy = overlaps(device.busy, steps.start_ns, steps.end_ns)
    row = device.busy.owner[busy.segment]
    parts = [(busy.interval, row, hosts.category[row], busy.start_ns, busy.end_ns)]
    parts += _idle_intervals(hosts, steps, device, waits)
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    has_time = columns[4] > columns[3]
    return Intervals(hosts.labels, *(column[has_time] for column in columns))


def _idle_intervals(
    hosts: _Hosts, steps: _StepBounds, device: DeviceActivity, waits: Waits
) -> Iterator[_Columns]:
    """Find the causes of the device's idle times."""
    segments = filled(device.busy)
    free = np.flatnonzero(segments.owner == NONE)
    idle = Segments(segments.start_ns[free], segments.end_ns[free], segments.owner[free])
    gaps = overlaps(idle, steps.start_ns, steps.end_ns)
    window, start, end = gaps.interval, gaps.start_ns, gaps.end_ns
    until = idle.end_ns[gaps.segment]  # start of the next activity, or int64's maximum
    tail = until >= steps.ends_ns[window]
    following = np.searchsorted(device.start_ns, until)
    launch = np.where(tail, NONE, np.append(device.launch, NONE)[following])
    linked = np.flatnonzero(launch != NONE)
    issued = launch[linked]
    called, returned = hosts.start_ns[issued], hosts.end_ns[issued]
    queued = returned <= waits.since(until[linked])
    # cut idle time at the start and end of the launch call, and at the end of launch latency
    borders = [
        np.where(queued, start[linked], np.clip(instant, start[linked], end[linked]))
        for instant in (called, returned, returned + waits.latency_ns)
    ]
    migrates = np.append(hosts.migrates[device.row], False)[following]
    thread = np.where(tail | migrates, steps.thread[window], NONE)
    thread[linked] = hosts.thread[issued]
    begins = end.copy()
    begins[linked] = borders[0]
    yield from _thread_intervals(hosts, window, thread, tail, start, begins)
    borders.append(end[linked])
    called, returned, late, begun = borders
    work = device.row[following[linked]]
    for cause, row, first, last in ((CALL, issued, called, returned), (QUEUED, work, late, begun)):
        label = np.full(len(linked), hosts.idle(cause), dtype=np.int64)
        yield window[linked], row, label, first, last
    for place, blocked, first, last in hosts.blocked(thread[linked], returned, late):
        label = np.where(blocked, hosts.idle(QUEUED), hosts.idle(LATENCY))
        row = np.where(blocked, work[place], issued[place])
        yield window[linked][place], row, label, first, last


def _thread_intervals(
    hosts: _Hosts, window: Ints, thread: Ints, tail: Flags, start: Ints, end: Ints
) -> Iterator[_Columns]:
    """Divide each idle interval by what the interval's ``thread`` did."""
    # choose the causes with ``tail:`` for idle time after a step's last activity
    first = hosts.idle(_THREAD_CAUSES[0]) + np.where(tail, _FIRST_TAIL, 0)
    unknown = thread == NONE
    no_event = np.full(int(unknown.sum()), NONE, dtype=np.int64)
    label = first[unknown] + _THREAD_CAUSES.index(UNATTRIBUTED)
    yield window[unknown], no_event, label, start[unknown], end[unknown]
    for number in np.unique(thread[~unknown]).tolist():
        places = np.flatnonzero(thread == number)
        segments = hosts.segments(number)
        shared = overlaps(segments, start[places], end[places])
        row, interval = segments.owner[shared.segment], places[shared.interval]
        label = hosts.state_labels(row) + np.where(tail[interval], _FIRST_TAIL, 0)
        yield window[interval], row, label, shared.start_ns, shared.end_ns
