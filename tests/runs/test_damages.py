"""A run directory is a stranger's: damaged in any way it is read, or refused in one line."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands.test_query import write
from runs.damages import DAMAGES, EVENTS, TIMINGS, damaged

from lstmprof.base.errors import RunError
from lstmprof.breakdown import break_down
from lstmprof.cli import run as lstmprof
from lstmprof.events.annotate import annotated
from lstmprof.events.counters import SCHEMA as COUNTERS
from lstmprof.events.table import events_table
from lstmprof.runs import invariants
from lstmprof.runs.metadata import run_info
from lstmprof.runs.run import SAMPLES_SCHEMA, Run, open_run, write_tables

EVERYTHING = """
SELECT (SELECT count(*) FROM events WHERE name <> '' AND dur_ns > 1),
       (SELECT sum(wall_ns) FROM timings), (SELECT count(*) FROM kernels), * FROM runs
"""
#: Rounds of damages in the suite; what each seed does is another thing.
ROUNDS = 2


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("good"), "good", 5)


@pytest.mark.parametrize("damage", range(len(DAMAGES)), ids=[d.__name__ for d in DAMAGES])
def test_a_damaged_run_is_read_or_refused_in_one_line(
    damage: int, good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in range(damage, ROUNDS * len(DAMAGES), len(DAMAGES)):
        place = tmp_path / f"run-{seed}"
        done = damaged(good, place, seed)
        for command in (
            ["breakdown", str(place), "--format", "json"],
            ["diagnose", str(place)],
            ["query", EVERYTHING, str(place), "--format", "csv"],
        ):
            code = lstmprof(command)
            said = capsys.readouterr()
            assert code in (0, 1), (done, command[0], said.err)
            lines = [line for line in said.err.splitlines() if "error" in line]
            assert len(lines) == code, (done, command[0], said.err)
            named = str(place) in said.err or "error: good: " in said.err
            assert code == 0 or named, (done, command[0], said.err)


def test_a_report_on_a_damaged_run_is_drawn_or_refused_in_one_line(
    good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in range(0, len(DAMAGES), 5):
        place = tmp_path / f"run-{seed}"
        done = damaged(good, place, seed)
        code = lstmprof(["report", str(place), "-o", str(tmp_path / "page.html"), "--force"])
        lines = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
        assert (code in (0, 1), len(lines)) == (True, code), (done, lines)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of three ops, one around the others."""
    columns: dict[str, Any] = {"kind": ["op"] * 3, "name": ["a", "b", "c"], "pid": [1] * 3}
    times = {"start_ns": [0, 1, 5], "dur_ns": [10, 2, 2], "tid": [1] * 3}
    (tmp_path / "run").mkdir()
    events = annotated(events_table({**columns, **times}), captured=False)
    write_tables(tmp_path / "run", run_info({"name": "run", "source": "ingest"}), events)
    return tmp_path / "run"


def rewritten(run: Path, column: str, values: list[Any], type_: pa.DataType | None = None) -> Run:
    """``run`` with other values of a column of its events."""
    table = pq.read_table(run / EVENTS)
    at = table.schema.get_field_index(column)
    array = pa.array(values, type_ or pa.int64())
    pq.write_table(table.set_column(at, column, array), run / EVENTS)
    return open_run(run)


