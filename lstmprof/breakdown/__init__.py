"""From events to the account of a step: pure functions, table to table.

::

    events ─ linked ─ categorised ─ with_steps ─▶ events.parquet ─▶ ledger, kernels, timings
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from lstmprof.breakdown.categories import categorised
from lstmprof.breakdown.forwards import with_forwards
from lstmprof.breakdown.kernels import kernels
from lstmprof.breakdown.ledger import ledger
from lstmprof.breakdown.links import linked
from lstmprof.breakdown.timings import Timings, timings
from lstmprof.breakdown.windows import Window, windows, with_markers, with_steps
from lstmprof.store import Run

#: run.json's ``source`` of a run that lstmprof captured itself: its steps end synchronised.
CAPTURED = "capture"


@dataclass(frozen=True)
class Breakdown:
    """The account of one run: ``ledger`` and ``kernels`` with their modules' ``SCHEMA``."""

    run: Run
    windows: list[Window]
    ledger: pa.Table
    kernels: pa.Table
    timings: Timings | None


def annotated(events: pa.Table, *, captured: bool, step_range: str | None = None) -> pa.Table:
    """A reader's ``events`` with every derived column filled.

    Raises:
        UsageError: ``step_range`` is no regular expression, or finds no host range.
    """
    events = with_markers(events, step_range) if step_range else events
    derived = categorised(with_forwards(linked(events)))
    return with_steps(derived, windows(derived, captured=captured))


def break_down(run: Run, step_range: str | None = None) -> Breakdown:
    """The account of ``run``; its steps are the host ranges that ``step_range`` finds, if given.

    Raises:
        RunError: one of its files is missing, damaged or of another schema version.
        UsageError: ``step_range`` is no regular expression, or finds no host range.
    """
    events, captured = run.events(), run.metadata.get("source") == CAPTURED
    if step_range:
        events, captured = with_markers(events, step_range), False
        events = with_steps(events, windows(events, captured=captured))
    found = windows(events, captured=captured)
    measured = run.timings()
    return Breakdown(
        run=run,
        windows=found,
        ledger=ledger(events, found),
        kernels=kernels(events, found),
        timings=None if measured is None else timings(measured, run.metadata),
    )
