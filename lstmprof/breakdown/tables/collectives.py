"""The collective table: how long each rank was in a collective, and how long it waited there.

::

    rank 0   |==== waits ====|== communicates ==|
    rank 1                   |== communicates ==|     the last to arrive: nobody waits in its call

A collective ends on all its ranks at once, so that of its kernels the shortest is that of the last
to arrive, and what another is longer is what that rank waited. Clocks of ranks differ, so starts
are compared of no two. The kernels of two ranks are one collective where both have as many of that
name in a step on that stream, in their order; streams are numbered by rank, and match in the order
of their numbers where all ranks have as many. Whether they are one can be seen: then their ends,
the clocks' offset taken off, are the same (``skew_ns``). Reads categorised events with steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lstmprof.events.annotate.steps import Window
from lstmprof.events.groups import Groups, numbered
from lstmprof.events.intervals import Covered, Flags, Ints
from lstmprof.events.narrow import Packed
from lstmprof.events.schema import DEVICE, RANK, STEP, Column, schema
from lstmprof.events.table import NONE, UNKNOWN, EventTable

_ALONE = (
    "no step launched it, the ranks have different numbers of collectives, or "
    "there is no other rank"
)
COLUMNS = (
    RANK,
    DEVICE,
    STEP,
    Column.integer("stream", "number of the device's stream", "the profile does not record it"),
    Column.text("name", "name of the kernel"),
    Column.integer("collective", "number of the collective, the same on all of its ranks", _ALONE),
    Column.integer("start_ns", "start of the kernel, by the clock of its rank"),
    Column.integer("dur_ns", "duration of the kernel"),
    Column.integer(
        "overlapped_ns", "part of dur_ns in which a computing kernel also ran on the device"
    ),
    Column.integer(
        "waits_ns",
        "wait for the last rank: dur_ns minus the duration of the shortest kernel of the "
        "collective",
        _ALONE,
    ),
    Column.integer(
        "last_rank",
        "rank that arrived last: the rank of the shortest kernel",
        f"{_ALONE}; it names no rank",
    ),
    Column.integer("last_device", "device that arrived last", _ALONE),
    Column.integer(
        "skew_ns",
        "time between the first and the last end of the collective over all ranks, after "
        "aligning their clocks",
        _ALONE,
    ),
)
SCHEMA = schema(COLUMNS)


@dataclass(frozen=True)
class _Calls:
    """The kernels of collectives, an entry each, by time; ``lane`` counts the ``lanes``.

    Those that no step launched are ``in_step`` where the profile marks none.
    """

    row: Ints
    in_step: Flags
    lane: Ints
    lanes: int
    start_ns: Ints
    end_ns: Ints


#: Columns of the events that it is made from.
READS = (*("kind", "name", "start_ns", "dur_ns", "rank", "device", "stream", "step", "category"),)


def collectives(held: Packed, windows: Sequence[Window]) -> pa.Table:
    """One row a collective and device that took part, by rank, device and time; ``SCHEMA``."""
    events = held.table(READS, np.flatnonzero(held.is_kind("kernel")))
    calls = _calls(events, windows)
    match = _matches(calls, _alike(events, calls))
    rank, device = (events.ints(c, UNKNOWN)[calls.row] for c in ("rank", "device"))
    waits, last, skew, number = _waits(calls, match)
    unknown = number == NONE
    columns = [
        *_columns(events, calls.row, ("rank", "device", "step", "stream", "name")),
        pa.array(number, mask=unknown),
        pa.array(calls.start_ns),
        pa.array(calls.end_ns - calls.start_ns),
        pa.array(_overlapped(events, calls)),
        pa.array(waits, mask=unknown),
        *(pa.array(of[last], mask=unknown | (of[last] == UNKNOWN)) for of in (rank, device)),
        pa.array(skew, mask=unknown),
    ]
    order = np.lexsort((calls.start_ns, device, rank))
    return pa.table(columns, schema=SCHEMA).take(pa.array(order))


def _columns(events: EventTable, rows: Ints, names: tuple[str, ...]) -> list[pa.Array]:
    taken = events.select(names).take(rows)
    return [taken.column(name).cast(SCHEMA.field(name).type) for name in names]


def _calls(events: EventTable, windows: Sequence[Window]) -> _Calls:
    rows = np.flatnonzero(events.is_kind("kernel") & events.is_one_of("category", "collective"))
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    marked = any(window.step is not None for window in windows)
    in_step = (events.ints("step", UNKNOWN)[rows] != UNKNOWN) | (not marked)
    lane = numbered(*(events.ints(c, UNKNOWN)[rows] for c in ("rank", "device")))
    lanes = int(lane.max(initial=-1)) + 1
    return _Calls(rows, in_step, lane, lanes, events.start_ns[rows], events.end_ns[rows])


def _alike(events: EventTable, calls: _Calls) -> Ints:
    """A number for each call: equal where step, name and place of the stream are."""
    stream = events.ints("stream", UNKNOWN)[calls.row]
    place = np.zeros(len(stream), dtype=np.int64)
    of_lane = Groups(calls.lane).members()
    streams = [np.unique(stream[members]) for members in of_lane]
    if len({len(of) for of in streams}) == 1:
        for members, of in zip(of_lane, streams, strict=True):
            place[members] = np.searchsorted(of, stream[members])
    step = events.ints("step", UNKNOWN)[calls.row]
    return numbered(step, place, events.texts("name")[0][calls.row])


def _matches(calls: _Calls, alike: Ints) -> Ints:
    """The calls of each collective, one row each, one column a lane."""
    matches = [np.empty((0, calls.lanes), dtype=np.int64)]
    for members in Groups(alike).members() if calls.lanes > 1 else ():
        members = members[calls.in_step[members]]
        counts = np.bincount(calls.lane[members], minlength=calls.lanes)
        if counts[0] and (counts == counts[0]).all():
            by_lane = members[np.argsort(calls.lane[members], kind="stable")]
            matches.append(by_lane.reshape(calls.lanes, counts[0]).T)
    together = np.concatenate(matches)
    return together[np.argsort(together[:, 0])] if calls.lanes else together


def _waits(calls: _Calls, match: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Of each call what it waits, the call of the last to arrive, the skew, its number."""
    dur = (calls.end_ns - calls.start_ns)[match]
    waits, last, skew = (np.zeros(len(calls.row), dtype=np.int64) for _ in range(3))
    number = np.full(len(calls.row), NONE, dtype=np.int64)
    if len(match):
        shortest = dur.argmin(axis=1)[:, None]
        waits[match] = dur - np.take_along_axis(dur, shortest, axis=1)
        last[match] = np.take_along_axis(match, shortest, axis=1)
        skew[match] = _skew(calls.end_ns[match])[:, None]
        number[match] = np.arange(len(match))[:, None]
    return waits, last, skew, number


def _skew(ends_ns: Ints) -> Ints:
    """How far apart the lanes end each collective, each lane's median offset taken off."""
    offset = ends_ns - ends_ns[:, :1]
    left = offset - np.median(offset, axis=0).astype(np.int64)
    return np.asarray(left.max(axis=1) - left.min(axis=1), dtype=np.int64)


def _overlapped(events: EventTable, calls: _Calls) -> Ints:
    """Time of each call in which its device computed as well."""
    computes = events.is_kind("kernel") & ~events.is_one_of("category", "collective")
    computing = np.flatnonzero(computes)
    rows = np.concatenate([calls.row, computing])  # in which a call is before its device's work
    place = Groups(*(events.ints(c, UNKNOWN)[rows] for c in ("rank", "device")))
    overlapped = np.zeros(len(calls.row), dtype=np.int64)
    for members in place.members():
        own = members[: np.searchsorted(members, len(calls.row))]
        if len(own):
            at = rows[members[len(own) :]]
            busy = Covered(events.start_ns[at], events.end_ns[at])
            overlapped[own] = busy.within(calls.start_ns[own], calls.end_ns[own])
    return overlapped
