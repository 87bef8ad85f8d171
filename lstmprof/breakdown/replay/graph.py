"""The graph of a step: host segments, activities, and what each segment or activity waited for.

A *segment* is a time on a host thread with one innermost event, or without an event. Example: if
Python calls ``aten::mm``, the thread has three segments: Python, ``aten::mm``, Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lstmprof.breakdown.replay.calls import (
    END,
    PHASE,
    START,
    THREAD,
    Calls,
    StepRows,
    texts_at,
)
from lstmprof.breakdown.replay.streams import Streams, syncs
from lstmprof.events.annotate.calls import launch_calls
from lstmprof.events.annotate.steps import Window
from lstmprof.events.groups import nearest
from lstmprof.events.intervals import Flags, Ints, Segments, foremost
from lstmprof.events.schema import Column, schema
from lstmprof.events.table import NONE, EventTable
from lstmprof.events.threads import HOST, STATES, innermost, ops_called

_READ = ["kind", "name", "category", "stream", "start_ns", "dur_ns"]


@dataclass(frozen=True)
class HostSegments:
    """Segments of host threads, with their innermost events and awaited threads."""

    thread: Ints
    start_ns: Ints
    end_ns: Ints
    row: Ints
    waits_for: Ints


@dataclass(frozen=True)
class _Innermost:
    """The segments of all threads that have an innermost event."""

    thread: Ints
    start_ns: Ints
    end_ns: Ints
    row: Ints
    patient: Flags  # whether it may wait for another thread

    def may_wait(self, outer: Ints, inner: Ints) -> Flags:
        """Return whether each segment ``outer`` contains ``inner`` and may wait."""
        # a long frame that contains work of another thread by chance also counts as a wait
        within = (self.start_ns[outer] <= self.start_ns[inner]) & (
            self.end_ns[inner] <= self.end_ns[outer]
        )
        return np.asarray(within & self.patient[outer], dtype=np.bool_)


def host_segments(
    events: EventTable, window: Window, rows: Ints, thread: Ints, patient: Flags
) -> HostSegments:
    """Return the segments of all threads of a rank."""
    threads = list(_innermost_by_thread(events.select(_READ), window, rows, thread))
    row = np.concatenate([segments.owner for segments in threads] or [np.empty(0, dtype=np.int64)])
    segments = _Innermost(
        thread[row],
        np.concatenate([segments.start_ns for segments in threads] or [row]),
        np.concatenate([segments.end_ns for segments in threads] or [row]),
        row,
        patient[row],
    )
    # skip all threads if there are no segments, because then no event has a duration
    numbers = np.unique(thread[rows if len(segments.row) else rows[:0]])
    # assume that the thread whose segment started last is at work: profiles show no waits
    order = np.lexsort((-segments.thread, segments.end_ns, -segments.start_ns))
    at_work = foremost(segments.start_ns, segments.end_ns, order)
    parts = [_thread_segments(segments, at_work, int(number), window) for number in numbers]
    if not parts:
        return HostSegments(*(np.empty(0, dtype=np.int64) for _ in range(5)))
    return HostSegments(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _innermost_by_thread(
    events: EventTable, window: Window, rows: Ints, thread: Ints
) -> Iterator[Segments]:
    by_thread = rows[np.argsort(thread[rows], kind="stable")]
    borders = np.flatnonzero(np.diff(thread[by_thread])) + 1
    for members in np.split(by_thread, borders):
        if len(members):
            own_events = events.take(members)
            segments = innermost(own_events, np.arange(len(members))).within(
                window.start_ns, window.end_ns
            )
            yield Segments(segments.start_ns, segments.end_ns, members[segments.owner])


def _thread_segments(
    segments: _Innermost, at_work: Segments, number: int, window: Window
) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Return the segments of a thread, as columns."""
    rows = np.flatnonzero(segments.thread == number)
    bounds = [segments.start_ns[rows], segments.end_ns[rows], at_work.start_ns, at_work.end_ns]
    bounds.append(np.array([window.start_ns, window.end_ns], dtype=np.int64))
    borders = np.unique(np.concatenate(bounds))
    own = Segments(segments.start_ns[rows], segments.end_ns[rows], rows)
    inner, working = own.owner_at(borders[:-1]), at_work.owner_at(borders[:-1])
    others = (working != NONE) & (segments.thread[working] != number)
    waits = others & (inner != NONE) & segments.may_wait(inner, working)
    # count the segments that start before each interval, which tells the gaps apart
    gap = np.searchsorted(segments.start_ns[rows], borders[:-1], side="right")
    waits |= _waiting_gaps(segments, np.append(rows, NONE), borders, inner, working, others, gap)
    new = np.append(True, (inner[1:] != inner[:-1]) | (gap[1:] != gap[:-1]) | np.diff(waits))
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(inner)) - 1
    # return columns: thread, start, end, event row, awaited thread
    return (
        np.full(len(first), number, dtype=np.int64),
        borders[first],
        borders[last + 1],
        np.where(inner[first] == NONE, NONE, segments.row[inner[first]]),
        np.where(waits[first], segments.thread[working[last]], NONE),
    )


