"""The events that explain the time of one device or the host in a rank's steps."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from lstmprof.breakdown.attribution import TAIL, Intervals
from lstmprof.events.annotate.steps import Window
from lstmprof.events.groups import Groups, inherited
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.processes import successive_processes
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import NONE, UNKNOWN, EventTable
from lstmprof.events.threads import ops_called, thread_ids


@dataclass(frozen=True)
class Fact:
    """Events of one name, with their number and time per step."""

    name: str
    ns: int
    count: float
    within: str | None = None  # name of the event around these events
    median_ns: int | None = None  # usual duration of other events of this name


def in_steps(events: EventTable, windows: Sequence[Window]) -> Flags:
    """Mark the events of a rank that are in its steps."""
    inside = np.zeros(len(events), dtype=np.bool_)
    inside[events.rows_of_rank(windows[0].rank)] = True
    steps = [window.step for window in windows if window.step is not None]
    # count all events if there are no step markers
    return inside & np.isin(events.ints("step", UNKNOWN), steps) if steps else inside


def called_after(events: EventTable, intervals: Intervals, device: int | None) -> Ints:
    """Find the op that begins at the end of each short interval of Python."""
    row = intervals.row
    if device is not None or not len(events):
        return np.full(len(row), NONE, dtype=np.int64)
    called = ops_called(events, thread_ids(events)[row], intervals.start_ns, intervals.end_ns)
    python = events.is_kind("step", "range", "python")[row] & (row != NONE)
    return np.where(python, called, NONE)


class Lane:
    """The host's events in a rank's steps, and the events of at most one device."""

    def __init__(
        self,
        events: EventTable,
        windows: Sequence[Window],
        device: int | None,
        intervals: Intervals,
    ) -> None:
        self.events, self.device, self.intervals = events, device, intervals
        self.steps, self.marked = len(windows), windows[0].step is not None
        own = events.rows_of_rank(windows[0].rank)
        self.rank = np.zeros(len(events), dtype=np.bool_)
        self.rank[own] = True
        #: Number of each event's process (0, 1 …), because each process has its own first calls.
        self.turn = np.zeros(len(events), dtype=np.int64)
        for number, rows in enumerate(successive_processes(events, own)):
            self.turn[rows] = number
        self.step = events.ints("step", NONE)
        devices = events.ints("device", UNKNOWN)
        own_device = devices == (UNKNOWN if device is None else device)
        # mark events in the steps and not on another device
        self.here = in_steps(events, windows) & ((devices == UNKNOWN) | own_device)
        states = np.array([state for state, _ in intervals.labels], dtype=object)
        busy = states[intervals.label] == "busy"
        # sum the time that each event explains, first with and then without idle time
        self.spent_ns = self._sum_ns(np.ones(len(intervals.row), dtype=np.bool_))
        self.busy = self._sum_ns(np.asarray(busy, np.bool_))
        # mark kernels and copies
        self.activity = self.here & events.is_kind(*ACTIVITY_KINDS)
        self.names, self.texts = events.texts("name")
        self.parent = events.rows_named("parent_id")

    def least_of_each(self, values: Ints, rows: Ints) -> Ints:
        """Return each process's least of ``values[rows]``, the largest int64 if none."""
        least = np.full(int(self.turn.max(initial=0)) + 1, np.iinfo(np.int64).max)
        np.minimum.at(least, self.turn[rows], values[rows])
        return least

    def _sum_ns(self, which: Flags) -> Ints:
        spent_ns = np.zeros(len(self.events), dtype=np.int64)
        which = which & (self.intervals.row != NONE)
        length = self.intervals.end_ns - self.intervals.start_ns
        np.add.at(spent_ns, self.intervals.row[which], length[which])
        return spent_ns

    def idle_ns(self, part: str) -> Ints:
        """Return the idle time that each event explains for one cause, such as ``queued``."""
        places = [i for i, label in enumerate(self.intervals.labels) if label == ("idle", part)]
        return self._sum_ns(np.isin(self.intervals.label, places))

    def idle_within(self, parts: Sequence[str], start_ns: Ints, end_ns: Ints) -> Ints:
        """Return how long each time interval is idle for causes such as ``dispatch``."""
        of = self.intervals
        named = [state == "idle" and p.removeprefix(TAIL) in parts for state, p in of.labels]
        some = np.flatnonzero(np.array(named, dtype=np.bool_)[of.label])
        some = some[np.argsort(of.start_ns[some], kind="stable")]
        start, length = of.start_ns[some], (of.end_ns - of.start_ns)[some]

        if not len(some):
            return np.zeros(len(start_ns), dtype=np.int64)
        before = np.append(0, np.cumsum(length))

        def until(at_ns: Ints) -> Ints:
            last = np.searchsorted(start, at_ns, side="right") - 1
            into = np.clip(at_ns - start[last], 0, length[last])
            return np.where(last < 0, 0, before[last] + into)

        return np.asarray(until(end_ns) - until(start_ns), dtype=np.int64)

    @property
    def copies(self) -> Flags:
        """Mark copies of tensors: ops on the host, or kernels and memcpys on a device."""
        layout = self.events.is_one_of("category", "layout") & self.here
        kinds = ("op",) if self.device is None else ACTIVITY_KINDS
        return np.asarray(layout & self.events.is_kind(*kinds), np.bool_)

    def events_named(self, fits: Callable[[str], object], *kinds: str) -> Flags:
        """Mark events of these kinds (default: ops) whose names satisfy ``fits``."""
        named = self.events.is_kind(*kinds or ("op",)) & self.events.where_name(fits)
        return np.asarray(self.here & named, np.bool_)

    def calls(self, pattern: re.Pattern[str] = re.compile("")) -> Flags:
        return self.events_named(pattern.search, "runtime")

    def around(self, rows: Ints) -> Ints:
        """Return the op that launched each event, or else the op around the event."""
        is_op = self.events.is_kind("op")
        nearest = inherited(self.parent, np.where(is_op, np.arange(len(is_op)), NONE))
        issuer = self.events.rows_named("op_id")[rows]
        above = np.where(is_op[rows], self.parent[rows], rows)
        by_parent = np.where(above != NONE, nearest[above], NONE)
        return np.where(issuer != NONE, issuer, by_parent)

    def inside(self, roots: Flags) -> Ints:
        """Return the nearest root at or around each event or the event's op, or ``NONE``."""
        own = np.where(roots, np.arange(len(roots)), NONE)
        if not roots.any():
            return own
        around = inherited(self.parent, own)
        issuer = self.events.rows_named("op_id")
        by_issuer = np.where(issuer != NONE, around[issuer], NONE)
        return np.where(around != NONE, around, by_issuer)

    def spent_in(self, roots: Flags, *, backward: bool = False) -> tuple[Fact, ...]:
        """Sum up the time of ``roots``, including launched work, by name of the root."""
        if not roots.any():
            return ()
        inside = self.inside(roots)
        within = np.where(self.parent != NONE, inside[self.parent], NONE)
        # ignore a root inside another root, so that no time counts twice
        outer = roots & (within == NONE)
        root = self.inside(outer)
        if backward:
            # add the backward passes of the roots
            forward = self.events.rows_named("forward_id")
            forward_root = np.where(forward != NONE, root[forward], NONE)
            node = self.inside(forward_root != NONE)
            root = np.where((root == NONE) & (node != NONE), forward_root[node], root)
        spent_ns = np.zeros(len(root), dtype=np.int64)
        has_time = (root != NONE) & (self.spent_ns > 0)
        np.add.at(spent_ns, root[has_time], self.spent_ns[has_time])
        # add Python's overhead of calling the ops, if Python runs outside the roots
        called = called_after(self.events, self.intervals, self.device)
        gaps = np.flatnonzero(called != NONE)
        gaps = gaps[(root[called[gaps]] != NONE) & (root[self.intervals.row[gaps]] == NONE)]
        length_ns = (self.intervals.end_ns - self.intervals.start_ns)[gaps]
        np.add.at(spent_ns, root[called[gaps]], length_ns)
        return self.by_name(np.flatnonzero(outer), spent_ns)

    def text(self, row: int) -> str | None:
        return None if row == NONE else self.texts[self.names[row]]

    def by_name(self, rows: Ints, spent_ns: Ints, within: Ints | None = None) -> tuple[Fact, ...]:
        """Sum up the time of events by name, the longest first."""
        if not len(rows):
            return ()
        within = np.full(len(rows), NONE, dtype=np.int64) if within is None else within
        outer = np.where(within != NONE, self.names[within], NONE)
        groups = Groups(self.names[rows], outer)
        ns, sizes = groups.sums(spent_ns[rows]), groups.sizes()
        named = [
            Fact(
                str(self.text(int(rows[first]))),
                round(int(ns[i]) / self.steps),
                int(sizes[i]) / self.steps,
                self.text(int(within[first])),
            )
            for i, first in enumerate(groups.first.tolist())
        ]
        return tuple(sorted(named, key=lambda h: (-h.ns, h.name, h.within or "")))


def median(values: Ints) -> int:
    """Return the median, or the lower of the two middle values."""
    return int(np.sort(values)[(len(values) - 1) // 2])


def upper_median(values: Ints) -> int:
    """Return the median, or the upper of the two middle values."""
    return int(np.sort(values)[len(values) // 2])
