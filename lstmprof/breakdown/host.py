"""The ledger (the parts of each step) of a CPU run, from its host threads.

The innermost event of a thread at each instant decides the thread's state: an op that computes is
busy in its category; an op that only calls other ops is ``dispatch``; a range without an op is
``python``, or ``dispatch`` if only the framework runs in it. Then the threads are merged: if one
computes, the step is busy, whatever the others do. Source: docs/ledger.md.
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

#: Framework → names of ranges in lstmprof's own captures in which no Python of the user runs. The
#: first name found in a profile is used. In the backward pass, PyTorch's autograd and Chainer walk
#: their graphs. In other frameworks a step is one call of a compiled function, which has its own
#: range since version 4 of lstmprof's table format.
_OF_FRAMEWORK = {
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
_CLASS = {"collective": 1, "transfer": 2, "memset": 3}
_FIRST_IDLE = 4
#: XLA's copy instruction, and the event of the executor that runs instructions on a CPU.
_XLA_COPY = re.compile(r"copy(?:\.\d+)?")
_XLA_RUNS = "ThunkExecutor::Execute"
#: Times up to this fit int64.
_MOST_NS = 2**62


def framework_ranges(info: RunInfo) -> tuple[str, ...]:
    """Return the names of the ranges of a run in which no Python of the user runs."""
    captured = info.source == CAPTURED
    return _OF_FRAMEWORK.get(str(info.framework), ()) if captured else ()


def computing(events: EventTable) -> Flags:
    """Return for each row whether it is an op that computes on the host.

    An op that computes has a category; an op that only arranges work has none. If its rank launched
    unrecorded device work, the device computed, not the op.
    """
    busy = events.is_kind("op") & events.column("category").is_valid().to_numpy()
    return np.asarray(busy & ~_launches_unseen_work(events), dtype=np.bool_)


def _launches_unseen_work(events: EventTable) -> Flags:
    """Return for each row whether its rank has kernel launches in the profile."""
    calls = events.is_kind("runtime") & events.where_name(is_kernel_launch)
    rank = events.ints("rank", UNKNOWN)
    return np.asarray(np.isin(rank, np.unique(rank[calls])), dtype=np.bool_)


def innermost_of_each(events: EventTable, rows: Ints, thread: Ints) -> Segments:
    """Return ``threads.innermost`` for each thread of ``rows``, one after the other.

    All threads are computed at once; the times of each thread are shifted behind those of the last.
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
    lanes = foremost(start + shift, end + shift, np.arange(len(nested))[::-1])
    shift = shift[lanes.owner]
    return Segments(lanes.start_ns - shift, lanes.end_ns - shift, nested[lanes.owner])


def merged_lanes(events: EventTable, rank: int | None, computes: Flags, state: Ints) -> Segments:
    """Return the row that owns each instant of ``rank``'s host; instants without an event are gone.

    ``computes`` and ``state`` have one entry per row (``computing``, ``threads.state_codes``).
    """
    thread = thread_ids(events)
    rows = events.of_rank(rank)
    lanes = innermost_of_each(events, rows[thread[rows] >= 0], thread)
    start, end, owner = lanes.start_ns, lanes.end_ns, lanes.owner
    busy_class = events.mapped("category", lambda category: _CLASS.get(category, 0), 0)
    priority = np.where(computes, busy_class, _FIRST_IDLE + state)[owner]
    began = events.start_ns[owner]
    merged = foremost(start, end, np.lexsort((start, thread[owner], began, priority)))
    return Segments(merged.start_ns, merged.end_ns, owner[merged.owner])


def with_whole_copies(events: EventTable, lanes: Segments, computes: Flags) -> Segments:
    """Return ``lanes`` in which a copy that XLA divides among threads owns all of its time.

    The copy's event ends with the part of the thread that began it. The executor returns when the
    other parts are done, which have no events. So XLA is copying between a copy and the next
    instruction while no instruction runs. Source: a sampler on jax 0.11, whose samples are all in
    ``CopyThunk`` there.
    """
    runs = np.flatnonzero(events.is_kind("op") & events.is_one_of("name", _XLA_RUNS))
    if not len(runs) or len(lanes.owner) < 3:
        return lanes
    copies = computes & events.where_name(lambda name: bool(_XLA_COPY.fullmatch(name)))
    before, at, after = lanes.owner[:-2], lanes.owner[1:-1], lanes.owner[2:]
    held = (before != NONE) & (at != NONE) & (after != NONE)
    held &= copies[before] & events.is_kind("step")[at] & computes[after]
    middle = (lanes.start_ns[1:-1] + lanes.end_ns[1:-1]) // 2
    begun = np.searchsorted(np.sort(events.start_ns[runs]), middle, side="right")
    ended = np.searchsorted(np.sort(events.end_ns[runs]), middle, side="right")
    owner = lanes.owner.copy()
    owner[1:-1] = np.where(held & (begun == ended), before, at)
    return Segments(lanes.start_ns, lanes.end_ns, owner)
