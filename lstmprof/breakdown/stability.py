"""Whether a timing series can be trusted, and what to do where it cannot.

Reads the wall times of the counted iterations and what run.json says of the machine. Every warning
comes with its remedy. Sources: drift by Mann's test (H. Mann, Econometrica 13, 1945); two modes by
Ashman's D (K. Ashman et al., Astronomical Journal 108, 1994).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

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
#: Above this the profiled steps are other steps than the undisturbed ones.
INFLATION_SHARE = 0.25
#: glibc's posix_memalign leaves freed blocks unused between a profiler's records (torch 2.13, glibc
#: 2.36, Keras's quadratic backward pass): 280,000 faults a step there, without a profiler 19,000.
MANY_FAULTS, MORE_FAULTS = 10_000, 3


@dataclass(frozen=True)
class Warning:
    """One reason not to trust a series, and the remedy."""

    fault: str
    remedy: str


def warnings(walls_ns: Sequence[int], info: RunInfo) -> list[Warning]:
    """Every reason not to trust the series ``walls_ns`` of a run with run.json ``info``."""
    series = np.asarray(walls_ns, dtype=np.int64)
    found = list(_of_machine(series, info))
    if len(series) >= LEAST:
        found += [w for w in (_drift(series), _modes(series)) if w]
        found += [] if found else [w for w in (_spread(series),) if w]
    return found


def profile_warnings(inflation_share: float | None, info: RunInfo) -> list[Warning]:
    """Whether the account of the profiled steps can stand for the undisturbed ones."""
    if inflation_share is None or abs(inflation_share) <= INFLATION_SHARE:
        return []
    fault = f"the profiled steps took {inflation_share:+.0%} against the undisturbed ones"
    faults, before = info.profiled_page_faults, _timed_page_faults(info)
    if faults and float(np.median(faults)) > max(MANY_FAULTS, MORE_FAULTS * (before or 0)):
        return [
            Warning(
                f"{fault}, with {np.median(faults):,.0f} page faults each where those have"
                f" {before or 0:,.0f}: beside a profiler the allocator leaves freed blocks unused",
                "preload another allocator (LD_PRELOAD=libjemalloc.so.2)",
            )
        ]
    return [Warning(fault, "read their account with care; more --profile-steps may help")]


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
        f"the series drifts: its last third is {change:+.0%} against its first",
        "more --warmup, or --rounds so that all implementations see the same machine",
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
        f"the series has two modes, {milliseconds(low.mean(), 3)} and "
        f"{milliseconds(high.mean(), 3)} ms",
        "look for another process, a second NUMA node or clock changes; do not quote the mean",
    )


def _spread(series: Ints) -> Warning | None:
    share = float(series.std(ddof=1) / series.mean())
    if share <= SPREAD_SHARE:
        return None
    return Warning(
        f"the series is noisy: its standard deviation is {share:.0%} of its mean",
        "close other programs, give more --iterations",
    )


def _of_machine(series: Ints, info: RunInfo) -> Iterator[Warning]:
    load, cores, threads = info.load_average_before, info.hardware.cores, info.threads or 1
    # the load of the last minute may be that of the capture before this one
    if load and cores and load[0] > max(cores - threads, 0) + 0.5:
        yield Warning(
            f"the machine was busy before: load {load[0]:.1f} on {cores} CPUs",
            "close other programs, or capture again with --force",
        )
    share = _cpu_share(info)
    if share is not None and share < CPU_SHARE:
        yield Warning(
            f"the worker had its CPU for {share:.0%} of the time only",
            "close other programs, or capture again with --force",
        )
    governor = info.hardware.cpu_governor
    if governor not in (None, "performance") and info.device == "cpu":
        yield Warning(f"the CPU governor is '{governor}'", "set it to 'performance'")
    if info.loss_fell is False and len(series) >= LEAST:
        yield Warning("the loss did not fall", "check the workload: these steps may not train")
    for reason in info.gpu_throttle_reasons or ():
        yield Warning(f"the GPU was throttled: {reason}", "cool it, or lock its clocks")


def _cpu_share(info: RunInfo) -> float | None:
    """CPU time over wall time of the timing pass, where one thread did it all; None unknown."""
    cpu, wall = info.timing_cpu_ns, info.timing_wall_ns
    if not cpu or not wall or info.device != "cpu" or info.threads != 1:
        return None
    return float(min(cpu / wall, 1.0))
