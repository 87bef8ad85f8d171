"""Check the tables of a run before lstmprof computes anything from the tables.

A run may come from somebody else, so the tables may contain anything. The checks reject, for
example, an event that is its own ancestor, or a small file that claims billions of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lstmprof.base.errors import RunError
from lstmprof.events.counters import SCHEMA as COUNTERS
from lstmprof.events.intervals import Ints
from lstmprof.events.narrow import Gathered
from lstmprof.events.schema import COLUMNS, KINDS, SCHEMA
from lstmprof.events.table import NONE
from lstmprof.runs.metadata import AGAIN

#: Columns that contain ids of other events.
_LINKS = ("parent_id", "launch_id", "op_id", "forward_id")
_TIMES = ("start_ns", "dur_ns")
#: Largest time in ns; the sum of two such times fits into int64.
MOST_NS = 2**62
#: Number of rows that a file of any size may have, and smallest number of bytes per further row
#: (real rows: 4.8 or more).
FREE_ROWS = 2**22
ROW_BYTES = 1
#: Smallest number of bytes per further row of counters.parquet (real rows: 3, repeated rows: 0.1).
COUNTER_BYTES = 0.01
#: Largest number of bytes of text: in a small file, and per byte of a larger file (real runs: 2).
FREE_TEXT_BYTES, TEXT_RATIO = 2**25, 200
_BATCH_ROWS = 2**18
_WORDS = [c.name for c in COLUMNS if c.derived and pa.types.is_dictionary(c.type)]
_MOST_LETTERS = 200
_NULL = "{} is null in a row"
_WIDTHS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32())
_TEXTS = (pa.string(), pa.large_string())


def check_types(path: Path, actual: pa.Schema, schema: pa.Schema) -> None:
    """Check the types of columns; integers may have another width than the schema."""
    for field in actual:
        wanted = schema.field(field.name).type
        if not _serves(field.type, wanted):
            kind = "text" if pa.types.is_dictionary(wanted) else wanted
            raise RunError(f"{path}: column {field.name} has type {field.type}, not {kind}", AGAIN)


def _serves(actual: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_dictionary(wanted) or wanted in _TEXTS:
        return (actual.value_type if pa.types.is_dictionary(actual) else actual) in _TEXTS
    if pa.types.is_integer(wanted):
        return actual in _WIDTHS
    return bool(pa.types.is_floating(actual) if pa.types.is_floating(wanted) else actual == wanted)


def check_nulls(path: Path, table: pa.Table, schema: pa.Schema) -> None:
    """Check that columns that the schema calls non-nullable contain no null."""
    for field in schema:
        if not field.nullable and table.column(field.name).null_count:
            raise RunError(f"{path}: {_NULL.format(field.name)}", AGAIN)


def check_counts(path: Path, table: pa.Table) -> None:
    """Check that integers are not negative, and that a column's sum cannot overflow."""
    for field in table.schema:
        if pa.types.is_integer(field.type):
            bounds = pc.min_max(table.column(field.name))
            if (bounds["min"].as_py() or 0) < 0:
                raise RunError(f"{path}: {field.name} is negative", AGAIN)
            if (bounds["max"].as_py() or 0) * len(table) > MOST_NS:
                raise RunError(f"{path}: {field.name} is too large", AGAIN)


def check_sums(table: str, *columns: Ints) -> None:
    """Check that the sum of each column fits into an int64."""
    for values in columns:
        whole = float(values.sum(dtype=np.float64))
        if abs(whole) >= 2.0**63:
            raise RunError(f"{table}: the sum {whole:.3g} exceeds 64 bits", AGAIN)


def check_texts(path: Path, table: pa.Table) -> None:
    """Check that texts are UTF-8, and that texts in derived columns are short."""
    for name in table.schema.names:
        for chunk in table.column(name).chunks:
            texts = chunk.dictionary if pa.types.is_dictionary(chunk.type) else chunk
            if texts.type in _TEXTS:
                try:
                    texts.validate(full=True)
                except pa.ArrowInvalid as fault:
                    raise RunError(f"{path}: {name} is not UTF-8", AGAIN) from fault
            if name in _WORDS:
                length = pc.max(pc.utf8_length(texts)).as_py() or 0
                if length > _MOST_LETTERS:
                    raise RunError(f"{path}: {name} is too long ({length} characters)", AGAIN)


