"""Reasons not to trust the times of a run, or its profile: their kind, size and remedy.

Reads the wall times of the counted iterations and what run.json says of the machine. Sources: drift
by Mann's test (H. Mann, Econometrica 13, 1945); two modes by Ashman's D (K. Ashman et al.,
Astronomical Journal 108, 1994).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lstmprof.breakdown.rounds import BUSY_BETWEEN_PROCESSES, QUIET_BETWEEN_PROCESSES
from lstmprof.events.intervals import Ints
from lstmprof.numbers import milliseconds
from lstmprof.runs.metadata import RunInfo

#: Fewer iterations say too little for any of the tests.
LEAST = 10
#: Mann's z for p < 0.001, two-sided; a drift of less than DRIFT_SHARE is let pass.
DRIFT_Z, DRIFT_SHARE = 3.29, 0.03
#: Ashman's D above 2 separates two normal modes, but halves of an even spread have 3.5 already;
#: both modes must hold MODE_SHARE of the iterations.
MODES_D, MODE_SHARE, MODES_APART_SHARE = 4.0, 0.15, 0.05
SPREAD_SHARE = 0.10
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


@dataclass(frozen=True)
class Warning:
    """One reason not to trust a series, and the remedy.

    ``size`` is the share of the median step by which it may be off for that reason; 0 where the
    reason does not touch its length or the interval holds it already, None unknown.
    """

    kind: str
    fault: str
    remedy: str
    size: float | None = None

    def __str__(self) -> str:
        return f"{self.fault}; {self.remedy}"


def warnings(walls_ns: Sequence[int], info: RunInfo) -> list[Warning]:
    """Every reason not to trust the series ``walls_ns`` of a run with run.json ``info``."""
    series = np.asarray(walls_ns, dtype=np.int64)
    faults = list(_of_machine(series, info))
    if len(series) >= LEAST:
        faults += [w for w in (_drift(series), _modes(series)) if w]
        faults += [] if faults else [w for w in (_spread(series),) if w]
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
    remedy = "read their breakdown with care; more --profile-steps may help"
    return [Warning(INFLATION, fault, remedy, abs(inflation_share))]


def _timed_page_faults(info: RunInfo) -> float | None:
    """Of a counted iteration of the first round; None unknown."""
    faults, iterations = info.timing_page_faults, info.iterations
    return None if faults is None or not iterations else float(faults / iterations)


def _drift(series: Ints) -> Warning | None:
    third = max(len(series) // 3, 1)
    first, last = np.median(series[:third]), np.median(series[-third:])
    change = float(last / first) - 1
    if abs(change) < DRIFT_SHARE or abs(_mann_z(series)) < DRIFT_Z:
        return None
    return Warning(
        DRIFT,
        f"the series drifts: its last third is {change:+.0%} against its first",
        "more --warmup, or --rounds so that all implementations see the same machine",
        abs(change),
    )


def _mann_z(series: Ints) -> float:
    """Mann's statistic of a monotone trend, standardised; of at most 1000 iterations."""
    sample = series[:: -(-len(series) // 1000)]
    n = len(sample)
    score = int(np.sign(sample[None, :] - sample[:, None])[np.triu_indices(n, 1)].sum())
    return float((score - np.sign(score)) / np.sqrt(n * (n - 1) * (2 * n + 5) / 18))


def _modes(series: Ints) -> Warning | None:
    ordered = np.sort(series)
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
        float(apart / np.median(series)),
    )


def _spread(series: Ints) -> Warning | None:
    share = float(series.std(ddof=1) / series.mean())
    if share <= SPREAD_SHARE:
        return None
    return Warning(
        SPREAD,
        f"the series is noisy: its standard deviation is {share:.0%} of its mean",
        "close other programs, give more --iterations",
        0.0,
    )


def _of_machine(series: Ints, info: RunInfo) -> Iterator[Warning]:
    load, cores, threads = info.load_average_before, info.hardware.cores, info.threads or 1
    share = _cpu_share(info)
    taken = None if share is None else 1 - share
    # the load of the last minute may be that of the capture before this one
    if load and cores and load[0] > max(cores - threads, 0) + 0.5:
        yield Warning(
            BUSY,
            f"the machine was busy before: load {load[0]:.1f} on {cores} CPUs",
            "close other programs, or capture again with --force",
            taken,
        )
    if share is not None and share < CPU_SHARE:
        yield Warning(
            CPU_TAKEN,
            f"the worker had its CPU for {share:.0%} of the time only",
            "close other programs, or capture again with --force",
            taken if _often_preempted(info) else 0.0,
        )
    if (
        share is None
        and info.device == "cpu"
        and info.timing_preemptions
        and _often_preempted(info)
    ):
        yield Warning(
            CPU_TAKEN,
            f"the worker lost its CPU {_preemptions(info):.1f} times an iteration, to other "
            "processes or among its own threads",
            "close other programs, or give fewer --threads",
        )
    governor = info.hardware.cpu_governor
    if governor not in (None, "performance") and info.device == "cpu":
        yield Warning(GOVERNOR, f"the CPU governor is '{governor}'", "set it to 'performance'", 0.0)
    if info.loss_fell is False and len(series) >= LEAST:
        remedy = "check the workload: these steps may not train"
        yield Warning(LOSS, "the loss did not fall", remedy, 0.0)
    for reason in info.gpu_throttle_reasons or ():
        yield Warning(THROTTLED, f"the GPU was throttled: {reason}", "cool it, or lock its clocks")


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
    if not cpu or not wall or info.device != "cpu" or info.threads != 1:
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
