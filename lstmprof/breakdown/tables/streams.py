"""The stream table: the work and the busy time of each stream of a device.

Reads linked events. Activities of one stream may overlap in a profile; busy time is their union.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lstmprof.events.annotate.steps import Window
from lstmprof.events.groups import Groups, heads, ratio
from lstmprof.events.intervals import Covered
from lstmprof.events.schema import ACTIVITY_KINDS, DEVICE, RANK, Column, schema
from lstmprof.events.table import UNKNOWN, EventTable

COLUMNS = (
    RANK,
    DEVICE,
    Column.integer("stream", "number of the device's stream", "the profile does not record it"),
    Column.integer("activities", "number of kernels, copies and memsets"),
    Column.integer("kernels", "number of kernels"),
    Column.integer("busy_ns", "time in which at least one activity ran"),
    Column.integer("total_ns", "sum of the activities' durations"),
    Column.real(
        "window_share",
        "busy time within steps, divided by the length of all steps",
        "the rank has no steps",
    ),
    Column.integer("first_ns", "start of the first activity, in ns since base_ns of run.json"),
    Column.integer("last_ns", "end of the last activity, in ns since base_ns of run.json"),
)
SCHEMA = schema(COLUMNS)


def streams(events: EventTable, windows: list[Window]) -> pa.Table:
    """Return one row per rank, device and stream with activities; ``SCHEMA``."""
    rows = np.flatnonzero(events.is_kind(*ACTIVITY_KINDS))
    keys = [events.ints(c, UNKNOWN)[rows] for c in ("rank", "device", "stream")]
    groups = Groups(*keys)
    start, end = events.start_ns[rows], events.end_ns[rows]
    covered = [Covered(start[members], end[members]) for members in groups.members()]
    ranks = keys[0][groups.first].tolist()
    in_windows = np.array(
        [_in_windows(c, rank, windows) for c, rank in zip(covered, ranks, strict=True)],
        dtype=np.int64,
    ).reshape(-1, 2)
    return pa.table(
        [
            *heads(events, rows, groups, ("rank", "device", "stream")),
            pa.array(groups.sizes()),
            pa.array(groups.sizes(events.is_kind("kernel")[rows])),
            pa.array([c.whole_ns for c in covered], pa.int64()),
            pa.array(groups.sums(end - start)),
            ratio(in_windows[:, 0], in_windows[:, 1]),
            pa.array([c.bounds[0][0] for c in covered], pa.int64()),
            pa.array([c.bounds[1][-1] for c in covered], pa.int64()),
        ],
        schema=SCHEMA,
    )


def _in_windows(covered: Covered, rank: int, windows: list[Window]) -> tuple[int, int]:
    """Return the covered nanoseconds of the windows of ``rank``, and the number of these
    windows.
    """
    rank_windows = [w for w in windows if rank == (UNKNOWN if w.rank is None else w.rank)]
    start = np.array([w.start_ns for w in rank_windows], dtype=np.int64)
    end = np.array([w.end_ns for w in rank_windows], dtype=np.int64)
    return int(covered.within(start, end).sum()), int((end - start).sum())
