"""rocprofv3's database of a few records: the same as in its JSON (``test_rocprofv3``).

In ns, after 7 s::

    range      0 ............................................. 100   step 0
    calls        10-18  20-28
    GPU 0                 30–45   50–80      copy, kernel
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from attack import seeds
from formats import rocpd_databases
from formats.rocpd_databases import Tables

import lstmprof as lp
from lstmprof import formats
from lstmprof.base.errors import ProfileError
from lstmprof.formats.rocm.rocprofv3 import ROOT


@pytest.fixture
def process() -> dict[str, Any]:
    """The only process of a trace, as in rocprofv3's JSON."""
    (content,) = seeds.rocprofv3()
    (process,) = json.loads(content)[ROOT]
    made: dict[str, Any] = process
    return made


@pytest.fixture
def tables(process: dict[str, Any]) -> Tables:
    """Its tables."""
    return rocpd_databases.tables(process)


def written(folder: Path, *processes: Tables) -> Path:
    path = folder / "28_results.db"
    path.write_bytes(rocpd_databases.database(*processes))
    return path


def rows(path: Path) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = formats.read(path).events.to_pylist()
    without_id = [{k: v for k, v in row.items() if k != "event_id"} for row in events]
    return sorted(without_id, key=lambda row: (row["start_ns"], row["name"], row["pid"]))


def of_json(folder: Path, *processes: Any) -> list[dict[str, Any]]:
    path = folder / "results.json"
    path.write_text(json.dumps({ROOT: list(processes)}), encoding="utf-8")
    return rows(path)


def test_it_says_what_the_json_of_the_same_run_says(
    tmp_path: Path, process: dict[str, Any]
) -> None:
    (kernel,) = process["buffer_records"]["kernel_dispatch"]
    sizes = {"grid_size": {"x": 1000, "y": 4, "z": 1}, "group_segment_size": 512}
    kernel["dispatch_info"] |= {**sizes, "workgroup_size": {"x": 256, "y": 2, "z": 1}}
    process["strings"]["marker_api"][0]["value"] = "aten::mm, op_id = 5, sizes = [[2, 3]]"
    for name, stream in (("kernel_dispatch", 4), ("memory_copy", 5)):
        process["buffer_records"][name][0]["stream_id"] = {"handle": stream}
    path = written(tmp_path, rocpd_databases.tables(process))
    read = rows(path)
    assert read == of_json(tmp_path, process)
    assert [(row["kind"], row["name"]) for row in read] == [
        ("op", "aten::mm"),
        *[("runtime", "hipLaunchKernel")] * 2,
        ("memcpy", "Memcpy HtoD"),
        ("kernel", "Cijk_Ailk_MT64(float*)"),
    ]
    profile, other = formats.read(path), formats.read(tmp_path / "results.json")
    assert (profile.format, profile.base_ns) == ("rocprofv3", None)
    for told in ("device_names", "device_facts", "accelerators", "notes"):
        assert getattr(profile, told) == getattr(other, told)


def test_every_nanosecond_of_it_is_accounted_for(tmp_path: Path, tables: Tables) -> None:
    run = lp.read(written(tmp_path, tables))
    ledger = run.ledger().rows()
    assert sum(row["ns"] for row in ledger) == 100
    busy = {row["part"]: row["ns"] for row in ledger if row["state"] == "busy"}
    assert busy == {"gemm": 30, "transfer": 15}
    assert {row["kind"] for row in run.table("launches").rows()} == {"memcpy", "kernel"}


def test_calls_of_the_compiler_and_of_hsa_and_marks_are_not_read(
    tmp_path: Path, tables: Tables
) -> None:
    number = len(tables["string"]) + 1
    unread = ("HIP_COMPILER_API_EXT", "HSA_CORE_API", "RCCL_API")
    for extra, category in enumerate(unread):
        tables["string"].append({"id": number + extra, "string": category})
        event = {**tables["event"][0], "id": 90 + extra, "category_id": number + extra}
        tables["event"].append(event)
        tables["region"].append({**tables["region"][0], "event_id": 90 + extra})
    mark = {"id": number + 9, "string": "roctxMarkA"}
    tables["string"].append(mark)
    tables["region"].append({**tables["region"][-4], "name_id": mark["id"]})
    profile = formats.read(written(tmp_path, tables))
    assert len(profile.events) == 5
    assert not any("left out" in note for note in profile.notes)


