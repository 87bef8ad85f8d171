"""The launch table: what it costs to enqueue work, and how far the host is ahead of the device.

Reads linked events. A launch is a runtime call that enqueued an activity of the profile, or whose
name says that it enqueues one; a driver call inside a runtime call is part of that. Latency is from
the call's return to the start of the first activity it enqueued, as the profile has them: it is
negative where the activity started before the call returned, and such are counted beside it. Queue
depth is counted when a call returns: the activities of its device that were enqueued by then and
had not ended, its own included. Percentiles are the nearest rank.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from lstmprof.events.annotate.links import NONE
from lstmprof.events.annotate.steps import Window, is_kind
from lstmprof.events.call_tree import referenced
from lstmprof.events.columns import PER_STEP, RANK, Column, schema
from lstmprof.events.groups import (
    Groups,
    heads,
    in_windows,
    per_second,
    per_step,
    per_time_step,
    window_time,
)
from lstmprof.events.intervals import Ints
from lstmprof.events.schema import ACTIVITY_KINDS, ints, texts
from lstmprof.events.threads import UNKNOWN

#: cudaLaunchKernel, hipExtModuleLaunchKernel, cudaGraphLaunch, cudaMemcpyAsync, hipMemsetAsync …
_ENQUEUES = re.compile(r"Launch|Memcpy|Memset")
MIXED = "mixed"

_UNLINKED = "the profile has no activity of any of these calls"

COLUMNS = (
    RANK,
    Column("name", pa.string(), "", "of the runtime or driver call"),
    Column(
        "kind",
        pa.string(),
        "",
        f"of what it enqueued: {', '.join(ACTIVITY_KINDS)}, or {MIXED} where one call enqueued "
        "several kinds",
        _UNLINKED,
    ),
    Column("count", pa.int64(), "", "calls"),
    Column("linked", pa.int64(), "", "calls of which the profile has an activity"),
    Column("activities", pa.int64(), "", "activities that they enqueued; a graph launch has many"),
    PER_STEP,
    Column(
        "per_time_step",
        pa.float64(),
        "",
        "per_step divided by the workload's time steps",
        "the profile has no step markers, or run.json no workload",
    ),
    Column(
        "per_second",
        pa.float64(),
        "1/s",
        "calls in a window, divided by the length of all windows",
        "the rank has no window",
    ),
    Column("call_total_ns", pa.int64(), "ns", "time in the calls"),
    Column("call_mean_ns", pa.float64(), "ns", "mean time in a call"),
    Column("call_p50_ns", pa.int64(), "ns", "median time in a call"),
    Column("call_p95_ns", pa.int64(), "ns", "95th percentile of the time in a call"),
    Column("latency_mean_ns", pa.float64(), "ns", "mean launch latency", _UNLINKED),
    Column("latency_p50_ns", pa.int64(), "ns", "median launch latency", _UNLINKED),
    Column("latency_p95_ns", pa.int64(), "ns", "95th percentile of the launch latency", _UNLINKED),
    Column(
        "latency_negative",
        pa.int64(),
        "",
        "calls with a negative latency: the device began before the call returned",
    ),
    Column(
        "started_before_call",
        pa.int64(),
        "",
        "of these, calls whose activity began before the call did: the two clocks disagree",
    ),
    Column("queue_mean", pa.float64(), "", "mean queue depth when a call returned", _UNLINKED),
    Column("queue_max", pa.int64(), "", "largest queue depth when a call returned", _UNLINKED),
)
SCHEMA = schema(COLUMNS)


def launches(events: pa.Table, windows: list[Window], time_steps: int | None = None) -> pa.Table:
    """One row a (rank, name, kind); ``SCHEMA``. ``time_steps``: of the workload, None unknown."""
    calls = _Calls(events)
    rows, rank = calls.rows, ints(events, "rank", UNKNOWN)[calls.rows]
    groups = Groups(rank, texts(events, "name")[0][rows], calls.kind)
    rank = rank[groups.first]
    stepwise = per_step(groups.sizes(ints(events, "step", -1)[rows] >= 0), rank, windows)
    inside = groups.sizes(in_windows(events, windows)[rows])
    known = calls.activities > 0
    return pa.table(
        [
            *heads(events, rows, groups, ("rank", "name")),
            pa.array([*ACTIVITY_KINDS, MIXED]).take(
                pa.array(calls.kind[groups.first], mask=~known[groups.first])
            ),
            pa.array(groups.sizes()),
            pa.array(groups.sizes(known)),
            pa.array(groups.sums(calls.activities)),
            stepwise,
            per_time_step(stepwise, time_steps),
            per_second(inside, window_time(rank, windows)),
            pa.array(groups.sums(calls.dur_ns)),
            groups.mean(calls.dur_ns),
            groups.percentile(calls.dur_ns, 50),
            groups.percentile(calls.dur_ns, 95),
            groups.mean(calls.latency_ns, known),
            groups.percentile(calls.latency_ns, 50, known),
            groups.percentile(calls.latency_ns, 95, known),
            pa.array(groups.sizes(known & (calls.latency_ns < 0))),
            pa.array(groups.sizes(known & (calls.latency_ns < -calls.dur_ns))),
            groups.mean(calls.depth, known),
            groups.largest(calls.depth, known),
        ],
        schema=SCHEMA,
    )


def launch_calls(events: pa.Table) -> Ints:
    """Rows of the runtime calls that enqueue work."""
    runtime = is_kind(events, "runtime")
    names, name_texts = texts(events, "name")
    enqueues = np.array([bool(_ENQUEUES.search(n)) for n in name_texts] or [False])[names]
    parent = referenced(events, "parent_id")
    enqueues &= ~(runtime[parent] & (parent != NONE))
    launch = referenced(events, "launch_id")
    enqueues[launch[launch != NONE]] = True
    return np.flatnonzero(runtime & enqueues)


class _Calls:
    """The launches of ``events``; arrays have one entry a call, 0 where nothing is known."""

    def __init__(self, events: pa.Table) -> None:
        self.rows = launch_calls(events)
        start, dur = ints(events, "start_ns", 0), ints(events, "dur_ns", 0)
        launch = referenced(events, "launch_id")
        activities = np.flatnonzero((launch != NONE) & is_kind(events, *ACTIVITY_KINDS))
        place = np.full(len(events), NONE, dtype=np.int64)
        place[self.rows] = np.arange(len(self.rows))
        of = place[launch[activities]]
        self.dur_ns = dur[self.rows]
        self.activities = np.bincount(of, minlength=len(self.rows)).astype(np.int64)
        self.kind = _kinds(events, activities, of, len(self.rows))
        first = _earliest(start, activities, of, len(self.rows))
        returned = start[self.rows] + self.dur_ns
        self.latency_ns = np.where(self.activities > 0, start[first] - returned, 0)
        self.depth = np.zeros(len(self.rows), dtype=np.int64)
        end = np.maximum(start[activities] + dur[activities], returned[of])
        lane = Groups(*(ints(events, c, UNKNOWN)[activities] for c in ("rank", "device"))).of
        lane_of = np.full(len(events), NONE, dtype=np.int64)
        lane_of[activities] = lane
        for one in range(int(lane.max(initial=NONE)) + 1):
            mine = np.flatnonzero((self.activities > 0) & (lane_of[first] == one))
            queued = np.sort(returned[of][lane == one])
            ended = np.sort(end[lane == one])
            at = returned[mine]
            self.depth[mine] = np.searchsorted(queued, at, "right") - np.searchsorted(
                ended, at, "right"
            )


def _kinds(events: pa.Table, activities: Ints, of: Ints, count: int) -> Ints:
    """For each call an index into ACTIVITY_KINDS, their number for several, −1 for none."""
    kind = np.full(count, NONE, dtype=np.int64)
    for number, name in enumerate(ACTIVITY_KINDS):
        mine = np.unique(of[is_kind(events, name)[activities]])
        kind[mine] = np.where(kind[mine] == NONE, number, len(ACTIVITY_KINDS))
    return kind


def _earliest(start: Ints, activities: Ints, of: Ints, count: int) -> Ints:
    """For each call the row of the activity that started first, 0 where it has none."""
    first = np.zeros(count, dtype=np.int64)
    latest_first = np.argsort(-start[activities], kind="stable")
    first[of[latest_first]] = activities[latest_first]
    return first
