"""Time in which at least one of many intervals runs, and time in which several do."""

from __future__ import annotations

import numpy as np

from lstmprof.events.intervals import Ints


class Covered:
    """The union of intervals [start, end); all arrays are int64 nanoseconds."""

    def __init__(self, start_ns: Ints, end_ns: Ints) -> None:
        order = np.argsort(start_ns, kind="stable")
        start, end = start_ns[order], end_ns[order]
        reached = np.maximum.accumulate(end)
        opens = np.flatnonzero(np.append(True, start[1:] > reached[:-1])[: len(start)])
        self._start = start[opens]
        self._end = reached[np.append(opens[1:], len(start)) - 1] if len(opens) else opens
        self._before = np.append(0, np.cumsum(self._end - self._start))
        self.whole_ns = int(self._before[-1])

    @property
    def bounds(self) -> tuple[Ints, Ints]:
        """(starts, ends) of the disjoint intervals that make up the union, by time."""
        return self._start, self._end

    def within(self, start_ns: Ints, end_ns: Ints) -> Ints:
        """Covered nanoseconds of each [start, end)."""
        return self._until(end_ns) - self._until(start_ns)

    def _until(self, at_ns: Ints) -> Ints:
        if not len(self._start):
            return np.zeros(len(at_ns), dtype=np.int64)
        last = np.searchsorted(self._start, at_ns, side="right") - 1
        open_ns = np.minimum(at_ns, self._end[last]) - self._start[last]
        return np.where(last < 0, 0, self._before[last] + open_ns)


def running_time(start_ns: Ints, end_ns: Ints, from_ns: Ints, to_ns: Ints) -> Ints:
    """Sum of the intervals' time inside each [from, to): what runs twice counts twice."""
    return _elapsed(start_ns, end_ns, to_ns) - _elapsed(start_ns, end_ns, from_ns)


def _elapsed(start_ns: Ints, end_ns: Ints, at_ns: Ints) -> Ints:
    """Sum of the intervals' time before each instant."""
    return _since(np.sort(start_ns), at_ns) - _since(np.sort(end_ns), at_ns)


def _since(sorted_ns: Ints, at_ns: Ints) -> Ints:
    """Sum of the time from each of ``sorted_ns`` to each instant after it.

    A product may wrap around; the difference of two such sums is right modulo 2⁶⁴ all the same.
    """
    count = np.searchsorted(sorted_ns, at_ns)
    return np.asarray(count * at_ns - np.append(0, np.cumsum(sorted_ns))[count], dtype=np.int64)
