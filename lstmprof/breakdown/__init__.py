"""Compute the breakdown: where the time of a run's steps went. The stages:

::

    tables        tables of ops, kernels, launches … of the profiled steps
    attribution   what each host thread and device did at each instant of a step
    clean         step times without the profiler (timings), and a step without disturbances
                  and profiler overhead (clean_step)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from lstmprof.base import names
from lstmprof.base.errors import RunError
from lstmprof.breakdown.attribution import Intervals, attributed, host
from lstmprof.breakdown.clean.clean_step import (
    LEAST_STEPS,
    MOST_EVENTS,
    CleanStep,
    Measured,
    clean_step,
)
from lstmprof.breakdown.clean.timings import (
    COLUMNS as STATISTICS,
    Iterations,
    Timings,
    slowdowns,
    timings,
)
from lstmprof.breakdown.lacks import Lack, lacks_of
from lstmprof.breakdown.mean_step import MeanStep, mean_steps
from lstmprof.breakdown.tables import TABLES, Source, TableKind, table_of
from lstmprof.events.annotate import MEASURED
from lstmprof.events.annotate.recorded import Recorded, recorded
from lstmprof.events.annotate.steps import Window, windows, with_markers, with_steps
from lstmprof.events.event_types import WINDOW_COLUMNS, rows_of_ranks, windows_of
from lstmprof.events.narrow import Packed, packed
from lstmprof.events.schema import SCHEMA, Column
from lstmprof.events.table import EventTable
from lstmprof.runs.metadata import alike, facts
from lstmprof.runs.run import Run

__all__ = ["TABLES", "Breakdown", "break_down"]

CLEAN, PROFILED = names.STEPS
TIMINGS = "timings"
_SLOWDOWN = Column.real(
    "slowdown",
    "step_ns divided by step_ns of the fastest comparable run",
    "no other run can be compared with the run",
)
#: Fields of run.json in the table ``timings``.
_FACTS = ("implementation", "precision", "mode", "device", "device_name", "kernels_used", "threads")


@dataclass(frozen=True)
class Breakdown:
    """The breakdown of one run; each table is computed on first use."""

    run: Run
    windows: list[Window]  # start and end of each step of each rank
    step_range: str | None = None  # regular expression for the ranges that are steps
    recorded: tuple[Recorded, ...] = ()  # each rank's numbers of events
    _made: dict[str, pa.Table] = field(default_factory=dict, repr=False, compare=False)
    _clean: dict[tuple[int | None, int | None], CleanStep] = field(
        default_factory=dict, repr=False, compare=False
    )

    def __repr__(self) -> str:
        return f"<Breakdown of {self.run.name}: {len(self.windows)} profiled steps>"

    def table(self, name: str) -> pa.Table:
        """Return the table ``name`` (docs/tables.md)."""
        wanted = table_of(name)
        if name not in self._made and not (wanted.needs_files or wanted.joined):
            self._made.update(_tables_and_windows(self.run, self.step_range, [wanted])[0])
        for needed in wanted.joined:
            self.table(needed)
        nothing = EventTable(SCHEMA.empty_table())
        source = Source(nothing, self.windows, self.run.info, account=self, made=self._made)
        return source.table(name)

    def events(self) -> EventTable:
        """Return the events of the run; ranges that match ``step_range`` become steps."""
        events = self.run.events()
        return _marked(events, self.step_range) if self.step_range else events

    def events_of_rank(self, rank: int | None, loaded: Packed | None = None) -> EventTable:
        """Return the events of ``rank``, and one event per type of each other rank."""
        if len(self.ranks) < 2:
            return self.events()
        loaded = loaded or self.events_of_ranks([rank])
        return loaded.table(SCHEMA.names, rows_of_ranks(loaded, [rank]))

    def events_of_ranks(self, ranks: Collection[int | None]) -> Packed:
        """Return the events of ``ranks``, and one event per type of each other rank."""
        names = SCHEMA.names
        loaded = self.packed(names) if self.step_range else self.run.packed(names)
        return loaded.only(names, rows_of_ranks(loaded, ranks))

    def packed(self, columns: Sequence[str]) -> Packed:
        """Return ``columns`` of the events in narrow integers, to save memory."""
        if self.step_range:
            return packed(self.events().select(columns))
        return Packed(self.run.narrow_events(columns))

    @property
    def ranks(self) -> list[int | None]:
        """Return the ranks in the order of their first steps."""
        return list(dict.fromkeys(window.rank for window in self.windows))

    def clean(self, rank: int | None, device: int | None) -> CleanStep:
        """Return the step of a device or the host without disturbances and profiler overhead."""
        if (rank, device) not in self._clean:
            own = [window for window in self.windows if window.rank == rank]
            info = self.run.info
            iterations = Iterations.of(self.run.timings(), info) if self._timed else None
            measured = Measured(info, iterations) if self._timed else None
            self._clean[rank, device] = clean_step(self.events_of_rank(rank), own, device, measured)
        return self._clean[rank, device]

    def attributed_steps(
        self, rank: int | None, device: int | None
    ) -> tuple[EventTable, list[Window], Intervals]:
        """Return the events, steps and labelled time intervals of a device or the host."""
        if self.has_clean:
            clean = self.clean(rank, device)
            return clean.events, list(clean.windows), clean.intervals
        events = self.events_of_rank(rank)
        own = [window for window in self.windows if window.rank == rank]
        return events, own, attributed(events, own, rank)[device]

    @cached_property
    def _timed(self) -> bool:
        """Return whether lstmprof, not another tool, timed and profiled these steps."""
        return self.run.info.source in MEASURED and not self.step_range

    @cached_property
    def has_clean(self) -> bool:
        """Return whether the run has a clean step: enough steps, and not too many events."""
        fewest = min((count for count in Counter(w.rank for w in self.windows).values()), default=0)
        if fewest < LEAST_STEPS and not self._timed:
            return False
        return bool(self.windows) and self.run.event_count <= MOST_EVENTS

    @cached_property
    def timings(self) -> Timings | None:
        """Return statistics of the iterations timed without a profiler."""
        table = self.run.timings()
        if table is None:
            return None
        lanes = mean_steps(self.ledger) if self._timed and self.has_clean else []
        clean = self.clean(lanes[0].rank, lanes[0].device) if lanes else None
        if clean is None:
            return timings(table, self.run.info)
        return timings(table, self.run.info, clean.span, work_varies=clean.work_varies)

    def steps(self, *, profiled: bool = False) -> list[MeanStep]:
        """Return where the time of a step goes, for each rank and device."""
        lanes = mean_steps(self.ledger)
        if profiled or not self.has_clean:
            return lanes
        return [self.clean(lane.rank, lane.device).mean_step for lane in lanes]

    @property
    def no_steps(self) -> RunError:
        fault, next_step = (
            "no event of its profile has a duration",
            "capture or ingest the run again",
        )
        if self.run.info.profile_format == "memory_snapshot":
            fault = "a memory snapshot has no steps, ops or kernels"
            next_step = "see lstmprof breakdown --table memory"
        return RunError(f"{self.run.name}: {fault}", next_step)

    @property
    def lacks(self) -> tuple[Lack, ...]:
        """Return the data missing in the profile, most important first."""
        return lacks_of(self.run.info, self.recorded)

    def lacks_of_rank(self, rank: int | None) -> tuple[Lack, ...]:
        """Return the data missing in the profile of ``rank``, most important first."""
        return lacks_of(self.run.info, self.recorded, rank)

    @property
    def ledger(self) -> pa.Table:
        """Return the time per step and device, by category of work and cause of idle time."""
        return self.table("ledger")

    @property
    def kernels(self) -> pa.Table:
        """Return the time of each kernel, longest first."""
        return self.table("kernels")


def break_down(
    run: Run, step_range: str | None = None, tables: Sequence[str] = names.USUAL_TABLES
) -> Breakdown:
    """Break down a run, and compute ``tables`` while its events are in memory."""
    wanted = map(table_of, dict.fromkeys(n for t in tables for n in table_of(t).joined or (t,)))
    from_events = [kind for kind in wanted if not kind.needs_files]
    by_name, step_windows = _tables_and_windows(run, step_range, from_events)
    return Breakdown(
        run=run,
        windows=step_windows,
        step_range=step_range,
        recorded=_recorded(run, step_range),
        _made=by_name,
    )


def _tables_and_windows(
    run: Run, step_range: str | None, wanted: Sequence[TableKind]
) -> tuple[dict[str, pa.Table], list[Window]]:
    captured = run.info.source in MEASURED and not step_range
    marked = _marked(run.events(), step_range) if step_range else None
    reads = {*WINDOW_COLUMNS, *(name for kind in wanted for name in kind.reads)}
    columns = [name for name in SCHEMA.names if name in reads]
    loaded = run.packed(columns) if marked is None else packed(marked.select(columns))
    ranges = host.framework_ranges(run.info)
    step_windows = [
        replace(window, framework_ranges=ranges) for window in windows_of(loaded, captured=captured)
    ]
    tables: dict[str, pa.Table] = {}
    later = sorted(wanted, key=lambda kind: len(kind.reads))
    source = Source(loaded, step_windows, run.info, made=tables)
    try:
        while later:
            kind = later.pop()
            source.table(kind.name)
            # free the columns that no later table reads
            loaded.forget(*{*kind.reads}.difference(*(other.reads for other in later)))
    except RunError as fault:
        if str(run.path) in fault.fault:
            raise
        raise RunError(f"{run.name}: {fault.fault}", fault.next_step) from fault
    return tables, step_windows


def _recorded(run: Run, step_range: str | None) -> tuple[Recorded, ...]:
    """Count each rank's events by type, such as ops and kernels."""
    if run.info.recorded is not None and not step_range:
        return run.info.recorded
    events = run.events()
    return recorded(_marked(events, step_range) if step_range else events)


