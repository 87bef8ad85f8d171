"""Sort a profile's events on disk, because the events may not fit into memory.

::

  chunks of the profile     a a b a | b c b | c d c     (a letter is an event's start)
  sorted files              a a a b | b b c | c c d     (one file per chunk)
  batches                   a a a | b b b | c c c | d   (rows of all files)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from lstmprof.events.intervals import Ints, longer_first
from lstmprof.events.schema import SCHEMA
from lstmprof.events.stored import (
    TEXT_COLUMNS,
    Folder,
    StoredBatch,
    StoredEvents,
    Texts,
    read_columns,
    write_columns,
)
from lstmprof.events.table import EventTable

#: Largest sampling interval in rows; the sampled times give the borders of batches.
_SAMPLED = 32


@dataclass(frozen=True)
class SortedFiles:
    """Table files on disk, each sorted by the column that ``time`` names."""

    paths: Sequence[Path]
    time: str

    @property
    def first_ns(self) -> int:
        return int(self._ends[0].min())

    @property
    def most_at_once(self) -> int:
        """Return the largest number of files that overlap in time."""
        first, last = (np.sort(times) for times in self._ends)
        begun, ended = np.arange(1, len(first) + 1), np.searchsorted(last, first)
        return int((begun - ended).max())

    def borders(self, rows: int) -> list[int]:
        """Return times that split the files' rows into batches of about ``rows`` rows."""
        stride = max(1, min(_SAMPLED, rows // _SAMPLED))
        sampled = [self._times(path)[::stride].astype(np.int64) for path in self.paths]
        first = np.unique(np.sort(np.concatenate(sampled))[:: max(1, rows // stride)])
        return [*first.tolist(), int(self._ends[1].max()) + 1]

    def between(self, first_ns: int, end_ns: int) -> list[pa.RecordBatch]:
        """Return the rows of each file with times in [first_ns, end_ns)."""
        first, last = self._ends
        numbers = np.flatnonzero((first < end_ns) & (last >= first_ns))
        return [self._cut(read_columns(self.paths[n]), first_ns, end_ns) for n in numbers.tolist()]

    def remove_ending(self, first_ns: int, end_ns: int) -> None:
        """Delete the files whose last time is in [first_ns, end_ns)."""
        last = self._ends[1]
        for number in np.flatnonzero((last >= first_ns) & (last < end_ns)).tolist():
            self.paths[number].unlink()

    @cached_property
    def _ends(self) -> tuple[Ints, Ints]:
        """Return the first time and the last time in each file."""
        ends = [self._times(path)[[0, -1]].tolist() for path in self.paths]
        first, last = np.array(ends, dtype=np.int64).T
        return first, last

    def _times(self, path: Path) -> Ints:
        times: Ints = read_columns(path).column(self.time).to_numpy()
        return times

    def _cut(self, columns: pa.RecordBatch, first_ns: int, end_ns: int) -> pa.RecordBatch:
        first, end = np.searchsorted(columns.column(self.time).to_numpy(), (first_ns, end_ns))
        return columns.slice(first, end - first)


#: Events per batch, and therefore per row group in Parquet.
BATCH_ROWS = 2**17
#: Smallest number of events that lstmprof sorts on disk, not in memory.
SPOOLED_ROWS = 2**18
#: Number of events that a reader writes to disk at a time.
CHUNK_ROWS = 2**16
#: Largest number of files to merge at a time.
MERGED_CHUNKS = 64


def write_chunk(path: Path, columns: pa.Table) -> None:
    """Write events to a file, sorted by start, without columns that are all null."""
    recorded = [name for name in columns.column_names if columns[name].null_count < len(columns)]
    write_columns(path, _sorted(columns.select(recorded)))


def _sorted(columns: pa.Table) -> pa.Table:
    start, dur = (
        columns.column(name).to_numpy().astype(np.int64) for name in ("start_ns", "dur_ns")
    )
    in_order = (start[1:] > start[:-1]) | ((start[1:] == start[:-1]) & (dur[1:] <= dur[:-1]))
    if in_order.all():
        return columns
    # keep the order of events with equal times, as ``events_table`` does
    return columns.take(pa.array(longer_first(start, dur)))


def on_disk(events: EventTable, columns: Sequence[str], folder: Folder) -> EventTable:
    """Copy columns of an events table to a new events table on disk."""
    if isinstance(events, StoredEvents) or not len(events):
        return events
    files = []
    chosen = events.select(columns).arrow
    for first in range(0, len(chosen), CHUNK_ROWS):
        files.append(folder.new("chunk"))
        write_chunk(files[-1], chosen.slice(first, CHUNK_ROWS))
    return Spool(folder, files).events(0, None)


class Chunks:
    """Collects a profile's events in memory, or on disk if there are many events."""

    #: Numbers of rows to collect before the first file is written, and before each later file.
    most_rows = (SPOOLED_ROWS, CHUNK_ROWS)

    def __init__(self) -> None:
        self._tables: list[pa.Table] = []
        self._rows = 0
        self._files: list[Path] = []
        self._folder: Folder | None = None

    def add(self, columns: pa.Table) -> None:
        self._tables.append(columns)
        self._rows += len(columns)
        if self._rows >= self.most_rows[self._folder is not None]:
            self._folder = self._folder or Folder()
            self._spool(self._folder)

    def columns(self) -> pa.Table | Spool | None:
        """Return all collected events, or None if there are none."""
        if self._folder:
            if self._rows:
                self._spool(self._folder)
            return Spool(self._folder, self._files)
        return self._take_all() if self._rows else None

    def _take_all(self) -> pa.Table:
        whole = pa.concat_tables(self._tables, promote_options="default").unify_dictionaries()
        self._tables, self._rows = [], 0
        return whole

    def _spool(self, folder: Folder) -> None:
        whole = self._take_all().combine_chunks()
        for first in range(0, len(whole), CHUNK_ROWS):
            self._files.append(folder.new("chunk"))
            write_chunk(self._files[-1], whole.slice(first, CHUNK_ROWS))


@dataclass(frozen=True)
class Spool:
    """All events of a profile, in sorted files."""

    folder: Folder
    files: Sequence[Path]

    @property
    def first_ns(self) -> int:
        return self._sorted.first_ns

    def events(self, origin_ns: int, rank: int | None) -> StoredEvents:
        """Sort the events into an events table on disk, and delete the files of this spool."""
        texts = self._texts()
        batches: list[StoredBatch] = []
        first_row = 0
        for columns in self._merged(self._sorted_by_time(texts), BATCH_ROWS, texts):
            start = pa.array(columns.column("start_ns").to_numpy().astype(np.int64) - origin_ns)
            columns = columns.set_column(columns.column_names.index("start_ns"), "start_ns", start)
            path = self.folder.new("batch")
            write_columns(path, columns)
            batches.append(StoredBatch(first_row, len(columns), start[0].as_py(), (path,)))
            first_row += len(columns)
        return StoredEvents(self.folder, texts, batches, rank)

    @cached_property
    def _sorted(self) -> SortedFiles:
        return _files([self.files])

    def _sorted_by_time(self, texts: Texts) -> SortedFiles:
        """Merge files until at most ``MERGED_CHUNKS`` files overlap in time."""
        read, rows = self._sorted, [[path] for path in self.files]
        while read.most_at_once > MERGED_CHUNKS:
            firsts = range(0, len(rows), MERGED_CHUNKS)
            rows = [self._one_row(rows[n : n + MERGED_CHUNKS], texts) for n in firsts]
            read = _files(rows)  # the merged files of one list follow each other in time
        return read

    def _one_row(self, rows: Sequence[Sequence[Path]], texts: Texts) -> list[Path]:
        files = []
        for columns in self._merged(_files(rows), CHUNK_ROWS, texts):
            files.append(self.folder.new("merged"))
            write_columns(files[-1], columns)
        return files

    def _merged(self, read: SortedFiles, rows: int, texts: Texts) -> Iterator[pa.Table]:
        """Yield the events in order of time, and delete each file after use."""
        for first_ns, end_ns in itertools.pairwise(read.borders(rows)):
            yield self._between(read, first_ns, end_ns, texts)
            read.remove_ending(first_ns, end_ns)

    def _texts(self) -> Texts:
        """Collect the distinct texts of all files, numbered in order of first use."""
        texts = Texts()
        for start in range(0, len(self.files), MERGED_CHUNKS):
            read = [read_columns(path) for path in self.files[start : start + MERGED_CHUNKS]]
            for name in TEXT_COLUMNS:
                columns = [part.column(name) for part in read if name in part.schema.names]
                texts.coded(name, [column.slice(0, 0) for column in columns])
        return texts

    def _between(self, read: SortedFiles, first_ns: int, end_ns: int, texts: Texts) -> pa.Table:
        """Return the sorted events that begin in [first_ns, end_ns)."""
        parts = read.between(first_ns, end_ns)
        names = sorted({name for part in parts for name in part.schema.names})
        columns = pa.table({name: _joined(name, parts, texts) for name in names})
        return _sorted(columns)


def _files(rows: Sequence[Sequence[Path]]) -> SortedFiles:
    return SortedFiles([path for row in rows for path in row], "start_ns")


def _joined(name: str, parts: Sequence[pa.RecordBatch], texts: Texts) -> pa.Array:
    """Join a column of several files, cast to the widest type among the files."""
    types = [part.column(name).type for part in parts if name in part.schema.names]
    is_text = pa.types.is_dictionary(types[0])
    type_ = SCHEMA.field(name).type if is_text else max(types, key=lambda type_: type_.bit_width)
    columns = [
        part.column(name) if name in part.schema.names else pa.nulls(len(part), type_)
        for part in parts
    ]
    if is_text:
        return pa.concat_arrays(texts.coded(name, columns))
    return pa.concat_arrays([column.cast(type_) for column in columns])
