"""The range table: host time of ranges, phases and steps, and the device time launched in them.

Reads linked events. An activity belongs to the innermost range that was open on the thread that
launched it. If that thread had no open range (autograd's threads), the activity belongs to the
innermost range of its rank that was open at the launch. Step markers count as one name, whatever
their numbers. As for ops, ``total`` does not add a range inside a range of the same name again.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from lstmprof.events.annotate.steps import Window
from lstmprof.events.groups import Forest, Groups, heads, inherited, own_time, ratio, where_known
from lstmprof.events.intervals import Flags, Ints, foremost
from lstmprof.events.schema import ACTIVITY_KINDS, NO_ACTIVITIES, PHASES, RANK, Column, schema
from lstmprof.events.table import NONE, UNKNOWN, EventTable

KINDS = ("step", "phase", "range")
_NUMBERED = re.compile(r"#\d+$")

COLUMNS = (
    RANK,
    Column.text("name", "name of the range; for a step, without its number"),
    Column.text("kind", "step, phase (" + ", ".join(PHASES) + ") or range"),
    Column.integer("count", "number of times that the range was entered"),
    Column.integer("total_ns", "host time in the range, including everything inside it"),
    Column.real("mean_ns", "mean host time per entry"),
    Column.integer("self_ns", "host time in the range, without the events inside it"),
    Column.integer(
        "device_total_ns",
        "duration of the activities launched in the range or in a range inside it",
        NO_ACTIVITIES,
    ),
    Column.integer(
        "device_self_ns",
        "duration of the activities launched in the range, but not in a range inside it",
        NO_ACTIVITIES,
    ),
)
SCHEMA = schema(COLUMNS)


def ranges(events: EventTable, windows: list[Window]) -> pa.Table:
    """Return one row per rank, name and kind; ``SCHEMA``."""
    on_host = events.column("device").is_null().to_numpy()
    named = events.is_kind("step", "range") & on_host
    rows = np.flatnonzero(named)
    rank = events.ints("rank", UNKNOWN)
    name, kind = _names_and_kinds(events)
    names, name_codes = np.unique(np.array([*name, ""]), return_inverse=True)
    code = name_codes[events.texts("name")[0]] * len(KINDS) + kind
    groups = Groups(rank[rows], code[rows])
    parent = events.rows_named("parent_id")
    forest = Forest(parent)
    outer = forest.outermost(rows, code)
    caused = _caused(events, parent, named)
    dur = events.dur_ns
    on_device = np.isin(rank[rows], rank[events.is_kind(*ACTIVITY_KINDS)])[groups.first]
    first = code[rows][groups.first]
    return pa.table(
        [
            *heads(events, rows, groups, ("rank",)),
            pa.array(names[first // len(KINDS)].tolist(), pa.string()),
            pa.array(KINDS).take(pa.array(first % len(KINDS))),
            pa.array(groups.sizes()),
            pa.array(groups.sums(dur[rows], outer)),
            ratio(groups.sums(dur[rows]), groups.sizes()),
            pa.array(groups.sums(own_time(events)[rows])),
            where_known(groups.sums(forest.beneath(caused)[rows], outer), on_device),
            where_known(groups.sums(caused[rows]), on_device),
        ],
        schema=SCHEMA,
    )


def _names_and_kinds(events: EventTable) -> tuple[list[str], Ints]:
    """Return each distinct text without a step's number, and for each row an index in KINDS."""
    codes, values = events.texts("name")
    is_step = events.is_kind("step")
    marks = np.zeros(len(values) + 1, dtype=np.bool_)
    marks[codes[is_step]] = True
    name = [_NUMBERED.sub("", v) if m else v for v, m in zip(values, marks, strict=False)]
    phase = events.is_one_of("name", *PHASES)
    return name, np.where(is_step, 0, np.where(phase, 1, 2)).astype(np.int64)


def _caused(events: EventTable, parent: Ints, named: Flags) -> Ints:
    """Return, for each range, the nanoseconds of the activities that belong to it."""
    activity = np.flatnonzero(events.is_kind(*ACTIVITY_KINDS))
    launch, op = (events.rows_named(c)[activity] for c in ("launch_id", "op_id"))
    asked = np.where(launch != NONE, launch, op)
    activity, asked = activity[asked != NONE], asked[asked != NONE]
    around = inherited(parent, np.where(named, np.arange(len(events)), NONE))[asked]
    elsewhere = around == NONE
    around[elsewhere] = _open_ranges(events, named, asked[elsewhere])
    spent = np.zeros(len(events), dtype=np.int64)
    inside = around != NONE
    np.add.at(spent, around[inside], events.dur_ns[activity[inside]])
    return spent


def _open_ranges(events: EventTable, named: Flags, asked: Ints) -> Ints:
    """Return, for each of ``asked``, the innermost range of its rank that was open then."""
    rank = events.ints("rank", UNKNOWN)
    start, dur = events.start_ns, events.dur_ns
    owner = np.full(len(asked), NONE, dtype=np.int64)
    for number in np.unique(rank[asked]):
        rows = np.flatnonzero(named & (rank == number))
        rows = rows[np.lexsort((-dur[rows], start[rows]))]
        lane = foremost(start[rows], events.end_ns[rows], np.arange(len(rows))[::-1])
        members = np.flatnonzero(rank[asked] == number)
        if len(lane.start_ns):
            at = start[asked[members]]
            place = np.searchsorted(lane.start_ns, at, side="right") - 1
            open_then = (place >= 0) & (at < lane.end_ns[place])
            owner[members] = np.where(open_then, rows[lane.owner[place]], NONE)
    return owner
