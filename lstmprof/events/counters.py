"""The counters of a profile, such as allocated memory: the value of each counter over time.

::

    reader ─ table_of ─▶ Counters: tables in memory, or files ─ batches ─▶ counters.parquet

Counters are separate from events. A value is valid until the next value of its counter.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lstmprof.events.groups import Groups
from lstmprof.events.intervals import Ints
from lstmprof.events.schema import RANK, SCHEMA_VERSION, VERSION_KEY, Column, schema
from lstmprof.events.spool import Chunks, SortedFiles
from lstmprof.events.stored import Folder, write_columns
from lstmprof.events.table import NONE, UNKNOWN

#: Names of counters of allocated memory, of reserved memory, and of single allocations (or frees).
ALLOCATED, RESERVED, CHANGE = "memory allocated", "memory reserved", "memory change"
#: Beginning of the names of counters for the memory that one line of code allocated.
ALLOCATED_BY = "memory allocated by "
BYTES = "bytes"
#: Name of the counter in which lstmprof sums allocations and frees if ``ALLOCATED`` is missing.
SINCE_BEGIN = "memory allocated since the profile began"
#: Number of counter values that are read from files at a time.
BATCH_ROWS = 2**17

_TEXT = pa.dictionary(pa.int32(), pa.string())
ALLOCATOR = Column(
    "allocator",
    _TEXT,
    "",
    "the framework's name of the allocator, such as `GPU_0_bfc` or `mklcpu`",
    "the profile names no allocator",
)
#: The columns of counters.parquet.
COLUMNS = (
    Column.integer(
        "time_ns", "time from which the counter had the value, in ns since base_ns of run.json"
    ),
    RANK,
    Column.integer("pid", "id of the host process", "the profile does not record it"),
    Column.integer(
        "device", "number of the device", "the counter belongs to the host or to no device"
    ),
    Column(
        "name",
        _TEXT,
        "",
        f"name; for memory `{ALLOCATED}`, `{RESERVED}` or `{CHANGE}` (one allocation or free)",
    ),
    Column("unit", _TEXT, "", "unit of the value", "the profile does not record it"),
    Column.real("value", "the value", "the profile has no number"),
    ALLOCATOR,
)
SCHEMA = schema(COLUMNS).with_metadata({VERSION_KEY: str(SCHEMA_VERSION).encode()})
_TEXTS = [column.name for column in COLUMNS if column.type == _TEXT]
#: Columns of counters.parquet that a reader fills; lstmprof adds the rank later.
READ = pa.schema([field for field in SCHEMA if field.name != "rank"])


class Count(NamedTuple):
    """One value of a counter, with the time that the profile's file gives."""

    time_ns: int
    pid: int | None
    device: int | None
    name: str
    unit: str | None
    value: float | None
    allocator: str | None = None


def table_of(counts: Sequence[Count]) -> pa.Table:
    """Make a table of counter values, sorted by time."""
    columns = zip(*counts, strict=True) if counts else itertools.repeat((), len(READ))
    arrays = [
        pa.array(values, field.type.value_type).dictionary_encode()
        if pa.types.is_dictionary(field.type)
        else pa.array(values, field.type)
        for field, values in zip(READ, columns, strict=False)
    ]
    return sorted_by_time(pa.Table.from_arrays(arrays, schema=READ))


def values_table(**columns: Any) -> pa.Table:
    """Make a table of counter values sorted by time; a text fills its whole column."""
    count = len(columns["time_ns"])
    filled = {field.name: columns.get(field.name, pa.nulls(count, field.type)) for field in READ}
    for name, values in columns.items():
        if isinstance(values, str):
            filled[name] = pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), [values])
    return sorted_by_time(pa.table(filled, schema=READ))


def sorted_by_time(columns: pa.Table) -> pa.Table:
    """Sort rows by time, keeping the order of equal times."""
    time = columns.column("time_ns").to_numpy()
    if (time[1:] >= time[:-1]).all():
        return columns
    return columns.take(pa.array(np.argsort(time, kind="stable")))


def write_sorted(path: Path, columns: pa.Table) -> None:
    """Write sorted rows, at least one, to a file for ``Counters.in_files``."""
    write_columns(path, columns.combine_chunks())


@dataclass(frozen=True)
class _RankCounters:
    """The counters of one rank, sorted by time."""

    read: pa.Table | SortedFiles
    folder: Folder | None = None
    shift_ns: int = 0
    rank: int | None = None

    def on_disk(self, folder: Folder) -> _RankCounters:
        if isinstance(self.read, SortedFiles):
            paths = [folder.move_in(path) for path in self.read.paths]
        else:
            paths = [folder.new("counters")]
            write_sorted(paths[0], self.read)
        return replace(self, read=SortedFiles(paths, "time_ns"), folder=folder)

    def batches(self) -> Iterator[pa.Table]:
        if isinstance(self.read, SortedFiles):
            for first_ns, end_ns in itertools.pairwise(self.read.borders(BATCH_ROWS)):
                parts = [
                    pa.Table.from_batches([part]).cast(READ)
                    for part in self.read.between(first_ns, end_ns)
                ]
                yield self._with_rank(sorted_by_time(pa.concat_tables(parts).unify_dictionaries()))
        elif len(self.read):
            yield self._with_rank(self.read)

    def _with_rank(self, columns: pa.Table) -> pa.Table:
        time = pc.add(columns.column("time_ns"), self.shift_ns)
        columns = columns.set_column(0, "time_ns", time)
        rank = pa.repeat(pa.scalar(self.rank, pa.int64()), len(columns))
        return columns.append_column("rank", rank).select(SCHEMA.names).cast(SCHEMA)


