"""The content of a report.

The rows of charts are dictionaries (column → value) with the columns ``run``, ``label`` and
``group``. Times are in ns as measured; charts convert units. Unknown is None.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lstmprof.diagnose.diagnosis import Diagnosis
from lstmprof.diagnose.step_profile import StepProfile

#: Smaller parts of a step or run are not drawn or listed one by one.
LEAST_SHARE = 0.01

#: Column → value.
Row = Mapping[str, Any]
Rows = Sequence[Row]
Spec = dict[str, Any]


@dataclass(frozen=True)
class RunFacts:
    """What the page shows about one run.

    ``label`` is a name that is unique in its ``group``. ``lane`` is the diagnosed rank and device,
    such as ``rank 0``, if there are several. ``marked`` is False for a profile without step
    markers, which counts as one step.
    """

    run: str
    label: str
    group: int
    step_ns: int
    lane: str
    workload: str | None
    precision: str | None
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
    """Runs that are compared with one ``baseline``, or a single run, which has none."""

    number: int
    conditions: str
    runs: tuple[str, ...]
    baseline: str | None = None


@dataclass(frozen=True)
class Pair:
    """Two comparable runs; ``rows`` has the time of each kind in both, such as matmul."""

    fast: StepProfile
    slow: StepProfile
    rows: Rows


@dataclass(frozen=True)
class Track:
    """A row of a timeline: a device's breakdown, a stream, or one call depth of a thread."""

    label: str
    kind: str
    depth: int


@dataclass(frozen=True)
class Lane:
    """A counter in a timeline, such as memory; each value is valid until the next.

    ``left_out`` is the number of values that are not drawn.
    """

    label: str
    unit: str
    at_ns: tuple[int, ...]
    values: tuple[float, ...]
    left_out: int = 0


@dataclass(frozen=True)
class Timeline:
    """A timeline of one step; ``columns`` have one entry per event, sorted by track and start.

    The columns are ``track`` (index into ``tracks``), ``start_ns`` from the begin of the step,
    ``dur_ns``, ``name`` and ``part`` (indices into ``names`` and ``parts``), and ``launch`` (index
    of the launching event); −1 means none. ``facts`` are further columns, such as shapes, which the
    page shows after a click: name → (distinct texts, index of each event's text). ``left_out`` is
    the number of events that are not drawn. ``which`` says why this step is shown. ``lanes`` are
    the counters.
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
    """A picture of the call stacks of a run or a pair of runs, made of boxes.

    ``columns`` have one entry per box, callers before callees. ``above`` is the index of the
    caller's box; ``name`` and ``part`` are indices into ``names`` and ``parts``; −1 means none.
    ``fast`` and ``slow`` are the names of the runs of a pair.
    """

    run: str
    what: str
    sentence: str
    total_ns: int
    names: tuple[str, ...]
    parts: tuple[str, ...]
    columns: Mapping[str, list[int]]
    fast: str = ""
    slow: str = ""


@dataclass(frozen=True)
class Report:
    """The content of a report; each chart has its rows in the field with the chart's name.

    The function in ``rows`` with the same name describes the rows. ``missing`` has a sentence for
    each thing that was not measured.
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
        """Return the rows of the waterfall chart, for the first pair of runs."""
        return self.pairs[0].rows if self.pairs else ()

    def facts_of(self, run: str) -> RunFacts:
        return next(facts for facts in self.runs if facts.run == run)

    def members(self, group: Group) -> list[RunFacts]:
        return [facts for facts in self.runs if facts.group == group.number]

    def facts_in(self, rows: Rows) -> list[RunFacts]:
        """Return the facts about the runs that appear in these rows."""
        names = {row["run"] for row in rows}
        return [facts for facts in self.runs if facts.run in names]

    def by_group(self, rows: Rows) -> Iterator[tuple[Group, list[Row]]]:
        """Yield each group of runs with its own rows out of ``rows``."""
        for group in self.groups:
            if members := [row for row in rows if row["group"] == group.number]:
                yield group, members

    def by_run(self, rows: Rows) -> Iterator[tuple[RunFacts, list[Row]]]:
        """Yield each run with its own rows out of ``rows``."""
        for facts in self.runs:
            if own := [row for row in rows if row["run"] == facts.run]:
                yield facts, own


@dataclass(frozen=True)
class Figure:
    """One chart: its title, its main result as a ``sentence``, its Vega-Lite specification.

    ``kind`` names the sort of chart for users who cannot see it. ``ran`` has devices, versions and
    dates. ``legend`` names the parts of the breakdown in the chart's colours.
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
        """Return the title without its section: ``Ranks: late arrivals`` → ``late arrivals``."""
        return self.title.partition(": ")[2] or self.title

    @property
    def alt(self) -> str:
        """Return text for screen readers."""
        return f"{self.kind}. {self.sentence}"
