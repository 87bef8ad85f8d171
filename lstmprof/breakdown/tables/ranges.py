"""The range table: what people named, on the host and on a device: ranges, phases, steps.

Reads linked events. An activity belongs to the innermost range open on the thread that launched
it; where that thread has none open (autograd's threads), to the innermost range of its rank that
was open when it was launched. Step markers are taken together whatever their number. ``total`` and
``self`` as for ops: a range inside one of its name is not added again.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from lstmprof.events.annotate.links import NONE, inherited
from lstmprof.events.annotate.steps import Window, is_kind
from lstmprof.events.call_tree import Forest, own_time, referenced
from lstmprof.events.columns import RANK, Column, schema
from lstmprof.events.groups import Groups, heads, ratio, where_known
from lstmprof.events.intervals import Flags, Ints, foremost
from lstmprof.events.schema import ACTIVITY_KINDS, PHASES, ints, texts
from lstmprof.events.threads import UNKNOWN

KINDS = ("step", "phase", "range")
_NUMBERED = re.compile(r"#\d+$")
_NO_ACTIVITIES = "the rank has no device activities"

COLUMNS = (
    RANK,
    Column("name", pa.string(), "", "of the range; of a step without its number"),
    Column("kind", pa.string(), "", "step, phase (named " + ", ".join(PHASES) + ") or range"),
    Column("count", pa.int64(), "", "times it was opened"),
    Column("total_ns", pa.int64(), "ns", "host time in it, what is inside included"),
    Column("mean_ns", pa.float64(), "ns", "mean length of one"),
    Column("self_ns", pa.int64(), "ns", "host time in it and in no event inside it"),
    Column(
        "device_total_ns",
        pa.int64(),
        "ns",
        "duration of the activities launched in it or in a range inside it",
        _NO_ACTIVITIES,
    ),
    Column(
        "device_self_ns",
        pa.int64(),
        "ns",
        "duration of the activities launched in it and in no range inside it",
        _NO_ACTIVITIES,
    ),
)
SCHEMA = schema(COLUMNS)


def ranges(events: pa.Table, windows: list[Window]) -> pa.Table:
    """One row a (rank, name, kind); ``SCHEMA``."""
    on_host = events.column("device").is_null().to_numpy()
    named = is_kind(events, "step", "range") & on_host
    rows = np.flatnonzero(named)
    rank = ints(events, "rank", UNKNOWN)
    name, kind = _names_and_kinds(events)
    names, name_codes = np.unique(np.array([*name, ""]), return_inverse=True)
    code = name_codes[texts(events, "name")[0]] * len(KINDS) + kind
    groups = Groups(rank[rows], code[rows])
    parent = referenced(events, "parent_id")
    forest = Forest(parent)
    outer = forest.outermost(rows, code)
    caused = _caused(events, parent, named)
    dur = ints(events, "dur_ns", 0)
    on_device = np.isin(rank[rows], rank[is_kind(events, *ACTIVITY_KINDS)])[groups.first]
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


def _names_and_kinds(events: pa.Table) -> tuple[list[str], Ints]:
    """The name of each distinct text without a step's number, and for each row a KINDS index."""
    codes, values = texts(events, "name")
    is_step = is_kind(events, "step")
    marks = np.zeros(len(values) + 1, dtype=np.bool_)
    marks[codes[is_step]] = True
    name = [_NUMBERED.sub("", v) if m else v for v, m in zip(values, marks, strict=False)]
    phase = np.array([v in PHASES for v in values] or [False])[codes]
    return name, np.where(is_step, 0, np.where(phase, 1, 2)).astype(np.int64)


def _caused(events: pa.Table, parent: Ints, named: Flags) -> Ints:
    """For each range row the nanoseconds of the activities that belong to it."""
    activity = np.flatnonzero(is_kind(events, *ACTIVITY_KINDS))
    launch, op = (referenced(events, c)[activity] for c in ("launch_id", "op_id"))
    asked = np.where(launch != NONE, launch, op)
    activity, asked = activity[asked != NONE], asked[asked != NONE]
    around = inherited(events, parent, np.where(named, np.arange(len(events)), NONE))[asked]
    elsewhere = around == NONE
    around[elsewhere] = _open_ranges(events, named, asked[elsewhere])
    spent = np.zeros(len(events), dtype=np.int64)
    found = around != NONE
    np.add.at(spent, around[found], ints(events, "dur_ns", 0)[activity[found]])
    return spent


def _open_ranges(events: pa.Table, named: Flags, asked: Ints) -> Ints:
    """For each row of ``asked`` the range of its rank that was open and had started last."""
    rank = ints(events, "rank", UNKNOWN)
    start, dur = ints(events, "start_ns", 0), ints(events, "dur_ns", 0)
    owner = np.full(len(asked), NONE, dtype=np.int64)
    for one in np.unique(rank[asked]):
        rows = np.flatnonzero(named & (rank == one))
        rows = rows[np.lexsort((-dur[rows], start[rows]))]
        lane = foremost(start[rows], (start + dur)[rows], np.arange(len(rows))[::-1])
        mine = np.flatnonzero(rank[asked] == one)
        if len(lane.start_ns):
            at = start[asked[mine]]
            place = np.searchsorted(lane.start_ns, at, side="right") - 1
            open_then = (place >= 0) & (at < lane.end_ns[place])
            owner[mine] = np.where(open_then, rows[lane.owner[place]], NONE)
    return owner
