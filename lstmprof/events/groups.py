"""Group rows by equal columns or by nesting, and sum over groups, without a loop over rows.

Nested rows have preorder numbers: a row and all rows inside have [preorder, preorder + size).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.table import NONE, UNKNOWN, EventTable

#: Array of integers in the narrowest type that can hold all of these integers.
Codes = NDArray[Any]


def own_time(events: EventTable, parent: Ints | None = None) -> Ints:
    """Return the time of each event without its direct children, in ns."""
    dur = events.dur_ns
    time_ns = dur.copy()
    parent = events.rows_named("parent_id") if parent is None else parent
    inner = np.flatnonzero(parent != NONE)
    np.subtract.at(time_ns, parent[inner], dur[inner])
    return np.asarray(np.maximum(time_ns, 0), dtype=np.int64)


def inherited(parent: Codes, values: Codes) -> Codes:
    """Return each row's value, or the value of the nearest ancestor with a value."""
    value = values.copy()
    above = parent.copy()
    is_none = value == NONE
    open_rows = np.flatnonzero(is_none & (above != NONE)) if not is_none.all() else above[:0]
    while len(open_rows):
        value[open_rows] = value[above[open_rows]]
        above[open_rows] = above[above[open_rows]]
        open_rows = open_rows[(value[open_rows] == NONE) & (above[open_rows] != NONE)]
    return value


def nearest(parent: Codes, mask: Flags) -> Ints:
    """Return the row itself or its nearest ancestor in ``mask``, or ``NONE``."""
    return np.asarray(inherited(parent, np.where(mask, np.arange(len(mask)), NONE)), np.int64)


def values_at(values: Ints, rows: Ints) -> Ints:
    """Look up ``values[row]``, and ``NONE`` for the row ``NONE``."""
    valid: Flags = rows != NONE
    result = np.full(len(rows), NONE, dtype=np.int64)
    result[valid] = values[rows[valid]]
    return result


class Forest:
    """Trees of nested rows, from the parent of each row (``NONE`` for a root)."""

    def __init__(self, parent: Ints) -> None:
        depth = _depths(parent)
        by_depth = np.argsort(depth, kind="stable")
        bounds = np.searchsorted(depth[by_depth], np.arange(int(depth.max(initial=0)) + 2))
        levels = [by_depth[a:b] for a, b in pairwise(bounds)]
        # number of rows inside each row, including the row itself
        self.size = np.ones(len(parent), dtype=np.int64)
        for rows in levels[:0:-1]:
            np.add.at(self.size, parent[rows], self.size[rows])
        self.preorder = _after_siblings(parent, self.size)
        for rows in levels[1:]:
            self.preorder[rows] += self.preorder[parent[rows]] + 1

    def beneath(self, values: Ints) -> Ints:
        """Sum the ``values`` of each row and of all rows inside the row."""
        placed = np.empty(len(values), dtype=np.int64)
        placed[self.preorder] = values
        until = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(placed)])
        return np.asarray(until[self.preorder + self.size] - until[self.preorder], dtype=np.int64)

    def outermost(self, rows: Ints, code: Ints) -> Flags:
        """Return which ``rows`` are not inside another row with an equal ``code``."""
        span = len(self.preorder) + 1
        begin = code[rows] * span + self.preorder[rows]
        order = np.argsort(begin)
        reached = np.maximum.accumulate((begin + self.size[rows])[order])
        flags = np.ones(len(rows), dtype=np.bool_)
        flags[order[1:]] = reached[:-1] <= begin[order][1:]
        return flags


def _depths(parent: Ints) -> Ints:
    """Return the number of ancestors of each row."""
    depth: Ints = (parent != NONE).astype(np.int64)
    above = parent.copy()
    rows = np.flatnonzero(above != NONE)
    # Add depths by pointer jumping: each pass follows links twice as far as the pass before.
    while len(rows):
        depth[rows] += depth[above[rows]]
        above[rows] = above[above[rows]]
        rows = rows[above[rows] != NONE]
    return depth


def _after_siblings(parent: Ints, size: Ints) -> Ints:
    """Return, for each row, the sum of the sizes of the row's earlier siblings."""
    order = np.argsort(parent, kind="stable")
    offset = np.cumsum(size[order]) - size[order]
    new = np.append(True, parent[order][1:] != parent[order][:-1])[: len(order)]
    first = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    before = np.empty(len(parent), dtype=np.int64)
    before[order] = offset - offset[first]
    return before


#: Largest ratio (range of keys / number of keys) for which an array is used, not a hash table.
_SPARSE = 4


