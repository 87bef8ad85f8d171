"""From events to the account of a step: pure functions, table to table.

::

    events ─ linked ─ categorised ─ with_steps ─▶ events.parquet ─▶ TABLES, timings
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lstmprof.breakdown.categories import categorised
from lstmprof.breakdown.forwards import with_forwards
from lstmprof.breakdown.links import linked
from lstmprof.breakdown.tables import TABLES, table_of
from lstmprof.breakdown.timings import Timings, timings
from lstmprof.breakdown.windows import Window, windows, with_markers, with_steps
from lstmprof.store import Run

__all__ = ["CAPTURED", "TABLES", "Breakdown", "annotated", "break_down"]

#: run.json's ``source`` of a run that lstmprof captured itself: its steps end synchronised.
CAPTURED = "capture"
#: What ``lstmprof breakdown`` shows where no table is asked for.
USUAL = ("ledger", "kernels")


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
            events = _marked(self.run, self.step_range)[0]
            self._made[name] = wanted.of(events, self.windows, self.run.metadata)
        return self._made[name]

    @property
    def ledger(self) -> pa.Table:
        """Every nanosecond of each step and device once."""
        return self.table("ledger")

    @property
    def kernels(self) -> pa.Table:
        """What each kernel took, the longest first."""
        return self.table("kernels")


def annotated(events: pa.Table, *, captured: bool, step_range: str | None = None) -> pa.Table:
    """A reader's ``events`` with every derived column filled.

    Raises:
        UsageError: ``step_range`` is no regular expression, or finds no host range.
    """
    events = with_markers(events, step_range) if step_range else events
    derived = categorised(with_forwards(linked(events)))
    return with_steps(derived, windows(derived, captured=captured))


def break_down(run: Run, step_range: str | None = None, tables: Sequence[str] = USUAL) -> Breakdown:
    """The account of ``run``; its steps are the host ranges that ``step_range`` finds, if given.

    ``tables`` are made at once, while the events are in memory; ``Breakdown.table`` reads them
    again for any other.

    Raises:
        RunError: one of its files is missing, damaged or of another schema version.
        UsageError: ``step_range`` is no regular expression, or finds no host range; no table has
            one of these names.
    """
    wanted = [table_of(name) for name in tables]
    events, found = _marked(run, step_range)
    measured = run.timings()
    return Breakdown(
        run=run,
        windows=found,
        timings=None if measured is None else timings(measured, run.metadata),
        step_range=step_range,
        _made={table.name: table.of(events, found, run.metadata) for table in wanted},
    )


def _marked(run: Run, step_range: str | None) -> tuple[pa.Table, list[Window]]:
    """The events of ``run`` with their steps, and the windows."""
    events, captured = run.events(), run.metadata.get("source") == CAPTURED
    if step_range:
        events, captured = with_markers(events, step_range), False
        events = with_steps(events, windows(events, captured=captured))
    return events, windows(events, captured=captured)
