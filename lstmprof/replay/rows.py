"""The rows of one step, as ``graph`` and ``streams`` read them."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import pyarrow as pa

from lstmprof.breakdown.host import computing
from lstmprof.events.annotate.steps import Window
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.schema import ACTIVITY_KINDS, Column
from lstmprof.events.table import NONE, UNKNOWN, EventTable
from lstmprof.events.threads import STATES, state_codes, thread_ids

EVENT = Column("event_id", pa.int64(), "", "the event")
START = Column("start_ns", pa.int64(), "ns", "start, inside the window")
END = Column("end_ns", pa.int64(), "ns", "end, inside the window")
THREAD = Column("thread", pa.int64(), "", "number of the host thread")
PHASE = Column("phase", pa.string(), "", "phase of the step", "none is known")

Values = TypeVar("Values", Ints, Flags)


class StepRows:
    """The rows of one window; arrays have an entry a row of the events."""

    def __init__(self, events: EventTable, window: Window) -> None:
        self.events, self.window = events, window
        self.thread = thread_ids(events)
        self.state = state_codes(events, window.framework_ranges)
        self.runs_python = events.is_kind("step", "range", "python") & (self.thread >= 0)
        device = events.ints("device", UNKNOWN) != UNKNOWN
        self.runs_on_device = events.is_kind(*ACTIVITY_KINDS) & device
        self.event_id = events.ints("event_id", NONE)
        self.start_ns, self.end_ns = events.start_ns, events.end_ns
        self.correlation = events.ints("correlation_id", UNKNOWN)
        self.launch = events.rows_named("launch_id")
        self.parent = events.rows_named("parent_id")
        rows = events.of_rank(window.rank)
        # as for the ledger: where devices are seen, host threads compute nothing
        self.computes = computing(events) & (not self.runs_on_device[rows].any())
        ends = np.maximum(self.end_ns, self.start_ns + 1)[rows] > window.start_ns
        self.rows = rows[ends & (self.start_ns[rows] < window.end_ns)]
        self.host = self.rows[self.thread[self.rows] >= 0]
        activities = self.rows[self.runs_on_device[self.rows]]
        order = np.lexsort((self.correlation[activities], *self._at(activities)))
        self.activities = activities[order]
        self.blocks = self._blocking_copies()

    def _at(self, rows: Ints) -> tuple[Ints, Ints]:
        return self.end_ns[rows], self.start_ns[rows]

    def calls(self, *wanted: str) -> Ints:
        """Rows of the window's runtime calls whose name has one of ``wanted``, by start."""
        named = self.events.where_name(lambda name: any(part in name for part in wanted))
        rows = self.host[(named & self.events.is_kind("runtime"))[self.host]]
        return np.asarray(rows[np.argsort(self.start_ns[rows], kind="stable")], dtype=np.int64)

    def _blocking_copies(self) -> Flags:
        """A boolean a row: a copy whose call returned only once it had ended, or that call."""
        blocks = np.zeros(len(self.event_id), dtype=np.bool_)
        rows = self.activities[self.launch[self.activities] != NONE]
        call = self.launch[rows]
        waited = self.state[call] == STATES.index("sync")
        waited |= self.events.is_kind("memcpy")[rows] & (self.end_ns[rows] <= self.end_ns[call])
        blocks[rows[waited]] = True
        blocks[call[waited]] = True
        return blocks

    def within(self, ns: Ints) -> Ints:
        """``ns`` clipped to the window."""
        clipped: Ints = np.clip(ns, self.window.start_ns, self.window.end_ns)
        return clipped


def values_at(values: Values, rows: Ints) -> Values:
    return values[rows] if len(rows) else values[:0]


def texts_at(events: EventTable, column: str, rows: Ints, mask: Flags) -> pa.Array:
    codes, values = events.texts(column)
    code = np.where(mask, codes[rows], NONE) if len(codes) else np.full(len(rows), NONE)
    return pa.array(values, pa.string()).take(pa.array(code, pa.int64(), mask=code < 0))
