"""The op table: host time of each framework op, and the device time that it launched.

Reads linked events. On the host, ``total`` is the time in which an op of this name was open; an op
inside another op of the same name is not added again. ``self`` excludes the events directly inside
the op. On a device, ``self`` is the duration of the activities that the op itself launched (their
``op_id``), and ``total`` also includes those of ops inside it, each once. So the device self times
of all ops and the activities without an op sum to the duration of all activities. Overlaps between
streams are not subtracted.

Computed with NumPy: in SQL, the recursive sum takes half as long again and a third more memory.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lstmprof.events.annotate.steps import Window, steps_of
from lstmprof.events.groups import Forest, Groups, heads, own_time, ratio, where_known
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.schema import ACTIVITY_KINDS, NO_ACTIVITIES, PER_STEP, RANK, Column, schema
from lstmprof.events.table import NONE, UNKNOWN, EventTable

COLUMNS = (
    RANK,
    Column.text("name", "name of the op, as the profiler wrote it"),
    Column.integer("count", "number of calls"),
    PER_STEP,
    Column.integer("host_total_ns", "host time in the op, including the ops inside it"),
    Column.integer("host_self_ns", "host time in the op, without the events inside it"),
    Column.integer(
        "device_total_ns",
        "duration of the activities that the op, or an op inside it, launched",
        NO_ACTIVITIES,
    ),
    Column.integer(
        "device_self_ns", "duration of the activities that the op itself launched", NO_ACTIVITIES
    ),
    Column.integer(
        "kernels_total",
        "number of kernels that the op, or an op inside it, launched",
        NO_ACTIVITIES,
    ),
    Column.integer("kernels_self", "number of kernels that the op itself launched", NO_ACTIVITIES),
)


def ops(events: EventTable, windows: list[Window]) -> pa.Table:
    """Return one row per rank and op name; ``COLUMNS``."""
    rows = np.flatnonzero(events.is_kind("op"))
    rank, name = events.ints("rank", UNKNOWN), events.texts("name")[0]
    groups = Groups(rank[rows], name[rows])
    forest = Forest(events.rows_named("parent_id"))
    outer = forest.outermost(rows, name)
    caused_ns, caused_kernels = _caused(events)
    on_device = np.isin(rank[rows], rank[events.is_kind(*ACTIVITY_KINDS)])[groups.first]

    def summed(values: Ints, where: Flags | None = None) -> Ints:
        return groups.sums(values[rows], where)

    in_steps = groups.sizes(events.ints("step", -1)[rows] >= 0)
    return pa.table(
        [
            *heads(events, rows, groups, ("rank", "name")),
            pa.array(groups.sizes()),
            ratio(in_steps, steps_of(rank[rows][groups.first], windows)),
            pa.array(summed(events.dur_ns, outer)),
            pa.array(summed(own_time(events))),
            where_known(summed(forest.beneath(caused_ns), outer), on_device),
            where_known(summed(caused_ns), on_device),
            where_known(summed(forest.beneath(caused_kernels), outer), on_device),
            where_known(summed(caused_kernels), on_device),
        ],
        schema=schema(COLUMNS),
    )


def _caused(events: EventTable) -> tuple[Ints, Ints]:
    """Return, for each row, nanoseconds and kernels of the activities whose op it is."""
    op = events.rows_named("op_id")
    activity = events.is_kind(*ACTIVITY_KINDS) & (op != NONE)
    kernel = activity & events.is_kind("kernel")
    spent, kernels = np.zeros(len(events), dtype=np.int64), np.zeros(len(events), dtype=np.int64)
    np.add.at(spent, op[activity], events.dur_ns[activity])
    np.add.at(kernels, op[kernel], 1)
    return spent, kernels