class Groups:
    """Groups of the positions that have equal keys, in order of the keys."""

    def __init__(self, *keys: Ints) -> None:
        # number of the group at each position
        self.of: Ints = numbered(*keys)
        self.count = int(self.of.max(initial=-1)) + 1
        self.first = np.full(self.count, len(self.of), dtype=np.int64)
        np.minimum.at(self.first, self.of, np.arange(len(self.of)))

    def members(self) -> list[Ints]:
        """Return the sorted positions of each group."""
        ends = np.cumsum(self.sizes())
        return np.split(np.argsort(self.of, kind="stable"), ends[:-1]) if self.count else []

    def sizes(self, where: Flags | None = None) -> Ints:
        """Count the positions of each group, or only the positions in ``where``."""
        chosen = self.of if where is None else self.of[where]
        return np.bincount(chosen, minlength=self.count).astype(np.int64)

    def sums(self, values: Ints, where: Flags | None = None) -> Ints:
        """Sum the integers of each group, or only the integers in ``where``."""
        total = np.zeros(self.count, dtype=np.int64)
        chosen = slice(None) if where is None else where
        np.add.at(total, self.of[chosen], values[chosen])
        return total

    def sorted(self, values: Ints, where: Flags | None = None) -> SortedValues:
        """Sort the values of each group, or only the values in ``where``."""
        chosen = slice(None) if where is None else where
        return SortedValues(self.of[chosen], values[chosen], self.count)


class SortedValues:
    """Values that are sorted within each group."""

    def __init__(self, of: Ints, values: Ints, count: int) -> None:
        self.sizes = np.bincount(of, minlength=count)
        self._first = np.cumsum(self.sizes) - self.sizes
        span = int(values.max(initial=0)) + 1
        if span * (count + 1) >= 2**63 or values.min(initial=0) < 0:
            self._values = values[np.lexsort((values, of))]
        else:  # sorting one array is faster
            self._values = of.astype(np.int64) * span + values
            self._values.sort()
            self._values %= span

    def at(self, index: Ints) -> Ints:
        """Return the value at a 0-based index within each group; 0 for an empty group."""
        if not len(self._values):
            return np.zeros(len(self.sizes), dtype=np.int64)
        place = np.minimum(self._first + index, len(self._values) - 1)
        return np.where(self.sizes > 0, self._values[place], 0).astype(np.int64)

    def percentile(self, share: int) -> Ints:
        """Return a percentile (0–100, nearest rank) of each group; 0 for an empty group."""
        return self.at(np.maximum(-(-self.sizes * share // 100), 1) - 1)


def latest_ends(lane: Ints, end: Ints) -> Ints:
    """Find, for each interval, the interval of its stream so far that ends last."""
    # ``lane`` is the number of each interval's stream, and must be sorted
    by_end = np.argsort(end, kind="stable")
    rank = np.empty(len(end), dtype=np.int64)
    rank[by_end] = np.arange(len(end))
    return np.asarray(by_end[np.maximum.accumulate(lane * len(end) + rank) % max(len(end), 1)])


def ratio(amounts: Ints, counts: Ints) -> pa.Array:
    """Divide ``amounts`` by ``counts``; null where the count is 0."""
    return pa.array(amounts / np.maximum(counts, 1), pa.float64(), mask=counts == 0)


def texts_at(values: Sequence[str], codes: Ints) -> pa.Array:
    """Look up ``values[code]``, and null for the code ``NONE``."""
    return pa.array(values, pa.string()).take(pa.array(codes, mask=codes < 0))


def where_known(values: Ints, is_known: Flags) -> pa.Array:
    return pa.array(values, mask=~is_known)


def heads(events: EventTable, rows: Ints, groups: Groups, columns: Sequence[str]) -> list[pa.Array]:
    """Return ``columns`` of the first event of each group."""
    first = events.select(list(columns)).take(pa.array(rows[groups.first]))
    return [
        c.cast(c.type.value_type) if pa.types.is_dictionary(c.type) else c for c in first.columns
    ]


def distinct(values: Ints) -> Ints:
    """Return the distinct values, sorted."""
    # Sort, because np.unique hashes the values and takes four times as long (NumPy 2.4.6).
    ordered = np.sort(values)
    new = np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]
    return np.asarray(ordered[new], dtype=np.int64)


def numbered(*keys: Ints) -> Ints:
    """Give equal keys equal numbers, in sorted order: [7, 7, 3] -> [1, 1, 0]."""
    code = _numbered(keys[0])
    for key in keys[1:]:
        number = _numbered(key)
        count = int(number.max(initial=0)) + 1
        if count > 1:
            code = _numbered(code * count + number)
    return code


def _numbered(key: Ints) -> Ints:
    if not len(key) or key.min() == key.max():
        return np.zeros(len(key), dtype=np.int64)
    has_value = key != UNKNOWN  # null sorts first
    low = int(key.min(where=has_value, initial=np.iinfo(np.int64).max)) - 1
    high = int(key.max())
    if high - low > _SPARSE * len(key) + 64:
        encoded = pa.array(key).dictionary_encode()
        rank = np.empty(len(encoded.dictionary), dtype=np.int64)
        rank[np.argsort(encoded.dictionary.to_numpy())] = np.arange(len(rank))
        return np.asarray(rank[encoded.indices.to_numpy()], dtype=np.int64)
    shifted = np.where(has_value, key, low) - low
    present = np.zeros(high - low + 1, dtype=np.int64)
    present[shifted] = 1
    return np.asarray((np.cumsum(present) - 1)[shifted], dtype=np.int64)
