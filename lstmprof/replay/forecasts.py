"""A step whose layers are computed in another form: forecasts, which assume more than a replay.

``compiled``: in the forward and backward pass Python and dispatch take no time, and element-by-
element work that follows each other is one op, which moves its data once. Products, reductions and
copies stay as they are. What a compiler adds (guards, its own calls) is not in it.

``as_layer_op``: as compiled, without copies, casts, memsets and sums of gradients in these passes;
and products that do not wait for the time step before are one product each: those of the inputs,
of their gradients and of the weights'. These run at the device's rate, recurrent ones as they did.

How far off both were where it could be measured is in ``ERRORS``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.table import NONE
from lstmprof.replay.changes import Change, ReplayTimes, nothing
from lstmprof.replay.graph import StepGraph
from lstmprof.workloads import Workload

#: Passes in which layers are computed.
_PASSES = ("forward", "backward")
_POINTWISE = ("pointwise",)
_MOVES = ("layout", "transfer", "cast", "memset")


@dataclass(frozen=True)
class Error:
    """How far predicted steps were off those measured: shares of the measured ones."""

    pairs: int
    median: float
    worst: float


#: Forecast → how far off it was; one that is not here was not measured. Printed by
#: benchmarks/diagnosis/what_if.py, to be copied here.
ERRORS: Mapping[str, Error] = {
    "layer": Error(4, 0.17, 0.20),
    "compiled": Error(3, 0.43, 0.55),
}


def compiled(graph: StepGraph) -> ReplayTimes:
    """The step with its passes compiled; see above."""
    times, inside = nothing(graph), _inside(graph)
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
    return replace(
        times,
        segment_ns=_fused(spent, threads, computes, pointwise),
        activity_ns=_fused(times.activity_ns, streams, every, fused),
        instant=activities | times.instant,
    )


def as_layer_op(recurrent_share: float, gemm_factor: float) -> Change:
    """The step with its layers as one op each; see above.

    ``recurrent_share`` of the products' operations waits for a time step before
    (``recurrent_share``); the others run ``gemm_factor`` times as fast as the profile's.
    """
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


def recurrent_share(workload: Workload, mode: str) -> float:
    """What of the products' operations in forward and backward waits for a time step before.

    Of a layer with ``I`` inputs and ``H`` units the forward pass has I + H in each unit and time
    step, of which H recur; the backward pass as many for the gradients of its inputs (none where
    nothing is beneath it) and of its state, and again for those of the weights, which do not recur.
    """
    whole = recurrent = 0
    for layer in range(workload.layers):
        inputs = workload.directions * workload.hidden if layer else workload.features
        both = inputs + workload.hidden
        whole, recurrent = whole + both, recurrent + workload.hidden
        if mode == "train":
            known = layer == 0 and not workload.vocabulary
            whole += 2 * both - inputs * known
            recurrent += workload.hidden
    return recurrent / whole


def _inside(graph: StepGraph) -> Flags:
    """A boolean a segment: it is of a pass, or the way into an op of one."""
    phase, called = (graph.segments.column(name).to_pylist() for name in ("phase", "call_id"))
    calls = graph.calls
    codes, names = calls.events.texts("phase")
    of_call = {}
    wanted = {number for number, name in enumerate(names) if name in _PASSES}
    for event, code in zip(calls.event_id.tolist(), codes.tolist(), strict=True):
        of_call[event] = code in wanted
    flags = [
        of_call.get(event, False) if event is not None else name in _PASSES
        for name, event in zip(phase, called, strict=True)
    ]
    return np.array(flags, dtype=np.bool_)


def _activities_inside(graph: StepGraph) -> Flags:
    """A boolean an activity: it is of a pass."""
    events = graph.calls.events
    rows = events.rows_of(graph.activities.column("event_id").to_numpy())
    return np.asarray(events.is_one_of("phase", *_PASSES)[rows], dtype=np.bool_)


def _fused(spent_ns: Ints, lane: Ints, computes: Flags, chained: Flags) -> Ints:
    """``spent_ns`` with each chain of ``chained`` rows as one: all but one memory pass remain.

    A chain is what follows each other in its lane with nothing else that ``computes`` between. A
    pass over memory is taken to last as long as the shortest of its chain; each of them makes one,
    and what is longer computes.
    """
    left = spent_ns.copy()
    rows = np.flatnonzero(computes)
    rows = rows[np.argsort(lane[rows], kind="stable")]
    runs = np.flatnonzero(
        np.append(True, (np.diff(chained[rows]) != 0) | (np.diff(lane[rows]) != 0))
    )
    for members in np.split(rows, runs[1:]) if len(rows) else []:
        if chained[members[0]] and len(members) > 1:
            least = int(spent_ns[members].min())
            left[members[1:]] -= least
    return left


def _in(table: pa.Table, column: str, *values: str | int) -> Flags:
    of = table.column(column)
    flags = pc.is_in(of, pa.array(values, of.type), skip_nulls=True)
    return np.asarray(flags.to_numpy(), dtype=np.bool_)
