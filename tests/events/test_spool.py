"""Events on disk are the events table, by whatever way they are read."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from threading import Event

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lstmprof.events import spool
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.stored_annotation import deciding_events
from lstmprof.events.schema import SCHEMA
from lstmprof.events.spool import SortedFiles, Spool, write_chunk
from lstmprof.events.stored import Folder, StoredEvents, read_columns, write_columns
from lstmprof.events.table import events_table

#  time      0    1    2    3    4    5    6
#  thread 1  [ step ----------------------- ]
#            [ mm ------- ][ add ]
#             [launch]
#  device 0             [ gemm ---- ]
COLUMNS = {
    "kind": ["kernel", "op", "runtime", "step", "op"],
    "name": ["gemm", "aten::mm", "cudaLaunchKernel", "ProfilerStep#7", "aten::add"],
    "start_ns": [1020, 1000, 1010, 1000, 1030],
    "dur_ns": [20, 30, 10, 60, 10],
    "pid": [None, 5, 5, 5, 5],
    "tid": [None, 1, 1, 1, 1],
    "device": [0, None, None, None, None],
    "stream": [7, None, None, None, None],
    "correlation_id": [2**40, None, 2**40, None, None],
    "shapes": [None, "[[2,3]]", None, None, "[[2]]"],
}


def part(first: int, last: int, *left_out: str) -> pa.Table:
    kept = {name: values[first:last] for name, values in COLUMNS.items() if name not in left_out}
    arrays = {name: pa.array(values, SCHEMA.field(name).type) for name, values in kept.items()}
    return pa.table(arrays)


@pytest.fixture(params=[1, 2, 100])
def stored(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> StoredEvents:
    """The events from two chunks, the second without a column, a few rows a batch."""
    monkeypatch.setattr(spool, "BATCH_ROWS", request.param)
    folder = Folder()
    chunks = [folder.path / "a", folder.path / "b"]
    write_chunk(chunks[0], part(0, 3))
    write_chunk(chunks[1], part(3, 5, "stream"))
    return Spool(folder, chunks).events(origin_ns=1000, rank=3)


@pytest.fixture
def in_memory() -> pa.Table:
    starts = [start - 1000 for start in COLUMNS["start_ns"]]
    return events_table({**COLUMNS, "start_ns": starts, "rank": [3] * 5})


def test_the_events_are_those_of_the_chunks(stored: StoredEvents, in_memory: pa.Table) -> None:
    assert len(stored) == 5
    stored.arrow.validate(full=True)
    assert stored.arrow.schema == SCHEMA
    assert stored.to_pylist() == in_memory.to_pylist()


def test_a_column_without_a_value_is_not_in_a_chunk(tmp_path: Path) -> None:
    write_chunk(tmp_path / "a", part(3, 5))
    there = read_columns(tmp_path / "a").schema.names
    assert there == ["kind", "name", "start_ns", "dur_ns", "pid", "tid", "shapes"]


def test_columns_are_read_as_from_a_table(stored: StoredEvents, in_memory: pa.Table) -> None:
    assert (
        stored.ints("correlation_id", -1).tolist() == in_memory.ints("correlation_id", -1).tolist()
    )
    codes, names = stored.texts("name")
    assert [names[code] for code in codes] == in_memory.column("name").to_pylist()
    assert stored.texts("phase")[0].tolist() == [-1] * 5


def test_replaced_columns_leave_the_events_before_as_they_were(stored: StoredEvents) -> None:
    after = stored.with_columns({"step": [7] * 5, "dur_ns": [0, 1, 2, 3, 2**40]})
    assert after.column("dur_ns").to_pylist() == [0, 1, 2, 3, 2**40]
    assert after.column("step").to_pylist() == [7] * 5
    assert stored.column("dur_ns").to_pylist() == [60, 30, 10, 20, 10]
    assert stored.column("step").to_pylist() == [None] * 5


def test_annotated_and_written_they_are_the_same(
    stored: StoredEvents, in_memory: pa.Table, tmp_path: Path
) -> None:
    annotated(stored, captured=False).write_parquet(tmp_path / "events.parquet")
    found = pq.read_table(tmp_path / "events.parquet")
    assert found.schema.equals(SCHEMA, check_metadata=True)
    assert found.to_pylist() == annotated(in_memory, captured=False).to_pylist()


def test_what_a_killed_process_left_goes_and_what_a_living_one_needs_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = (
        "import os, tempfile; from lstmprof.events.stored import Folder;"
        f"tempfile.tempdir = {str(tmp_path)!r}; kept = Folder();"
        "(kept.path / 'column').write_text('x'); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code], check=False)
    assert len(list(tmp_path.iterdir())) == 1
    first = Folder()
    second = Folder()
    assert sorted(tmp_path.iterdir()) == sorted([first.path, second.path])
    assert f"-{os.getpid()}-" in first.path.name
    del first, second
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("merged", [2, 3, 100])
def test_many_chunks_are_merged_some_at_a_time(
    monkeypatch: pytest.MonkeyPatch, merged: int
) -> None:
    """Each chunk has events of every time; of equal times the order is that of the chunks.

    The first of those that are merged have no shapes.
    """
    for name, number in (("MERGED_CHUNKS", merged), ("BATCH_ROWS", 6), ("CHUNK_ROWS", 4)):
        monkeypatch.setattr(spool, name, number)
    ranks, times = range(17), [1000, 1003, 1003, 1010]
    folder, read = Folder(), []
    between = SortedFiles.between

    def noted(self: SortedFiles, first_ns: int, end_ns: int) -> list[pa.RecordBatch]:
        parts = between(self, first_ns, end_ns)
        read.append(len(parts))
        return parts

    monkeypatch.setattr(SortedFiles, "between", noted)
    for rank in ranks:
        columns = {"kind": ["op"] * 4, "name": [f"op{(rank + n) % 7}" for n in range(4)]}
        columns |= {"start_ns": times, "dur_ns": [1] * 4, "rank": [rank] * 4}
        columns |= {"shapes": [None, f"[[{rank}]]", None, None]} if rank > 8 else {}
        arrays = {name: pa.array(v, SCHEMA.field(name).type) for name, v in columns.items()}
        write_chunk(folder.path / f"chunk{rank}", pa.table(arrays))
    found = Spool(folder, [folder.path / f"chunk{rank}" for rank in ranks]).events(1000, None)
    rows = [(time - 1000, rank, n) for n, time in enumerate(times) for rank in ranks]
    rows.sort(key=lambda row: (row[0], row[1]))
    there = found.select(["start_ns", "rank", "name", "shapes"]).to_pylist()
    assert [tuple(row.values()) for row in there] == [
        (start, rank, f"op{(rank + n) % 7}", f"[[{rank}]]" if n == 1 and rank > 8 else None)
        for start, rank, n in rows
    ]
    assert max(read) <= 3 * merged
    assert {path.name.partition("-")[0] for path in folder.path.iterdir()} == {"batch"}


def test_chunks_of_one_time_after_the_other_are_not_merged_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many there are: two at most have events of one time, here those that touch."""
    for name, number in (("MERGED_CHUNKS", 2), ("BATCH_ROWS", 6)):
        monkeypatch.setattr(spool, name, number)
    folder, written = Folder(), []

    def noted(path: Path, columns: pa.Table) -> None:
        written.append(path.name.partition("-")[0])
        write_columns(path, columns)

    monkeypatch.setattr(spool, "write_columns", noted)
    chunks = [folder.path / f"chunk-{number}" for number in range(9)]
    for number, path in enumerate(chunks):
        columns = {"kind": ["op"] * 3, "name": [f"op{number}"] * 3, "dur_ns": [1] * 3}
        columns |= {"start_ns": [1000 + 10 * number + n for n in (0, 5, 10)]}
        arrays = {name: pa.array(v, SCHEMA.field(name).type) for name, v in columns.items()}
        write_chunk(path, pa.table(arrays))
    found = Spool(folder, chunks).events(1000, None)
    assert {*written} == {"chunk", "batch"}
    rows = [(10 * number + n, f"op{number}") for number in range(9) for n in (0, 5, 10)]
    there = found.select(["start_ns", "name"]).to_pylist()
    assert [tuple(row.values()) for row in there] == sorted(rows)


