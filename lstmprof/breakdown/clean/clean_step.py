"""The clean step: the time of a step without disturbances and without the profiler's overhead.

A slot is an event that recurs in the steps, such as a matmul. The clean step sums a low percentile
of each slot's times. Sources: docs/ledger.md ("The clean step"), docs/accuracy.md (the percentile).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from lstmprof.breakdown.attribution import Intervals, attributed
from lstmprof.breakdown.clean.now_and_then import Rare, now_and_then
from lstmprof.breakdown.clean.recording import costs_of, recorded
from lstmprof.breakdown.clean.script_waits import SCRIPT_WAITS, slept_ns, with_waits
from lstmprof.breakdown.clean.slot_times import (
    BETWEEN_PROCESSES,
    BETWEEN_RAISED,
    BETWEEN_THREADED,
    Disturbance,
    Estimate,
    Floats,
    Parts,
    SlotTimes,
    Span,
    spans_of,
)
from lstmprof.breakdown.clean.timings import MOST_WAITED, QUANTILE, Iterations
from lstmprof.breakdown.mean_step import MeanStep, Recording, in_reading_order
from lstmprof.events.annotate.steps import Window
from lstmprof.events.intervals import Ints
from lstmprof.events.table import EventTable
from lstmprof.runs.metadata import RunInfo

#: Quantile of times in other tools' profiles: the median, because disturbances are unknown.
QUANTILE_FOREIGN = 0.5
#: Smallest number of steps at which lstmprof removes disturbances. With fewer steps, the clean step
#: is the mean.
LEAST_STEPS = 3
#: Most events of a profile with a clean step, which takes 5 CPU seconds per million events (Xeon).
MOST_EVENTS = 2_000_000
#: Overhead per event in a step, divided by the overhead in a tight loop. Chosen by hand.
USUAL_TIMES = 2.0
#: Profiler with the factor 1 instead of ``USUAL_TIMES``. Measured factor in an eager step: 0.1.
TENSORFLOW_PROFILER = "tf.profiler"
#: CPU share of the steps' thread below which the shortest timed step limits the clean step. Chosen
#: by hand: with four busy processes per core, the 10th percentile was 18 ms, the shortest steps
#: 2.4 ms.
STARVED = 0.5
#: Natural logarithm of a thread's slowdown on a shared core (0.15: 16 %). Chosen by hand, from
#: eight programs.
SHARED_CORE = 0.15
#: Natural logarithm of the slowdown on a crowded machine (0.3: 35 %; measured: 0.0 to 0.4), and the
#: smallest load average per core at which a machine counts as crowded.
CROWDED_CORES, CROWDED = 0.3, 2.0


@dataclass(frozen=True)
class CleanStep:
    """The step of a device or the host without profiler overhead and disturbances."""

    rank: int | None
    device: int | None  # None: the host
    windows: tuple[Window, ...] = field(repr=False)  # clean start and end of each step
    intervals: Intervals = field(repr=False)
    span: Span  # length of the step, with its 95 % interval
    # length and 95 % interval of each part; time of ``waiting`` is also part of python and host
    parts: Parts = field(repr=False)
    recording: Recording | None  # time that the profiler took; None for another tool's profile
    rare: tuple[Rare, ...]  # events that occur, or take long, in some steps only
    work_varies: bool  # the steps may do different work, such as longer sequences
    _profiled: EventTable = field(repr=False)
    _clock: _Clock = field(repr=False)

    @cached_property
    def events(self) -> EventTable:
        return self._clock.moved(self._profiled)

    def at(self, instants_ns: Ints) -> Ints:
        """Convert recorded times to times on the clean step's time axis."""
        return self._clock.at(instants_ns)

    @property
    def mean_step(self) -> MeanStep:
        """Return the clean step's parts in ns, summed over all steps."""
        spent = self.intervals.end_ns - self.intervals.start_ns
        totals = np.bincount(self.intervals.label, weights=spent).astype(np.int64).tolist()
        sums = {self.intervals.labels[label]: ns for label, ns in enumerate(totals) if ns}
        return MeanStep(
            rank=self.rank,
            device=self.device,
            steps=len(self.windows),
            total_ns=sum(sums.values()),
            parts=in_reading_order(sums),
            recording=self.recording,
            clean=True,
        )


