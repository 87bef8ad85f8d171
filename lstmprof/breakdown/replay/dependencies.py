"""Find what each host segment, activity and sync of a step waited for, and the delay after this.

::

    segment    previous segment of the thread, or a segment of another thread
    activity   launch + latency, previous activity of the stream + gap, another stream
    sync       own cost, awaited activities + time to return

Source, except for waits between threads or streams: H. Zhu et al., "Daydream" (USENIX ATC 2020).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lstmprof.breakdown.replay.graph import StepGraph
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.table import NONE

#: A time before every event, for a condition that is always met.
ALWAYS = -(2**62)
_NO_STREAM = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Positions:
    """Points in time on host threads: segment (or ``NONE``), and ns after its start."""

    segment: Ints
    offset_ns: Ints


@dataclass(frozen=True)
class Activities:
    """The conditions for the start of activities, one array entry per activity."""

    launched: Positions  # launch, at least ``latency_ns`` before the start
    latency_ns: Ints
    same_stream: Ints  # the previous activity of the same stream, or NONE
    gap_ns: Ints
    other_stream: Ints  # the awaited activity of another stream, or NONE
    delay_ns: Ints


@dataclass(frozen=True)
class Sync:
    """A runtime call that waits for activities."""

    number: int  # row in the graph's table ``syncs``
    awaited: list[int]
    cost_ns: int  # least time from the call's start to its return
    return_ns: int  # from the last awaited activity's end to the return


@dataclass(frozen=True)
class Dependencies:
    """The events for which each host segment, device activity and sync waited."""

    order: list[int]  # segments (index) and activities (−1 − index), each after what it waited for
    previous: Ints  # per segment: the previous one of its thread
    waits_for: Positions  # per segment: an awaited point on another thread
    activities: Activities
    syncs: dict[int, Sync]  # by the segment in which it ends


def dependencies(graph: StepGraph) -> Dependencies:
    segments = _Columns(graph.segments)
    thread = segments["thread"]
    previous = np.arange(len(thread)) - 1
    previous[np.flatnonzero(np.append(True, np.diff(thread) != 0))[: len(thread)]] = NONE
    waits = _positions(segments, segments.nullable("waits_for"), segments["end_ns"])
    return Dependencies(
        _order(graph),
        previous,
        waits,
        _activities(graph, segments),
        _syncs(graph, segments),
    )


class _Columns:
    """Reads the columns of a table as int64; null becomes ``NONE``, which is no valid id."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __getitem__(self, name: str) -> Ints:
        return np.asarray(self.table.column(name).to_numpy(), dtype=np.int64)

    def nullable(self, name: str, null: int = NONE) -> Ints:
        return np.asarray(self.table.column(name).fill_null(null).to_numpy(), dtype=np.int64)


def _order(graph: StepGraph) -> list[int]:
    """Return the order in which a replay runs the segments and activities."""
    segments, activities = _Columns(graph.segments), _Columns(graph.activities)
    waits = segments.nullable("waits_for") != NONE
    count = len(activities.table)
    at = np.concatenate([segments["end_ns"], activities["start_ns"]])
    priority = np.concatenate([waits.astype(np.int64), np.full(count, 2)])
    name = np.concatenate([np.arange(len(waits)), NONE - np.arange(count)])
    order: list[int] = name[np.lexsort((np.abs(name), priority, at))].tolist()
    return order


def _positions(segments: _Columns, thread: Ints, at_ns: Ints) -> Positions:
    """Find the segment at each time ``at_ns`` on its ``thread``."""
    on, start = segments["thread"], segments["start_ns"]
    segment = np.full(len(thread), NONE, dtype=np.int64)
    for number in np.unique(thread[thread != NONE]):
        members = np.flatnonzero(on == number)
        asking = np.flatnonzero(thread == number)
        if len(members):
            place = np.searchsorted(start[members], at_ns[asking]) - 1
            segment[asking] = members[np.maximum(place, 0)]
    offset = np.where(segment != NONE, at_ns - _at(start, segment, 0), 0)
    return Positions(segment, np.maximum(offset, 0))


def _at(values: Ints, indices: Ints, none: int) -> Ints:
    if not len(values):
        return np.full(len(indices), none, dtype=np.int64)
    return np.where(indices != NONE, values[indices], none)


def _activities(graph: StepGraph, segments: _Columns) -> Activities:
    rows = _Columns(graph.activities)
    start, end, device = rows["start_ns"], rows["end_ns"], rows["device"]
    enqueued = np.minimum(rows.nullable("enqueued_ns"), start)
    launched = _positions(segments, rows.nullable("launch_thread"), enqueued)
    linked = launched.segment != NONE
    inside = rows.nullable("enqueued_ns") > start
    blocks = rows["blocks"]
    latency = np.where(linked, start - enqueued, ALWAYS)
    least = _least(latency, linked & ~inside, device * 2 + blocks)
    latency = np.where(linked, np.minimum(least, latency), ALWAYS)
    previous = _previous_of_stream(device, rows.nullable("stream", _NO_STREAM))
    gap = start - _at(end, previous, 0)
    behind = (previous != NONE) & linked & (gap >= 0)
    behind &= enqueued + np.maximum(latency, 0) <= _at(end, previous, ALWAYS)
    gap = np.where(previous != NONE, np.minimum(_least(gap, behind, device), gap), 0)
    after = _indices_of(rows["event_id"], rows.nullable("after_id"))
    return _explained(
        start,
        end,
        enqueued,
        Activities(launched, latency, previous, gap, after, np.zeros(len(start), dtype=np.int64)),
    )