def test_numbers_are_as_wide_as_the_widest_of_their_chunks() -> None:
    folder = Folder()
    origin_ns = 1_700_000_000_000_000_000
    chunks = [
        {"start_ns": [origin_ns, origin_ns + 3], "correlation_id": [5, None], "tid": [-1, 2**33]},
        {"start_ns": [origin_ns + 1, origin_ns + 2], "correlation_id": [2**40, 7]},
        {"start_ns": [origin_ns + 1, origin_ns + 9], "correlation_id": [300, 1]},
    ]
    paths = [folder.new("chunk") for _ in chunks]
    for path, chunk in zip(paths, chunks, strict=True):
        texts = pa.array(["op", "op"]).dictionary_encode()
        write_chunk(path, pa.table({**chunk, "dur_ns": [1, 1], "kind": texts, "name": texts}))
    events = Spool(folder, paths).events(origin_ns, rank=None)
    assert events.column("start_ns").to_pylist() == [0, 1, 1, 2, 3, 9]
    assert events.column("correlation_id").to_pylist() == [5, 2**40, 300, 7, None, 1]
    assert events.column("tid").to_pylist() == [-1, None, None, None, 2**33, None]
    assert events.column("tid").type == SCHEMA.field("tid").type


def test_what_decides_about_steps_is_looked_for_once(stored: StoredEvents) -> None:
    events = annotated(stored, captured=False)
    kept = events.once(deciding_events)
    assert events.once(deciding_events) is kept
    assert kept.equals(deciding_events(events))


def test_a_table_that_is_no_longer_wanted_is_not_written_on(
    stored: StoredEvents, tmp_path: Path
) -> None:
    stop = Event()
    events = annotated(stored, captured=False)
    events.write_parquet(tmp_path / "all.parquet", stop)
    stop.set()
    events.write_parquet(tmp_path / "none.parquet", stop)
    rows = [pq.read_metadata(tmp_path / f"{name}.parquet").num_rows for name in ("all", "none")]
    assert rows == [5, 0]


def test_what_arrow_freed_of_a_batch_is_given_back_before_the_next(
    stored: StoredEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Pool:
        given_back = 0

        def release_unused(self) -> None:
            Pool.given_back += 1

    monkeypatch.setattr(pa, "default_memory_pool", Pool)
    annotated(stored, captured=False)
    assert Pool.given_back == len(stored.batches)
