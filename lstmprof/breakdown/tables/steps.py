"""The table of steps and the table of streams: length, busy time and number of activities.

Example: two kernels of 3 ms that overlap for 1 ms keep a device busy for 5 ms. In a CPU run, the
host is busy while a thread computes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from lstmprof.breakdown.attribution.host import computing, merged_threads
from lstmprof.events.annotate.calls import launch_calls
from lstmprof.events.annotate.steps import Window, bounds_of
from lstmprof.events.groups import Groups, heads, ratio
from lstmprof.events.intervals import Covered, Flags, Ints, running_time
from lstmprof.events.schema import ACTIVITY_KINDS, DEVICE, RANK, STEP, Column, schema
from lstmprof.events.table import NONE, UNKNOWN, EventTable
from lstmprof.events.threads import state_codes

_ON_HOST = "the work ran on the host (CPU)"

COLUMNS = (
    RANK,
    STEP,
    DEVICE,
    Column.integer("start_ns", "start of the step, in ns since base_ns of run.json"),
    Column.integer("dur_ns", "length of the step"),
    Column.integer("busy_ns", "time in which at least one activity ran"),
    Column.integer("idle_ns", "time in which no activity ran: dur_ns − busy_ns"),
    Column.integer(
        "overlapped_ns",
        "overlap of activities: sum of their durations in the step, minus busy_ns",
        _ON_HOST,
    ),
    Column.integer(
        "spilled_ns",
        "total time that activities launched in the step ran after the end of the step",
        _ON_HOST,
    ),
    Column.integer("activities", "number of activities that the step launched", _ON_HOST),
    Column.integer(
        "launches",
        "number of the step's launch calls that launched work on the device of the row; in a row "
        "for the host: number of all launch calls in the step",
    ),
    Column.integer("host_ops", "number of ops that started in the step, on any thread of the rank"),
)
SCHEMA = schema(COLUMNS)


def steps(events: EventTable, windows: list[Window]) -> pa.Table:
    """Return one row per rank, step and device."""
    tables = [
        lane
        for rank in dict.fromkeys(w.rank for w in windows)
        for lane in _rank_steps(events, rank, [w for w in windows if w.rank == rank])
    ]
    return pa.concat_tables(tables) if tables else SCHEMA.empty_table()


def _rank_steps(events: EventTable, rank: int | None, windows: list[Window]) -> Iterator[pa.Table]:
    in_rank = events.ints("rank", UNKNOWN) == (UNKNOWN if rank is None else rank)
    activity = in_rank & events.is_kind(*ACTIVITY_KINDS)
    device = events.ints("device", UNKNOWN)
    ops = _per_window(events, np.flatnonzero(in_rank & events.is_kind("op")), windows)
    calls = launch_calls(events)
    calls = calls[in_rank[calls]]
    if not activity.any():
        unknown = pa.nulls(len(windows), pa.int64())
        called = _per_window(events, calls, windows)
        computes = computing(events)
        lane = merged_threads(events, rank, computes, state_codes(events))
        at_work = computes[lane.owner] if len(computes) else np.empty(0, dtype=np.bool_)
        busy = Covered(lane.start_ns[at_work], lane.end_ns[at_work]).within(*bounds_of(windows))
        yield _rows(windows, None, busy, [unknown] * 3, [called, ops])
    for number in np.unique(device[activity & (device != UNKNOWN)]):
        rows = np.flatnonzero(activity & (device == number))
        launch = events.rows_named("launch_id")[rows]
        called = _per_window(events, np.unique(launch[launch != NONE]), windows)
        yield _device_rows(events, rows, int(number), windows, [called, ops])


def _device_rows(
    events: EventTable, rows: Ints, device: int, windows: list[Window], counts: list[Ints]
) -> pa.Table:
    start, end = events.start_ns[rows], events.end_ns[rows]
    opens, closes = bounds_of(windows)
    busy = Covered(start, end).within(opens, closes)
    overlapped = running_time(start, end, opens, closes) - busy
    window = _window_numbers(events, windows)[rows]
    in_step = window != NONE
    spill = np.maximum(end - np.maximum(start, closes[window]), 0)
    spilled = np.zeros(len(windows), dtype=np.int64)
    np.add.at(spilled, window[in_step], spill[in_step])
    issued = _per_window(events, rows, windows)
    return _rows(windows, device, busy, [overlapped, spilled, issued], counts)


def _rows(
    windows: list[Window], device: int | None, busy: Ints, times: list[pa.Array], counts: list[Ints]
) -> pa.Table:
    opens, closes = bounds_of(windows)
    length = closes - opens
    return pa.table(
        [
            pa.array([w.rank for w in windows], pa.int64()),
            pa.array([w.step for w in windows], pa.int64()),
            pa.array([device] * len(windows), pa.int64()),
            pa.array(opens),
            pa.array(length),
            pa.array(busy),
            pa.array(length - busy),
            *(pa.array(k) for k in (*times, *counts)),
        ],
        schema=SCHEMA,
    )


def _window_numbers(events: EventTable, windows: list[Window]) -> Ints:
    """Return the index of each event's step in ``windows``; 0 if no step is marked."""
    if windows[0].step is None:
        return np.zeros(len(events), dtype=np.int64)
    step = events.ints("step", UNKNOWN)
    numbers = np.array([w.step for w in windows], dtype=np.int64)
    order = np.argsort(numbers)
    position = np.minimum(np.searchsorted(numbers[order], step), len(order) - 1)
    return np.where(numbers[order][position] == step, order[position], NONE)


