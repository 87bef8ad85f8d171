"""Count the events of each rank by kind, to show what a profile lacks.

lstmprof counts only when a run is written, because reading millions of events takes long.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, fields

import numpy as np

from lstmprof.events.annotate.calls import MIGRATION, ActivityCounts, is_kernel_launch
from lstmprof.events.groups import Groups, latest_ends
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.processes import successive_processes
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.stored import StoredEvents
from lstmprof.events.table import NONE, UNKNOWN, EventTable
from lstmprof.events.threads import thread_ids

#: Longest overlap that does not count, because profilers round times to up to 1 µs.
ROUNDED_NS = 1000
#: Pattern of the calls of a runtime (CUDA, HIP, MTIA) that give work to a device, such as MTIA's
#: ``enqueueCommand memcpyHtoDAsync``.
_HANDS_OVER = re.compile(r"(?i)launch|memcpy|memset|enqueue|submit")
#: Pattern of ops and ranges that show the use of a GPU, such as cuDNN's and NCCL's.
_GPU_NAMES = re.compile(
    r"(?:aten::|.*:)?_?(?:cudnn|miopen)_(?!is_acceptable)\w*|(?:.*[:/])?Cudnn[A-Z]\w*"
    r"|(?:nccl|rccl|cudnn):\S.*|(?:nccl|rccl|cublas|cudnn)[A-Z]\w*"
)
_CAPTURE_BEGINS, _CAPTURE_ENDS = "StreamBeginCapture", "StreamEndCapture"
#: Columns of the events table that ``Recorded`` needs to count events.
COUNTED = (
    *("event_id", "kind", "name", "start_ns", "dur_ns", "rank", "pid", "tid", "device", "stream"),
    *("parent_id", "launch_id", "step"),
)


@dataclass(frozen=True)
class Columns:
    """Arrays with one entry per event: what ``Tally`` needs to count the events."""

    row: Ints  # row number in the whole table
    start: Ints
    dur: Ints
    thread: Ints
    stream: Ints
    launch: Ints  # row number of the launch
    step: Ints
    flags: dict[str, Flags]  # by property, such as ``activity``

    def only(self, rows: Ints) -> Columns:
        arrays = {f.name: getattr(self, f.name)[rows] for f in fields(self) if f.name != "flags"}
        return Columns(**arrays, flags={name: flag[rows] for name, flag in self.flags.items()})

    def where(self, name: str) -> Ints:
        return np.flatnonzero(self.flags[name])


class _Numbers:
    """Numbers threads or streams consistently over all parts of an events table."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, ...], int] = {}

    def of(self, *keys: Ints) -> Ints:
        groups = Groups(*keys)
        things = zip(*(key[groups.first].tolist() for key in keys), strict=True)
        numbers = [self._numbers.setdefault(thing, len(self._numbers)) for thing in things]
        return np.array(numbers, dtype=np.int64)[groups.of]


class Reading:
    """Makes the ``Columns`` of each part of an events table, in order of the parts."""

    def __init__(self) -> None:
        self._threads, self._streams = _Numbers(), _Numbers()
        self._running: Ints = np.empty(0, dtype=np.int64)

    def columns(self, events: EventTable) -> Columns:
        activity = events.is_kind(*ACTIVITY_KINDS)
        runtime = events.is_kind("runtime")
        calls = runtime & ~self._within_runtime(events, runtime)  # no driver call inside a call
        ranges = events.is_kind("range") & (thread_ids(events) != NONE)
        captures = events.where_name(lambda name: _CAPTURE_BEGINS in name)
        return Columns(
            row=np.arange(events.first_row, events.first_row + len(events)),
            start=events.start_ns,
            dur=events.dur_ns,
            thread=self._numbered(
                self._threads, events, np.flatnonzero(thread_ids(events) != NONE), "pid", "tid"
            ),
            stream=self._numbered(
                self._streams,
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
                "of gpu": (events.is_kind("op") | ranges) & events.where_name(_GPU_NAMES.fullmatch),
                "activity": activity,
                "kernel": events.is_kind("kernel"),
                "migration": events.is_kind("memcpy") & events.where_name(MIGRATION.match),
                "capture": runtime & captures,
                "captured": runtime & events.where_name(lambda name: _CAPTURE_ENDS in name),
            },
        )

    def _within_runtime(self, events: EventTable, runtime: Flags) -> Flags:
        """Return whether each event's parent is a runtime call."""
        parent = events.rows_named("parent_id")
        local = parent - events.first_row
        in_part = (parent != NONE) & (local >= 0)
        within = np.where(
            in_part, runtime[np.where(in_part, local, 0)], np.isin(parent, self._running)
        )
        calls = np.flatnonzero(runtime & (events.end_ns >= events.start_ns.max(initial=0)))
        self._running = np.append(self._running, calls + events.first_row)
        return np.asarray(within, dtype=np.bool_)

    @staticmethod
    def _numbered(numbers: _Numbers, events: EventTable, rows: Ints, *columns: str) -> Ints:
        numbered = np.full(len(events), NONE, dtype=np.int64)
        keys = (events.ints(name, UNKNOWN)[rows] for name in ("rank", *columns))
        numbered[rows] = numbers.of(*keys)
        return numbered


