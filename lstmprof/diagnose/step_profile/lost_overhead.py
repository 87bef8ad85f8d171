"""The profiler's own work of which nobody knows the thread, where it may be what a step waits for.

Kineto writes the overhead that CUPTI tells of without a thread. By the ledger's definition a device
waits for what its host thread does, so what lies beside an op is the op's; it may be the
profiler's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lstmprof.breakdown.attribution import TAIL, Stretches
from lstmprof.events.annotate.steps import Window
from lstmprof.events.intervals import Covered
from lstmprof.events.table import UNKNOWN, EventTable

#: What a host thread does between calls of the runtime, in which the profiler's work is seen.
_BETWEEN_CALLS = ("dispatch", "python", "host")


def lost_overhead_ns(
    events: EventTable, windows: Sequence[Window], rank: int | None, stretches: Stretches
) -> int:
    """Idle time of a lane's mean window that lies beside it, outside of runtime calls."""
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