def _per_window(events: EventTable, rows: Ints, windows: list[Window]) -> Ints:
    number = _window_numbers(events, windows)[rows]
    counted: Flags = number != NONE
    return np.bincount(number[counted], minlength=len(windows)).astype(np.int64)


STREAM_COLUMNS = (
    RANK,
    DEVICE,
    Column.integer("stream", "number of the device's stream", "the profile does not record it"),
    Column.integer("activities", "number of kernels, copies and memsets"),
    Column.integer("kernels", "number of kernels"),
    Column.integer("busy_ns", "time in which at least one activity ran"),
    Column.integer("total_ns", "sum of the activities' durations"),
    Column.real(
        "window_share",
        "busy time in steps, divided by the length of all steps",
        "the rank has no steps",
    ),
    Column.integer("first_ns", "start of the first activity, in ns since base_ns of run.json"),
    Column.integer("last_ns", "end of the last activity, in ns since base_ns of run.json"),
)
STREAM_SCHEMA = schema(STREAM_COLUMNS)


def streams(events: EventTable, windows: list[Window]) -> pa.Table:
    """Return one row per rank, device and stream with activities."""
    rows = np.flatnonzero(events.is_kind(*ACTIVITY_KINDS))
    keys = [events.ints(c, UNKNOWN)[rows] for c in ("rank", "device", "stream")]
    groups = Groups(*keys)
    start, end = events.start_ns[rows], events.end_ns[rows]
    covered = [Covered(start[members], end[members]) for members in groups.members()]
    ranks = keys[0][groups.first].tolist()
    in_windows = np.array(
        [_in_windows(c, rank, windows) for c, rank in zip(covered, ranks, strict=True)],
        dtype=np.int64,
    ).reshape(-1, 2)
    return pa.table(
        [
            *heads(events, rows, groups, ("rank", "device", "stream")),
            pa.array(groups.sizes()),
            pa.array(groups.sizes(events.is_kind("kernel")[rows])),
            pa.array([c.whole_ns for c in covered], pa.int64()),
            pa.array(groups.sums(end - start)),
            ratio(in_windows[:, 0], in_windows[:, 1]),
            pa.array([c.bounds[0][0] for c in covered], pa.int64()),
            pa.array([c.bounds[1][-1] for c in covered], pa.int64()),
        ],
        schema=STREAM_SCHEMA,
    )


def _in_windows(covered: Covered, rank: int, windows: list[Window]) -> tuple[int, int]:
    """Return how much of ``covered`` is in the rank's steps, and the steps' length."""
    start, end = bounds_of(w for w in windows if rank == (UNKNOWN if w.rank is None else w.rank))
    return int(covered.within(start, end).sum()), int((end - start).sum())
