"""Changes to a step that a replay can simulate, such as "no casts" or "matmuls twice as fast".

A change returns the new times of host segments and activities (``ReplayTimes``). ``compiled`` and
``as_layer_op`` are forecasts, because these changes compute layers in another form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import isfinite

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lstmprof.base import names
from lstmprof.base.errors import UsageError
from lstmprof.breakdown.replay.graph import StepGraph
from lstmprof.events.annotate.calls import direction
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.table import NONE


@dataclass(frozen=True)
class ReplayTimes:
    """The times to replay: arrays have one entry per host segment, activity or sync."""

    segment_ns: Ints
    activity_ns: Ints
    vanished: Flags  # activities that do not run
    instant: Flags  # activities that start at once after their launch call
    stream_waits: Flags  # activities that still wait for another stream
    sync_waits: Flags  # calls that still wait for the device


Change = Callable[[StepGraph], ReplayTimes]


def unchanged_times(graph: StepGraph) -> ReplayTimes:
    none = np.zeros(len(graph.activities), dtype=np.bool_)
    end, start = (graph.activities.column(name).to_numpy() for name in ("end_ns", "start_ns"))
    return ReplayTimes(
        segment_ns=graph.spent_ns,
        activity_ns=np.asarray(end - start, dtype=np.int64),
        vanished=none,
        instant=none,
        stream_waits=~none,
        sync_waits=np.ones(len(graph.syncs), dtype=np.bool_),
    )


def without_launch(graph: StepGraph) -> ReplayTimes:
    """Remove the time of launch calls and the launch latency, as a CUDA graph does."""
    times = unchanged_times(graph)
    blocks = _flags(graph.activities, "blocks")
    launches = _flags(graph.segments, "launches")
    linked = graph.activities.column("launch_id").is_valid().to_numpy()
    spent = np.where(launches, 0, times.segment_ns)
    return replace(times, segment_ns=spent, instant=linked & ~blocks)


def without_casts(graph: StepGraph) -> ReplayTimes:
    """Remove casts, and the calls that only casts need."""
    return _without(graph, graph.calls.without(graph.calls.work_of_category("cast")))


def without_copies(graph: StepGraph) -> ReplayTimes:
    """Remove copies between host and device, and copies within host or device."""
    calls = graph.calls
    # keep copies of gradients by autograd, and copies inside other computing ops
    copies = calls.work_of_category("transfer", "layout")
    return _without(graph, calls.without(copies & ~calls.work_of_autograd(copies)))


def without_copying(graph: StepGraph) -> ReplayTimes:
    """Remove copies, but keep the host's waits for device-to-host copies."""
    times, events = without_copies(graph), graph.calls.events
    to_host = events.where_name(lambda name: direction(name) == "DtoH") & events.is_kind("memcpy")
    ids = set(graph.calls.event_id[to_host].tolist())
    awaited = graph.syncs.column("awaited_ids").to_pylist()
    needed = np.array([not ids.isdisjoint(copies) for copies in awaited], dtype=np.bool_)
    return replace(times, sync_waits=times.sync_waits | needed)


def without_backward_copies(graph: StepGraph) -> ReplayTimes:
    """Remove the copies that autograd makes of gradients."""
    calls = graph.calls
    copies = calls.work_of_category("transfer", "layout")
    return _without(graph, calls.without(calls.work_of_autograd(copies)))


def without_zero_fills(graph: StepGraph) -> ReplayTimes:
    """Remove fills with zeros, and ops that only make zeroed memory (``aten::zeros``)."""
    calls = graph.calls
    return _without(graph, calls.without(calls.zero_fills(), reads=False))


def without_slice_backward(graph: StepGraph) -> ReplayTimes:
    """Copy gradients of slices into one tensor, as ``unbind`` does, without sums."""
    vanished, slices = graph.calls.slices()
    times = _without(graph, vanished)
    # remove only the Python that calls the slicing ops: ``unbind`` runs these ops, too
    ways = _refer_to(graph, "call_id", slices) & _flags(graph.segments, "call_overhead")
    return replace(times, segment_ns=np.where(ways, 0, times.segment_ns))


def _without(graph: StepGraph, vanished: Flags) -> ReplayTimes:
    """Remove ``vanished`` events and the activities that these events issued."""
    times, calls = unchanged_times(graph), graph.calls
    issued = np.zeros(len(vanished), dtype=np.bool_)
    rows = np.flatnonzero(calls.issuer != NONE)
    issued[rows] = vanished[calls.issuer[rows]]
    ids = pa.array(calls.event_id[vanished])
    return replace(
        times,
        segment_ns=_without_ways_in(graph, vanished),
        vanished=_refer_to(graph, "event_id", vanished | issued, graph.activities),
        stream_waits=~_flags_in(graph.activities, "wait_call_id", ids),
        sync_waits=~_flags_in(graph.syncs, "event_id", ids),
    )


