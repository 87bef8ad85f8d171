"""Predict the length of a step after a change, such as "no casts", and the next bottleneck.

Example: ``Prediction(observed_ns=100, replayed_ns=98, predicted_ns=90, ledger=…)``. The ledger
breaks down the changed step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lstmprof.breakdown.attribution.ledger import ledger
from lstmprof.breakdown.replay.changes import Change, ReplayTimes, unchanged_times
from lstmprof.breakdown.replay.dependencies import (
    ALWAYS,
    Activities,
    Dependencies,
    Positions,
    dependencies,
)
from lstmprof.breakdown.replay.graph import StepGraph, step_graph
from lstmprof.events.annotate.steps import Window
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.table import NONE, EventTable
from lstmprof.events.threads import thread_ids


@dataclass(frozen=True)
class Replay:
    """Start and end of each segment and activity of a replay, and the replay's length."""

    length_ns: int
    segment_start_ns: Ints
    segment_end_ns: Ints
    activity_start_ns: Ints
    activity_end_ns: Ints
    vanished: Flags  # activities that do not run


def replayed(
    graph: StepGraph, change: Change = unchanged_times, causes: Dependencies | None = None
) -> Replay:
    times = change(graph)
    hosts, streams = run(graph, times, causes or dependencies(graph))
    start, end = np.array(streams.start, np.int64), np.array(streams.end, np.int64)
    return Replay(
        length_of(graph, hosts, end, times.vanished),
        np.array(hosts.start, np.int64),
        np.array(hosts.end, np.int64),
        start,
        end,
        times.vanished,
    )


def run(graph: StepGraph, times: ReplayTimes, causes: Dependencies) -> tuple[Hosts, Streams]:
    """Replay the graph's host threads and streams with ``times``."""
    hosts, streams = Hosts(graph, times, causes), Streams(graph, times, causes.activities)
    for number in causes.order:
        if number >= 0:
            hosts.run(number, streams.end)
        else:
            streams.run(NONE - number, hosts)
    return hosts, streams


class Hosts:
    """The host threads of one replay; lists have one entry per segment."""

    def __init__(self, graph: StepGraph, times: ReplayTimes, causes: Dependencies) -> None:
        start, end = (graph.segments.column(n).to_numpy() for n in ("start_ns", "end_ns"))
        self.opens: int = graph.window.start_ns
        self.observed_ns: list[int] = (end - start).tolist()
        self.cost_ns: list[int] = times.segment_ns.tolist()
        self.previous: list[int] = causes.previous.tolist()
        self.waits_for = _pairs(causes.waits_for)
        self.syncs = {n: sync for n, sync in causes.syncs.items() if times.sync_waits[sync.number]}
        self.start = [self.opens] * len(self.cost_ns)
        self.end = [self.opens] * len(self.cost_ns)

    def run(self, number: int, activity_ends: list[int]) -> None:
        """Compute start and end of one segment, from the ends of earlier activities."""
        start = self.begin(number)
        segment, offset_ns = self.waits_for[number]
        if segment != NONE:
            end = max(start, self.instant(segment, offset_ns))
        elif number in self.syncs:
            sync = self.syncs[number]
            ends = (activity_ends[awaited] + sync.return_ns for awaited in sync.awaited)
            end = max([start + sync.cost_ns, *ends])
        else:
            end = start + self.cost_ns[number]
        self.start[number], self.end[number] = start, end

    def begin(self, number: int) -> int:
        """Return when the replay reaches the start of a segment."""
        previous = self.previous[number]
        return self.opens if previous == NONE else self.end[previous]

    def instant(self, segment: int, offset_ns: int) -> int:
        """Return when the replay reaches a point in ``segment``."""
        observed_ns = self.observed_ns[segment]
        if offset_ns >= observed_ns:
            return self.end[segment]
        return self.begin(segment) + offset_ns * self.cost_ns[segment] // observed_ns


class Streams:
    """The streams of one replay; lists have one entry per activity."""

    def __init__(self, graph: StepGraph, times: ReplayTimes, rows: Activities) -> None:
        latency_ns = np.where(times.instant, np.minimum(rows.latency_ns, 0), rows.latency_ns)
        self.cost_ns: list[int] = times.activity_ns.tolist()
        self.vanished: list[bool] = times.vanished.tolist()
        self.launched = _pairs(rows.launched)
        self.latency_ns: list[int] = latency_ns.tolist()
        self.same_stream: list[int] = rows.same_stream.tolist()
        self.gap_ns: list[int] = rows.gap_ns.tolist()
        self.other_stream: list[int] = np.where(
            times.stream_waits, rows.other_stream, NONE
        ).tolist()
        self.delay_ns: list[int] = rows.delay_ns.tolist()
        self.start: list[int] = graph.activities.column("start_ns").to_pylist()
        self.end = [ALWAYS] * len(self.start)
        # per activity: (end of its wait for another stream's activity, index of this activity)
        self.waits_until = [(ALWAYS, NONE)] * len(self.start)

    def run(self, index: int, hosts: Hosts) -> None:
        """Compute start and end of one activity."""
        previous, other = self.same_stream[index], self.other_stream[index]
        free = ALWAYS if previous == NONE else self.end[previous]
        waits_until = (ALWAYS, NONE) if previous == NONE else self.waits_until[previous]
        if other != NONE:
            waits_until = max(waits_until, (self.end[other] + self.delay_ns[index], other))
        self.waits_until[index] = waits_until
        if self.vanished[index]:
            self.end[index] = free
            return
        start = max(waits_until[0], free + self.gap_ns[index])
        segment, offset_ns = self.launched[index]
        if segment != NONE:
            start = max(start, hosts.instant(segment, offset_ns) + self.latency_ns[index])
        if start > ALWAYS // 2:  # else its observed start stays
            self.start[index] = start
        self.end[index] = self.start[index] + self.cost_ns[index]


