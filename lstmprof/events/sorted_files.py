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
class _Ends:
    path: Path
    first_ns: int
    last_ns: int


@dataclass(frozen=True)
class SortedFiles:
    """Files of ``write_columns``, a row or more in each, sorted by their column ``time``."""

    paths: Sequence[Path]
    time: str

    @property
    def first_ns(self) -> int:
        """The earliest time."""
        return min(ends.first_ns for ends in self._ends)

    def borders(self, rows: int) -> list[int]:
        """Times between which lie about so many ``rows``, one or more; the last is after all."""
        every = max(1, min(_SAMPLED, rows // _SAMPLED))
        sampled = [self._times(path)[::every].astype(np.int64) for path in self.paths]
        first = np.unique(np.sort(np.concatenate(sampled))[:: max(1, rows // every)])
        return [*first.tolist(), max(ends.last_ns for ends in self._ends) + 1]

    def between(self, first_ns: int, end_ns: int) -> list[pa.RecordBatch]:
        """Of each file the rows of [first_ns, end_ns), in the order of the files."""
        return [
            self._cut(read_columns(ends.path), first_ns, end_ns)
            for ends in self._ends
            if ends.first_ns < end_ns and ends.last_ns >= first_ns
        ]

    def remove_ending(self, first_ns: int, end_ns: int) -> None:
        """Remove the files whose last row is in [first_ns, end_ns)."""
        for ends in self._ends:
            if first_ns <= ends.last_ns < end_ns:
                ends.path.unlink()

    @cached_property
    def _ends(self) -> list[_Ends]:
        return [_Ends(path, *self._times(path)[[0, -1]].tolist()) for path in self.paths]

    def _times(self, path: Path) -> Ints:
        times: Ints = read_columns(path).column(self.time).to_numpy()
        return times

    def _cut(self, columns: pa.RecordBatch, first_ns: int, end_ns: int) -> pa.RecordBatch:
        first, end = np.searchsorted(columns.column(self.time).to_numpy(), (first_ns, end_ns))
        return columns.slice(first, end - first)
