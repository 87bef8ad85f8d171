"""The tables of ops, ranges and modules: host time, and device time of launched activities.

Example: ``aten::addmm`` inside ``aten::linear`` launches a kernel. Then ``device_total_ns`` of
``aten::linear`` includes the kernel, and ``device_self_ns`` of ``aten::linear`` does not.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from lstmprof.events.annotate.links import captured_by
from lstmprof.events.annotate.steps import Window, steps_of
from lstmprof.events.groups import (
    Forest,
    Groups,
    heads,
    inherited,
    nearest,
    own_time,
    ratio,
    values_at,
    where_known,
)
from lstmprof.events.intervals import Flags, Ints, foremost
from lstmprof.events.schema import (
    ACTIVITY_KINDS,
    NO_ACTIVITIES,
    PER_STEP,
    PHASES,
    RANK,
    Column,
    schema,
)
from lstmprof.events.table import NONE, UNKNOWN, EventTable
from lstmprof.events.threads import thread_ids

COLUMNS = (
    RANK,
    Column.text("name", "name of the op, as the profiler wrote it"),
    Column.integer("count", "number of calls"),
    PER_STEP,
    Column.integer("host_total_ns", "host time in the op, including the ops inside it"),
    Column.integer("host_self_ns", "host time in the op, minus the time of the events inside it"),
    Column.integer(
        "device_total_ns",
        "device time of activities that the op or an op inside it launched",
        NO_ACTIVITIES,
    ),
    Column.integer(
        "device_self_ns",
        "device time of activities that the op itself launched",
        NO_ACTIVITIES,
    ),
    Column.integer(
        "kernels_total",
        "number of kernels that the op, or an op inside it, launched",
        NO_ACTIVITIES,
    ),
    Column.integer("kernels_self", "number of kernels that the op itself launched", NO_ACTIVITIES),
)


class _Grouped:
    """Host events, grouped by rank and a code per event, such as the code of its name."""

    # sum with NumPy: recursive SQL takes 1.5 times as long and a third more memory

    def __init__(self, events: EventTable, rows: Ints, code: Ints) -> None:
        rank = events.ints("rank", UNKNOWN)
        self.events, self.rows, self.groups = events, rows, Groups(rank[rows], code[rows])
        self._forest = Forest(events.rows_named("parent_id"))
        self._outer = self._forest.outermost(rows, code)
        self.rank = rank[rows][self.groups.first]
        self.on_device = np.isin(self.rank, rank[events.is_kind(*ACTIVITY_KINDS)])

    def heads(self, *names: str) -> list[pa.Array]:
        return heads(self.events, self.rows, self.groups, names)

    def host_total(self) -> pa.Array:
        """Return each group's host time; events nested in an event of the group add none."""
        return pa.array(self.groups.sums(self.events.dur_ns[self.rows], self._outer))

    def caused(self, values: Ints) -> pa.Array:
        """Sum ``values`` of each group; null if the rank has no device activities."""
        return where_known(self.groups.sums(values[self.rows]), self.on_device)

    def caused_inside(self, values: Ints, known: Flags | None = None) -> pa.Array:
        """Sum ``values`` of each group, including events nested in the group's events."""
        sums = self.groups.sums(self._forest.beneath(values)[self.rows], self._outer)
        return where_known(sums, self.on_device if known is None else known)


def ops(events: EventTable, windows: list[Window]) -> pa.Table:
    """Return one row per rank and op name."""
    rows = np.flatnonzero(events.is_kind("op"))
    grouped = _Grouped(events, rows, events.texts("name")[0])
    groups, op = grouped.groups, events.rows_named("op_id")
    # a CUDA graph's activities belong to the ops that the capture recorded
    captured = captured_by(events)
    op = np.where(captured != NONE, values_at(op, captured), op)
    activity = events.is_kind(*ACTIVITY_KINDS) & (op != NONE)
    kernel = activity & events.is_kind("kernel")
    spent, kernels = np.zeros(len(events), dtype=np.int64), np.zeros(len(events), dtype=np.int64)
    np.add.at(spent, op[activity], events.dur_ns[activity])
    np.add.at(kernels, op[kernel], 1)
    in_steps = groups.sizes(events.ints("step", -1)[rows] >= 0)
    return pa.table(
        [
            *grouped.heads("rank", "name"),
            pa.array(groups.sizes()),
            ratio(in_steps, steps_of(grouped.rank, windows)),
            grouped.host_total(),
            pa.array(groups.sums(own_time(events)[rows])),
            grouped.caused_inside(spent),
            grouped.caused(spent),
            grouped.caused_inside(kernels),
            grouped.caused(kernels),
        ],
        schema=schema(COLUMNS),
    )


