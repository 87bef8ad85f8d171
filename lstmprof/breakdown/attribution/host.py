"""Divide the steps of a CPU run into parts, from what its host threads did.

At each instant, the innermost event of a thread decides what the thread does. In an op that
computes, it is busy in the op's category. In an op that only calls other ops, it is in
``dispatch``. In a range without an op, it is in ``python``, or in ``dispatch`` if only the
framework runs in the range. Then the threads are merged: if one thread computes, the step is busy,
whatever the other threads do. Source: docs/ledger.md.
"""

from __future__ import annotations

import re

import numpy as np

from lstmprof.events.annotate import CAPTURED
from lstmprof.events.annotate.calls import is_kernel_launch
from lstmprof.events.intervals import Flags, Ints, Segments, foremost
from lstmprof.events.schema import PROGRAM
from lstmprof.events.table import NONE, UNKNOWN, EventTable
from lstmprof.events.threads import innermost, nesting_order, thread_ids
from lstmprof.runs.metadata import RunInfo

#: Framework → names of the ranges of lstmprof's captures in which no Python of the user runs. If
#: several are listed, the first name that the profile contains is used. In the backward pass,
#: PyTorch's autograd and Chainer walk their graphs. In other frameworks a step is one call of a
#: compiled function, which has its own range since version 4 of lstmprof's table format.
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
#: Category → priority if several threads are busy at the same time. The least number wins; other
#: categories have 0. The states of threads that are not busy follow from ``_FIRST_IDLE`` on.
_PRIORITY = {"collective": 1, "transfer": 2, "memset": 3}
_FIRST_IDLE = 4
#: Names of events of XLA on a CPU: a copy instruction (pattern), and the event around all the
#: instructions of a program.
_XLA_COPY = re.compile(r"copy(?:\.\d+)?")
_XLA_RUNS = "ThunkExecutor::Execute"
#: Events of TensorFlow's input pipeline that compute nothing: they mostly run ahead in background
#: threads, so no step waits for them. ``PyFunc`` runs a generator of the script.
_PIPELINE = re.compile(
    r"Iterator::.*|Prefetch(?:Produce|Consume)|PyFunc:PyFunc|InstantiatedCapturedFunction::.*"
)
#: ``innermost_of_each`` puts the times of all threads one after another on one time axis if this
#: axis is shorter than this many ns, so that sums of two times fit int64.
_MOST_NS = 2**62


def framework_ranges(info: RunInfo) -> tuple[str, ...]:
    """Return the names of the ranges in which no Python of the user runs."""
    captured = info.source == CAPTURED
    return _BACKWARD_RANGES.get(str(info.framework), ()) if captured else ()


def computing(events: EventTable) -> Flags:
    """Return a mask of the ops that compute on the host.

    Such ops have a category, and their rank launches no kernels.
    """
    busy = events.is_kind("op") & events.column("category").is_valid().to_numpy()
    busy &= ~events.where_name(_PIPELINE.fullmatch)
    calls = events.is_kind("runtime") & events.where_name(is_kernel_launch)
    rank = events.ints("rank", UNKNOWN)
    launches = np.isin(rank, np.unique(rank[calls]))
    return np.asarray(busy & ~launches, dtype=np.bool_)


def innermost_of_each(events: EventTable, rows: Ints, thread: Ints) -> Segments:
    """Return each thread's innermost event of ``rows`` at each time, one thread after another.

    ``thread`` has the number of every event's thread.
    """
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
    """Return the event that decides what the host of ``rank`` does at each time.

    Events that compute come first, then the other events, by their state code.

    ``computes`` and ``state`` have one entry per event: whether it computes, and its state code.
    """
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
    """Return ``merged`` with the whole time of each copy that XLA divides among threads.

    The copy's event covers only the share of the thread that began it; the shares of other threads
    have no events. No ``ThunkExecutor::Execute`` runs until all shares are done. So time between a
    copy and the next instruction belongs to the copy if no ``Execute`` runs. Source: stack samples
    of jax 0.11, which are all in ``CopyThunk`` at such times.
    """
    runs = np.flatnonzero(events.is_kind("op") & events.is_one_of("name", _XLA_RUNS))
    if not len(runs) or len(merged.owner) < 3:
        return merged
    copies = computes & events.where_name(_XLA_COPY.fullmatch)
    before, at, after = merged.owner[:-2], merged.owner[1:-1], merged.owner[2:]
    may_belong = (before != NONE) & (at != NONE) & (after != NONE)
    may_belong &= copies[before] & events.is_kind("step")[at] & computes[after]
    middle = (merged.start_ns[1:-1] + merged.end_ns[1:-1]) // 2
    begun = np.searchsorted(np.sort(events.start_ns[runs]), middle, side="right")
    ended = np.searchsorted(np.sort(events.end_ns[runs]), middle, side="right")
    owner = merged.owner.copy()
    owner[1:-1] = np.where(may_belong & (begun == ended), before, at)
    return Segments(merged.start_ns, merged.end_ns, owner)
