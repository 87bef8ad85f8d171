"""The events table: one row per event, with columns such as ``name`` and ``start_ns``.

The table caches columns as NumPy arrays: ``events.start_ns``, ``events.ints("step", -1)``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Any, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lstmprof.events.intervals import Flags, Ints, longer_first
from lstmprof.events.schema import COLUMNS, SCHEMA

#: Number that stands for null in arrays of integers that may be negative.
UNKNOWN = np.iinfo(np.int64).min
#: Number that stands for null in arrays of row numbers and of text codes.
NONE = -1
#: Largest number of rows of a table with cached arrays; ten million rows take 80 MB per array.
CACHED_ROWS = 2**21

#: Columns with few distinct values, which Parquet stores with a dictionary.
_REPEATED = [
    *("rank", "pid", "tid", "device", "stream", "step"),
    *(field.name for field in SCHEMA if pa.types.is_dictionary(field.type)),
]
_DIFFERENCES = "DELTA_BINARY_PACKED"
_REQUIRED = ("kind", "name", "start_ns", "dur_ns")
_Value = TypeVar("_Value")


class EventTable:
    """A table with the columns of ``SCHEMA``, which are cached as read-only arrays."""

    def __init__(self, arrow: pa.Table) -> None:
        self._arrow = arrow
        self._cache: dict[tuple[Hashable, ...], Any] = {}

    @staticmethod
    def of(events: EventTable | pa.Table) -> EventTable:
        return events if isinstance(events, EventTable) else EventTable(events)

    @property
    def arrow(self) -> pa.Table:
        return self._arrow

    def __len__(self) -> int:
        return len(self._arrow)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.arrow, name)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.arrow.__arrow_c_stream__(requested_schema)

    def equals(self, other: EventTable | pa.Table) -> bool:
        return bool(self.arrow.equals(EventTable.of(other).arrow))

    def column(self, name: str) -> pa.ChunkedArray:
        return self._arrow.column(name)

    def __getitem__(self, name: str) -> pa.ChunkedArray:
        return self.column(name)

    def select(self, columns: Sequence[str]) -> EventTable:
        return EventTable(self.arrow.select(list(columns)))

    def take(self, rows: Ints | pa.Array) -> EventTable:
        return EventTable(self.arrow.take(pa.array(rows)))

    def slice(self, start: int, length: int | None = None) -> EventTable:
        return EventTable(self.arrow.slice(start, length))

    def filter(self, where: Flags | pa.Array | pa.ChunkedArray) -> EventTable:
        is_arrow = isinstance(where, (pa.Array, pa.ChunkedArray))
        return EventTable(self.arrow.filter(where if is_arrow else pa.array(where)))

    def with_columns(self, columns: Mapping[str, Any]) -> EventTable:
        arrow = self._arrow
        for name, values in columns.items():
            field = SCHEMA.field(name)
            place = arrow.schema.get_field_index(name)
            arrow = arrow.set_column(place, field, cast(values, field.type))
        replaced = EventTable(arrow.cast(SCHEMA))
        replaced._cache = {
            key: value
            for key, value in self._cache.items()
            if key[0] != "function"  # other keys name the columns that values depend on
            and columns.keys().isdisjoint(key[2:] if key[0] == "columns" else key[1:2])
        }
        return replaced

    @property
    def first_row(self) -> int:
        """Return the number of this part's first row in the whole table."""
        return 0

    def parts(self, columns: Sequence[str] = SCHEMA.names) -> Iterator[EventTable]:
        """Yield in-memory parts of the table by time; a part may have only ``columns``."""
        yield self

    def replaced(self, columns_of: Callable[[EventTable], Mapping[str, Any]]) -> EventTable:
        """Replace columns by ``columns_of(part)``, for each part of the table."""
        return self.with_columns(columns_of(self))

    def has_kind(self, *kinds: str) -> bool:
        return any(bool(part.is_kind(*kinds).any()) for part in self.parts(("kind",)))

    @property
    def start_ns(self) -> Ints:
        """Return each event's start, in ns since the profile's ``base_ns``."""
        return self.ints("start_ns", 0)

    @property
    def dur_ns(self) -> Ints:
        return self.ints("dur_ns", 0)

    @property
    def end_ns(self) -> Ints:
        """Return each event's end, in ns since the profile's ``base_ns``."""
        return self.once(_end_ns, "start_ns", "dur_ns")

    def ints(self, column: str, unknown: int) -> Ints:
        """Return an integer column, with ``unknown`` in place of null."""
        return self._once(("ints", column, unknown), lambda: self._ints(column, unknown))

    def _ints(self, column: str, unknown: int) -> Ints:
        values = self.column(column)
        if values.null_count:
            values = values.fill_null(unknown)
        whole = values.chunk(0) if values.num_chunks == 1 else values
        return np.asarray(whole.to_numpy(zero_copy_only=False), dtype=np.int64)

    def texts(self, column: str) -> tuple[Ints, list[str]]:
        """Return (codes, texts) of a text column; code −1 is null."""
        codes, values = self._codes(column)
        return self._once(("texts", column), lambda: codes.astype(np.int64)), values

    def _codes(self, column: str) -> tuple[NDArray[Any], list[str]]:
        """Return ``texts(column)``, but with 32-bit codes to save memory."""
        return self._once(("codes", column), lambda: _codes(self.column(column).combine_chunks()))

    def mapped(
        self,
        column: str,
        function: Callable[[str], Any],
        unknown: Any,
        dtype: Any = np.int64,
        rows: Flags | None = None,
    ) -> np.ndarray:
        """Apply ``function`` to a text column, once per distinct text.

        The result is ``unknown`` for null, and for rows outside ``rows``.
        """
        codes, values = self._codes(column)
        if rows is None:
            answers = np.array([*map(function, values), unknown], dtype=dtype)
            return np.asarray(answers[codes])
        codes = np.where(rows, codes, NONE)
        is_asked = np.zeros(len(values) + 1, dtype=np.bool_)
        is_asked[codes] = True
        answers = np.full(len(values) + 1, unknown, dtype=dtype)
        for code in np.flatnonzero(is_asked[:-1]).tolist():
            answers[code] = function(values[code])
        return np.asarray(answers[codes])

    def where(self, column: str, predicate: Callable[[str], object]) -> Flags:
        return self.mapped(column, lambda text: bool(predicate(text)), False, np.bool_)

    def where_name(self, predicate: Callable[[str], object]) -> Flags:
        return self.where("name", predicate)

    def is_one_of(self, column: str, *texts: str) -> Flags:
        key = ("is", column, *sorted(texts))
        return self._once(key, lambda: self.where(column, lambda text: text in texts))

    def is_kind(self, *kinds: str) -> Flags:
        return self.is_one_of("kind", *kinds)

    def write_parquet(self, path: Path, stop: Event | None = None) -> None:
        """Write the table to a Parquet file; subclasses may stop early if ``stop`` is set."""
        with parquet_writer(path) as file:
            file.write_table(self.arrow.cast(SCHEMA))

    def ranks(self) -> list[int | None]:
        """Return the distinct ranks, sorted; None (unknown) comes first."""
        ranks = self.column("rank").unique().to_pylist()
        return sorted(ranks, key=lambda rank: (rank is not None, rank))

    def rows_of_rank(self, rank: int | None) -> Ints:
        number = UNKNOWN if rank is None else rank
        if not self._caches():
            return np.flatnonzero(self.ints("rank", UNKNOWN) == number)
        return self.once(_rows_of_ranks, "rank").get(number, np.empty(0, dtype=np.int64))

    def rows_named(self, column: str) -> Ints:
        """Return the row of the event that a link column (``parent_id`` …) names, or −1."""
        return self._once(("function", column), lambda: self.rows_of(self.ints(column, -1)))

    def rows_of(self, event_ids: Ints) -> Ints:
        """Return the row of each event id, or −1 for an unknown id."""
        row_of = self.once(_rows_by_id, "event_id")
        return np.asarray(row_of[np.where(event_ids < len(row_of) - 1, event_ids, -1)], np.int64)

    def once(self, function: Callable[[Any], _Value], *reads: str) -> _Value:
        """Return ``function(self)``, which is cached.

        ``with_columns`` keeps the result if ``reads`` is given and has no replaced column.
        """
        key = ("columns", function, *reads) if reads else ("function", function)
        return self._once(key, lambda: function(self))

    def keeping(self, function: Callable[[Any], _Value], value: _Value) -> Self:
        """Cache ``value`` as the result of ``once(function)``."""
        self._cache["function", function] = value
        return self

    def _once(self, key: tuple[Hashable, ...], value: Callable[[], _Value]) -> _Value:
        if key in self._cache:
            cached: _Value = self._cache[key]
            return cached
        new = value()
        if isinstance(new, np.ndarray):
            new.flags.writeable = False
        if self._caches():
            self._cache[key] = new
        return new

    def _caches(self) -> bool:
        return len(self) <= CACHED_ROWS


