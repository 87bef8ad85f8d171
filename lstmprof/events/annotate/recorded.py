"""What of a rank a profile holds: counts, from which follows what it lacks.

Reads annotated events. Counted once, when a run is written: of ten million events too, and what is
told of a run later needs no look at them.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np

from lstmprof.events.annotate.calls import is_kernel_launch
from lstmprof.events.groups import numbered
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.processes import in_turn
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import NONE, UNKNOWN, EventTable
from lstmprof.events.threads import thread_ids

#: Times of profilers are rounded to the microsecond at most: what overlaps by less may touch.
ROUNDED_NS = 1000
#: Runtime calls that hand work to a device: CUDA's and HIP's, and those of other accelerators
#: (MTIA: ``enqueueCommand memcpyHtoDAsync``).
_HANDS_OVER = re.compile(r"(?i)launch|memcpy|memset|enqueue|submit")
#: Ops and ranges of libraries that run on GPUs alone, as the libraries and frameworks call them: no
#: question that is asked on a CPU too (``_use_cudnn_ctc_loss``), nothing that a person called so.
_OF_GPU = re.compile(
    r"(?:aten::|.*:)?_?(?:cudnn|miopen)_(?!is_acceptable)\w*|(?:.*[:/])?Cudnn[A-Z]\w*"
    r"|(?:nccl|rccl|cudnn):\S.*|(?:nccl|rccl|cublas|cudnn)[A-Z]\w*"
)
_CAPTURE_BEGINS, _CAPTURE_ENDS = "StreamBeginCapture", "StreamEndCapture"


@dataclass(frozen=True)
class Recorded:
    """Counts of the events of one rank.

    - ``ops_in_steps`` began in a marked step. ``ranges`` are the host's, ``device_ranges`` a
      device's: copies of those, or hardware counters. ``gpu_ops`` are ops and ranges of libraries
      that run on GPUs alone.
    - ``handed_over`` are runtime calls that gave a device work, ``kernel_launches`` those that
      launch kernels or graphs; while a stream is captured a launch runs nothing, and is none.
    - Of ``activities``, in all ``activity_ns`` long, ``unlaunched`` have no launch here; of these
      ``launched_before`` began before any of their stream that has one.
    - ``lost`` are launches without an activity: ``lost_first`` of them before any that has one, in
      ``lost_first_ns``, and ``lost_last`` after all that have one, in ``lost_last_ns``.
    - ``overlaps`` are activities that began while another of their stream ran, ``overlap_ns`` the
      time for which both did; the branches of a graph are none.
    - ``bare_steps`` are marked steps without an activity, where another has one.
    """

    rank: int | None = None
    length_ns: int = 0
    steps: int = 0
    first_step: int | None = None
    last_step: int | None = None
    ops: int = 0
    ops_in_steps: int = 0
    ranges: int = 0
    device_ranges: int = 0
    python_frames: int = 0
    runtime_calls: int = 0
    handed_over: int = 0
    kernel_launches: int = 0
    gpu_ops: int = 0
    activities: int = 0
    kernels: int = 0
    activity_ns: int = 0
    unlaunched: int = 0
    launched_before: int = 0
    lost: int = 0
    lost_first: int = 0
    lost_first_ns: int = 0
    lost_last: int = 0
    lost_last_ns: int = 0
    overlaps: int = 0
    overlap_ns: int = 0
    bare_steps: int = 0
    first_bare: int | None = None

    @property
    def host_events(self) -> int:
        """Ops, ranges, steps and Python frames: what the host says of the program."""
        return self.ops + self.ranges + self.steps + self.python_frames


def recorded(events: EventTable) -> tuple[Recorded, ...]:
    """The counts of each rank of annotated ``events``."""
    everything = _of_events(events)
    ranks = events.ranks()
    parts = [in_turn(events, events.of_rank(rank)) for rank in ranks]
    whole = len(ranks) == 1 and len(parts[0]) == 1
    return tuple(
        _of_rank(rank, [everything] if whole else [everything.only(rows) for rows in of_rank])
        for rank, of_rank in zip(ranks, parts, strict=True)
    )


@dataclass(frozen=True)
class _Columns:
    """Columns of some events; ``launch`` is the row (of all) of an activity's launch."""

    row: Ints
    start: Ints
    dur: Ints
    thread: Ints
    place: Ints  # the stream of an activity, −1 where it is not known
    launch: Ints
    step: Ints
    flags: dict[str, Flags]

    def only(self, rows: Ints | None) -> _Columns:
        """Those of these rows, all where None."""
        if rows is None:
            return self
        return _Columns(
            row=self.row[rows],
            start=self.start[rows],
            dur=self.dur[rows],
            thread=self.thread[rows],
            place=self.place[rows],
            launch=self.launch[rows],
            step=self.step[rows],
            flags={name: flag[rows] for name, flag in self.flags.items()},
        )

    def where(self, name: str) -> Ints:
        """The places at which the flag ``name`` is set."""
        return np.flatnonzero(self.flags[name])

    def count(self, name: str) -> int:
        """How often the flag ``name`` is set."""
        return int(np.count_nonzero(self.flags[name]))


