"""The step time of a run, statistics of the timed iterations, and reasons to doubt the times.

Timed iterations (rows of timings.parquet) are steps without a profiler.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lstmprof.base.numbers import count, milliseconds, percent
from lstmprof.breakdown.clean.slot_times import LEAST_STALLED, STALL_SHARE, Span
from lstmprof.events.annotate import OWN_CODE
from lstmprof.events.intervals import Ints
from lstmprof.events.schema import Column
from lstmprof.runs.metadata import RunInfo

#: Smallest number of iterations before, and after, a process's profile at which lstmprof compares
#: the step times before and after.
LEAST_ITERATIONS = 5
#: Smallest slowdown after profiling, and smallest number of processes, at which lstmprof reports
#: the slowdown. Chosen by hand, above the differences between quiet processes.
STATE_SHARE, LEAST_ROUNDS = 0.25, 2

#: Largest CPU time of other threads, as a share of the steps' time, at which lstmprof treats the
#: steps' thread as alone. Chosen by hand.
ALONE_SHARE = 0.02

#: Largest interquartile range of step times (share of the median) at which lstmprof compares
#: profiled with timed steps if the work of the steps varies. Chosen by hand.
UNLIKE_SHARE = 0.1

#: CPU time per page fault in ns. Measured on an EPYC: 2.7 to 3.4 µs per first touch of a 4 KiB
#: page.
FAULT_NS = 2_700
#: Smallest number of a profiled step's page faults (as a multiple of a timed step's), and smallest
#: time of the additional page faults (as a share of the profiled step), at which lstmprof warns.
#: Chosen by hand.
MORE_FAULTS, FAULTS_SHARE = 2, 0.1
#: Environment variables with which glibc keeps freed memory. An LSTM (torch 2.13) had 8,800 page
#: faults per step without the variables, and 0 with the variables. glibc accepts at most 32 MiB as
#: the second value (mallopt(3)).
KEEP_FREED = (
    "MALLOC_TOP_PAD_=134217728 MALLOC_MMAP_THRESHOLD_=33554432 MALLOC_TRIM_THRESHOLD_=1073741824"
)

#: Kinds of ``Warning``.
GOVERNOR, LOSS, THROTTLED, STATE = "governor", "loss", "clocks", "state"
FAULTS = "page faults"


@dataclass(frozen=True)
class Warning:
    """A reason to doubt the times of a run, and the remedy."""

    kind: str
    fault: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.fault}; {self.remedy}"


def warnings(iterations: Iterations) -> Iterator[Warning]:
    """Yield the reasons to doubt the ``iterations`` of a run."""
    # do not warn of load, preemption or drift, because the clean step excludes all three
    info = iterations.info
    governor = info.hardware.cpu_governor
    if governor not in (None, "performance") and info.device == "cpu":
        yield Warning(
            GOVERNOR, f"the CPU governor is '{governor}'", "set the governor to 'performance'"
        )
    if info.loss_fell is False and len(iterations) >= 2 * LEAST_ITERATIONS:
        yield Warning(LOSS, "the loss did not fall", "check that the network learns")
    for reason in info.gpu_throttle_reasons or ():
        yield Warning(
            THROTTLED, f"the GPU was throttled: {reason}", "cool the GPU, or lock its clocks"
        )
    faults = _faults(iterations)
    if faults is not None:
        yield faults
    change = _change_of_state(iterations.before_and_after())
    if change is not None:
        yield Warning(
            STATE,
            f"steps took {1 + change:.2f}× as long after profiling, in every round",
            "possible causes: denormal numbers (see --keep-denormals), or memory use, hooks or "
            "logs that grow from step to step",
        )


def _faults(iterations: Iterations) -> Warning | None:
    """Warn if a profiled step has far more page faults than a timed step."""
    info, faults = iterations.info, iterations.column("minor_faults")
    if not info.profiled_page_faults or not info.profiled_wall_ns or faults is None:
        return None
    profiled, timed = statistics.median(info.profiled_page_faults), float(np.median(faults))
    extra_ns = (profiled - timed) * FAULT_NS
    if profiled < MORE_FAULTS * timed:
        return None
    if extra_ns < FAULTS_SHARE * statistics.median(info.profiled_wall_ns):
        return None
    # name new memory as the cause: the profiler makes glibc return freed blocks to the kernel
    return Warning(
        FAULTS,
        f"a step has {count(profiled)} page faults with the profiler and {count(timed)} without "
        "it, so ops that use new memory take longer in the profile",
        f"set {KEEP_FREED} for the program, and profile it again",
    )


def _change_of_state(pairs: list[tuple[Ints, Ints]]) -> float | None:
    """Return the slowdown of steps after the profile (0.5: 50 %), or None if unsure."""
    long_rounds = [
        (before, after)
        for before, after in pairs
        if min(len(before), len(after)) >= LEAST_ITERATIONS
    ]
    if len(long_rounds) < max(len(pairs), LEAST_ROUNDS):
        return None
    changes = [math.log(np.min(after) / np.max(before)) for before, after in long_rounds]
    if min(changes) <= 0:
        return None
    medians = [float(np.median(after) / np.median(before)) for before, after in long_rounds]
    change = float(np.mean(medians)) - 1
    return change if change >= STATE_SHARE else None


#: Quantile of times that lstmprof uses as the undisturbed time of iterations and profiled events.
QUANTILE = 0.1


@dataclass(frozen=True)
class Iterations:
    """The timed iterations of a run after warm-up, with its run.json."""

    table: pa.Table
    info: RunInfo

    @classmethod
    def of(cls, timings: pa.Table | None, info: RunInfo) -> Iterations | None:
        if timings is None:
            return None
        counted = timings.filter(pc.invert(timings.column("warmup")))
        return cls(counted, info) if len(counted) else None

    def __len__(self) -> int:
        return len(self.table)

    def column(self, name: str) -> Ints | None:
        """Return a column of timings.parquet, or None if a value is missing."""
        if name not in self.table.column_names or self.table.column(name).null_count:
            return None
        values: Ints = self.table.column(name).to_numpy().astype(np.int64)
        return values

    @cached_property
    def wall_ns(self) -> Ints:
        wall_ns = self.column("wall_ns")
        assert wall_ns is not None
        return wall_ns

    @property
    def rounds(self) -> Ints:
        """Return the number of the process that ran each iteration."""
        rounds = self.column("round")
        return np.zeros(len(self), np.int64) if rounds is None else rounds

    def before_and_after(self) -> list[tuple[Ints, Ints]]:
        """Return each process's wall times before and after the profile."""
        late = self.column("after_profile")
        if late is None:
            return []
        by_round = (self.rounds == number for number in np.unique(self.rounds))
        halves = [(self.wall_ns[m & (late == 0)], self.wall_ns[m & (late != 0)]) for m in by_round]
        return [(before, after) for before, after in halves if len(before) and len(after)]

    def quantile_ns(self, quantile: float = QUANTILE, occasional_ns: float = 0.0) -> float:
        """Return the wall time of an undisturbed iteration, or another ``quantile``."""
        usual = float(np.quantile(self.wall_ns, quantile))
        # add work that only some iterations do, because the quantile may not include this work
        return usual + min(occasional_ns, max(float(self.wall_ns.mean()) - usual, 0.0))

    @property
    def _one_thread(self) -> bool:
        """Return whether one CPU thread surely did all work (never for the user's code)."""
        info = self.info
        alone = info.threads == 1 and len(info.affinity or (0,)) == 1
        users = info.source == OWN_CODE or self.column("thread_cpu_ns") is not None
        return info.device == "cpu" and alone and not users

    @cached_property
    def _waits_ns(self) -> Ints | None:
        """Return how long the thread of the steps waited for a CPU in each iteration."""
        ran_ns = self.column("cpu_ns" if self._one_thread else "thread_cpu_ns")
        if ran_ns is None:
            return None
        idle_ns: Ints = np.maximum(self.wall_ns - ran_ns, 0)
        if self._one_thread:
            return idle_ns
        # limit the kernel's ``waited_ns``, which may include a wait after the iteration
        waited_ns = self.column("waited_ns")
        return None if waited_ns is None else np.minimum(waited_ns, idle_ns)

    @property
    def cpu_share(self) -> float | None:
        """Return the share of the time in which the steps' thread had a CPU."""
        if self._waits_ns is None or not self.wall_ns.sum():
            return None
        return 1 - float(self._waits_ns.sum() / self.wall_ns.sum())

    @property
    def calm(self) -> bool:
        """Return whether threads hardly waited for CPUs."""
        own_ns, others_ns = self._waits_ns, self.column("others_waited_ns")
        if own_ns is None or (others_ns is None and not self._one_thread):
            return False
        waited_ns = own_ns.sum() + (0 if others_ns is None else others_ns.sum())
        return bool(waited_ns <= MOST_WAITED * self.wall_ns.sum())

    @property
    def blocked_ns(self) -> float:
        """Return how many ns per iteration the steps' thread is blocked longer than usual."""
        names = ("thread_cpu_ns", "waited_ns", "others_waited_ns", "children_waited_ns")
        columns = [self.column(name) for name in names]
        if any(column is None for column in columns):
            return 0.0
        ran_ns, waited_ns, others_ns, children_ns = (c for c in columns if c is not None)
        all_blocked_ns = np.maximum(self.wall_ns - ran_ns - waited_ns, 0)
        later = self._later
        blocked_ns, others_ns = all_blocked_ns[later], (others_ns + children_ns)[later]
        # waits in few iterations do not count
        most_ns = np.quantile(blocked_ns, 1 - STALL_SHARE)
        typical_ns = max(np.median(blocked_ns), np.minimum(blocked_ns, most_ns).mean())
        # subtract CPU waits of other threads, for which the steps' thread may have waited
        more_ns = float(typical_ns - others_ns.mean() - np.quantile(all_blocked_ns, QUANTILE))
        step_ns = self.quantile_ns() + more_ns
        return more_ns if more_ns >= LEAST_STALLED * step_ns else 0.0

    @property
    def _later(self) -> Ints:
        """Return the indices of each series' later half (series: before or after a profile)."""
        # omit the first halves: input may have become ready while a profile started or ended
        late = self.column("after_profile")
        passes = 2 * self.rounds + (0 if late is None else late)
        members = (np.flatnonzero(passes == number) for number in np.unique(passes))
        return np.concatenate([rows[len(rows) // 2 :] for rows in members])

    @property
    def undelayed_ns(self) -> float | None:
        """Estimate an iteration's time without disturbances and waits for a CPU."""
        wall_ns, waits_ns = self.wall_ns, self._waits_ns
        if self.info.device != "cpu" or waits_ns is None:
            return None
        if waits_ns.sum() <= LEAST_LOST * wall_ns.sum():
            return None
        if self._one_thread:
            # require a thread that never blocked: then all time without running is a wait for a CPU
            blocked = self.column("voluntary_switches")
            if blocked is None or blocked.any():
                return None
        else:
            ran_ns, all_ns = self.column("thread_cpu_ns"), self.column("cpu_ns")
            children = pc.sum(self.table.column("children_waited_ns")).as_py()
            if children or ran_ns is None or all_ns is None:
                return None
            # compute blocked time, which waits before or after an iteration may partly hide
            blocked_ns = (wall_ns - waits_ns - ran_ns).sum()
            if blocked_ns > LEAST_LOST * wall_ns.sum():
                return None
            if (all_ns - ran_ns).sum() > ALONE_SHARE * wall_ns.sum():
                return None
        return float(np.quantile(wall_ns - waits_ns, QUANTILE))


_FEW = "the run has no profile of its steps"
_ENERGY = "mean energy per step, measured by %s in the timed iterations of the first round"
#: Largest share of time that threads wait for CPUs on a calm machine. Chosen by hand.
MOST_WAITED = 0.05
#: Smallest lost time, as a share of the step, that lstmprof mentions.
LEAST_LOST = 0.1

COLUMNS = (
    Column.integer("iterations", "number of timed iterations after warm-up"),
    Column.real(
        "step_ns",
        "clean step: length of a step without profiler overhead and disturbances",
    ),
    Column.real("step_low_ns", "low end of the 95 % interval of step_ns", _FEW),
    Column.real("step_high_ns", "high end of the 95 % interval of step_ns", _FEW),
    Column.real(
        "lost_ns",
        "median_ns minus step_ns: time lost to other processes, waits and noise",
        "the difference is not positive",
    ),
    Column.real(
        "cpu_share",
        "share of the wall time in which the step's thread did not wait for a CPU",
        "the operating system does not report how long threads run and wait, or a built-in "
        "implementation ran on several threads or on a GPU",
    ),
    Column.real(
        "preemptions",
        "number of involuntary context switches per iteration",
        "the operating system does not report this number",
    ),
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
        "length of the first step of the process, including compilation",
        "the run is not a capture",
    ),
    Column.real(
        "inflation_share",
        "median profiled step divided by the median timed step, minus 1",
        "no step was profiled, or the steps do different work",
    ),
    Column.real("cpu_energy_j", _ENERGY % "RAPL", "RAPL cannot be read"),
    Column.real(
        "gpu_energy_j",
        _ENERGY % "NVML",
        "NVML cannot be read, or the iterations took less than 1 s",
    ),
    Column.integer("rounds", "number of processes that ran the iterations"),
    Column("warnings", pa.list_(pa.string()), "", "reasons to doubt the times, each with a remedy"),
)


@dataclass(frozen=True)
class Timings:
    """Statistics of the timed iterations, in ns and J; docs/tables.md describes each field."""

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


def timings(
    table: pa.Table, info: RunInfo, clean: Span | None = None, *, work_varies: bool = False
) -> Timings | None:
    counted = Iterations.of(table, info)
    if counted is None:
        return None
    walls, preemptions = counted.wall_ns.tolist(), counted.column("preemptions")
    step = counted.quantile_ns() if clean is None else clean.ns
    median = float(statistics.median(walls))
    batch, words = info.workload.batch, info.workload.words
    profiled = info.profiled_wall_ns
    inflation = statistics.median(profiled) / median - 1 if profiled and median else None
    low, high = (counted.quantile_ns(quantile) for quantile in (0.25, 0.75))
    if work_varies and high - low > UNLIKE_SHARE * median:
        inflation = None
    return Timings(
        iterations=len(walls),
        step_ns=step,
        step_low_ns=None if clean is None else clean.low_ns,
        step_high_ns=None if clean is None else clean.high_ns,
        lost_ns=median - step if median > step else None,
        cpu_share=counted.cpu_share,
        preemptions=None if preemptions is None else float(preemptions.mean()),
        typical_ns=counted.quantile_ns(),
        median_ns=median,
        mean_ns=statistics.fmean(walls),
        std_ns=statistics.stdev(walls) if len(walls) > 1 else None,
        p95_ns=sorted(walls)[max(-(-95 * len(walls) // 100), 1) - 1],
        samples_per_s=batch / step * 1e9 if batch and step else None,
        words_per_s=words / step * 1e9 if words and step else None,
        compile_ns=info.compile_ns,
        inflation_share=inflation,
        cpu_energy_j=_per_step(counted, info.timing_cpu_energy_j),
        gpu_energy_j=_per_step(counted, info.timing_gpu_energy_j),
        rounds=len(np.unique(counted.rounds)),
        warnings=tuple(warnings(counted)),
    )


def lost_in_words(
    lost_ns: float | None, step_ns: float, cpu_share: float | None, preemptions: float | None = None
) -> str:
    """Describe the time lost to other processes, or return "" for little lost time."""
    if not lost_ns or lost_ns < LEAST_LOST * step_ns:
        return ""
    evidence = []
    if cpu_share is not None and cpu_share <= 0.99:
        evidence.append(f"the step's thread waited for a CPU {percent(1 - cpu_share)} of the time")
    if preemptions:
        evidence.append(f"other threads preempted this thread {preemptions:,.1f} times per step")
    text = (
        f"other processes and noise add {milliseconds(lost_ns)} ms to the median unprofiled step: "
        f"{milliseconds(lost_ns + step_ns)} ms instead of {milliseconds(step_ns)} ms"
    )
    return "; ".join([text, *evidence])


def _per_step(counted: Iterations, energy_j: float | None) -> float | None:
    """Return the energy per timed step of the first process."""
    steps = int((counted.rounds == 0).sum())
    return None if energy_j is None or not steps else energy_j / steps


def slowdowns(steps_ns: Mapping[int, float]) -> dict[int, float]:
    fastest = min(steps_ns.values(), default=0.0)
    return {key: step / fastest for key, step in steps_ns.items() if fastest > 0}