@dataclass(frozen=True)
class _ProcessCounts:
    """Counts of one process's events, from which a rank's ``Recorded`` is made."""

    counts: dict[str, int]
    steps: set[int]
    busy_steps: set[int]  # steps with an activity


class Tally:
    """Counts the events of several processes, part by part of the table."""

    def __init__(self, activity_counts: ActivityCounts, processes: int = 1) -> None:
        self._activity_counts, self._processes = activity_counts, processes
        self._sums: dict[str, Ints] = defaultdict(lambda: np.zeros(processes, dtype=np.int64))
        self._first_ns, self._end_ns = _late(processes), _early(processes)
        self._steps: list[set[int]] = [set() for _ in range(processes)]
        self._busy_steps: list[set[int]] = [set() for _ in range(processes)]
        self._has_launched = np.zeros(processes, dtype=np.bool_)  # per stream
        self._lost = _Lost(processes)
        self._overlaps = _Overlaps(processes)

    def add(self, columns: Columns, process: Ints) -> None:
        """Count the next part's events; ``process`` is the number of each event's process."""
        activities = columns.where("activity")
        launchable = activities[~columns.flags["migration"][activities]]
        np.minimum.at(self._first_ns, process, columns.start)
        np.maximum.at(self._end_ns, process, columns.start + columns.dur)
        counted = {
            "ops": columns.where("op"),
            "ops_in_steps": np.flatnonzero(columns.flags["op"] & (columns.step != UNKNOWN)),
            "ranges": columns.where("range"),
            "device_ranges": columns.where("device range"),
            "python_frames": columns.where("python"),
            "runtime_calls": columns.where("runtime"),
            "handed_over": columns.where("handed over"),
            "gpu_ops": columns.where("of gpu"),
            "activities": activities,
            "kernels": columns.where("kernel"),
            "migrations": columns.where("migration"),
            "unlaunched": launchable[columns.launch[launchable] == NONE],
            "launched_before": self._launched_before(columns, process, launchable),
        }
        for name, rows in counted.items():
            self._sums[name] += _counts(process[rows], self._processes)
        np.add.at(self._sums["activity_ns"], process[activities], columns.dur[activities])
        in_steps = np.flatnonzero(columns.step != UNKNOWN)
        for steps, rows in ((self._steps, in_steps), (self._busy_steps, activities)):
            first = rows[Groups(process[rows], columns.step[rows]).first]
            for number, step in zip(
                process[first].tolist(), columns.step[first].tolist(), strict=True
            ):
                steps[number].add(step)
        self._lost.add(columns, process, self._activity_counts)
        self._overlaps.add(columns, process, activities, self._activity_counts)

    def _launched_before(self, columns: Columns, process: Ints, activities: Ints) -> Ints:
        """Find activities without a launch before their stream's first launched activity."""
        stream, start = columns.stream[activities], columns.start[activities]
        stream = np.where(stream == NONE, process[activities], stream + self._processes)
        streams = max(len(self._has_launched), int(stream.max(initial=-1)) + 1)
        self._has_launched = np.pad(self._has_launched, (0, streams - len(self._has_launched)))
        without = columns.launch[activities] == NONE
        first = np.where(self._has_launched, UNKNOWN, np.iinfo(np.int64).max)
        np.minimum.at(first, stream[~without], start[~without])
        self._has_launched[stream[~without]] = True
        return np.asarray(activities[without & (start < first[stream])])

    def counts(self) -> list[_ProcessCounts]:
        sums = {name: counts.tolist() for name, counts in self._sums.items()}
        length_ns = np.maximum(0, self._end_ns - np.minimum(self._first_ns, self._end_ns))
        lost, overlaps = self._lost.counts(), self._overlaps.counts()
        process_counts = []
        for number in range(self._processes):
            own = {name: counts[number] for name, counts in sums.items()}
            launchable = own.get("activities", 0) - own.get("migrations", 0)
            if own.get("unlaunched", 0) == launchable:
                own["launched_before"] = 0
            counts = {
                **own,
                "length_ns": int(length_ns[number]),
                **lost[number],
                **overlaps[number],
            }
            process_counts.append(
                _ProcessCounts(counts, self._steps[number], self._busy_steps[number])
            )
        return process_counts


