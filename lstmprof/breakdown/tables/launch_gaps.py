"""How long each kernel ran, and how long its device waited just before it.

Reads linked and categorised events. The gap before an activity is the time in which its device ran
nothing, up to its start; 0 where something still ran. The first activity of a window has none.
Where the gap is longer than the kernel, the host sets the pace: the kernel is launch-bound.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lstmprof.events.annotate.steps import Window, is_kind, of_rank
from lstmprof.events.columns import DEVICE, RANK, Column, schema
from lstmprof.events.groups import Groups, heads
from lstmprof.events.intervals import Ints
from lstmprof.events.schema import ACTIVITY_KINDS, ints, texts
from lstmprof.events.threads import UNKNOWN

COLUMNS = (
    RANK,
    DEVICE,
    Column("name", pa.string(), "", "of the kernel, copy or memset"),
    Column("category", pa.string(), "", "what the time is for"),
    Column("count", pa.int64(), "", "times it ran in a window and was not the first there"),
    Column("dur_p50_ns", pa.int64(), "ns", "median duration, nearest rank"),
    Column("gap_p50_ns", pa.int64(), "ns", "median gap before it, nearest rank"),
    Column("dur_total_ns", pa.int64(), "ns", "sum of durations"),
    Column("gap_total_ns", pa.int64(), "ns", "sum of the gaps before it"),
)
SCHEMA = schema(COLUMNS)


def launch_gaps(events: pa.Table, windows: list[Window]) -> pa.Table:
    """One row a (rank, device, name, category), the largest total first; ``SCHEMA``."""
    rows, gap = _gaps(events, windows)
    dur = ints(events, "dur_ns", 0)[rows]
    keys = [ints(events, c, UNKNOWN)[rows] for c in ("rank", "device")]
    groups = Groups(*keys, *(texts(events, c)[0][rows] for c in ("name", "category")))
    table = pa.table(
        [
            *heads(events, rows, groups, ("rank", "device", "name", "category")),
            pa.array(groups.sizes()),
            groups.percentile(dur, 50),
            groups.percentile(gap, 50),
            pa.array(groups.sums(dur)),
            pa.array(groups.sums(gap)),
        ],
        schema=SCHEMA,
    )
    return table.sort_by([("dur_total_ns", "descending"), ("name", "ascending")])


def _gaps(events: pa.Table, windows: list[Window]) -> tuple[Ints, Ints]:
    """(rows of the activities with a known gap, the gaps in ns)."""
    start = ints(events, "start_ns", 0)
    end = start + ints(events, "dur_ns", 0)
    device = ints(events, "device", UNKNOWN)
    activity = is_kind(events, *ACTIVITY_KINDS) & (device != UNKNOWN)
    found: list[Ints] = []
    waited: list[Ints] = []
    for window in windows:
        mine = of_rank(events, window.rank)
        mine = mine[
            activity[mine] & (start[mine] >= window.start_ns) & (start[mine] < window.end_ns)
        ]
        for one in np.unique(device[mine]):
            rows = mine[device[mine] == one]
            rows = rows[np.lexsort((end[rows], start[rows]))]
            reached = np.maximum.accumulate(end[rows])[:-1]
            found.append(rows[1:])
            waited.append(np.maximum(start[rows[1:]] - reached, 0))
    none = np.empty(0, dtype=np.int64)
    return np.concatenate([none, *found]), np.concatenate([none, *waited])
