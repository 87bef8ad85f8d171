"""The events of a run held in a third of their memory, and unpacked piece by piece.

``ints`` and ``texts`` of a whole table of ten million events are arrays of 80 MB, and a computation
holds many. Packed columns are of the narrowest types; a computation gets the rows that it
needs as an events table of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.schema import SCHEMA
from lstmprof.events.table import NONE, UNKNOWN, EventTable

#: Columns of texts that are many: unpacked rows hold those which they have.
_MANY_TEXTS = ("name", "op_name", "shapes", "dtypes")
#: Columns that name other events by ``event_id``.
LINKS = ("parent_id", "launch_id", "op_id")
#: So many texts are not worth a look at which of them some rows have.
_FEW_TEXTS = 1000
#: Rows that are looked at at once.
PIECE = 2**18
_Value = TypeVar("_Value")


class Packed:
    """Columns of an events table, all of its rows; ``table`` has arrays of one chunk.

    ``more`` reads a column that ``table`` has not, when it is first asked for: then a row's number
    is its ``event_id``, as in a stored run.
    """

    def __init__(self, table: pa.Table, more: Callable[[str], pa.ChunkedArray] | None = None):
        self.names = tuple(table.schema.names)
        self._arrays: dict[str, pa.Array] = {}
        self._count = len(table)
        self._more = more
        self._kept: dict[Callable[[Packed], Any], Any] = {}
        for name in self.names:
            self._keep(name, table.column(name))

    def __len__(self) -> int:
        return self._count

    @property
    def numbered(self) -> bool:
        """Whether each row's number is its ``event_id``."""
        if self._more:
            return True
        return bool((self.values("event_id") == np.arange(self._count)).all())

    def forget(self, *names: str) -> None:
        """Let go of these columns; one that is asked for again is read again."""
        for name in names if self._more else ():
            self._arrays.pop(name, None)

    def pieces(self) -> Iterator[slice]:
        """The rows in order, so many as are looked at at once."""
        for first in range(0, self._count, PIECE):
            yield slice(first, min(first + PIECE, self._count))

    def once(self, function: Callable[[Packed], _Value]) -> _Value:
        """``function`` of these events, worked out once."""
        if function not in self._kept:
            self._kept[function] = function(self)
        kept: _Value = self._kept[function]
        return kept

    def ints(self, name: str, rows: slice) -> Ints:
        """A column of integers of some rows, ``UNKNOWN`` in place of nulls."""
        part = self._part(name, rows)
        values = _filled(part).astype(np.int64)
        if part.null_count:
            values[part.is_null().to_numpy(zero_copy_only=False)] = UNKNOWN
        return np.asarray(values, dtype=np.int64)

    def values(self, name: str, rows: slice = slice(None)) -> np.ndarray:
        """A column of integers as it is packed, of all rows or some, −1 in place of nulls."""
        return _filled(self._part(name, rows))

    def codes(self, name: str, rows: slice = slice(None)) -> np.ndarray:
        """A column of texts as places in ``texts``, −1 for a null."""
        return _filled(self._part(name, rows).indices)

    def texts(self, name: str) -> list[str]:
        """The distinct values of a column of texts."""
        values: list[str] = self._array(name).dictionary.to_pylist()
        return values

    def is_kind(self, *wanted: str) -> Flags:
        """A boolean a row: whether its kind is one of ``wanted``."""
        among = np.array([kind in wanted for kind in self.texts("kind")] + [False])
        return np.asarray(among[self.codes("kind")], dtype=np.bool_)

    def known(self, name: str, rows: slice = slice(None)) -> Flags:
        """A boolean a row: the column is not null there."""
        return np.asarray(self._part(name, rows).is_valid().to_numpy(zero_copy_only=False))

    def rows_named(self, name: str) -> Ints:
        """The row of the event whose ``event_id`` is in the column ``name``, −1 where none is."""
        if self._more:
            return self.values(name).astype(np.int64)
        known, asked = (self.values(column).astype(np.int64) for column in ("event_id", name))
        order = np.argsort(known, kind="stable")
        place = np.minimum(np.searchsorted(known[order], asked), len(known) - 1)
        row = order[place]
        return np.where((asked != NONE) & (known[row] == asked), row, NONE)

    def table(self, columns: Sequence[str], rows: Ints | None = None) -> EventTable:
        """These columns of these rows, all where None, with the types of the events table."""
        arrays = [self._unpacked(name, rows) for name in columns]
        schema = pa.schema([SCHEMA.field(name) for name in columns])
        return EventTable(pa.table(arrays, schema=schema))

    def _part(self, name: str, rows: slice) -> pa.Array:
        first, last, _ = rows.indices(self._count)
        return self._array(name).slice(first, last - first)

    def _array(self, name: str) -> pa.Array:
        if name not in self._arrays:
            self._keep(name, self._read(name))
        return self._arrays[name]

    def _read(self, name: str) -> pa.ChunkedArray:
        if self._more is None:
            raise KeyError(name)
        if name == "event_id":
            return pa.chunked_array([np.arange(self._count)])
        return self._more(name)

    def _keep(self, name: str, column: pa.ChunkedArray) -> None:
        array = _whole(column)
        self._arrays[name] = array.fill_null(NONE) if name in LINKS else array

    def _unpacked(self, name: str, rows: Ints | None) -> pa.Array:
        array, type_ = self._array(name), SCHEMA.field(name).type
        picked = array if rows is None else array.take(pa.array(rows))
        if pa.types.is_dictionary(type_):
            return with_own_texts(picked, type_, name in _MANY_TEXTS)
        if name in LINKS:
            values = picked.to_numpy()
            return pa.array(values.astype(np.int64), mask=values < 0)
        return picked.cast(type_)


