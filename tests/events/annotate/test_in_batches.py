"""What is derived of an events table on disk, batch by batch, is what the whole table says."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from shared_traces import events as real_events, name, needed, profiles

from lstmprof import formats
from lstmprof.breakdown import break_down
from lstmprof.events import spool
from lstmprof.events.annotate import annotated, recorded as annotate_recorded
from lstmprof.events.annotate.calls import coverage
from lstmprof.events.annotate.recorded import Columns, Tally, recorded
from lstmprof.events.intervals import Ints
from lstmprof.events.schema import COLUMNS, SCHEMA
from lstmprof.events.spool import Spool, write_chunk
from lstmprof.events.stored import Folder, StoredEvents
from lstmprof.events.table import EventTable, events_table
from lstmprof.formats.cuda import database_tables
from lstmprof.formats.kineto import stream
from lstmprof.runs import joined_profiles
from lstmprof.runs.ingest import ingest_profiles
from lstmprof.runs.run import open_run

SIMULATED = sorted(
    path
    for path in (Path(__file__).resolve().parents[2] / "profiles").iterdir()
    if path.suffix != ".json" or path.name.endswith(".pt.trace.json")
)
READ = [c.name for c in COLUMNS if not c.derived and c.name not in ("event_id", "rank")]


def shuffled(events: EventTable, chunk_rows: int) -> pa.Table:
    """What a reader found of ``events``: all columns that it fills, every chunk out of order."""
    order = np.arange(len(events))
    for first in range(0, len(order), chunk_rows):
        order[first : first + chunk_rows] = order[first : first + chunk_rows][::-1]
    return events.select(READ).arrow.take(pa.array(order))


def stored(columns: pa.Table, chunk_rows: int, batch_rows: int) -> StoredEvents:
    """``columns`` as a table on disk."""
    folder, files = Folder(), []
    for first in range(0, len(columns), chunk_rows):
        files.append(folder.new("chunk"))
        write_chunk(files[-1], columns.slice(first, chunk_rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool, "BATCH_ROWS", batch_rows)
        return Spool(folder, files).events(origin_ns=0, rank=None)


def in_memory(columns: pa.Table) -> EventTable:
    return events_table({name: columns.column(name) for name in columns.column_names})


def check(columns: pa.Table, chunk_rows: int, batch_rows: int, step_range: str | None) -> None:
    """Raises AssertionError where the two ways differ."""
    whole = annotated(in_memory(columns), captured=False, step_range=step_range)
    on_disk = stored(columns, chunk_rows, batch_rows)
    found = annotated(on_disk, captured=False, step_range=step_range)
    assert isinstance(found, StoredEvents)
    for column in SCHEMA.names:
        ours, wanted = found.column(column), whole.column(column)
        if pa.types.is_dictionary(ours.type):
            ours, wanted = ours.cast(pa.string()), wanted.cast(pa.string())
        assert ours.combine_chunks().equals(wanted.combine_chunks()), column
    assert recorded(found) == recorded(whole)
    assert coverage(found) == coverage(whole)


@pytest.mark.parametrize("batch_rows", [16, 64])
@pytest.mark.parametrize("path", SIMULATED, ids=lambda path: path.name)
def test_a_simulated_profile(path: Path, batch_rows: int) -> None:
    columns = shuffled(formats.read(path).events, 100)
    assert len(stored(columns, 100, batch_rows).batches) > 1
    check(columns, 100, batch_rows, None)


@needed
@pytest.mark.parametrize("path", profiles(), ids=name)
def test_a_real_profile(path: Path) -> None:
    events = real_events(path)
    batch_rows = max(64, len(events) // 5)
    check(shuffled(events, batch_rows // 3 + 1), batch_rows // 3 + 1, batch_rows, None)


@pytest.mark.parametrize("path", SIMULATED, ids=lambda path: path.name)
def test_a_run_and_its_ledger(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a reader keeps on disk, the run is the same."""
    whole = open_run(ingest_profiles(path, tmp_path / "whole").runs[0].path)
    monkeypatch.setattr(stream, "SPOOLED_BYTES", 0)
    monkeypatch.setattr(database_tables, "_CHUNK_ROWS", 33)
    for name_, rows in (("BATCH_ROWS", 64), ("SPOOLED_ROWS", 100), ("CHUNK_ROWS", 90)):
        monkeypatch.setattr(spool, name_, rows)
    parted = open_run(ingest_profiles(path, tmp_path / "parted").runs[0].path)
    assert parted.events().to_pylist() == whole.events().to_pylist()
    assert parted.info.recorded == whole.info.recorded
    for table in ("ledger", "kernels", "ops", "launches"):
        assert break_down(parted).table(table).equals(break_down(whole).table(table)), table


