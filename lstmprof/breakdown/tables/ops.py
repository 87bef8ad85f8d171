"""The op table: what each framework op took on the host, and what it made a device do.

Reads linked events. On the host ``total`` is the time in which an op of this name was open: one
inside another of the same name is not added again. ``self`` is without the events directly inside
it, whatever they are. On a device ``self`` is the duration of the activities that the op itself
launched (their ``op_id``), ``total`` of those that it or any op beneath it launched, each once.
So the sum of all ops' device self time and of the activities without an op is that of all
activities; overlaps between streams are not taken out.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lstmprof.events.annotate.links import NONE
from lstmprof.events.annotate.steps import Window, is_kind
from lstmprof.events.call_tree import Forest, own_time, referenced
from lstmprof.events.columns import PER_STEP, RANK, Column, schema
from lstmprof.events.groups import Groups, heads, per_step, where_known
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.schema import ACTIVITY_KINDS, ints, texts
from lstmprof.events.threads import UNKNOWN

_NO_ACTIVITIES = "the rank has no device activities"

COLUMNS = (
    RANK,
    Column("name", pa.string(), "", "of the op, as the profiler wrote it"),
    Column("count", pa.int64(), "", "times it was called"),
    PER_STEP,
    Column("host_total_ns", pa.int64(), "ns", "host time in it, what is inside included"),
    Column("host_self_ns", pa.int64(), "ns", "host time in it and in no event inside it"),
    Column(
        "device_total_ns",
        pa.int64(),
        "ns",
        "duration of the activities that it or an op beneath it launched",
        _NO_ACTIVITIES,
    ),
    Column(
        "device_self_ns",
        pa.int64(),
        "ns",
        "duration of the activities that it launched itself",
        _NO_ACTIVITIES,
    ),
    Column(
        "kernels_total",
        pa.int64(),
        "",
        "kernels that it or an op beneath it launched",
        _NO_ACTIVITIES,
    ),
    Column("kernels_self", pa.int64(), "", "kernels that it launched itself", _NO_ACTIVITIES),
)
SCHEMA = schema(COLUMNS)


def ops(events: pa.Table, windows: list[Window]) -> pa.Table:
    """One row a (rank, name of an op); ``SCHEMA``."""
    rows = np.flatnonzero(is_kind(events, "op"))
    rank, name = ints(events, "rank", UNKNOWN), texts(events, "name")[0]
    groups = Groups(rank[rows], name[rows])
    forest = Forest(referenced(events, "parent_id"))
    outer = forest.outermost(rows, name)
    caused_ns, caused_kernels = _caused(events)
    on_device = np.isin(rank[rows], rank[is_kind(events, *ACTIVITY_KINDS)])[groups.first]

    def summed(values: Ints, where: Flags | None = None) -> Ints:
        return groups.sums(values[rows], where)

    return pa.table(
        [
            *heads(events, rows, groups, ("rank", "name")),
            pa.array(groups.sizes()),
            per_step(
                groups.sizes(ints(events, "step", -1)[rows] >= 0), rank[rows][groups.first], windows
            ),
            pa.array(summed(ints(events, "dur_ns", 0), outer)),
            pa.array(summed(own_time(events))),
            where_known(summed(forest.beneath(caused_ns), outer), on_device),
            where_known(summed(caused_ns), on_device),
            where_known(summed(forest.beneath(caused_kernels), outer), on_device),
            where_known(summed(caused_kernels), on_device),
        ],
        schema=SCHEMA,
    )


def _caused(events: pa.Table) -> tuple[Ints, Ints]:
    """For each row the (nanoseconds, kernels) of the activities that name it as their op."""
    op = referenced(events, "op_id")
    activity = is_kind(events, *ACTIVITY_KINDS) & (op != NONE)
    kernel = activity & is_kind(events, "kernel")
    spent, kernels = np.zeros(len(events), dtype=np.int64), np.zeros(len(events), dtype=np.int64)
    np.add.at(spent, op[activity], ints(events, "dur_ns", 0)[activity])
    np.add.at(kernels, op[kernel], 1)
    return spent, kernels