@dataclass(frozen=True)
class _Clock:
    """Converts recorded times to clean times, by linear interpolation."""

    knots_ns: Ints
    clean_ns: Ints  # clean time of each of ``knots_ns``

    @classmethod
    def of(cls, intervals: Intervals, left_ns: Ints) -> _Clock:
        """Make a clock that changes interval lengths to ``left_ns`` and keeps the gaps."""
        start, end = intervals.start_ns, intervals.end_ns
        knots = np.empty(2 * len(start), dtype=np.int64)
        knots[0::2], knots[1::2] = start, end
        spent = np.empty_like(knots)
        spent[0::2] = np.append(0, start[1:] - end[:-1])[: len(start)]
        spent[1::2] = left_ns
        first = int(start[0]) if len(start) else 0
        return cls(knots, first + np.cumsum(spent))

    def at(self, instants_ns: Ints) -> Ints:
        if not len(self.knots_ns):
            return instants_ns
        place = np.searchsorted(self.knots_ns, instants_ns, side="right") - 1
        low = np.clip(place, 0, len(self.knots_ns) - 2)
        first, last = self.knots_ns[low], self.knots_ns[low + 1]
        to_first, to_last = self.clean_ns[low], self.clean_ns[low + 1]
        into = np.clip(instants_ns - first, 0, last - first)
        share = into / np.maximum(last - first, 1)
        inside = to_first + np.rint(share * (to_last - to_first)).astype(np.int64)
        before = np.minimum(instants_ns - self.knots_ns[0], 0)
        after = np.maximum(instants_ns - self.knots_ns[-1], 0)
        return np.asarray(np.where(into == last - first, to_last, inside) + before + after)

    def moved(self, events: EventTable) -> EventTable:
        start, end = self.at(events.start_ns), self.at(events.end_ns)
        return events.with_columns({"start_ns": start, "dur_ns": end - start})

    def window(self, window: Window) -> Window:
        ends = self.at(np.array([window.start_ns, window.end_ns]))
        return replace(window, start_ns=int(ends[0]), end_ns=int(ends[1]))


@dataclass(frozen=True)
class Measured:
    """A run that lstmprof recorded: its run.json and timed iterations."""

    info: RunInfo
    iterations: Iterations | None