def test_calls_of_the_compiler_are_not_read_from_newer_json_either(
    tmp_path: Path, process: dict[str, Any]
) -> None:
    process["strings"]["buffer_records"].append(
        {"kind": "HIP_COMPILER_API_EXT", "operations": ["__hipPushCallConfiguration"]}
    )
    calls = process["buffer_records"]["hip_api"]
    calls.append({**calls[0], "kind": 5, "operation": 0})
    assert len(of_json(tmp_path, process)) == 5


def test_what_has_no_time_name_or_device_is_counted(tmp_path: Path, tables: Tables) -> None:
    (kernel,), (copy,) = tables["kernel_dispatch"], tables["memory_copy"]
    tables["kernel_dispatch"] += [
        {**kernel, "end": None},
        {**kernel, "end": kernel["start"] - 1},
        {**kernel, "kernel_id": 6},
        {**kernel, "agent_id": 0},
    ]
    tables["memory_copy"].append({**copy, "name_id": 0})
    tables["region"] += [{**tables["region"][0], "event_id": 99}]
    tables["event"].append({**tables["event"][2], "id": 50, "extdata": "[1"})
    tables["region"].append({**tables["region"][2], "event_id": 50})
    profile = formats.read(written(tmp_path, tables))
    assert len(profile.events) == 5
    assert any(note.startswith("7 records without") for note in profile.notes)


def test_a_kernel_of_a_graph_says_so(tmp_path: Path, tables: Tables) -> None:
    tables["kernel_dispatch"][0] |= {"graph_exec_id": 3, "graph_node_id": 8}
    assert [row["graph_node_id"] for row in rows(written(tmp_path, tables))][-1] == 8


def test_events_are_found_by_number_in_whatever_order(tmp_path: Path, tables: Tables) -> None:
    in_order = rows(written(tmp_path, tables))
    for listed in tables.values():
        for row in listed:
            if "event_id" in row:
                row["event_id"] = 100 - row["event_id"]
    for row in tables["event"]:
        row["id"] = 100 - row["id"]
    assert rows(written(tmp_path, tables)) == in_order


def test_processes_of_a_merged_database_are_told_apart(
    tmp_path: Path, process: dict[str, Any], tables: Tables
) -> None:
    other = {**process, "metadata": {"pid": 10}}
    path = written(tmp_path, tables, rocpd_databases.tables(other))
    read = rows(path)
    assert [row["pid"] for row in read].count(10) == 5
    assert read == of_json(tmp_path, process, other)
    assert formats.read(path).device_names == {0: "AMD Instinct MI300X", 1: "gfx942"}


def test_tables_without_a_guid_are_read(tmp_path: Path, tables: Tables) -> None:
    path = written(tmp_path, tables)
    in_order = rows(path)
    with closing(sqlite3.connect(path)) as connection:
        listed = connection.execute("SELECT type, name FROM sqlite_master WHERE name LIKE 'rocpd%'")
        named = listed.fetchall()
        for name in (name for kind, name in named if kind == "view"):
            connection.execute(f"DROP VIEW `{name}`")
        for name in (name for kind, name in named if kind == "table"):
            connection.execute(f"ALTER TABLE `{name}` RENAME TO `{name[: -len('_' + _UUID)]}`")
        connection.commit()
    assert rows(path) == in_order


_UUID = rocpd_databases.GUID


def _emptied(tables: Tables) -> None:
    for listed in tables.values():
        listed.clear()


def _nameless(tables: Tables) -> None:
    del tables["string"], tables["info_kernel_symbol"]


def _without_events(tables: Tables) -> None:
    for name in ("kernel_dispatch", "memory_copy", "region"):
        del tables[name]


