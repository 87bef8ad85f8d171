"""What a step would be like without one of its causes: its length, and what it then waits for.

The step is replayed (``simulate``), its events are moved to the times found, and the ledger
accounts for them as it does for a profile; so the next bottleneck is a part like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lstmprof.breakdown.ledger import ledger
from lstmprof.events.annotate.steps import Window
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.table import EventTable
from lstmprof.events.threads import thread_ids
from lstmprof.replay.changes import Change, nothing
from lstmprof.replay.dependencies import dependencies
from lstmprof.replay.graph import StepGraph, step_graph
from lstmprof.replay.simulate import Replay, replayed


@dataclass(frozen=True)
class Prediction:
    """The length of a step with one change, in ns; ``Run.what_if`` returns it.

    ``observed_ns`` is the length of the profiled step. ``replayed_ns`` is the length of the replay
    without a change; it differs from ``observed_ns`` by the error of the replay. ``predicted_ns``
    is the length of the replay with the change. ``ledger`` has the parts of that step.
    """

    observed_ns: int
    replayed_ns: int
    predicted_ns: int
    ledger: pa.Table

    @property
    def saved_ns(self) -> int:
        """Return how much shorter the step would be, in ns."""
        return self.replayed_ns - self.predicted_ns

    @property
    def bottleneck(self) -> tuple[str, str, int] | None:
        """Return the largest part of the predicted step as (state, part, ns).

        Return None if the predicted step has no parts.
        """
        rows = self.ledger.select(["ns", "state", "part"]).to_pylist()
        largest = max(rows, key=lambda r: (r["ns"], r["state"], r["part"]), default=None)
        return None if largest is None else (largest["state"], largest["part"], largest["ns"])


def predictions(events: EventTable, window: Window, changes: Sequence[Change]) -> list[Prediction]:
    """The step in ``window`` of linked and categorised ``events``, with each of ``changes``."""
    graph = step_graph(events, window)
    causes = dependencies(graph)
    unchanged_ns = replayed(graph, nothing, causes).length_ns
    observed_ns = window.end_ns - window.start_ns
    rows = []
    for change in changes:
        replay = replayed(graph, change, causes)
        parts = ledger(*retimed(events, graph, replay))
        rows.append(Prediction(observed_ns, unchanged_ns, replay.length_ns, parts))
    return rows


def retimed(
    events: EventTable, graph: StepGraph, replay: Replay
) -> tuple[EventTable, list[Window]]:
    """``events`` with those of ``graph`` at the times of ``replay``, and its window.

    What came before the window stays where it was, what came after stays as far after; activities
    that are gone take no time.
    """
    window, thread = graph.window, thread_ids(events)
    closes = window.start_ns + replay.length_ns
    start, end = events.start_ns, events.end_ns
    host = np.flatnonzero(np.isin(thread, graph.segments.column("thread").to_numpy()))
    activities = events.rows_of(graph.activities.column("event_id").to_numpy())
    begun, runs_on = start[activities] < window.start_ns, end[activities] > window.end_ns
    moved = []
    for at in (start, end):
        new = np.where(at >= window.end_ns, at - window.end_ns + closes, at)
        new[host] = _moved(graph, replay, thread[host], at[host])
        moved.append(new)
    opened, closed = moved
    closed[host] = np.where(_shown(events, graph, replay)[host], closed[host], opened[host])
    opened[activities] = np.where(begun, start[activities], replay.activity_start_ns)
    beyond = np.where(runs_on, end[activities] - window.end_ns, 0)
    closed[activities] = np.where(replay.gone, 0, replay.activity_end_ns + beyond)
    times = {"start_ns": opened, "dur_ns": np.maximum(closed - opened, 0)}
    left = [replace(window, end_ns=closes)] if closes > window.start_ns else []
    return events.with_columns(times), left


def _shown(events: EventTable, graph: StepGraph, replay: Replay) -> Flags:
    """A boolean a row: its thread spends time in it, or it launched an activity of the graph.

    What shrinks to the events inside it would otherwise tie with them for the innermost. What was
    over before the window, or came after it, is as it was.
    """
    window = graph.window
    outside = (events.end_ns <= window.start_ns) | (events.start_ns >= window.end_ns)
    lasts = pa.array(replay.segment_end_ns > replay.segment_start_ns)
    spent = graph.segments.column("event_id").filter(lasts).drop_null().to_numpy()
    launches = graph.activities.column("launch_id").drop_null().to_numpy()
    event_id = events.ints("event_id", -1)
    return np.asarray(outside | np.isin(event_id, np.concatenate([spent, launches])), np.bool_)


def _moved(graph: StepGraph, replay: Replay, thread: Ints, at_ns: Ints) -> Ints:
    """``at_ns`` on each ``thread`` by the clock of ``replay``."""
    window, table = graph.window, graph.segments
    on, opens, closes = (table.column(n).to_numpy() for n in ("thread", "start_ns", "end_ns"))
    moved = at_ns.copy()
    for number in np.unique(thread):
        members = np.flatnonzero(on == number)
        asked = np.flatnonzero((thread == number) & (at_ns >= window.start_ns))
        place = members[np.searchsorted(opens[members], at_ns[asked], side="right") - 1]
        offset, length = at_ns[asked] - opens[place], closes[place] - opens[place]
        new = replay.segment_end_ns[place] - replay.segment_start_ns[place]
        moved[asked] = replay.segment_start_ns[place] + np.minimum(offset, length) * new // length
    after = at_ns >= window.end_ns
    moved[after] = at_ns[after] - window.end_ns + window.start_ns + replay.length_ns
    return moved
