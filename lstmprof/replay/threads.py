"""What each host thread did in a step, segment by segment, and whom it waited for.

A thread's segments fill the step's window: its innermost event at each instant, or nothing
recorded. Profiles do not say which thread waits for which (PyTorch's main thread for the one that
runs the backward pass, TensorFlow's for its executors), so one rule decides by observed order. At
each instant the segment at work is, of all threads, the one that started last. A thread waits

- in a Python, range or arranging-op segment, while the segment at work is another thread's and lies
  wholly within its own;
- in a stretch of which nothing was recorded, where the segment at work when it ends will wait for
  what the thread does next, or where a whole segment of another thread lies within it.

Limits: a long frame on one thread that happens to hold short work of another reads as a wait; two
threads that hand work over while both record something read as independent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lstmprof.events.annotate.steps import Window
from lstmprof.events.intervals import Flags, Ints, Segments, foremost
from lstmprof.events.table import NONE, EventTable
from lstmprof.events.threads import innermost

_READ = ["kind", "name", "category", "stream", "start_ns", "dur_ns"]


@dataclass(frozen=True)
class HostSegments:
    """One entry a segment, by thread and time; ``row`` and ``waits_for`` are ``NONE`` for none."""

    thread: Ints
    start_ns: Ints
    end_ns: Ints
    row: Ints
    waits_for: Ints


@dataclass(frozen=True)
class _Innermost:
    """The innermost events of all threads inside the window; ``patient``: may wait for a thread."""

    thread: Ints
    start_ns: Ints
    end_ns: Ints
    row: Ints
    patient: Flags

    def hold(self, outer: Ints, inner: Ints) -> Flags:
        """Whether segment ``outer`` may wait for segment ``inner``, which lies within it."""
        within = (self.start_ns[outer] <= self.start_ns[inner]) & (
            self.end_ns[inner] <= self.end_ns[outer]
        )
        return np.asarray(within & self.patient[outer], dtype=np.bool_)


def host_segments(
    events: EventTable, window: Window, rows: Ints, thread: Ints, patient: Flags
) -> HostSegments:
    """The segments of all threads of ``rows``, the host events of the window's rank.

    ``thread`` and ``patient`` have an entry a row of ``events``.
    """
    numbers = np.unique(thread[rows])
    segments = _segments(events, window, rows, thread, patient)
    order = np.lexsort((-segments.thread, segments.end_ns, -segments.start_ns))
    at_work = foremost(segments.start_ns, segments.end_ns, order)
    parts = [_of_thread(segments, at_work, int(number), window) for number in numbers]
    if not parts:
        return HostSegments(*(np.empty(0, dtype=np.int64) for _ in range(5)))
    return HostSegments(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _segments(
    events: EventTable, window: Window, rows: Ints, thread: Ints, patient: Flags
) -> _Innermost:
    lanes = list(_lanes(events.select(_READ), window, rows, thread))
    row = np.concatenate([lane.owner for lane in lanes] or [np.empty(0, dtype=np.int64)])
    return _Innermost(
        thread[row],
        np.concatenate([lane.start_ns for lane in lanes] or [row]),
        np.concatenate([lane.end_ns for lane in lanes] or [row]),
        row,
        patient[row],
    )


def _lanes(events: EventTable, window: Window, rows: Ints, thread: Ints) -> Iterator[Segments]:
    by_thread = rows[np.argsort(thread[rows], kind="stable")]
    borders = np.flatnonzero(np.diff(thread[by_thread])) + 1
    for members in np.split(by_thread, borders):
        if len(members):
            taken = events.take(members)
            lane = innermost(taken, np.arange(len(members))).within(window.start_ns, window.end_ns)
            yield Segments(lane.start_ns, lane.end_ns, members[lane.owner])


def _of_thread(
    lanes: _Innermost, at_work: Segments, number: int, window: Window
) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """(thread, start, end, row, waits for) of one thread's segments."""
    rows = np.flatnonzero(lanes.thread == number)
    bounds = [lanes.start_ns[rows], lanes.end_ns[rows], at_work.start_ns, at_work.end_ns]
    bounds.append(np.array([window.start_ns, window.end_ns], dtype=np.int64))
    cells = np.unique(np.concatenate(bounds))
    inner = _at(Segments(lanes.start_ns[rows], lanes.end_ns[rows], rows), cells[:-1])
    working = _at(at_work, cells[:-1])
    others = (working != NONE) & (lanes.thread[working] != number)
    waits = others & (inner != NONE) & lanes.hold(inner, working)
    gap = np.searchsorted(lanes.start_ns[rows], cells[:-1], side="right")  # segments before it
    waits |= _waiting_gaps(lanes, np.append(rows, NONE), cells, inner, working, others, gap)
    new = np.append(True, (inner[1:] != inner[:-1]) | (gap[1:] != gap[:-1]) | np.diff(waits))
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(inner)) - 1
    return (
        np.full(len(first), number, dtype=np.int64),
        cells[first],
        cells[last + 1],
        np.where(inner[first] == NONE, NONE, lanes.row[inner[first]]),
        np.where(waits[first], lanes.thread[working[last]], NONE),
    )


def _waiting_gaps(
    lanes: _Innermost, rows: Ints, cells: Ints, inner: Ints, working: Ints, others: Flags, gap: Ints
) -> Flags:
    """A boolean a cell: it is of a gap that waits; ``rows`` has ``NONE`` after the last."""
    waits = np.zeros(len(inner), dtype=np.bool_)
    free = np.flatnonzero(inner == NONE)
    if not len(free):
        return waits
    starts = np.flatnonzero(np.append(True, np.diff(gap[free]) > 0))
    first, last = free[starts], free[np.append(starts[1:], len(free)) - 1]
    begins, ends = cells[first], cells[last + 1]
    place = np.repeat(np.arange(len(first)), np.diff(np.append(starts, len(free))))
    whole = others[free] & (lanes.start_ns[working[free]] >= begins[place])
    whole &= lanes.end_ns[working[free]] <= ends[place]
    holds = np.bincount(place[whole], minlength=len(first)) > 0
    following = rows[gap[first]]
    holds |= (following != NONE) & lanes.hold(working[last], following)
    waits[free] = (holds & others[last])[place]
    return waits


def _at(segments: Segments, instants: Ints) -> Ints:
    """Owner of the segment at each instant, ``NONE`` between segments."""
    if not len(segments.start_ns):
        return np.full(len(instants), NONE, dtype=np.int64)
    index = np.searchsorted(segments.start_ns, instants, side="right") - 1
    inside = (index >= 0) & (instants < segments.end_ns[index])
    return np.where(inside, segments.owner[index], NONE)