def _late(processes: int) -> Ints:
    return np.full(processes, np.iinfo(np.int64).max)


def _early(processes: int) -> Ints:
    return np.full(processes, UNKNOWN, dtype=np.int64)


def _counts(processes: Ints, count: int) -> Ints:
    return np.bincount(processes, minlength=count).astype(np.int64)


class _Lost:
    """Counts kernel launches without a kernel in the profile."""

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._launches = np.zeros(processes, dtype=np.int64)
        # per process, start of the first and of the last launch that has an activity
        self._first_with_activity, self._last_with_activity = _late(processes), _early(processes)
        self._all, self._first, self._last = (_Starts(processes) for _ in range(3))
        self._end_ns = _early(processes)
        self._captures: Counter[tuple[str, int]] = Counter()  # (flag name, thread): number of calls

    def add(self, columns: Columns, process: Ints, activity_counts: ActivityCounts) -> None:
        launches = columns.where("kernel launch")
        has_activity = activity_counts.any(columns.row[launches])
        lost, with_activity = launches[~has_activity], launches[has_activity]
        lost = lost[~self._captured(columns, lost)]
        self._launches += _counts(process[np.append(lost, with_activity)], self._processes)
        self._all.add(process[lost], columns.start[lost])
        self._count_ends(
            process[lost], columns.start[lost], process[with_activity], columns.start[with_activity]
        )
        np.maximum.at(self._end_ns, process[lost], (columns.start + columns.dur)[lost])

    def _count_ends(
        self, lost: Ints, lost_ns: Ints, with_activity: Ints, with_activity_ns: Ints
    ) -> None:
        """Count lost launches before the first launch with an activity and after the last."""
        first, last = _late(self._processes), _early(self._processes)
        np.minimum.at(first, with_activity, with_activity_ns)
        np.maximum.at(last, with_activity, with_activity_ns)
        self._first_with_activity = np.minimum(self._first_with_activity, first)
        self._last_with_activity = np.where(last == UNKNOWN, self._last_with_activity, last)
        self._last.forget(np.unique(with_activity))
        after = lost_ns > last[lost]
        self._last.add(lost[after], lost_ns[after])
        before = lost_ns < self._first_with_activity[lost]
        self._first.add(lost[before], lost_ns[before])

    def _captured(self, columns: Columns, rows: Ints) -> Flags:
        """Return which launches were captured into a CUDA graph, so that no kernel ran."""
        inside = np.zeros(len(rows), dtype=np.bool_)
        calls = {name: columns.where(name) for name in ("capture", "captured")}
        threads = {thread for _, thread in self._captures}
        threads = threads.union(*(columns.thread[c].tolist() for c in calls.values()))
        for thread in sorted(threads.intersection(columns.thread[rows].tolist())):
            members = columns.thread[rows] == thread
            at_ns = columns.start[rows[members]]
            opened, closed = (
                self._captures[name, thread]
                + np.searchsorted(np.sort(columns.start[c[columns.thread[c] == thread]]), at_ns)
                for name, c in calls.items()
            )
            inside[members] = opened > closed
        for name, c in calls.items():
            self._captures.update((name, thread) for thread in columns.thread[c].tolist())
        return inside

    def counts(self) -> list[dict[str, int]]:
        """Return the counts of each process, by field of ``Recorded``."""
        return [self._of_process(number) for number in range(self._processes)]

    def _of_process(self, number: int) -> dict[str, int]:
        lost = int(self._all.count[number])
        counts = {"kernel_launches": int(self._launches[number]), "lost": lost}
        if not lost or self._last_with_activity[number] == UNKNOWN:
            return counts
        first, last = int(self._first.count[number]), int(self._last.count[number])
        first_ns = self._first_with_activity[number] - self._first.least_ns[number] if first else 0
        last_ns = self._end_ns[number] - self._last.least_ns[number] if last else 0
        return {
            **counts,
            "lost_first": first,
            "lost_first_ns": int(first_ns),
            "lost_last": last,
            "lost_last_ns": int(last_ns),
        }


