"""An events table on disk, in batches by time, for profiles larger than memory.

Each file in a temporary folder has columns of one batch. Integers have the narrowest type. A text
is stored as a code: the text's number in the list of distinct texts in memory (``Texts``).
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from lstmprof.base.scratch import made_temporary_folder, remove, room_in
from lstmprof.events.intervals import Ints
from lstmprof.events.narrow import narrowed, with_own_texts
from lstmprof.events.schema import SCHEMA
from lstmprof.events.table import NONE, EventTable, cast, parquet_writer

_TYPES = {field.name: field.type for field in SCHEMA}
#: Columns of text; on disk, each text is an index into ``Texts``.
TEXT_COLUMNS = tuple(name for name, type_ in _TYPES.items() if pa.types.is_dictionary(type_))
_CODE = pa.int32()


class Folder:
    """A temporary folder, deleted when this object is no longer used."""

    def __init__(self, base: Path | None = None) -> None:
        if base:
            with room_in(base):
                # never delete this folder, because another process may still use the folder
                self.path = Path(tempfile.mkdtemp(dir=base))
        else:
            self.path = made_temporary_folder()
            self.remove = weakref.finalize(self, remove, self.path)
        self._count = 0

    def new(self, name: str) -> Path:
        """Return an unused path in the folder, such as ``batch-3``."""
        self._count += 1
        return self.path / f"{name}-{self._count}"

    def move_in(self, path: Path) -> Path:
        place = self.new(path.name)
        with room_in(self.path):
            shutil.move(path, place)
        return place


def write_columns(path: Path, columns: pa.Table) -> None:
    """Write columns to a file, in the narrowest types."""
    narrow = pa.table({n: narrowed(_chunk(columns.column(n))) for n in columns.column_names})
    with room_in(path.parent), pa.ipc.new_file(str(path), narrow.schema) as file:
        file.write_table(narrow)


def _chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def read_columns(path: Path) -> pa.RecordBatch:
    """Open a file that ``write_columns`` wrote."""
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_file(file).get_batch(0)


class Texts:
    """The distinct texts of each column, numbered in order of first use."""

    def __init__(self) -> None:
        self._of: dict[str, pa.Array] = {}

    def of(self, name: str) -> pa.Array:
        return self._of.get(name, pa.array([], pa.string()))

    def coded(self, name: str, columns: Sequence[pa.DictionaryArray]) -> list[pa.Array]:
        """Replace each text by its number, and number new texts."""
        earlier = pa.DictionaryArray.from_arrays(pa.array([], _CODE), self.of(name))
        typed = [cast(column, earlier.type) for column in columns]
        joined = pa.chunked_array([earlier, *typed]).unify_dictionaries()
        self._of[name] = joined.chunk(0).dictionary
        return [chunk.indices for chunk in joined.chunks[1:]]


@dataclass(frozen=True)
class StoredBatch:
    """A batch of events on disk."""

    first: int  # first row in the whole table
    rows: int
    start_ns: int
    files: tuple[Path, ...]  # the last file with a column counts


class Part(EventTable):
    """A batch of a table; links such as ``parent_id`` are rows of the whole table."""

    def __init__(self, events: pa.Table, first_row: int) -> None:
        super().__init__(events)
        self._first_row = first_row

    @property
    def first_row(self) -> int:
        return self._first_row

    def rows_named(self, column: str) -> Ints:
        return self.ints(column, NONE)


class StoredEvents(EventTable):
    """An events table on disk that loads one batch at a time."""

    def __init__(
        self, folder: Folder, texts: Texts, batches: Sequence[StoredBatch], rank: int | None
    ) -> None:
        self.folder, self.batches = folder, batches
        self._texts, self._rank = texts, rank
        self.num_rows = batches[-1].first + batches[-1].rows
        self._first_rows = np.array([batch.first for batch in batches])
        self._cache = {}

    def __len__(self) -> int:
        return self.num_rows

    @property
    def arrow(self) -> pa.Table:
        """Load the whole table into memory."""
        return self.select(SCHEMA.names).arrow.cast(SCHEMA)

    def select(self, columns: Sequence[str]) -> EventTable:
        return EventTable(pa.table({name: self.column(name) for name in columns}))

    def column(self, name: str) -> pa.ChunkedArray:
        """Load a column into memory."""
        numbers = range(len(self.batches))
        arrays = [self._decoded(self.coded(n, (name,)), name, own_texts=False) for n in numbers]
        return pa.chunked_array([pa.concat_arrays(arrays)], _TYPES[name])

    def with_columns(self, columns: Mapping[str, Any]) -> EventTable:
        """Load the whole table into memory, and replace some of its columns."""
        return EventTable(self.arrow).with_columns(columns)

    def parts(self, columns: Sequence[str] = SCHEMA.names) -> Iterator[EventTable]:
        """Yield a table for each batch, with only the texts that the batch uses."""
        for number, batch in enumerate(self.batches):
            part = self.table(self.coded(number, columns), columns, own_texts=True)
            yield Part(part.arrow, batch.first)

    def replaced(self, columns_of: Callable[[EventTable], Mapping[str, Any]]) -> StoredEvents:
        """Replace columns by ``columns_of(batch)`` in new files, one batch at a time."""
        replacing = [self.encoded(columns_of(part)) for part in self.parts()]
        return self.overlaid(map(self.stored, replacing))

    def encoded(self, columns: Mapping[str, Any]) -> pa.Table:
        """Convert columns to the form on disk, with codes instead of texts."""
        arrays = {name: cast(values, _TYPES[name]) for name, values in columns.items()}
        for name in arrays.keys() & set(TEXT_COLUMNS):
            (arrays[name],) = self._texts.coded(name, [arrays[name]])
        return pa.table(arrays)

    def stored(self, coded: pa.Table) -> Path:
        path = self.folder.new("batch")
        write_columns(path, coded)
        return path

    def overlaid(self, files: Iterator[Path]) -> StoredEvents:
        """Use the columns in ``files``, one file per batch, instead of the stored columns."""
        batches = [
            StoredBatch(batch.first, batch.rows, batch.start_ns, (*batch.files, path))
            for batch, path in zip(self.batches, files, strict=True)
        ]
        return StoredEvents(self.folder, self._texts, batches, self._rank)

    def coded(self, number: int, columns: Sequence[str] = SCHEMA.names) -> pa.Table:
        """Read columns of a batch, with codes instead of texts."""
        batch = self.batches[number]
        arrays = {
            "event_id": pa.array(np.arange(batch.first, batch.first + batch.rows)),
            "rank": pa.repeat(pa.scalar(self._rank, pa.int64()), batch.rows),
        }
        for path in batch.files:
            read = read_columns(path)
            arrays |= {name: read.column(name) for name in read.schema.names}
        types = {name: _CODE if name in TEXT_COLUMNS else _TYPES[name] for name in arrays}
        wanted = dict.fromkeys(("event_id", *columns))
        return pa.table({name: arrays[name].cast(types[name]) for name in wanted if name in arrays})

    def coded_rows(self, rows: Ints, columns: Sequence[str] = SCHEMA.names) -> pa.Table:
        """Read columns of some rows, in order of batches, with codes instead of texts."""
        numbers = self.batch_of(rows)
        parts = [
            self.coded(number, columns).take(
                pa.array(rows[numbers == number] - self.batches[number].first)
            )
            for number in np.unique(numbers).tolist()
        ]
        if not parts:
            return self.coded(0, columns).slice(0, 0)
        return pa.concat_tables(parts, promote_options="default")

    def batch_of(self, rows: Ints) -> Ints:
        return np.searchsorted(self._first_rows, rows, side="right") - 1

    def table(
        self, coded: pa.Table, columns: Sequence[str] = SCHEMA.names, *, own_texts: bool = False
    ) -> EventTable:
        """Make an events table in memory, with texts instead of codes."""
        schema = (
            SCHEMA if columns == SCHEMA.names else pa.schema([SCHEMA.field(n) for n in columns])
        )
        arrays = [self._decoded(coded, name, own_texts) for name in columns]
        return EventTable(pa.Table.from_arrays(arrays, schema=schema))

    def moved_to(self, folder: Folder) -> StoredEvents:
        batches = [
            replace(batch, files=tuple(map(folder.move_in, batch.files))) for batch in self.batches
        ]
        return StoredEvents(folder, self._texts, batches, self._rank)

    def _decoded(self, coded: pa.Table, name: str, own_texts: bool) -> pa.Array:
        if name not in coded.schema.names:
            return pa.nulls(len(coded), _TYPES[name])
        if name not in TEXT_COLUMNS:
            return _chunk(coded.column(name))
        texts = pa.DictionaryArray.from_arrays(_chunk(coded.column(name)), self._texts.of(name))
        return with_own_texts(texts, _TYPES[name], own_texts)

    def write_parquet(self, path: Path, stop: Event | None = None) -> None:
        """Write one row group per batch, until ``stop`` is set."""
        with parquet_writer(path) as file:
            for number in range(len(self.batches)):
                if stop and stop.is_set():
                    break
                file.write_table(self.table(self.coded(number)).arrow)

    def _caches(self) -> bool:
        return False