@pytest.mark.parametrize(
    ("column", "values", "fault"),
    [
        ("parent_id", [0, 0, 0], "event 0 is its own ancestor"),
        ("parent_id", [2, 0, 1], "event 0 is its own ancestor"),
        ("parent_id", [None, 2, 1], "event 1 is its own ancestor"),
        ("parent_id", [None, 0, 3], "parent_id refers to event 3, which does not exist"),
        ("launch_id", [None, -1, None], "launch_id refers to event -1, which does not exist"),
        ("op_id", [None, 2**62, None], "which does not exist"),
        ("forward_id", [None, -(2**63), None], "which does not exist"),
        ("event_id", [0, 2, 1], "event_id differs from the row number"),
        ("event_id", [0, 1, 2**40], "event_id differs from the row number"),
        ("dur_ns", [10, -2, 2], "event 1 has a negative dur_ns"),
        ("dur_ns", [10, 2**63 - 1, 2], "exceeds a century"),
        ("start_ns", [-(2**63), 1, 5], "exceeds a century"),
        ("start_ns", [0, None, 5], "start_ns is null in a row"),
    ],
)
def test_events_that_cannot_be_are_refused_before_anything_is_computed(
    column: str, values: list[Any], fault: str, run: Path
) -> None:
    damaged_run = rewritten(run, column, values)
    readers: tuple[Callable[[], object], ...] = (
        damaged_run.events,
        lambda: damaged_run.narrow_events(["name"]),
        lambda: damaged_run.packed(["name"]),
        lambda: damaged_run.events_file,
    )
    for read in readers:
        with pytest.raises(RunError) as told:
            read()
        assert f"{EVENTS}: " in str(told.value)
        assert fault in str(told.value)
        assert str(told.value).endswith("; capture or ingest the run again")


