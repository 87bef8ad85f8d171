"""Sum what the time of a device or host consists of: ops, kernels and calls by name.

Each event has a purpose, which is a category of work. An op that computes nothing has the purpose
of the work inside or around the op. For example, ``aten::to`` and ``aten::empty_strided`` have the
purpose of the cast that ``aten::copy_`` computes inside ``aten::to``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lstmprof.breakdown.attribution import LATENCY, TAIL, Intervals, attributed
from lstmprof.breakdown.attribution.host import computing
from lstmprof.breakdown.clean.recording import recorded
from lstmprof.breakdown.clean.script_waits import SCRIPT_WAITS
from lstmprof.diagnose.seen.calls import delays, starting
from lstmprof.diagnose.seen.contexts import INPUT, Attributed, Compiling, Preparing, Reading
from lstmprof.diagnose.seen.lane import Lane, called_after
from lstmprof.diagnose.seen.waits import stops_profiler
from lstmprof.events.annotate.calls import launch_calls
from lstmprof.events.annotate.steps import Window
from lstmprof.events.groups import Forest, Groups, inherited, own_time, texts_at
from lstmprof.events.intervals import Covered, Flags, Ints
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import NONE, UNKNOWN, EventTable

#: Longest time in ns of a tiny op, which computes next to nothing. Measured: 95 % of the ops of an
#: LSTMCell with 4 units take < 2.9 µs (EPYC).
TINY_OP_NS = 3_000
#: Longest duration in ns of a tiny kernel, which ends before the next launch. A launch takes 4.8 to
#: 6.6 µs (BERT, H100).
TINY_KERNEL_NS = 5_000

#: Smallest time in ns at which lstmprof assumes that an op without launches computes on the CPU:
#: ten times PyTorch's dispatch. Chosen by hand.
CPU_OP_NS = 100_000

#: Pattern of a PyTorch step's number; removing the number gives all steps one name.
_STEP = re.compile(r"(?<=ProfilerStep)#\d+$")

#: Name of the part of the breakdown in which the profiler itself works.
PROFILER = "profiler"


@dataclass(frozen=True)
class Contributor:
    """Time of the step in calls of one op, kernel or runtime function."""

    state: str
    part: str
    ns: int
    count: float = 0.0
    name: str | None = None  # None: time between ops
    purpose: str | None = None  # category of work that the calls serve
    family: str | None = None
    tiny: bool = False  # the calls compute next to nothing
    call_overhead: bool = False  # Python's time just before the calls
    compiling: bool = False
    starting: bool = False  # the calls initialise the runtime or load code
    reading: bool = False  # the host reads values one by one
    on_cpu: bool = False  # the ops compute while the device waits
    enqueues: bool = False
    recorded: float = 0.0  # events that the profiler recorded meanwhile
    slower: bool = False  # the calls take longer than as many in the fast run


def contributors(
    events: EventTable,
    windows: list[Window],
    rank: int | None,
    device: int | None,
    intervals: Intervals | None = None,
) -> list[Contributor]:
    """Sum the time of a device, or of a host, by op, kernel or call."""
    intervals = intervals or attributed(events, windows, rank)[device]
    pieces = _cut_by_purpose(events, windows, rank, device, intervals)
    purpose, tiny = _purposes(events)
    label = np.unique(np.stack([pieces.states, pieces.parts]), axis=1, return_inverse=True)[
        1
    ].reshape(-1)
    columns = [events.texts("name")[0], purpose, events.texts("family")[0], tiny.astype(np.int64)]
    columns = [np.where(pieces.row == NONE, NONE, column[pieces.row]) for column in columns]
    flags = (
        pieces.overhead,
        pieces.compiles,
        pieces.starts,
        pieces.reads,
        *_call_masks(events, pieces, device),
    )
    groups = Groups(label, *columns, *(flag.astype(np.int64) for flag in flags))
    first = groups.first
    calls = np.where(
        (pieces.overhead | (pieces.parts == LATENCY))[first], 0, _calls(groups, pieces.row)
    )
    names = [_STEP.sub("", name) for name in events.texts("name")[1]]
    texts = (names, *(events.texts(column)[1] for column in ("category", "family")))
    length_ns = pieces.intervals.end_ns - pieces.intervals.start_ns
    borders = recorded(events, pieces.intervals, own_ranges=False).borders
    values = (  # in the order of the fields of ``Contributor``
        pieces.states[first].tolist(),
        pieces.parts[first].tolist(),
        groups.sums(length_ns).tolist(),
        calls.tolist(),
        *(texts_at(v, c[first]).to_pylist() for v, c in zip(texts, columns[:3], strict=True)),
        (columns[3][first] == 1).tolist(),
        *(flag[first].tolist() for flag in flags),
        (groups.sums(borders) / 2).tolist(),
    )
    return [Contributor(*row) for row in zip(*values, strict=True)]


@dataclass(frozen=True)
class _Pieces:
    """Time intervals that each serve one purpose, such as input or compilation."""

    intervals: Intervals
    row: Ints
    states: NDArray[np.str_]
    parts: NDArray[np.str_]
    overhead: Flags
    compiles: Flags
    starts: Flags
    reads: Flags


def _cut_by_purpose(
    events: EventTable,
    windows: list[Window],
    rank: int | None,
    device: int | None,
    intervals: Intervals,
) -> _Pieces:
    """Cut intervals where input, compiling or the reading of values begins or ends."""
    preparing, compiling = Preparing(events, windows, rank), Compiling(events, rank)
    reading = Reading(events, windows if device is None else [])
    borders = [context.borders_ns for context in (preparing, compiling, reading)]
    intervals = intervals.cut_at(np.concatenate(borders))
    called = called_after(events, intervals, device)
    overhead = called != NONE
    row = np.where(overhead, called, intervals.row)
    states, parts = _labels(intervals)
    pieces = Attributed(intervals, row, device, states == "idle", parts == "transfer")
    states = np.where(preparing.holds(pieces), INPUT, states)
    compiles, row = compiling.holds(pieces)
    lane = Lane(events, windows, device, intervals)
    starts = _are(starting(lane), row) & ((parts != LATENCY) | _are(delays(lane), row))
    parts = np.where(_are(stops_profiler(lane), row), PROFILER, parts)
    reads = reading.holds(pieces)
    waits = parts == SCRIPT_WAITS
    parts = np.where(waits & (states == INPUT), "python", parts)
    row = np.where(waits & (states != INPUT), NONE, row)
    return _Pieces(intervals, row, states, parts, overhead, compiles, starts, reads)


def _are(rows: Flags, row: Ints) -> Flags:
    """Look up ``rows[row]`` for each interval, and False for the row ``NONE``."""
    none = np.zeros(len(row), dtype=np.bool_)
    return np.asarray((row != NONE) & rows[row], np.bool_) if len(rows) else none


def _labels(intervals: Intervals) -> tuple[np.ndarray, np.ndarray]:
    """Return each interval's state and part: ``("idle", "dispatch")``."""
    states = np.array([state for state, _ in intervals.labels], dtype=object)
    # remove ``tail:``, which marks idle time at the end of a step
    parts = np.array([part.removeprefix(TAIL) for _, part in intervals.labels], dtype=object)
    return states[intervals.label].astype(str), parts[intervals.label].astype(str)