def _pairs(positions: Positions) -> list[tuple[int, int]]:
    return list(zip(positions.segment.tolist(), positions.offset_ns.tolist(), strict=True))


def length_of(graph: StepGraph, hosts: Hosts, ends: Ints, vanished: Flags) -> int:
    """Return the length of the replayed step in ns."""
    window = graph.window
    done = int(ends[~vanished].max(initial=window.start_ns))
    thread = graph.segments.column("thread").to_numpy()
    step_segments = np.flatnonzero(thread == (NONE if window.thread is None else window.thread))
    if len(step_segments):
        return max(done, hosts.end[int(step_segments[-1])]) - window.start_ns
    observed = graph.activities.column("end_ns").to_numpy().max(initial=window.start_ns)
    return done - window.start_ns + window.end_ns - int(observed)


@dataclass(frozen=True)
class Prediction:
    """The predicted length of a step with one change, in ns; ``Run.what_if`` returns it.

    ``observed_ns`` is the length of the step before the replay. ``replayed_ns`` is the length of
    the replay without a change; it differs from ``observed_ns`` by the error of the replay.
    ``predicted_ns`` is the length of the replay with the change. ``ledger`` has the parts of the
    predicted step.
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
        """Return the largest part of the predicted step as (state, part, ns), or None."""
        rows = self.ledger.select(["ns", "state", "part"]).to_pylist()
        largest = max(rows, key=lambda r: (r["ns"], r["state"], r["part"]), default=None)
        return None if largest is None else (largest["state"], largest["part"], largest["ns"])


def predictions(events: EventTable, window: Window, changes: Sequence[Change]) -> list[Prediction]:
    graph = step_graph(events, window)
    causes = dependencies(graph)
    unchanged_ns = replayed(graph, unchanged_times, causes).length_ns
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
    """Give events their times in a replay; return also the replayed step."""
    window, thread = graph.window, thread_ids(events)
    closes = window.start_ns + replay.length_ns
    start, end = events.start_ns, events.end_ns
    host = np.flatnonzero(np.isin(thread, graph.segments.column("thread").to_numpy()))
    activities = events.rows_of(graph.activities.column("event_id").to_numpy())
    begun, runs_on = start[activities] < window.start_ns, end[activities] > window.end_ns
    moved = []
    for at in (start, end):
        # shift the events after the step by the change of the step's length
        new = np.where(at >= window.end_ns, at - window.end_ns + closes, at)
        new[host] = _moved(graph, replay, thread[host], at[host])
        moved.append(new)
    opened, closed = moved
    closed[host] = np.where(_shown(events, graph, replay)[host], closed[host], opened[host])
    opened[activities] = np.where(begun, start[activities], replay.activity_start_ns)
    beyond = np.where(runs_on, end[activities] - window.end_ns, 0)
    closed[activities] = np.where(replay.vanished, 0, replay.activity_end_ns + beyond)
    times = {"start_ns": opened, "dur_ns": np.maximum(closed - opened, 0)}
    steps = [replace(window, end_ns=closes)] if closes > window.start_ns else []
    return events.with_columns(times), steps


def _shown(events: EventTable, graph: StepGraph, replay: Replay) -> Flags:
    """Mark the events that keep a duration, such as launch calls and innermost events."""
    window = graph.window
    outside = (events.end_ns <= window.start_ns) | (events.start_ns >= window.end_ns)
    lasts = pa.array(replay.segment_end_ns > replay.segment_start_ns)
    spent = graph.segments.column("event_id").filter(lasts).drop_null().to_numpy()
    launches = graph.activities.column("launch_id").drop_null().to_numpy()
    event_id = events.ints("event_id", -1)
    # mark no other event of the step: events without duration are never innermost
    return np.asarray(outside | np.isin(event_id, np.concatenate([spent, launches])), np.bool_)


def _moved(graph: StepGraph, replay: Replay, thread: Ints, at_ns: Ints) -> Ints:
    """Convert times of the profile on each thread to times of the replay."""
    window, table = graph.window, graph.segments
    on, opens, closes = (table.column(n).to_numpy() for n in ("thread", "start_ns", "end_ns"))
    moved = at_ns.copy()
    for number in np.unique(thread):
        members = np.flatnonzero(on == number)
        asking = np.flatnonzero((thread == number) & (at_ns >= window.start_ns))
        index = members[np.searchsorted(opens[members], at_ns[asking], side="right") - 1]
        offset, length = at_ns[asking] - opens[index], closes[index] - opens[index]
        new = replay.segment_end_ns[index] - replay.segment_start_ns[index]
        moved[asking] = replay.segment_start_ns[index] + np.minimum(offset, length) * new // length
    after = at_ns >= window.end_ns
    moved[after] = at_ns[after] - window.end_ns + window.start_ns + replay.length_ns
    return moved
