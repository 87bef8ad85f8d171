"""The module table: time of each nn.Module, Python frame and range, on the host and a device.

Reads linked events. Modules and frames are those that the profiler recorded (``with_modules``,
``with_stack``), ranges those of ``record_function`` and NVTX. Each sort nests by itself: the
``self`` of a module excludes only modules inside it, not Python frames or ranges. As for ops,
``total`` does not add a frame inside a frame of the same name again. An activity belongs to what
was open on the thread that launched it. Work of the backward pass belongs to what was open around
its forward op, and is counted separately.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lstmprof.events.annotate.steps import Window
from lstmprof.events.groups import Forest, Groups, heads, inherited, own_time, where_known
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.schema import ACTIVITY_KINDS, NO_ACTIVITIES, RANK, Column, schema
from lstmprof.events.table import NONE, UNKNOWN, EventTable
from lstmprof.events.threads import thread_ids

#: Prefix that torch.profiler writes before the name of a module.
MODULE = "nn.Module: "
SORTS = ("module", "python", "range")
_UNLINKED = "the profile links no backward op with its forward op"

COLUMNS = (
    RANK,
    Column.text(
        "sort", "kind of entry: module (nn.Module), python (frame with file and line) or range"
    ),
    Column.text("name", "name, as the profiler wrote it, without the prefix nn.Module"),
    Column.integer("count", "number of times that the entry ran"),
    Column.integer("host_total_ns", "host time in the entry, including everything inside it"),
    Column.integer(
        "host_self_ns", "host time in the entry, without entries of the same sort inside it"
    ),
    Column.integer(
        "device_total_ns", "duration of the activities launched in the entry", NO_ACTIVITIES
    ),
    Column.integer(
        "device_self_ns",
        "duration of the activities launched in the entry, without entries of the same sort",
        NO_ACTIVITIES,
    ),
    Column.integer(
        "backward_host_ns",
        "host time of the backward ops whose forward op ran in the entry",
        _UNLINKED,
    ),
    Column.integer(
        "backward_device_ns",
        "duration of the activities that these backward ops launched",
        f"{_UNLINKED}, or {NO_ACTIVITIES}",
    ),
)
SCHEMA = schema(COLUMNS)


def modules(events: EventTable, windows: list[Window]) -> pa.Table:
    """Return one row per rank, sort and name; ``SCHEMA``."""
    tables = [_of_sort(events, place) for place in range(len(SORTS))]
    return pa.concat_tables(tables)


def sort_of_frames(events: EventTable) -> Ints:
    """Return each row's index in ``SORTS``, ``NONE`` if it is no frame of the host."""
    is_module = events.where_name(lambda name: name.startswith(MODULE))
    frame = np.where(is_module, SORTS.index("module"), SORTS.index("python"))
    sort = np.where(events.is_kind("python"), frame, NONE)
    sort = np.where(events.is_kind("range"), SORTS.index("range"), sort)
    return np.where(thread_ids(events) == NONE, NONE, sort).astype(np.int64)


def _of_sort(events: EventTable, sort: int) -> pa.Table:
    is_frame = sort_of_frames(events) == sort
    rows = np.flatnonzero(is_frame)
    rank = events.ints("rank", UNKNOWN)
    code = events.texts("name")[0]
    groups = Groups(rank[rows], code[rows])
    parent = events.rows_named("parent_id")
    forest = Forest(parent)
    outer = forest.outermost(rows, np.maximum(code, 0))
    around = inherited(parent, np.where(is_frame, np.arange(len(events)), NONE))
    launched, backward_host, backward_device = _caused(events, parent, around)
    on_device = np.isin(rank[rows], rank[events.is_kind(*ACTIVITY_KINDS)])[groups.first]
    linked = np.isin(rank[rows], rank[events.rows_named("forward_id") != NONE])[groups.first]
    columns = heads(events, rows, groups, ("rank", "name"))
    names = [(name or "?").removeprefix(MODULE) for name in columns[1].to_pylist()]
    dur = events.dur_ns[rows]
    table = pa.table(
        [
            columns[0],
            pa.array([SORTS[sort]] * groups.count, pa.string()),
            pa.array(names, pa.string()),
            pa.array(groups.sizes()),
            pa.array(groups.sums(dur, outer)),
            pa.array(groups.sums(_self_time(events, parent, around, rows))),
            where_known(groups.sums(forest.beneath(launched)[rows], outer), on_device),
            where_known(groups.sums(launched[rows]), on_device),
            where_known(groups.sums(forest.beneath(backward_host)[rows], outer), linked),
            where_known(
                groups.sums(forest.beneath(backward_device)[rows], outer), linked & on_device
            ),
        ],
        schema=SCHEMA,
    )
    order = [(name, "descending") for name in ("device_total_ns", "host_total_ns")]
    return table.sort_by([("rank", "ascending"), *order, ("name", "ascending")])


def _self_time(events: EventTable, parent: Ints, around: Ints, rows: Ints) -> Ints:
    """Return the duration without the frames directly inside, at least 0 (profilers jitter)."""
    time_ns = events.dur_ns.copy()
    above = np.where(parent[rows] == NONE, NONE, around[parent[rows]])
    inner = above != NONE
    np.subtract.at(time_ns, above[inner], events.dur_ns[rows[inner]])
    return np.asarray(np.maximum(time_ns[rows], 0), dtype=np.int64)


def _caused(events: EventTable, parent: Ints, around: Ints) -> tuple[Ints, Ints, Ints]:
    """Return, for each frame, device time launched in it, host and device time of backward ops."""
    forward = inherited(parent, events.rows_named("forward_id"))
    launched, host, device = (np.zeros(len(events), dtype=np.int64) for _ in range(3))
    backward = np.flatnonzero(forward != NONE)
    _add(host, _at(around, forward[backward]), own_time(events)[backward])
    activity = np.flatnonzero(events.is_kind(*ACTIVITY_KINDS))
    asked = asked_by(events)[activity]
    _add(launched, _at(around, asked), events.dur_ns[activity])
    _add(device, _at(around, _at(forward, asked)), events.dur_ns[activity])
    return launched, host, device


def asked_by(events: EventTable) -> Ints:
    """Return each row's launch, else the op that issued it, ``NONE`` if both are unknown."""
    launch, op = events.rows_named("launch_id"), events.rows_named("op_id")
    return np.where(launch != NONE, launch, op)


def _at(values: Ints, rows: Ints) -> Ints:
    """Return ``values`` at ``rows``; ``NONE`` for rows that are ``NONE``."""
    known: Flags = rows != NONE
    result = np.full(len(rows), NONE, dtype=np.int64)
    result[known] = values[rows[known]]
    return result


def _add(sums: Ints, places: Ints, amounts: Ints) -> None:
    known = places != NONE
    np.add.at(sums, places[known], amounts[known])
