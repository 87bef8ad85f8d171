"""The devices of a profile as lanes: the activities of each, and which of them has each instant.

Of activities that run at once compute comes before collectives, these before copies, these before
memsets; among equals the one that started first, then the lower correlation id (docs/ledger.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lstmprof.events.intervals import Ints, Segments, foremost
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import UNKNOWN, EventTable
from lstmprof.events.threads import content_order

#: The order among activities that run at once: compute, collective, copy, memset.
_KIND_CLASS = {"memcpy": 2, "memset": 3}
_COLLECTIVE_CLASS = 1


@dataclass(frozen=True)
class Lane:
    """One device of one rank: its activities and who has each instant."""

    device: int
    start_ns: Ints  # of the activities that take time, by (start, end, correlation id)
    end_ns: Ints
    row: Ints
    launch: Ints  # row of the launch, ``NONE`` unknown
    called_ns: Ints  # when that was called, where it is known
    returned_ns: Ints  # when it returned
    busy: Segments  # owner: row of events


def device_lanes(events: EventTable, rank: int | None) -> Iterator[Lane]:
    """The devices of ``rank`` that have activities, by number."""
    rows = events.of_rank(rank)
    rows = rows[events.is_kind(*ACTIVITY_KINDS)[rows]]
    device = events.ints("device", UNKNOWN)
    for number in np.unique(device[rows]).tolist():
        if number != UNKNOWN:
            yield _lane(events, number, rows[device[rows] == number])


def _lane(events: EventTable, device: int, rows: Ints) -> Lane:
    starts, ends = events.start_ns, events.end_ns
    start, end = starts[rows], ends[rows]
    correlation = events.ints("correlation_id", np.iinfo(np.int64).max)[rows]
    tie = content_order(events, rows)
    first = np.lexsort((tie, end, correlation, start, _class_of(events)[rows]))
    busy = foremost(start, end, first)
    runs = np.flatnonzero(end > start)
    order = runs[np.lexsort((tie[runs], correlation[runs], end[runs], start[runs]))]
    row = rows[order]
    launch = events.rows_named("launch_id")[row]
    owned = Segments(busy.start_ns, busy.end_ns, rows[busy.owner])
    return Lane(device, start[order], end[order], row, launch, starts[launch], ends[launch], owned)


def _class_of(events: EventTable) -> Ints:
    return events.once(_classes, "kind", "category")


def _classes(events: EventTable) -> Ints:
    collective = events.is_one_of("category", "collective")
    by_kind = events.mapped("kind", lambda kind: _KIND_CLASS.get(kind, 0), 0)
    return np.where((by_kind == 0) & collective, _COLLECTIVE_CLASS, by_kind)