def clean_step(
    events: EventTable,
    windows: Sequence[Window],  # of one rank
    device: int | None,  # None: the host
    measured: Measured | None,  # None: another tool's profile
) -> CleanStep:
    rank, count = windows[0].rank, len(windows)
    intervals = attributed(events, windows, rank)[device].by_time()
    slots = SlotTimes(events, windows, intervals, device is not None)
    iterations = None if measured is None else measured.iterations
    quantile = QUANTILE_FOREIGN if measured is None else QUANTILE
    times = slots.means() if count < LEAST_STEPS else slots.undisturbed(quantile)
    extra = slots.slots_of_extra_work(
        float(iterations.wall_ns.max() if iterations else 0) or math.inf
    )
    times = np.where(extra, 0.0, times)
    usual_ns = float(times @ slots.share)
    cost_ns, recording, disturbance = np.zeros(len(times)), None, Disturbance()
    blocked_ns = 0.0
    rounds: Sequence[int] | None = None
    if measured is not None:
        cost = _Cost(slots, measured.info, device is not None)
        timed, most_ns = None, None
        share = iterations.cpu_share if iterations else None
        starved = share is not None and share < STARVED
        usual = 0.0 if starved else QUANTILE
        least_between = BETWEEN_PROCESSES
        if iterations:
            timed = iterations.quantile_ns(usual, slots.occasional_ns(times, usual))
            most_ns = iterations.undelayed_ns
            if device is None and not starved:
                blocked_ns = iterations.blocked_ns
                profiled_ns = min(blocked_ns, slots.long_waits_ns(times))
                timed = max(timed, iterations.quantile_ns() + profiled_ns)
            if iterations.calm and times @ slots.share < timed:
                least_ns = timed + float(cost.usual(times) @ slots.share)
                quantile, times = slots.raised(quantile, times, extra, least_ns)
                least_between = BETWEEN_RAISED
        cost_ns, recording = cost.per_slot(times, timed, most_ns, only_bound=starved)
        if iterations and blocked_ns:  # ``times`` may already contain some of these waits
            more_ns = iterations.quantile_ns() - float((times - cost_ns) @ slots.share)
            blocked_ns = max(blocked_ns + min(more_ns, 0.0), 0.0)
        rounds = measured.info.profiled_rounds
        without_ns = float((times - cost_ns) @ slots.share)
        disturbance = _disturbance(measured, share, timed, without_ns, slots.moves)
        disturbance = replace(disturbance, least_between=least_between)
    stalled = slots.stalled(times, only_input=measured is not None, blocked_ns=blocked_ns)
    stalled = np.where(extra, 0.0, stalled)
    clean_ns = np.maximum(np.maximum(stalled, times) - cost_ns, 0.0)
    left_ns = slots.new_lengths(clean_ns)
    clock = _Clock.of(intervals, left_ns)
    start = clock.at(intervals.start_ns)
    moved = replace(intervals, start_ns=start, end_ns=start + left_ns)
    has_time = left_ns > 0
    columns = (moved.window, moved.row, moved.label, moved.start_ns, moved.end_ns)
    moved = Intervals(moved.labels, *(column[has_time] for column in columns))
    lines = (measured.info.script_lines or ()) if measured and device is None else ()
    moved = with_waits(events, moved, lines)
    waits = np.array([part == SCRIPT_WAITS for _, part in moved.labels], dtype=np.bool_)
    waits_ns = float((moved.end_ns - moved.start_ns)[waits[moved.label]].sum()) / count
    estimate = Estimate(clean_ns, cost_ns, stalled, quantile, rounds)
    sleeps_ns = min(slept_ns(lines), waits_ns)
    span, parts = spans_of(slots, estimate, disturbance, waits_ns, sleeps_ns)
    return CleanStep(
        rank=rank,
        device=device,
        windows=tuple(clock.window(window) for window in windows),
        intervals=moved,
        span=span,
        parts=parts,
        recording=recording,
        rare=now_and_then(
            events,
            windows,
            slots.of_event,
            step_ns=usual_ns,
            quantile=quantile,
            on_device=device is not None,
            foreign=measured is None,
        ),
        work_varies=slots.work_varies,
        _profiled=events,
        _clock=clock,
    )


def _disturbance(
    measured: Measured, share: float | None, timed: float | None, clean_ns: float, moves: bool
) -> Disturbance:
    """Estimate the clean step's uncertainty due to other programs on the CPUs."""
    iterations, info = measured.iterations, measured.info
    threads = info.threads or len(info.affinity or (0,))
    threaded = info.device == "cpu" and threads > 1
    between = BETWEEN_THREADED if threaded else BETWEEN_PROCESSES
    if iterations is None or timed is None:
        return Disturbance(between=between)
    load, cores = info.load_average_before, info.hardware.cores
    crowded = bool(load and cores and load[0] >= CROWDED * cores)
    # share of the time in which the thread waited for a CPU
    waited = 0.0 if share is None else 1 - share
    down = waited * math.log(max(threads, 1))
    if crowded:
        down += CROWDED_CORES
    else:  # on a busy core, caches are shared even while the thread runs
        down += SHARED_CORE * (1.0 if waited > MOST_WAITED else waited)
    if clean_ns < 0.99 * timed:  # busy machine: the iterations do not limit the 95 % interval
        up = math.log(timed / clean_ns) if moves and clean_ns > 0 else 0.0
        return Disturbance(down, between=between, up=up)
    median = iterations.quantile_ns(0.5) or timed
    return Disturbance(down, max(math.log(median / timed), 0.0), between)


