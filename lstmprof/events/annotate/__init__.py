"""The derived columns of the events table: pure functions, table to table.

::

    events ─ links ─ categories ─ steps ─▶ events with every column
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lstmprof.events.table import EventTable

#: run.json's ``source`` of a run that lstmprof captured itself: its steps end synchronised.
CAPTURED = "capture"
#: The same of a run that lstmprof made of a user's own steps, in the user's own process.
OWN_CODE = "own code"
#: Runs whose steps end synchronised, and are timed without a profiler too.
MEASURED = (CAPTURED, OWN_CODE)


def annotated(events: EventTable, *, captured: bool, step_range: str | None = None) -> EventTable:
    """A reader's ``events`` with every derived column filled.

    Raises:
        UsageError: ``step_range`` is no regular expression, or finds no host range.
    """
    # a stored run is annotated: what reads it needs no rules
    from lstmprof.events.annotate.categories import categorised
    from lstmprof.events.annotate.links import linked, with_forwards
    from lstmprof.events.annotate.steps import windows, with_markers, with_steps
    from lstmprof.events.annotate.stored_annotation import annotated_in_batches
    from lstmprof.events.stored import StoredEvents

    events = with_markers(events, step_range) if step_range else events
    if isinstance(events, StoredEvents):
        return annotated_in_batches(events, captured=captured)
    derived = categorised(with_forwards(linked(events)), captured=captured)
    return with_steps(derived, windows(derived, captured=captured))