def _purposes(events: EventTable) -> tuple[Ints, Flags]:
    """Return each event's purpose (a category of work), and mark tiny events."""
    category, names = events.texts("category")
    parent = events.rows_named("parent_id")
    is_op, computes = events.is_kind("op"), computing(events)
    decides = np.where(computes | ~is_op, category, NONE)
    forest = Forest(parent)
    work = forest.beneath(computes.astype(np.int64))
    for code in range(len(names)):
        beneath = forest.beneath((computes & (category == code)).astype(np.int64))
        decides[is_op & ~computes & (work > 0) & (beneath == work)] = code
    several = is_op & ~computes & (work > 0) & (decides == NONE)
    deciders = np.where(is_op & ((decides != NONE) | several), np.arange(len(events)), NONE)
    decider = inherited(parent, deciders)
    serves = np.where(decider != NONE, decides[decider], decides)
    dur = events.dur_ns
    spent = np.where(computes, own_time(events), dur)
    short_op = spent[decider] <= TINY_OP_NS
    short_kernel = events.is_kind(*ACTIVITY_KINDS) & (dur <= TINY_KERNEL_NS)
    return serves, np.where(is_op, short_op & (decider != NONE), short_kernel)


def _call_masks(events: EventTable, pieces: _Pieces, device: int | None) -> tuple[Flags, Flags]:
    """Mark intervals in ops that compute on the CPU, and in calls that enqueue work."""
    enqueues = np.zeros(len(events), dtype=np.bool_)
    enqueues[launch_calls(events)] = True
    runtime = events.is_kind("runtime")
    on_cpu = np.zeros(len(events), dtype=np.bool_)
    if device is not None and runtime.any():
        reaches = runtime.copy()
        issuers = events.rows_named("op_id")
        reaches[issuers[issuers != NONE]] = True
        alone = Forest(events.rows_named("parent_id")).beneath(reaches.astype(np.int64)) == 0
        computes = events.is_kind("op") & events.column("category").is_valid().to_numpy()
        computes &= ~events.is_one_of("category", "other", "collective")
        on_cpu = computes & alone & (own_time(events) >= CPU_OP_NS)
    here = pieces.row != NONE
    dispatch, calls = here & (pieces.parts == "dispatch"), here & (pieces.parts == "runtime")
    return dispatch & on_cpu[pieces.row], calls & enqueues[pieces.row]


def _calls(groups: Groups, row: Ints) -> Ints:
    """Count the distinct events of each group."""
    pairs = np.unique(np.stack([groups.of, row]), axis=1)
    counted = pairs[0][pairs[1] != NONE]
    return np.bincount(counted, minlength=groups.count).astype(np.int64)


#: Causes of idle time while the host's thread runs no runtime call.
_BETWEEN_CALLS = ("dispatch", "python", "host")


def lost_overhead_ns(
    events: EventTable, windows: Sequence[Window], rank: int | None, intervals: Intervals
) -> int:
    """Return the idle time per step that the profiler itself may cause."""
    rows = events.rows_of_rank(rank)
    # choose CUPTI's overhead, which may count as an op's time because Kineto records no thread
    lost = events.is_kind("overhead") & (events.ints("tid", UNKNOWN) == UNKNOWN)
    rows = rows[lost[rows]]
    if not len(rows) or not windows:
        return 0
    waits = [s == "idle" and p.removeprefix(TAIL) in _BETWEEN_CALLS for s, p in intervals.labels]
    chosen = np.array(waits, dtype=np.bool_)[intervals.label]
    covered = Covered(events.start_ns[rows], events.end_ns[rows])
    beside = covered.within(intervals.start_ns[chosen], intervals.end_ns[chosen])
    return round(int(beside.sum()) / len(windows))
