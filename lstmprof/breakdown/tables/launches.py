"""The tables of launches and launch gaps: the cost of launch calls, and idle time of devices.

::

    host      [launch call)~~ latency ~~
    device    [kernel)~~~~~~~~~ gap ~~~~[first activity of the call)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lstmprof.breakdown.tables.kernels import SortedTexts
from lstmprof.events.annotate.calls import launch_calls
from lstmprof.events.annotate.steps import Window, bounds_of, steps_of, windows_at
from lstmprof.events.groups import Groups, latest_ends, numbered, ratio, texts_at, where_known
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.narrow import Packed
from lstmprof.events.schema import ACTIVITY_KINDS, DEVICE, PER_STEP, RANK, Column, schema
from lstmprof.events.table import NONE, UNKNOWN, EventTable
from lstmprof.runs.invariants import check_sums

_UNLINKED = "no activity of these calls was recorded"

COLUMNS = (
    RANK,
    Column.text("name", "name of the runtime or driver call"),
    Column.text(
        "kind",
        f"kind of work that the calls enqueued: {', '.join(ACTIVITY_KINDS)}, or mixed",
        _UNLINKED,
    ),
    Column.integer("count", "number of calls"),
    Column.integer("linked", "number of calls whose activity is in the profile"),
    Column.integer(
        "activities",
        "number of activities that the calls enqueued (one graph launch enqueues many)",
    ),
    PER_STEP,
    Column.real(
        "per_time_step",
        "per_step divided by the workload's time steps",
        "the profile has no step markers, or the workload is unknown",
    ),
    Column.real(
        "per_second",
        "number of calls in steps, divided by the length of all steps",
        "the rank has no steps",
    ),
    Column.integer("call_total_ns", "total time in the calls"),
    Column.real("call_mean_ns", "mean time in a call"),
    Column.integer("call_p50_ns", "median time in a call"),
    Column.integer("call_p95_ns", "95th percentile of the time in a call"),
    Column.real(
        "latency_mean_ns",
        "mean time from the return of the call to the start of the activity",
        _UNLINKED,
    ),
    Column.integer("latency_p50_ns", "median launch latency", _UNLINKED),
    Column.integer("latency_p95_ns", "95th percentile of the launch latency", _UNLINKED),
    Column.integer(
        "latency_negative",
        "number of calls that returned after their activity had started",
    ),
    Column.integer(
        "started_before_call",
        "number of calls that began after their activity had started, because the clocks of host "
        "and device differ",
    ),
    Column.real(
        "queue_mean",
        "mean queue depth at the return of a call: activities that were enqueued and had not ended",
        _UNLINKED,
    ),
    Column.integer(
        "queue_max",
        "largest queue depth at the return of a call",
        _UNLINKED,
    ),
)

#: Columns of the events to read.
READS = (
    *("event_id", "kind", "name", "start_ns", "dur_ns", "rank", "device"),
    *("parent_id", "launch_id", "step"),
)
GAP_READS = ("event_id", "kind", "name", "start_ns", "dur_ns", "rank", "device", "category")
_KINDS = (*ACTIVITY_KINDS, "mixed")


def launches(events: Packed, windows: Sequence[Window], time_steps: int | None) -> pa.Table:
    """Return one row per rank, launch call (such as ``cudaLaunchKernel``) and kind of work."""
    calling = np.flatnonzero(events.is_kind("runtime", *ACTIVITY_KINDS))
    chosen = events.table(READS, calling)
    calls = launch_calls(chosen)
    check_sums("launches", chosen.dur_ns[calls])
    rank, in_step = (chosen.ints(name, UNKNOWN)[calls] for name in ("rank", "step"))
    dur, name = chosen.dur_ns[calls], SortedTexts.of(*chosen.texts("name")[::-1])
    activities, kind, latency, depth = _enqueued(chosen, calls)
    linked = activities > 0
    groups = Groups(rank, name.index[calls], kind)
    head, count = groups.first, groups.sizes()
    group_rank, linked_count = rank[head], groups.sizes(linked)
    steps, in_steps = steps_of(group_rank, list(windows)), groups.sizes(in_step != UNKNOWN)
    whole_ns, unmarked = _time_of_steps(group_rank, windows)
    has_linked = linked_count > 0
    per_step = in_steps / np.maximum(steps, 1)
    durations, latencies = groups.sorted(dur), groups.sorted(latency, linked)
    columns = [
        where_known(group_rank, group_rank != UNKNOWN),
        texts_at(name.values, name.index[calls][head]),
        texts_at(_KINDS, kind[head]),
        pa.array(count),
        pa.array(linked_count),
        pa.array(groups.sums(activities)),
        ratio(in_steps, steps),
        pa.array(per_step / (time_steps or 1), mask=(steps == 0) | (not time_steps)),
        pa.array(
            np.where(unmarked, count, in_steps) * 1e9 / np.maximum(whole_ns, 1), mask=whole_ns == 0
        ),
        pa.array(groups.sums(dur)),
        ratio(groups.sums(dur), count),
        *(pa.array(durations.percentile(share)) for share in (50, 95)),
        ratio(groups.sums(latency, linked), linked_count),
        *(where_known(latencies.percentile(share), has_linked) for share in (50, 95)),
        pa.array(groups.sizes(linked & (latency < 0))),
        pa.array(groups.sizes(linked & (latency < -dur))),
        ratio(groups.sums(depth, linked), linked_count),
        where_known(groups.sorted(depth, linked).percentile(100), has_linked),
    ]
    return pa.Table.from_arrays(columns, schema=schema(COLUMNS))


def _enqueued(events: EventTable, calls: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Return, per launch call: number and kind of its activities, latency, queue depth."""
    number = np.full(len(events), NONE, dtype=np.int64)
    number[calls] = np.arange(len(calls))
    launch = events.rows_named("launch_id")
    work = np.flatnonzero(events.is_kind(*ACTIVITY_KINDS) & (launch != NONE))
    work = work[number[launch[work]] != NONE]
    call = number[launch[work]]
    kinds = events.mapped("kind", lambda text: _KINDS.index(text) if text in _KINDS else NONE, NONE)
    kind, latency, depth = (np.full(len(calls), value) for value in (NONE, 0, 0))
    start, device = events.start_ns[work], events.ints("device", UNKNOWN)[work]
    order = np.lexsort((device, start, call))
    first = order[np.flatnonzero(np.append(True, np.diff(call[order]) > 0)[: len(order)])]
    kind[call[first]] = kinds[work[first]]
    kind[call[kinds[work] != kind[call]]] = _KINDS.index("mixed")
    returned = events.end_ns[calls]
    latency[call[first]] = start[first] - returned[call[first]]
    queue = Groups(events.ints("rank", UNKNOWN)[work], device)
    for place, members in enumerate(queue.members()):
        enqueued = np.sort(returned[call[members]])
        ended = np.sort(np.maximum(events.end_ns[work[members]], returned[call[members]]))
        mine = call[first[queue.of[first] == place]]
        depth[mine] = np.searchsorted(enqueued, returned[mine], side="right")
        depth[mine] -= np.searchsorted(ended, returned[mine], side="right")
    return np.bincount(call, minlength=len(calls)), kind, latency, depth


