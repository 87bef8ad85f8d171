"""The records of a report, and the rows of its charts.

A row is that of a breakdown table, with ``run``, ``label`` and ``group`` in front. Times are in
nanoseconds as measured; charts convert units. Unknown is None.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lstmprof.diagnose.diagnosis import Diagnosis
from lstmprof.diagnose.step_profile import StepProfile

#: A smaller share of a step or run is neither drawn nor listed.
LEAST_SHARE = 0.01

#: A row of a table: column → value.
Row = Mapping[str, Any]
Rows = Sequence[Row]
Spec = dict[str, Any]


@dataclass(frozen=True)
class RunFacts:
    """What ran. ``run`` is unique in the report, ``label`` in its ``group``.

    ``step_ns`` is the step by which runs are compared. ``lane`` is the diagnosed rank and device in
    words if the run has several, else empty. ``steps`` counts all profiled ones; without step
    markers (``marked``) it is 1, the whole profile.
    """

    run: str
    label: str
    group: int
    step_ns: int
    lane: str
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
    ranks: int = 1


@dataclass(frozen=True)
class Group:
    """Runs that are compared with one baseline, or one run alone (``baseline`` None)."""

    number: int
    conditions: str
    device: str | None
    runs: tuple[str, ...]
    baseline: str | None = None


@dataclass(frozen=True)
class Pair:
    """Two runs that can be compared; ``rows`` are (kind, fast_ns, slow_ns)."""

    fast: StepProfile
    slow: StepProfile
    rows: Rows


@dataclass(frozen=True)
class Track:
    """A row of a timeline; ``kind`` is account, stream or host."""

    label: str
    kind: str
    depth: int


@dataclass(frozen=True)
class Lane:
    """A counter in a timeline: each of ``values`` holds from its instant in ``at_ns`` on.

    Instants count from the begin of the step. ``left_out`` values are not drawn: each part of the
    step keeps its first, its least, its largest and its last value.
    """

    label: str
    unit: str
    at_ns: tuple[int, ...]
    values: tuple[float, ...]
    left_out: int = 0


@dataclass(frozen=True)
class Timeline:
    """One step of a run: events as columns of equal length, sorted by track and start.

    ``start_ns`` counts from the begin of the step. ``name`` and ``part`` are indices into ``names``
    and ``parts``, ``launch`` is the index of the launching event; −1 is none. ``facts`` are columns
    of the events table: (texts, index of each event's text or −1). ``left_out`` counts the shortest
    events, which are not drawn. ``which`` says why this step is shown; ``lanes`` are its counters.
    """

    run: str
    step: int | None
    dur_ns: int
    tracks: tuple[Track, ...]
    names: tuple[str, ...]
    parts: tuple[str, ...]
    columns: Mapping[str, list[int]]
    left_out: int
    rank: int | None = None
    which: str = ""
    facts: Mapping[str, tuple[tuple[str, ...], list[int]]] = field(default_factory=dict)
    lanes: tuple[Lane, ...] = ()


@dataclass(frozen=True)
class Icicle:
    """Call stacks of a run or a pair: boxes as columns of equal length, callers before callees.

    ``above`` is the index of the caller, ``name`` and ``part`` are indices into ``names`` and
    ``parts``; −1 is none. ``what`` says whose time it is, ``said`` sums it up. ``fast`` and
    ``slow`` name the runs of a pair; its ``total_ns`` takes the longer time of each stack.
    """

    run: str
    what: str
    said: str
    total_ns: int
    names: tuple[str, ...]
    parts: tuple[str, ...]
    columns: Mapping[str, list[int]]
    fast: str = ""
    slow: str = ""


@dataclass(frozen=True)
class Report:
    """All of a report; the rows of each chart are under the chart's name, as ``rows`` makes them.

    ``missing`` has a sentence for each thing that was not measured.
    """

    title: str
    created: str
    version: str
    runs: tuple[RunFacts, ...]
    groups: tuple[Group, ...]
    diagnoses: Sequence[Diagnosis] = ()
    pairs: Sequence[Pair] = ()
    timelines: Sequence[Timeline] = ()
    icicles: Sequence[Icicle] = ()
    times: Rows = ()
    ledger: Rows = ()
    launch_gaps: Rows = ()
    casts: Rows = ()
    versions: Rows = ()
    sweep: Rows = ()
    roofline: Rows = ()
    stability: Rows = ()
    kernels: Rows = ()
    layers: Rows = ()
    critical_path: Rows = ()
    ranks: Rows = ()
    rank_parts: Rows = ()
    arrivals: Rows = ()
    rank_work: Rows = ()
    missing: tuple[str, ...] = ()

    @property
    def waterfall(self) -> Rows:
        """Return the rows of the first pair: the largest difference of the largest group."""
        return self.pairs[0].rows if self.pairs else ()

    def facts_of(self, run: str) -> RunFacts:
        """Return the facts of the run of this name."""
        return next(facts for facts in self.runs if facts.run == run)

    def members(self, group: Group) -> list[RunFacts]:
        """Return the facts of the runs of ``group``."""
        return [facts for facts in self.runs if facts.group == group.number]

    def facts_in(self, rows: Rows) -> list[RunFacts]:
        """Return the facts of the runs in ``rows``."""
        names = {row["run"] for row in rows}
        return [facts for facts in self.runs if facts.run in names]

    def by_group(self, rows: Rows) -> Iterator[tuple[Group, list[Row]]]:
        """Yield each group with its rows, if it has any."""
        for group in self.groups:
            if members := [row for row in rows if row["group"] == group.number]:
                yield group, members

    def by_run(self, rows: Rows) -> Iterator[tuple[RunFacts, list[Row]]]:
        """Yield each run with its rows, if it has any."""
        for facts in self.runs:
            if own := [row for row in rows if row["run"] == facts.run]:
                yield facts, own


@dataclass(frozen=True)
class Figure:
    """One chart: its title, what it shows in a sentence, its Vega-Lite specification.

    ``kind`` names the sort of chart for those who cannot see it. ``caption`` has the unit and n,
    ``ran`` the device, versions and date; the page states ``ran`` once, for all charts. ``legend``
    lists the parts whose colours it uses.
    """

    key: str
    title: str
    kind: str
    sentence: str
    caption: str
    ran: str
    spec: Spec
    legend: tuple[str, ...] = ()

    @property
    def heading(self) -> str:
        """Return the title without the name of its section."""
        return self.title.partition(": ")[2] or self.title

    @property
    def alt(self) -> str:
        """Return the kind of chart and its main number as text."""
        return f"{self.kind}. {self.sentence}"
