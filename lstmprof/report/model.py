"""What a report is drawn from: plain rows, whose numbers were computed elsewhere.

Times are nanoseconds as they were measured; units for reading are the charts' affair. A run is
named by ``run``, unique in the report; ``group`` is the number of the group of runs that can be
compared. Unknown is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RunFacts:
    """What ran. ``label`` tells it apart from the others of its group.

    ``steps`` are all profiled ones; without step markers (``marked``) one, the whole profile.
    """

    run: str
    label: str
    group: int
    implementation: str | None
    workload: str | None
    precision: str | None
    mode: str | None
    device: str | None
    versions: str | None
    date: str | None
    profiler: str | None
    steps: int | None
    iterations: int | None
    marked: bool = True


@dataclass(frozen=True)
class Group:
    """Runs that can be compared, and the conditions that they share."""

    number: int
    conditions: str
    device: str | None
    runs: tuple[str, ...]


@dataclass(frozen=True)
class Cause:
    """One finding of a verdict: its kind, its sentence, (remedy, source) of what to do."""

    kind: str
    sentence: str
    remedies: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Verdict:
    """A diagnosis in sentences; ``fast`` is None where a run is diagnosed alone."""

    group: int
    fast: str | None
    slow: str
    sentence: str
    causes: tuple[Cause, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class TimeRow:
    """Statistics of a run's undisturbed steps, as of ``breakdown --table timings``."""

    run: str
    label: str
    group: int
    median_ns: float
    median_low_ns: float | None
    median_high_ns: float | None
    p95_ns: int
    compile_ns: int | None
    slowdown: float | None
    iterations: int


@dataclass(frozen=True)
class LedgerRow:
    """One part of a run's steps on one lane; ``total_ns`` is the sum over ``steps`` of them."""

    run: str
    label: str
    group: int
    lane: str
    state: str
    part: str
    total_ns: int
    steps: int


@dataclass(frozen=True)
class Pair:
    """The way from the fast step to the slow one; ``rows`` are (state, part, fast ns, slow ns).

    The parts are means of so many ``_steps``: of all profiled ones but those that were disturbed.
    """

    group: int
    fast: str
    slow: str
    fast_ns: int
    slow_ns: int
    profiled: bool
    rows: tuple[tuple[str, str, int, int], ...]
    fast_steps: int
    slow_steps: int


@dataclass(frozen=True)
class KernelRow:
    """One row of ``breakdown --table kernels``."""

    run: str
    device: int | None
    name: str
    category: str | None
    count: int
    total_ns: int
    p50_ns: int
    share: float | None


@dataclass(frozen=True)
class GapRow:
    """One kernel of a run: its median duration beside the median gap before it."""

    run: str
    name: str
    category: str | None
    count: int
    dur_p50_ns: int
    gap_p50_ns: int


@dataclass(frozen=True)
class CastRow:
    """One row of ``breakdown --table casts``; ``share`` of the run's profiled steps."""

    run: str
    label: str
    op: str | None
    within: str | None
    from_dtype: str | None
    to_dtype: str | None
    count: int
    per_step: float | None
    total_ns: int
    share: float | None


@dataclass(frozen=True)
class SweepRow:
    """The median time of one implementation at one point of a sweep.

    ``conditions`` are those that differ between the runs, besides the sizes; may be empty.
    """

    run: str
    implementation: str
    conditions: str
    hidden: int
    batch: int
    time_steps: int
    median_ns: float


@dataclass(frozen=True)
class RooflineRow:
    """The least time of a step by its device's peaks, and the median one."""

    run: str
    label: str
    group: int
    least_ns: float
    median_ns: float
    share: float
    gemm_flops_per_s: float | None


@dataclass(frozen=True)
class SeriesRow:
    """``iterations`` counted ones from ``iteration`` on, of a long series more than one.

    ``wall_ns`` is the median of their times, ``off_share`` that over the run's median, less 1.
    """

    run: str
    label: str
    group: int
    iteration: int
    iterations: int
    wall_ns: float
    off_share: float


@dataclass(frozen=True)
class Track:
    """A row of a timeline: who ran in it. ``kind`` is account, stream, host."""

    label: str
    kind: str
    depth: int


@dataclass(frozen=True)
class Timeline:
    """One step of a run: events as columns, of equal length, by track and start.

    ``start_ns`` counts from the step's begin. ``name`` and ``part`` are places in ``names`` and
    ``parts``, a part −1 where it has none. ``left_out`` events, the shortest, are not drawn.
    """

    run: str
    step: int | None
    dur_ns: int
    tracks: tuple[Track, ...]
    names: tuple[str, ...]
    parts: tuple[str, ...]
    columns: Mapping[str, list[int]]
    left_out: int


@dataclass(frozen=True)
class Report:
    """All of a report. ``missing`` says what was not measured, a sentence each."""

    title: str
    created: str
    version: str
    runs: tuple[RunFacts, ...]
    groups: tuple[Group, ...]
    verdicts: tuple[Verdict, ...] = ()
    times: tuple[TimeRow, ...] = ()
    ledger: tuple[LedgerRow, ...] = ()
    pairs: tuple[Pair, ...] = ()
    timelines: tuple[Timeline, ...] = ()
    kernels: tuple[KernelRow, ...] = ()
    gaps: tuple[GapRow, ...] = ()
    casts: tuple[CastRow, ...] = ()
    sweep: tuple[SweepRow, ...] = ()
    roofline: tuple[RooflineRow, ...] = ()
    series: tuple[SeriesRow, ...] = ()
    missing: tuple[str, ...] = ()

    def facts_of(self, run: str) -> RunFacts:
        """The facts of the run of this name."""
        return next(facts for facts in self.runs if facts.run == run)


Spec = dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """One chart of the page: what it shows in a sentence, and its Vega-Lite specification.

    ``alt`` carries the main number for those who do not see it; ``caption`` unit, n, device,
    versions and date; ``legend`` the parts whose colours it uses.
    """

    key: str
    title: str
    sentence: str
    alt: str
    caption: str
    spec: Spec
    legend: tuple[str, ...] = ()