def _of_events(events: EventTable) -> _Columns:
    activity = events.is_kind(*ACTIVITY_KINDS)
    runtime = events.is_kind("runtime")
    within = events.rows_named("parent_id")
    calls = runtime & ~(runtime[within] & (within != NONE))  # not a driver call inside another
    on_host = thread_ids(events)
    ranges = events.is_kind("range") & (on_host != NONE)
    captures = events.where_name(lambda name: _CAPTURE_BEGINS in name)
    return _Columns(
        row=np.arange(len(events)),
        start=events.start_ns,
        dur=events.dur_ns,
        thread=on_host,
        place=_streams(events, activity),
        launch=np.where(activity, events.rows_named("launch_id"), NONE),
        step=events.ints("step", UNKNOWN),
        flags={
            "op": events.is_kind("op"),
            "range": ranges,
            "device range": events.is_kind("range") & ~ranges,
            "python": events.is_kind("python"),
            "runtime": runtime,
            "handed over": calls & events.where_name(_HANDS_OVER.search),
            "kernel launch": calls & events.where_name(is_kernel_launch),
            "of gpu": (events.is_kind("op") | ranges) & events.where_name(_OF_GPU.fullmatch),
            "activity": activity,
            "kernel": events.is_kind("kernel"),
            "capture": runtime & captures,
            "captured": runtime & events.where_name(lambda name: _CAPTURE_ENDS in name),
        },
    )


def _streams(events: EventTable, activity: Flags) -> Ints:
    """The number of each activity's stream, by device and rank; −1 where it is not known."""
    rows = np.flatnonzero(activity & events.column("stream").is_valid().to_numpy())
    streams = np.full(len(events), NONE, dtype=np.int64)
    if len(rows):
        names = (events.ints(name, UNKNOWN)[rows] for name in ("rank", "device", "stream"))
        streams[rows] = numbered(*names)
    return streams


def _of_rank(rank: int | None, turns: list[_Columns]) -> Recorded:
    """The counts of ``rank``; ``turns`` are the events of each process that ran by itself."""
    counts: Counter[str] = Counter()
    for of in turns:
        counts.update(_counted(of))
    steps = np.unique(np.concatenate([of.step[of.step != UNKNOWN] for of in turns]))
    busy_steps = np.unique(np.concatenate([of.step[of.where("activity")] for of in turns]))
    bare = np.setdiff1d(steps, busy_steps) if np.isin(busy_steps, steps).any() else steps[:0]
    return Recorded(
        rank=rank,
        steps=len(steps),
        first_step=int(steps[0]) if len(steps) else None,
        last_step=int(steps[-1]) if len(steps) else None,
        bare_steps=len(bare),
        first_bare=int(bare[0]) if len(bare) else None,
        **counts,
    )


