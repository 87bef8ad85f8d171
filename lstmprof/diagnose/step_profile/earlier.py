"""Compute how much earlier a device would finish without its waits for a late rank.

::

    device  |-work-|== waits ==|-collective-|        idle         |-work-|
    host    |launch|            a call that takes long     |launch|

The wait in this diagram costs no time: without the wait, the device would only idle for longer,
until the host launches the next work. A wait costs time if the next work is already queued, or if
the host waits for the device.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lstmprof.events.annotate.steps import Window
from lstmprof.events.intervals import Covered, Ints
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import NONE, UNKNOWN, EventTable
from lstmprof.events.threads import runtime_state


def earlier_ns(
    events: EventTable, window: Window, device: int | None, waits_ns: Mapping[int, int]
) -> int | None:
    """Return how much earlier a device would finish without waits for other ranks."""
    rows = events.rows_of_rank(window.rank)
    rows = rows[(events.end_ns[rows] > window.start_ns) & (events.start_ns[rows] < window.end_ns)]
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    devices = events.ints("device", UNKNOWN)[rows]
    own = np.isin(devices, (UNKNOWN, UNKNOWN if device is None else device))
    work = rows[own & events.is_kind(*ACTIVITY_KINDS)[rows]]
    # give up if the profile does not show what launched the work
    if not len(work) or (events.rows_named("launch_id")[work] == NONE).all():
        return None
    calls = rows[events.is_kind("runtime")[rows] & events.where_name(_may_block)[rows]]
    marks = [(at, "idle", 0) for at in _late_launches(events, work).tolist()]
    start, end = events.start_ns, events.end_ns
    # add the wait in each collective, which ``waits_ns`` lists by the collective's start
    marks += [(int(end[row]), "waited", waits_ns.get(int(start[row]), 0)) for row in work]
    marks += [(int(end[row]), "woken", int(end[row] - start[row])) for row in calls]
    device_ns = host_ns = 0  # how much earlier the device, and the host, would get here
    for _, what, ns in sorted(marks, key=lambda mark: mark[0]):
        if what == "idle":
            device_ns = min(device_ns, host_ns)
        elif what == "waited":
            device_ns += ns
        else:
            host_ns = min(host_ns + ns, device_ns)
    return device_ns


def _may_block(name: str) -> bool:
    return runtime_state(name) == "sync" or "Memcpy" in name


def _late_launches(events: EventTable, work: Ints) -> Ints:
    """Return the start times of work that the host launched after the device ran idle."""
    begins, ends = Covered(events.start_ns[work], events.end_ns[work]).bounds
    first = work[np.searchsorted(events.start_ns[work], begins[1:])]
    call = events.rows_named("launch_id")[first]
    blocks = events.end_ns[call] > events.start_ns[first]  # the work begins during the call
    launched_ns = np.where(blocks, events.start_ns[call], events.end_ns[call])
    late = (call != NONE) & (launched_ns > ends[:-1])
    return np.asarray(begins[1:][late], dtype=np.int64)
