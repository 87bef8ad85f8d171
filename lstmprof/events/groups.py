"""Rows that agree in some columns, and sums of them, without a loop over rows.

Everywhere a position is an index into the arrays that were grouped, not a row of events.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.table import UNKNOWN, EventTable

#: Values spread over at most this many times their number are counted, others are hashed.
_SPARSE = 4


class Groups:
    """Positions with equal ``keys``; ``of`` is the number of each one's group, by order of keys."""

    def __init__(self, *keys: Ints) -> None:
        self.of: Ints = numbered(*keys)
        self.count = int(self.of.max(initial=-1)) + 1
        self.first = np.full(self.count, len(self.of), dtype=np.int64)
        np.minimum.at(self.first, self.of, np.arange(len(self.of)))

    def members(self) -> list[Ints]:
        """The positions of each group, in their order."""
        ends = np.cumsum(self.sizes())
        return np.split(np.argsort(self.of, kind="stable"), ends[:-1]) if self.count else []

    def sizes(self, where: Flags | None = None) -> Ints:
        """Positions in each group; only those where ``where`` holds."""
        chosen = self.of if where is None else self.of[where]
        return np.bincount(chosen, minlength=self.count).astype(np.int64)

    def sums(self, values: Ints, where: Flags | None = None) -> Ints:
        """Sum of ``values`` in each group, exact."""
        total = np.zeros(self.count, dtype=np.int64)
        chosen = slice(None) if where is None else where
        np.add.at(total, self.of[chosen], values[chosen])
        return total


def ratio(amounts: Ints, counts: Ints) -> pa.Array:
    """``amounts`` over ``counts``; null where that is 0."""
    return pa.array(amounts / np.maximum(counts, 1), pa.float64(), mask=counts == 0)


def texts_at(values: Sequence[str], codes: Ints) -> pa.Array:
    """The text of each of ``codes``, null at ``NONE``."""
    return pa.array(values, pa.string()).take(pa.array(codes, mask=codes < 0))


def where_known(values: Ints, is_known: Flags) -> pa.Array:
    """``values``, null where not ``is_known``."""
    return pa.array(values, mask=~is_known)


def heads(events: EventTable, rows: Ints, groups: Groups, columns: Sequence[str]) -> list[pa.Array]:
    """``columns`` of the first row of each group, dictionaries decoded."""
    first = events.select(list(columns)).take(pa.array(rows[groups.first]))
    return [
        c.cast(c.type.value_type) if pa.types.is_dictionary(c.type) else c for c in first.columns
    ]


def numbered(*keys: Ints) -> Ints:
    """Each position's place among the distinct combinations of ``keys``, the first key first."""
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
    has_value = key != UNKNOWN  # it comes first, and is not counted from
    low = int(key.min(where=has_value, initial=np.iinfo(np.int64).max)) - 1
    high = int(key.max())
    if high - low > _SPARSE * len(key) + 64:
        return _hashed(key)
    shifted = np.where(has_value, key, low) - low
    present = np.zeros(high - low + 1, dtype=np.int64)
    present[shifted] = 1
    return np.asarray((np.cumsum(present) - 1)[shifted], dtype=np.int64)


def _hashed(key: Ints) -> Ints:
    encoded = pa.array(key).dictionary_encode()
    place = np.empty(len(encoded.dictionary), dtype=np.int64)
    place[np.argsort(encoded.dictionary.to_numpy())] = np.arange(len(place))
    return np.asarray(place[encoded.indices.to_numpy()], dtype=np.int64)
