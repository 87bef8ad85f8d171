"""Memory and other counters of Kineto traces, of every era and whichever way they are read."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st
from ingested import ingest_profile
from kineto_documents import as_a_whole, document, facts, op

from lstmprof import api, formats
from lstmprof.events import counters
from lstmprof.events.counters import ALLOCATED, CHANGE, RESERVED
from lstmprof.formats.kineto import stream
from lstmprof.runs.cache import open_runs
from lstmprof.runs.ingest import ingest_profiles


def memory(at_us: float, **args: Any) -> dict[str, Any]:
    """An allocation on GPU 0 as torch has written it since 2022, with these ``args``."""
    usual = {"Total Allocated": 300, "Total Reserved": 1000, "Bytes": 100, "Addr": 7}
    usual |= {"Device Id": 0, "Device Type": 1, "Ev Idx": 3}
    named = {"cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 4, "tid": 4}
    return {"ph": "i", **named, "ts": at_us, "args": {**usual, **args}}


def in_pieces(content: bytes) -> dict[str, Any] | None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "PIECE_BYTES", 300)
        profile = stream.profile("trace.json", io.BytesIO(content))
    return profile and facts(profile)


def rows_of(*events: dict[str, Any]) -> list[dict[str, Any]]:
    """The counters beside one op, read as a whole and in pieces, which say the same."""
    content = document(op(1), *events)
    whole = as_a_whole(content)
    assert whole is not None
    assert whole == in_pieces(content)
    rows: list[dict[str, Any]] = whole["counters"]
    return rows


def told(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["time_ns"], row["device"], row["name"], row["value"]


def test_an_allocation_says_what_is_allocated_reserved_and_changed() -> None:
    rows = rows_of(memory(12.0004), memory(13, **{"Bytes": -100, "Total Allocated": 200}))
    assert [told(row) for row in rows] == [
        (1500, 0, ALLOCATED, 300.0),
        (1500, 0, RESERVED, 1000.0),
        (1500, 0, CHANGE, 100.0),
        (2500, 0, ALLOCATED, 200.0),
        (2500, 0, RESERVED, 1000.0),
        (2500, 0, CHANGE, -100.0),
    ]
    assert {(row["rank"], row["pid"], row["unit"]) for row in rows} == {(None, 4, "bytes")}


def test_the_host_has_no_device_and_its_allocator_reserves_nothing() -> None:
    rows = rows_of(memory(12, **{"Device Type": 0, "Device Id": -1, "Total Reserved": 0}))
    assert [told(row) for row in rows] == [
        (1500, None, ALLOCATED, 300.0),
        (1500, None, CHANGE, 100.0),
    ]


def test_in_2021_only_the_change_was_told() -> None:
    event = memory(12)
    event["args"] = {"Device Type": 1, "Device Id": 1, "Bytes": 64}
    del event["cat"]
    assert [told(row) for row in rows_of(event)] == [(1500, 1, CHANGE, 64.0)]


@pytest.mark.parametrize("type_", [6, 12, 20])  # HIP, XPU, a backend of one's own
def test_other_accelerators_are_devices(type_: int) -> None:
    assert rows_of(memory(12, **{"Device Type": type_, "Device Id": 2}))[0]["device"] == 2


@pytest.mark.parametrize(
    ("broken", "values"),
    [
        ({"Total Allocated": -1}, [1000.0, 100.0]),
        ({"Total Allocated": "300", "Bytes": "x"}, [300.0, 1000.0]),
        ({"Total Reserved": None, "Bytes": 1.5}, [300.0]),
        ({"Bytes": 2**63}, [300.0, 1000.0]),
        ({"Total Allocated": True, "Total Reserved": [1]}, [100.0]),
    ],
)
def test_what_is_no_size_is_no_value(broken: dict[str, Any], values: list[float]) -> None:
    assert [row["value"] for row in rows_of(memory(12, **broken))] == values


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (memory(12) | {"ts": "soon"}, "they have no readable start"),
        (memory(12) | {"ts": 1e30}, "their time is invalid"),
        (memory(12, **{"Device Id": -1}), "they name no device"),
    ],
)
def test_values_without_a_time_or_a_place_are_left_out_and_told(
    event: dict[str, Any], why: str
) -> None:
    content = document(op(1), memory(12), event)
    whole = as_a_whole(content)
    assert whole is not None
    assert whole == in_pieces(content)
    assert (len(whole["counters"]), whole["notes"]) == (
        3,
        (f"1 events were left out because {why}",),
    )


def test_counters_of_the_trace_event_format_are_a_row_a_series() -> None:
    rows = rows_of(
        {"ph": "C", "name": "power", "pid": 4, "ts": 11, "args": {"value": 70.25}},
        {"ph": "C", "name": "queue", "pid": "", "ts": 10.5, "args": {"queue": 2, "waits": -1e2}},
        {"ph": "C", "name": "odd", "ts": 12, "args": {"a": "much", "b": None, "c": [1]}},
        {"ph": "C", "name": "none", "ts": 12},
        {"ph": "i", "name": "Record Window End", "ts": 12, "args": {"Bytes": 3}},
    )
    assert [told(row) for row in rows] == [
        (0, None, "queue", 2.0),
        (0, None, "queue: waits", -100.0),
        (500, None, "power", 70.25),
        *((1500, None, f"odd: {series}", None) for series in "abc"),
    ]
    assert [row["pid"] for row in rows[:3]] == [None, None, 4]
    assert {row["unit"] for row in rows} == {None}


_ANY = st.one_of(
    st.builds(lambda n: op(n), st.integers(1, 20)),
    st.builds(
        lambda at, size, host: memory(
            at, **{"Bytes": size, "Device Type": 1 - host, "Device Id": -host}
        ),
        st.sampled_from([11, 12.0004, 13.125, 40]),
        st.integers(-(2**40), 2**40) | st.sampled_from([None, "7", 1.5]),
        st.integers(0, 1),
    ),
    st.builds(
        lambda at, value: {"ph": "C", "name": "c", "pid": 1, "ts": at, "args": {"c": value}},
        st.sampled_from([11, 12.0004, 13.125]),
        st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    ),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(_ANY, max_size=12))
def test_pieces_and_the_whole_say_the_same(events: list[dict[str, Any]]) -> None:
    content = document(op(1), *events)
    assert in_pieces(content) == as_a_whole(content)


def many(count: int) -> bytes:
    """``count`` ops, then as many allocations whose times run twice over the same range."""
    ops = [op(n) for n in range(1, count + 1)]
    times = [11 + 10.5 * (n * 2 % count) for n in range(count)]
    return document(*ops, *(memory(at, Bytes=n) for n, at in enumerate(times)))


def test_those_of_a_big_file_go_through_files_and_are_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "trace.json").write_bytes(many(400))
    expected = formats.read(tmp_path / "trace.json").counters.table()
    for name, value in (("SPOOLED_BYTES", 0), ("SHARED_BYTES", 2**40), ("PIECE_BYTES", 2**12)):
        monkeypatch.setattr(stream, name, value)
    monkeypatch.setattr(counters, "BATCH_ROWS", 64)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    profile = formats.read(tmp_path / "trace.json")
    batches = list(profile.counters.batches())
    assert len(batches) > 5
    assert max(map(len, batches)) < 400
    assert len(list(temporary.rglob("*-counters"))) > 5
    assert profile.counters.table().to_pylist() == expected.to_pylist()
    del profile
    assert list(temporary.iterdir()) == []


def test_a_run_has_them_beside_its_events(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_bytes(document(op(1), memory(12), memory(11.5)))
    run = ingest_profile(tmp_path / "trace.json", tmp_path / "runs")
    written = pq.read_table(run.path / "counters.parquet")
    assert written.column("time_ns").to_pylist() == [1000] * 3 + [1500] * 3
    (held,) = run.counters(("name", "value"))
    assert held.slice(0, 2).to_pylist() == [
        {"name": ALLOCATED, "value": 300.0},
        {"name": RESERVED, "value": 1000.0},
    ]
    answer = api.sql("SELECT run, max(value) AS most FROM counters GROUP BY run", [run.path])
    assert answer.to_arrow().to_pylist() == [{"run": "trace", "most": 1000.0}]


def test_a_run_without_any_has_no_file_of_them(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_bytes(document(op(1)))
    run = ingest_profile(tmp_path / "trace.json", tmp_path / "runs")
    assert sorted(p.name for p in run.path.iterdir()) == ["events.parquet", "run.json"]
    assert list(run.counters()) == []
    assert api.sql("SELECT count(*) AS n FROM counters", [run.path]).to_arrow()["n"][0].as_py() == 0


def test_ranks_of_a_job_keep_theirs_on_one_clock(tmp_path: Path) -> None:
    for rank in (0, 1):
        header = {"distributedInfo": {"rank": rank}, "baseTimeNanoseconds": 10**18}
        events = (op(1 + rank), memory(20 + rank))
        (tmp_path / f"rank{rank}.json").write_bytes(document(*events, **header))
    (run,) = ingest_profiles(tmp_path, tmp_path / "runs").runs
    (rows,) = open_runs([tmp_path / "runs" / run.name])[0].counters(("rank", "time_ns"))
    assert rows.to_pylist()[::3] == [{"rank": 0, "time_ns": 9500}, {"rank": 1, "time_ns": 10500}]


_PROGRAM = """
import torch
from torch.profiler import profile, ProfilerActivity
with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
    held = torch.zeros(1 << 18)
    torch.ones(1 << 20) + 1
profiler.export_chrome_trace("memory.json")
"""


def test_what_torch_writes_today_is_read(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    command = [sys.executable, "-c", _PROGRAM]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    table = formats.read(tmp_path / "memory.json").counters.table().to_pylist()
    assert {(row["device"], row["unit"]) for row in table} == {(None, "bytes")}
    change = [row["value"] for row in table if row["name"] == CHANGE]
    allocated = [row["value"] for row in table if row["name"] == ALLOCATED]
    assert {float(4 << 18), float(4 << 20), -float(4 << 20)} <= set(change)
    assert max(allocated) - min(allocated) >= 4 << 20
    events = json.loads((tmp_path / "memory.json").read_text("utf-8"))["traceEvents"]
    assert len(change) == sum(event["name"] == "[memory]" for event in events)