def parquet_writer(path: Path) -> pq.ParquetWriter:
    # store the other columns as differences: half the time and space of dictionaries
    differences = dict.fromkeys((n for n in SCHEMA.names if n not in _REPEATED), _DIFFERENCES)
    return pq.ParquetWriter(
        path, SCHEMA, compression="zstd", use_dictionary=_REPEATED, column_encoding=differences
    )


def _codes(texts: pa.DictionaryArray | pa.ChunkedArray) -> tuple[NDArray[Any], list[str]]:
    if isinstance(texts, pa.ChunkedArray):  # the table is empty
        return np.empty(0, dtype=np.int32), []
    return texts.indices.fill_null(-1).to_numpy(), texts.dictionary.to_pylist()


def _rows_of_ranks(events: EventTable) -> dict[int, Ints]:
    ranks = events.ints("rank", UNKNOWN)
    order = np.argsort(ranks, kind="stable")
    numbers, first = np.unique(ranks[order], return_index=True)
    rows = np.split(order, first[1:]) if len(order) else []
    return dict(zip(numbers.tolist(), rows, strict=True))


def _rows_by_id(events: EventTable) -> Ints:
    """Return {event id: row} as an array; the last item, −1, is for id −1 (null)."""
    event_id = events.ints("event_id", -1)
    row_of = np.full(int(event_id.max(initial=-1)) + 2, -1, dtype=np.int64)
    row_of[event_id] = np.arange(len(events))
    return row_of


