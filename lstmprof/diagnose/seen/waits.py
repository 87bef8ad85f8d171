"""The waits of a device or host: gaps, blocking calls, queued work, allocations."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from lstmprof.breakdown.attribution import QUEUED
from lstmprof.diagnose.seen.lane import Fact, Lane, median
from lstmprof.events.annotate.calls import direction, is_kernel_launch, launch_calls
from lstmprof.events.groups import Forest
from lstmprof.events.intervals import Covered, Flags, Ints
from lstmprof.events.table import NONE, UNKNOWN, EventTable
from lstmprof.events.threads import STATES, VALUE_READS, state_codes, thread_ids

#: Multiple of the median above which a gap is unusual.
UNUSUAL = 10
#: Smallest number of launches, and smallest share of blocking launches, at which lstmprof assumes
#: CUDA_LAUNCH_BLOCKING=1. Chosen by hand.
_LEAST_LAUNCHES, _NEARLY_ALL = 10, 0.95
_STREAM_WAIT = re.compile(r"Stream.*Wait|Wait.*Stream")
_EVENT_WAIT = re.compile(r"StreamWait(?:Event|Value)")
_BEGIN_CAPTURE, _END_CAPTURE = (re.compile(f"Stream{which}Capture") for which in ("Begin", "End"))
_WHOLE_DEVICE = re.compile(r"(?:Device|Ctx|Context)Synchronize$")
_SYNCHRONISES = re.compile(r"(?i)synchroni[sz]e")
_HOST_FUNCTION = re.compile(r"LaunchHostFunc|StreamAddCallback")
#: Pattern of PyTorch's ops that copy a tensor, and bytes of the largest single value (complex128).
_COPIES, _VALUE_BYTES = re.compile(r"aten::(?:copy_|_to_copy|to)"), 16


@dataclass(frozen=True)
class Gaps:
    """The idle time (gaps) before a device's kernels."""

    kernels: float  # per step
    kernel_ns: int  # median
    gap_ns: int  # median
    usual_ns: int  # sum per step, without unusually long gaps
    all_ns: int  # sum per step


def gaps(lane: Lane) -> Gaps | None:
    """Measure the idle time before a device's kernels, without each step's start."""
    rows = np.flatnonzero(lane.activity & (lane.events.dur_ns > 0))
    rows = rows[np.lexsort((lane.events.end_ns[rows], lane.events.start_ns[rows]))]
    kernel = lane.events.is_kind("kernel")[rows]
    if lane.device is None or not kernel[1:].any():
        return None
    reached = np.maximum.accumulate(lane.events.end_ns[rows])
    gap = np.maximum(lane.events.start_ns[rows][1:] - reached[:-1], 0)
    inside = lane.step[rows][1:] == lane.step[rows][:-1] if lane.marked else True
    gap = gap[kernel[1:] & inside]
    if not len(gap):
        return None
    middle = median(gap)
    return Gaps(
        kernels=int(kernel.sum()) / lane.steps,
        kernel_ns=median(lane.events.dur_ns[rows][kernel]),
        gap_ns=middle,
        usual_ns=round(int(gap[gap <= UNUSUAL * middle].sum()) / lane.steps),
        all_ns=round(int(gap.sum()) / lane.steps),
    )


def blocking_launches(lane: Lane) -> float:
    """Count the launches per step if nearly all block (CUDA_LAUNCH_BLOCKING), else 0."""
    events = lane.events
    kernels = np.flatnonzero(lane.activity & events.is_kind("kernel"))
    launch = events.rows_named("launch_id")[kernels]
    kernels, launch = kernels[launch != NONE], launch[launch != NONE]
    # exclude kernels that seem to begin before their launch, because the clocks differ
    in_order = events.start_ns[kernels] >= events.start_ns[launch]
    waited = in_order & (events.end_ns[kernels] <= events.end_ns[launch])
    few = len(kernels) < _LEAST_LAUNCHES or waited.sum() < _NEARLY_ALL * len(kernels)
    return 0.0 if few else len(kernels) / lane.steps


def blocking_calls(lane: Lane) -> tuple[Fact, ...]:
    """Return the calls that block the host, with the waiting time."""
    sync = state_codes(lane.events) == STATES.index("sync")
    rows = np.flatnonzero(lane.calls() & sync & (lane.spent_ns > 0) & ~stops_profiler(lane))
    around = lane.around(rows)
    return lane.by_name(rows, lane.spent_ns, np.where(around != NONE, around, lane.parent[rows]))