@dataclass(frozen=True)
class Counters:
    """The counters of a profile, separately for each rank."""

    ranks: tuple[_RankCounters, ...] = ()

    @staticmethod
    def of(tables: Sequence[pa.Table]) -> Counters:
        """Join tables of counters, given in the order of the profile."""
        filled = [table for table in tables if len(table)]
        if not filled:
            return NO_COUNTERS
        return Counters(
            (_RankCounters(sorted_by_time(pa.concat_tables(filled).unify_dictionaries())),)
        )

    @staticmethod
    def in_files(paths: Sequence[Path], folder: Folder) -> Counters:
        """Open the counters in files that ``write_sorted`` wrote."""
        read = SortedFiles(paths, "time_ns")
        return Counters((_RankCounters(read, folder),)) if paths else NO_COUNTERS

    def __bool__(self) -> bool:
        return bool(self.ranks)

    def __add__(self, other: Counters) -> Counters:
        return Counters(self.ranks + other.ranks)

    def shifted(self, by_ns: int, rank: int | None = None) -> Counters:
        """Add ``by_ns`` to all times, and set the rank if given."""
        moved = (
            replace(
                counters,
                shift_ns=counters.shift_ns + by_ns,
                rank=counters.rank if rank is None else rank,
            )
            for counters in self.ranks
        )
        return Counters(tuple(moved))

    def on_disk(self, folder: Folder) -> Counters:
        """Move the values to files of ``folder``."""
        return Counters(tuple(counters.on_disk(folder) for counters in self.ranks))

    def batches(self) -> Iterator[pa.Table]:
        """Yield the rows of counters.parquet in batches."""
        for counters in self.ranks:
            yield from counters.batches()

    def table(self) -> pa.Table:
        """Return all rows of counters.parquet."""
        return pa.concat_tables([SCHEMA.empty_table(), *self.batches()]).unify_dictionaries()

    def write_parquet(self, path: Path) -> None:
        """Write a Parquet file, with times as differences to save space."""
        repeated = [name for name in SCHEMA.names if name != "time_ns"]
        differences = {"time_ns": "DELTA_BINARY_PACKED"}
        with pq.ParquetWriter(
            path,
            SCHEMA,
            compression="zstd",
            use_dictionary=repeated,
            column_encoding=differences,
        ) as file:
            for batch in self.batches():
                file.write_table(batch, row_group_size=BATCH_ROWS)


NO_COUNTERS = Counters()


class Collected(Chunks):
    """Collects tables of counters while a profile is read."""

    def __init__(self) -> None:
        super().__init__()
        self.most_rows = BATCH_ROWS, BATCH_ROWS

    def _spool(self, folder: Folder) -> None:
        self._files.append(folder.new("counters"))
        write_sorted(self._files[-1], sorted_by_time(self._take_all()))

    def counters(self) -> Counters:
        if self._folder and self._rows:
            self._spool(self._folder)
        if self._folder:
            return Counters.in_files(self._files, self._folder)
        return Counters.of(self._tables)


class Series(NamedTuple):
    """The fields that distinguish one counter from another."""

    rank: int | None
    pid: int | None
    device: int | None
    name: str
    unit: str | None
    allocator: str | None

    @property
    def owner(self) -> tuple[int | None, int | None, int | None, str | None]:
        """Identify the memory that a counter measures: rank, process, device, allocator."""
        return self.rank, self.pid, self.device, self.allocator


#: (counter, times in ns, values); a value is valid until the next time.
Values = tuple[Series, Ints, NDArray[np.float64]]


def by_series(rows: pa.Table) -> Iterator[Values]:
    """Yield (counter, times, values) of each counter, without null values."""
    rows = rows.filter(rows.column("value").is_valid()).combine_chunks()
    if not len(rows):
        return
    texts = {name: rows.column(name).chunk(0) for name in _TEXTS}
    codes = [text.indices.fill_null(NONE).to_numpy().astype(np.int64) for text in texts.values()]
    ids = [
        rows.column(name).fill_null(UNKNOWN).to_numpy().astype(np.int64)
        for name in ("rank", "pid", "device")
    ]
    groups, time = Groups(*ids, *codes), rows.column("time_ns").to_numpy()
    value = rows.column("value").to_numpy()
    for first, members in zip(groups.first.tolist(), groups.members(), strict=True):
        rank, pid, device = (None if of[first] == UNKNOWN else int(of[first]) for of in ids)
        named = {name: text[first].as_py() for name, text in texts.items()}
        yield Series(rank, pid, device, **named), time[members], value[members]


def levels(read: Callable[[], Iterable[pa.Table]]) -> Iterator[Values]:
    """Yield each counter's values over time, with single allocations summed to totals."""
    with_totals = {s.owner for rows in read() for s, _, _ in by_series(rows) if s.name == ALLOCATED}
    sums: dict[Series, float] = defaultdict(float)
    for rows in read():
        for series, time_ns, values in by_series(rows):
            if series.name != CHANGE:
                yield series, time_ns, values
            elif series.owner not in with_totals:
                # sum allocations and frees, because the profile has no totals
                running = sums[series] + np.cumsum(values)
                sums[series] = float(running[-1])
                yield series._replace(name=SINCE_BEGIN), time_ns, running
