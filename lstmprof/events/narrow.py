"""Store a run's events in about a third of the memory of an ``EventTable``.

A column of ten million events takes 80 MB as an int64 array. ``Packed`` stores each column in the
narrowest integer type of its values, and unpacks only the rows that a computation needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.schema import SCHEMA
from lstmprof.events.table import NONE, UNKNOWN, EventTable

#: Columns with many distinct texts. Unpacked tables omit the unused texts.
_MANY_TEXTS = ("name", "op_name", "shapes", "dtypes")
#: Columns that refer to other events.
LINKS = ("parent_id", "launch_id", "op_id")
#: Largest number of texts in a column at which an unpacked table keeps unused texts, too.
_FEW_TEXTS = 1000
#: Number of rows that a computation unpacks at a time.
PIECE = 2**18
_Value = TypeVar("_Value")


class Packed:
    """A run's events in narrow columns. ``more`` reads missing columns, if ids are row numbers."""

    def __init__(self, table: pa.Table, more: Callable[[str], pa.ChunkedArray] | None = None):
        self.names = tuple(table.schema.names)
        self._columns: dict[str, _Column] = {}
        self._count = len(table)
        self._more = more
        self._cache: dict[Callable[[Packed], Any], Any] = {}
        for name in self.names:
            self._columns[name] = _Column.of(table.column(name))

    def __len__(self) -> int:
        return self._count

    @property
    def numbered(self) -> bool:
        """Return whether each ``event_id`` equals its row number."""
        # ``more`` is only for tables whose ids are row numbers
        if self._more:
            return True
        return bool((self.values("event_id") == np.arange(self._count)).all())

    def forget(self, *names: str) -> None:
        """Free the memory of columns that ``more`` can read again."""
        for name in names if self._more else ():
            self._columns.pop(name, None)

    def only(self, columns: Sequence[str], rows: Ints) -> Packed:
        """Return some columns of some rows."""
        part = Packed(pa.table({}))
        part.names, part._count = tuple(columns), len(rows)
        for name in columns:
            is_there = name in self._columns
            part._columns[name] = self._column(name).only(rows)
            if not is_there:
                self.forget(name)
        return part

    def pieces(self) -> Iterator[slice]:
        """Yield slices of at most ``PIECE`` rows that cover all rows."""
        for first in range(0, self._count, PIECE):
            yield slice(first, min(first + PIECE, self._count))

    def once(self, function: Callable[[Packed], _Value]) -> _Value:
        """Compute ``function(self)`` once, and keep the result."""
        if function not in self._cache:
            self._cache[function] = function(self)
        value: _Value = self._cache[function]
        return value

    def ints(self, name: str, rows: slice) -> Ints:
        """Return an integer column as int64, with ``UNKNOWN`` for null."""
        column = self._column(name)
        values = column.values[rows].astype(np.int64)
        if column.has_nulls:
            values[~column.has_value(rows)] = UNKNOWN
        return values

    def values(self, name: str, rows: slice = slice(None)) -> np.ndarray:
        """Return an integer column in its narrow (stored) dtype, with −1 for null."""
        return self._column(name).values[rows]

    def codes(self, name: str, rows: slice = slice(None)) -> np.ndarray:
        """Return a text column as indices into ``texts(name)``, with −1 for null."""
        return self._column(name).values[rows]

    def texts(self, name: str) -> list[str]:
        values: list[str] = self._column(name).texts.to_pylist()
        return values

    def is_kind(self, *wanted: str) -> Flags:
        among = np.array([kind in wanted for kind in self.texts("kind")] + [False])
        return np.asarray(among[self.codes("kind")], dtype=np.bool_)

    def has_value(self, name: str, rows: slice | Ints = slice(None)) -> Flags:
        """Return whether each row has a value."""
        return self._column(name).has_value(rows)

    def rows_named(self, name: str) -> Ints:
        """Return the row to which each link in column ``name`` refers, or −1."""
        if self._more:
            return self.values(name).astype(np.int64)
        ids, targets = (self.values(column).astype(np.int64) for column in ("event_id", name))
        order = np.argsort(ids, kind="stable")
        place = np.minimum(np.searchsorted(ids[order], targets), len(ids) - 1)
        row = order[place]
        return np.where((targets != NONE) & (ids[row] == targets), row, NONE)

    def table(self, columns: Sequence[str], rows: Ints | None = None) -> EventTable:
        """Unpack columns into an events table."""
        arrays = [self._unpacked(name, slice(None) if rows is None else rows) for name in columns]
        schema = pa.schema([SCHEMA.field(name) for name in columns])
        return EventTable(pa.table(arrays, schema=schema))

    def _column(self, name: str) -> _Column:
        if name not in self._columns:
            self._columns[name] = _Column.of(self._read(name))
        return self._columns[name]

    def _read(self, name: str) -> pa.ChunkedArray:
        if self._more is None:
            raise KeyError(name)
        if name == "event_id":
            return pa.chunked_array([np.arange(self._count)])
        return self._more(name)

    def _unpacked(self, name: str, rows: slice | Ints) -> pa.Array:
        column, type_ = self._column(name), SCHEMA.field(name).type
        values = column.values[rows]
        unknown = ~column.has_value(rows) if column.has_nulls else None
        if column.texts is None:
            return pa.array(values.astype(np.int64), mask=unknown)
        codes = pa.array(values.astype(np.int32), mask=unknown)
        texts = pa.DictionaryArray.from_arrays(codes, column.texts)
        return with_own_texts(texts, type_, name in _MANY_TEXTS)