def _time_of_steps(ranks: Ints, windows: Sequence[Window]) -> tuple[Ints, Flags]:
    """Return the total length of each rank's steps, and whether the profile marks no steps."""
    numbers = np.array([UNKNOWN if w.rank is None else w.rank for w in windows], dtype=np.int64)
    starts, ends = bounds_of(windows)
    length = ends - starts
    whole = [int(length[numbers == rank].sum()) for rank in ranks.tolist()]
    unmarked = numbers[[w.step is None for w in windows]] if windows else numbers
    return np.array(whole, dtype=np.int64), np.asarray(np.isin(ranks, unmarked), dtype=np.bool_)


GAP_COLUMNS = (
    RANK,
    DEVICE,
    Column.text("name", "name of the kernel, copy or memset"),
    Column.text("category", "category of work, such as gemm"),
    Column.integer(
        "count",
        "number of times that the kernel or copy ran; the first activity of each step does not "
        "count",
    ),
    Column.integer("dur_p50_ns", "median duration, nearest rank"),
    Column.integer(
        "gap_p50_ns",
        "median idle time of the device before the kernel or copy, nearest rank",
    ),
    Column.integer("dur_total_ns", "sum of the durations"),
    Column.integer("gap_total_ns", "total idle time of the device before the kernel or copy"),
)


def launch_gaps(events: Packed, windows: Sequence[Window]) -> pa.Table:
    """Return one row per rank, device, name and category."""
    on_device = events.is_kind(*ACTIVITY_KINDS) & events.has_value("device")
    work = events.table(GAP_READS, np.flatnonzero(on_device))
    step = np.full(len(work), NONE, dtype=np.int64)
    for of_rank in dict.fromkeys(w.rank for w in windows):
        own = [number for number, window in enumerate(windows) if window.rank == of_rank]
        rows = work.rows_of_rank(of_rank)
        place = windows_at(work.start_ns[rows], [windows[number] for number in own])
        step[rows] = np.where(place == NONE, NONE, np.array(own)[place])
    rank, device = (work.ints(name, UNKNOWN) for name in ("rank", "device"))
    rows = np.flatnonzero(step != NONE)
    keys = (work.ints("event_id", NONE), work.end_ns, work.start_ns, device, step)
    rows = rows[np.lexsort([key[rows] for key in keys])]
    lane = numbered(step[rows], device[rows])
    busy_until = work.end_ns[rows][latest_ends(lane, work.end_ns[rows])]
    after = np.flatnonzero(lane[1:] == lane[:-1])
    rows, idle_from = rows[1:][after], busy_until[:-1][after]
    gap, dur = np.maximum(work.start_ns[rows] - idle_from, 0), work.dur_ns[rows]
    check_sums("launch_gaps", gap, dur)
    name, category = (SortedTexts.of(*work.texts(text)[::-1]) for text in ("name", "category"))
    groups = Groups(rank[rows], device[rows], name.index[rows], category.index[rows])
    head = rows[groups.first]
    columns = [
        where_known(rank[head], rank[head] != UNKNOWN),
        pa.array(device[head]),
        texts_at(name.values, name.index[head]),
        texts_at(category.values, category.index[head]),
        pa.array(groups.sizes()),
        *(pa.array(groups.sorted(values).percentile(50)) for values in (dur, gap)),
        *(pa.array(groups.sums(values)) for values in (dur, gap)),
    ]
    return pa.Table.from_arrays(columns, schema=schema(GAP_COLUMNS))
