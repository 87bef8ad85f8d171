"""Files of rows, each sorted by a time, read as one by stretches of that time.

::

    files                     a a a b | b b c | c c d
    between their borders     a a a | b b b | c c c | d
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from lstmprof.events.intervals import Ints
from lstmprof.events.stored import read_columns

#: One row of so many is looked at to find borders.
_SAMPLED = 32


@dataclass(frozen=True)
class SortedFiles:
    """Files of ``write_columns``, a row or more in each, sorted by their column ``time``."""

    paths: Sequence[Path]
    time: str

    @property
    def first_ns(self) -> int:
        """The earliest time."""
        return int(self._ends[0].min())

    @property
    def most_at_once(self) -> int:
        """In how many files a time lies, of the time that lies in most: between their ends."""
        first, last = (np.sort(times) for times in self._ends)
        begun, ended = np.arange(1, len(first) + 1), np.searchsorted(last, first)
        return int((begun - ended).max())

    def borders(self, rows: int) -> list[int]:
        """Times between which lie about so many ``rows``, one or more; the last is after all."""
        every = max(1, min(_SAMPLED, rows // _SAMPLED))
        sampled = [self._times(path)[::every].astype(np.int64) for path in self.paths]
        first = np.unique(np.sort(np.concatenate(sampled))[:: max(1, rows // every)])
        return [*first.tolist(), int(self._ends[1].max()) + 1]

    def between(self, first_ns: int, end_ns: int) -> list[pa.RecordBatch]:
        """Of each file the rows of [first_ns, end_ns), in the order of the files."""
        first, last = self._ends
        there = np.flatnonzero((first < end_ns) & (last >= first_ns))
        return [self._cut(read_columns(self.paths[n]), first_ns, end_ns) for n in there.tolist()]

    def remove_ending(self, first_ns: int, end_ns: int) -> None:
        """Remove the files whose last row is in [first_ns, end_ns)."""
        last = self._ends[1]
        for number in np.flatnonzero((last >= first_ns) & (last < end_ns)).tolist():
            self.paths[number].unlink()

    @cached_property
    def _ends(self) -> tuple[Ints, Ints]:
        """The first and the last time of each file."""
        ends = [self._times(path)[[0, -1]].tolist() for path in self.paths]
        first, last = np.array(ends, dtype=np.int64).T
        return first, last

    def _times(self, path: Path) -> Ints:
        times: Ints = read_columns(path).column(self.time).to_numpy()
        return times

    def _cut(self, columns: pa.RecordBatch, first_ns: int, end_ns: int) -> pa.RecordBatch:
        first, end = np.searchsorted(columns.column(self.time).to_numpy(), (first_ns, end_ns))
        return columns.slice(first, end - first)
