"""The step of a run, the statistics of its timed iterations, and reasons to doubt them.

Reads timings.parquet, run.json and the clean step (``clean_step``), by which runs are compared.
Time of the iterations beyond the clean step was lost to other processes, threads and noise. Load,
preemptions and drift are no reasons for doubt, because the clean step does not contain them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lstmprof.breakdown.slot_times import Span
from lstmprof.events.annotate import OWN_CODE
from lstmprof.events.intervals import Ints
from lstmprof.events.schema import Column
from lstmprof.numbers import milliseconds, percent
from lstmprof.runs.metadata import RunInfo

#: Fewer iterations before and after the profile say nothing about a change.
LEAST = 5
#: If steps take longer after the profile by more than this share, their state has changed. Chosen
#: by hand, above the differences between rounds of one process on a quiet machine.
STATE_SHARE, LEAST_ROUNDS = 0.25, 2

#: A thread has its process for itself if the other threads run for this share of the time at most.
#: Chosen by hand.
ALONE_SHARE = 0.02

#: Kinds of ``Warning``.
GOVERNOR, LOSS, THROTTLED, STATE = "governor", "loss", "clocks", "state"


@dataclass(frozen=True)
class Warning:
    """A reason to doubt the times of a run (``fault``), and what to do about it (``remedy``)."""

    kind: str
    fault: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.fault}; {self.remedy}"


def warnings(iterations: Iterations, info: RunInfo) -> Iterator[Warning]:
    """Yield every reason to doubt the ``iterations`` of a run with run.json ``info``."""
    governor = info.hardware.cpu_governor
    if governor not in (None, "performance") and info.device == "cpu":
        yield Warning(
            GOVERNOR, f"the CPU governor is '{governor}'", "set the governor to 'performance'"
        )
    if info.loss_fell is False and len(iterations) >= 2 * LEAST:
        yield Warning(LOSS, "the loss did not fall", "check that the network learns")
    for reason in info.gpu_throttle_reasons or ():
        yield Warning(
            THROTTLED, f"the GPU was throttled: {reason}", "cool the GPU, or lock its clocks"
        )
    change = _change_of_state(iterations.before_and_after())
    if change is not None:
        yield Warning(
            STATE,
            f"steps took {1 + change:.2f}× as long after profiling, in every round",
            "look for denormal numbers (see --keep-denormals), and for memory use, hooks or logs "
            "that grow from step to step",
        )


def _change_of_state(pairs: list[tuple[Ints, Ints]]) -> float | None:
    """Return by how much steps take longer after the profile; None unless this holds in every
    round.

    The fastest iterations after the profile must be slower than all iterations before. At least
    ``LEAST_ROUNDS`` rounds are required, because in one round the machine may have changed.
    """
    some = [(before, after) for before, after in pairs if min(len(before), len(after)) >= LEAST]
    if len(some) < max(len(pairs), LEAST_ROUNDS):
        return None
    changes = [math.log(np.min(after) / np.max(before)) for before, after in some]
    if min(changes) <= 0:
        return None
    medians = [float(np.median(after) / np.median(before)) for before, after in some]
    change = float(np.mean(medians)) - 1
    return change if change >= STATE_SHARE else None


Bools = NDArray[np.bool_]

#: The quantile of the timed iterations, and of a slot's times, that counts as clean.
QUANTILE = 0.1


@dataclass(frozen=True)
class Iterations:
    """The iterations after warm-up, in order; arrays have one entry per iteration.

    ``late``: timed after the round's profile.
    """

    round: Ints
    late: Bools
    wall_ns: Ints

    def __len__(self) -> int:
        return len(self.wall_ns)

    @property
    def numbers(self) -> list[int]:
        """Return the numbers of the rounds, in order."""
        return [int(number) for number in np.unique(self.round)]

    @property
    def typical_ns(self) -> float:
        """Return the low percentile of all iterations, which is the time of a hardly disturbed
        iteration.
        """
        return float(np.quantile(self.wall_ns, QUANTILE))

    def before_and_after(self) -> list[tuple[Ints, Ints]]:
        """Return the wall times before and after the profile, for each round that has both."""
        some = [
            (self.wall_ns[mine & ~self.late], self.wall_ns[mine & self.late])
            for mine in (self.round == number for number in self.numbers)
        ]
        return [(before, after) for before, after in some if len(before) and len(after)]


def iterations_of(table: pa.Table) -> Iterations:
    """Return the iterations of ``timings.parquet`` that count."""
    counted = table.filter(pc.invert(table.column("warmup")))
    wall_ns = int_column(counted, "wall_ns")
    assert wall_ns is not None
    rounds, late = int_column(counted, "round"), int_column(counted, "after_profile")
    return Iterations(
        np.zeros(len(wall_ns), np.int64) if rounds is None else rounds,
        np.zeros(len(wall_ns), bool) if late is None else late.astype(bool),
        wall_ns,
    )


def int_column(table: pa.Table, name: str) -> Ints | None:
    """Return a column as int64; None if the table lacks it or it contains a null."""
    if name not in table.column_names or table.column(name).null_count:
        return None
    values: Ints = table.column(name).to_numpy().astype(np.int64)
    return values


def one_thread(info: RunInfo) -> bool:
    """Return whether one thread of a CPU did all the work, so that CPU time is the step's time.

    False for the user's own code, which may wait for data and have other threads.
    """
    alone = info.threads == 1 and len(info.affinity or (0,)) == 1
    return info.device == "cpu" and alone and info.source != OWN_CODE


def cpu_share(table: pa.Table | None, info: RunInfo) -> float | None:
    """Return the share of the timed iterations in which their thread did not wait for a CPU, or
    None.
    """
    if table is None:
        return None
    counted = table.filter(pc.invert(table.column("warmup")))
    wall_ns, waits_ns = int_column(counted, "wall_ns"), _waits_ns(counted, info)
    if wall_ns is None or waits_ns is None or not wall_ns.sum():
        return None
    return 1 - float(waits_ns.sum() / wall_ns.sum())


def _waits_ns(counted: pa.Table, info: RunInfo) -> Ints | None:
    """Return how long the thread of each timed iteration waited for a CPU; None if unknown."""
    wall_ns = int_column(counted, "wall_ns")
    ran_ns = int_column(counted, "cpu_ns" if one_thread(info) else "thread_cpu_ns")
    if wall_ns is None or ran_ns is None:
        return None
    idle_ns: Ints = np.maximum(wall_ns - ran_ns, 0)
    if one_thread(info):
        return idle_ns
    # A wait between the end of an iteration and the reading of the counter belongs to no iteration.
    waited_ns = int_column(counted, "waited_ns")
    return None if waited_ns is None else np.minimum(waited_ns, idle_ns)


def undelayed_ns(table: pa.Table | None, info: RunInfo) -> float | None:
    """Return a low percentile of the timed iterations without their waits for a CPU.

    None if they wait little, or if a wait may be due to the program itself: it blocks, or its other
    threads or its processes need the CPU.
    """
    if table is None or info.device != "cpu":
        return None
    counted = table.filter(pc.invert(table.column("warmup")))
    wall_ns, waits_ns = int_column(counted, "wall_ns"), _waits_ns(counted, info)
    if wall_ns is None or waits_ns is None or waits_ns.sum() <= LEAST_LOST * wall_ns.sum():
        return None
    if one_thread(info):
        # Only a thread that never blocked was without a CPU in all the time that it did not run.
        blocked = int_column(counted, "voluntary_switches")
        if blocked is None or blocked.any():
            return None
    else:
        ran_ns, all_ns = (int_column(counted, name) for name in ("thread_cpu_ns", "cpu_ns"))
        children = pc.sum(counted.column("children_waited_ns")).as_py()
        beside = math.inf if ran_ns is None or all_ns is None else all_ns.sum() - ran_ns.sum()
        if children or beside > ALONE_SHARE * wall_ns.sum():
            return None
    return float(np.quantile(wall_ns - waits_ns, QUANTILE))


def timed_ns(
    timings: pa.Table | None,
    quantile: float = QUANTILE,
    of_some_steps_ns: float = 0.0,
) -> float | None:
    """Return this quantile of the timed iterations.

    ``of_some_steps_ns`` is the mean time of what only some profiled steps do. It is added as far as
    the mean iteration exceeds the quantile, because some timed iterations did it as well.
    """
    if timings is None:
        return None
    counted = timings.filter(pc.invert(timings.column("warmup")))
    if not len(counted):
        return None
    times = counted.column("wall_ns").to_numpy()
    usual = float(np.quantile(times, quantile))
    return usual + min(of_some_steps_ns, max(float(times.mean()) - usual, 0.0))


_FEW = "the run has no profile of its steps"
_ENERGY = "energy per step by %s, over the counted iterations of the first round"
#: Lost time below this share of the step is not mentioned.
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
    """Return the lost time of the median iteration as text; empty if it is under ``LEAST_LOST``."""
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
    values = int_column(table.filter(pc.invert(table.column("warmup"))), column)
    return None if values is None else float(values.mean())


def _per_step(table: pa.Table, energy_j: float | None) -> float | None:
    first = table.filter(pc.equal(table.column("round"), 0))
    steps = pc.sum(pc.invert(first.column("warmup"))).as_py()
    return None if energy_j is None or not steps else energy_j / steps


def slowdowns(steps_ns: Mapping[int, float]) -> dict[int, float]:
    """Return how many times as long as the fastest each run takes; keys as given."""
    fastest = min(steps_ns.values(), default=0.0)
    return {key: step / fastest for key, step in steps_ns.items() if fastest > 0}
