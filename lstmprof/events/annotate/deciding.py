"""The events of a table on disk that decide where steps, and processes, begin and end."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lstmprof.events.groups import numbered
from lstmprof.events.intervals import Ints
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.stored import StoredEvents
from lstmprof.events.table import UNKNOWN, EventTable
from lstmprof.events.threads import thread_ids

_OF_WINDOWS = ("event_id", "kind", "name", "start_ns", "dur_ns", "rank", "pid", "tid", "device")


def deciding_events(events: StoredEvents) -> EventTable:
    """Of ``events`` those that decide where steps begin and end, as all events do.

    The markers, the first host event of each process and the one that ends last, and the activity
    that ends last after each process of its rank has begun.
    """
    chosen: list[pa.Table] = []
    began: dict[int, dict[int, int]] = {}
    for part in events.parts(_OF_WINDOWS):
        on_host = np.flatnonzero(thread_ids(part) >= 0)
        rank, pid = (part.ints(name, UNKNOWN)[on_host] for name in ("rank", "pid"))
        process = numbered(rank, pid)
        first, last = _first_of_each(process), _last_of_each(process, part.end_ns[on_host])
        starts = part.start_ns[on_host[first]]
        for place, start_ns in zip(first.tolist(), starts.tolist(), strict=True):
            began.setdefault(int(rank[place]), {}).setdefault(int(pid[place]), start_ns)
        markers = on_host[part.is_kind("step")[on_host]]
        rows = np.unique(np.concatenate([markers, on_host[first], on_host[last]]))
        chosen.append(part.take(rows).arrow)
    begins = {rank: np.sort([*of.values()]) for rank, of in began.items()}
    for part in events.parts(_OF_WINDOWS):
        activities = np.flatnonzero(part.is_kind(*ACTIVITY_KINDS))
        rank = part.ints("rank", UNKNOWN)[activities]
        turn = np.zeros(len(activities), dtype=np.int64)
        for number in np.unique(rank).tolist():
            of_rank = rank == number
            starts = part.start_ns[activities[of_rank]]
            turn[of_rank] = np.searchsorted(begins.get(number, starts[:0]), starts, side="right")
        rows = activities[_last_of_each(numbered(rank, turn), part.end_ns[activities])]
        chosen.append(part.take(np.sort(rows)).arrow)
    table = pa.concat_tables(chosen).unify_dictionaries()
    return EventTable(table.sort_by("event_id").combine_chunks())


def _first_of_each(keys: Ints) -> Ints:
    """The first place of each of ``keys``, which are numbered from 0 on."""
    first = np.empty(int(keys.max(initial=-1)) + 1, dtype=np.int64)
    first[keys[::-1]] = np.arange(len(keys))[::-1]  # the last write is the first of its key
    return first


def _last_of_each(keys: Ints, end_ns: Ints) -> Ints:
    """Of each of ``keys`` the place that ends last, the first of those that end together."""
    latest = np.full(int(keys.max(initial=-1)) + 1, UNKNOWN)
    np.maximum.at(latest, keys, end_ns)
    last = np.flatnonzero(end_ns == latest[keys])
    return last[_first_of_each(keys[last])]
