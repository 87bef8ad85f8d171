"""What a step would be like without one of its causes: its length, and what it then waits for.

The step is replayed (``replay``), its events are moved to the times found, and the ledger accounts
for them as it does for a profile; so the next bottleneck is a part like any other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lstmprof.breakdown.ledger import ledger
from lstmprof.events.annotate.steps import Window
from lstmprof.events.schema import ints
from lstmprof.events.threads import thread_ids
from lstmprof.replay.changes import Change, nothing, unrecorded
from lstmprof.replay.dependencies import Dependencies, dependencies
from lstmprof.replay.graph import Program, program
from lstmprof.replay.prediction import Prediction
from lstmprof.replay.programs import Flags, Ints
from lstmprof.replay.simulate import Replay, replayed


@dataclass(frozen=True)
class Timed:
    """The undisturbed steps of a run: their median, and what recording an op adds to a profile."""

    median_ns: int
    recording_ns: float


def what_if(
    events: pa.Table, window: Window, change: Change, timed: Timed | None = None
) -> Prediction:
    """The step in ``window`` of linked and categorised ``events``, with ``change``."""
    return what_ifs(events, window, [change], timed)[0]


def what_ifs(
    events: pa.Table, window: Window, changes: list[Change], timed: Timed | None = None
) -> list[Prediction]:
    """As ``what_if``, for several changes of one step, each by itself."""
    step = program(events, window)
    causes = dependencies(step)
    unchanged = replayed(step, nothing, causes).length_ns
    found = []
    for change in changes:
        replay = replayed(step, change, causes)
        parts = ledger(*retimed(events, step, replay))
        observed = window.end_ns - window.start_ns
        left = None if timed is None else _undisturbed_ns(step, change, causes, timed)
        found.append(Prediction(observed, unchanged, replay.length_ns, parts, left))
    return found


def _undisturbed_ns(
    step: Program, change: Change, causes: Dependencies, timed: Timed
) -> int | None:
    """The median step with ``change``: it shrinks as the step does whose ops were not recorded."""
    whole, left = (
        replayed(step, unrecorded(one, timed.recording_ns), causes).length_ns
        for one in (nothing, change)
    )
    return round(timed.median_ns * left / whole) if whole else None


def retimed(events: pa.Table, step: Program, replay: Replay) -> tuple[pa.Table, list[Window]]:
    """``events`` with those of ``step`` at the times of ``replay``, and its window.

    What came before the window stays where it was, what came after stays as far after; activities
    that are gone take no time.
    """
    window, thread = step.window, thread_ids(events)
    closes = window.start_ns + replay.length_ns
    start = ints(events, "start_ns", 0)
    end = start + ints(events, "dur_ns", 0)
    host = np.flatnonzero(np.isin(thread, step.segments.column("thread").to_numpy()))
    activities = _rows(events, step.activities.column("event_id").to_numpy())
    begun, runs_on = start[activities] < window.start_ns, end[activities] > window.end_ns
    moved = []
    for at in (start, end):
        new = np.where(at >= window.end_ns, at - window.end_ns + closes, at)
        new[host] = _moved(step, replay, thread[host], at[host])
        moved.append(new)
    opened, closed = moved
    closed[host] = np.where(_shown(events, step, replay)[host], closed[host], opened[host])
    opened[activities] = np.where(begun, start[activities], replay.activity_start_ns)
    beyond = np.where(runs_on, end[activities] - window.end_ns, 0)
    closed[activities] = np.where(replay.gone, 0, replay.activity_end_ns + beyond)
    times = {"start_ns": opened, "dur_ns": np.maximum(closed - opened, 0)}
    left = [replace(window, end_ns=closes)] if closes > window.start_ns else []
    return events.with_columns(times), left


def _shown(events: pa.Table, step: Program, replay: Replay) -> Flags:
    """A boolean a row: its thread spends time in it, or it launched an activity of the step.

    What shrinks to the events inside it would otherwise tie with them for the innermost.
    """
    lasts = pa.array(replay.segment_end_ns > replay.segment_start_ns)
    spent = step.segments.column("event_id").filter(lasts).drop_null().to_numpy()
    launches = step.activities.column("launch_id").drop_null().to_numpy()
    known = ints(events, "event_id", -1)
    return np.asarray(np.isin(known, np.concatenate([spent, launches])), dtype=np.bool_)


def _rows(events: pa.Table, event_ids: Ints) -> Ints:
    """The row of each event, −1 for none."""
    known = ints(events, "event_id", -1)
    order = np.argsort(known)
    found = np.minimum(np.searchsorted(known[order], event_ids), len(order) - 1)
    return np.where(known[order][found] == event_ids, order[found], -1)


def _moved(step: Program, replay: Replay, thread: Ints, at_ns: Ints) -> Ints:
    """``at_ns`` on each ``thread`` by the clock of ``replay``."""
    window, table = step.window, step.segments
    on, opens, closes = (table.column(n).to_numpy() for n in ("thread", "start_ns", "end_ns"))
    moved = at_ns.copy()
    for one in np.unique(thread):
        mine = np.flatnonzero(on == one)
        asked = np.flatnonzero((thread == one) & (at_ns >= window.start_ns))
        place = mine[np.searchsorted(opens[mine], at_ns[asked], side="right") - 1]
        offset, length = at_ns[asked] - opens[place], closes[place] - opens[place]
        new = replay.segment_end_ns[place] - replay.segment_start_ns[place]
        moved[asked] = replay.segment_start_ns[place] + np.minimum(offset, length) * new // length
    after = at_ns >= window.end_ns
    moved[after] = at_ns[after] - window.end_ns + window.start_ns + replay.length_ns
    return moved
