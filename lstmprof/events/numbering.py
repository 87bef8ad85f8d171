"""Rows that agree in some columns, numbered: without sorting rows, in time linear in them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Ints = NDArray[np.int64]

#: Values spread over at most this many times their number are counted, others are hashed.
_SPARSE = 4
#: What stands for null (``threads.UNKNOWN``): it comes first, and is not counted from.
_NULL = np.iinfo(np.int64).min


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
    known = key != _NULL
    low = int(key.min(where=known, initial=np.iinfo(np.int64).max)) - 1
    high = int(key.max())
    if high - low > _SPARSE * len(key) + 64:
        return _hashed(key)
    shifted = np.where(known, key, low) - low
    present = np.zeros(high - low + 1, dtype=np.int64)
    present[shifted] = 1
    return np.asarray((np.cumsum(present) - 1)[shifted], dtype=np.int64)


def _hashed(key: Ints) -> Ints:
    encoded = pa.array(key).dictionary_encode()
    place = np.empty(len(encoded.dictionary), dtype=np.int64)
    place[np.argsort(encoded.dictionary.to_numpy())] = np.arange(len(place))
    return np.asarray(place[encoded.indices.to_numpy()], dtype=np.int64)