def test_the_ranks_of_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ranks with the same ids, too many for memory together, are the run that they were."""
    (profile,) = (path for path in SIMULATED if path.name == "kineto-today.pt.trace.json")
    job = tmp_path / "job"
    job.mkdir()
    for rank in range(2):
        shutil.copy(profile, job / f"rank{rank}.pt.trace.json")
    whole = open_run(ingest_profiles(job, tmp_path / "whole").runs[0].path)
    monkeypatch.setattr(joined_profiles, "SPOOLED_ROWS", 100)
    for name_, rows in (("BATCH_ROWS", 64), ("SPOOLED_ROWS", 100), ("CHUNK_ROWS", 90)):
        monkeypatch.setattr(spool, name_, rows)
    parted = open_run(ingest_profiles(job, tmp_path / "parted").runs[0].path)
    assert whole.events().ranks() == [0, 1]
    assert parted.events().to_pylist() == whole.events().to_pylist()
    assert parted.info.recorded == whole.info.recorded
    for table in ("ledger", "kernels", "ranks"):
        assert break_down(parted).table(table).equals(break_down(whole).table(table)), table


#  time      0  1  2  3  4  5  6  7  8
#  thread 1  [ forward ------ ]
#               [ mm, id 5 -- ]
#                  [launch 9]|  an op of no length, as both end
#  device 0                     [gemm 9]
#                                  [add, of op 5, without a launch]
DRAWN = {
    "kind": ["range", "op", "runtime", "op", "kernel", "kernel"],
    "name": ["forward", "aten::mm", "cudaLaunchKernel", "aten::empty", "gemm", "add"],
    "start_ns": [0, 1, 2, 5, 6, 7],
    "dur_ns": [5, 4, 2, 0, 1, 1],
    "tid": [1, 1, 1, 1, None, None],
    "device": [None, None, None, None, 0, 0],
    "correlation_id": [None, None, 9, None, 9, None],
    "external_id": [None, 5, None, None, None, 5],
}


@pytest.mark.parametrize("batch_rows", [1, 2, 3, 100])
def test_what_belongs_together_in_several_batches(batch_rows: int) -> None:
    arrays = {name: pa.array(v, SCHEMA.field(name).type) for name, v in DRAWN.items()}
    found = annotated(stored(pa.table(arrays), 2, batch_rows), captured=False)
    assert found.column("parent_id").to_pylist() == [None, 0, 1, 1, None, None]
    assert found.column("launch_id").to_pylist() == [None, None, None, None, 2, None]
    assert found.column("op_id").to_pylist() == [None, None, 1, None, 1, 1]
    assert found.column("phase").to_pylist() == ["forward"] * 5 + [None]


KIND = st.sampled_from(["op", "range", "step", "runtime", "kernel", "memcpy", "python"])
NAMES = ("forward", "Optimizer.step#SGD", "aten::mm", "aten::to", "aten::copy_", "cudaLaunchKernel")
EVENT = st.tuples(
    *(KIND, st.sampled_from(NAMES), st.integers(0, 40), st.integers(0, 9)),
    *(st.sampled_from([1, 1, 2, None]), st.sampled_from([1, 2])),
    *(st.integers(0, 6), st.integers(0, 6), st.integers(-1, 3), st.integers(0, 1)),
    st.sampled_from([0, 0, 1]),
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(EVENT, min_size=1, max_size=40),
    st.integers(1, 9),
    st.sampled_from([None, "a"]),
    st.booleans(),
)
def test_any_events(
    drawn: list[tuple[object, ...]], rows: int, step_range: str | None, has_ranks: bool
) -> None:
    names = ("kind", "name", "start_ns", "dur_ns", "pid", "tid")
    ids = ("correlation_id", "external_id", "sequence_number", "forward_thread")
    columns = dict(zip((*names, *ids, "rank"), zip(*drawn, strict=True), strict=True))
    if not has_ranks:
        columns["rank"] = [None] * len(drawn)
    kinds = columns["kind"]
    on_device = [kind in ("kernel", "memcpy") for kind in kinds]
    columns["device"] = [0 if there else None for there in on_device]
    columns["stream"] = [n % 2 if n % 3 else None for n in columns["start_ns"]]
    for column, unknown in (("external_id", 0), ("sequence_number", -1), ("forward_thread", 0)):
        columns[column] = [None if value == unknown else value for value in columns[column]]
    arrays = {c: pa.array(list(v), SCHEMA.field(c).type) for c, v in columns.items()}
    there = in_memory(pa.table(arrays)).select(["kind", "name"]).to_pylist()
    marked = any(e["kind"] in ("range", "step") and "a" in e["name"] for e in there)
    check(pa.table(arrays), rows, rows, step_range if marked else None)


def test_the_ranks_of_a_batch_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the work follows the events, and not the batches times the ranks."""
    parts: list[int] = []

    class Counted(Tally):
        def add(self, of: Columns, process: Ints) -> None:
            parts.append(len(np.unique(process)))
            super().add(of, process)

    monkeypatch.setattr(annotate_recorded, "Tally", Counted)
    rows, ranks = 24, 6
    given = {"kind": ["op"] * rows, "name": ["a"] * rows, "start_ns": [*range(rows)]}
    given |= {"dur_ns": [1] * rows, "pid": [1] * rows, "tid": [1] * rows}
    given["rank"] = [number % ranks for number in range(rows)]
    columns = pa.table({n: pa.array(values, SCHEMA.field(n).type) for n, values in given.items()})
    counts = recorded(annotated(stored(columns, 12, 12), captured=False))
    assert [(of.rank, of.ops) for of in counts] == [(rank, 4) for rank in range(ranks)]
    assert parts == [6, 6]
