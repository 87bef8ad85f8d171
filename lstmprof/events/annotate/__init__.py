"""The derived columns of the events table: pure functions, table to table.

::

    events ─ links ─ categories ─ steps ─▶ events with every column
"""

from __future__ import annotations

import pyarrow as pa

from lstmprof.events.annotate.categories import categorised
from lstmprof.events.annotate.links import linked, with_forwards
from lstmprof.events.annotate.steps import windows, with_markers, with_steps

#: run.json's ``source`` of a run that lstmprof captured itself: its steps end synchronised.
CAPTURED = "capture"


def annotated(events: pa.Table, *, captured: bool, step_range: str | None = None) -> pa.Table:
    """A reader's ``events`` with every derived column filled.

    Raises:
        UsageError: ``step_range`` is no regular expression, or finds no host range.
    """
    events = with_markers(events, step_range) if step_range else events
    derived = categorised(with_forwards(linked(events)))
    return with_steps(derived, windows(derived, captured=captured))
