"""The events of a table on disk that decide where steps, and processes, begin and end."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lstmprof.events.intervals import Ints
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.stored import StoredEvents
from lstmprof.events.table import UNKNOWN, EventTable
from lstmprof.events.threads import thread_ids

_OF_WINDOWS = ("event_id", "kind", "name", "start_ns", "dur_ns", "rank", "pid", "tid", "device")


def deciding_events(events: StoredEvents) -> EventTable:
    """Of ``events`` those that decide where steps begin and end, as all events do.

    The markers, the first host event of each process and the one that ends last, and the activity
    that ends last after each process has begun.
    """
    chosen: list[pa.Table] = []
    began: dict[int, int] = {}
    for part in events.parts(_OF_WINDOWS):
        on_host = np.flatnonzero(thread_ids(part) >= 0)
        pid = part.ints("pid", UNKNOWN)[on_host]
        first, last = _first_of_each(pid), _last_of_each(pid, part.end_ns[on_host])
        for row in on_host[first].tolist():
            began.setdefault(int(part.ints("pid", UNKNOWN)[row]), int(part.start_ns[row]))
        markers = on_host[part.is_kind("step")[on_host]]
        rows = np.unique(np.concatenate([markers, on_host[first], on_host[last]]))
        chosen.append(part.take(rows).arrow)
    begins = np.sort(np.array(list(began.values()), dtype=np.int64))
    for part in events.parts(_OF_WINDOWS):
        activities = np.flatnonzero(part.is_kind(*ACTIVITY_KINDS))
        turn = np.searchsorted(begins, part.start_ns[activities], side="right")
        rows = activities[_last_of_each(turn, part.end_ns[activities])]
        chosen.append(part.take(np.sort(rows)).arrow)
    table = pa.concat_tables(chosen).unify_dictionaries()
    return EventTable(table.sort_by("event_id").combine_chunks())


def _first_of_each(keys: Ints) -> Ints:
    return np.unique(keys, return_index=True)[1]


def _last_of_each(keys: Ints, end_ns: Ints) -> Ints:
    """Of each of ``keys`` the place that ends last."""
    order = np.lexsort((-end_ns, keys))
    return order[_first_of_each(keys[order])]