def check_length(path: Path, file: pq.ParquetFile, row_bytes: float = ROW_BYTES) -> None:
    """Refuse a file with more rows or text than a file of this size can contain."""
    rows, length = file.metadata.num_rows, path.stat().st_size
    if rows > FREE_ROWS + length / row_bytes:
        raise RunError(f"{path}: claims {rows} rows in {length} bytes", AGAIN)
    types = file.schema_arrow.types
    texts = [number for number, type_ in enumerate(types) if not pa.types.is_primitive(type_)]
    groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    text_bytes = sum(g.column(n).total_uncompressed_size for g in groups for n in texts)
    if text_bytes > max(FREE_TEXT_BYTES, TEXT_RATIO * length):
        raise RunError(f"{path}: has {text_bytes} bytes of text in a file of {length} bytes", AGAIN)


def check_counters(path: Path, file: pq.ParquetFile) -> None:
    for batch in file.iter_batches(_BATCH_ROWS):
        table = pa.Table.from_batches([batch])
        check_nulls(path, table, COUNTERS)
        check_texts(path, table)
        time = _integers(batch, "time_ns")
        if len(time) and (time.min() < -MOST_NS or time.max() > MOST_NS):
            raise RunError(f"{path}: time_ns exceeds a century", AGAIN)
        if not pc.all(pc.is_finite(table.column("value")).fill_null(True)).as_py():
            raise RunError(f"{path}: value is not a number in a row", AGAIN)


def check_events(path: Path, file: pq.ParquetFile, gathered: Gathered | None = None) -> None:
    """Check the rows of events.parquet, and add the rows to ``gathered``."""
    count = file.metadata.num_rows
    required = [field.name for field in SCHEMA if not field.nullable]
    columns = [*required, *(name for name in _LINKS if name in file.schema_arrow.names)]
    columns += [] if gathered is None else gathered.columns
    suspects: list[Ints] = []
    first = 0
    for batch in file.iter_batches(
        _BATCH_ROWS, columns=list(dict.fromkeys(columns)), use_threads=False
    ):
        fault = next(_faults(batch, first, count), None)
        if fault:
            raise RunError(f"{path}: {fault}", AGAIN)
        # every cycle has an event whose parent is in the event's own or a later row
        parent = np.asarray(batch.column("parent_id").fill_null(NONE), dtype=np.int64)
        suspects.append(first + np.flatnonzero(parent >= np.arange(first, first + len(parent))))
        if gathered is not None:
            gathered.add(batch)
        first += len(batch)
    pa.default_memory_pool().release_unused()
    rows = np.concatenate([np.empty(0, np.int64), *suspects])
    if len(rows) and (row := _around_itself(file, rows)) is not None:
        raise RunError(f"{path}: event {row} is its own ancestor (parent_id)", AGAIN)


def _faults(batch: pa.RecordBatch, first: int, count: int) -> Iterator[str]:
    """Yield the faults of a batch of events; ``first`` is the row number of its start."""
    for field in SCHEMA:
        if not field.nullable and batch.column(field.name).null_count:
            yield _NULL.format(field.name)
    numbers = _integers(batch, "event_id")
    if not np.array_equal(numbers, np.arange(first, first + len(batch))):
        yield "event_id differs from the row number"
    start, dur = (_integers(batch, name) for name in _TIMES)
    if len(dur) and dur.min() < 0:
        yield f"event {first + int(np.argmin(dur))} has a negative dur_ns"
    if len(dur) and (
        start.min() < -MOST_NS or max(start.max(), dur.max(), (start + dur).max()) >= MOST_NS
    ):
        yield "start_ns or dur_ns exceeds a century"
    for name in _LINKS:
        bounds = pc.min_max(batch.column(name)).as_py() if name in batch.schema.names else {}
        for event_id in bounds.values():
            if event_id is not None and not 0 <= event_id < count:
                yield f"{name} refers to event {event_id}, which does not exist"
    unknown = set(batch.column("kind").unique().to_pylist()) - set(KINDS)
    if unknown:
        yield f"unknown kind '{next(iter(unknown))}' (known: {', '.join(KINDS)})"


def _integers(batch: pa.RecordBatch, name: str) -> Ints:
    return np.asarray(batch.column(name).to_numpy(zero_copy_only=False), dtype=np.int64)


def _around_itself(file: pq.ParquetFile, rows: Ints) -> int | None:
    """Return the first of ``rows`` whose parents lead into a cycle, or None."""
    above = file.read(["parent_id"]).column(0).fill_null(NONE).to_numpy().astype(np.int64)
    ancestor = np.append(above, NONE)
    for _ in range(len(above).bit_length()):
        ancestor = ancestor[ancestor]
    endless = rows[ancestor[rows] != NONE]
    return int(endless[0]) if len(endless) else None