@pytest.mark.parametrize("column", ["name", "category", "phase", "op_name", "shapes", "dtypes"])
def test_a_text_that_is_no_utf_8_is_refused_and_hides_no_other_run(
    column: str, good: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = pq.read_table(run / EVENTS)
    at, binary = table.schema.get_field_index(column), pa.array([b"\xff\xfe", b"a", None])
    binary = binary.fill_null(b"a") if column == "name" else binary
    broken = pa.StringArray.from_buffers(3, *binary.buffers()[1:], binary.buffers()[0])
    pq.write_table(table.set_column(at, column, broken), run / EVENTS)
    for read in (open_run(run).events, lambda: open_run(run).file("events")):
        with pytest.raises(RunError, match=rf"{EVENTS}: {column} is not UTF-8; capture"):
            read()
    assert lstmprof(["query", "SELECT DISTINCT run FROM events", str(good), str(run)]) == 1
    printed = capsys.readouterr()
    assert printed.out.split() == ["run", "good"]
    assert "is not UTF-8" in printed.err
    out = run.parent / "out.pftrace"
    for words in (["export", "--perfetto", str(out)], ["cut", "--step", "1", "-o", str(out)]):
        assert lstmprof([words[0], str(run), *words[1:]]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert f"{EVENTS}: {column} is not UTF-8; capture" in line
        assert not out.exists()


def with_events(run: Path, **columns: Any) -> Run:
    """``run`` with these events instead of its own."""
    schema = pq.read_schema(run / EVENTS)
    table = events_table(columns).arrow
    pq.write_table(table.replace_schema_metadata(schema.metadata), run / EVENTS)
    return open_run(run)


def test_steps_that_no_marker_has_are_diagnosed(run: Path) -> None:
    odd = with_events(
        run,
        kind=["step", "op", "runtime", "kernel"],
        name=["ProfilerStep#1", "aten::mm", "cudaLaunchKernel", "sgemm"],
        start_ns=[0, 1, 2, 20],
        dur_ns=[50, 8, 1, 5],
        step=[900, 300, 100, 500],
        pid=[1, 1, 1, None],
        tid=[1, 1, 1, None],
        device=[None, None, None, 0],
        stream=[None, None, None, 7],
    )
    assert lstmprof(["diagnose", str(odd.path)]) == 0


def test_times_as_far_apart_as_they_may_be_are_broken_down(run: Path) -> None:
    far = with_events(
        run,
        kind=["runtime", "kernel", "runtime", "kernel"],
        name=["cudaLaunchKernel", "a", "cudaLaunchKernel", "b"],
        start_ns=[0, 5, 10, 2**61],
        dur_ns=[1] * 4,
        launch_id=[None, 0, None, 2],
        device=[None, 0, None, 0],
    )
    (lane,) = break_down(far).steps(profiled=True)
    assert sum(ns for *_, ns in lane.parts) == lane.total_ns == 2**61 + 1


def test_a_sum_that_is_no_number_names_the_run(run: Path) -> None:
    five = {"kind": ["kernel"] * 5, "name": ["a"] * 5, "device": [0] * 5, "stream": list(range(5))}
    far = with_events(run, **five, start_ns=[0] * 5, dur_ns=[2**61] * 5)
    with pytest.raises(RunError, match=r"^run: \w+: the sum .* exceeds 64 bits"):
        break_down(far).table("kernels")


def test_a_child_before_its_parent_is_no_cycle(run: Path) -> None:
    assert len(rewritten(run, "parent_id", [2, 0, None]).events()) == 3


def test_a_kind_that_nobody_knows_is_refused(run: Path) -> None:
    with pytest.raises(RunError, match="unknown kind 'brew'"):
        rewritten(run, "kind", ["op", "brew", "op"], pa.string()).events()


def test_a_category_is_a_word(run: Path) -> None:
    strange = rewritten(run, "category", ["gemm", "[" * 50_000, None], pa.string())
    with pytest.raises(RunError, match="category is too long"):
        strange.events()
    with pytest.raises(RunError, match="category is too long"):
        strange.narrow_events(["category"])
    with pytest.raises(RunError, match="category is too long"):
        open_run(run).packed(["category"])


@pytest.mark.parametrize(
    ("column", "type_", "kind"),
    [
        ("start_ns", pa.string(), "int64"),
        ("start_ns", pa.uint64(), "int64"),
        ("parent_id", pa.float64(), "int64"),
        ("name", pa.int64(), "text"),
        ("name", pa.binary(), "text"),
    ],
)
def test_a_column_of_another_type_is_refused_by_name(
    column: str, type_: pa.DataType, kind: str, run: Path
) -> None:
    with pytest.raises(RunError) as told:
        rewritten(run, column, [None] * 3, type_).events()
    assert f"{EVENTS}: column {column} has type {type_}, not {kind}; " in str(told.value)


def test_plain_texts_and_narrow_numbers_are_read_as_what_they_stand_for(run: Path) -> None:
    before = open_run(run).events().arrow.to_pylist()
    rewritten(run, "name", ["a", "b", "c"], pa.string())
    written = rewritten(run, "dur_ns", [10, 2, 2], pa.int16())
    assert written.events().arrow.to_pylist() == before
    assert written.narrow_events(["name"]).column("name").to_pylist() == ["a", "b", "c"]


def test_a_file_cannot_hold_more_rows_than_it_has_room_for(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = pq.read_table(run / EVENTS)
    pq.write_table(events.take(pa.array(np.zeros(100_000, np.int64))), run / EVENTS)
    monkeypatch.setattr(invariants, "FREE_ROWS", 1000)
    with pytest.raises(RunError, match=r"claims 100000 rows in \d+ bytes"):
        open_run(run).events()


def test_a_file_cannot_hold_more_texts_than_it_has_room_for(run: Path) -> None:
    events = pq.read_table(run / EVENTS)
    at = events.schema.get_field_index("shapes")
    texts = pa.array(["[" + "1," * (invariants.FREE_TEXT_BYTES // 2) + "1]"] * len(events))
    longer = events.set_column(at, events.schema.field(at), texts.dictionary_encode())
    pq.write_table(longer, run / EVENTS, compression="zstd")
    assert (run / EVENTS).stat().st_size < 100_000
    with pytest.raises(
        RunError, match=rf"{EVENTS}: has \d+ bytes of text in a file of \d+ bytes; capture"
    ):
        open_run(run).events()


def test_a_step_that_is_repeated_has_room_in_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 steps of 500 ops: the same each time but for the clock's grain."""
    rng = np.random.default_rng(0)
    dur = np.tile(rng.integers(500, 9000, 500), 200) + rng.integers(0, 30, 100_000)
    start = np.cumsum(dur + 100)
    names = [f"op{number}" for number in rng.integers(0, 40, 500)] * 200
    columns = {"kind": ["op"] * len(dur), "name": names, "start_ns": start, "dur_ns": dur}
    events = annotated(
        events_table({**columns, "external_id": np.arange(len(dur))}), captured=False
    )
    (tmp_path / "run").mkdir()
    write_tables(tmp_path / "run", run_info({"name": "run", "source": "ingest"}), events)
    monkeypatch.setattr(invariants, "FREE_ROWS", 1000)
    assert open_run(tmp_path / "run").events_file.stat().st_size < 10 * len(dur)


def test_timings_that_cannot_be_are_refused(good: Path, tmp_path: Path) -> None:
    place = tmp_path / "run"
    shutil.copytree(good, place)
    table = pq.read_table(good / TIMINGS)
    for number, fault in ((-1, "wall_ns is negative"), (2**62, "wall_ns is too large")):
        at = table.schema.get_field_index("wall_ns")
        column = pa.array([number] * len(table), pa.int64())
        pq.write_table(table.set_column(at, "wall_ns", column), place / TIMINGS)
        with pytest.raises(RunError, match=fault):
            Run(place, run_info({})).timings()


def test_samples_are_looked_through_too(run: Path) -> None:
    nulls = pa.table([pa.nulls(2, f.type) for f in SAMPLES_SCHEMA], names=SAMPLES_SCHEMA.names)
    pq.write_table(nulls.replace_schema_metadata(SAMPLES_SCHEMA.metadata), run / "samples.parquet")
    with pytest.raises(RunError, match=r"samples\.parquet: .* is null in a row"):
        open_run(run).samples()


@pytest.mark.parametrize("letters", [4, 5_000])
def test_texts_of_samples_are_looked_through(letters: int, run: Path) -> None:
    text = "x" * letters
    row = {
        f.name: [text] if pa.types.is_list(f.type) else 1 if pa.types.is_integer(f.type) else text
        for f in SAMPLES_SCHEMA
    }
    samples = pa.Table.from_pylist([row], schema=SAMPLES_SCHEMA)
    pq.write_table(samples, run / "samples.parquet")
    if letters == 4:
        assert open_run(run).samples() == samples
    else:
        with pytest.raises(RunError, match=r"samples\.parquet: .* is too long .5000 characters"):
            open_run(run).samples()


@pytest.mark.parametrize("name", [EVENTS, TIMINGS])
def test_a_pipe_in_a_tables_place_is_refused_before_it_is_opened(
    name: str, good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "run"
    shutil.copytree(good, place)
    (place / name).unlink()
    os.mkfifo(place / name)
    begin = time.monotonic()
    assert lstmprof(["breakdown", str(place)]) == 1
    assert (
        f"{name}: is not a regular file; capture or ingest the run again" in capsys.readouterr().err
    )
    assert time.monotonic() - begin < 600


@pytest.mark.parametrize(
    ("column", "value", "fault"),
    [
        ("time_ns", None, "time_ns is null in a row"),
        ("name", None, "name is null in a row"),
        ("time_ns", 2**62 + 1, "time_ns exceeds a century"),
        ("value", float("inf"), "value is not a number in a row"),
        ("value", float("nan"), "value is not a number in a row"),
    ],
)
def test_counters_are_looked_through_too(column: str, value: object, fault: str, run: Path) -> None:
    good = dict.fromkeys(COUNTERS.names) | {"time_ns": -5, "name": "power", "value": 1.5}
    for row in (good, good | {column: value}):
        fields = [field.with_nullable(True) for field in COUNTERS]
        table = pa.Table.from_pylist([row], schema=pa.schema(fields, COUNTERS.metadata))
        pq.write_table(table, run / "counters.parquet")
        if row == good:
            (read,) = open_run(run).counters()
            assert read.to_pylist() == [good]
    with pytest.raises(RunError, match=rf"counters\.parquet: {fault}"):
        list(open_run(run).counters())


def test_counters_that_cannot_be_read_are_told(run: Path) -> None:
    (run / "counters.parquet").write_bytes(b"PAR1")
    with pytest.raises(RunError, match=r"counters\.parquet: is damaged"):
        list(open_run(run).counters())