def _counted(of: _Columns) -> dict[str, int]:
    """What is counted in each process, and summed."""
    activities = of.where("activity")
    overlaps, overlap_ns = _overlaps(of, activities)
    return {
        "length_ns": int((of.start + of.dur).max() - of.start.min()) if len(of.start) else 0,
        "ops": of.count("op"),
        "ops_in_steps": int(np.count_nonzero(of.step[of.where("op")] != UNKNOWN)),
        "ranges": of.count("range"),
        "device_ranges": of.count("device range"),
        "python_frames": of.count("python"),
        "runtime_calls": of.count("runtime"),
        "handed_over": of.count("handed over"),
        "gpu_ops": of.count("of gpu"),
        "activities": len(activities),
        "kernels": of.count("kernel"),
        "activity_ns": int(of.dur[activities].sum()),
        "unlaunched": int(np.count_nonzero(of.launch[activities] == NONE)),
        "launched_before": _launched_before(of, activities),
        **_lost(of, activities),
        "overlaps": overlaps,
        "overlap_ns": overlap_ns,
    }


def _launched_before(of: _Columns, activities: Ints) -> int:
    """Activities without a launch that began before any of their stream that has one."""
    place, start = of.place[activities] + 1, of.start[activities]
    without = of.launch[activities] == NONE
    if not without.any() or without.all():
        return 0
    first = np.full(int(place.max(initial=0)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, place[~without], start[~without])
    return int(np.count_nonzero(without & (start < first[place])))


def _lost(of: _Columns, activities: Ints) -> dict[str, int]:
    """How many kernel launches there are, and how many have no activity, and where these are."""
    launches = of.where("kernel launch")
    answered = np.isin(of.row[launches], of.launch[activities])
    lost = launches[~answered]
    lost = lost[~_captured(of, lost)]
    counts = {"kernel_launches": len(lost) + int(answered.sum()), "lost": len(lost)}
    if not len(lost) or not answered.any():
        return counts
    start, lost_ns = of.start[launches[answered]], of.start[lost]
    first, last = lost_ns < start.min(), lost_ns > start.max()
    end = (of.start + of.dur)[lost]
    return {
        **counts,
        "lost_first": int(first.sum()),
        "lost_first_ns": int(start.min() - lost_ns.min()) if first.any() else 0,
        "lost_last": int(last.sum()),
        "lost_last_ns": int(end.max() - lost_ns[last].min()) if last.any() else 0,
    }


def _captured(of: _Columns, rows: Ints) -> Flags:
    """Which of ``rows`` are calls while their thread captured a stream into a graph."""
    inside = np.zeros(len(rows), dtype=np.bool_)
    begins, ends = of.where("capture"), of.where("captured")
    for thread in np.unique(of.thread[begins]):
        members = of.thread[rows] == thread
        at_ns = of.start[rows[members]]
        opened, closed = (
            np.searchsorted(np.sort(of.start[calls[of.thread[calls] == thread]]), at_ns)
            for calls in (begins, ends)
        )
        inside[members] = opened > closed
    return inside


def _overlaps(of: _Columns, activities: Ints) -> tuple[int, int]:
    """How many activities overlap one that began before on their stream, and for how long."""
    rows = activities[of.place[activities] != NONE]
    rows = rows[np.lexsort((of.start[rows], of.place[rows]))]
    place, start, end = of.place[rows], of.start[rows], (of.start + of.dur)[rows]
    same = place[1:] == place[:-1]
    if not (same & (start[1:] < end[:-1])).any():  # each begins after the one before
        return 0, 0
    longest = _reached(place, end)[:-1]
    shared = np.minimum(end[longest], end[1:]) - start[1:]
    hits = np.flatnonzero(same & (shared > ROUNDED_NS))
    hits = hits[~_of_graph(of, rows[hits + 1], activities)]
    return len(hits), int(shared[hits].sum())


def _reached(place: Ints, end: Ints) -> Ints:
    """For each row of sorted ``place`` the one that ends last on it, up to this row."""
    by_end = np.argsort(end, kind="stable")
    rank = np.empty(len(end), dtype=np.int64)
    rank[by_end] = np.arange(len(end))
    return np.asarray(by_end[np.maximum.accumulate(place * len(end) + rank) % len(end)])


def _of_graph(of: _Columns, rows: Ints, activities: Ints) -> Flags:
    """Which of ``rows`` are of a call that enqueued several: a graph's branches may overlap."""
    if not len(rows):
        return np.zeros(0, dtype=np.bool_)
    calls, counts = np.unique(of.launch[activities], return_counts=True)
    several = calls[(counts > 1) & (calls != NONE)]
    return np.asarray(np.isin(of.launch[rows], several), dtype=np.bool_)
