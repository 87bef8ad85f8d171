"""Sum the time of each step on each device by category of work and cause of idle time ("parts").

Every nanosecond is in exactly one sum, so the rows of one device in one step sum to the step's
length. A rank without device activities has rows for its host, with ``device`` null.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from lstmprof.breakdown.attribution import (
    CALL,
    LATENCY,
    OTHER,
    QUEUED,
    TAIL,
    UNATTRIBUTED,
    Attribution,
    Intervals,
)
from lstmprof.breakdown.attribution.waits import AllWaits, all_waits, may_explain_waits
from lstmprof.events.annotate.steps import Window
from lstmprof.events.batches import BATCH_EVENTS, Batches
from lstmprof.events.intervals import Ints
from lstmprof.events.narrow import Packed
from lstmprof.events.schema import DEVICE, RANK, STEP, Column, schema
from lstmprof.events.table import EventTable
from lstmprof.events.threads import HOST, STATES

COLUMNS = (
    RANK,
    STEP,
    DEVICE,
    Column.text("state", "busy (something ran) or idle"),
    Column.text(
        "part",
        "category of busy time, such as gemm (matmul), or cause of idle time, such as dispatch",
    ),
    Column.integer("ns", "time that the step spends in this part"),
)
SCHEMA = schema(COLUMNS)
#: Columns of the events to read.
READS = (
    *("event_id", "kind", "name", "start_ns", "dur_ns", "rank", "pid", "tid", "device", "stream"),
    *("correlation_id", "launch_id", "category"),
)

#: Key of a row: (index of the rank, device or None for the host, index of the step).
_Row = tuple[int, int | None, int]


def ledger(
    events: EventTable, windows: Sequence[Window], waits: AllWaits = MappingProxyType({})
) -> pa.Table:
    """Sum the time per step and device, by category of work or cause of idling."""
    sums = _Sums(windows)
    sums.add(events, None, waits)
    return sums.table()


def packed_ledger(packed: Packed, windows: Sequence[Window], size: int = BATCH_EVENTS) -> pa.Table:
    """Compute the ledger in batches if the profile has more than ``size`` events."""
    batches, sums = Batches(packed, size, READS), _Sums(windows)
    if not batches.divisible:
        return ledger(packed.table(READS), windows)
    waits = all_waits(packed, sums.ranks)
    for batch in batches.about(may_explain_waits(packed, windows, waits)):
        sums.add(batch.events, (batch.start_ns, batch.end_ns), waits)
    return sums.table()


class _Sums:
    """Time per rank, device, step and label (``("busy", "gemm")`` …), summed over batches."""

    def __init__(self, windows: Sequence[Window]) -> None:
        self._windows = windows
        self._of_rank: dict[int | None, list[int]] = {}
        for number, window in enumerate(windows):
            self._of_rank.setdefault(window.rank, []).append(number)
        self.ranks = list(self._of_rank)
        self._spent: dict[_Row, dict[tuple[str, str], int]] = {}
        self._categories: dict[str, None] = {}

    def add(
        self,
        events: EventTable,
        within: tuple[int, int] | None,
        waits: AllWaits,
    ) -> None:
        """Add the time of a batch of events ``within`` (start, end); None means all events."""
        self._categories |= dict.fromkeys([*events.texts("category")[1], OTHER])
        attribution = Attribution(events)
        for rank_number, (rank, own) in enumerate(self._of_rank.items()):
            numbers = [n for n in own if _meets(self._windows[n], within)]
            windows = [self._windows[n] for n in numbers]
            if not windows:
                continue
            devices = attribution.intervals(windows, rank, waits.get(rank), within)
            for device, intervals in devices.items():
                for number, spent in zip(numbers, _summed(intervals, len(numbers)), strict=True):
                    sums = self._spent.setdefault((rank_number, device, number), {})
                    for label in np.flatnonzero(spent).tolist():
                        part = intervals.labels[label]
                        sums[part] = sums.get(part, 0) + int(spent[label])

    def table(self) -> pa.Table:
        """Return the sums by rank, device and step, busy before idle."""
        order = {label: n for n, label in enumerate(_labels([*self._categories]))}
        rows = []
        for row in sorted(self._spent, key=lambda p: (p[0], p[1] is not None, p[1] or 0, p[2])):
            window = self._windows[row[2]]
            parts = sorted(self._spent[row].items(), key=lambda part: order[part[0]])
            rows += [(window.rank, window.step, row[1], *label, ns) for label, ns in parts if ns]
        columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
        return pa.table(
            [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
        )


def _meets(window: Window, within: tuple[int, int] | None) -> bool:
    return within is None or (window.start_ns < within[1] and window.end_ns > within[0])


def _summed(intervals: Intervals, windows: int) -> Ints:
    """Sum the ns per step (rows) and label (columns)."""
    spent = np.zeros((windows, len(intervals.labels)), dtype=np.int64)
    np.add.at(spent, (intervals.window, intervals.label), intervals.end_ns - intervals.start_ns)
    return spent


def _labels(categories: list[str]) -> list[tuple[str, str]]:
    """Return all labels, such as ``("busy", "gemm")``, in the order of the table's rows."""
    waits = (*STATES, HOST, UNATTRIBUTED)
    tails = [TAIL + cause for cause in waits]
    idle = [*tails, UNATTRIBUTED, CALL, LATENCY, QUEUED, *STATES, HOST]
    return [("busy", c) for c in categories] + [("idle", cause) for cause in idle]