def _of_schema_4(tables: Tables) -> None:
    tables["metadata"][0]["value"] = "4.1.0"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_emptied, "has no kernel, copy, HIP call or ROCTx range; record with rocprofv3"),
        (_without_events, "has no kernel, copy, HIP call or ROCTx range; record with"),
        (_nameless, r"ROCTx range \(\d records without"),
        (_of_schema_4, "schema 4.1.0; lstmprof reads schema 3; record with rocprofv3"),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_line(
    damage: Callable[[Tables], None], message: str, tmp_path: Path, tables: Tables
) -> None:
    damage(tables)
    with pytest.raises(ProfileError, match=message) as refused:
        formats.read(written(tmp_path, tables))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({}, "has two processes with the id 9; give each .db file separately"),
        ({"nid": 78, "pid": 10}, "has processes of 2 machines, whose clocks differ"),
    ],
)
def test_processes_that_cannot_be_told_apart_are_refused(
    row: dict[str, int], message: str, tmp_path: Path, process: dict[str, Any], tables: Tables
) -> None:
    other = rocpd_databases.tables(process)
    other["info_process"][0] |= row
    with pytest.raises(ProfileError, match=message):
        formats.read(written(tmp_path, tables, other))


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE TABLE rocpd_api (id, start, end)", "is a rocmProfileData database"),
        (
            "CREATE TABLE rocpd_region (id, start_id, end_id)",
            "rocpd_region has no columns start and end",
        ),
    ],
)
def test_other_databases_of_like_names_are_refused(
    statement: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "trace.rpd"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()
    with pytest.raises(ProfileError, match=message):
        formats.read(path)


def test_a_database_that_is_cut_short_or_damaged_is_refused(tmp_path: Path, tables: Tables) -> None:
    path = written(tmp_path, tables)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ProfileError, match="is truncated"):
        formats.read(path)
    path.write_bytes(content[:1024] + b"\x77" * 1024 + content[2048:])
    with pytest.raises(ProfileError, match="the SQLite database is damaged"):
        formats.read(path)


def changed(path: Path, *statements: str) -> Path:
    """The database at ``path`` after ``statements``, in which ``{}`` is its tables' ending."""
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement.format(_UUID.replace("-", "_")))
        connection.commit()
    return path


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (["ALTER TABLE rocpd_event_{} ADD COLUMN rowid"], "has a column named rowid"),
        (
            [
                "DROP TABLE rocpd_event_{0}",
                "CREATE TABLE rocpd_event_{0} (id INTEGER PRIMARY KEY, category_id, stack_id, "
                "extdata) WITHOUT ROWID",
            ],
            "damaged",
        ),
        (
            [
                'UPDATE rocpd_event_{} SET extdata = \'{{"message": "\' '
                "|| replace(hex(zeroblob(50000)), '00', 'a') || '\"}}'",
                "INSERT INTO rocpd_region_{0} (start, end, event_id) "
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 99) "
                "SELECT 1, 2, 1 FROM n",
            ],
            "references to texts exceed the file's size",
        ),
    ],
)
def test_a_table_in_which_no_row_is_found_by_number_is_damage(
    statements: list[str], message: str, tmp_path: Path, tables: Tables
) -> None:
    path = changed(written(tmp_path, tables), *statements)
    with pytest.raises(ProfileError, match=message):
        formats.read(path)


def test_rows_whose_numbers_are_not_their_ids_are_not_taken_for_others(
    tmp_path: Path, tables: Tables
) -> None:
    path = changed(
        written(tmp_path, tables),
        "ALTER TABLE rocpd_event_{0} RENAME TO events_{0}",
        "CREATE TABLE rocpd_event_{0} AS SELECT * FROM events_{0} ORDER BY id DESC",
    )
    profile = formats.read(path)  # of five events the one in the middle has its number still
    read = profile.events.to_pylist()
    assert {row["kind"] for row in read} == {"kernel", "memcpy", "range"}
    assert {row["correlation_id"] for row in read} == {None}
    assert any(note.startswith("2 records without") for note in profile.notes)


def test_a_range_may_have_its_text_for_its_name(tmp_path: Path, tables: Tables) -> None:
    number = len(tables["string"]) + 1
    texts = ("MARKER_CORE_RANGE_API", "step 7")
    tables["string"] += [{"id": number + i, "string": text} for i, text in enumerate(texts)]
    tables["event"][2] |= {"category_id": number, "extdata": "{}"}
    tables["region"][2]["name_id"] = number + 1
    assert rows(written(tmp_path, tables))[0]["name"] == "step 7"


def test_more_rows_than_are_read_at_a_time_are_read(
    tmp_path: Path, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, tables)
    at_once = rows(path)
    monkeypatch.setattr("lstmprof.formats.cuda.database_tables._CHUNK_ROWS", 1)
    assert rows(path) == at_once
