"""The account of the undisturbed step: the profiled steps without what profiling took of them.

Reads the attribution of the profiled steps that nothing disturbed, what recording took of each
stretch (``recording``) and the undisturbed pass. Its parts are those of the ledger, each less its
recording and, where the step is in CPU time, less the time that the run had no CPU in it
(``lost_cpu``); they and two lines of state ``profiler`` sum to the undisturbed step:

- ``page faults``: what profiled steps fault more than undisturbed ones, at the cost of a fault in
  the same process; which op faulted is not recorded;
- ``further effect``: what the undisturbed step has over all that. Where it is below 0 the profiled
  steps took longer than their recording tells: caches, clocks, another process.

Of a run on one thread of a CPU all parts share both, by their length, and no line is left: few
steps are profiled and many timed, and the machine runs faster or slower for some of them, which
changes all parts alike. Profiled and undisturbed steps of one round, 12 rounds of each of four
runs, differed by 13 to 20 % more or less than in the mean (standard deviation; 2 CPUs of a Xeon,
nothing else to do).
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lstmprof.breakdown.attribution import Stretches, attributed
from lstmprof.breakdown.disturbed import Kept, one_thread
from lstmprof.breakdown.iterations import iterations_of
from lstmprof.breakdown.lost_cpu import on_cpu_ns
from lstmprof.breakdown.mean_step import MeanStep, Recording, in_reading_order, mean_of
from lstmprof.breakdown.off_cpu import lost_of_steps
from lstmprof.breakdown.recording import Costs, Recorded, costs_of, recorded
from lstmprof.events.annotate import MEASURED
from lstmprof.events.intervals import Ints
from lstmprof.events.table import EventTable
from lstmprof.runs.metadata import RunInfo

#: The state of what is neither busy nor idle, and its two lines.
PROFILER, PAGE_FAULTS, FURTHER = "profiler", "page faults", "further effect"
#: What profiled steps fault more is told where it takes so much of an undisturbed step.
LEAST_FAULTS_SHARE = 0.01
#: The machine's speed explains no more: yardsticks of 24 processes on the Xeon above, a loop in
#: Python and a product, took 1.7 to 1.9 times as long in the slowest as in the quickest.
MOST_SCALE = 2.0


@dataclass(frozen=True)
class Undisturbed:
    """The step without a profiler; ``in_cpu_time`` where that is what runs compare by."""

    length_ns: float
    in_cpu_time: bool = False


@dataclass(frozen=True)
class Profiling:
    """What profiling took of the profiled steps of one lane: ``cost_ns`` for each event.

    ``faults_ns`` is that of the page faults that it caused, of a mean step. ``own_ranges``: what
    the capture's own ranges cost was measured, apart from other events. ``lost_ns``: of each of
    these steps the time without its CPU, where the undisturbed step is in CPU time, else none.
    ``scale``: how many times as long all else takes in the undisturbed step.
    """

    costs: Costs
    cost_ns: float
    faults_ns: int
    own_ranges: bool
    lost_ns: tuple[int, ...] = ()
    scale: float = 1.0

    def recorded_in(self, events: EventTable, stretches: Stretches) -> Recorded:
        """What was recorded in each stretch, which lasts as long as the run had its CPU in it."""
        what = recorded(events, stretches, own_ranges=self.own_ranges)
        return replace(what, length_ns=on_cpu_ns(events, stretches, self.lost_ns))

    def taken(self, what: Recorded) -> Ints:
        """Nanoseconds of each stretch in which ``what`` was recorded that recording took."""
        off = what.off(self.costs.shape.times(self.cost_ns), self.costs.of_range)
        return np.asarray(np.rint(off), dtype=np.int64)

    def left(self, what: Recorded) -> Ints:
        """Nanoseconds of each stretch in the undisturbed step."""
        left = (what.length_ns - self.taken(what)) * self.scale
        ends = np.rint(np.cumsum(left))  # what is rounded off one stretch is of the next
        return np.asarray(np.diff(ends, prepend=0), dtype=np.int64)


def profiling_of(
    kept: Kept,
    events: EventTable,
    stretches: Stretches,
    info: RunInfo,
    timings: pa.Table,
    undisturbed: Undisturbed,
) -> Profiling:
    """What profiling took of the steps ``kept``; ``stretches`` are those of one lane in them.

    ``timings`` are the rows of timings.parquet.
    """
    length_ns = undisturbed.length_ns
    costs, steps = costs_of(info), len(kept.windows)
    on_device = bool(len(events)) and _on_device(events, stretches)
    if on_device:  # what its host records while it works delays nothing
        costs = replace(costs, least_ns=0.0, usual_ns=0.0)
    own_ranges = costs.measured and info.source in MEASURED and not on_device
    lost_ns = () if on_device else _lost_ns(kept, info, timings, undisturbed)
    profiling = Profiling(costs, 0.0, 0, own_ranges, lost_ns)
    what = profiling.recorded_in(events, stretches)
    faults_ns = 0 if on_device else _faults_ns(kept, info, timings, length_ns)
    longer_ns = None if on_device else _longer_ns(kept, info, timings)
    if longer_ns is None:
        longer_ns = int(what.length_ns.sum()) / steps - length_ns
    faults_ns = min(faults_ns, max(round(longer_ns), 0))
    cost_ns = what.cost_ns(costs, steps * (longer_ns - faults_ns))
    profiling = replace(profiling, cost_ns=cost_ns, faults_ns=faults_ns)
    left_ns = int(profiling.left(what).sum()) / steps
    if on_device or not one_thread(info) or not left_ns:
        return profiling
    scale = min(max(round(length_ns) / left_ns, 1 / MOST_SCALE), MOST_SCALE)
    return replace(profiling, faults_ns=0, scale=scale)  # all parts share the faults as well


def _lost_ns(
    kept: Kept, info: RunInfo, timings: pa.Table, undisturbed: Undisturbed
) -> tuple[int, ...]:
    """Of each step ``kept`` the time in which the run had no CPU; none where that is unknown.

    Of own code that of which nobody knows when it was: the rest is cut out of ``kept`` already.
    """
    cpus, walls = info.profiled_cpu_ns, info.profiled_wall_ns
    last = max(kept.places)
    of_steps = lost_of_steps(info, timings)
    if of_steps is not None and len(of_steps) > last:
        rests = [of_steps[place].rest_ns for place in kept.places]
        return tuple(
            min(rest, window.end_ns - window.start_ns)
            for rest, window in zip(rests, kept.windows, strict=True)
        )
    if (
        not undisturbed.in_cpu_time
        or not one_thread(info)
        or not cpus
        or not walls
        or min(len(cpus), len(walls)) <= last
    ):
        return ()
    shares = [
        max(1 - cpus[place] / walls[place], 0.0) if walls[place] else 0.0 for place in kept.places
    ]
    return tuple(
        round(share * (window.end_ns - window.start_ns))
        for share, window in zip(shares, kept.windows, strict=True)
    )


def _on_device(events: EventTable, stretches: Stretches) -> bool:
    """Whether the lane is a device: some activity has time of it."""
    device = events.column("device").is_valid().to_numpy()
    rows = stretches.row[stretches.row >= 0]
    return bool(device[rows].any())


def _longer_ns(kept: Kept, info: RunInfo, timings: pa.Table) -> float | None:
    """What a step took longer that was profiled than one of its round that was not.

    In CPU time where one thread did it all: another process lengthens no such time. None unknown.
    """
    iterations = iterations_of(timings, info)
    lost, walls = lost_of_steps(info, timings), info.profiled_wall_ns
    by_cpu = one_thread(info) and info.profiled_cpu_ns and not _nulls(timings, "cpu_ns")
    profiled = info.profiled_cpu_ns if by_cpu else walls
    if lost is not None and walls and info.device == "cpu":
        profiled = tuple(wall - step.ns for wall, step in zip(walls, lost, strict=True))
        by_cpu = iterations.cpu_ns is not None
    rounds = iterations.rounds("CPU time") if by_cpu else iterations.kept.rounds()
    timed = {n: some.length_ns for n, some in zip(iterations.numbers, rounds, strict=True)}
    return _over(kept, info, profiled, timed)


def _faults_ns(kept: Kept, info: RunInfo, timings: pa.Table, length_ns: float) -> int:
    """Time of the page faults of a step that the same step has not where it is not profiled."""
    costs = [r.page_fault_ns for r in info.recording or () if r.page_fault_ns]
    if not costs or _nulls(timings, "minor_faults"):
        return 0
    timed = _medians(timings, "minor_faults")
    more = _over(kept, info, info.profiled_page_faults, timed) or 0.0
    took_ns = round(max(more, 0.0) * statistics.median(costs))
    return took_ns if took_ns >= LEAST_FAULTS_SHARE * length_ns else 0


def _over(
    kept: Kept, info: RunInfo, profiled: Sequence[int] | None, timed: Mapping[int, float]
) -> float | None:
    """The mean of what each profiled step has over the timed ones of its round; None unknown."""
    if not profiled or len(profiled) <= max(kept.places):
        return None
    rounds = info.profiled_rounds or (0,) * len(profiled)
    if any(rounds[place] not in timed for place in kept.places):
        return None
    return statistics.fmean(profiled[place] - timed[rounds[place]] for place in kept.places)


def _medians(timings: pa.Table, column: str) -> dict[int, float]:
    """Round → the median of its counted iterations."""
    counted = timings.filter(pc.invert(timings.column("warmup")))
    values: dict[int, list[int]] = {}
    columns = (counted.column(name).to_pylist() for name in ("round", column))
    for number, value in zip(*columns, strict=True):
        values.setdefault(number, []).append(value)
    return {number: statistics.median(some) for number, some in values.items()}


def _nulls(timings: pa.Table, column: str) -> bool:
    return column not in timings.column_names or bool(timings.column(column).null_count)


def undisturbed_step(
    step: MeanStep,
    kept: Kept,
    events: EventTable,
    info: RunInfo,
    timings: pa.Table,
    undisturbed: Undisturbed,
) -> MeanStep:
    """The lane of ``step`` in the undisturbed step, to which the parts sum."""
    steps, length_ns = len(kept.windows), round(undisturbed.length_ns)
    stretches = attributed(events, kept.windows, step.rank)[step.device]
    profiling = profiling_of(kept, events, stretches, info, timings, undisturbed)
    what = profiling.recorded_in(events, stretches)
    spent = profiling.left(what)
    totals = np.bincount(stretches.label, weights=spent, minlength=len(stretches.labels))
    names = [label for label, ns in zip(stretches.labels, totals, strict=True) if ns]
    means = mean_of([int(ns) for ns in totals if ns], steps)
    parts = Counter({n: min(ns, length_ns) for n, ns in zip(names, means, strict=True) if ns})
    if profiling.faults_ns:
        parts[PROFILER, PAGE_FAULTS] = -profiling.faults_ns
    if length_ns != parts.total():
        parts[PROFILER, FURTHER] = length_ns - parts.total()
    return replace(
        step,
        steps=steps,
        total_ns=steps * length_ns,
        parts=in_reading_order({part: steps * ns for part, ns in parts.items()}),
        recording=Recording(
            events=int(what.borders.sum()) / 2 / steps,
            event_ns=profiling.cost_ns,
            ns=round(int(profiling.taken(what).sum()) / steps),
            measured=profiling.costs.measured,
            in_cpu_time=undisturbed.in_cpu_time,
        ),
    )
