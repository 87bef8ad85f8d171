"""A step run again on paper: when everything would have happened, had a cause not been there.

Every segment and activity of a graph starts as soon as what it waits for allows
(``dependencies``), with the times that a change leaves (``changes``). Unchanged, this gives the
observed times back; changed, time that was hidden behind what vanishes comes to light, which
subtracting the ledger's part would miss.

Limits: the host is not held up by a full launch queue; a wait of the host that was recorded as
Python or as an op, and not as a call, keeps its length; activities whose launch is unknown keep
their distance to the one before; bandwidth that concurrent work shares is not modelled.

One pass in order of the observed times: O(n log n) to sort, O(n) to replay, for n segments and
activities.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.table import NONE
from lstmprof.replay.changes import Change, ReplayTimes, nothing
from lstmprof.replay.dependencies import (
    ALWAYS,
    Activities,
    Dependencies,
    Positions,
    Sync,
    dependencies,
)
from lstmprof.replay.graph import StepGraph


@dataclass(frozen=True)
class Replay:
    """When the segments and activities of a graph would run, and how long the step would take.

    The step ends once its thread has reached the window's end and all that ran in the window has.
    """

    length_ns: int
    segment_start_ns: Ints
    segment_end_ns: Ints
    activity_start_ns: Ints
    activity_end_ns: Ints
    gone: Flags  # activities that do not run


def replayed(
    graph: StepGraph, change: Change = nothing, causes: Dependencies | None = None
) -> Replay:
    """``graph`` as it would run with ``change``; ``causes``: its dependencies, if known."""
    times, causes = change(graph), causes or dependencies(graph)
    hosts = _Hosts(graph, times, causes)
    streams = _Streams(graph, times, causes.activities)
    for number in causes.order:
        if number >= 0:
            hosts.run(number, streams.end)
        else:
            streams.run(NONE - number, hosts)
    start, end = np.array(streams.start, np.int64), np.array(streams.end, np.int64)
    return Replay(
        _length_ns(graph, hosts, end, times.gone),
        np.array(hosts.start, np.int64),
        np.array(hosts.end, np.int64),
        start,
        end,
        times.gone,
    )


class _Hosts:
    """The host threads of one replay; lists have an entry a segment."""

    def __init__(self, graph: StepGraph, times: ReplayTimes, causes: Dependencies) -> None:
        start, end = (graph.segments.column(n).to_numpy() for n in ("start_ns", "end_ns"))
        self.opens: int = graph.window.start_ns
        self.observed_ns: list[int] = (end - start).tolist()
        self.cost_ns: list[int] = times.segment_ns.tolist()
        self.before: list[int] = causes.before.tolist()
        self.waits_for = _pairs(causes.waits_for)
        self.syncs = {n: sync for n, sync in causes.syncs.items() if times.waits[sync.number]}
        self.start = [self.opens] * len(self.cost_ns)
        self.end = [self.opens] * len(self.cost_ns)

    def run(self, number: int, activity_ends: list[int]) -> None:
        """Runs one segment; ``activity_ends`` are those known by now."""
        start = self.begin(number)
        segment, offset_ns = self.waits_for[number]
        if segment != NONE:
            end = max(start, self.instant(segment, offset_ns))
        elif number in self.syncs:
            end = _returned(start, self.syncs[number], activity_ends)
        else:
            end = start + self.cost_ns[number]
        self.start[number], self.end[number] = start, end

    def begin(self, number: int) -> int:
        previous = self.before[number]
        return self.opens if previous == NONE else self.end[previous]

    def instant(self, segment: int, offset_ns: int) -> int:
        """When the host is where it was ``offset_ns`` after the start of ``segment``."""
        observed_ns = self.observed_ns[segment]
        if offset_ns >= observed_ns:
            return self.end[segment]
        return self.begin(segment) + offset_ns * self.cost_ns[segment] // observed_ns


def _returned(start: int, sync: Sync, activity_ends: list[int]) -> int:
    end = start + sync.cost_ns
    for awaited in sync.awaited:
        end = max(end, activity_ends[awaited] + sync.return_ns)
    return end


class _Streams:
    """The streams of one replay; lists have an entry an activity.

    Where an activity is gone, ``end`` is that of what its stream ran before.
    """

    def __init__(self, graph: StepGraph, times: ReplayTimes, rows: Activities) -> None:
        latency_ns = np.where(times.instant, np.minimum(rows.latency_ns, 0), rows.latency_ns)
        self.cost_ns: list[int] = times.activity_ns.tolist()
        self.gone: list[bool] = times.gone.tolist()
        self.launched = _pairs(rows.launched)
        self.latency_ns: list[int] = latency_ns.tolist()
        self.before: list[int] = rows.before.tolist()
        self.gap_ns: list[int] = rows.gap_ns.tolist()
        self.after: list[int] = np.where(times.holds, rows.after, NONE).tolist()
        self.delay_ns: list[int] = rows.delay_ns.tolist()
        self.start: list[int] = graph.activities.column("start_ns").to_pylist()
        self.end = [ALWAYS] * len(self.start)
        self.held = [ALWAYS] * len(self.start)  # until when the stream has been told to wait

    def run(self, place: int, hosts: _Hosts) -> None:
        """Runs one activity."""
        previous, after = self.before[place], self.after[place]
        free = ALWAYS if previous == NONE else self.end[previous]
        held = ALWAYS if previous == NONE else self.held[previous]
        if after != NONE:
            held = max(held, self.end[after] + self.delay_ns[place])
        self.held[place] = held
        if self.gone[place]:
            self.end[place] = free
            return
        start = max(held, free + self.gap_ns[place])
        segment, offset_ns = self.launched[place]
        if segment != NONE:
            start = max(start, hosts.instant(segment, offset_ns) + self.latency_ns[place])
        if start > ALWAYS // 2:  # else nothing is known of what it waited for
            self.start[place] = start
        self.end[place] = self.start[place] + self.cost_ns[place]


def _pairs(positions: Positions) -> list[tuple[int, int]]:
    return list(zip(positions.segment.tolist(), positions.offset_ns.tolist(), strict=True))


def _length_ns(graph: StepGraph, hosts: _Hosts, ends: Ints, gone: Flags) -> int:
    window = graph.window
    done = int(ends[~gone].max(initial=window.start_ns))
    thread = graph.segments.column("thread").to_numpy()
    step_segments = np.flatnonzero(thread == (NONE if window.thread is None else window.thread))
    if len(step_segments):
        return max(done, hosts.end[int(step_segments[-1])]) - window.start_ns
    observed = graph.activities.column("end_ns").to_numpy().max(initial=window.start_ns)
    return done - window.start_ns + window.end_ns - int(observed)
