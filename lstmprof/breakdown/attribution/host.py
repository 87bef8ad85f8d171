"""Find what the host of a CPU run did at each time (docs/ledger.md).

The innermost event of each thread decides: "busy" in an op that computes, "dispatch" in an op that
only calls other ops, "python" in a range without an op. A step is busy while any thread computes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

import numpy as np

from lstmprof.events.annotate import CAPTURED
from lstmprof.events.annotate.calls import is_kernel_launch
from lstmprof.events.intervals import Flags, Ints, Segments, foremost
from lstmprof.events.schema import PROGRAM
from lstmprof.events.table import NONE, UNKNOWN, EventTable
from lstmprof.events.threads import innermost, nesting_order, thread_ids
from lstmprof.runs.metadata import RunInfo

#: Framework → names of ranges in which only the framework runs; the first recorded name counts.
_BACKWARD_RANGES = {
    "torch": ("backward",),
    "tensorflow": (PROGRAM, "step"),
    "tensorflow1": (PROGRAM, "step"),
    "jax": (PROGRAM, "step"),
    "pytensor": ("step",),
    "theano": ("step",),
    "chainer": ("backward",),
    "caffe2": (PROGRAM, "step"),
    "onnxruntime": (PROGRAM, "step"),
    "openvino": (PROGRAM, "step"),
}
#: Category → priority if several threads work at once (lowest first; other categories: 0).
_PRIORITY = {"collective": 1, "transfer": 2, "memset": 3}
_FIRST_IDLE = 4
#: Pattern of copy instructions in XLA's CPU profiles.
_XLA_COPY = re.compile(r"copy(?:\.\d+)?")
#: Name of the event around all instructions in XLA's CPU profiles.
_XLA_RUNS = "ThunkExecutor::Execute"
#: Pattern of events of TensorFlow's input pipeline, which runs ahead: no step waits for these.
_PIPELINE = re.compile(
    r"Iterator::.*|Prefetch(?:Produce|Consume)|PyFunc:PyFunc|InstantiatedCapturedFunction::.*"
)
#: Label of time in which the framework runs ops, but no op computes.
DISPATCH = ("idle", "dispatch")
#: Names of events around a graph that TensorFlow's executor runs.
_EXECUTOR = frozenset(("KernelAndDeviceFunc::Run", "FunctionRun", "SessionRun"))
#: Longest total time of all threads in ns: the sum of two times must fit into int64.
_MOST_NS = 2**62


def omits_short_ops(parts: Collection[tuple[str, str]], names: Iterable[str | None]) -> bool:
    """Return whether TensorFlow's executor, which omits short ops, made the profile."""
    # the executor omits ops that take under 8,000 cycles on average (TensorFlow: ``KernelStats``)
    return DISPATCH in parts and not _EXECUTOR.isdisjoint(names)


def framework_ranges(info: RunInfo) -> tuple[str, ...]:
    """Return names of ranges in which only the framework runs, such as ``backward``."""
    captured = info.source == CAPTURED
    return _BACKWARD_RANGES.get(str(info.framework), ()) if captured else ()


def computing(events: EventTable) -> Flags:
    """Return a mask of the ops that compute on the host, not on a GPU."""
    busy = events.is_kind("op") & events.column("category").is_valid().to_numpy()
    busy &= ~events.where_name(_PIPELINE.fullmatch)
    calls = events.is_kind("runtime") & events.where_name(is_kernel_launch)
    rank = events.ints("rank", UNKNOWN)
    launches = np.isin(rank, np.unique(rank[calls]))
    return np.asarray(busy & ~launches, dtype=np.bool_)


def innermost_of_each(events: EventTable, rows: Ints, thread: Ints) -> Segments:
    """Return the innermost event of each thread at each time, thread by thread."""
    nested = nesting_order(events, rows)
    nested = nested[np.argsort(thread[nested], kind="stable")]
    start, end = events.start_ns[nested], events.end_ns[nested]
    if not len(nested):
        return Segments(nested, nested, nested)
    first_ns = int(start.min())
    span_ns = int(end.max()) - first_ns + 1
    if span_ns * (int(thread[nested[-1]]) + 1) >= _MOST_NS:
        each = np.split(nested, np.flatnonzero(np.diff(thread[nested])) + 1)
        parts = [innermost(events, np.sort(members)) for members in each]
        columns = ([s.start_ns for s in parts], [s.end_ns for s in parts], [s.owner for s in parts])
        return Segments(*(np.concatenate(column) for column in columns))
    shift = thread[nested] * span_ns - first_ns
    merged = foremost(start + shift, end + shift, np.arange(len(nested))[::-1])
    shift = shift[merged.owner]
    return Segments(merged.start_ns - shift, merged.end_ns - shift, nested[merged.owner])


def merged_threads(events: EventTable, rank: int | None, computes: Flags, state: Ints) -> Segments:
    """Choose one event of all host threads at each time, ops that compute first."""
    thread = thread_ids(events)
    rows = events.rows_of_rank(rank)
    rows = rows[~events.where_name(_PIPELINE.fullmatch)[rows]]
    threads = innermost_of_each(events, rows[thread[rows] >= 0], thread)
    start, end, owner = threads.start_ns, threads.end_ns, threads.owner
    busy_class = events.mapped("category", lambda category: _PRIORITY.get(category, 0), 0)
    priority = np.where(computes, busy_class, _FIRST_IDLE + state)[owner]
    began = events.start_ns[owner]
    merged = foremost(start, end, np.lexsort((start, thread[owner], began, priority)))
    return Segments(merged.start_ns, merged.end_ns, owner[merged.owner])


def with_whole_copies(events: EventTable, merged: Segments, computes: Flags) -> Segments:
    """Extend each XLA copy until the slowest of the copying threads has finished."""
    runs = np.flatnonzero(events.is_kind("op") & events.is_one_of("name", _XLA_RUNS))
    if not len(runs) or len(merged.owner) < 3:
        return merged
    # extend only copies: XLA records just one of a copy's threads (jax 0.11: ``CopyThunk``)
    copies = computes & events.where_name(_XLA_COPY.fullmatch)
    before, at, after = merged.owner[:-2], merged.owner[1:-1], merged.owner[2:]
    may_belong = (before != NONE) & (at != NONE) & (after != NONE)
    may_belong &= copies[before] & events.is_kind("step")[at] & computes[after]
    # extend while no ``Execute`` event runs (begun == ended): other threads are still copying
    middle = (merged.start_ns[1:-1] + merged.end_ns[1:-1]) // 2
    begun = np.searchsorted(np.sort(events.start_ns[runs]), middle, side="right")
    ended = np.searchsorted(np.sort(events.end_ns[runs]), middle, side="right")
    owner = merged.owner.copy()
    owner[1:-1] = np.where(may_belong & (begun == ended), before, at)
    return Segments(merged.start_ns, merged.end_ns, owner)