class _Cost:
    """The profiler's overhead in each slot (an event that recurs in the steps)."""

    def __init__(self, slots: SlotTimes, info: RunInfo, on_device: bool) -> None:
        costs, profiler = costs_of(info), info.profiler
        self._slots = slots
        # expect no overhead on a device: recording host events does not delay a busy device
        times = 1.0 if profiler == TENSORFLOW_PROFILER else USUAL_TIMES
        self._usual = 0.0 if on_device else max(times * costs.least_ns, costs.usual_ns)
        self._costs = costs
        own_ranges = costs.measured and not on_device
        self._recorded = recorded(slots.events, slots.intervals, own_ranges=own_ranges)
        # compute means per slot: number of framework events, and ns of overhead of the capture's
        # ranges
        self._of_events = self._mean(self._recorded.events.ns(costs.shape))
        self._of_ranges = self._mean(self._recorded.ranges.ns(costs.own_range))

    def _mean(self, values: Floats) -> Floats:
        sums = np.bincount(self._slots.slot, weights=values, minlength=self._slots.count)
        return np.asarray(sums / np.maximum(self._slots.present, 1))

    def usual(self, times: Floats) -> Floats:
        """Return the expected overhead per slot in ns, before any fit to timed steps."""
        return self._slot_costs_ns(times, self._usual_event_ns(times))

    def _usual_event_ns(self, times: Floats) -> float:
        return min(self._usual, self._shortest(times))

    def _slot_costs_ns(self, times: Floats, event_ns: float) -> Floats:
        """Return the overhead in ns per slot, at most the slot's time."""
        return np.minimum(event_ns * self._of_events + self._of_ranges, times)

    def _shortest(self, times: Floats) -> float:
        """Return an upper limit of overhead per event: the 10th percentile of time per event."""
        events = np.flatnonzero(self._of_events >= 0.5)
        if not len(events):
            return math.inf
        each_ns = times[events] / self._of_events[events]
        order = np.argsort(each_ns)
        until = np.cumsum((self._of_events * self._slots.share)[events][order])
        return float(each_ns[order][np.searchsorted(until, QUANTILE * until[-1])])

    def per_slot(
        self, times: Floats, timed: float | None, most: float | None, *, only_bound: bool
    ) -> tuple[Floats, Recording]:
        """Return the overhead in ns of each slot, and a summary for the whole step."""
        share, steps = self._slots.share, self._slots.steps

        def rest_ns(cost_ns: float) -> float:
            return float((times - self._slot_costs_ns(times, cost_ns)) @ share)

        cost_ns = self._usual_event_ns(times)
        # choose the overhead per event that shortens the step to ``timed``
        if timed is not None and timed < rest_ns(0.0):
            solved_ns = _solved(rest_ns, timed, self._costs.most_ns)
            cost_ns = max(solved_ns, cost_ns) if only_bound else solved_ns
        slot_cost_ns = self._slot_costs_ns(times, cost_ns)
        recorded_ns = round(float(slot_cost_ns @ share))
        rest = float((times - slot_cost_ns) @ share)
        longest = min(n for n in (timed, most, math.inf) if n is not None)
        if rest > longest:  # a clean step is at most as long as the timed steps
            slot_cost_ns = times - (times - slot_cost_ns) * (longest / rest)
        recording = Recording(
            events=int(self._recorded.borders.sum()) / 2 / steps,
            event_ns=cost_ns,
            ns=recorded_ns,
            measured=self._costs.measured,
        )
        return slot_cost_ns, recording


def _solved(rest_ns: Callable[[float], float], timed: float, high: float) -> float:
    """Find the overhead per event that shortens the step to ``timed`` ns."""
    low = 0.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if rest_ns(middle) > timed else (low, middle)
    return (low + high) / 2
