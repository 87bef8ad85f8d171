"""What is counted of the events of one process, in one table or part by part in the order of time.

What begins together is in one part. A launch and its activity, or a call and what it calls, may be
in two: the rows of all answered launches are known before, and calls that still run are carried on.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np

from lstmprof.events.annotate.calls import Answers, is_kernel_launch
from lstmprof.events.groups import Groups
from lstmprof.events.intervals import Flags, Ints
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
#: The columns that are counted from.
COUNTED = (
    *("event_id", "kind", "name", "start_ns", "dur_ns", "rank", "pid", "tid", "device", "stream"),
    *("parent_id", "launch_id", "step"),
)


@dataclass(frozen=True)
class Columns:
    """Columns of some events; ``row`` and ``launch``, an activity's, are rows of all.

    ``thread`` is a host thread's number, ``place`` a stream's, −1 where it is none or not known.
    """

    row: Ints
    start: Ints
    dur: Ints
    thread: Ints
    place: Ints
    launch: Ints
    step: Ints
    flags: dict[str, Flags]

    def only(self, rows: Ints) -> Columns:
        """Those of these rows."""
        return Columns(
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


class _Numbers:
    """Numbers of things in the order in which they come, the same in every part."""

    def __init__(self) -> None:
        self._of: dict[tuple[int, ...], int] = {}

    def of(self, *keys: Ints) -> Ints:
        """The number of what has these keys."""
        groups = Groups(*keys)
        things = zip(*(key[groups.first].tolist() for key in keys), strict=True)
        numbers = [self._of.setdefault(thing, len(self._of)) for thing in things]
        return np.array(numbers, dtype=np.int64)[groups.of]


class Reading:
    """Reads ``Columns`` of the parts of one table, in their order."""

    def __init__(self) -> None:
        self._threads, self._places = _Numbers(), _Numbers()
        self._running: Ints = np.empty(0, dtype=np.int64)

    def columns(self, events: EventTable) -> Columns:
        """Those of the next part."""
        activity = events.is_kind(*ACTIVITY_KINDS)
        runtime = events.is_kind("runtime")
        calls = runtime & ~self._within_runtime(events, runtime)  # no driver call inside another
        ranges = events.is_kind("range") & (thread_ids(events) != NONE)
        captures = events.where_name(lambda name: _CAPTURE_BEGINS in name)
        return Columns(
            row=np.arange(events.first_row, events.first_row + len(events)),
            start=events.start_ns,
            dur=events.dur_ns,
            thread=self._numbered(
                self._threads, events, np.flatnonzero(thread_ids(events) != NONE), "pid", "tid"
            ),
            place=self._numbered(
                self._places,
                events,
                np.flatnonzero(activity & events.column("stream").is_valid().to_numpy()),
                *("device", "stream"),
            ),
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

    def _within_runtime(self, events: EventTable, runtime: Flags) -> Flags:
        """Which events are inside a runtime call, of this part or one before."""
        parent = events.rows_named("parent_id")
        local = parent - events.first_row
        here = (parent != NONE) & (local >= 0)
        within = np.where(here, runtime[np.where(here, local, 0)], np.isin(parent, self._running))
        calls = np.flatnonzero(runtime & (events.end_ns >= events.start_ns.max(initial=0)))
        self._running = np.append(self._running, calls + events.first_row)
        return np.asarray(within, dtype=np.bool_)

    @staticmethod
    def _numbered(numbers: _Numbers, events: EventTable, rows: Ints, *columns: str) -> Ints:
        """The number of what each of ``rows`` is of, by rank and these columns; else ``NONE``."""
        of = np.full(len(events), NONE, dtype=np.int64)
        of[rows] = numbers.of(*(events.ints(name, UNKNOWN)[rows] for name in ("rank", *columns)))
        return of


class Tally:
    """Counts of one process, whose activities ``answers`` knows; parts are added in order."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._sums: Counter[str] = Counter()
        self._first_ns, self._end_ns = np.iinfo(np.int64).max, UNKNOWN
        self.steps = self.busy_steps = np.empty(0, dtype=np.int64)
        self._launched: set[int] = set()  # streams, by their number and 1
        self._lost = _Lost()
        self._overlaps = _Overlaps()

    def add(self, of: Columns) -> None:
        """Count the events of the next part."""
        if not len(of.row):
            return
        activities = of.where("activity")
        self._first_ns = min(self._first_ns, int(of.start.min()))
        self._end_ns = max(self._end_ns, int((of.start + of.dur).max()))
        self._sums.update(
            {
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
            }
        )
        self.steps = np.union1d(self.steps, of.step[of.step != UNKNOWN])
        self.busy_steps = np.union1d(self.busy_steps, of.step[activities])
        self._add_unlaunched(of, activities)
        self._lost.add(of, self._answers)
        self._overlaps.add(of, activities, self._answers)

    def _add_unlaunched(self, of: Columns, activities: Ints) -> None:
        """Count activities without a launch that began before any of their stream that has one."""
        place, start = of.place[activities] + 1, of.start[activities]
        without = of.launch[activities] == NONE
        first = np.full(int(place.max(initial=0)) + 1, np.iinfo(np.int64).max)
        first[[p for p in self._launched if p < len(first)]] = UNKNOWN
        np.minimum.at(first, place[~without], start[~without])
        self._sums["launched_before"] += int(np.count_nonzero(without & (start < first[place])))
        self._launched.update(np.unique(place[~without]).tolist())

    def counts(self) -> dict[str, int]:
        """The counts, by the names of ``Recorded``."""
        sums = dict(self._sums)
        if sums.get("unlaunched", 0) == sums.get("activities", 0):
            sums["launched_before"] = 0
        length_ns = max(0, self._end_ns - self._first_ns) if self._sums else 0
        return {**sums, "length_ns": length_ns, **self._lost.counts(), **self._overlaps.counts()}


