"""Rows of integers on disk, parted by a number of each: what a key joins lies together.

So a join of more rows than memory holds is one of few rows, part by part (a Grace hash join).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lstmprof.events.intervals import Ints
from lstmprof.scratch import room_in


class Partitions:
    """Rows of ``width`` int64 in files of a new folder ``path``, one a number."""

    def __init__(self, path: Path, width: int) -> None:
        with room_in(path.parent):
            path.mkdir()
        self._path, self._width = path, width
        self.numbers: set[int] = set()

    def add(self, numbers: Ints, *columns: Ints) -> None:
        """Add rows of these columns, each to the part of its number; in a part they stay in order.

        Raises:
            LstmprofError: there is no room.
        """
        if not len(numbers):
            return
        order = np.argsort(numbers, kind="stable")
        rows = np.stack(columns, axis=1)[order].astype(np.int64)
        distinct, first = np.unique(numbers[order], return_index=True)
        with room_in(self._path):
            for number, part in zip(distinct.tolist(), np.split(rows, first[1:]), strict=True):
                with (self._path / str(number)).open("ab") as file:
                    file.write(part.tobytes())
        self.numbers.update(distinct.tolist())

    def columns(self, number: int) -> list[Ints]:
        """The columns of the rows of this number, none or more."""
        if number not in self.numbers:
            return [np.empty(0, dtype=np.int64) for _ in range(self._width)]
        rows = np.fromfile(self._path / str(number), dtype=np.int64).reshape(-1, self._width)
        return list(np.ascontiguousarray(rows.T))
