"""Subtract the profiler's own time from each time interval (stretch) of the profiled steps.

Recording an event costs time before its noted start, between start and end, and after its noted
end. Only the second part is inside the event; the others lie around it, for example in a gap
between two ops (``Cost``). The ranges that lstmprof's capture adds cost more than an op, because
the timed steps do not have these ranges (``Costs``).

A loop of one trivial call shows the least cost of an event: in a real step, the profiler's code and
data have left the caches. An event of torch.profiler took 0.7 to 0.9 µs in such a loop, and 1.2 µs
if the loop also read 256 KB. It took 1.4 to 1.9 µs of CPU time in the steps of
torch-lstmcell-basic, and 0.7 to 1.5 µs in those of torch-lstmcell-fused (torch 2.13, Xeon with two
CPUs, load 2 to 4, alternating with the same steps undisturbed). So the timed steps decide the cost
of an event (``clean_step``), up to the highest cost that was measured.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lstmprof.breakdown.attribution import LATENCY, QUEUED, TAIL, UNATTRIBUTED, Stretches
from lstmprof.events.groups import numbered
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.table import NONE, EventTable
from lstmprof.events.threads import thread_ids
from lstmprof.runs.fields import RecordingInfo
from lstmprof.runs.metadata import RunInfo

#: Cost of recording one event on a host if no run shows it. Measured on an EPYC (torch 2.13,
#: torch.profiler): 20,000 calls of ``.item()``, two ops each, take 2.5 ms undisturbed and 9.7 ms
#: profiled, in a loop that does nothing else.
RECORDING_NS = 180
#: Profiler → cost of one event, for profilers with a lower cost. Measured on the same EPYC: a
#: jitted product of one element takes 3.2 µs undisturbed and 4.8 µs profiled, 14 events (jax 0.10);
#: an eager product in TensorFlow 2.21 takes 5.2 µs and 5.7 µs, 8 events.
QUICK_RECORDING_NS = {"jax.profiler": 119, "tf.profiler": 69}
#: Upper bounds for the cost of an event: in ns, and relative to its cost in the loop. Measured as
#: CPU time of steps of five implementations, profiled and not, on that EPYC beside five other
#: processes: 1.6 to 2.3 µs per event for torch.profiler, 1.5 to 2.0 for jax.profiler, 3.0 to 3.1
#: for tf.profiler; on the Xeon above 1 to 2.7 times the loop for torch.profiler, 2.1 to 2.6 times
#: for tf.profiler.
MOST_RECORDING_NS, MOST_TIMES = 3_000, 4
#: Ranges that a capture writes around a step and its phases.
OWN_RANGES = frozenset({"step", "input", "forward", "loss", "backward", "optimizer"})
#: Parts in which a device waits and no host keeps it waiting.
_NO_HOST = (LATENCY, QUEUED, UNATTRIBUTED)


@dataclass(frozen=True)
class Cost:
    """Nanoseconds of recording one event: before its begin, inside it, after its end."""

    before_ns: float
    inside_ns: float
    after_ns: float

    @property
    def ns(self) -> float:
        """Return the sum of the three."""
        return self.before_ns + self.inside_ns + self.after_ns

    def times(self, factor: float) -> Cost:
        """Return ``factor`` times this cost."""
        return Cost(self.before_ns * factor, self.inside_ns * factor, self.after_ns * factor)


@dataclass(frozen=True)
class Costs:
    """The cost of recording one event: between ``least_ns`` and ``most_ns``, usually ``usual_ns``.

    ``shape`` is a cost of 1 ns in total, which shows when the time is spent. ``of_range`` is the
    cost of one of the capture's own ranges. ``measured`` is whether this capture measured the
    costs.
    """

    shape: Cost
    least_ns: float
    most_ns: float
    usual_ns: float
    of_range: Cost
    measured: bool


def costs_of(info: RunInfo) -> Costs:
    """Return the cost of recording: medians of the rounds in run.json, else a measured default."""
    rounds = [r for r in info.recording or () if r.event_ns]
    if not rounds:
        usual_ns = QUICK_RECORDING_NS.get(str(info.profiler), RECORDING_NS)
        usual = Cost(usual_ns / 2, 0.0, usual_ns / 2)
        return Costs(usual.times(1 / usual_ns), 0.0, MOST_RECORDING_NS, usual_ns, usual, False)
    event = _median([_event(r) for r in rounds])
    shape = event.times(1 / event.ns)
    of_range = _median([_range(r) for r in rounds])
    most_ns = max(MOST_TIMES * event.ns, MOST_RECORDING_NS)
    return Costs(shape, event.ns, most_ns, event.ns, of_range, True)


def _event(loop: RecordingInfo) -> Cost:
    """Return the cost of an event in the loop; without places, half lies before and half after."""
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
    """Counts per stretch: events of its thread that begin at its end, and that end at its begin.

    ``own`` counts the borders that the stretch shares with its own event: 0, 1 or 2.
    """

    before: Ints
    own: Ints
    after: Ints

    def ns(self, cost: Cost) -> np.ndarray:
        """Return the time of recording in each stretch, if each event costs ``cost``."""
        return np.asarray(
            self.before * cost.before_ns
            + self.own * cost.inside_ns / 2
            + self.after * cost.after_ns
        )


@dataclass(frozen=True)
class Recorded:
    """What was recorded in each stretch: the framework's events, and the capture's own ranges."""

    events: Borders
    ranges: Borders

    @property
    def borders(self) -> Ints:
        """Return the number of begins and ends that were recorded in each stretch."""
        return np.asarray(
            self.events.before + self.events.after + self.ranges.before + self.ranges.after
        )


def recorded(events: EventTable, stretches: Stretches, *, own_ranges: bool) -> Recorded:
    """Return what was recorded in each of ``stretches``; ``own_ranges``: count a capture's ranges.

    Nothing is recorded in a device's wait that a faster host would not shorten.
    """
    thread = thread_ids(events)
    on_host = (thread >= 0) & ~events.is_kind("overhead")
    ranges = events.is_kind("step", "range") & events.where_name(OWN_RANGES.__contains__)
    ranges = ranges & on_host if own_ranges else np.zeros(len(events), dtype=np.bool_)
    parts = np.array([part.removeprefix(TAIL) for _, part in stretches.labels], dtype=object)
    host = ~np.isin(parts[stretches.label].astype(str), _NO_HOST)
    return Recorded(
        _borders(events, stretches, on_host & ~ranges, host),
        _borders(events, stretches, ranges, host),
    )


def _borders(events: EventTable, stretches: Stretches, chosen: Flags, host: Flags) -> Borders:
    rows, thread = np.flatnonzero(chosen), thread_ids(events)
    known = stretches.row != NONE
    if not len(events):
        nothing = np.zeros(len(known), dtype=np.int64)
        return Borders(nothing, nothing, nothing)
    own = np.where(known, thread[stretches.row], NONE)
    before, after = np.append(NONE, own[:-1]), np.append(own[1:], NONE)

    def met(noted_ns: Ints, met_ns: Ints, beside: Ints) -> Ints:
        of_own = _met(thread[rows], noted_ns[rows], own, met_ns)
        of_other = _met(thread[rows], noted_ns[rows], beside, met_ns) * (beside != own)
        anywhere = _met(np.zeros_like(rows), noted_ns[rows], np.zeros_like(own), met_ns)
        return np.where(known, of_own + of_other, anywhere) * host

    mine = known & chosen[stretches.row] & host
    begins = mine & (events.start_ns[stretches.row] == stretches.start_ns)
    ends = mine & (events.end_ns[stretches.row] == stretches.end_ns)
    return Borders(
        met(events.start_ns, stretches.end_ns, after),
        begins.astype(np.int64) + ends,
        met(events.end_ns, stretches.start_ns, before),
    )


def _met(thread: Ints, noted_ns: Ints, own: Ints, met_ns: Ints) -> Ints:
    """Return for each pair (own, met) how many pairs (thread, noted) equal it."""
    place = numbered(np.concatenate([thread, own]), np.concatenate([noted_ns, met_ns]))
    times = np.bincount(place[: len(thread)], minlength=int(place.max(initial=-1)) + 1)
    return np.asarray(times[place[len(thread) :]], dtype=np.int64)
