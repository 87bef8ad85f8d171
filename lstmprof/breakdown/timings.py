"""Statistics of the undisturbed pass, what the profiler added, and whether they can be trusted.

Reads the wall times of the counted iterations and what run.json says of the machine. Every warning
comes with its remedy. Sources: drift by Mann's test (H. Mann, Econometrica 13, 1945); two modes by
Ashman's D (K. Ashman et al., Astronomical Journal 108, 1994).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lstmprof.events.intervals import Ints
from lstmprof.events.schema import Column
from lstmprof.numbers import milliseconds
from lstmprof.runs.metadata import RunInfo

LEAST_FOR_INTERVAL = 6
RESAMPLES = 2000


_FEW = f"fewer than {LEAST_FOR_INTERVAL} iterations count"
_ENERGY = "by %s, a step, over the counted iterations of the first round"

COLUMNS = (
    Column("iterations", pa.int64(), "", "iterations that count: those after warm-up"),
    Column("median_ns", pa.float64(), "ns", "median wall time"),
    Column(
        "median_low_ns",
        pa.float64(),
        "ns",
        "low end of the median's bootstrap 95 % interval (percentile method, B. Efron 1979)",
        _FEW,
    ),
    Column("median_high_ns", pa.float64(), "ns", "high end of it", _FEW),
    Column("mean_ns", pa.float64(), "ns", "mean wall time"),
    Column("std_ns", pa.float64(), "ns", "sample standard deviation (n − 1)", "one iteration"),
    Column("p95_ns", pa.int64(), "ns", "95th percentile of the wall times, nearest rank"),
    Column("samples_per_s", pa.float64(), "1/s", "batch divided by median_ns", "no workload"),
    Column(
        "words_per_s",
        pa.float64(),
        "1/s",
        "batch × time steps divided by median_ns",
        "the workload reads no tokens",
    ),
    Column("compile_ns", pa.int64(), "ns", "first step of the process", "it was not captured"),
    Column(
        "inflation_share",
        pa.float64(),
        "share",
        "median profiled step over the median undisturbed one, less 1",
        "no step was profiled",
    ),
    Column("cpu_energy_j", pa.float64(), "J", _ENERGY % "RAPL", "RAPL cannot be read"),
    Column("gpu_energy_j", pa.float64(), "J", _ENERGY % "NVML", "NVML cannot be read"),
    Column("rounds", pa.int64(), "", "worker processes that ran them"),
    Column("warnings", pa.list_(pa.string()), "", "reasons not to trust them, with the remedy"),
)


@dataclass(frozen=True)
class Timings:
    """Of the iterations after warm-up: the fields are ``COLUMNS``; None is unknown."""

    iterations: int
    median_ns: float
    median_low_ns: float | None
    median_high_ns: float | None
    mean_ns: float
    std_ns: float | None
    p95_ns: int
    samples_per_s: float | None
    words_per_s: float | None
    compile_ns: int | None
    inflation_share: float | None
    cpu_energy_j: float | None
    gpu_energy_j: float | None
    rounds: int
    warnings: tuple[str, ...]


def timings(table: pa.Table, info: RunInfo) -> Timings | None:
    """Statistics of ``timings.parquet``; None where no iteration came after warm-up."""
    counted = table.filter(pc.invert(table.column("warmup")))
    walls = counted.column("wall_ns").to_pylist()
    if not walls:
        return None
    median = statistics.median(walls)
    batch, words = info.workload.batch, info.workload.words
    profiled = info.profiled_wall_ns
    low, high = median_interval(walls)
    inflation = statistics.median(profiled) / median - 1 if profiled and median else None
    doubts = [*warnings(walls, info), *profile_warnings(inflation, info)]
    return Timings(
        iterations=len(walls),
        median_ns=float(median),
        median_low_ns=low,
        median_high_ns=high,
        mean_ns=statistics.fmean(walls),
        std_ns=statistics.stdev(walls) if len(walls) > 1 else None,
        p95_ns=sorted(walls)[max(-(-95 * len(walls) // 100), 1) - 1],
        samples_per_s=batch / median * 1e9 if batch and median else None,
        words_per_s=words / median * 1e9 if words and median else None,
        compile_ns=info.compile_ns,
        inflation_share=inflation,
        cpu_energy_j=_per_step(table, info.timing_cpu_energy_j),
        gpu_energy_j=_per_step(table, info.timing_gpu_energy_j),
        rounds=len(counted.column("round").unique()),
        warnings=tuple(f"{w.fault}; {w.remedy}" for w in doubts),
    )


def _per_step(table: pa.Table, energy_j: float | None) -> float | None:
    first = table.filter(pc.equal(table.column("round"), 0))
    steps = pc.sum(pc.invert(first.column("warmup"))).as_py()
    return None if energy_j is None or not steps else energy_j / steps


def median_interval(walls_ns: Sequence[int]) -> tuple[float | None, float | None]:
    """The bootstrap 95 % interval of the median; the same series gives the same interval."""
    if len(walls_ns) < LEAST_FOR_INTERVAL:
        return None, None
    generator = np.random.default_rng(0)
    picked = generator.integers(0, len(walls_ns), (RESAMPLES, len(walls_ns)))
    medians = np.median(np.asarray(walls_ns)[picked], axis=1)
    low, high = np.percentile(medians, (2.5, 97.5))
    return float(low), float(high)


def slowdowns(medians_ns: Mapping[int, float]) -> dict[int, float]:
    """How many times as long as the fastest each run takes; keys as given."""
    fastest = min(medians_ns.values(), default=0.0)
    return {key: median / fastest for key, median in medians_ns.items() if fastest > 0}


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
                f"{fault}, with {np.median(faults):,.0f} page faults each where those have"
                f" {timed or 0:,.0f}: beside a profiler the allocator leaves freed blocks unused",
                "preload another allocator (LD_PRELOAD=libjemalloc.so.2)",
            )
        ]
    return [Warning(fault, "read their breakdown with care; more --profile-steps may help")]


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
