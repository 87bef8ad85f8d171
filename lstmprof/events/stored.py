"""An events table on disk, in batches by time: for profiles whose table would fill the memory.

A batch has the events that begin in a stretch of time, all that begin at one instant in one batch.
Its columns lie in files, integers in the narrowest type that holds them, texts as places among the
distinct texts of the whole table, which alone are in memory. All files lie in one temporary folder,
which goes with the last that needs it.
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

from lstmprof.events.intervals import Ints
from lstmprof.events.narrow import narrowed, with_own_texts
from lstmprof.events.schema import SCHEMA
from lstmprof.events.table import NONE, EventTable, cast, parquet_writer
from lstmprof.host.scratch import made_temporary_folder, remove, room_in

_TYPES = {field.name: field.type for field in SCHEMA}
#: Columns of texts, which lie on disk as places among ``Texts``.
TEXT_COLUMNS = tuple(name for name, type_ in _TYPES.items() if pa.types.is_dictionary(type_))
_CODE = pa.int32()


class Folder:
    """A temporary folder that goes with this object; what killed processes left goes too.

    One in ``base`` stays, and can be sent to another process: who made ``base`` removes it.

    Raises:
        LstmprofError: it cannot be made.
    """

    def __init__(self, base: Path | None = None) -> None:
        if base:
            with room_in(base):
                self.path = Path(tempfile.mkdtemp(dir=base))
        else:
            self.path = made_temporary_folder()
            self.remove = weakref.finalize(self, remove, self.path)
        self._count = 0

    def new(self, name: str) -> Path:
        """A path in it that nothing has yet."""
        self._count += 1
        return self.path / f"{name}-{self._count}"

    def taken(self, path: Path) -> Path:
        """Where the file at ``path``, of another folder, lies now: in this one.

        Raises:
            LstmprofError: there is no room.
        """
        place = self.new(path.name)
        with room_in(self.path):
            shutil.move(path, place)
        return place


def write_columns(path: Path, columns: pa.Table) -> None:
    """Write ``columns`` of the events table to ``path``, each in the narrowest type.

    Raises:
        LstmprofError: there is no room.
    """
    narrow = pa.table({n: narrowed(_chunk(columns.column(n))) for n in columns.column_names})
    with room_in(path.parent), pa.ipc.new_file(str(path), narrow.schema) as file:
        file.write_table(narrow)


def _chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def read_columns(path: Path) -> pa.RecordBatch:
    """What ``write_columns`` wrote to ``path``, a row or more, of which what is used is read."""
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_file(file).get_batch(0)


class Texts:
    """The distinct texts of each column, numbered in the order in which they came."""

    def __init__(self) -> None:
        self._of: dict[str, pa.Array] = {}

    def of(self, name: str) -> pa.Array:
        """Those of the column ``name``."""
        return self._of.get(name, pa.array([], pa.string()))

    def coded(self, name: str, columns: Sequence[pa.DictionaryArray]) -> list[pa.Array]:
        """The numbers of each of these columns called ``name``, whose new texts are added."""
        there = pa.DictionaryArray.from_arrays(pa.array([], _CODE), self.of(name))
        typed = [cast(column, there.type) for column in columns]
        joined = pa.chunked_array([there, *typed]).unify_dictionaries()
        self._of[name] = joined.chunk(0).dictionary
        return [chunk.indices for chunk in joined.chunks[1:]]


@dataclass(frozen=True)
class StoredBatch:
    """The events that begin from ``start_ns`` on and before those of the next batch.

    They are the rows from ``first`` on. A column is in the last of ``files`` that has it, null
    where none has.
    """

    first: int
    rows: int
    start_ns: int
    files: tuple[Path, ...]


class Part(EventTable):
    """The events of a batch; ``rows_named`` are rows of the whole table, in which ids are rows."""

    def __init__(self, events: pa.Table, first_row: int) -> None:
        super().__init__(events)
        self._first_row = first_row

    @property
    def first_row(self) -> int:
        """The row of the whole table that is the first of this."""
        return self._first_row

    def rows_named(self, column: str) -> Ints:
        """The row of the whole table that ``column`` names, −1 where there is none."""
        return self.ints(column, NONE)


class StoredEvents(EventTable):
    """An events table on disk, whose texts are ``texts`` and whose ``batches`` are one or more.

    All rows are of one ``rank``, None unknown, unless files have their ranks. Nothing of it is kept
    in memory. It can be read by columns as any events table, each of which is then whole in memory;
    ``parts`` are not.
    """

    def __init__(
        self, folder: Folder, texts: Texts, batches: Sequence[StoredBatch], rank: int | None
    ) -> None:
        self.folder, self.batches = folder, batches
        self._texts, self._rank = texts, rank
        self.num_rows = batches[-1].first + batches[-1].rows
        self._first_rows = np.array([batch.first for batch in batches])
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
        numbers = range(len(self.batches))
        arrays = [self._decoded(self.coded(n, (name,)), name, own_texts=False) for n in numbers]
        return pa.chunked_array([pa.concat_arrays(arrays)], _TYPES[name])

    def with_columns(self, columns: Mapping[str, Any]) -> EventTable:
        """The whole table, in memory, with these columns replaced."""
        return EventTable(self.arrow).with_columns(columns)

    def parts(self, columns: Sequence[str] = SCHEMA.names) -> Iterator[EventTable]:
        """These columns of each batch, with the texts that it has."""
        for number, batch in enumerate(self.batches):
            part = self.table(self.coded(number, columns), columns, own_texts=True)
            yield Part(part.arrow, batch.first)

    def replaced(self, columns_of: Callable[[EventTable], Mapping[str, Any]]) -> StoredEvents:
        """This table with the columns that ``columns_of`` makes of each batch, as ``with_columns``.

        Raises:
            LstmprofError: there is no room.
        """
        replacing = [self.encoded(columns_of(part)) for part in self.parts()]
        return self.overlaid(map(self.stored, replacing))

    def encoded(self, columns: Mapping[str, Any]) -> pa.Table:
        """These columns as they lie on disk."""
        arrays = {name: cast(values, _TYPES[name]) for name, values in columns.items()}
        for name in arrays.keys() & set(TEXT_COLUMNS):
            (arrays[name],) = self._texts.coded(name, [arrays[name]])
        return pa.table(arrays)

    def stored(self, coded: pa.Table) -> Path:
        """A file of ``coded`` columns.

        Raises:
            LstmprofError: there is no room.
        """
        path = self.folder.new("batch")
        write_columns(path, coded)
        return path

    def overlaid(self, files: Iterator[Path]) -> StoredEvents:
        """This table with the columns of ``files``, one a batch, in place of its own."""
        batches = [
            StoredBatch(batch.first, batch.rows, batch.start_ns, (*batch.files, path))
            for batch, path in zip(self.batches, files, strict=True)
        ]
        return StoredEvents(self.folder, self._texts, batches, self._rank)

    def coded(self, number: int, columns: Sequence[str] = SCHEMA.names) -> pa.Table:
        """``event_id`` and those of these columns that batch ``number`` has, texts as numbers."""
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
        """These rows, of any batches, as ``coded``; by batch."""
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
        """The number of the batch that has each of these rows."""
        return np.searchsorted(self._first_rows, rows, side="right") - 1

    def table(
        self, coded: pa.Table, columns: Sequence[str] = SCHEMA.names, *, own_texts: bool = False
    ) -> EventTable:
        """``coded`` rows as an events table; ``own_texts``: without texts that no row has."""
        schema = (
            SCHEMA if columns == SCHEMA.names else pa.schema([SCHEMA.field(n) for n in columns])
        )
        arrays = [self._decoded(coded, name, own_texts) for name in columns]
        return EventTable(pa.Table.from_arrays(arrays, schema=schema))

    def moved_to(self, folder: Folder) -> StoredEvents:
        """This table with its files in ``folder``.

        Raises:
            LstmprofError: there is no room.
        """
        batches = [
            replace(batch, files=tuple(map(folder.taken, batch.files))) for batch in self.batches
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
        """Write the table to ``path``, a row group a batch, no more once ``stop`` is set."""
        with parquet_writer(path) as file:
            for number in range(len(self.batches)):
                if stop and stop.is_set():
                    break
                file.write_table(self.table(self.coded(number)).arrow)

    def _keeps(self) -> bool:
        return False