def _marked(events: EventTable, step_range: str) -> EventTable:
    marked = with_markers(events, step_range)
    return with_steps(marked, windows(marked, captured=False))


def timing_columns() -> tuple[Column, ...]:
    """Return the columns of the table ``timings``, without the column ``run``."""
    places = {"workload": "workload.name"}
    by_field = {fact.field_path: fact.column for fact in facts()}
    names_ = (*_FACTS[:1], "workload", *_FACTS[1:])
    run_columns = [replace(by_field[places.get(name, name)], name=name) for name in names_]
    return (*run_columns, *STATISTICS, _SLOWDOWN)


def columns(table: str) -> list[str]:
    if table == TIMINGS:
        return ["run", *(column.name for column in timing_columns())]
    return ["run", *(column.name for column in TABLES[table].columns)]


def rows_of(
    breakdowns: Sequence[Breakdown], table: str, top: int | None = None
) -> list[dict[str, Any]]:
    """Return at most ``top`` rows of ``table`` per run, but all rows of the ledger."""
    if table == TIMINGS:
        return _timing_rows(breakdowns)
    most = None if table == "ledger" else top
    return [
        {"run": breakdown.run.name, **row}
        for breakdown in breakdowns
        for row in breakdown.table(table).slice(0, most).to_pylist()
    ]