def packed(events: pa.Table) -> Packed:
    """An events table packed."""
    return Packed(
        pa.table([narrowed(_whole(c)) for c in events.columns], names=events.schema.names)
    )


def _filled(array: pa.Array) -> np.ndarray:
    """``array`` with −1 in place of nulls; without any it is not copied."""
    whole = array.fill_null(NONE) if array.null_count else array
    return np.asarray(whole.to_numpy(zero_copy_only=False))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    chunk = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return pa.nulls(0, column.type) if isinstance(chunk, pa.ChunkedArray) else chunk


def with_own_texts(array: pa.DictionaryArray, type_: pa.DataType, reduced: bool) -> pa.Array:
    """``array`` as ``type_``; ``reduced``: without the texts that no row has, the order kept."""
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
    """``array`` in the narrowest type that holds its integers, or the places of its texts."""
    if pa.types.is_dictionary(array.type):
        return _narrow(array, array.type)
    if pa.types.is_floating(array.type):
        return array
    bounds = pc.min_max(array)
    return array.cast(_narrowest(bounds["min"].as_py() or 0, bounds["max"].as_py() or 0))


def narrow_table(file: pq.ParquetFile, columns: Sequence[str]) -> pa.Table:
    """``columns`` of ``file``, one chunk each; a row group is narrowed when it is read.

    By its statistics, where all row groups have them.

    Raises:
        OSError, pa.ArrowException: the file is damaged.
    """
    types = {name: _narrow_type(file.metadata, file.schema_arrow, name) for name in columns}
    parts: list[list[pa.Array]] = [[] for _ in columns]
    for group in range(file.num_row_groups):
        read = file.read_row_group(group, list(columns))
        for name, part in zip(columns, parts, strict=True):
            part += [_narrow(chunk, types[name]) for chunk in read.column(name).chunks]
    # One by one, so that no more than one column is there twice.
    whole = [_joined(parts.pop(0), types[name]) for name in columns]
    pa.default_memory_pool().release_unused()  # Arrow keeps what was freed, row groups as they are
    return pa.table(whole, names=columns)


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
    """The narrowest signed type of integers that holds ``least``, ``most`` and −1."""
    for width in (pa.int8(), pa.int16(), pa.int32()):
        limit: int = 2 ** (width.bit_width - 1)
        if -limit <= least and most < limit:
            return width
    return pa.int64()