def read(lane: Lane) -> tuple[Fact, ...]:
    """Return the ops in which the host waits for a value from the device."""
    events, forest = lane.events, Forest(lane.parent)
    sync = events.is_kind("runtime") & (state_codes(events) == STATES.index("sync"))
    blocks = forest.beneath(sync.astype(np.int64)) > 0
    ops = lane.here & events.is_kind("op")
    asks = ops & events.is_one_of("name", *VALUE_READS)
    # include copies of a single value to the host (``.cpu()``)
    moved = events.ints("bytes", UNKNOWN)
    values = lane.rank & events.is_kind("memcpy") & (moved >= 0) & (moved <= _VALUE_BYTES)
    values &= events.where_name(lambda name: direction(name) == "DtoH")
    issued = np.zeros(len(events), dtype=np.int64)
    launch = events.rows_named("launch_id")[values]
    issued[launch[launch != NONE]] = 1
    copies = ops & events.where_name(_COPIES.fullmatch) & (forest.beneath(issued) > 0)
    return lane.spent_in((asks | copies) & blocks)


def stops_profiler(lane: Lane) -> Flags:
    """Mark the synchronisation with which PyTorch's profiler ends the profile."""
    events = lane.events
    calls = lane.rank & events.is_kind("runtime")
    ops = lane.rank & events.is_kind("op")
    last = np.flatnonzero(calls & events.where_name(_WHOLE_DEVICE.search))
    stops = np.zeros(len(events), dtype=np.bool_)
    if len(last) and ops.any():
        row = last[np.argmax(events.start_ns[last])]
        above = lane.parent[row]
        by_user = above != NONE and _SYNCHRONISES.search(str(lane.text(int(above)))) is not None
        others = calls | ops
        others[row] = False
        ended = events.end_ns[others].max(initial=np.iinfo(np.int64).min)
        stops[row] = not by_user and bool(ended <= events.start_ns[row])
    return stops


def queued(lane: Lane) -> tuple[Fact, ...]:
    """Return the kernels and copies that a wait in their stream delayed, and that wait."""
    spent_ns = lane.idle_ns(QUEUED)
    rows = np.flatnonzero(spent_ns)
    launch = lane.events.rows_named("launch_id")[rows]
    cause = np.where(launch != NONE, _calls_before(lane, launch), NONE)
    since = np.full(len(spent_ns), np.iinfo(np.int64).max, dtype=np.int64)
    intervals = lane.intervals
    np.minimum.at(since, intervals.row, intervals.start_ns)
    recorded = _recorded_waits(lane, rows, since[rows])
    cause = np.where(recorded != NONE, recorded, cause)
    has_cause = cause != NONE
    return lane.by_name(rows[has_cause], spent_ns, cause[has_cause])


def run_dry(lane: Lane) -> tuple[Fact, ...]:
    """Return blocking calls during which a device stayed idle although work was queued."""
    of = lane.intervals.by_time()
    labels = np.array([label == ("idle", QUEUED) for label in of.labels], dtype=np.bool_)
    idle = np.array([state == "idle" for state, _ in of.labels], dtype=np.bool_)
    queued = labels[of.label]
    before = np.maximum.accumulate(np.where(queued, NONE, np.arange(len(queued))))
    dry = queued & (before != NONE) & idle[of.label[before]] & (of.window[before] == of.window)
    late = Covered(of.start_ns[dry], of.end_ns[dry])
    events = lane.events
    rows = np.flatnonzero(lane.calls() & (state_codes(events) == STATES.index("sync")))
    waited_ns = np.zeros(len(events), dtype=np.int64)
    waited_ns[rows] = late.within(events.start_ns[rows], events.end_ns[rows])
    rows = rows[waited_ns[rows] > 0]
    return lane.by_name(rows, waited_ns, lane.around(rows))


def _calls_before(lane: Lane, launch: Ints) -> Ints:
    """Return the call that enqueued a wait just before each launch, or ``NONE``."""
    events = lane.events
    records = lane.rank & events.where_name(lambda name: "EventRecord" in name)
    # exclude waits before the profile's first EventRecord, which wait for earlier work
    first_ns = events.start_ns[records].min(initial=np.iinfo(np.int64).max)
    waits = events.where_name(_EVENT_WAIT.search) & (events.start_ns > first_ns)
    waits |= events.where_name(_HOST_FUNCTION.search)
    enqueues = np.zeros(len(events), dtype=np.bool_)
    launches = events.rows_named("launch_id")
    enqueues[launches[launches != NONE]] = True
    rows = np.flatnonzero(lane.rank & events.is_kind("runtime") & (waits | enqueues))
    thread = thread_ids(events)[rows]
    rows = rows[np.lexsort((events.start_ns[rows], thread))]
    before = np.full(len(events), NONE, dtype=np.int64)
    same = thread_ids(events)[rows[1:]] == thread_ids(events)[rows[:-1]]
    waiting = same & waits[rows[:-1]]
    before[rows[1:][waiting]] = rows[:-1][waiting]
    return before[launch]


