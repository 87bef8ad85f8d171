"""Statistics of the undisturbed pass, what the profiler added, and whether they can be trusted.

Reads the iterations that count (``breakdown/iterations.py``) and what run.json says of the machine.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lstmprof.breakdown.doubts import Warning, between_processes, profile_warnings, warnings
from lstmprof.breakdown.iterations import LEAST_OF_ROUND, Iterations, Measure, iterations_of
from lstmprof.breakdown.rounds import (
    CLUSTERS,
    LEAST_FOR_INTERVAL,
    QUIET_BETWEEN_PROCESSES,
    Round,
    error_of,
)
from lstmprof.events.schema import Column
from lstmprof.runs.metadata import RunInfo

_FEW = f"fewer than {LEAST_FOR_INTERVAL} iterations count"
_UNTOLD = "an older lstmprof made the run, or the machine does not tell"
_MANY = f"{_UNTOLD}; several threads or a device did the work"
_ENERGY = "by %s, a step, over the counted iterations of the first round"

COLUMNS = (
    Column(
        "iterations",
        pa.int64(),
        "",
        "iterations that count: those after warm-up, and of these those alone that kept their CPU, "
        f"where each round has {LEAST_OF_ROUND} such",
    ),
    Column(
        "disturbed",
        pa.int64(),
        "",
        "iterations after warm-up that lost their CPU to other processes",
        _UNTOLD,
    ),
    Column(
        "compared_by",
        pa.string(),
        "",
        "wall time of the iterations that count, or CPU time of all where too many were disturbed "
        "and one thread did the work",
        "too many were disturbed, and several threads or a device did it",
    ),
    Column(
        "step_ns",
        pa.float64(),
        "ns",
        "wall time of a step: interquartile mean of the iterations; where workers took turns, of "
        "the median iterations of turns",
    ),
    Column(
        "step_low_ns",
        pa.float64(),
        "ns",
        "low end of its 95 % interval: rounds are clusters, and of fewer than "
        f"{CLUSTERS} a usual spread between processes is part of it (breakdown/rounds.py)",
        _FEW,
    ),
    Column("step_high_ns", pa.float64(), "ns", "high end of it", _FEW),
    Column("cpu_step_ns", pa.float64(), "ns", "CPU time of all after warm-up, as step_ns", _MANY),
    Column("cpu_step_low_ns", pa.float64(), "ns", "low end of its 95 % interval", _MANY),
    Column("cpu_step_high_ns", pa.float64(), "ns", "high end of it", _MANY),
    Column("median_ns", pa.float64(), "ns", "median wall time"),
    Column("mean_ns", pa.float64(), "ns", "mean wall time"),
    Column("std_ns", pa.float64(), "ns", "sample standard deviation (n − 1)", "one iteration"),
    Column("p95_ns", pa.int64(), "ns", "95th percentile of the wall times, nearest rank"),
    Column("samples_per_s", pa.float64(), "1/s", "batch divided by step_ns", "no workload"),
    Column(
        "words_per_s",
        pa.float64(),
        "1/s",
        "batch × time steps divided by step_ns",
        "the workload reads no tokens",
    ),
    Column("compile_ns", pa.int64(), "ns", "first step of the process", "it was not captured"),
    Column(
        "inflation_share",
        pa.float64(),
        "share",
        "median profiled step over step_ns, less 1",
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
    disturbed: int | None
    compared_by: Measure | None
    step_ns: float
    step_low_ns: float | None
    step_high_ns: float | None
    cpu_step_ns: float | None
    cpu_step_low_ns: float | None
    cpu_step_high_ns: float | None
    median_ns: float
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

    @property
    def length_ns(self) -> float:
        """Of an undisturbed step, by what is closest to it."""
        by_cpu = self.compared_by == "CPU time" and self.cpu_step_ns is not None
        return self.cpu_step_ns if by_cpu and self.cpu_step_ns else self.step_ns


def timings(table: pa.Table, info: RunInfo) -> Timings | None:
    """Statistics of ``timings.parquet``; None where no iteration came after warm-up."""
    counted = iterations_of(table, info)
    if not len(counted):
        return None
    walls, usual = counted.kept.wall_ns.tolist(), between_processes(info)
    step, rounds = counted.kept.length_ns(), counted.kept.rounds()
    low, high = interval_of(step, rounds, usual)
    cpu = None if counted.cpu_ns is None else counted.length_ns("CPU time")
    cpu_rounds = () if cpu is None else counted.rounds("CPU time")
    cpu_ends = interval_of(cpu or 0.0, cpu_rounds, usual)
    batch, words = info.workload.batch, info.workload.words
    profiled = info.profiled_wall_ns
    inflation = statistics.median(profiled) / step - 1 if profiled and step else None
    doubts = [*warnings(counted, info), *profile_warnings(inflation, info)]
    return Timings(
        iterations=len(walls),
        disturbed=None if counted.disturbed is None else int(counted.disturbed.sum()),
        compared_by=counted.measure,
        step_ns=step,
        step_low_ns=low,
        step_high_ns=high,
        cpu_step_ns=cpu,
        cpu_step_low_ns=cpu_ends[0],
        cpu_step_high_ns=cpu_ends[1],
        median_ns=float(statistics.median(walls)),
        mean_ns=statistics.fmean(walls),
        std_ns=statistics.stdev(walls) if len(walls) > 1 else None,
        p95_ns=sorted(walls)[max(-(-95 * len(walls) // 100), 1) - 1],
        samples_per_s=batch / step * 1e9 if batch and step else None,
        words_per_s=words / step * 1e9 if words and step else None,
        compile_ns=info.compile_ns,
        inflation_share=inflation,
        cpu_energy_j=_per_step(table, info.timing_cpu_energy_j),
        gpu_energy_j=_per_step(table, info.timing_gpu_energy_j),
        rounds=len(rounds),
        warnings=tuple(doubts),
    )


@dataclass(frozen=True)
class CpuTime:
    """CPU time of an undisturbed step, where one thread of a CPU did it all."""

    step_ns: int
    interval_ns: tuple[float, float] | None
    rounds: tuple[Round, ...]


def cpu_time(timings: Timings | None, iterations: Iterations | None) -> CpuTime | None:
    """By CPU time what ``iterations`` took; None where it is unknown or several threads ran."""
    if timings is None or iterations is None or timings.cpu_step_ns is None:
        return None
    ends = timings.cpu_step_low_ns, timings.cpu_step_high_ns
    interval = None if ends[0] is None or ends[1] is None else (ends[0], ends[1])
    return CpuTime(round(timings.cpu_step_ns), interval, iterations.rounds("CPU time"))


def left_out(iterations: Iterations | None) -> list[str]:
    """How many timed iterations were left out, where any was."""
    whole = 0 if iterations is None else len(iterations)
    out = whole - (0 if iterations is None else len(iterations.kept))
    return [f"{out} of {whole} timed iterations lost their CPU and are left out"] if out else []


def _per_step(table: pa.Table, energy_j: float | None) -> float | None:
    first = table.filter(pc.equal(table.column("round"), 0))
    steps = pc.sum(pc.invert(first.column("warmup"))).as_py()
    return None if energy_j is None or not steps else energy_j / steps


def interval_of(
    step_ns: float, rounds: Sequence[Round], between: float = QUIET_BETWEEN_PROCESSES
) -> tuple[float | None, float | None]:
    """The 95 % interval of the step of all ``rounds``, None where they are too short for one."""
    error = error_of(rounds, between)
    if error is None or (len(rounds) < CLUSTERS and any(r.low_ns is None for r in rounds)):
        return None, None
    return step_ns * math.exp(-error), step_ns * math.exp(error)


def compared_ns(runs: Sequence[tuple[int, Timings]]) -> dict[int, float]:
    """The lengths by which ``runs`` are compared, keys as given.

    CPU time where one of them lost its CPU too often and all have it.
    """
    cpu = {key: t.cpu_step_ns for key, t in runs if t.cpu_step_ns is not None}
    if len(cpu) == len(runs) and any(t.compared_by == "CPU time" for _, t in runs):
        return cpu
    return {key: t.step_ns for key, t in runs if t.compared_by == "wall time"}


def slowdowns(steps_ns: Mapping[int, float]) -> dict[int, float]:
    """How many times as long as the fastest each run takes; keys as given."""
    fastest = min(steps_ns.values(), default=0.0)
    return {key: step / fastest for key, step in steps_ns.items() if fastest > 0}