@dataclass(frozen=True)
class _Column:
    """A packed column: integers or indices into ``texts``, with −1 for null."""

    values: np.ndarray
    texts: Any
    has_nulls: bool
    is_known: Flags | None = None  # rows that are not null, if values may be negative

    @staticmethod
    def of(column: pa.ChunkedArray) -> _Column:
        """Pack an Arrow column; its values are not copied if possible."""
        array = _one_chunk(column)
        texts = array.dictionary if pa.types.is_dictionary(array.type) else None
        array = array if texts is None else array.indices
        has_nulls = array.null_count > 0
        if pa.types.is_unsigned_integer(array.type):
            array = array.cast(pa.int64())
        below = has_nulls and (pc.min(array).as_py() or 0) < 0
        values = np.asarray((array.fill_null(NONE) if has_nulls else array).to_numpy())
        values.flags.writeable = False
        known = array.is_valid().to_numpy(zero_copy_only=False) if below else None
        return _Column(values, texts, has_nulls, known)

    def only(self, rows: Ints) -> _Column:
        is_known = None if self.is_known is None else self.is_known[rows]
        return replace(self, values=self.values[rows], is_known=is_known)

    def has_value(self, rows: slice | Ints) -> Flags:
        if self.is_known is not None:
            return self.is_known[rows]
        values = self.values[rows]
        flags = values >= 0 if self.has_nulls else np.ones(len(values))
        return np.asarray(flags, dtype=np.bool_)


def packed(events: pa.Table) -> Packed:
    return Packed(
        pa.table([narrowed(_one_chunk(c)) for c in events.columns], names=events.schema.names)
    )


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    chunk = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return pa.nulls(0, column.type) if isinstance(chunk, pa.ChunkedArray) else chunk


def with_own_texts(array: pa.DictionaryArray, type_: pa.DataType, reduced: bool) -> pa.Array:
    """Convert a text column to ``type_``, and drop unused texts if ``reduced``."""
    codes, texts = array.indices, array.dictionary
    if reduced and len(texts) > _FEW_TEXTS:
        filled = codes.fill_null(NONE).to_numpy(zero_copy_only=False)
        used = np.zeros(len(texts) + 1, dtype=np.bool_)
        used[filled] = True
        place = np.cumsum(used) - 1
        texts = texts.take(pa.array(np.flatnonzero(used[:-1])))
        codes = pa.array(place[filled], mask=filled < 0)
    return pa.DictionaryArray.from_arrays(codes.cast(type_.index_type), texts)


def narrowed(array: pa.Array) -> pa.Array:
    """Convert integers, or a text column's codes, to the narrowest integer type."""
    if pa.types.is_dictionary(array.type):
        return _narrow(array, array.type)
    if pa.types.is_floating(array.type):
        return array
    bounds = pc.min_max(array)
    return array.cast(_narrowest(bounds["min"].as_py() or 0, bounds["max"].as_py() or 0))