def _recorded_waits(lane: Lane, rows: Ints, since_ns: Ints) -> Ints:
    """Return the recorded wait in its stream that delayed each activity, or ``NONE``."""
    events = lane.events
    waits = np.flatnonzero(
        lane.rank & events.is_kind("device_sync") & events.where_name(_STREAM_WAIT.search)
    )
    stream = events.ints("stream", UNKNOWN)
    waits_ended = np.full(len(rows), NONE, dtype=np.int64)
    for number in np.unique(stream[waits]).tolist():
        ended = waits[stream[waits] == number]
        ended = ended[np.argsort(events.end_ns[ended], kind="stable")]
        places = np.flatnonzero(stream[rows] == number)
        last = np.searchsorted(events.end_ns[ended], events.start_ns[rows[places]], "right") - 1
        # a wait delays an activity only if the wait ends in the idle time from ``since_ns``
        during = (last >= 0) & (events.end_ns[ended[last]] > since_ns[places])
        waits_ended[places[during]] = ended[last[during]]
    return waits_ended


def later_allocs(lane: Lane) -> tuple[Fact, ...]:
    """Return the calls that allocate or free memory after the first step of their process."""
    events = lane.events
    rows = np.flatnonzero(lane.calls() & (state_codes(events) == STATES.index("alloc")))
    if lane.marked:
        first = lane.least_of_each(lane.step, np.flatnonzero(lane.here & (lane.step >= 0)))
        rows = rows[lane.step[rows] > first[lane.turn[rows]]]
    else:
        # ignore warm-up (the first half) and the program's end if there are no step markers
        begun = np.sort(events.start_ns[lane.activity])
        middle = begun[len(begun) // 2] if len(begun) else np.iinfo(np.int64).max
        last = events.end_ns[lane.activity].max(initial=0)
        rows = rows[(events.start_ns[rows] > middle) & (events.start_ns[rows] < last)]
    return lane.by_name(rows, lane.spent_ns)


def graph(lane: Lane) -> bool:
    """Return whether CUDA graphs ran."""
    replayed = lane.events.column("graph_node_id").is_valid().to_numpy() & lane.activity
    launched = lane.calls() & lane.events.where_name(lambda name: "GraphLaunch" in name)
    return bool(replayed.any() or launched.any())


def captured(lane: Lane) -> float:
    """Count the launches per step that only recorded a kernel into a graph."""
    events, thread = lane.events, thread_ids(lane.events)
    calls = launch_calls(events)
    launched = events.rows_named("launch_id")
    calls = calls[lane.here[calls] & ~np.isin(calls, launched)]
    calls = calls[events.where_name(is_kernel_launch)[calls]]
    inside = np.zeros(len(calls), dtype=np.bool_)
    begins, ends_ns = captures(events)
    for begin, end_ns in zip(begins.tolist(), ends_ns.tolist(), strict=True):
        start = events.start_ns[calls]
        later = (start > events.start_ns[begin]) & (start < end_ns)
        inside |= later & (thread[calls] == thread[begin])
    return int(inside.sum()) / lane.steps


def captures(events: EventTable) -> tuple[Ints, Ints]:
    """Return the calls that begin graph captures, and the times at which the captures end."""
    calls, thread = events.is_kind("runtime"), thread_ids(events)
    begins, ends = (
        np.flatnonzero(calls & events.where_name(pattern.search))
        for pattern in (_BEGIN_CAPTURE, _END_CAPTURE)
    )
    # let a capture without an end last until the end of the profile
    until_ns = np.full(len(begins), events.end_ns.max(initial=0), dtype=np.int64)
    for place, begin in enumerate(begins.tolist()):
        after = ends[thread[ends] == thread[begin]]
        after = after[events.start_ns[after] > events.start_ns[begin]]
        until_ns[place] = events.end_ns[after].min(initial=until_ns[place])
    return begins, until_ns
