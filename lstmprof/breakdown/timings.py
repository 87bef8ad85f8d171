"""Statistics of the undisturbed pass, what the profiler added, and whether they can be trusted.

Reads the wall times of the counted iterations and what run.json says of the machine.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lstmprof.breakdown.doubts import Warning, between_processes, profile_warnings, warnings
from lstmprof.breakdown.rounds import (
    CLUSTERS,
    LEAST_FOR_INTERVAL,
    QUIET_BETWEEN_PROCESSES,
    Round,
    error_of,
    rounds_of,
)
from lstmprof.events.schema import Column
from lstmprof.runs.metadata import RunInfo

_FEW = f"fewer than {LEAST_FOR_INTERVAL} iterations count"
_ENERGY = "by %s, a step, over the counted iterations of the first round"

COLUMNS = (
    Column("iterations", pa.int64(), "", "iterations that count: those after warm-up"),
    Column("median_ns", pa.float64(), "ns", "median wall time"),
    Column(
        "median_low_ns",
        pa.float64(),
        "ns",
        "low end of the median's 95 % interval: rounds are clusters, and of fewer than "
        f"{CLUSTERS} a usual spread between processes is part of it (breakdown/rounds.py)",
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
    warnings: tuple[Warning, ...]


def timings(table: pa.Table, info: RunInfo) -> Timings | None:
    """Statistics of ``timings.parquet``; None where no iteration came after warm-up."""
    counted = table.filter(pc.invert(table.column("warmup")))
    walls = counted.column("wall_ns").to_pylist()
    if not walls:
        return None
    median = statistics.median(walls)
    batch, words = info.workload.batch, info.workload.words
    profiled = info.profiled_wall_ns
    rounds = rounds_of(table)
    low, high = median_interval(median, rounds, between_processes(info))
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
        rounds=len(rounds),
        warnings=tuple(doubts),
    )


def _per_step(table: pa.Table, energy_j: float | None) -> float | None:
    first = table.filter(pc.equal(table.column("round"), 0))
    steps = pc.sum(pc.invert(first.column("warmup"))).as_py()
    return None if energy_j is None or not steps else energy_j / steps


def median_interval(
    median_ns: float, rounds: Sequence[Round], between: float = QUIET_BETWEEN_PROCESSES
) -> tuple[float | None, float | None]:
    """The 95 % interval of the median of all ``rounds``, None where they are too short for one."""
    error = error_of(rounds, between)
    if error is None or (len(rounds) < CLUSTERS and any(r.low_ns is None for r in rounds)):
        return None, None
    return median_ns * math.exp(-error), median_ns * math.exp(error)


def slowdowns(medians_ns: Mapping[int, float]) -> dict[int, float]:
    """How many times as long as the fastest each run takes; keys as given."""
    fastest = min(medians_ns.values(), default=0.0)
    return {key: median / fastest for key, median in medians_ns.items() if fastest > 0}
