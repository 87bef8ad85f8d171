"""The profiler's own work on an unknown thread, if a step may wait for it.

Kineto writes CUPTI's overhead without a thread. By definition of the ledger, a device waits for
what its host thread does, so idle time during such overhead counts for the op of the host; but the
profiler may be the cause.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lstmprof.breakdown.attribution import TAIL, Stretches
from lstmprof.events.annotate.steps import Window
from lstmprof.events.intervals import Covered
from lstmprof.events.table import UNKNOWN, EventTable

#: Activities of a host thread between runtime calls, in which the profiler's work is recorded.
_BETWEEN_CALLS = ("dispatch", "python", "host")


def lost_overhead_ns(
    events: EventTable, windows: Sequence[Window], rank: int | None, stretches: Stretches
) -> int:
    """Return the idle time per mean window during profiler overhead, outside of runtime calls."""
    rows = events.of_rank(rank)
    lost = events.is_kind("overhead") & (events.ints("tid", UNKNOWN) == UNKNOWN)
    rows = rows[lost[rows]]
    if not len(rows) or not windows:
        return 0
    waits = [s == "idle" and p.removeprefix(TAIL) in _BETWEEN_CALLS for s, p in stretches.labels]
    chosen = np.array(waits, dtype=np.bool_)[stretches.label]
    covered = Covered(events.start_ns[rows], events.end_ns[rows])
    beside = covered.within(stretches.start_ns[chosen], stretches.end_ns[chosen])
    return round(int(beside.sum()) / len(windows))