class Gathered:
    """Collects a Parquet file's columns, part by part, in the narrowest types."""

    def __init__(self, file: pq.ParquetFile, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)
        types = [_narrow_type(file.metadata, file.schema_arrow, name) for name in columns]
        count: int = file.metadata.num_rows
        self._parts = [
            _Numbers(type_, count) if pa.types.is_integer(type_) else _Chunks(type_)
            for type_ in types
        ]

    def add(self, read: pa.Table | pa.RecordBatch) -> None:
        """Append rows of the file. Fail if the rows contradict the file's count or statistics."""
        for name, part in zip(self.columns, self._parts, strict=True):
            column = read.column(name)
            for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
                part.add(chunk)

    def table(self) -> pa.Table:
        """Move the collected columns into a table."""
        # join one column after the other, so that only one column is in memory twice
        whole = [self._parts.pop(0).whole() for _ in self.columns]
        pa.default_memory_pool().release_unused()  # Arrow keeps freed memory of whole row groups
        return pa.table(whole, names=list(self.columns))


class _Numbers:
    """Collects the parts of an integer column in one array."""

    def __init__(self, type_: pa.DataType, count: int) -> None:
        self._type, self._count, self._filled = type_, count, 0
        self._values: np.ndarray | None = None
        self._known: Flags | None = None

    def add(self, chunk: pa.Array) -> None:
        if self._values is None:  # only now: a damaged file may declare any number of rows
            self._values = np.empty(self._count, dtype=str(self._type))  # int8, uint32 …
        numbers = chunk.cast(self._type)
        rows = slice(self._filled, self._filled + len(numbers))
        if numbers.null_count:
            if self._known is None:
                self._known = np.ones(self._count, dtype=np.bool_)
            self._known[rows] = numbers.is_valid().to_numpy(zero_copy_only=False)
            numbers = numbers.fill_null(0)
        self._values[rows] = numbers.to_numpy()
        self._filled = rows.stop

    def whole(self) -> pa.Array:
        if self._values is None:
            return pa.nulls(0, self._type)
        values = self._values[: self._filled]
        if self._known is None:
            return pa.array(values)
        bits = np.packbits(self._known[: self._filled], bitorder="little")
        buffers = [pa.py_buffer(bits), pa.py_buffer(values)]
        return pa.Array.from_buffers(self._type, len(values), buffers)


class _Chunks:
    """Collects a column of texts or floats, as a list of chunks."""

    def __init__(self, type_: pa.DataType) -> None:
        self._type = type_
        self._chunks: list[pa.Array] = []

    def add(self, chunk: pa.Array) -> None:
        self._chunks.append(_narrow(chunk, self._type))

    def whole(self) -> pa.Array:
        return _joined(self._chunks, self._type)


def narrow_table(file: pq.ParquetFile, columns: Sequence[str]) -> pa.Table:
    """Read columns in the narrowest types, one row group at a time."""
    gathered = Gathered(file, columns)
    for group in range(file.num_row_groups):
        gathered.add(file.read_row_group(group, list(columns), use_threads=False))
    return gathered.table()


def _narrow_type(metadata: pq.FileMetaData, schema: pa.Schema, name: str) -> pa.DataType:
    if not pa.types.is_integer(schema.field(name).type):
        return schema.field(name).type
    place = schema.get_field_index(name)
    bounds = [0]
    for group in range(metadata.num_row_groups):
        column = metadata.row_group(group).column(place)
        statistics = column.statistics
        if statistics is not None and statistics.has_min_max:
            bounds += [statistics.min, statistics.max]
        elif statistics is None or statistics.null_count != column.num_values:
            return schema.field(name).type
    return _narrowest(min(bounds), max(bounds))


def _narrow(chunk: pa.Array, type_: pa.DataType) -> pa.Array:
    if not pa.types.is_dictionary(type_):
        return chunk.cast(type_)
    indices = chunk.indices.cast(_narrowest(0, len(chunk.dictionary)))
    return pa.DictionaryArray.from_arrays(indices, chunk.dictionary)


def _joined(chunks: list[pa.Array], type_: pa.DataType) -> pa.Array:
    if not chunks or not pa.types.is_dictionary(type_):
        return pa.chunked_array(chunks, type_).combine_chunks()
    indices = _narrowest(0, sum(len(chunk.dictionary) for chunk in chunks))
    alike = [
        pa.DictionaryArray.from_arrays(chunk.indices.cast(indices), chunk.dictionary)
        for chunk in chunks
    ]
    whole = pa.concat_arrays(alike)
    return _narrow(whole, whole.type)


def _narrowest(least: int, most: int) -> pa.DataType:
    """Return the narrowest signed integer type that has room for ``least`` and ``most``."""
    for width in (pa.int8(), pa.int16(), pa.int32()):
        limit: int = 2 ** (width.bit_width - 1)
        if -limit <= least and most < limit:
            return width
    return pa.int64()
