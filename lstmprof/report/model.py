"""What a report is drawn from: the rows of the other verbs, and what they cannot say.

A row is that of a table, under the names of its columns, with ``run``, ``label`` and ``group`` in
front. Times are nanoseconds as they were measured; units for reading are the charts' affair.
Unknown is None.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lstmprof.diagnose.diagnosis import Diagnosis
from lstmprof.diagnose.step_profile import StepProfile

#: A row of a table: column → value.
Row = Mapping[str, Any]
Rows = Sequence[Row]
Spec = dict[str, Any]


@dataclass(frozen=True)
class RunFacts:
    """What ran. ``run`` is unique in the report, ``label`` tells it apart in its ``group``.

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
    ranks: int = 1


@dataclass(frozen=True)
class Group:
    """Runs that can be compared, and the conditions that they share."""

    number: int
    conditions: str
    device: str | None
    runs: tuple[str, ...]


@dataclass(frozen=True)
class Pair:
    """The way from the fast step to the slow one; ``rows`` are (kind, fast_ns, slow_ns)."""

    fast: StepProfile
    slow: StepProfile
    rows: Rows


@dataclass(frozen=True)
class Track:
    """A row of a timeline: who ran in it. ``kind`` is account, stream, host."""

    label: str
    kind: str
    depth: int


@dataclass(frozen=True)
class Lane:
    """A counter in a timeline: ``values``, each from its instant after the step's begin on.

    ``left_out`` values between them are not drawn: of their part of the step neither the first,
    the least, the largest nor the last.
    """

    label: str
    unit: str
    at_ns: tuple[int, ...]
    values: tuple[float, ...]
    left_out: int = 0


@dataclass(frozen=True)
class Timeline:
    """One step of a run: events as columns, of equal length, by track and start.

    ``start_ns`` counts from the step's begin. ``name`` and ``part`` are places in ``names`` and
    ``parts``, a part −1 where it has none; ``launch`` is the place of the event that launched it,
    −1 where there is none or it is not drawn. ``facts`` are columns of the events table that some
    event has: (texts, place of each event's or −1). ``left_out`` events, the shortest, are not
    drawn. ``which`` says why this step is shown; ``lanes`` are what the profile counts.
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
    """Who called whom in a run, boxes as columns of equal length; ``what`` the time is of.

    ``above`` is the place of the box around each, −1 for none; ``name`` and ``part`` are places in
    ``names`` and ``parts``, a part −1 where it has none. Boxes stand behind what is around them.
    """

    run: str
    what: str
    total_ns: int
    names: tuple[str, ...]
    parts: tuple[str, ...]
    columns: Mapping[str, list[int]]


@dataclass(frozen=True)
class Report:
    """All of a report; what the rows of a table hold, its function in ``rows`` says.

    The rows of a chart stand under its name. ``missing`` says what was not measured, a sentence
    each.
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
    ranks: Rows = ()
    rank_parts: Rows = ()
    arrivals: Rows = ()
    rank_work: Rows = ()
    missing: tuple[str, ...] = ()

    @property
    def waterfall(self) -> Rows:
        """The rows of the first of ``pairs``: the largest difference of the largest group."""
        return self.pairs[0].rows if self.pairs else ()

    def facts_of(self, run: str) -> RunFacts:
        """The facts of the run of this name."""
        return next(facts for facts in self.runs if facts.run == run)

    def members(self, group: Group) -> list[RunFacts]:
        """The facts of the runs of ``group``."""
        return [facts for facts in self.runs if facts.group == group.number]

    def facts_in(self, rows: Rows) -> list[RunFacts]:
        """The facts of the runs that ``rows`` are of."""
        names = {row["run"] for row in rows}
        return [facts for facts in self.runs if facts.run in names]

    def by_group(self, rows: Rows) -> Iterator[tuple[Group, list[Row]]]:
        """Each group that has any of ``rows``, with them."""
        for group in self.groups:
            if members := [row for row in rows if row["group"] == group.number]:
                yield group, members

    def by_run(self, rows: Rows) -> Iterator[tuple[RunFacts, list[Row]]]:
        """Each run that has any of ``rows``, with them."""
        for facts in self.runs:
            if own := [row for row in rows if row["run"] == facts.run]:
                yield facts, own


@dataclass(frozen=True)
class Figure:
    """One chart of the page: what it shows in a sentence, and its Vega-Lite specification.

    ``kind`` is what it is to those who do not see it; ``caption`` unit, n, device, versions and
    date; ``legend`` the parts whose colours it uses. Of a ``slight`` one the sentence says all.
    """

    key: str
    title: str
    kind: str
    sentence: str
    caption: str
    spec: Spec
    legend: tuple[str, ...] = ()
    slight: bool = False

    @property
    def alt(self) -> str:
        """The kind of chart and its main number, in words."""
        return f"{self.kind}. {self.sentence}"