class _Starts:
    """Counts the launches of each process, and finds their earliest start."""

    def __init__(self, processes: int) -> None:
        self.count = np.zeros(processes, dtype=np.int64)
        self.least_ns = _late(processes)

    def add(self, processes: Ints, start_ns: Ints) -> None:
        self.count += _counts(processes, len(self.count))
        np.minimum.at(self.least_ns, processes, start_ns)

    def forget(self, processes: Ints) -> None:
        self.count[processes] = 0
        self.least_ns[processes] = np.iinfo(np.int64).max


class _Overlaps:
    """Counts activities that overlap an earlier activity of their stream."""

    def __init__(self, processes: int) -> None:
        self._count, self._ns = (np.zeros(processes, dtype=np.int64) for _ in range(2))
        # the activity of each stream that ends last: (streams, starts, ends, process numbers)
        self._latest_end = tuple(np.empty(0, dtype=np.int64) for _ in range(4))

    def add(
        self, columns: Columns, process: Ints, activities: Ints, activity_counts: ActivityCounts
    ) -> None:
        rows = activities[columns.stream[activities] != NONE]
        own = (
            columns.stream[rows],
            columns.start[rows],
            (columns.start + columns.dur)[rows],
            process[rows],
        )
        stream, start, end, number = map(np.concatenate, zip(self._latest_end, own, strict=True))
        launch = np.append(np.full(len(stream) - len(rows), NONE), columns.launch[rows])
        order = np.lexsort((start, stream))
        stream, start, end, launch = stream[order], start[order], end[order], launch[order]
        number = number[order]
        same = stream[1:] == stream[:-1]
        longest = np.arange(len(stream))
        if (same & (start[1:] < end[:-1])).any():  # otherwise nothing overlaps
            longest = latest_ends(stream, end)
            shared = np.minimum(end[longest[:-1]], end[1:]) - start[1:]
            hits = np.flatnonzero(same & (shared > ROUNDED_NS))
            hits = hits[
                ~activity_counts.several(launch[hits + 1])
            ]  # except branches of one CUDA graph
            self._count += _counts(number[hits + 1], len(self._count))
            np.add.at(self._ns, number[hits + 1], shared[hits])
        last = longest[np.flatnonzero(np.append(~same, True)[: len(stream)])]
        self._latest_end = (stream[last], start[last], end[last], number[last])

    def counts(self) -> list[dict[str, int]]:
        pairs = zip(self._count.tolist(), self._ns.tolist(), strict=True)
        return [{"overlaps": count, "overlap_ns": ns} for count, ns in pairs]


