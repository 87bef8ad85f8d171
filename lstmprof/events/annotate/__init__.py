"""Fill the derived columns of the events table: links, categories and steps.

::

    events ─ links ─ categories ─ steps ─▶ events with every column
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lstmprof.events.table import EventTable

#: Value of ``source`` in run.json for a run of lstmprof capture.
CAPTURED = "capture"
#: Value of ``source`` in run.json of a run of the user's own training script.
OWN_CODE = "own code"
#: Values of ``source`` for runs whose steps lstmprof also timed without a profiler.
MEASURED = (CAPTURED, OWN_CODE)


def annotated(events: EventTable, *, captured: bool, step_range: str | None = None) -> EventTable:
    """Compute links, categories and steps of events (``captured`` by lstmprof or not)."""
    # Import late: reading a stored run does not need the rules.
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
