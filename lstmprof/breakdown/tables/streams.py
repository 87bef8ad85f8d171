"""The stream table: what ran on each stream of a device, and for how much of the time.

Reads linked events. Activities of one stream may overlap in a profile; busy time is their union.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lstmprof.events.annotate.steps import Window, is_kind
from lstmprof.events.columns import DEVICE, RANK, Column, schema
from lstmprof.events.groups import Groups, heads, ratio, window_time
from lstmprof.events.intervals import Covered
from lstmprof.events.schema import ACTIVITY_KINDS, ints
from lstmprof.events.threads import UNKNOWN

COLUMNS = (
    RANK,
    DEVICE,
    Column("stream", pa.int64(), "", "stream of the device", "the profile does not say"),
    Column("activities", pa.int64(), "", "kernels, copies and memsets"),
    Column("kernels", pa.int64(), "", "kernels"),
    Column("busy_ns", pa.int64(), "ns", "time with at least one activity running"),
    Column("total_ns", pa.int64(), "ns", "sum of the activities' durations"),
    Column(
        "window_share",
        pa.float64(),
        "share",
        "busy time inside the rank's windows, divided by their length",
        "the rank has no window",
    ),
    Column("first_ns", pa.int64(), "ns", "start of the first activity"),
    Column("last_ns", pa.int64(), "ns", "end of the last activity"),
)
SCHEMA = schema(COLUMNS)


def streams(events: pa.Table, windows: list[Window]) -> pa.Table:
    """One row a (rank, device, stream) with activities; ``SCHEMA``."""
    rows = np.flatnonzero(is_kind(events, *ACTIVITY_KINDS))
    keys = [ints(events, c, UNKNOWN)[rows] for c in ("rank", "device", "stream")]
    groups = Groups(*keys)
    start, dur = ints(events, "start_ns", 0)[rows], ints(events, "dur_ns", 0)[rows]
    rank = keys[0][groups.first]
    covered = [Covered(start[mine], (start + dur)[mine]) for mine in groups.members()]
    inside = [_inside(c, r, windows) for c, r in zip(covered, rank.tolist(), strict=True)]
    return pa.table(
        [
            *heads(events, rows, groups, ("rank", "device", "stream")),
            pa.array(groups.sizes()),
            pa.array(groups.sizes(is_kind(events, "kernel")[rows])),
            pa.array([c.whole_ns for c in covered], pa.int64()),
            pa.array(groups.sums(dur)),
            ratio(np.array(inside, dtype=np.int64), window_time(rank, windows)),
            groups.percentile(start, 0),
            groups.largest(start + dur),
        ],
        schema=SCHEMA,
    )


def _inside(covered: Covered, rank: int, windows: list[Window]) -> int:
    """Covered nanoseconds of the windows of ``rank``."""
    mine = [w for w in windows if rank == (UNKNOWN if w.rank is None else w.rank)]
    start = np.array([w.start_ns for w in mine], dtype=np.int64)
    end = np.array([w.end_ns for w in mine], dtype=np.int64)
    return int(covered.within(start, end).sum())
