"""Nsight Systems' tables as Parquet files in a folder (``nsys export --type parquetdir``).

A file is a table of the SQLite export, called by its name; they are read as that (``nsys``).
Source: docs.nvidia.com/nsight-systems/UserGuide, "CLI Export Command Switch Options"; no such
export was at hand.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lstmprof.errors import ProfileError
from lstmprof.events import Profile
from lstmprof.formats.cuda import nsys
from lstmprof.formats.cuda.database_tables import UNKNOWN, Ints, Tables
from lstmprof.formats.raw_file import FREE_BYTES, MAX_RATIO, RawFile

_ENDING = ".parquet"
_CHUNK_ROWS = 65_536
#: What the texts of so many rows may take; names of kernels have some 1,000 characters.
_MOST_CHUNK_BYTES = 2**28
_AGAIN = "export the report again: nsys export --type parquetdir"


def is_table(path: Path) -> bool:
    """Return whether the file is named like a table of Nsight Systems."""
    return path.suffix == _ENDING and nsys.is_own_table(path.stem)


def recognises(raw: RawFile) -> bool:
    """Whether ``raw`` is a folder."""
    return raw.folder is not None


def read(raw: RawFile) -> Profile:
    """The profile in a folder of Parquet files.

    Raises:
        ProfileError: a file is damaged, or they hold neither a CUDA call or activity nor a range.
    """
    assert raw.folder is not None
    try:
        return nsys.profile(raw.path, ParquetTables(raw.folder))
    except (pa.ArrowException, OSError) as error:
        first_line = str(error).partition("\n")[0][:200]
        raise ProfileError(raw.path, f"cannot be read ({first_line})", _AGAIN) from error


class ParquetTables(Tables):
    """The tables in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._footers: dict[str, tuple[pq.FileMetaData, list[str]]] = {}

    @cached_property
    def columns(self) -> Mapping[str, frozenset[str]]:
        """The columns of each table with a unique name, neither lists nor structures."""
        files = sorted(path for path in self._folder.iterdir() if path.suffix == _ENDING)
        return {path.stem: _plain(self._file(path.stem)) for path in files if path.is_file()}

    def int_chunks(self, table: str, *names: str) -> Iterator[dict[str, Ints]]:
        """Yield these columns, some rows at a time, like ``ints``."""
        present = [name for name in names if name in self.columns[table]]
        for batch in self._batches(table, present):
            absent = np.full(len(batch), UNKNOWN)
            read = {name: _ints(batch.column(name)) for name in present}
            yield {name: read.get(name, absent) for name in names}

    def text_chunks(self, table: str, name: str) -> Iterator[pa.Array]:
        """Yield one column as Arrow arrays, some rows at a time."""
        if name in self.columns.get(table, frozenset()):
            for batch in self._batches(table, [name]):
                yield self._texts(table, batch.column(name))

    def _file(self, table: str) -> pq.ParquetFile:
        path = self._folder / f"{table}{_ENDING}"
        try:
            if table not in self._footers:
                file = pq.ParquetFile(path)
                texts = [f.name for f in file.schema_arrow if _is_text(f.type)]
                self._footers[table] = file.metadata, texts
            metadata, texts = self._footers[table]
            return pq.ParquetFile(path, read_dictionary=texts, metadata=metadata)
        except (pa.ArrowException, OSError, UnicodeError) as error:
            fault = "is not a Parquet file, or is truncated"
            raise ProfileError(path, fault, _AGAIN) from error

    def _batches(self, table: str, names: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield ``names`` of a table in batches of a fixed number of rows."""
        file = self._file(table)
        size = (self._folder / f"{table}{_ENDING}").stat().st_size
        if file.metadata.num_rows * 8 > max(FREE_BYTES, MAX_RATIO * size):
            rows = f"{file.metadata.num_rows} rows in its {size} bytes"
            raise ProfileError(self._folder / f"{table}{_ENDING}", f"claims to hold {rows}", _AGAIN)
        for group in range(file.num_row_groups):
            left = file.metadata.row_group(group).num_rows
            counts = [min(_CHUNK_ROWS, left - at) for at in range(0, left, _CHUNK_ROWS)]
            if not names:  # a column that is not there has as many rows as those that are
                yield from map(_empty, counts)
                continue
            # to hand a few rows to other threads takes four times as long as to read them
            read = file.iter_batches(_CHUNK_ROWS, [group], names, use_threads=len(counts) > 1)
            for batch, count in itertools.zip_longest(read, counts, fillvalue=()):
                if not isinstance(batch, pa.RecordBatch) or len(batch) != count:
                    fault = "is damaged: a column has fewer or more rows than the table"
                    raise ProfileError(self._folder / f"{table}{_ENDING}", fault, _AGAIN)
                yield batch

    def _texts(self, table: str, column: pa.Array) -> pa.Array:
        if not _is_text(column.type):
            return pa.nulls(len(column), pa.string())
        if isinstance(column, pa.DictionaryArray):
            lengths = pc.binary_length(column.dictionary).take(column.indices)
            if (pc.sum(lengths).as_py() or 0) > _MOST_CHUNK_BYTES:
                path = self._folder / f"{table}{_ENDING}"
                raise ProfileError(path, "has texts too long to be names", _AGAIN)
            column = column.cast(column.type.value_type)
        texts = column.cast(pa.binary()).to_pylist()
        mended = (None if text is None else text.decode("utf-8", "replace") for text in texts)
        return pa.array(mended, pa.string())


def _plain(file: pq.ParquetFile) -> frozenset[str]:
    fields = [*file.schema_arrow]
    taken = Counter(field.name for field in fields)
    return frozenset(
        f.name for f in fields if taken[f.name] == 1 and not pa.types.is_nested(f.type)
    )


def _is_text(type_: pa.DataType) -> bool:
    if pa.types.is_dictionary(type_):
        return _is_text(type_.value_type)
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _ints(column: pa.Array) -> Ints:
    """Convert to int64; null, too large and other types become ``UNKNOWN``."""
    if not pa.types.is_integer(column.type):
        return np.full(len(column), UNKNOWN)
    if pa.types.is_uint64(column.type):  # those of a process or thread use the upper bits too
        values = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint64)
        fits = values < np.uint64(2**63)
        known = fits & column.is_valid().to_numpy(zero_copy_only=False)
        return np.where(known, values.astype(np.int64), UNKNOWN)
    whole: Ints = column.cast(pa.int64()).fill_null(UNKNOWN).to_numpy(zero_copy_only=False)
    return whole


def _empty(rows: int) -> pa.RecordBatch:
    return pa.record_batch({"": pa.nulls(rows)})
