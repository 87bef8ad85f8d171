"""What recording took of each stretch of the profiled steps, taken off where it lies.

A profiler takes its time for an event before it notes the begin, between begin and end, and after
it has noted the end. The first and the last lie in what is around the event, in a gap between two
ops too, the second in the event itself (``Cost``). A capture's own ranges cost more than an op: in
the timed steps they are not there (``Costs``).

What a loop of one trivial call shows is the least that an event costs: in a real step its code and
its data are no longer in the caches. An event of torch.profiler took 0.7 to 0.9 µs in such a loop,
1.2 µs where 256 KB were read between two calls, and 1.4 to 1.9 µs of CPU time in the steps of
torch-lstmcell-basic, 0.7 to 1.5 in those of torch-lstmcell-fused (torch 2.13, Xeon of 2 CPUs, load
2 to 4, in turn with the same steps undisturbed). So the timed steps decide what an event costs
(``clean_step``), up to the most that steps showed.
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

#: Of recording one event on a host, where no run shows it. Measured on an EPYC (torch 2.13,
#: torch.profiler): 20,000 calls of ``.item()``, two ops each, take 2.5 ms undisturbed and 9.7 ms
#: profiled, in a loop that does nothing else.
RECORDING_NS = 180
#: Profiler → the same where it takes less. Measured on that EPYC: a jitted product of one element
#: takes 3.2 µs undisturbed and 4.8 µs profiled, 14 events (jax 0.10); an eager one in TensorFlow
#: 5.2 µs and 5.7 µs, 8 events (2.21).
QUICK_RECORDING_NS = {"jax.profiler": 119, "tf.profiler": 69}
#: No event costs more, or more than so many times what it costs in the loop. CPU time of steps of
#: five implementations, profiled and not in turn, on that EPYC beside five other processes: 1.6 to
#: 2.3 µs an event by torch.profiler, 1.5 to 2.0 by jax.profiler, 3.0 to 3.1 by tf.profiler; on the
#: Xeon above 1 to 2.7 times the loop by torch.profiler, 2.1 to 2.6 times by tf.profiler.
MOST_RECORDING_NS, MOST_TIMES = 3_000, 4
#: What a capture writes around a step and its phases.
OWN_RANGES = frozenset({"step", "input", "forward", "loss", "backward", "optimizer"})
#: Parts in which a device waits and no host keeps it waiting.
_NO_HOST = (LATENCY, QUEUED, UNATTRIBUTED)


@dataclass(frozen=True)
class Cost:
    """Nanoseconds of recording one event: before its begin is noted, then until its end, after."""

    before_ns: float
    inside_ns: float
    after_ns: float

    @property
    def ns(self) -> float:
        """All three."""
        return self.before_ns + self.inside_ns + self.after_ns

    def times(self, factor: float) -> Cost:
        """``factor`` times as much of each."""
        return Cost(self.before_ns * factor, self.inside_ns * factor, self.after_ns * factor)


@dataclass(frozen=True)
class Costs:
    """What recording one event costs, from ``least_ns`` to ``most_ns``; one of capture's ranges.

    ``shape`` is where it lies, of a nanosecond in all; ``usual_ns`` where the steps do not tell.
    ``measured``: in this capture's own sessions.
    """

    shape: Cost
    least_ns: float
    most_ns: float
    usual_ns: float
    of_range: Cost
    measured: bool


def costs_of(info: RunInfo) -> Costs:
    """What recording costs by run.json: the medians of its rounds, else what was measured once."""
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


def _event(told: RecordingInfo) -> Cost:
    """As the loop tells it; half before and half after where it does not tell where it lies."""
    whole, inside = told.event_ns or 0.0, told.event_inside_ns or 0.0
    before = (whole - inside) / 2 if told.event_before_ns is None else told.event_before_ns
    return Cost(before, inside, whole - inside - before)


def _range(told: RecordingInfo) -> Cost:
    whole = (told.event_ns or 0.0) if told.range_ns is None else told.range_ns
    inside = told.range_inside_ns or 0.0
    return Cost((whole - inside) / 2, inside, (whole - inside) / 2)


def _median(costs: list[Cost]) -> Cost:
    parts = [(c.before_ns, c.inside_ns, c.after_ns) for c in costs]
    return Cost(*(float(value) for value in np.median(np.asarray(parts), axis=0)))


@dataclass(frozen=True)
class Borders:
    """Of each stretch how many events of its thread begin as it ends, and end as it begins.

    ``own`` is 1 where the stretch begins with its own event, and 1 where it ends with it.
    """

    before: Ints
    own: Ints
    after: Ints

    def ns(self, cost: Cost) -> np.ndarray:
        """What recording takes of each stretch, if each event costs as much."""
        return np.asarray(
            self.before * cost.before_ns
            + self.own * cost.inside_ns / 2
            + self.after * cost.after_ns
        )


@dataclass(frozen=True)
class Recorded:
    """What was recorded in each stretch: by the framework, and the ranges of the capture."""

    events: Borders
    ranges: Borders

    @property
    def borders(self) -> Ints:
        """Begins and ends of events that were recorded in each stretch, around these events."""
        return np.asarray(
            self.events.before + self.events.after + self.ranges.before + self.ranges.after
        )


def recorded(events: EventTable, stretches: Stretches, *, own_ranges: bool) -> Recorded:
    """What was recorded in each of ``stretches``; ``own_ranges``: the capture's are told apart.

    In a device's wait that no host could shorten nothing was.
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
    """For each (own, met) how many of (thread, noted) are the same."""
    place = numbered(np.concatenate([thread, own]), np.concatenate([noted_ns, met_ns]))
    times = np.bincount(place[: len(thread)], minlength=int(place.max(initial=-1)) + 1)
    return np.asarray(times[place[len(thread) :]], dtype=np.int64)
