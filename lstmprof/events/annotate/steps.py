"""Compute the step windows: the time interval of each step of each rank.

A step begins at a marker: an event that the profiler records per step, or a range that the user
names. The step ends at the next marker, or with the marker in lstmprof's captures. The last step
ends with the marker or the last activity. A profile without markers is one window. Source:
docs/ledger.md.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lstmprof.base.errors import UsageError
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.processes import successive_processes
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import UNKNOWN, EventTable
from lstmprof.events.threads import thread_ids

_MOST_NAMED = 8
#: Pattern of the number that ends a step marker's name; 18 digits fit into an int64.
_NUMBER = re.compile(r"#(\d{1,18})$", re.ASCII)


@dataclass(frozen=True)
class Window:
    """The interval [start_ns, end_ns) of one step of one rank."""

    rank: int | None
    step: int | None  # None without step markers
    start_ns: int
    end_ns: int
    thread: int | None  # that ran the step
    framework_ranges: tuple[str, ...] = ()  # names of ranges without Python: gaps are dispatch

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns


def median_step(windows: Iterable[Window]) -> Window:
    """Return the window of median length, or the shorter of two in the middle."""
    by_length = sorted(windows, key=lambda window: window.length_ns)
    return by_length[(len(by_length) - 1) // 2]


def with_markers(events: EventTable, pattern: str) -> EventTable:
    """Use the host ranges whose names match ``pattern`` as the step markers."""
    try:
        expression = re.compile(pattern)
    except re.error as fault:
        raise UsageError(
            f"--step-range '{pattern}' is not a regular expression ({fault})"
        ) from fault
    marked = events.replaced(lambda part: {"kind": _marked_kinds(part, expression)})
    if marked.has_kind("step"):
        return marked
    counts: Counter[str] = Counter()
    for part in events.parts():
        codes, names = part.texts("name")
        counts.update(names[code] for code in codes[_host_ranges(part)].tolist())
    frequent = ", ".join(f"'{name}'" for name, _ in counts.most_common(_MOST_NAMED)) or "none"
    raise UsageError(
        f"--step-range '{pattern}' matches no host range",
        f"the most frequent host ranges are {frequent}",
    )


def _host_ranges(events: EventTable) -> Flags:
    return np.asarray(events.is_kind("range", "step") & (thread_ids(events) >= 0), dtype=np.bool_)


def _marked_kinds(events: EventTable, expression: re.Pattern[str]) -> pa.Array:
    """Return the column ``kind`` with only the matching host ranges as steps."""
    kinds = np.array(events.column("kind").to_pylist(), dtype=object)
    kinds[kinds == "step"] = "range"
    kinds[events.where_name(expression.search) & _host_ranges(events)] = "step"
    return pa.array(kinds, pa.string())


def windows(events: EventTable, *, captured: bool) -> list[Window]:
    """Return the step windows, sorted by rank and time."""
    all_windows: list[Window] = []
    thread = thread_ids(events)
    for rank in events.ranks():
        rows = events.rows_of_rank(rank)
        # find markers by process, because the processes may have run one after the other
        processes = [
            (part, _markers(events, part, thread)) for part in successive_processes(events, rows)
        ]
        processes = [(part, markers) for part, markers in processes if len(markers)]
        all_windows += _marked(events, rank, processes, thread, captured)
        if not processes:
            all_windows += _whole_profile(events, rank, rows, thread)
    return [w for w in all_windows if w.end_ns > w.start_ns]


def _markers(events: EventTable, rows: Ints, thread: Ints) -> Ints:
    """Return the outermost step markers of the thread with the most markers."""
    rows = rows[events.is_kind("step")[rows] & (thread[rows] >= 0)]
    if not len(rows):
        return rows
    busiest = np.bincount(thread[rows]).argmax()
    rows = rows[thread[rows] == busiest]
    start, end = events.start_ns, events.end_ns
    rows = rows[np.lexsort((-end[rows], start[rows]))]
    reached = np.maximum.accumulate(end[rows])
    outermost: Flags = np.append(True, end[rows][1:] > reached[:-1])
    return np.asarray(rows[outermost], dtype=np.int64)


def _marked(
    events: EventTable,
    rank: int | None,
    processes: list[tuple[Ints, Ints]],
    thread: Ints,
    captured: bool,
) -> list[Window]:
    rows = [row for _, markers in processes for row in markers.tolist()]
    ends = [end for part, markers in processes for end in _ends(events, part, markers, captured)]
    numbers = _numbers(events.column("name").take(pa.array(rows, pa.int64())).to_pylist())
    return [
        Window(rank, number, int(events.start_ns[row]), end, int(thread[row]))
        for number, row, end in zip(numbers, rows, ends, strict=True)
    ]


def _ends(events: EventTable, rows: Ints, markers: Ints, captured: bool) -> list[int]:
    ends = events.end_ns[markers]
    # End a step at the next marker, because only lstmprof's captures synchronise after a step.
    if not captured:
        activities = rows[events.is_kind(*ACTIVITY_KINDS)[rows]]
        last = np.append(events.end_ns[activities], ends[-1]).max()
        ends = np.append(events.start_ns[markers][1:], last)
    closes: list[int] = ends.tolist()
    return closes


def _numbers(names: list[str]) -> list[int]:
    """Read step numbers from marker names (``ProfilerStep#7`` -> 7), or count from 0."""
    matches = [_NUMBER.search(name) for name in names]
    numbers = [int(n.group(1)) for n in matches if n]
    distinct = len(numbers) == len(names) == len(set(numbers))
    return numbers if distinct else list(range(len(names)))


def _whole_profile(events: EventTable, rank: int | None, rows: Ints, thread: Ints) -> list[Window]:
    if not len(rows):
        return []
    start, end = events.start_ns[rows], events.end_ns[rows]
    return [Window(rank, None, int(start.min()), int(end.max()), _busiest(events, rows, thread))]


def _busiest(events: EventTable, rows: Ints, thread: Ints) -> int | None:
    """Return the thread with the most ops, or most runtime calls if no thread has ops."""
    for kind in ("op", "runtime"):
        on_thread = thread[rows[events.is_kind(kind)[rows] & (thread[rows] >= 0)]]
        if len(on_thread):
            return int(np.bincount(on_thread).argmax())
    return None


def steps_of(ranks: Ints, step_windows: list[Window]) -> Ints:
    """Count the marked steps of each rank."""
    steps = Counter(
        UNKNOWN if w.rank is None else w.rank for w in step_windows if w.step is not None
    )
    return np.array([steps[rank] for rank in ranks.tolist()], dtype=np.int64)


def with_steps(events: EventTable, step_windows: list[Window]) -> EventTable:
    """Assign each event to the step in which its launch, or else the event, began."""
    at = events.start_ns.copy()
    launch = events.rows_named("launch_id")
    has_launch = np.flatnonzero(launch >= 0)
    at[has_launch] = at[launch[has_launch]]
    step = np.full(len(events), -1, dtype=np.int64)
    by_rank: dict[int | None, list[Window]] = {}
    for window in step_windows:
        if window.step is not None:
            by_rank.setdefault(window.rank, []).append(window)
    for rank in events.ranks() if by_rank else ():
        if rank in by_rank:
            rows = events.rows_of_rank(rank)
            numbers = np.array([window.step for window in by_rank[rank]], dtype=np.int64)
            index = windows_at(at[rows], by_rank[rank])
            step[rows] = np.where(index < 0, -1, numbers[index])
    return events.with_columns({"step": pa.array(step, mask=step < 0)})


def bounds_of(step_windows: Iterable[Window]) -> tuple[Ints, Ints]:
    bounds = [(window.start_ns, window.end_ns) for window in step_windows]
    starts, ends = np.array(bounds, dtype=np.int64).reshape(-1, 2).T
    return starts, ends


def windows_at(at_ns: Ints, step_windows: Sequence[Window]) -> Ints:
    """Return the index of one rank's latest window around each time, or −1."""
    starts, ends = bounds_of(step_windows)
    order = np.argsort(starts, kind="stable")
    index = np.searchsorted(starts[order], at_ns, side="right") - 1
    latest = order[index]
    return np.where((index >= 0) & (at_ns < ends[latest]), latest, -1)