def _without_ways_in(graph: StepGraph, vanished: Flags) -> Ints:
    """Return segment times without ``vanished`` calls and the calling Python."""
    spent, segments = graph.spent_ns, graph.segments
    vanish = _refer_to(graph, "call_id", vanished)
    before = _refer_to(graph, "then_id", vanished)
    ways = _flags(segments, "call_overhead")
    thread = segments.column("thread").to_numpy()
    rest_ns = np.where(vanish, 0, spent)
    for number in np.unique(thread[before & ~ways & ~vanish]):
        members = thread == number
        # shorten Python that does more than call, but only by the usual time of a call
        usual = int(np.median(spent[members & ways])) if (members & ways).any() else 0
        long = members & before & ~ways & ~vanish
        rest_ns[long] = np.maximum(spent[long] - usual, 0)
    return np.asarray(rest_ns, dtype=np.int64)


def _refer_to(graph: StepGraph, column: str, rows: Flags, table: pa.Table | None = None) -> Flags:
    """Mark the entries of ``table`` whose ``column`` names an event of ``rows``."""
    ids = pa.array(graph.calls.event_id[rows])
    return _flags_in(graph.segments if table is None else table, column, ids)


def without_syncs(graph: StepGraph) -> ReplayTimes:
    """Remove the host's waits for the device, except waits after the last launch."""
    times, segments, syncs = unchanged_times(graph), graph.segments, graph.syncs
    copies = syncs.filter(pc.equal(syncs.column("scope"), "copy")).column("event_id")
    copies = copies.combine_chunks()
    waiting = _flags_in(segments, "event_id", syncs.column("event_id").combine_chunks())
    launches = _flags(segments, "launches") | _flags_in(segments, "event_id", copies)
    start = segments.column("start_ns").to_numpy()
    last = int(start[launches].max(initial=graph.window.start_ns))
    waiting |= _in(segments, "state", "sync")
    asking = _refer_to(graph, "call_id", graph.calls.value_reads())
    # remove waits before the last launch; without launches, remove only reads of values
    free = (waiting | asking) & (start < last) | asking & (not launches.any())
    spent = np.where(free, 0, times.segment_ns)
    return replace(times, segment_ns=spent, sync_waits=syncs.column("start_ns").to_numpy() >= last)


def without_python(graph: StepGraph) -> ReplayTimes:
    """Remove the time of Python, including Python that only calls an op."""
    return _without_state(graph, "python")


def without_dispatch(graph: StepGraph) -> ReplayTimes:
    """Remove the time of ops that only call other ops; runtime calls keep their time."""
    return _without_state(graph, "dispatch")


def _without_state(graph: StepGraph, state: str) -> ReplayTimes:
    times, segments = unchanged_times(graph), graph.segments
    idle = segments.column("category").is_null().to_numpy()
    free = idle & _in(segments, "state", state)
    return replace(times, segment_ns=np.where(free, 0, times.segment_ns))


def faster_gemms(factor: float) -> Change:
    """Return a change in which each matmul takes 1/``factor`` of its time."""
    if not (isfinite(factor) and factor > 0):
        raise UsageError(f"matmuls cannot be {factor} times as fast", "use a factor above 0")

    def change(graph: StepGraph) -> ReplayTimes:
        times = unchanged_times(graph)
        gemms = _in(graph.activities, "category", "gemm")
        gemms |= _in(graph.activities, "family", "gemm")
        on_host = _in(graph.segments, "category", "gemm")
        return replace(
            times,
            segment_ns=np.where(on_host, _divided(times.segment_ns, factor), times.segment_ns),
            activity_ns=np.where(gemms, _divided(times.activity_ns, factor), times.activity_ns),
        )

    return change


def _divided(ns: Ints, factor: float) -> Ints:
    return np.rint(ns / factor).astype(np.int64)


#: Name of a change → function that makes the change.
CHANGES: Mapping[str, Change] = dict(
    zip(
        names.CHANGES,
        (
            *(without_launch, without_casts, without_syncs),
            *(without_copies, without_python, without_dispatch),
            *(without_backward_copies, without_zero_fills, without_slice_backward),
        ),
        strict=True,
    )
)


def _flags(table: pa.Table, column: str) -> Flags:
    return np.asarray(table.column(column).to_numpy(), dtype=np.bool_)