@dataclass(frozen=True)
class Recorded:
    """Counts of the events of one rank; activities are kernels, copies and memsets."""

    rank: int | None = None
    length_ns: int = 0
    steps: int = 0
    first_step: int | None = None
    last_step: int | None = None
    ops: int = 0
    ops_in_steps: int = 0  # began in a marked step
    ranges: int = 0
    device_ranges: int = 0  # copies of host ranges, or hardware counters
    python_frames: int = 0
    runtime_calls: int = 0
    handed_over: int = 0  # runtime calls that gave work to a device
    kernel_launches: int = 0  # of kernels and graphs, not captured into a graph
    gpu_ops: int = 0  # ops and ranges of libraries that run only on GPUs
    activities: int = 0
    kernels: int = 0
    activity_ns: int = 0
    migrations: int = 0  # the driver's page migrations of managed memory
    unlaunched: int = 0  # other activities without a launch
    launched_before: int = 0  # unlaunched, before their stream's first launched activity
    lost: int = 0  # kernel launches without an activity
    lost_first: int = 0  # before the first launch with an activity
    lost_first_ns: int = 0  # from the first of them to that launch
    lost_last: int = 0  # after the last launch with an activity
    lost_last_ns: int = 0  # from the first of them to the end of the last
    overlaps: int = 0  # activities that began while another of their stream ran
    overlap_ns: int = 0
    bare_steps: int = 0  # marked steps without an activity; 0 if no step has one
    first_bare: int | None = None

    @property
    def launchable(self) -> int:
        """Count the activities that need a launch: all except page migrations."""
        return self.activities - self.migrations

    @property
    def host_events(self) -> int:
        return self.ops + self.ranges + self.steps + self.python_frames


def recorded(events: EventTable) -> tuple[Recorded, ...]:
    """Count the events of each rank, after all derived columns are filled."""
    if isinstance(events, StoredEvents):
        return _counts_on_disk(events)
    columns = Reading().columns(events)
    return tuple(
        _rank_counts(
            rank,
            [
                _count_process(columns.only(rows))
                for rows in successive_processes(events, rank_rows)
            ],
        )
        for rank, rank_rows in ((rank, events.rows_of_rank(rank)) for rank in events.ranks())
    )


def _count_process(columns: Columns) -> _ProcessCounts:
    activity_counts = ActivityCounts(
        int(columns.launch.max(initial=columns.row.max(initial=0))) + 1
    )
    activity_counts.add(columns.launch)
    tally = Tally(activity_counts)
    tally.add(columns, np.zeros(len(columns.row), dtype=np.int64))
    return tally.counts()[0]


def _counts_on_disk(events: StoredEvents) -> tuple[Recorded, ...]:
    """Count a table on disk, one batch at a time."""
    # Import late, because commands that only read a stored run do not need the rules.
    from lstmprof.events.annotate.stored_annotation import deciding_events

    deciding = events.once(deciding_events)
    ranks = deciding.ranks()
    if any(len(successive_processes(deciding, deciding.rows_of_rank(rank))) > 1 for rank in ranks):
        return recorded(EventTable(events.arrow))
    # count the activities of launches first, because a launch and its activity may be in two parts
    tally, reading = Tally(ActivityCounts.of(events), len(ranks)), Reading()
    numbers = np.array([UNKNOWN if rank is None else rank for rank in ranks])
    for part in events.parts(COUNTED):
        tally.add(reading.columns(part), np.searchsorted(numbers, part.ints("rank", UNKNOWN)))
    return tuple(_rank_counts(rank, [of]) for rank, of in zip(ranks, tally.counts(), strict=True))


def _rank_counts(rank: int | None, processes: list[_ProcessCounts]) -> Recorded:
    """Sum the counts of a rank's processes, which ran one after the other."""
    counts: Counter[str] = Counter()
    for process in processes:
        counts.update(process.counts)
    steps = set().union(*(process.steps for process in processes))
    busy_steps = set().union(*(process.busy_steps for process in processes))
    bare = steps - busy_steps if steps & busy_steps else set()
    return Recorded(
        rank=rank,
        steps=len(steps),
        first_step=min(steps, default=None),
        last_step=max(steps, default=None),
        bare_steps=len(bare),
        first_bare=min(bare, default=None),
        **counts,
    )
