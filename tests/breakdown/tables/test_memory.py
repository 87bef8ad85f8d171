"""The memory of steps and phases: what held in them, counted by hand and by brute force."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from events.rows import row, table
from hypothesis import given, strategies as st

from lstmprof import api
from lstmprof.breakdown import break_down
from lstmprof.breakdown.check import check
from lstmprof.breakdown.tables.memory import memory
from lstmprof.cli import run as lstmprof
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import windows
from lstmprof.events.counters import (
    ALLOCATED,
    BYTES,
    CHANGE,
    RESERVED,
    Count,
    Counters,
    table_of,
)
from lstmprof.events.narrow import packed
from lstmprof.runs.metadata import run_info
from lstmprof.runs.run import Run, open_run, write_tables

HOST = {"pid": 1, "tid": 1}
GPU = {"device": 0, "stream": 7}
#                0        10        20        30        40        50
# step           [---- 1 ----------)[---- 2 -----------)
#   backward          [--)              [--)     [--)
#   optimizer              [--)               [)
# allocated      3  5       2   8       4              1
ROWS = [
    row("step", "ProfilerStep#1", 0, 20, **HOST),
    row("range", "backward", 5, 8, **HOST),
    row("range", "optimizer", 10, 14, **HOST),
    row("step", "ProfilerStep#2", 20, 40, **HOST),
    row("range", "backward", 24, 27, **HOST),
    row("range", "optimizer", 28, 30, **HOST),
    row("range", "backward", 33, 36, **HOST),
]


def change(at_ns: int, by: float, total: float, **more: Any) -> list[Count]:
    """An allocation or free and what was allocated after it."""
    place = {"pid": 1, "device": 0, "unit": BYTES, **more}
    return [
        Count(time_ns=at_ns, name=ALLOCATED, value=total, **place),
        Count(time_ns=at_ns, name=CHANGE, value=by, **place),
    ]


TOTALS = [
    *change(-2, 3, 3),
    *change(3, 2, 5),
    *change(11, -3, 2),
    *change(16, 6, 8),
    *change(24, -4, 4),
    *change(39, -3, 1),
]


def made(folder: Path, counts: list[Count], **facts: Any) -> Run:
    folder.mkdir()
    info = run_info({"name": folder.name, "source": "ingest", "profile_format": "kineto", **facts})
    counters = Counters.of([table_of(counts)])
    write_tables(folder, info, annotated(table(ROWS), captured=False), counters=counters)
    return open_run(folder)


def rows_of(run: Run) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Peak, growth, and changes of each device, step and phase."""
    return {
        (r["device"], r["step"], r["phase"]): (
            *(r["peak_allocated_bytes"], r["peak_reserved_bytes"], r["grown_bytes"]),
            *(r["allocations"], r["allocated_bytes"], r["frees"], r["freed_bytes"]),
        )
        for r in break_down(run).table("memory").to_pylist()
    }


def test_what_was_allocated_before_a_step_is_in_its_peak(tmp_path: Path) -> None:
    assert rows_of(made(tmp_path / "run", TOTALS)) == {
        (0, None, None): (8, None, 1, 3, 11, 3, 10),
        (0, 1, None): (8, None, 5, 2, 8, 1, 3),
        (0, 1, "backward"): (5, None, 0, 0, 0, 0, 0),
        (0, 1, "optimizer"): (5, None, -3, 0, 0, 1, 3),
        (0, 2, None): (8, None, -7, 0, 0, 2, 7),
        (0, 2, "backward"): (8, None, -4, 0, 0, 1, 4),
        (0, 2, "optimizer"): (4, None, 0, 0, 0, 0, 0),
    }


def test_what_is_not_told_is_null_and_the_host_is_no_device(tmp_path: Path) -> None:
    only_changes = [c for c in TOTALS if c.name == CHANGE]
    only_reserved = [Count(30, 1, None, RESERVED, BYTES, 64.0)]
    rows = rows_of(made(tmp_path / "run", [*only_changes, *only_reserved]))
    assert rows[0, 1, None] == (None, None, 5, 2, 8, 1, 3)
    assert rows[None, 1, None] == (None,) * 7
    assert rows[None, 2, None] == (None, 64, *[None] * 5)


def test_processes_one_after_the_other_keep_nothing_of_each_other(tmp_path: Path) -> None:
    second = change(22, 1, 1, pid=2) + change(30, 1, 2, pid=2)
    rows = rows_of(made(tmp_path / "run", [c for c in TOTALS if c.time_ns < 20] + second))
    assert rows[0, 1, None][0] == 8
    assert rows[0, 2, None] == (2, None, 2, 2, 2, 0, 0)
    assert rows[0, None, None][:3] == (8, None, 8 + 2)


_TIMES = st.lists(st.integers(-5, 45), max_size=15).map(sorted)