def _explained(start: Ints, end: Ints, enqueued: Ints, rows: Activities) -> Activities:
    """Add each activity's remaining wait to the condition that was met last."""
    # compute which condition was met last, because profiles do not record this
    # add the rest to this condition, so that an unchanged replay keeps the observed times
    linked = rows.launched.segment != NONE
    conditions = np.stack(
        [
            np.where(linked, enqueued + rows.latency_ns, ALWAYS),
            np.where(rows.same_stream != NONE, _at(end, rows.same_stream, 0) + rows.gap_ns, ALWAYS),
            np.where(rows.other_stream != NONE, _at(end, rows.other_stream, 0), ALWAYS),
        ]
    )
    last = conditions.argmax(axis=0)
    rest = start - conditions.max(axis=0, initial=ALWAYS)
    explained = conditions.max(axis=0, initial=ALWAYS) > ALWAYS
    latency, gap, delay = (
        old + np.where(explained & (last == number), rest, 0)
        for number, old in enumerate((rows.latency_ns, rows.gap_ns, rows.delay_ns))
    )
    return Activities(rows.launched, latency, rows.same_stream, gap, rows.other_stream, delay)


def _least(ns: Ints, chosen: Flags, group: Ints) -> Ints:
    """Return each entry's least ``chosen`` value in its group (0: none is chosen)."""
    groups, member = np.unique(group, return_inverse=True)
    least = np.full(len(groups), np.iinfo(np.int64).max)
    np.minimum.at(least, member.reshape(-1)[chosen], ns[chosen])
    return np.where(least == np.iinfo(np.int64).max, 0, least)[member.reshape(-1)]


def _previous_of_stream(device: Ints, stream: Ints) -> Ints:
    """Return the previous activity on each activity's stream."""
    previous = np.full(len(device), NONE, dtype=np.int64)
    order = np.lexsort((stream, device))
    same = np.diff(device[order]) == 0
    same &= np.diff(stream[order]) == 0
    previous[order[1:][same]] = order[:-1][same]
    return previous


def _indices_of(event_id: Ints, wanted: Ints) -> Ints:
    """Return the index of each wanted id in ``event_id``."""
    if not len(event_id):
        return np.full(len(wanted), NONE, dtype=np.int64)
    order = np.argsort(event_id)
    position = np.minimum(np.searchsorted(event_id[order], wanted), len(order) - 1)
    return np.where(event_id[order][position] == wanted, order[position], NONE)


def _syncs(graph: StepGraph, segments: _Columns) -> dict[int, Sync]:
    rows, activities = graph.syncs, _Columns(graph.activities)
    last = _last_segments(segments, _Columns(rows)["event_id"])
    start, end = (_at(segments[name], last, 0) for name in ("start_ns", "end_ns"))
    awaited = _ended_in_time(activities, rows.column("awaited_ids"), end)
    ends = activities["end_ns"]
    last_end = np.array([max(map(ends.__getitem__, a), default=ALWAYS) for a in awaited], np.int64)
    scope = np.unique(rows.column("scope").to_pylist(), return_inverse=True)[1].reshape(-1)
    copies = np.array([s == "copy" for s in rows.column("scope").to_pylist()], dtype=np.bool_)
    has_segment = last != NONE
    rest = np.where(last_end > ALWAYS, end - last_end, 0)
    waited, passed = (
        has_segment & (last_end > start),
        has_segment & (last_end > ALWAYS) & (last_end <= start),
    )
    returning = np.minimum(_least(rest, waited, scope), rest)
    cost = _least(np.where(passed, end - start, rest), waited | passed, scope)
    cost = np.where(np.isin(scope, scope[passed]), _least(end - start, passed, scope), cost)
    # a blocking copy has no cost of its own: the call returns after the copy
    cost = np.where(copies, 0, np.minimum(cost, end - start))
    by_device = (last_end > ALWAYS) & (last_end + returning >= start + cost)
    cost = np.where(by_device, cost, end - start)
    returning = np.where(by_device, rest, returning)
    return {
        int(last[n]): Sync(int(n), awaited[n], int(cost[n]), int(returning[n]))
        for n in np.flatnonzero(has_segment)
    }


def _last_segments(segments: _Columns, event_id: Ints) -> Ints:
    """Return the last segment of each event."""
    owner = segments.nullable("event_id")
    last = np.full(len(event_id), NONE, dtype=np.int64)
    place = _indices_of(event_id, owner)
    owned = np.flatnonzero((place != NONE) & (owner != NONE))
    np.maximum.at(last, place[owned], owned)
    return last


def _ended_in_time(activities: _Columns, ids: pa.ChunkedArray, until_ns: Ints) -> list[list[int]]:
    """Return, for each sync, the awaited activities that ended before the sync ended."""
    place = {event: number for number, event in enumerate(activities["event_id"].tolist())}
    start, end = activities["start_ns"].tolist(), activities["end_ns"].tolist()
    return [
        [
            n
            for n in (place[i] for i in awaited if i in place)
            if start[n] < until and end[n] <= until
        ]
        for awaited, until in zip(ids.to_pylist(), until_ns.tolist(), strict=True)
    ]
