"""The step of a run and how its timed iterations lie about it.

Reads timings.parquet, run.json and the clean step (``clean_step``), by which runs are compared.
What the timed iterations took beyond it was lost to other processes, threads and noise.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lstmprof.breakdown.doubts import Warning, warnings
from lstmprof.breakdown.iterations import cpu_share, iterations_of, known
from lstmprof.breakdown.spans import Span
from lstmprof.events.schema import Column
from lstmprof.numbers import milliseconds, percent
from lstmprof.runs.metadata import RunInfo

_FEW = "the run has no profile of its steps"
_ENERGY = "energy per step by %s, over the counted iterations of the first round"
#: Less of a step that is lost is not mentioned.
LEAST_LOST = 0.1
_UNTOLD = "an older lstmprof wrote the run, or the machine does not report this value"

COLUMNS = (
    Column.integer("iterations", "number of timed iterations after warm-up"),
    Column.real(
        "step_ns",
        "the clean step: the time of a step if nothing disturbs it; typical_ns if no step was "
        "profiled",
    ),
    Column.real("step_low_ns", "low end of the 95 % interval of step_ns", _FEW),
    Column.real("step_high_ns", "high end of the 95 % interval of step_ns", _FEW),
    Column.real(
        "lost_ns",
        "time by which the median iteration exceeds the clean step: other "
        "processes, waiting threads and noise",
        "the median iteration is not longer",
    ),
    Column.real(
        "cpu_share",
        "share of the time in which the thread that runs the steps did not wait for a CPU",
        f"{_UNTOLD}, or the capture has several threads or a device",
    ),
    Column.real("preemptions", "number of involuntary context switches per iteration", _UNTOLD),
    Column.real("typical_ns", "10th percentile of the iterations' wall times"),
    Column.real("median_ns", "median of the iterations' wall times"),
    Column.real("mean_ns", "mean of the iterations' wall times"),
    Column.real(
        "std_ns",
        "sample standard deviation of the wall times (n − 1)",
        "there is only one iteration",
    ),
    Column.integer("p95_ns", "95th percentile of the wall times, nearest rank"),
    Column.real(
        "samples_per_s", "sequences per second: batch divided by step_ns", "the workload is unknown"
    ),
    Column.real(
        "words_per_s",
        "tokens per second: batch × time steps divided by step_ns",
        "the workload reads no tokens",
    ),
    Column.integer(
        "compile_ns",
        "length of the first step of the process, which includes compilation",
        "the run is not a capture",
    ),
    Column.real(
        "inflation_share",
        "median profiled step divided by the median iteration, minus 1",
        "no step was profiled",
    ),
    Column.real("cpu_energy_j", _ENERGY % "RAPL", "RAPL cannot be read"),
    Column.real(
        "gpu_energy_j",
        _ENERGY % "NVML",
        "NVML cannot be read, MIG divides the GPU, or the iterations took less than 1 s",
    ),
    Column.integer("rounds", "number of processes that ran the iterations"),
    Column("warnings", pa.list_(pa.string()), "", "reasons to doubt the times, each with a remedy"),
)


@dataclass(frozen=True)
class Timings:
    """Statistics of the iterations that were timed without a profiler, without warm-up.

    Lengths are in ns, energies in J; docs/tables.md describes each field ("Statistics of the
    timings"), and says when it is None.
    """

    iterations: int
    step_ns: float
    step_low_ns: float | None
    step_high_ns: float | None
    lost_ns: float | None
    cpu_share: float | None
    preemptions: float | None
    typical_ns: float
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


def timings(table: pa.Table, info: RunInfo, clean: Span | None = None) -> Timings | None:
    """Return the statistics of ``timings.parquet``; None if no iteration came after warm-up.

    ``clean`` is the clean step, None if no step was profiled.
    """
    counted = iterations_of(table)
    if not len(counted):
        return None
    walls = counted.wall_ns.tolist()
    step = counted.typical_ns if clean is None else clean.ns
    median = float(statistics.median(walls))
    batch, words = info.workload.batch, info.workload.words
    profiled = info.profiled_wall_ns
    inflation = statistics.median(profiled) / median - 1 if profiled and median else None
    return Timings(
        iterations=len(walls),
        step_ns=step,
        step_low_ns=None if clean is None else clean.low_ns,
        step_high_ns=None if clean is None else clean.high_ns,
        lost_ns=median - step if median > step else None,
        cpu_share=cpu_share(table, info),
        preemptions=_per_iteration(table, "preemptions"),
        typical_ns=counted.typical_ns,
        median_ns=median,
        mean_ns=statistics.fmean(walls),
        std_ns=statistics.stdev(walls) if len(walls) > 1 else None,
        p95_ns=sorted(walls)[max(-(-95 * len(walls) // 100), 1) - 1],
        samples_per_s=batch / step * 1e9 if batch and step else None,
        words_per_s=words / step * 1e9 if words and step else None,
        compile_ns=info.compile_ns,
        inflation_share=inflation,
        cpu_energy_j=_per_step(table, info.timing_cpu_energy_j),
        gpu_energy_j=_per_step(table, info.timing_gpu_energy_j),
        rounds=len(counted.numbers),
        warnings=tuple(warnings(counted, info)),
    )


def lost_in_words(
    lost_ns: float | None, step_ns: float, cpu_share: float | None, preemptions: float | None = None
) -> str:
    """What the median iteration lost, with its evidence; empty if that is under ``LEAST_LOST``."""
    if not lost_ns or lost_ns < LEAST_LOST * step_ns:
        return ""
    median = milliseconds(lost_ns + step_ns)
    evidence = []
    if cpu_share is not None and cpu_share < 1:
        evidence.append(f"the step's thread waited for a CPU {percent(1 - cpu_share)} of the time")
    if preemptions:
        evidence.append(f"other threads preempted it {preemptions:,.1f} times per step")
    more = f"{milliseconds(lost_ns)} ms more than the clean step (due to other processes and noise)"
    text = f"the median timed step took {median} ms, {more}"
    return "; ".join([text, *evidence])


def _per_iteration(table: pa.Table, column: str) -> float | None:
    values = known(table.filter(pc.invert(table.column("warmup"))), column)
    return None if values is None else float(values.mean())


def _per_step(table: pa.Table, energy_j: float | None) -> float | None:
    first = table.filter(pc.equal(table.column("round"), 0))
    steps = pc.sum(pc.invert(first.column("warmup"))).as_py()
    return None if energy_j is None or not steps else energy_j / steps


def slowdowns(steps_ns: Mapping[int, float]) -> dict[int, float]:
    """Return how many times as long as the fastest each run takes; keys as given."""
    fastest = min(steps_ns.values(), default=0.0)
    return {key: step / fastest for key, step in steps_ns.items() if fastest > 0}
