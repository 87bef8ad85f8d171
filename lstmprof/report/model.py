"""The content of a report: facts about runs, rows of charts, timelines and call stacks.

A row of a chart maps columns to values. Times are in ns, and None means unknown::

    {"run": "base", "label": "base", "group": 0, "step_ns": 5_200_000, …}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lstmprof.diagnose.diagnosis import Diagnosis
from lstmprof.diagnose.step_profile import StepProfile

#: Smallest share of a step or run for which a part is drawn or listed separately.
LEAST_SHARE = 0.01

#: Column → value.
Row = Mapping[str, Any]
Rows = Sequence[Row]
Spec = dict[str, Any]


@dataclass(frozen=True)
class RunFacts:
    run: str
    label: str  # unique in its ``group``
    group: int
    step_ns: int
    lane: str  # diagnosed rank and device, if there are several
    workload: str | None
    precision: str | None
    device: str | None
    versions: str | None
    date: str | None
    profiler: str | None
    steps: int | None
    iterations: int | None
    marked: bool = True  # False: no step markers, the profile counts as one step
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
    fast: StepProfile
    slow: StepProfile
    rows: Rows  # time of each kind, such as matmul, in both runs


@dataclass(frozen=True)
class Track:
    """A row of a timeline: a device's breakdown, a stream, or one call depth of a thread."""

    label: str
    kind: str
    depth: int


@dataclass(frozen=True)
class Lane:
    """A counter in a timeline, such as memory."""

    label: str
    unit: str
    at_ns: tuple[int, ...]
    values: tuple[float, ...]  # each is valid until the next
    left_out: int = 0  # values that are not drawn


@dataclass(frozen=True)
class Timeline:
    """The events of one step, as columns for timeline.js."""

    run: str
    step: int | None
    dur_ns: int
    tracks: tuple[Track, ...]
    names: tuple[str, ...]
    parts: tuple[str, ...]
    # times: start_ns (0 is the start of the step) and dur_ns
    # indices (−1 is none): track, name, part, launch
    columns: Mapping[str, list[int]]
    left_out: int  # events that are not drawn
    rank: int | None = None
    which: str = ""  # why this step is shown
    # details shown after a click: name → (distinct texts, index of each event's text)
    facts: Mapping[str, tuple[tuple[str, ...], list[int]]] = field(default_factory=dict)
    lanes: tuple[Lane, ...] = ()  # counters


@dataclass(frozen=True)
class Icicle:
    """A picture of call stacks as nested boxes, of one run or a pair of runs."""

    run: str
    what: str
    sentence: str
    total_ns: int
    names: tuple[str, ...]
    parts: tuple[str, ...]
    # one entry per box, callers first. above: index of the caller's box; total_ns: of a pair, the
    # longer time
    columns: Mapping[str, list[int]]
    fast: str = ""  # names of the runs of a pair
    slow: str = ""


@dataclass(frozen=True)
class Report:
    """The content of a report; each chart has its rows in a field."""

    title: str
    created: str
    version: str
    runs: tuple[RunFacts, ...]
    groups: tuple[Group, ...]
    diagnoses: Sequence[Diagnosis] = ()
    pairs: Sequence[Pair] = ()
    timelines: Sequence[Timeline] = ()
    icicles: Sequence[Icicle] = ()
    # rows of charts: function ``rows.times`` makes ``times``, and so on
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
    missing: tuple[str, ...] = ()  # a sentence per thing that was not measured

    @property
    def waterfall(self) -> Rows:
        """Return the rows of the waterfall chart, for the first pair of runs."""
        return self.pairs[0].rows if self.pairs else ()

    def facts_of(self, run: str) -> RunFacts:
        return next(facts for facts in self.runs if facts.run == run)

    def members(self, group: Group) -> list[RunFacts]:
        return [facts for facts in self.runs if facts.group == group.number]

    def facts_in(self, rows: Rows) -> list[RunFacts]:
        names = {row["run"] for row in rows}
        return [facts for facts in self.runs if facts.run in names]

    def by_group(self, rows: Rows) -> Iterator[tuple[Group, list[Row]]]:
        """Yield each group of runs that has rows, with the rows of the group."""
        for group in self.groups:
            if members := [row for row in rows if row["group"] == group.number]:
                yield group, members

    def by_run(self, rows: Rows) -> Iterator[tuple[RunFacts, list[Row]]]:
        """Yield each run that has rows, with the rows of the run."""
        for facts in self.runs:
            if own := [row for row in rows if row["run"] == facts.run]:
                yield facts, own


@dataclass(frozen=True)
class Figure:
    """One chart with its title, main result and Vega-Lite specification."""

    key: str
    title: str
    kind: str  # for users who cannot see the chart
    sentence: str  # main result of the chart
    caption: str
    ran: str  # devices, versions and dates
    spec: Spec
    legend: tuple[str, ...] = ()  # parts of the breakdown in the chart's colours

    @property
    def heading(self) -> str:
        """Return the title without its section: ``Ranks: late arrivals`` → ``late arrivals``."""
        return self.title.partition(": ")[2] or self.title

    @property
    def alt(self) -> str:
        """Return text for screen readers."""
        return f"{self.kind}. {self.sentence}"
