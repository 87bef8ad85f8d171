"""Run directories with a file changed, lost, exchanged or of other columns; a folder is an archive.

The folder travels as a tar archive of its files, so that an input is bytes like every other.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from attack import bytes_mutations, json_mutations
from attack.bytes_mutations import INTEGERS, TEXTS
from attack.seeds import tar

RUN, EVENTS, TIMINGS = "run.json", "events.parquet", "timings.parquet"
_FILES = (RUN, EVENTS, TIMINGS, "samples.parquet")
_VERSION = b"lstmprof.events_schema"


def unpacked(content: bytes) -> dict[str, bytes]:
    """The files of a folder by their names; those that can be read of a damaged archive."""
    files: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            stream = archive.extractfile(member) if member.isfile() else None
            if stream is not None:
                files[member.name] = stream.read()
    return files


def write(content: bytes, folder: Path) -> None:
    """Put the run of ``content`` into ``folder``, in place of what was there."""
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for name, file in unpacked(content).items():
        (folder / Path(name).name).write_bytes(file)


def mutated(content: bytes, draw: Random) -> bytes:
    """``content`` with a change in one or two of its files."""
    files = unpacked(content)
    for _ in range(draw.choice((1, 1, 2))):
        name = draw.choice((RUN, RUN, RUN, RUN, *files))
        file = files.get(name, b"{}")
        if draw.random() < 0.04:
            _exchanged(files, name, draw)
        elif name == RUN:
            files[name] = json_mutations.mutated(file, draw, list(TEXTS))
        elif draw.random() < 0.5:
            files[name] = _parquet_bytes(file, draw)
        else:
            files[name] = _table(file, draw)
    return tar(files)


def _exchanged(files: dict[str, bytes], name: str, draw: Random) -> None:
    if draw.random() < 0.5:
        files.pop(name, None)
    else:
        files[draw.choice(_FILES)] = draw.choice((*files.values(), b"", b"PAR1PAR1"))


def _parquet_bytes(file: bytes, draw: Random) -> bytes:
    """Damage in a column's pages, in the footer, which describes the file, or anywhere."""
    if draw.random() < 0.4 and (pages := _pages(file, draw)):
        at = draw.choice(pages[: draw.choice((40, len(pages)))])  # a page begins with its header
        return file[:at] + draw.randbytes(draw.choice((1, 1, 8))) + file[at + 1 :]
    if len(file) > 8 and draw.random() < 0.6:
        begin = max(4, len(file) - int.from_bytes(file[-8:-4], "little") - 8)
        at = draw.randrange(min(begin, len(file) - 1), len(file))
        return file[:at] + draw.randbytes(1) + file[at + 1 :]
    return bytes_mutations.mutated(file, draw)


def _pages(file: bytes, draw: Random) -> range | None:
    """Return the bytes of a column's pages; None if the file is damaged."""
    try:
        group = pq.read_metadata(io.BytesIO(file)).row_group(0)
        column = group.column(draw.randrange(group.num_columns))
    except (pa.ArrowException, OSError, IndexError, ValueError):
        return None
    first = column.dictionary_page_offset or column.data_page_offset
    return range(first, min(len(file), first + column.total_compressed_size))


def _table(file: bytes, draw: Random) -> bytes:
    try:
        table = pq.ParquetFile(io.BytesIO(file)).read(use_threads=False)
        for _ in range(draw.randint(1, 2)):
            table = draw.choice(_CHANGES)(table, draw)
        buffer = io.BytesIO()
        pq.write_table(table, buffer, compression=draw.choice(("none", "zstd")))
    except (pa.ArrowException, OSError, IndexError, ValueError):
        return _parquet_bytes(file, draw)
    return buffer.getvalue()


def _column_changed(table: pa.Table, draw: Random) -> tuple[int, pa.Field, list[Any]]:
    at = draw.randrange(table.num_columns)
    return at, table.schema.field(at), table.column(at).to_pylist()


def _cells(table: pa.Table, draw: Random) -> pa.Table:
    """Other values, in the column's own type where it holds them."""
    at, field, values = _column_changed(table, draw)
    whole = [number for number in INTEGERS if -(2**63) <= number < 2**63]
    for _ in range(draw.choice((1, 1, 2, len(values)))):
        row = draw.randrange(len(values))
        near = [*range(-2, len(values) + 2)]
        is_number = isinstance(values[row], int) or values[row] is None
        pool: Any = draw.choice((whole, near, near)) if is_number else (*TEXTS[:20], None)
        values[row] = draw.choice((*pool, None))
    printable = [v.replace("\ud800", "?") if isinstance(v, str) else v for v in values]
    changed = pa.array(printable).cast(field.type) if field.type != pa.null() else pa.nulls(1)
    return table.set_column(at, pa.field(field.name, field.type), changed)


def _retyped(table: pa.Table, draw: Random) -> pa.Table:
    at, field, values = _column_changed(table, draw)
    type_ = draw.choice((pa.string(), pa.float64(), pa.int8(), pa.bool_(), pa.binary(), pa.null()))
    kinds = (
        pa.nulls(len(values)),
        pa.array([str(v) for v in values]),
        pa.array([[1]] * len(values)),
    )
    try:
        changed = table.column(at).cast(type_)
    except pa.ArrowException:
        changed = draw.choice(kinds)
    return table.set_column(at, field.name, changed)


def _dropped(table: pa.Table, draw: Random) -> pa.Table:
    return table.remove_column(draw.randrange(table.num_columns))


def _renamed(table: pa.Table, draw: Random) -> pa.Table:
    names = table.column_names
    names[draw.randrange(len(names))] = draw.choice((*names, "x", ""))
    return table.rename_columns(names)


def _reordered(table: pa.Table, draw: Random) -> pa.Table:
    rows = [draw.randrange(len(table)) for _ in range(draw.choice((0, 1, len(table), 30)))]
    return table.take(pa.array(rows, pa.int64()))


def _versioned(table: pa.Table, draw: Random) -> pa.Table:
    version = draw.choice((b"", b"1", b"2", b"3", b"5", b"99999", b"\xff", b"4 "))
    return table.replace_schema_metadata(draw.choice(({_VERSION: version}, None)))


_CHANGES: tuple[Callable[[pa.Table, Random], pa.Table], ...] = (
    *(_cells, _cells, _cells, _cells, _retyped, _dropped, _renamed, _reordered, _versioned),
)
