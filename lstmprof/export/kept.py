"""What is kept of a run that is cut to some of its steps, or to a range of time.

::

    |-- before --|======== span ========|-- after --|
            [-- launch --]   [kernel]                     what overlaps the span, whole
                                [launch]    [kernel]      what that is linked to, both ways
          [kernel]                        [kernel]  of each device the one before, after
       value                                        of each counter the last before
                                        [marker of the next step]   which ends the last one

So the ledger of a step has what it had: the launches of its kernels and the ops around them, since
when its device was idle, and where the step ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lstmprof.errors import UsageError
from lstmprof.events.annotate.steps import Window
from lstmprof.events.counters import Series, by_series
from lstmprof.events.groups import Groups
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import NONE, UNKNOWN, EventTable
from lstmprof.numbers import listed

_LINKS = ("launch_id", "op_id", "parent_id", "forward_id")
#: Columns of the events that it is told from.
READS = (
    *("event_id", "kind", "name", "start_ns", "dur_ns", "rank", "device", "correlation_id"),
    *(*_LINKS, "step"),
)
_MOST_LISTED = 12


@dataclass(frozen=True)
class Kept:
    """``rows`` of the events: ``inside`` of them overlap the span, ``crossing`` of these over its
    edge; the others are what is linked to them.
    """

    span: tuple[int, int]
    windows: tuple[Window, ...]
    rows: Ints
    inside: int
    crossing: int
    next_steps: tuple[int, ...]


def steps_chosen(windows: Sequence[Window], first: int, last: int) -> list[Window]:
    """The windows of the steps from ``first`` to ``last``, of all ranks.

    Raises:
        UsageError: there is no such step; says which there are.
    """
    chosen = [w for w in windows if w.step is not None and first <= w.step <= last]
    if not chosen:
        there = list(dict.fromkeys(w.step for w in windows if w.step is not None))
        wanted = f"step {first}" if first == last else f"step from {first} to {last}"
        if not there:
            raise UsageError("the profile has no step markers", "use --range, or --step-range")
        numbers = [str(step) for step in there[:_MOST_LISTED]]
        more = [f"… {there[-1]}"] if len(there) > _MOST_LISTED else []
        raise UsageError(f"the profile has no {wanted}", f"its steps are {listed(numbers + more)}")
    return chosen


def kept(events: EventTable, windows: Sequence[Window], span: tuple[int, int] | None) -> Kept:
    """What is kept of linked ``events`` for ``windows``; of all of ``span`` where that is given.

    Raises:
        UsageError: nothing ran then.
    """
    chosen = () if span else tuple(windows)
    first, until = span or (
        min(w.start_ns for w in windows),
        max(w.end_ns for w in windows),
    )
    start, end = events.start_ns, events.end_ns
    inside = (start < until) & ((end > first) | ((start == end) & (start >= first)))
    if not inside.any():
        raise UsageError("the --range contains no event", "choose another --range")
    crossing = inside & ((start < first) | (end > until))
    rows = _linked(events, np.flatnonzero(inside))
    markers = _next_markers(events, chosen)
    rows = np.union1d(rows, np.concatenate([_neighbours(events, first, until), markers]))
    steps = tuple(sorted({_step(events, row) for row in markers.tolist()} - {NONE}))
    return Kept((first, until), chosen, rows, int(inside.sum()), int(crossing.sum()), steps)


def last_before(counters: Iterable[pa.Table], at_ns: int) -> frozenset[int]:
    """When each counter got the value that it had at ``at_ns``."""
    last: dict[Series, int] = {}
    for rows in counters:
        for series, time_ns, _ in by_series(rows):
            before = int(np.searchsorted(time_ns, at_ns))
            if before:
                last[series] = int(time_ns[before - 1])
    return frozenset(last.values())


def _linked(events: EventTable, rows: Ints) -> Ints:
    """``rows``, the activities that they launched, and all that these are linked to.

    No step: a marker that only lies around a launch would be a step of the cut.
    """
    inside = np.zeros(len(events), dtype=np.bool_)
    inside[rows] = True
    launch = events.rows_named("launch_id")
    inside[(launch != NONE) & inside[launch]] = True
    links = [events.rows_named(name) for name in _LINKS]
    marker = events.is_kind("step")
    new = np.flatnonzero(inside)
    while len(new):
        named = np.unique(np.concatenate([link[new] for link in links]))
        named = named[named != NONE]
        new = named[~inside[named] & ~marker[named]]
        inside[new] = True
    return np.flatnonzero(inside)


def _neighbours(events: EventTable, first: int, until: int) -> Ints:
    """Of each device the activity that ends last before the span, and the one after it."""
    rows = np.flatnonzero(events.is_kind(*ACTIVITY_KINDS) & (events.dur_ns > 0))
    beside: list[int] = []
    if len(rows):
        lanes = Groups(*(events.ints(name, UNKNOWN)[rows] for name in ("rank", "device")))
        for members in lanes.members():
            own = rows[members]
            before: Flags = events.end_ns[own] <= first
            after: Flags = events.start_ns[own] >= until
            if before.any():
                beside.append(int(own[before][events.end_ns[own[before]].argmax()]))
            if after.any():
                beside.append(int(own[after][events.start_ns[own[after]].argmin()]))
    return np.array(beside, dtype=np.int64)


def _next_markers(events: EventTable, windows: Sequence[Window]) -> Ints:
    """The markers with which the windows end that are no windows themselves."""
    ends = {(w.rank, w.end_ns) for w in windows} - {(w.rank, w.start_ns) for w in windows}
    rows = np.flatnonzero(events.is_kind("step"))
    ranks = events.ints("rank", UNKNOWN)[rows].tolist()
    places = zip(rows.tolist(), ranks, events.start_ns[rows].tolist(), strict=True)
    markers = [r for r, rank, at in places if (None if rank == UNKNOWN else rank, at) in ends]
    return np.array(markers, dtype=np.int64)


def _step(events: EventTable, row: int) -> int:
    step = events.ints("step", NONE)[row]
    return int(step)
