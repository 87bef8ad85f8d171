"""Find the critical path of a step: the longest chain of dependent work and waits.

::

    host      [python )[dispatch)[launch call)
    device                              ~~~~~~[matmul     )[elementwise)
                                 launch latency                         [sync)  return to the host
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from lstmprof.breakdown.replay.changes import ReplayTimes, unchanged_times
from lstmprof.breakdown.replay.dependencies import Dependencies, dependencies
from lstmprof.breakdown.replay.graph import StepGraph, step_graph
from lstmprof.breakdown.replay.what_if import Hosts, Streams, length_of, replayed, run
from lstmprof.events.annotate.steps import Window
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.table import NONE, EventTable

#: Causes of time in which neither a host thread nor a device works.
LATENCY, QUEUED, UNKNOWN = "launch latency", "queued", "unattributed"
LAUNCH = "launch call"


class PathInterval(NamedTuple):
    """A time interval of the critical path, and the event that ran at this time."""

    start_ns: int
    end_ns: int
    state: str  # busy if something computes or moves data, else idle
    part: str
    event_id: int | None


class CriticalPath:
    """The critical path of a step: time intervals with a category or an idle cause."""

    def __init__(self, graph: StepGraph) -> None:
        self.graph, self._causes = graph, dependencies(graph)
        times = unchanged_times(graph)
        self._hosts, self._streams = run(graph, times, self._causes)
        ends = np.array(self._streams.end, dtype=np.int64)
        self.length_ns = length_of(graph, self._hosts, ends, times.vanished)
        self._host_part, self._device_part = _host_parts(graph), _device_parts(graph)
        self.intervals = list(reversed(list(self._backwards())))

    def saved_ns(self, part: str, share: float = 0.5) -> int:
        """Return the ns that a step saves if ``part``, such as ``gemm``, shrinks by ``share``."""

        def shortened(ns: Ints) -> Ints:
            less = np.rint(np.maximum(ns, 0) * share).astype(np.int64)
            return np.asarray(ns - less, dtype=np.int64)

        def change(graph: StepGraph) -> ReplayTimes:
            times = unchanged_times(graph)
            host, device = self._host_part == part, self._device_part == part
            return replace(
                times,
                segment_ns=np.where(host, shortened(times.segment_ns), times.segment_ns),
                activity_ns=np.where(device, shortened(times.activity_ns), times.activity_ns),
            )

        causes, rows = self._causes, self._causes.activities
        if part == LATENCY:
            linked = rows.launched.segment != NONE
            latency = np.where(linked, shortened(rows.latency_ns), rows.latency_ns)
            causes = replace(causes, activities=replace(rows, latency_ns=latency))
        if part == QUEUED:
            gap, delay = shortened(rows.gap_ns), shortened(rows.delay_ns)
            causes = replace(causes, activities=replace(rows, gap_ns=gap, delay_ns=delay))
        syncs = dict(causes.syncs)
        for number, sync in causes.syncs.items():
            if self._host_part[number] == part:
                cost, back = shortened(np.array([sync.cost_ns, sync.return_ns])).tolist()
                syncs[number] = replace(sync, cost_ns=cost, return_ns=back)
        causes = replace(causes, syncs=syncs)
        return self.length_ns - replayed(self.graph, change, causes).length_ns

    def _backwards(self) -> Iterator[PathInterval]:
        """Yield the time intervals of the path, from the last to the first."""
        # leave no gaps, so that the intervals sum to the step
        walk = _Walk(self.graph, self._causes, self._hosts, self._streams)
        at_ns = self.graph.window.start_ns + self.length_ns
        node, state, part = walk.last, "idle", UNKNOWN
        while at_ns > self.graph.window.start_ns:
            previous = walk.predecessor(node, at_ns) if node else None
            start_ns, node, of = previous or (self.graph.window.start_ns, None, None)
            start_ns = min(start_ns, at_ns)
            event_id = None
            if isinstance(of, str):
                state, part = "idle", of
            elif of is None:
                state, part = "idle", UNKNOWN
            else:
                on_device, number = of
                parts = self._device_part if on_device else self._host_part
                busy = on_device or walk.computes[number]
                state, part = "busy" if busy else "idle", str(parts[number])
                event_id = walk.event_id(on_device, number)
            if start_ns < at_ns:
                yield PathInterval(start_ns, at_ns, state, part, event_id)
            at_ns = start_ns


def critical_path_of(events: EventTable, window: Window) -> CriticalPath:
    return CriticalPath(step_graph(events, window))


#: Node of the path: (on_device, number, offset_ns).
#: ``number`` is the index of a device activity or host segment.
#: ``offset_ns`` is the part of the segment on the path (None: the whole segment).
_Node = tuple[bool, int, int | None]
#: Content of a path interval: a node (on_device, number), a cause of idle time, or None (unknown).
_Content = str | tuple[bool, int] | None


class _Walk:
    """Follows a replay backwards, from each node to the last node that it waited for."""

    def __init__(
        self, graph: StepGraph, causes: Dependencies, hosts: Hosts, streams: Streams
    ) -> None:
        self._opens, self._hosts, self._streams = graph.window.start_ns, hosts, streams
        tables = graph.segments, graph.activities
        self._host_id, self._device_id = (t.column("event_id").to_pylist() for t in tables)
        self.computes: list[bool] = graph.segments.column("category").is_valid().to_pylist()
        self._rank_in_order = {number: position for position, number in enumerate(causes.order)}
        self.last = self._last(graph)

    def event_id(self, on_device: bool, number: int) -> int | None:
        ids = self._device_id if on_device else self._host_id
        return None if ids[number] is None else int(ids[number])

    def predecessor(self, node: _Node, at_ns: int) -> tuple[int, _Node | None, _Content]:
        """Return (start, previous node, content) of the interval that ends at ``at_ns``."""
        on_device, number, offset_ns = node
        if on_device:
            start_ns = self._streams.start[number]
            if start_ns < at_ns:
                return start_ns, node, (True, number)
            return self._why_started(number)
        hosts, done = self._hosts, self._streams.end
        previous, begin = hosts.previous[number], hosts.begin(number)
        leads = None if previous == NONE else (False, previous, None)
        if offset_ns is None:
            segment, offset = hosts.waits_for[number]
            if segment != NONE:
                instant = hosts.instant(segment, offset)
                other = (False, segment, self._partly(segment, offset))
                if instant > begin and self._is_earlier(other, node):
                    return instant, other, (False, number)
            elif number in hosts.syncs:
                sync = hosts.syncs[number]
                last = max(sync.awaited, key=done.__getitem__, default=NONE)
                waited = last != NONE and done[last] + sync.return_ns > begin + sync.cost_ns
                if waited and self._is_earlier((True, last, None), node):
                    return done[last], (True, last, None), (False, number)
        return begin, leads, (False, number)

    def _why_started(self, index: int) -> tuple[int, _Node | None, _Content]:
        """Return (start, awaited node, cause) of the last wait of an activity."""
        conditions: list[tuple[int, int, _Node, str]] = []
        streams = self._streams
        segment, offset = streams.launched[index]
        if segment != NONE:
            at = self._hosts.instant(segment, offset)
            node = (False, segment, self._partly(segment, offset))
            conditions.append((at + streams.latency_ns[index], at, node, LATENCY))
        previous, (awaited_ns, awaited) = streams.same_stream[index], streams.waits_until[index]
        if previous != NONE:
            at = streams.end[previous]
            conditions.append((at + streams.gap_ns[index], at, (True, previous, None), QUEUED))
        if awaited != NONE:
            conditions.append((awaited_ns, streams.end[awaited], (True, awaited, None), QUEUED))
        own = (True, index, None)
        conditions = [each for each in conditions if self._is_earlier(each[2], own)]
        if not conditions:
            return self._opens, None, None
        _, at, node, part = max(conditions)
        return at, node, part

    def _is_earlier(self, node: _Node, than: _Node) -> bool:
        """Return whether the replay ran ``node`` before ``than``."""
        on_device, number, offset_ns = node
        if offset_ns is not None:  # a segment starts when the one before it was replayed
            number = self._hosts.previous[number]
            if number == NONE:
                return True
        position = self._rank_in_order[NONE - number if on_device else number]
        return position < self._rank_in_order[NONE - than[1] if than[0] else than[1]]

    def _partly(self, segment: int, offset_ns: int) -> int | None:
        return offset_ns if offset_ns < self._hosts.observed_ns[segment] else None

    def _last(self, graph: StepGraph) -> _Node | None:
        """Return the node that ends the step: a host segment or an activity."""
        thread = graph.segments.column("thread").to_numpy()
        window = graph.window
        own = np.flatnonzero(thread == (NONE if window.thread is None else window.thread))
        ends = self._streams.end
        done = max(range(len(ends)), key=ends.__getitem__, default=NONE)
        if len(own) and (done == NONE or self._hosts.end[int(own[-1])] >= ends[done]):
            return (False, int(own[-1]), None)
        return None if done == NONE else (True, done, None)


def _host_parts(graph: StepGraph) -> np.ndarray:
    """Return each segment's category of work (``gemm`` …) or cause of idle time."""
    table = graph.segments
    launches = table.column("launches").to_numpy().astype(np.bool_)
    category = np.array(table.column("category").to_pylist(), dtype=object)
    state = np.array(table.column("state").to_pylist(), dtype=object)
    computes: Flags = np.array([c is not None for c in category.tolist()], dtype=np.bool_)
    return np.where(computes, category, np.where(launches, LAUNCH, state))


def _device_parts(graph: StepGraph) -> np.ndarray:
    categories: pa.ChunkedArray = graph.activities.column("category").fill_null("other")
    return np.array(categories.to_pylist(), dtype=object)
