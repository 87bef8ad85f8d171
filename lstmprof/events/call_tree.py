"""Host events nested in each other: what is around an event, sums over all beneath it.

Without recursion. For the sums every event gets a place so that it and all beneath it fill
[place, place + size): a preorder of the forest that ``parent_id`` spans. Works level by level, so
the loop is over the depth of nesting.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.table import NONE, EventTable

#: Integers, in the narrowest type that holds them.
Codes = NDArray[Any]


def own_time(events: EventTable) -> Ints:
    """Duration less that of the events directly inside; a profiler's jitter is no negative time."""
    dur = events.dur_ns
    time_ns = dur.copy()
    parent = events.rows_named("parent_id")
    inner = np.flatnonzero(parent != NONE)
    np.subtract.at(time_ns, parent[inner], dur[inner])
    return np.asarray(np.maximum(time_ns, 0), dtype=np.int64)


def inherited(parent: Codes, values: Codes) -> Codes:
    """``values`` where a row has one (not ``NONE``), else that of its nearest ancestor that has."""
    value = values.copy()
    above = parent.copy()
    is_none = value == NONE
    open_rows = np.flatnonzero(is_none & (above != NONE)) if not is_none.all() else above[:0]
    while len(open_rows):
        value[open_rows] = value[above[open_rows]]
        above[open_rows] = above[above[open_rows]]
        open_rows = open_rows[(value[open_rows] == NONE) & (above[open_rows] != NONE)]
    return value


class Forest:
    """The rows of events by ``parent``, a row number each, ``NONE`` for a root."""

    def __init__(self, parent: Ints) -> None:
        depth = _depths(parent)
        by_depth = np.argsort(depth, kind="stable")
        bounds = np.searchsorted(depth[by_depth], np.arange(int(depth.max(initial=0)) + 2))
        levels = [by_depth[a:b] for a, b in pairwise(bounds)]
        self.size = np.ones(len(parent), dtype=np.int64)
        for rows in levels[:0:-1]:
            np.add.at(self.size, parent[rows], self.size[rows])
        self.place = _after_siblings(parent, self.size)
        for rows in levels[1:]:
            self.place[rows] += self.place[parent[rows]] + 1

    def beneath(self, values: Ints) -> Ints:
        """For each row the sum of ``values`` over it and all rows beneath it."""
        placed = np.empty(len(values), dtype=np.int64)
        placed[self.place] = values
        until = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(placed)])
        return np.asarray(until[self.place + self.size] - until[self.place], dtype=np.int64)

    def outermost(self, rows: Ints, code: Ints) -> Flags:
        """For each of ``rows``: none of the others with its ``code`` encloses it.

        ``code`` has one, 0 or more, a row of the forest.
        """
        span = len(self.place) + 1
        begin = code[rows] * span + self.place[rows]
        order = np.argsort(begin)
        reached = np.maximum.accumulate((begin + self.size[rows])[order])
        flags = np.ones(len(rows), dtype=np.bool_)
        flags[order[1:]] = reached[:-1] <= begin[order][1:]
        return flags


def _depths(parent: Ints) -> Ints:
    """Events around each row, by jumps that double."""
    depth: Ints = (parent != NONE).astype(np.int64)
    above = parent.copy()
    rows = np.flatnonzero(above != NONE)
    while len(rows):
        depth[rows] += depth[above[rows]]
        above[rows] = above[above[rows]]
        rows = rows[above[rows] != NONE]
    return depth


def _after_siblings(parent: Ints, size: Ints) -> Ints:
    """For each row the size of the siblings before it."""
    order = np.argsort(parent, kind="stable")
    offset = np.cumsum(size[order]) - size[order]
    new = np.append(True, parent[order][1:] != parent[order][:-1])[: len(order)]
    first = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    place = np.empty(len(parent), dtype=np.int64)
    place[order] = offset - offset[first]
    return place
