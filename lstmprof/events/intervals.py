"""Compute with half-open intervals of int64 nanoseconds, without a loop over events.

An example is ``foremost``, the basis of the breakdown. If several intervals run at a time,
``foremost`` chooses one, such as compute before copies (docs/ledger.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

#: Owner of the times that no segment covers.
FREE = -1
_BITS = 63


@dataclass(frozen=True)
class Segments:
    """Disjoint intervals sorted by time, each with the number of its owner."""

    start_ns: Ints
    end_ns: Ints
    owner: Ints

    def within(self, start_ns: int, end_ns: int) -> Segments:
        """Cut the segments to the interval [start_ns, end_ns)."""
        first = int(np.searchsorted(self.end_ns, start_ns, side="right"))
        last = int(np.searchsorted(self.start_ns, end_ns, side="left"))
        return Segments(
            np.maximum(self.start_ns[first:last], start_ns),
            np.minimum(self.end_ns[first:last], end_ns),
            self.owner[first:last],
        )

    def owner_at(self, at_ns: Ints) -> Ints:
        """Return the owner at each time, or ``FREE`` if no segment covers the time."""
        if not len(self.start_ns):
            return np.full(len(at_ns), FREE, dtype=np.int64)
        index = np.searchsorted(self.start_ns, at_ns, side="right") - 1
        inside = (index >= 0) & (at_ns < self.end_ns[index])
        return np.where(inside, self.owner[index], FREE)


def longer_first(start_ns: Ints, dur_ns: Ints) -> Ints:
    """Sort positions by start, then by descending length; equal intervals keep order."""
    if not len(start_ns):
        return np.empty(0, dtype=np.int64)
    first, longest = int(start_ns.min()), int(dur_ns.max())
    dur_bits = longest.bit_length()
    if min(int(dur_ns.min()), 0) or (int(start_ns.max()) - first).bit_length() + dur_bits > _BITS:
        return np.lexsort((-dur_ns, start_ns))
    # sort one integer per interval, which is faster than sorting two keys
    return np.argsort((start_ns - first << dur_bits) + (longest - dur_ns), kind="stable")


def foremost(start_ns: Ints, end_ns: Ints, order: Ints) -> Segments:
    """Assign each time to the running interval that comes first in ``order``."""
    count = len(start_ns)
    place = np.empty(count, dtype=np.int64)
    place[order] = np.arange(count)
    live = np.flatnonzero(end_ns > start_ns)
    # Update the minima of ranges in a sparse table, in O((n + m) log m). The method reverses Bender
    # and Farach-Colton, "The LCA Problem Revisited", 2000.
    bounds, at = _distinct(np.concatenate([start_ns[live], end_ns[live]]))
    best = _least_over_ranges(at[: len(live)], at[len(live) :], place[live], len(bounds) - 1, count)
    covered = np.flatnonzero(best < count)
    owner = order[best[covered]]
    return _joined(Segments(bounds[covered], bounds[covered + 1], owner))


def _distinct(values: Ints) -> tuple[Ints, Ints]:
    """Return distinct values and positions: [7, 7, 3] -> [3, 7], [1, 1, 0]."""
    # use a merge sort, which is fast on nearly sorted values
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    new = np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]
    place = np.empty(len(values), dtype=np.int64)
    place[order] = np.cumsum(new) - 1
    return ordered[new], place


def _least_over_ranges(left: Ints, right: Ints, value: Ints, cells: int, none: int) -> Ints:
    """Find the least ``value`` of the ranges [left, right) around each cell, or ``none``."""
    narrow = np.int32 if none < 2**31 else np.int64  # for speed: the loop reads all cells
    least: np.ndarray = np.full(max(cells, 0), none, dtype=narrow)
    best = value.astype(narrow)
    if not len(left):
        return least
    level = np.frexp((right - left).astype(np.float64))[1] - 1  # log2, exact below 2**53
    for k in range(int(level.max()), -1, -1):
        # least[i] is the minimum of the 2**k cells from cell i on (a sparse table)
        members = level == k
        np.minimum.at(least, left[members], best[members])
        np.minimum.at(least, right[members] - (1 << k), best[members])
        if k:
            half = 1 << (k - 1)
            blocks = np.empty_like(least)
            blocks[:half] = least[:half]
            np.minimum(least[half:], least[:-half], out=blocks[half:])
            least = blocks
    return least


def _joined(segments: Segments) -> Segments:
    """Join touching segments of one owner."""
    if not len(segments.start_ns):
        return segments
    new = np.empty(len(segments.start_ns), dtype=bool)
    new[0] = True
    new[1:] = (segments.owner[1:] != segments.owner[:-1]) | (
        segments.start_ns[1:] != segments.end_ns[:-1]
    )
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(new)) - 1
    return Segments(segments.start_ns[first], segments.end_ns[last], segments.owner[first])


def filled(segments: Segments) -> Segments:
    """Add segments with the owner ``FREE`` for all times that no segment covers."""
    limits = np.iinfo(np.int64)
    starts = np.append(limits.min, segments.end_ns)
    ends = np.append(segments.start_ns, limits.max)
    free = ends > starts
    start_ns = np.concatenate([segments.start_ns, starts[free]])
    order = np.argsort(start_ns, kind="stable")
    end_ns = np.concatenate([segments.end_ns, ends[free]])
    owner = np.concatenate([segments.owner, np.full(int(free.sum()), FREE, dtype=np.int64)])
    return Segments(start_ns[order], end_ns[order], owner[order])


@dataclass(frozen=True)
class Overlaps:
    """The times that segments and intervals share, one entry per pair."""

    segment: Ints
    interval: Ints
    start_ns: Ints
    end_ns: Ints


def overlaps(segments: Segments, start_ns: Ints, end_ns: Ints) -> Overlaps:
    """Return all overlaps of segments with intervals, sorted."""
    first = np.searchsorted(segments.end_ns, start_ns, side="right")
    count = np.searchsorted(segments.start_ns, end_ns, side="left") - first
    count = np.where(end_ns > start_ns, np.maximum(count, 0), 0)
    interval = np.repeat(np.arange(len(count)), count)
    segment = np.arange(len(interval)) - np.repeat(np.cumsum(count) - count - first, count)
    return Overlaps(
        segment,
        interval,
        np.maximum(segments.start_ns[segment], start_ns[interval]),
        np.minimum(segments.end_ns[segment], end_ns[interval]),
    )


def places_among(sorted_ns: Ints, at_ns: Ints) -> Ints:
    """Count the values of ``sorted_ns`` up to each time; both arrays are sorted."""
    if not len(at_ns):
        return np.empty(0, dtype=np.int64)
    first, last = np.searchsorted(sorted_ns, at_ns[[0, -1]], side="right")
    steps = np.searchsorted(at_ns, sorted_ns[first:last])
    return np.asarray(first + np.cumsum(np.bincount(steps, minlength=len(at_ns))), dtype=np.int64)


class Covered:
    """The union of intervals."""

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
        """Return (starts, ends) of the disjoint intervals of the union, sorted."""
        return self._start, self._end

    def within(self, start_ns: Ints, end_ns: Ints) -> Ints:
        """Return how much of each [start_ns, end_ns) lies in the union."""
        return self._until(end_ns) - self._until(start_ns)

    def _until(self, at_ns: Ints) -> Ints:
        if not len(self._start):
            return np.zeros(len(at_ns), dtype=np.int64)
        last = np.searchsorted(self._start, at_ns, side="right") - 1
        open_ns = np.minimum(at_ns, self._end[last]) - self._start[last]
        return np.where(last < 0, 0, self._before[last] + open_ns)


def running_time(start_ns: Ints, end_ns: Ints, from_ns: Ints, to_ns: Ints) -> Ints:
    """Sum the times that all intervals run inside each [from_ns, to_ns)."""
    return _elapsed(start_ns, end_ns, to_ns) - _elapsed(start_ns, end_ns, from_ns)


def _elapsed(start_ns: Ints, end_ns: Ints, at_ns: Ints) -> Ints:
    """Sum the times that all intervals have run before each of ``at_ns``."""
    return _since(np.sort(start_ns), at_ns) - _since(np.sort(end_ns), at_ns)


def _since(sorted_ns: Ints, at_ns: Ints) -> Ints:
    """Sum the distances from each time to all earlier ``sorted_ns``."""
    count = np.searchsorted(sorted_ns, at_ns)
    # A sum may wrap at 64 bits, but the caller's difference of two sums is exact.
    return np.asarray(count * at_ns - np.append(0, np.cumsum(sorted_ns))[count], dtype=np.int64)