RANGE_KINDS = ("step", "phase", "range")
_NUMBERED = re.compile(r"#\d+$")

RANGE_COLUMNS = (
    RANK,
    Column.text("name", "name of the range; for a step, without its number"),
    Column.text("kind", "step, phase (" + ", ".join(PHASES) + ") or range"),
    Column.integer("count", "number of times that the range was entered"),
    Column.integer("total_ns", "host time in the range, including everything inside it"),
    Column.real("mean_ns", "mean host time per entry"),
    Column.integer("self_ns", "host time in the range, minus the time of the events inside it"),
    Column.integer(
        "device_total_ns",
        "device time of activities launched in the range",
        NO_ACTIVITIES,
    ),
    Column.integer(
        "device_self_ns",
        "device time of activities launched in the range, outside nested ranges",
        NO_ACTIVITIES,
    ),
)
RANGE_SCHEMA = schema(RANGE_COLUMNS)


def ranges(events: EventTable, windows: list[Window]) -> pa.Table:
    """Return one row per rank, name and kind of range (phase, step …)."""
    on_host = events.column("device").is_null().to_numpy()
    named = events.is_kind("step", "range") & on_host
    rows = np.flatnonzero(named)
    name, kind = _names_and_kinds(events)
    names, name_codes = np.unique(np.array([*name, ""]), return_inverse=True)
    code = name_codes[events.texts("name")[0]] * len(RANGE_KINDS) + kind
    grouped = _Grouped(events, rows, code)
    groups, first = grouped.groups, code[rows][grouped.groups.first]
    launched = _launched_in(events, named)
    return pa.table(
        [
            *grouped.heads("rank"),
            pa.array(names[first // len(RANGE_KINDS)].tolist(), pa.string()),
            pa.array(RANGE_KINDS).take(pa.array(first % len(RANGE_KINDS))),
            pa.array(groups.sizes()),
            grouped.host_total(),
            ratio(groups.sums(events.dur_ns[rows]), groups.sizes()),
            pa.array(groups.sums(own_time(events)[rows])),
            grouped.caused_inside(launched),
            grouped.caused(launched),
        ],
        schema=RANGE_SCHEMA,
    )


def _names_and_kinds(events: EventTable) -> tuple[list[str], Ints]:
    """Return names such as ``step`` for ``step#3``, and each event's kind of range."""
    codes, values = events.texts("name")
    is_step = events.is_kind("step")
    marks = np.zeros(len(values) + 1, dtype=np.bool_)
    marks[codes[is_step]] = True
    name = [_NUMBERED.sub("", v) if m else v for v, m in zip(values, marks, strict=False)]
    phase = events.is_one_of("name", *PHASES)
    return name, np.where(is_step, 0, np.where(phase, 1, 2)).astype(np.int64)


def _launched_in(events: EventTable, named: Flags) -> Ints:
    """Return the device time (ns) launched in each range, and 0 for other events."""
    # a CUDA graph's activities belong to the range around the launch of the graph
    activity = np.flatnonzero(events.is_kind(*ACTIVITY_KINDS))
    issuer = issued_by(events)[activity]
    activity, issuer = activity[issuer != NONE], issuer[issuer != NONE]
    around = nearest(events.rows_named("parent_id"), named)[issuer]
    elsewhere = around == NONE
    # without a range on the launching thread, use a range that is open on another thread
    around[elsewhere] = _open_ranges(events, named, issuer[elsewhere])
    spent = np.zeros(len(events), dtype=np.int64)
    _add(spent, around, events.dur_ns[activity])
    return spent


def _open_ranges(events: EventTable, named: Flags, issuer: Ints) -> Ints:
    """Return the innermost range, on any thread of the rank, in which each call starts."""
    rank = events.ints("rank", UNKNOWN)
    start, dur = events.start_ns, events.dur_ns
    owner = np.full(len(issuer), NONE, dtype=np.int64)
    for number in np.unique(rank[issuer]):
        rows = np.flatnonzero(named & (rank == number))
        rows = rows[np.lexsort((-dur[rows], start[rows]))]
        lane = foremost(start[rows], events.end_ns[rows], np.arange(len(rows))[::-1])
        members = np.flatnonzero(rank[issuer] == number)
        owner[members] = values_at(rows, lane.owner_at(start[issuer[members]]))
    return owner


#: Prefix that torch.profiler writes before names of modules.
MODULE = "nn.Module: "
SORTS = ("module", "python", "range")
_UNLINKED = "backward and forward ops are not linked"

MODULE_COLUMNS = (
    RANK,
    Column.text(
        "sort", "kind of entry: module (nn.Module), python (frame with file and line) or range"
    ),
    Column.text("name", "name, as the profiler wrote it, without the prefix nn.Module"),
    Column.integer("count", "number of times that the entry ran"),
    Column.integer("host_total_ns", "host time in the entry, including everything inside it"),
    Column.integer(
        "host_self_ns", "host time in the entry, outside nested entries of the same sort"
    ),
    Column.integer(
        "device_total_ns",
        "device time of activities launched in the entry",
        NO_ACTIVITIES,
    ),
    Column.integer(
        "device_self_ns",
        "device time of activities launched in the entry, outside nested entries",
        NO_ACTIVITIES,
    ),
    Column.integer(
        "backward_host_ns",
        "host time of the backward ops of the entry's forward ops",
        _UNLINKED,
    ),
    Column.integer(
        "backward_device_ns",
        "device time of activities launched by the backward ops of the entry's forward ops",
        f"{_UNLINKED}, or {NO_ACTIVITIES}",
    ),
)
MODULE_SCHEMA = schema(MODULE_COLUMNS)


def modules(events: EventTable, windows: list[Window]) -> pa.Table:
    """Return one row per rank, sort (module, Python frame or range) and name."""
    tables = [_modules_of_sort(events, place) for place in range(len(SORTS))]
    return pa.concat_tables(tables)


def sort_of_frames(events: EventTable) -> Ints:
    """Return each event's sort (module, Python frame or range) as an index in ``SORTS``."""
    is_module = events.where_name(lambda name: name.startswith(MODULE))
    frame = np.where(is_module, SORTS.index("module"), SORTS.index("python"))
    sort = np.where(events.is_kind("python"), frame, NONE)
    sort = np.where(events.is_kind("range"), SORTS.index("range"), sort)
    return np.where(thread_ids(events) == NONE, NONE, sort).astype(np.int64)


def _modules_of_sort(events: EventTable, sort: int) -> pa.Table:
    is_frame = sort_of_frames(events) == sort
    rows, parent = np.flatnonzero(is_frame), events.rows_named("parent_id")
    grouped = _Grouped(events, rows, events.texts("name")[0])
    groups, on_device = grouped.groups, grouped.on_device
    around = nearest(parent, is_frame)
    above = np.full(len(events), NONE, dtype=np.int64)  # the frame around each frame
    above[rows] = values_at(around, parent[rows])
    launched, backward_host, backward_device = _caused(events, around)
    ranks = events.ints("rank", UNKNOWN)[events.rows_named("forward_id") != NONE]
    linked = np.isin(grouped.rank, ranks)
    rank, name = grouped.heads("rank", "name")
    names = [(name or "?").removeprefix(MODULE) for name in name.to_pylist()]
    table = pa.table(
        [
            rank,
            pa.array([SORTS[sort]] * groups.count, pa.string()),
            pa.array(names, pa.string()),
            pa.array(groups.sizes()),
            grouped.host_total(),
            pa.array(groups.sums(own_time(events, above)[rows])),
            grouped.caused_inside(launched),
            grouped.caused(launched),
            grouped.caused_inside(backward_host, linked),
            grouped.caused_inside(backward_device, linked & on_device),
        ],
        schema=MODULE_SCHEMA,
    )
    order = [(name, "descending") for name in ("device_total_ns", "host_total_ns")]
    return table.sort_by([("rank", "ascending"), *order, ("name", "ascending")])


def _caused(events: EventTable, around: Ints) -> tuple[Ints, Ints, Ints]:
    """Return times per frame: device time, backward host time, backward device time."""
    forward = inherited(events.rows_named("parent_id"), events.rows_named("forward_id"))
    launched, host, device = (np.zeros(len(events), dtype=np.int64) for _ in range(3))
    backward = np.flatnonzero(forward != NONE)
    _add(host, values_at(around, forward[backward]), own_time(events)[backward])
    activity = np.flatnonzero(events.is_kind(*ACTIVITY_KINDS))
    captured = captured_by(events)[activity]
    issuer = np.where(captured != NONE, captured, issued_by(events)[activity])
    _add(launched, values_at(around, issuer), events.dur_ns[activity])
    _add(device, values_at(around, values_at(forward, issuer)), events.dur_ns[activity])
    return launched, host, device


def issued_by(events: EventTable) -> Ints:
    """Return each event's launch call, or else the op that issued the event."""
    launch, op = events.rows_named("launch_id"), events.rows_named("op_id")
    return np.where(launch != NONE, launch, op)


def _add(sums: Ints, rows: Ints, amounts: Ints) -> None:
    valid = rows != NONE
    np.add.at(sums, rows[valid], amounts[valid])