def _waiting_gaps(
    segments: _Innermost,
    rows: Ints,
    borders: Ints,
    inner: Ints,
    working: Ints,
    others: Flags,
    gap: Ints,
) -> Flags:
    """Mark the gaps between events in which a thread waits for another thread."""
    waits = np.zeros(len(inner), dtype=np.bool_)
    free = np.flatnonzero(inner == NONE)
    if not len(free):
        return waits
    starts = np.flatnonzero(np.append(True, np.diff(gap[free]) > 0))
    first, last = free[starts], free[np.append(starts[1:], len(free)) - 1]
    begins, ends = borders[first], borders[last + 1]
    place = np.repeat(np.arange(len(first)), np.diff(np.append(starts, len(free))))
    whole = others[free] & (segments.start_ns[working[free]] >= begins[place])
    whole &= segments.end_ns[working[free]] <= ends[place]
    holds = np.bincount(place[whole], minlength=len(first)) > 0
    following = rows[gap[first]]
    holds |= (following != NONE) & segments.may_wait(working[last], following)
    waits[free] = (holds & others[last])[place]
    return waits


SEGMENTS = schema(
    (
        THREAD,
        START,
        END,
        Column("event_id", pa.int64(), "", "the innermost event", "nothing was recorded"),
        Column("name", pa.string(), "", "of it, or of the op after it", "nothing was recorded"),
        Column("call_overhead", pa.bool_(), "", "Python that is the price of the op after it"),
        Column("state", pa.string(), "", "the ledger's idle cause of a thread in it"),
        Column("category", pa.string(), "", "of an op that computes here", "it does not compute"),
        Column("launches", pa.bool_(), "", "a call that enqueues work and returns"),
        Column("call_id", pa.int64(), "", "the innermost event, or the op after it", "neither"),
        Column("then_id", pa.int64(), "", "the op that begins as Python ends", "none does"),
        PHASE,
        Column("waits_for", pa.int64(), "", "thread for which it waits", "it does not wait"),
    )
)


@dataclass(frozen=True)
class StepGraph:
    """One step as tables of host segments, device activities and syncs."""

    window: Window
    segments: pa.Table  # sorted by thread and time
    activities: pa.Table  # sorted by start
    syncs: pa.Table  # sorted by start
    calls: Calls
    spent_ns: Ints  # time of each segment in a replay, which a change may shorten


def step_graph(events: EventTable, window: Window) -> StepGraph:
    step = StepRows(events, window)
    streams, segments = Streams(step), _segments(step)
    end, start = (segments.column(name).to_numpy() for name in ("end_ns", "start_ns"))
    tables = segments, streams.table(), syncs(step, streams)
    return StepGraph(window, *tables, Calls(step), np.asarray(end - start, dtype=np.int64))


def _segments(step: StepRows) -> pa.Table:
    events = step.events
    # let only Python, ranges and ops that only call other ops wait for another thread
    python, dispatch = STATES.index("python"), STATES.index("dispatch")
    patient = np.isin(step.state, (python, dispatch)) & ~step.computes
    segments = host_segments(events, step.window, step.host, step.thread, patient)
    at_work, row = segments.row != NONE, np.maximum(segments.row, 0)
    states = pa.array([*STATES, HOST])
    codes = np.where(at_work, step.state[row], len(STATES))
    category = texts_at(events, "category", row, at_work & step.computes[row])
    launching = _launching(step)
    python = at_work & step.runs_python[row] & (segments.waits_for == NONE)
    called = ops_called(events, segments.thread, segments.start_ns, segments.end_ns)
    called = np.where(python, called, NONE)
    ends = (segments.thread, segments.end_ns, segments.end_ns)
    then = np.where(python, ops_called(events, *ends), NONE)
    source = np.where(called != NONE, called, segments.row)
    columns = [
        pa.array(segments.thread),
        pa.array(segments.start_ns),
        pa.array(segments.end_ns),
        pa.array(step.event_id[row], mask=~at_work),
        texts_at(events, "name", np.maximum(source, 0), at_work),
        pa.array(called != NONE),
        states.take(pa.array(codes)),
        category,
        pa.array(at_work & launching[row]),
        _ids(step, source),
        _ids(step, then),
        texts_at(events, "phase", row, at_work),
        pa.array(segments.waits_for, mask=segments.waits_for == NONE),
    ]
    return pa.Table.from_arrays(columns, schema=SEGMENTS)


def _launching(step: StepRows) -> Flags:
    """Mark non-blocking launch calls, and the runtime calls inside such calls."""
    calls = launch_calls(step.events)
    is_call = np.zeros(len(step.event_id), dtype=np.bool_)
    is_call[calls] = True
    around = nearest(step.parent, is_call)
    blocks = step.blocks | (step.state == STATES.index("sync"))
    runtime = step.events.is_kind("runtime")
    return np.asarray(runtime & (around != NONE) & ~blocks[around], dtype=np.bool_)


def _ids(step: StepRows, row: Ints) -> pa.Array:
    return pa.array(step.event_id[np.maximum(row, 0)], mask=row == NONE)