@given(_TIMES, st.data(), st.integers(1, 4))
def test_it_is_what_each_nanosecond_says(times: list[int], data: Any, batch: int) -> None:
    values = data.draw(st.lists(st.integers(0, 9), min_size=len(times), max_size=len(times)))
    counts = [Count(t, 1, 0, RESERVED, BYTES, v) for t, v in zip(times, values, strict=True)]
    counts += [Count(t, 1, 0, CHANGE, BYTES, v - 4) for t, v in zip(times, values, strict=True)]
    counts.sort(key=lambda count: count.time_ns)
    events = annotated(table(ROWS), captured=False)
    whole = Counters.of([table_of(counts)]).table()
    parts = [whole.slice(first, batch) for first in range(0, len(whole), batch)]
    rows = memory(parts, packed(events), windows(events, captured=False)).to_pylist()
    assert bool(rows) == bool(counts)

    def held(at_ns: int) -> list[int]:
        """What holds at an instant: all that begins to there, or the last before."""
        now = [v for t, v in zip(times, values, strict=True) if t == at_ns]
        before = [v for t, v in zip(times, values, strict=True) if t < at_ns]
        return now or before[-1:]

    for told in rows[1:]:
        spans = {None: [(0, 20)] if told["step"] == 1 else [(20, 40)]}
        spans["backward"] = [(5, 8)] if told["step"] == 1 else [(24, 27), (33, 36)]
        spans["optimizer"] = [(10, 14)] if told["step"] == 1 else [(28, 30)]
        inside = [ns for start, end in spans[told["phase"]] for ns in range(start, end)]
        begins = [start for start, _ in spans[told["phase"]]]
        seen = [v for ns in inside for v in held(ns)]
        seen += [v for ns in begins for v in held(ns - 1)]
        assert told["peak_reserved_bytes"] == max(seen, default=None)
        changed = [v - 4 for t, v in zip(times, values, strict=True) if t in inside]
        assert told["allocations"] == sum(by > 0 for by in changed)
        assert told["freed_bytes"] == -sum(by for by in changed if by < 0)


def test_a_profile_without_memory_says_how_it_is_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = made(tmp_path / "run", [])
    assert lstmprof(["breakdown", str(run.path), "--table", "memory", "--format", "json"]) == 0
    told = capsys.readouterr()
    assert told.out.strip() == "[]"
    assert "table memory is empty; record with profile_memory" in told.err


def test_allocators_of_one_device_are_told_apart(tmp_path: Path) -> None:
    pinned = {"device": None, "allocator": "gpu_host_bfc"}
    counts = [
        *change(21, 4, 4, device=None, allocator="mklcpu"),
        *change(22, 100, 100, **pinned),
        *change(23, -2, 2, device=None, allocator="mklcpu"),
    ]
    rows = break_down(made(tmp_path / "run", counts)).table("memory").to_pylist()
    whole = [row for row in rows if row["step"] is None]
    names = ("device", "allocator", "peak_allocated_bytes", "grown_bytes", "frees")
    assert [tuple(row[name] for name in names) for row in whole] == [
        (None, "gpu_host_bfc", 100, 100, 0),
        (None, "mklcpu", 4, 2, 1),
    ]


def test_check_says_whether_memory_was_recorded(tmp_path: Path) -> None:
    none, changes, whole = (
        made(tmp_path / name, counts)
        for name, counts in (
            ("none", []),
            ("changes", [c for c in TOTALS if c.name == CHANGE]),
            ("whole", TOTALS),
        )
    )
    told = [
        next(r for r in check([break_down(run)]).runs[0].rows if r.question == "memory")
        for run in (none, changes, whole)
    ]
    assert [row.state for row in told] == ["not recorded", "ok", "ok"]
    assert "profile_memory=True" in told[0].sentence
    assert told[1].sentence == "6 allocations and frees, no totals of allocated memory"
    assert told[2].sentence == "6 allocations and frees, totals of allocated memory"


def test_a_run_that_was_made_before_memory_was_read_is_to_be_made_again(tmp_path: Path) -> None:
    run = made(tmp_path / "run", [], profile_metadata={"profile_memory": 1})
    (row,) = (r for r in check([break_down(run)]).runs[0].rows if r.question == "memory")
    assert row.state == "not recorded"
    assert row.sentence.endswith("if an older lstmprof wrote the run, ingest its profile again")


_PROGRAM = """
import torch
from torch.profiler import profile, ProfilerActivity, record_function
kept = []
with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
    for _ in range(3):
        with record_function("step"):
            kept.append(torch.zeros(1 << 20))
            torch.ones(1 << 22)
profiler.export_chrome_trace("memory.json")
"""


def test_steps_that_keep_memory_grow_by_what_they_keep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("LSTMPROF_CACHE", str(tmp_path / "cache"))
    command = [sys.executable, "-c", _PROGRAM]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    rows = api.read(tmp_path / "memory.json").table("memory").rows()
    assert [(r["device"], r["step"]) for r in rows] == [(None, n) for n in (None, 0, 1, 2)]
    assert {r["grown_bytes"] for r in rows[1:]} == {4 << 20}
    assert [r["peak_allocated_bytes"] - rows[1]["peak_allocated_bytes"] for r in rows[1:]] == [
        *(0, 4 << 20, 8 << 20)
    ]
    assert {r["peak_reserved_bytes"] for r in rows} == {None}


def test_bytes_that_no_count_holds_are_unknown(tmp_path: Path) -> None:
    run = made(tmp_path / "run", change(3, 2.0**70, 2.0**70))
    assert {size for sizes in rows_of(run).values() for size in sizes if size} <= {1}
