"""A step as a graph: what its host threads and streams did, and what each had to wait for.

Reads linked and categorised events; the input of ``simulate``. Three tables:

- ``segments``: each host thread's innermost event by time, whom it waited for (``host_segments``),
  and what the work is for that the op around it issued, or the op that it was the way into;
- ``activities``: what ran on each stream, when it was enqueued, and the activity of another
  stream that it waited for;
- ``syncs``: the calls that wait for a device, and for which activities (``streams``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lstmprof.events.annotate.calls import launch_calls
from lstmprof.events.annotate.links import inherited
from lstmprof.events.annotate.steps import Window
from lstmprof.events.call_tree import Forest
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.schema import ACTIVITY_KINDS, Column, schema
from lstmprof.events.table import NONE, EventTable
from lstmprof.events.threads import HOST, STATES, ops_called
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
        Column(
            "purpose",
            pa.string(),
            "",
            "categories, joined by +, of all work that the nearest op or call around it (or the op "
            "after it, where it is before one) issued",
            "none issued any",
        ),
        PHASE,
        Column("waits_for", pa.int64(), "", "thread for which it waits", "it does not wait"),
    )
)


@dataclass(frozen=True)
class StepGraph:
    """One step; ``SEGMENTS`` by thread and time, the others by start."""

    window: Window
    segments: pa.Table
    activities: pa.Table
    syncs: pa.Table


def step_graph(events: EventTable, window: Window) -> StepGraph:
    """What ran in ``window``."""
    step = StepRows(events, window)
    streams = Streams(step)
    return StepGraph(window, _segments(step), streams.table(), syncs(step, streams))


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
        _purposes(step, source),
        texts_at(events, "phase", row, at_work),
        pa.array(segments.waits_for, mask=segments.waits_for == NONE),
    ]
    return pa.Table.from_arrays(columns, schema=SEGMENTS)


def _launching(step: StepRows) -> Flags:
    """A boolean a row: a call that enqueues work and returns, or a call inside one."""
    calls = launch_calls(step.events)
    call_rows = np.full(len(step.event_id), NONE, dtype=np.int64)
    call_rows[calls] = calls
    around = inherited(step.events, step.parent, call_rows)
    blocks = step.blocks | (step.state == STATES.index("sync"))
    runtime = step.events.is_kind("runtime")
    return np.asarray(runtime & (around != NONE) & ~blocks[around], dtype=np.bool_)


def _purposes(step: StepRows, row: Ints) -> pa.Array:
    """What the work is for that the nearest op or call around each ``row`` issued."""
    codes, names = step.events.texts("category")
    issuer = np.where(step.launch != NONE, step.launch, step.events.rows_named("op_id"))
    issuer[~step.events.is_kind(*ACTIVITY_KINDS)] = NONE
    issuer[step.computes] = np.flatnonzero(step.computes)
    forest, mask = Forest(step.parent), np.zeros(len(codes), dtype=np.int64)
    for number in range(len(names)):
        issued = np.zeros(len(codes), dtype=np.int64)
        issued[issuer[(codes == number) & (issuer != NONE)]] = 1
        if issued.any():
            mask |= (forest.beneath(issued) > 0).astype(np.int64) << number
    bits = np.where((mask > 0) & step.events.is_kind("op", "runtime"), mask, NONE)
    mask = inherited(step.events, step.parent, bits)
    served = np.where(row == NONE, NONE, values_at(mask, row))
    values, place = np.unique(served, return_inverse=True)
    purposes = [None if v == NONE else _joined(int(v), names) for v in values]
    return pa.array(purposes, pa.string()).take(pa.array(place.reshape(-1)))


def _joined(mask: int, names: list[str]) -> str:
    return "+".join(sorted(name for code, name in enumerate(names) if mask >> code & 1))
