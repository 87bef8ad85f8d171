"""An events table whose columns lie in files: for profiles whose table would fill the memory.

A reader spools chunks of columns as they come (``Spool``); ``Spool.events`` sorts them into a
``StoredEvents``, a column at a time. That stands wherever an events table does that is read by
columns: a column is in memory while somebody holds it, and integers lie there in the narrowest type
that holds them. All files lie in one temporary folder, which goes with the last that needs it.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from lstmprof.events.narrow import narrowed
from lstmprof.events.schema import SCHEMA
from lstmprof.events.table import EventTable, cast
from lstmprof.scratch import made_temporary_folder, remove, room_in

#: Rows of a batch on disk and of a row group in Parquet.
BATCH_ROWS = 2**17
#: Columns that are sorted at once.
_THREADS = 2
_TYPES = {field.name: field.type for field in SCHEMA}


class Folder:
    """A temporary folder that goes with this object; what killed processes left goes too.

    Raises:
        LstmprofError: it cannot be made.
    """

    def __init__(self) -> None:
        self.path = made_temporary_folder()
        self.remove = weakref.finalize(self, remove, self.path)


def write_columns(path: Path, columns: pa.Table) -> None:
    """Write ``columns`` of the events table to ``path``, each in the narrowest type.

    Raises:
        LstmprofError: there is no room.
    """
    narrow = pa.table({n: narrowed(_chunk(columns.column(n))) for n in columns.column_names})
    with room_in(path.parent), pa.ipc.new_file(str(path), narrow.schema) as file:
        file.write_table(narrow, max_chunksize=BATCH_ROWS)


def _chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _widened(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(type_):
        indices = array.indices.cast(type_.index_type)
        return pa.DictionaryArray.from_arrays(indices, array.dictionary)
    return array.cast(type_)


def _batches(path: Path, name: str, place: int = 0) -> Iterator[pa.Array]:
    """Column ``name`` of the file ``path``, its number ``place``, batch by batch.

    As the events table types it.
    """
    options = pa.ipc.IpcReadOptions(included_fields=[place])
    with pa.OSFile(str(path)) as opened, pa.ipc.open_file(opened, options=options) as file:
        for number in range(file.num_record_batches):
            yield _widened(file.get_batch(number).column(0), _TYPES[name])


@dataclass(frozen=True)
class Spool:
    """Columns of events in chunks, in the order of the profile: files that ``write_columns`` wrote.

    ``chunks`` are (file, rows); a column that one of them does not have is null in it.
    """

    folder: Folder
    chunks: Sequence[tuple[Path, int]]

    def column(self, name: str) -> pa.ChunkedArray:
        """The column ``name`` of all chunks."""
        parts: list[pa.Array] = []
        for (path, rows), names in zip(self.chunks, self._names, strict=True):
            if name in names:
                parts += _batches(path, name, names.index(name))
            else:
                parts.append(pa.nulls(rows, _TYPES[name]))
        return pa.chunked_array(parts, _TYPES[name]).unify_dictionaries()

    def events(self, origin_ns: int, rank: int | None) -> StoredEvents:
        """The events table of these columns, their times counted from ``origin_ns``.

        The chunks are removed.
        """
        start_ns = self.column("start_ns").to_numpy() - origin_ns
        descending = np.negative(self.column("dur_ns").to_numpy())
        order = np.lexsort((descending, start_ns)).astype(np.int32)  # 2**31 events are 500 GB
        events = StoredEvents(self.folder, len(order), {}).with_columns(
            {
                "event_id": pa.array(np.arange(len(order), dtype=np.int32)),
                "start_ns": pa.array(start_ns[order]),
                "dur_ns": pa.array(np.negative(descending[order])),
                "rank": pa.repeat(pa.scalar(rank, pa.int64()), len(order)),
            }
        )
        del start_ns, descending
        places = pa.array(order)

        def sorted_column(name: str) -> Path:
            return events.stored(name, _chunk(self.column(name)).take(places))

        names = sorted({name for names in self._names for name in names} - {"start_ns", "dur_ns"})
        with ThreadPoolExecutor(_THREADS) as pool:
            columns = dict(zip(names, pool.map(sorted_column, names), strict=True))
        for path, _ in self.chunks:
            path.unlink()
        return events.joined(columns)

    @cached_property
    def _names(self) -> list[list[str]]:
        """The columns of each chunk, in its order."""
        return [_names(path) for path, _ in self.chunks]


def _names(path: Path) -> list[str]:
    with pa.OSFile(str(path)) as opened:
        return list(pa.ipc.open_file(opened).schema.names)


class StoredEvents(EventTable):
    """An events table on disk: ``columns`` are files; a column that has none is all null.

    Nothing of it is kept in memory.
    """

    def __init__(
        self,
        folder: Folder,
        num_rows: int,
        columns: Mapping[str, Path],
    ) -> None:
        self.num_rows = num_rows
        self._folder = folder
        self._columns = columns
        self._kept = {}

    def __len__(self) -> int:
        return self.num_rows

    @property
    def arrow(self) -> pa.Table:
        """The whole table, in memory."""
        return self.select(SCHEMA.names).arrow.cast(SCHEMA)

    def select(self, columns: Sequence[str]) -> EventTable:
        """These columns of all rows, in memory."""
        return EventTable(pa.table({name: self.column(name) for name in columns}))

    def column(self, name: str) -> pa.ChunkedArray:
        """The column ``name``, in memory, in one chunk."""
        return pa.chunked_array([pa.concat_arrays(list(self._batches(name)))], _TYPES[name])

    def with_columns(self, columns: Mapping[str, Any]) -> StoredEvents:
        """This table with these columns replaced; values as for ``events_table``, in row order.

        Raises:
            LstmprofError: there is no room.
        """
        arrays = {name: cast(values, _TYPES[name]) for name, values in columns.items()}
        return self.joined({name: self.stored(name, values) for name, values in arrays.items()})

    def stored(self, name: str, values: pa.Array) -> Path:
        """A file of this table's folder that holds ``values`` as the column ``name``.

        Raises:
            LstmprofError: there is no room.
        """
        with room_in(self._folder.path):
            number, path = tempfile.mkstemp(prefix=f"{name}-", dir=self._folder.path)
            os.close(number)
        write_columns(Path(path), pa.table({name: values}))
        pa.default_memory_pool().release_unused()
        return Path(path)

    def joined(self, columns: Mapping[str, Path]) -> StoredEvents:
        """This table with these columns replaced by what is ``stored`` in files."""
        return StoredEvents(self._folder, self.num_rows, {**self._columns, **columns})

    def write_parquet(self, path: Path) -> None:
        """Write the table to ``path``, a row group a batch."""
        batches = zip(*(self._batches(name) for name in SCHEMA.names), strict=True)
        with pq.ParquetWriter(path, SCHEMA, compression="zstd") as file:
            for arrays in batches:
                file.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA))

    def _keeps(self) -> bool:
        return False

    def _batches(self, name: str) -> Iterator[pa.Array]:
        if name in self._columns:
            yield from _batches(self._columns[name], name)
            return
        for start in range(0, self.num_rows, BATCH_ROWS):
            yield pa.nulls(min(BATCH_ROWS, self.num_rows - start), _TYPES[name])
