"""From events to the account of a step: pure functions, table to table.

::

    events ─ linked ─ categorised ─ with_steps ─▶ events.parquet ─▶ TABLES, timings
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from lstmprof.breakdown import host
from lstmprof.breakdown.tables import TABLES, TableKind, table_of
from lstmprof.breakdown.timings import Timings, timings
from lstmprof.events.annotate import CAPTURED
from lstmprof.events.annotate.steps import Window, windows, with_markers, with_steps
from lstmprof.events.batches import Batches
from lstmprof.events.packed import Packed, packed
from lstmprof.events.schema import SCHEMA
from lstmprof.events.tracks import READS, windows_of
from lstmprof.names import USUAL_TABLES
from lstmprof.runs.metadata import RunInfo
from lstmprof.runs.run import Run

__all__ = ["TABLES", "Breakdown", "break_down"]


@dataclass(frozen=True)
class Breakdown:
    """The account of one run: its windows, its timings, and any table of ``TABLES`` on demand."""

    run: Run
    windows: list[Window]
    timings: Timings | None
    step_range: str | None = None
    _made: dict[str, pa.Table] = field(default_factory=dict, repr=False, compare=False)

    def table(self, name: str) -> pa.Table:
        """The table ``name`` of ``TABLES``; made when it is first asked for, from the run's events.

        Raises:
            UsageError: no table has this name.
            RunError: the events are missing, damaged or of another schema version.
        """
        wanted = table_of(name)
        if name not in self._made:
            events = _marked(self.run, self.step_range, [wanted])[0]
            self._made.update(_tables([wanted], events, self.windows, self.run.info))
        return self._made[name]

    @property
    def ledger(self) -> pa.Table:
        """Every nanosecond of each step and device once."""
        return self.table("ledger")

    @property
    def kernels(self) -> pa.Table:
        """What each kernel took, the longest first."""
        return self.table("kernels")


def break_down(
    run: Run, step_range: str | None = None, tables: Sequence[str] = USUAL_TABLES
) -> Breakdown:
    """The account of ``run``; its steps are the host ranges that ``step_range`` finds, if given.

    ``tables`` are made at once, while the events are in memory; ``Breakdown.table`` reads them
    again for any other.

    Raises:
        RunError: one of its files is missing, damaged or of another schema version.
        UsageError: ``step_range`` is no regular expression, or finds no host range; no table has
            one of these names.
    """
    wanted = [table_of(name) for name in tables]
    events, found = _marked(run, step_range, wanted)
    measured = run.timings()
    return Breakdown(
        run=run,
        windows=found,
        timings=None if measured is None else timings(measured, run.info),
        step_range=step_range,
        _made=_tables(wanted, events, found, run.info),
    )


def _marked(
    run: Run, step_range: str | None, wanted: Sequence[TableKind]
) -> tuple[Packed, list[Window]]:
    """What the ``wanted`` tables read of the events of ``run``, with their steps; the windows."""
    captured = run.info.source == CAPTURED
    read = {*READS, *(name for table in wanted for name in table.reads)}
    columns = [name for name in SCHEMA.names if name in read]
    if step_range:
        events = with_markers(run.events(), step_range)
        events = with_steps(events, windows(events, captured=False))
        held, captured = packed(events.select(columns)), False
    else:
        held = Packed(run.narrow_events(columns))
    ranges = host.framework_ranges(run.info)
    found = windows_of(held, captured=captured)
    return held, [replace(window, framework_ranges=ranges) for window in found]


def _tables(
    wanted: Sequence[TableKind], events: Packed, found: list[Window], info: RunInfo
) -> dict[str, pa.Table]:
    """The ``wanted`` tables by name; where events are many, those that can be from batches."""
    parts = Batches(events)
    gathered = {t.name: t.gather(events, found) for t in wanted if t.gather and parts.divisible}
    for batch in parts if gathered else ():
        for one in gathered.values():
            one.add(batch)
    return {
        table.name: table.ordered(gathered[table.name].table())
        if table.name in gathered
        else table.of(events.table(table.reads), found, info)
        for table in wanted
    }
