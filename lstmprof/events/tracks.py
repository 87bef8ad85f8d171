"""The sorts of the events of a run, and its windows, without unpacking all events.

A sort is the events of one kind on one thread or device of a rank; kernel launches are a sort of
their own among the runtime calls. They are few, and tell most of what holds of a whole run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lstmprof.events.annotate.calls import is_kernel_launch
from lstmprof.events.intervals import Ints
from lstmprof.events.numbering import numbered
from lstmprof.events.packed import Packed

#: What these functions and ``batches`` read.
READS = ("event_id", "kind", "name", "start_ns", "dur_ns", "rank", "pid", "tid", "device")
#: What a sort is of, beside the kind.
_PLACE = ("rank", "pid", "tid", "device")
#: Rows that are looked at at once.
_PIECE = 2**18
#: A thread has at most four rows in ``windows_of``: two sorts of runtime calls, first and last.
_MORE_THAN_OTHERS = 5

#: pid and tid, each (known, value)
_Thread = tuple[tuple[bool, int], ...]


@dataclass(frozen=True)
class Sorts:
    """One entry a sort: rows of the first event and of one that ends last, and how many it has."""

    first: Ints
    last: Ints
    count: Ints


def sorts(packed: Packed) -> Sorts:
    """The sorts of the events, gathered piece by piece."""
    found: dict[tuple[int, ...], list[int]] = {}
    launching = np.array([*map(is_kernel_launch, packed.texts("name")), False])
    runtime = [*packed.texts("kind"), "runtime"].index("runtime")
    for begin in range(0, len(packed), _PIECE):
        rows = slice(begin, begin + _PIECE)
        end_ns = packed.values("start_ns", rows).astype(np.int64) + packed.values("dur_ns", rows)
        kind = packed.codes("kind", rows)
        keys = [kind, launching[packed.codes("name", rows)] & (kind == runtime)]
        keys += [packed.known(name, rows) for name in _PLACE]
        keys += [packed.values(name, rows) for name in _PLACE]
        of = _numbered_few(keys)
        count = np.bincount(of)
        first, last = (np.empty(len(count), dtype=np.int64) for _ in range(2))
        first[of[::-1]] = np.arange(len(of))[::-1]
        reached = np.full(len(count), np.iinfo(np.int64).min)
        np.maximum.at(reached, of, end_ns)
        latest = np.flatnonzero(end_ns == reached[of])
        last[of[latest]] = latest
        said = zip(*(key[first].tolist() for key in keys), strict=True)
        told = np.stack([begin + first, begin + last, reached, count], axis=1).tolist()
        for sort, (one, late, until, many) in zip(said, told, strict=True):
            known = found.setdefault(sort, [one, late, until, 0])
            if until > known[2]:
                known[1:3] = late, until
            known[3] += many
    columns = np.array(list(found.values()), dtype=np.int64).reshape(-1, 4)
    return Sorts(columns[:, 0], columns[:, 1], columns[:, 3])


def _numbered_few(keys: list[np.ndarray]) -> Ints:
    """Each position's number among the distinct combinations of ``keys``, in any order."""
    code = np.zeros(len(keys[0]), dtype=np.int64)
    room = 1
    for key in keys:
        low, high = int(key.min()), int(key.max())
        if high == low:
            continue
        if room * (high - low + 1) >= 2**62:
            code, room = numbered(code), len(code)
            key, low, high = numbered(key.astype(np.int64)), 0, len(code)
        code = code * (high - low + 1) + (key.astype(np.int64) - low)
        room *= high - low + 1
    return np.asarray(pa.array(code).dictionary_encode().indices.to_numpy(), dtype=np.int64)
