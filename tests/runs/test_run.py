"""A run is there whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lstmprof import api
from lstmprof.base.errors import RunError, UsageError
from lstmprof.base.scratch import own_prefix
from lstmprof.events.counters import Count, Counters, table_of
from lstmprof.events.schema import SCHEMA, VERSION_KEY
from lstmprof.events.table import events_table
from lstmprof.runs import directory, run as run_module
from lstmprof.runs.directory import PARTIAL, new_run
from lstmprof.runs.metadata import RunInfo, run_info
from lstmprof.runs.run import TIMINGS_SCHEMA, open_run, runs_in, write_tables

EVENTS = events_table({"kind": ["op"], "name": ["a"], "start_ns": [0], "dur_ns": [1]})


def write(out: Path, name: str, *, force: bool = False) -> None:
    with new_run(out, name, force=force) as folder:
        write_tables(folder, run_info({"source": "ingest"}), EVENTS)


def write_what_is_no_json(out: Path) -> None:
    with new_run(out, "a") as folder:
        write_tables(folder, RunInfo(profile_metadata={"a": object()}), EVENTS)


def left_by_ended_processes(out: Path) -> list[str]:
    return sorted(p.name for p in out.iterdir())


def test_a_run_is_written_and_read_back(tmp_path: Path) -> None:
    write(tmp_path, "a")
    run = open_run(tmp_path / "a")
    assert run.events().equals(EVENTS)
    assert run.events().schema.equals(SCHEMA)
    assert run.timings() is None
    assert [r.name for r in runs_in(tmp_path)] == ["a"]


def test_narrow_events_are_the_events_in_less_room(tmp_path: Path) -> None:
    columns = {"kind": ["op"] * 3, "start_ns": [0, 1, 2**40], "dur_ns": [1, 127, 128]}
    columns |= {"name": ["a", "b", "a"], "device": [None, -129, 3], "category": [None] * 3}
    events = events_table(columns)
    with new_run(tmp_path, "a") as folder:
        write_tables(folder, run_info({}), events)
        pq.write_table(events.cast(SCHEMA), folder / "events.parquet", row_group_size=2)
    names = ["dur_ns", *columns, "event_id", "pid"]
    found = open_run(tmp_path / "a").narrow_events(list(dict.fromkeys(names)))
    for name in dict.fromkeys(names):
        assert found.column(name).to_pylist() == events.column(name).to_pylist()
        assert found.column(name).num_chunks == 1
    widths = {n: found.schema.field(n).type for n in ("dur_ns", "start_ns", "device", "pid")}
    assert widths == {
        "dur_ns": pa.int16(),
        "start_ns": pa.int64(),
        "device": pa.int16(),
        "pid": pa.int8(),
    }
    assert found.schema.field("name").type.index_type == pa.int8()


def test_narrow_texts_of_many_row_groups_are_one_dictionary(tmp_path: Path) -> None:
    names = [f"name {i}" for i in range(300)]
    numbers = list(range(300))
    columns = {"kind": ["op"] * 300, "name": names, "start_ns": numbers, "dur_ns": numbers}
    events = events_table(columns)
    with new_run(tmp_path, "a") as folder:
        write_tables(folder, run_info({}), events)
        pq.write_table(events.arrow, folder / "events.parquet", row_group_size=100)
    found = open_run(tmp_path / "a").narrow_events(["name"])
    assert found.column("name").to_pylist() == names


def test_a_block_that_raises_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        write_what_is_no_json(tmp_path)
    assert left_by_ended_processes(tmp_path) == []


def test_an_existing_run_is_refused_without_force_and_replaced_with_it(tmp_path: Path) -> None:
    write(tmp_path, "a")
    (tmp_path / "a" / "mine").touch()
    with pytest.raises(RunError, match="--force"):
        write(tmp_path, "a")
    write(tmp_path, "a", force=True)
    assert not (tmp_path / "a" / "mine").exists()
    assert left_by_ended_processes(tmp_path) == ["a"]


def test_a_failed_replacement_keeps_the_old_run(tmp_path: Path) -> None:
    write(tmp_path, "a")
    (tmp_path / "a" / "mine").touch()
    with pytest.raises(ZeroDivisionError), new_run(tmp_path, "a", force=True):
        raise ZeroDivisionError
    assert (tmp_path / "a" / "mine").exists()


def test_what_a_killed_process_left_is_swept_and_a_live_one_is_not(tmp_path: Path) -> None:
    code = f"from lstmprof.base import scratch; print(scratch.own_prefix({PARTIAL!r}), end='')"
    command = [sys.executable, "-c", code]
    prefix = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    dead = tmp_path / f"{prefix}x"
    live = tmp_path / f"{own_prefix(PARTIAL)}x"
    (dead / "replaced" / "old").mkdir(parents=True)  # killed between its two renames
    live.mkdir()
    write(tmp_path, "a")
    assert left_by_ended_processes(tmp_path) == [live.name, "a", "old"]


def test_a_partial_folder_of_no_process_is_left_alone(tmp_path: Path) -> None:
    strange = tmp_path / f"{PARTIAL}{socket.gethostname()}-²-x"
    strange.mkdir()
    write(tmp_path, "a")
    assert left_by_ended_processes(tmp_path) == [strange.name, "a"]


def write_while_another_does(out: Path) -> None:
    with new_run(out, "a") as folder:
        write_tables(folder, run_info({"source": "ingest"}), EVENTS)
        write(out, "a")
        (out / "a" / "first").touch()


def test_of_two_writers_of_one_run_the_second_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="already exists; add --force"):
        write_while_another_does(tmp_path)
    assert (tmp_path / "a" / "first").exists()
    assert left_by_ended_processes(tmp_path) == ["a"]


@pytest.mark.parametrize("exchanges", [True, False])
def test_a_run_that_is_replaced_is_there_all_the_time(
    exchanges: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not exchanges:
        monkeypatch.setattr(directory, "_exchanged", lambda *_: False)
    write(tmp_path, "a")
    (tmp_path / "a" / "old").touch()
    with new_run(tmp_path, "a", force=True) as folder:
        write_tables(folder, run_info({"source": "ingest"}), EVENTS)
        write(tmp_path, "a", force=True)
        (tmp_path / "a" / "between").touch()
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == ["events.parquet", "run.json"]
    assert left_by_ended_processes(tmp_path) == ["a"]


def test_two_folders_are_exchanged_at_once(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name / name).mkdir(parents=True)
    if not directory._exchanged(tmp_path / "a", tmp_path / "b"):
        pytest.skip("this file system cannot")
    assert [p.name for n in "ab" for p in (tmp_path / n).iterdir()] == ["b", "a"]
    assert not directory._exchanged(tmp_path / "a", tmp_path / "none")


def test_only_a_run_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "mine").touch()
    (tmp_path / "file").touch()
    for name in ("documents", "file"):
        with pytest.raises(RunError, match="already exists and is not a run"):
            write(tmp_path, name, force=True)
    assert left_by_ended_processes(tmp_path / "documents") == ["mine"]
    assert left_by_ended_processes(tmp_path) == ["documents", "file"]


def test_a_run_is_not_written_over_a_link(tmp_path: Path) -> None:
    write(tmp_path, "a")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(RunError, match="b: is a link to"):
        write(tmp_path, "b", force=True)


def write_into_what_is_removed(out: Path) -> None:
    with new_run(out, "a") as folder:
        shutil.rmtree(out)
        write_tables(folder, run_info({}), EVENTS)


def test_a_folder_removed_meanwhile_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"a: .*No such file or directory.*; set --out"):
        write_into_what_is_removed(tmp_path / "out")


def write_where_no_room_is_left(out: Path) -> None:
    with new_run(out, "a"):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_disk_that_is_full_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"a: cannot be written \(No space left on device\); set"):
        write_where_no_room_is_left(tmp_path)
    assert left_by_ended_processes(tmp_path) == []


def test_a_name_too_long_for_a_file_system_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is too long"):
        write(tmp_path, "é" * 200)


@pytest.mark.parametrize("few", [0, 100])
def test_events_are_looked_through_as_their_columns_are_read(
    few: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {"kind": ["op"] * 3, "start_ns": [0, 1, 2**40], "dur_ns": [1, 127, 128]}
    columns |= {"name": ["a", "b", "a"], "device": [None, -1, 3], "tid": [None, 7, 7]}
    events = events_table(columns)
    with new_run(tmp_path, "a") as folder:
        write_tables(folder, run_info({}), events)
    monkeypatch.setattr(run_module, "FEW_ROWS", few)
    at_once = [name for name in SCHEMA.names if few or name in run_module.ALWAYS_READ]
    with monkeypatch.context() as patch:
        patch.setattr(run_module, "narrow_table", None)  # nothing is read a second time
        held = open_run(tmp_path / "a").packed(SCHEMA.names)
        assert held.table(at_once).equals(events.select(at_once))
    (tmp_path / "a" / "events.parquet").unlink()
    assert held.table(SCHEMA.names).equals(events)  # of the file that was looked through
    assert held.has_value("device").tolist() == [False, True, True]
    assert held.has_value("tid", slice(1)).tolist() == [False]


def test_a_partial_run_is_no_run(tmp_path: Path) -> None:
    with new_run(tmp_path, "a") as folder:
        write_tables(folder, run_info({}), EVENTS)
        assert runs_in(tmp_path) == []


def test_a_run_whose_path_is_no_utf_8_is_not_called_damaged(tmp_path: Path) -> None:
    write(tmp_path, "a")
    moved = (tmp_path / "a").rename(tmp_path / os.fsdecode(b"r\xe4n"))
    with pytest.raises(RunError, match=r"cannot be read \(its path is not UTF-8\); rename it"):
        open_run(moved).events()


def test_what_is_damaged_or_missing_is_told_with_the_next_step(tmp_path: Path) -> None:
    write(tmp_path, "a")
    events = tmp_path / "a" / "events.parquet"
    os.truncate(events, 100)
    again = r"; capture or ingest the run again$"
    with pytest.raises(RunError, match=r"events\.parquet: is damaged \(.*[^.]\)" + again):
        open_run(tmp_path / "a").events()
    events.unlink()
    with pytest.raises(RunError, match=r"events\.parquet: is missing" + again):
        open_run(tmp_path / "a").narrow_events(["name"])


def test_another_schema_version_is_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path, "a")
    newer = EVENTS.replace_schema_metadata({VERSION_KEY: b"99"})
    pq.write_table(newer, tmp_path / "a" / "events.parquet")
    with pytest.raises(RunError, match="schema version 99"):
        open_run(tmp_path / "a").events()


def test_a_run_of_before_rules_were_stored_is_read_without_them(tmp_path: Path) -> None:
    write(tmp_path, "a")
    lacking = EVENTS.arrow.drop_columns(["rule", "launch_config"])
    older = lacking.replace_schema_metadata({VERSION_KEY: b"2"})
    pq.write_table(older, tmp_path / "a" / "events.parquet")
    run = open_run(tmp_path / "a")
    assert run.events().equals(EVENTS)
    assert run.narrow_events(["rule", "name"]).column("rule").null_count == len(EVENTS)
    pq.write_table(older.drop_columns(["phase"]), tmp_path / "a" / "events.parquet")
    with pytest.raises(RunError, match="columns differ from the schema"):
        run.events()


@pytest.mark.parametrize("version", [b"3", b"4", b"5", b"6"])
def test_a_run_of_before_launches_were_stored_is_read_without_them(
    version: bytes, tmp_path: Path
) -> None:
    write(tmp_path, "a")
    lacking = EVENTS.arrow.drop_columns(["launch_config"])
    older = lacking.replace_schema_metadata({VERSION_KEY: version})
    pq.write_table(older, tmp_path / "a" / "events.parquet")
    run = open_run(tmp_path / "a")
    assert run.events().equals(EVENTS)
    narrow = run.narrow_events(["launch_config", "name"])
    assert narrow.column("launch_config").null_count == len(EVENTS)
    alone = run.narrow_events(["launch_config"])
    assert (alone.column_names, alone["launch_config"].null_count) == (
        ["launch_config"],
        len(EVENTS),
    )
    pq.write_table(EVENTS.arrow.replace_schema_metadata({VERSION_KEY: version}), run.events_file)
    with pytest.raises(RunError, match="columns differ from the schema"):
        run.events()


def test_timings_are_read_once() -> None:
    run = open_run(Path(__file__).parents[2] / "traces" / "torch-nn-lstm")
    assert run.timings() is run.timings() is not None


def test_timings_of_before_their_counts_are_read_without_them(tmp_path: Path) -> None:
    whole = pa.table(
        {name: [None] for name in TIMINGS_SCHEMA.names}
        | {"round": [0], "iteration": [0], "warmup": [False], "wall_ns": [7], "loss": [1.0]}
    ).cast(TIMINGS_SCHEMA)
    older = whole.select(["round", "iteration", "warmup", "wall_ns", "device_ns", "loss"])
    write(tmp_path, "a")
    path = tmp_path / "a" / "timings.parquet"
    pq.write_table(older.replace_schema_metadata({VERSION_KEY: b"3"}), path)
    timings = open_run(tmp_path / "a").timings()
    assert timings is not None
    assert timings.equals(whole)


def test_timings_of_before_waiting_was_counted_are_read_without_it(tmp_path: Path) -> None:
    names = ["thread_cpu_ns", "waited_ns", "others_waited_ns", "children_waited_ns"]
    whole = pa.table(
        {name: [None] for name in TIMINGS_SCHEMA.names}
        | {"round": [0], "iteration": [0], "warmup": [False], "wall_ns": [7], "preemptions": [3]}
    ).cast(TIMINGS_SCHEMA)
    write(tmp_path, "a")
    path = tmp_path / "a" / "timings.parquet"
    older = whole.drop_columns(names).replace_schema_metadata({VERSION_KEY: b"4"})
    pq.write_table(older, path)
    timings = open_run(tmp_path / "a").timings()
    assert timings is not None
    assert timings.equals(whole)


def test_counters_of_before_allocators_were_told_are_read_without_them(tmp_path: Path) -> None:
    counts = Counters.of([table_of([Count(3, 7, 0, "memory allocated", "bytes", 5.0)])])
    write(tmp_path, "a")
    older = counts.table().drop_columns(["allocator"])
    path = tmp_path / "a" / "counters.parquet"
    pq.write_table(older.replace_schema_metadata({VERSION_KEY: b"5"}), path)
    run = open_run(tmp_path / "a")
    assert [rows.to_pylist() for rows in run.counters()] == [counts.table().to_pylist()]
    assert [rows.to_pylist() for rows in run.counters(["name"])] == [[{"name": "memory allocated"}]]
    answer = api.sql("SELECT value, allocator FROM counters", [run.path])
    assert answer.rows() == [{"value": 5.0, "allocator": None}]


def test_damage_is_one_line(tmp_path: Path) -> None:
    write(tmp_path, "a")
    (tmp_path / "a" / "events.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(RunError, match=r"events\.parquet"):
        open_run(tmp_path / "a").events()
    (tmp_path / "a" / "run.json").write_text("{")
    with pytest.raises(RunError, match=r"run\.json"):
        open_run(tmp_path / "a")
    with pytest.raises(RunError, match="not a run"):
        open_run(tmp_path / "b")


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="--out"), new_run(tmp_path / "file" / "out", "a"):
        pass


def test_the_events_of_many_runs_are_one_data_set(tmp_path: Path) -> None:
    write(tmp_path, "a")
    write(tmp_path, "b")
    both = pa.concat_tables([r.events().arrow for r in runs_in(tmp_path)])
    assert both.num_rows == 2


@pytest.mark.parametrize("name", ["../a", "a/b", ".hidden", "", "/etc"])
def test_a_name_that_leaves_the_folder_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot name a run"):
        write(tmp_path / "out", name)
    assert not (tmp_path / "out").exists()
