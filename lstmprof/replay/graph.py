"""A step as a graph: what its host threads and streams did, and what each had to wait for.

Reads linked and categorised events; the input of ``simulate``. Three tables:

- ``segments``: each host thread's innermost event by time, whom it waited for (``host_segments``),
  and the op that it was the way into;
- ``activities``: what ran on each stream, when it was enqueued, and the activity of another
  stream that it waited for;
- ``syncs``: the calls that wait for a device, and for which activities (``streams``).

``calls`` says what goes with a call that is not made.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lstmprof.events.annotate.calls import launch_calls
from lstmprof.events.annotate.steps import Window
from lstmprof.events.call_tree import inherited
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.schema import Column, schema
from lstmprof.events.table import NONE, EventTable
from lstmprof.events.threads import HOST, STATES, ops_called
from lstmprof.replay.calls import Calls
from lstmprof.replay.rows import END, PHASE, START, THREAD, StepRows, texts_at, values_at
from lstmprof.replay.streams import Streams, syncs
from lstmprof.replay.threads import host_segments

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
    """One step; ``SEGMENTS`` by thread and time, the others by start.

    ``spent_ns`` is what each segment takes in a replay: its length, or less (``shortened``).
    """

    window: Window
    segments: pa.Table
    activities: pa.Table
    syncs: pa.Table
    calls: Calls
    spent_ns: Ints


def step_graph(events: EventTable, window: Window) -> StepGraph:
    """What ran in ``window``."""
    step = StepRows(events, window)
    streams, segments = Streams(step), _segments(step)
    end, start = (segments.column(name).to_numpy() for name in ("end_ns", "start_ns"))
    tables = segments, streams.table(), syncs(step, streams)
    return StepGraph(window, *tables, Calls(step), np.asarray(end - start, dtype=np.int64))


def _segments(step: StepRows) -> pa.Table:
    events = step.events
    python, dispatch = STATES.index("python"), STATES.index("dispatch")
    patient = np.isin(step.state, (python, dispatch)) & ~step.computes
    segments = host_segments(events, step.window, step.host, step.thread, patient)
    at_work, row = segments.row != NONE, np.maximum(segments.row, 0)
    states = pa.array([*STATES, HOST])
    codes = np.where(at_work, values_at(step.state, row), len(STATES))
    category = texts_at(events, "category", row, at_work & values_at(step.computes, row))
    launching = _launching(step)
    python = at_work & values_at(step.runs_python, row) & (segments.waits_for == NONE)
    called = ops_called(events, segments.thread, segments.start_ns, segments.end_ns)
    called = np.where(python, called, NONE)
    ends = (segments.thread, segments.end_ns, segments.end_ns)
    then = np.where(python, ops_called(events, *ends), NONE)
    source = np.where(called != NONE, called, segments.row)
    columns = [
        pa.array(segments.thread),
        pa.array(segments.start_ns),
        pa.array(segments.end_ns),
        pa.array(values_at(step.event_id, row), mask=~at_work),
        texts_at(events, "name", np.maximum(source, 0), at_work),
        pa.array(called != NONE),
        states.take(pa.array(codes)),
        category,
        pa.array(at_work & values_at(launching, row)),
        _ids(step, source),
        _ids(step, then),
        texts_at(events, "phase", row, at_work),
        pa.array(segments.waits_for, mask=segments.waits_for == NONE),
    ]
    return pa.Table.from_arrays(columns, schema=SEGMENTS)


def _launching(step: StepRows) -> Flags:
    """A boolean a row: a call that enqueues work and returns, or a call inside one."""
    calls = launch_calls(step.events)
    call_rows = np.full(len(step.event_id), NONE, dtype=np.int64)
    call_rows[calls] = calls
    around = inherited(step.parent, call_rows)
    blocks = step.blocks | (step.state == STATES.index("sync"))
    runtime = step.events.is_kind("runtime")
    return np.asarray(runtime & (around != NONE) & ~blocks[around], dtype=np.bool_)


def _ids(step: StepRows, row: Ints) -> pa.Array:
    return pa.array(values_at(step.event_id, np.maximum(row, 0)), mask=row == NONE)
