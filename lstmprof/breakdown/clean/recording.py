"""Compute the profiler's own time in each time interval of the profiled steps (docs/ledger.md).

Recording an event with torch.profiler takes 0.7 to 0.9 µs in a loop of one trivial call, but 1.4 to
1.9 µs in the steps of torch-lstmcell-basic, because the profiler's code and data have left the
caches (torch 2.13, Xeon with two CPUs).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lstmprof.breakdown.attribution import LATENCY, QUEUED, TAIL, UNATTRIBUTED, Intervals
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.table import NONE, EventTable
from lstmprof.events.threads import thread_ids
from lstmprof.runs.fields import RecordingInfo
from lstmprof.runs.metadata import RunInfo

#: Default cost of recording a host event, in ns. Source: 20,000 calls of ``.item()`` (two ops) took
#: 2.5 ms without and 9.7 ms with the profiler (torch 2.13, EPYC).
RECORDING_NS = 180
#: Profiler → default cost of recording a host event, in ns. Source: calls without and with the
#: profiler, in jax 0.10 (3.2 and 4.8 µs, 14 events) and TensorFlow 2.21 (5.2 and 5.7 µs, 8 events).
QUICK_RECORDING_NS = {"jax.profiler": 119, "tf.profiler": 69}
#: Highest cost of recording an event: this many ns, or this multiple of the cost in a tight loop if
#: larger. Measured: 3.1 µs on an EPYC (tf.profiler), and 2.7 times on a Xeon (torch.profiler).
MOST_RECORDING_NS, MOST_TIMES = 3_000, 4
#: Names of the ranges that a capture writes around a step and its phases.
OWN_RANGES = frozenset({"step", "input", "forward", "loss", "backward", "optimizer"})
#: Causes of idle time that the recording of host events does not lengthen.
_NO_HOST = (LATENCY, QUEUED, UNATTRIBUTED)


@dataclass(frozen=True)
class Cost:
    """The time to record one event: before the start, inside, and after the end."""

    before_ns: float
    inside_ns: float
    after_ns: float

    @property
    def ns(self) -> float:
        return self.before_ns + self.inside_ns + self.after_ns

    def times(self, factor: float) -> Cost:
        return Cost(self.before_ns * factor, self.inside_ns * factor, self.after_ns * factor)


@dataclass(frozen=True)
class Costs:
    """The least, highest and usual cost of recording one event."""

    shape: Cost  # divides 1 ns into the time before, inside and after an event
    least_ns: float
    most_ns: float
    usual_ns: float
    own_range: Cost  # of a range that the capture adds, such as ``forward``
    measured: bool  # whether the run itself measured the costs


def costs_of(info: RunInfo) -> Costs:
    """Return the costs that the run measured, or else the default costs."""
    rounds = [r for r in info.recording or () if r.event_ns]
    if not rounds:
        usual_ns = QUICK_RECORDING_NS.get(str(info.profiler), RECORDING_NS)
        usual = Cost(usual_ns / 2, 0.0, usual_ns / 2)
        return Costs(usual.times(1 / usual_ns), 0.0, MOST_RECORDING_NS, usual_ns, usual, False)
    event = _median([_event(r) for r in rounds])
    shape = event.times(1 / event.ns)
    own_range = _median([_range(r) for r in rounds])
    most_ns = max(MOST_TIMES * event.ns, MOST_RECORDING_NS)
    return Costs(shape, event.ns, most_ns, event.ns, own_range, True)


def _event(loop: RecordingInfo) -> Cost:
    """Return the cost of recording one event in a loop of one trivial call."""
    whole, inside = loop.event_ns or 0.0, loop.event_inside_ns or 0.0
    before = (whole - inside) / 2 if loop.event_before_ns is None else loop.event_before_ns
    return Cost(before, inside, whole - inside - before)


def _range(loop: RecordingInfo) -> Cost:
    whole = (loop.event_ns or 0.0) if loop.range_ns is None else loop.range_ns
    inside = loop.range_inside_ns or 0.0
    return Cost((whole - inside) / 2, inside, (whole - inside) / 2)


def _median(costs: list[Cost]) -> Cost:
    parts = [(c.before_ns, c.inside_ns, c.after_ns) for c in costs]
    return Cost(*(float(value) for value in np.median(np.asarray(parts), axis=0)))


@dataclass(frozen=True)
class Borders:
    """How many events begin or end at the borders of each time interval."""

    before: Ints  # events that begin at the end of the interval
    own: Ints  # ends that interval and own event share (0, 1 or 2)
    after: Ints  # events that end at the start of the interval

    def ns(self, cost: Cost) -> np.ndarray:
        """Return the cost of recording in each time interval."""
        return np.asarray(
            self.before * cost.before_ns
            + self.own * cost.inside_ns / 2
            + self.after * cost.after_ns
        )


@dataclass(frozen=True)
class Recorded:
    """Event counts (``Borders``) of the framework's events and of the capture's ranges."""

    events: Borders
    ranges: Borders

    @property
    def borders(self) -> Ints:
        """Return the number of starts and ends of events at each time interval."""
        return np.asarray(
            self.events.before + self.events.after + self.ranges.before + self.ranges.after
        )


def recorded(events: EventTable, intervals: Intervals, *, own_ranges: bool) -> Recorded:
    """Count the events that begin or end at the borders of each interval."""
    thread = thread_ids(events)
    on_host = (thread >= 0) & ~events.is_kind("overhead")
    ranges = events.is_kind("step", "range") & events.where_name(OWN_RANGES.__contains__)
    ranges = ranges & on_host if own_ranges else np.zeros(len(events), dtype=np.bool_)
    parts = np.array([part.removeprefix(TAIL) for _, part in intervals.labels], dtype=object)
    # count no cost in idle time that recording does not lengthen, such as launch latency
    host = ~np.isin(parts[intervals.label].astype(str), _NO_HOST)
    return Recorded(
        _borders(events, intervals, on_host & ~ranges, host),
        _borders(events, intervals, ranges, host),
    )


def _borders(events: EventTable, intervals: Intervals, chosen: Flags, host: Flags) -> Borders:
    rows, thread = np.flatnonzero(chosen), thread_ids(events)
    has_event = intervals.row != NONE
    if not len(events):
        zeros = np.zeros(len(has_event), dtype=np.int64)
        return Borders(zeros, zeros, zeros)
    own = np.where(has_event, thread[intervals.row], NONE)
    before, after = np.append(NONE, own[:-1]), np.append(own[1:], NONE)

    def bordering(event_ns: Ints, interval_ns: Ints, neighbour: Ints) -> Ints:
        own_count = _count_equal(thread[rows], event_ns[rows], own, interval_ns)
        neighbour_count = _count_equal(thread[rows], event_ns[rows], neighbour, interval_ns) * (
            neighbour != own
        )
        anywhere = _count_equal(
            np.zeros_like(rows), event_ns[rows], np.zeros_like(own), interval_ns
        )
        return np.where(has_event, own_count + neighbour_count, anywhere) * host

    mine = has_event & chosen[intervals.row] & host
    begins = mine & (events.start_ns[intervals.row] == intervals.start_ns)
    ends = mine & (events.end_ns[intervals.row] == intervals.end_ns)
    return Borders(
        bordering(events.start_ns, intervals.end_ns, after),
        begins.astype(np.int64) + ends,
        bordering(events.end_ns, intervals.start_ns, before),
    )


def _count_equal(thread: Ints, event_ns: Ints, own: Ints, interval_ns: Ints) -> Ints:
    """Count, for each interval, the events with equal thread (``own``) and time."""
    if not len(thread):
        return np.zeros(len(own), dtype=np.int64)
    threads = int(max(thread.max(initial=NONE), own.max(initial=NONE))) - NONE + 1
    first_ns = int(event_ns.min(initial=0))
    pairs, times = np.unique((event_ns - first_ns) * threads + (thread - NONE), return_counts=True)
    targets = (interval_ns - first_ns) * threads + (own - NONE)
    place = np.minimum(np.searchsorted(pairs, targets), len(pairs) - 1)
    return np.where(pairs[place] == targets, times[place], 0)