def _flags_in(table: pa.Table, column: str, values: pa.Array) -> Flags:
    flags = pc.is_in(table.column(column), values, skip_nulls=True)
    return np.asarray(flags.to_numpy(), dtype=np.bool_)


_PASSES = ("forward", "backward")
_POINTWISE = ("pointwise",)
_MOVES = ("layout", "transfer", "cast", "memset")


@dataclass(frozen=True)
class Error:
    """Relative errors of predicted step times, measured on ``pairs`` pairs of runs."""

    pairs: int
    median: float
    worst: float


#: Change → measured error of its forecast, copied from the output of
#: benchmarks/diagnosis/what_if.py.
ERRORS: Mapping[str, Error] = {
    "layer": Error(4, 0.17, 0.20),
    "compiled": Error(3, 0.43, 0.55),
}


def compiled(graph: StepGraph) -> ReplayTimes:
    """Forecast the step if a compiler compiled the forward and backward pass."""
    times, inside = unchanged_times(graph), _inside(graph)
    idle = graph.segments.column("category").is_null().to_numpy()
    free = inside & idle & _in(graph.segments, "state", "python", "dispatch")
    spent = np.where(free, 0, times.segment_ns)
    pointwise = inside & _in(graph.segments, "category", *_POINTWISE)
    threads = graph.segments.column("thread").to_numpy()
    computes = graph.segments.column("category").is_valid().to_numpy()
    activities = _activities_inside(graph)
    fused = activities & _in(graph.activities, "category", *_POINTWISE)
    streams = graph.activities.column("stream").fill_null(NONE).to_numpy()
    every = np.ones(len(streams), dtype=np.bool_)
    # ignore the time that a compiler adds, such as for guards
    return replace(
        times,
        segment_ns=_fused(spent, threads, computes, pointwise),
        activity_ns=_fused(times.activity_ns, streams, every, fused),
        instant=activities | times.instant,
    )


def as_layer_op(recurrent_share: float, gemm_factor: float) -> Change:
    """Return a change that forecasts the step if one op ran each recurrent layer."""
    # divide only the time of matmuls that need no earlier time step by ``gemm_factor``
    scale = recurrent_share + (1 - recurrent_share) / gemm_factor

    def change(graph: StepGraph) -> ReplayTimes:
        times, inside = compiled(graph), _inside(graph)
        activities = _activities_inside(graph)
        segment_ns = _layer_ns(graph.segments, times.segment_ns, inside, scale)
        sums = graph.calls.event_id[graph.calls.sums()].tolist()
        return replace(
            times,
            segment_ns=np.where(_in(graph.segments, "event_id", *sums), 0, segment_ns),
            activity_ns=_layer_ns(graph.activities, times.activity_ns, activities, scale),
        )

    return change


def _layer_ns(table: pa.Table, spent_ns: Ints, inside: Flags, scale: float) -> Ints:
    products, moves = _in(table, "category", "gemm"), _in(table, "category", *_MOVES)
    scaled = np.where(inside & products, np.rint(spent_ns * scale), spent_ns)
    return np.where(inside & moves, 0, scaled).astype(np.int64)


def _inside(graph: StepGraph) -> Flags:
    """Mark the segments of both passes, with the Python that only calls their ops."""
    in_call = graph.segments.column("call_id").is_valid().to_numpy()
    call_inside = _refer_to(graph, "call_id", graph.calls.events.is_one_of("phase", *_PASSES))
    return np.where(in_call, call_inside, _in(graph.segments, "phase", *_PASSES))


def _activities_inside(graph: StepGraph) -> Flags:
    events = graph.calls.events
    rows = events.rows_of(graph.activities.column("event_id").to_numpy())
    return np.asarray(events.is_one_of("phase", *_PASSES)[rows], dtype=np.bool_)


def _fused(spent_ns: Ints, queue: Ints, computes: Flags, chained: Flags) -> Ints:
    """Return the times of all ops if each chain of ops were one fused op."""
    fused_ns = spent_ns.copy()
    rows = np.flatnonzero(computes)
    rows = rows[np.argsort(queue[rows], kind="stable")]
    runs = np.flatnonzero(
        np.append(True, (np.diff(chained[rows]) != 0) | (np.diff(queue[rows]) != 0))
    )
    for members in np.split(rows, runs[1:]) if len(rows) else []:
        if chained[members[0]] and len(members) > 1:
            # let a fused chain of n ops save n − 1 times the time of its shortest op
            least = int(spent_ns[members].min())
            fused_ns[members[1:]] -= least
    return fused_ns


def _in(table: pa.Table, column: str, *values: str | int) -> Flags:
    return _flags_in(table, column, pa.array(values, table.column(column).type))
