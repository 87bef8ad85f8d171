"""The tables of a profile that is a database, read as columns.

What holds them is SQLite (``sqlite``) or a folder of Parquet files (``parquet``), for which nobody
vouches. A value of another type than asked for is unknown.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Ints = NDArray[np.int64]

#: Stands for null in arrays of these readers, never in the events table.
UNKNOWN = int(np.iinfo(np.int64).min)


class Tables(ABC):
    """The tables of a profile; ``columns`` names those of each that can be read."""

    @property
    @abstractmethod
    def columns(self) -> Mapping[str, frozenset[str]]:
        """The columns of each table."""

    @abstractmethod
    def int_chunks(self, table: str, *names: str) -> Iterator[dict[str, Ints]]:
        """These columns, some rows at a time, as ``ints``."""

    @abstractmethod
    def text_chunks(self, table: str, name: str) -> Iterator[pa.Array]:
        """One column in Arrow's memory, some rows at a time, as many as of ``int_chunks``.

        A value that is no text is null. There is none where there is no such column.
        """

    def ints(self, table: str, *names: str) -> dict[str, Ints]:
        """These columns; ``UNKNOWN`` where a value, or the whole column, is no integer."""
        chunks = list(self.int_chunks(table, *names))
        nothing = np.empty(0, np.int64)
        return {name: np.concatenate([nothing, *(read[name] for read in chunks)]) for name in names}

    def texts(self, table: str, name: str) -> list[str | None]:
        """One column, None where it holds no text; empty where there is no such column."""
        return [text for chunk in self.text_chunks(table, name) for text in chunk.to_pylist()]

    def strings(self, table: str, key: str, value: str) -> dict[int, str]:
        """The texts of a table of strings by their numbers; empty where there is no such table."""
        if not {key, value} <= self.columns.get(table, frozenset()):
            return {}
        keys = self.ints(table, key)[key].tolist()
        pairs = zip(keys, self.texts(table, value), strict=True)
        return {number: text for number, text in pairs if text is not None}
