"""Reasons not to trust the times of a run, or its profile: their kind, size and remedy.

Reads the iterations that count and what run.json says of the machine. Rounds are processes of their
own, so that all is sought within them: a drift by Mann's test summed over the rounds (R. Hirsch, J.
Slack and R. Smith, Water Resources Research 18, 1982), two modes by Ashman's D (K. Ashman et al.,
Astronomical Journal 108, 1994) of iterations over their round's median.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lstmprof.breakdown import yardsticks
from lstmprof.breakdown.disturbed import one_thread
from lstmprof.breakdown.iterations import Iterations, Measure
from lstmprof.breakdown.rounds import (
    BUSY_BETWEEN_PROCESSES,
    CLUSTERS,
    QUIET_BETWEEN_PROCESSES,
    error_of_change,
)
from lstmprof.events.annotate import OWN_CODE
from lstmprof.events.intervals import Ints
from lstmprof.numbers import milliseconds, number_of, percent
from lstmprof.runs.metadata import RunInfo

#: Fewer iterations say too little for any of the tests.
LEAST = 10
#: Mann's z for p < 0.001, two-sided; a drift of less than DRIFT_SHARE is let pass.
DRIFT_Z, DRIFT_SHARE = 3.29, 0.03
#: Ashman's D above 2 separates two normal modes, but halves of an even spread have 3.5 already;
#: both modes must hold MODE_SHARE of the iterations.
MODES_D, MODE_SHARE, MODES_APART_SHARE = 4.0, 0.15, 0.05
#: Of fewer iterations a third is none.
LEAST_OF_DRIFT = 3
SPREAD_SHARE = 0.10
#: Fewer that lost their CPU are a daily thing.
MANY_DISTURBED_SHARE = 0.1
CPU_SHARE = 0.95
#: More of a load leaves no core for a process alone: one of two threads is not counted.
BUSY_LOAD = 0.5
#: Preemptions an iteration; with fewer the median iteration is one that kept its CPU.
OFTEN_PREEMPTED = 0.25
#: Above this the profiled steps are other steps than the undisturbed ones.
INFLATION_SHARE = 0.25
#: glibc's posix_memalign leaves freed blocks unused between a profiler's records (torch 2.13, glibc
#: 2.36, Keras's quadratic backward pass): 280,000 faults a step there, without a profiler 19,000.
MANY_FAULTS, MORE_FAULTS = 10_000, 3


#: Kinds of ``Warning``.
BUSY, CPU_TAKEN, GOVERNOR, LOSS, THROTTLED = (
    "busy machine",
    "CPU taken",
    "governor",
    "loss",
    "clocks",
)
DRIFT, MODES, SPREAD, INFLATION = "drift", "two modes", "noise", "profile inflation"
STATE, MACHINE = "state", "machine speed"

_Series = NDArray[np.float64]


@dataclass(frozen=True)
class Warning:
    """One reason not to trust a series, and the remedy.

    ``size`` is the share of the step by which it may be off; 0 where the
    reason does not touch its length or the interval holds it already, None unknown. A step that
    may be off by its speed takes 1 + ``size`` times as long at the other one.
    """

    kind: str
    fault: str
    remedy: str
    size: float | None = None

    def __str__(self) -> str:
        return f"{self.fault}; {self.remedy}"


def warnings(iterations: Iterations, info: RunInfo) -> list[Warning]:
    """Every reason not to trust the ``iterations`` of a run with run.json ``info``."""
    measure = iterations.measure or "wall time"
    kept = iterations.kept if measure == "wall time" else iterations
    lengths_ns = kept.lengths_ns(measure)
    rounds = [lengths_ns[kept.round == number] for number in kept.numbers]
    faults = list(_of_machine(iterations, info))
    faults += [w for w in (_machine_speed(info),) if w]
    if len(kept) >= LEAST:
        state = _state(kept, measure, info)
        faults += [w for w in (state or _drift(rounds), _modes(rounds)) if w]
        faults += [] if faults else [w for w in (_spread(rounds),) if w]
    return faults


def profile_warnings(inflation_share: float | None, info: RunInfo) -> list[Warning]:
    """Whether the breakdown of the profiled steps can stand for the undisturbed ones."""
    if inflation_share is None or abs(inflation_share) <= INFLATION_SHARE:
        return []
    fault = f"the profiled steps took {inflation_share:+.0%} against the undisturbed ones"
    faults, timed = info.profiled_page_faults, _timed_page_faults(info)
    if faults and float(np.median(faults)) > max(MANY_FAULTS, MORE_FAULTS * (timed or 0)):
        return [
            Warning(
                INFLATION,
                f"{fault}, with {np.median(faults):,.0f} page faults each where those have"
                f" {timed or 0:,.0f}: beside a profiler the allocator leaves freed blocks unused",
                "preload another allocator (LD_PRELOAD=libjemalloc.so.2)",
                abs(inflation_share),
            )
        ]
    remedy = "read their breakdown with care; more profiled steps may help"
    return [Warning(INFLATION, fault, remedy, abs(inflation_share))]


def _timed_page_faults(info: RunInfo) -> float | None:
    """Of a counted iteration of the first round; None unknown."""
    faults, iterations = info.timing_page_faults, info.iterations
    return None if faults is None or not iterations else float(faults / iterations)


def _state(iterations: Iterations, measure: Measure, info: RunInfo) -> Warning | None:
    """A step that takes another time after its round's profile, in each round alike.

    Each round is a process of its own: what comes again in all of them is no chance of the machine.
    Where a yardstick changed with it by half as much, it is the machine; of fewer than three rounds
    where one changed by half as much at all.
    """
    pairs = iterations.timings(measure)
    changes = [math.log(np.median(after) / np.median(before)) for before, after in pairs]
    if not changes or not all(change * changes[0] > 0 for change in changes):
        return None
    change, error = float(np.mean(changes)), error_of_change(pairs)
    machine = yardsticks.change_of_rounds(info)
    alike = machine is not None and machine * change > 0 and abs(machine) >= abs(change) / 2
    if len(pairs) < CLUSTERS:  # nothing came again
        largest = yardsticks.largest_change(info)
        alike = largest is not None and 2 * largest.share >= abs(math.expm1(change))
    if alike or abs(change) <= max(error, math.log1p(DRIFT_SHARE)):
        return None
    rounds = "each of its rounds" if len(pairs) > 1 else "its only round"
    return Warning(
        STATE,
        f"its speed changes with its state: a step timed after the profile takes "
        f"{math.expm1(change):+.0%} against before it, in {rounds}",
        "more --warmup shows whether it settles; look for numbers that become denormal "
        "(--keep-denormals), and for memory, hooks or logs that grow with the steps",
        abs(math.expm1(change)),
    )


def _machine_speed(info: RunInfo) -> Warning | None:
    """A yardstick that changed between the rounds of a run, or within one."""
    largest = yardsticks.largest_change(info)
    if largest is None or largest.share <= yardsticks.STEADY_SHARE:
        return None
    return Warning(
        MACHINE,
        f"the machine itself changed its speed meanwhile: {largest.sentence}",
        "close other programs, or capture again when it is quiet",
        largest.size,
    )


def _drift(rounds: Sequence[Ints]) -> Warning | None:
    some = [series for series in rounds if len(series) >= LEAST_OF_DRIFT]
    if not some or abs(_mann_z(some)) < DRIFT_Z:
        return None
    thirds = [(s[: len(s) // 3], s[-(len(s) // 3) :]) for s in some]
    logs = [math.log(np.median(last) / np.median(first)) for first, last in thirds]
    change = math.expm1(float(np.mean(logs)))
    if abs(change) < DRIFT_SHARE:
        return None
    which = (
        "the series drifts: its last third is"
        if len(rounds) == 1
        else ("rounds drift: the last third of each is")
    )
    return Warning(
        DRIFT, f"{which} {change:+.0%} against its first", "give more --warmup", abs(change)
    )


def _mann_z(rounds: Sequence[Ints]) -> float:
    """Mann's statistic of a monotone trend in all ``rounds``, standardised.

    Of at most 1000 iterations of each.
    """
    score, variance = 0, 0.0
    for series in rounds:
        sample = series[:: -(-len(series) // 1000)]
        n = len(sample)
        score += int(np.sign(sample[None, :] - sample[:, None])[np.triu_indices(n, 1)].sum())
        variance += n * (n - 1) * (2 * n + 5) / 18
    return float((score - np.sign(score)) / math.sqrt(variance))


def _levelled(rounds: Sequence[Ints]) -> _Series:
    """All iterations as if the rounds had one median."""
    whole = float(np.median(np.concatenate(rounds)))
    middles = [float(np.median(series)) for series in rounds]
    levelled: _Series = np.concatenate(
        [s * (whole / middle if middle else 1.0) for s, middle in zip(rounds, middles, strict=True)]
    )
    return levelled


def _modes(rounds: Sequence[Ints]) -> Warning | None:
    ordered = np.sort(_levelled(rounds))
    least = max(int(MODE_SHARE * len(ordered)), 2)
    steps = np.diff(ordered)[least - 1 : len(ordered) - least]
    if not len(steps):
        return None
    at = least + int(steps.argmax())
    low, high = ordered[:at], ordered[at:]
    apart = high.mean() - low.mean()
    spread = np.sqrt(low.var() + high.var())
    if apart < MODES_APART_SHARE * ordered.mean() or np.sqrt(2) * apart <= MODES_D * spread:
        return None
    return Warning(
        MODES,
        f"the series has two modes, {milliseconds(low.mean(), 3)} and "
        f"{milliseconds(high.mean(), 3)} ms",
        "look for another process, a second NUMA node or clock changes; do not quote the mean",
        float(apart / low.mean()),
    )


def _spread(rounds: Sequence[Ints]) -> Warning | None:
    series = _levelled(rounds)
    share = float(series.std(ddof=1) / series.mean())
    if share <= SPREAD_SHARE:
        return None
    return Warning(
        SPREAD,
        f"the series is noisy: its standard deviation is {percent(share)} of its mean",
        "close other programs, time more iterations",
        0.0,
    )


def _of_machine(iterations: Iterations, info: RunInfo) -> Iterator[Warning]:
    load, cores, threads = info.load_average_before, info.hardware.cores, info.threads or 1
    share = iterations.cpu_share or _cpu_share(info)
    told = iterations.disturbed is not None and iterations.measure is not None
    taken = 0.0 if told else None if share is None else 1 - share
    # the load of the last minute may be that of the capture before this one
    if load and cores and load[0] > max(cores - threads, 0) + 0.5:
        yield Warning(
            BUSY,
            f"the machine was busy before: load {load[0]:.1f} on {cores} CPUs",
            "close other programs, or measure again",
            taken,
        )
    if iterations.disturbed is not None and iterations.cpu_ns is not None:
        yield from _disturbed(iterations, info)
    elif share is not None and share < CPU_SHARE:
        yield Warning(
            CPU_TAKEN,
            f"its process had its CPU for {percent(share)} of the time only",
            "close other programs, or measure again",
            taken if _often_preempted(info) else 0.0,
        )
    elif (
        share is None
        and info.device == "cpu"
        and info.timing_preemptions
        and _often_preempted(info)
    ):
        yield Warning(
            CPU_TAKEN,
            f"its process lost its CPU {_preemptions(info):.1f} times an iteration, to other "
            "processes or among its own threads",
            "close other programs, or give it fewer threads",
        )
    governor = info.hardware.cpu_governor
    if governor not in (None, "performance") and info.device == "cpu":
        yield Warning(GOVERNOR, f"the CPU governor is '{governor}'", "set it to 'performance'", 0.0)
    if info.loss_fell is False and len(iterations) >= LEAST:
        remedy = "check the workload: these steps may not train"
        yield Warning(LOSS, "the loss did not fall", remedy, 0.0)
    for reason in info.gpu_throttle_reasons or ():
        yield Warning(THROTTLED, f"the GPU was throttled: {reason}", "cool it, or lock its clocks")


def _disturbed(iterations: Iterations, info: RunInfo) -> Iterator[Warning]:
    """That iterations of one thread lost their CPU, and what was done about it."""
    assert iterations.disturbed is not None
    lost, share = int(iterations.disturbed.sum()), iterations.cpu_share or 0.0
    if lost <= MANY_DISTURBED_SHARE * len(iterations):
        return
    by_cpu = iterations.measure == "CPU time"
    counts = "their time without waits for it" if info.source == OWN_CODE else "CPU time"
    what = f"too many to leave them out: {counts} counts" if by_cpu else "which are left out"
    yield Warning(
        CPU_TAKEN,
        f"its process had its CPU for {percent(share)} of the time: "
        f"{number_of(lost, 'iteration', 'iterations')} of {len(iterations)} lost it, {what}",
        "close other programs, or measure again",
        0.0,
    )


def _often_preempted(info: RunInfo) -> bool:
    """Whether so many iterations lost the CPU that the median may be of such a one.

    One that waits by itself has its CPU for less of the time too, and loses it to nobody.
    """
    lost = _preemptions(info)
    return lost is None or lost >= OFTEN_PREEMPTED


def _preemptions(info: RunInfo) -> float | None:
    """Of a counted iteration of the first round; None unknown."""
    lost, iterations = info.timing_preemptions, info.iterations
    return None if lost is None or not iterations else lost / iterations


def _cpu_share(info: RunInfo) -> float | None:
    """CPU time over wall time of the timing pass, where one thread did it all; None unknown."""
    cpu, wall = info.timing_cpu_ns, info.timing_wall_ns
    if not cpu or not wall or not one_thread(info):
        return None
    return float(min(cpu / wall, 1.0))


def between_processes(info: RunInfo) -> float:
    """The spread between processes that is usual where the machine was as busy as before this run.

    A process has a core for itself where others leave one of two CPUs, which often share a core.
    """
    load, cores = info.load_average_before, info.hardware.cores
    if not load or not cores:
        return QUIET_BETWEEN_PROCESSES
    busy = load[0] + (info.threads or 1) > cores / 2 + BUSY_LOAD
    return BUSY_BETWEEN_PROCESSES if busy else QUIET_BETWEEN_PROCESSES