class _Lost:
    """Kernel launches, those that have no activity, and where these are."""

    def __init__(self) -> None:
        self._launches = self._count = 0
        self._answered: tuple[int, int] | None = None  # when the first and the last one began
        self._first = self._last = _NO_STARTS
        self._end_ns = UNKNOWN
        self._captures: Counter[tuple[str, int]] = Counter()  # calls, by what they do and thread

    def add(self, of: Columns, answers: Answers) -> None:
        """Count those of the next part."""
        launches = of.where("kernel launch")
        answered = answers.any(of.row[launches])
        lost = launches[~answered]
        lost = lost[~self._captured(of, lost)]
        self._launches += len(lost) + int(answered.sum())
        self._count += len(lost)
        self._place(of.start[lost], of.start[launches[answered]])
        self._end_ns = max(self._end_ns, int((of.start + of.dur)[lost].max(initial=UNKNOWN)))

    def _place(self, lost_ns: Ints, answered_ns: Ints) -> None:
        """Note which come before the first that is answered, and which after the last."""
        if len(answered_ns):
            last = int(answered_ns.max())
            first = self._answered[0] if self._answered else int(answered_ns.min())
            self._answered = (first, last)
            self._last = _Starts.of(lost_ns[lost_ns > last])
        else:
            self._last += _Starts.of(lost_ns)
        limit = self._answered[0] if self._answered else np.iinfo(np.int64).max
        self._first += _Starts.of(lost_ns[lost_ns < limit])

    def _captured(self, of: Columns, rows: Ints) -> Flags:
        """Which of ``rows`` are calls while their thread captured a stream into a graph."""
        inside = np.zeros(len(rows), dtype=np.bool_)
        calls = {name: of.where(name) for name in ("capture", "captured")}
        threads = {thread for _, thread in self._captures}
        for thread in sorted(threads.union(*(of.thread[c].tolist() for c in calls.values()))):
            members = of.thread[rows] == thread
            at_ns = of.start[rows[members]]
            opened, closed = (
                self._captures[name, thread]
                + np.searchsorted(np.sort(of.start[c[of.thread[c] == thread]]), at_ns)
                for name, c in calls.items()
            )
            inside[members] = opened > closed
        for name, c in calls.items():
            self._captures.update((name, thread) for thread in of.thread[c].tolist())
        return inside

    def counts(self) -> dict[str, int]:
        """How many, and where."""
        counts = {"kernel_launches": self._launches, "lost": self._count}
        if not self._count or not self._answered:
            return counts
        first_ns, last = self._first.least_ns, self._last
        return {
            **counts,
            "lost_first": self._first.count,
            "lost_first_ns": self._answered[0] - first_ns if self._first.count else 0,
            "lost_last": last.count,
            "lost_last_ns": self._end_ns - last.least_ns if last.count else 0,
        }


@dataclass(frozen=True)
class _Starts:
    """How many, and when the first of them begins."""

    count: int
    least_ns: int

    @staticmethod
    def of(starts: Ints) -> _Starts:
        return _Starts(len(starts), int(starts.min(initial=np.iinfo(np.int64).max)))

    def __add__(self, other: _Starts) -> _Starts:
        return _Starts(self.count + other.count, min(self.least_ns, other.least_ns))


_NO_STARTS = _Starts(0, np.iinfo(np.int64).max)


class _Overlaps:
    """How many activities overlap one that began before on their stream, and for how long."""

    def __init__(self) -> None:
        self._count = self._ns = 0
        nothing = np.empty(0, dtype=np.int64)
        self._reached = (nothing, nothing, nothing)  # of each stream what ends last: place, times

    def add(self, of: Columns, activities: Ints, answers: Answers) -> None:
        """Count those of the next part."""
        rows = activities[of.place[activities] != NONE]
        own = (of.place[rows], of.start[rows], (of.start + of.dur)[rows])
        place, start, end = map(np.concatenate, zip(self._reached, own, strict=True))
        launch = np.append(np.full(len(place) - len(rows), NONE), of.launch[rows])
        order = np.lexsort((start, place))
        place, start, end, launch = place[order], start[order], end[order], launch[order]
        same = place[1:] == place[:-1]
        longest = np.arange(len(place))
        if (same & (start[1:] < end[:-1])).any():  # else each begins after the one before
            longest = _reached(place, end)
            shared = np.minimum(end[longest[:-1]], end[1:]) - start[1:]
            hits = np.flatnonzero(same & (shared > ROUNDED_NS))
            hits = hits[~answers.several(launch[hits + 1])]  # a graph's branches may overlap
            self._count += len(hits)
            self._ns += int(shared[hits].sum())
        last = longest[np.flatnonzero(np.append(~same, True)[: len(place)])]
        self._reached = (place[last], start[last], end[last])

    def counts(self) -> dict[str, int]:
        """How many, and how long."""
        return {"overlaps": self._count, "overlap_ns": self._ns}


def _reached(place: Ints, end: Ints) -> Ints:
    """For each row of sorted ``place`` the one that ends last on it, up to this row."""
    by_end = np.argsort(end, kind="stable")
    rank = np.empty(len(end), dtype=np.int64)
    rank[by_end] = np.arange(len(end))
    return np.asarray(by_end[np.maximum.accumulate(place * len(end) + rank) % len(end)])