def _end_ns(events: EventTable) -> Ints:
    return events.start_ns + events.dur_ns


def events_table(columns: Mapping[str, Sequence[Any] | np.ndarray]) -> EventTable:
    """Make an events table from unsorted columns."""
    missing = [name for name in _REQUIRED if name not in columns]
    foreign = [name for name in columns if name not in SCHEMA.names]
    if missing or foreign:
        raise ValueError(f"columns missing {missing}, unknown {foreign}")
    start = np.asarray(columns["start_ns"], dtype=np.int64)
    dur = np.asarray(columns["dur_ns"], dtype=np.int64)
    if dur.size and dur.min() < 0:
        raise ValueError("a duration is negative")
    order = pa.array(longer_first(start, dur))
    times = {"start_ns": pa.array(start), "dur_ns": pa.array(dur)}
    arrays = []
    for column in COLUMNS:
        if column.name == "event_id":
            arrays.append(pa.array(np.arange(len(start), dtype=np.int64)))
        elif column.name in columns:
            values = times[column.name] if column.name in times else columns[column.name]
            arrays.append(cast(values, column.type).take(order))
        else:
            arrays.append(pa.nulls(len(start), column.type))
    return EventTable(pa.Table.from_arrays(arrays, schema=SCHEMA))


def cast(values: Any, type_: pa.DataType) -> pa.Array:
    array = values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values)
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if pa.types.is_dictionary(type_):
        if pa.types.is_null(array.type):
            return pa.nulls(len(array), type_)
        if not pa.types.is_dictionary(array.type):
            return array.dictionary_encode()
        indices = array.indices.cast(type_.index_type)
        return pa.DictionaryArray.from_arrays(indices, array.dictionary.cast(type_.value_type))
    return array.cast(type_)