def account_rows(
    breakdowns: Sequence[Breakdown], *, profiled: bool = False
) -> list[dict[str, Any]]:
    """Return one row per part of each run's mean step: 2,000,000 ns of ``gemm``."""
    return [
        {
            "run": breakdown.run.name,
            "rank": step.rank,
            "device": step.device,
            "steps": CLEAN if step.clean else PROFILED,
            "profiled_steps": step.steps,
            "state": state,
            "part": part,
            "ns": ns,
        }
        for breakdown in breakdowns
        for step in breakdown.steps(profiled=profiled)
        for state, part, ns in step.mean_parts
    ]


def lacking(breakdowns: Sequence[Breakdown]) -> list[dict[str, Any]]:
    """Return the data missing in each run's profile, most important first."""
    return [
        {"run": breakdown.run.name, **lack.to_dict()}
        for breakdown in breakdowns
        for lack in breakdown.lacks
    ]


def _timing_rows(breakdowns: Sequence[Breakdown]) -> list[dict[str, Any]]:
    slowdown = compared(breakdowns)
    timed = []
    for position, breakdown in enumerate(breakdowns):
        if breakdown.timings is None:
            continue
        info = breakdown.run.info
        row = {
            "run": breakdown.run.name,
            "workload": info.workload.name,
            **{name: getattr(info, name) for name in _FACTS},
            **asdict(breakdown.timings),
            "warnings": [str(warning) for warning in breakdown.timings.warnings],
            "slowdown": slowdown.get(position),
        }
        timed.append({name: row[name] for name in columns(TIMINGS)})
    return timed


def comparable(breakdowns: Sequence[Breakdown]) -> list[list[int]]:
    """Return groups of comparable runs by index, such as ``[[0, 2], [1]]``."""
    timed = [i for i, breakdown in enumerate(breakdowns) if breakdown.timings is not None]
    return alike(timed, lambda position: breakdowns[position].run.info)


def compared(breakdowns: Sequence[Breakdown]) -> dict[int, float]:
    """Return each run's slowdown against the fastest: ``{0: 1.0, 2: 1.8}``."""
    slowdown: dict[int, float] = {}
    for group in comparable(breakdowns):
        steps = {i: t.step_ns for i in group if (t := breakdowns[i].timings) is not None}
        slowdown |= slowdowns(steps) if len(steps) > 1 else {}
    return slowdown
