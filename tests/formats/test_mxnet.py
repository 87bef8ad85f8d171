"""MXNet's profile: one operator on a thread of the engine while Python goes on.

::

    µs     0 ──────────────────── step (a task) ─────────────────── 900     Python
              10 ─ MXImperativeInvokeEx ─ 40    50 ─ MXNDArrayWaitAll ─ 880
                   30 ── FullyConnected ── 430   450 ─ _backward_FullyConnected ─ 850   the engine
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import shared_traces

from lstmprof import formats
from lstmprof.base.errors import ProfileError
from lstmprof.breakdown.attribution.ledger import ledger
from lstmprof.events import Profile
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import windows

#: 2026-11-22, in µs
BASE = 1795307814495283
#: They differ in what a float loses, and the second is no int64.
PYTHON, ENGINE = 3236888163413093494, 10060037252116229269
SAMPLE = shared_traces.FOLDER / "more" / "eras" / "mxnet-1.9.1-profile.json.gz"


def both(begin: str, name: str, category: str, at: int, end: int, tid: int, **more: Any) -> Any:
    place = {"name": name, "cat": category, "tid": tid, **more}
    return [
        {**place, "ph": begin, "ts": BASE + at},
        {**place, "ph": {"B": "E", "b": "e"}[begin], "ts": BASE + end},
    ]


def operator(name: str, at: int, end: int, tid: int = ENGINE) -> list[dict[str, Any]]:
    """As MXNet writes one: a second time, as async events of another process."""
    return [
        *both("B", name, "operator", at, end, tid, pid=0),
        *both("b", name, "operator", at, end, tid, pid=3060606181218273969, id=tid),
    ]


def call(name: str, at: int, end: int) -> list[dict[str, Any]]:
    return both("b", name, "MXNET_C_API", at, end, PYTHON, pid=849786139768988538, id=PYTHON)


EVENTS = [
    {"ph": "M", "args": {"name": "cpu/0"}, "pid": 0, "name": "process_name"},
    *operator("FullyConnected", 30, 430),
    *operator("DeleteVariable", 430, 440),
    *operator("_backward_FullyConnected", 450, 850),
    *operator("_grad_add", 850, 855),
    *operator("adam_update", 860, 870),
    *both("b", "step", "lstmprof", 0, 900, PYTHON, pid=4299775307588973408, id=PYTHON),
    *call("MXImperativeInvokeEx", 10, 40),
    *call("MXNDArrayWaitAll", 50, 880),
    {"ph": "C", "cat": "MXNET_C_API", "name": "calls", "ts": BASE, "pid": 1, "args": {"calls": 1}},
]


def read(folder: Path, events: list[Any]) -> Profile:
    path = folder / "profile.json"
    path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}), "utf-8")
    return formats.read(path)


def test_an_operator_is_there_once_and_a_task_is_a_step(tmp_path: Path) -> None:
    profile = read(tmp_path, EVENTS)
    assert (profile.format, profile.base_ns) == ("mxnet", 1000 * BASE)
    assert profile.notes == ()
    rows = annotated(profile.events, captured=False).to_pylist()
    facts = ("kind", "name", "start_ns", "dur_ns", "category", "phase")
    assert sorted(tuple(row[fact] for fact in facts) for row in rows) == [
        ("op", "mxnet::DeleteVariable", 430_000, 10_000, None, None),
        ("op", "mxnet::FullyConnected", 30_000, 400_000, "gemm", "forward"),
        ("op", "mxnet::MXImperativeInvokeEx", 10_000, 30_000, None, None),
        ("op", "mxnet::MXNDArrayWaitAll", 50_000, 830_000, None, None),
        ("op", "mxnet::_backward_FullyConnected", 450_000, 400_000, "gemm", "backward"),
        ("op", "mxnet::_grad_add", 850_000, 5_000, "pointwise", "backward"),
        ("op", "mxnet::adam_update", 860_000, 10_000, "optimizer", "optimizer"),
        ("step", "step", 0, 900_000, None, None),
    ]


def test_the_second_file_of_a_process_begins_with_a_comma(tmp_path: Path) -> None:
    path = tmp_path / "second.json"
    path.write_text('{"traceEvents": [\n,\n' + json.dumps(EVENTS[1:])[1:] + "}", "utf-8")
    assert formats.read(path).events.equals(read(tmp_path, EVENTS[1:]).events)


def test_threads_are_told_apart_whose_numbers_no_float_holds(tmp_path: Path) -> None:
    near = operator("dot", 500, 510, ENGINE + 1)
    rows = read(tmp_path, [*EVENTS, *near]).events.to_pylist()
    threads = {row["name"]: row["tid"] for row in rows}
    assert threads["step"] == threads["mxnet::MXNDArrayWaitAll"]
    assert threads["mxnet::FullyConnected"] == threads["mxnet::adam_update"]
    apart = (threads["step"], threads["mxnet::FullyConnected"], threads["mxnet::dot"])
    assert len(set(apart)) == 3
    assert None not in apart


def test_what_the_engine_computes_is_no_waiting_of_pythons(tmp_path: Path) -> None:
    events = annotated(read(tmp_path, EVENTS).events, captured=False)
    parts = ledger(events, windows(events, captured=False)).to_pylist()
    assert {part["part"]: part["ns"] for part in parts} == {
        **{"gemm": 800_000, "pointwise": 5_000, "optimizer": 10_000},
        "dispatch": 55_000,  # 10–30, 430–450, 855–860 and 870–880
        "python": 30_000,  # 0–10 and 880–900
    }


def test_a_begin_without_an_end_is_counted(tmp_path: Path) -> None:
    cut = [*EVENTS, operator("dot", 700, 710)[0]]
    profile = read(tmp_path, cut)
    assert profile.notes == ("1 events were left out because their begin or their end is missing",)
    with pytest.raises(ProfileError, match="no complete operator"):
        read(tmp_path, [operator("dot", 700, 710)[0]])


def test_operators_of_a_gpu_are_said_to_be_timed_by_the_engine(tmp_path: Path) -> None:
    on_gpu = both("B", "dot", "operator", 700, 710, ENGINE, pid=64)
    named = {"ph": "M", "args": {"name": "gpu/0"}, "pid": 64, "name": "process_name"}
    (note,) = read(tmp_path, [named, *EVENTS, *on_gpu]).notes
    assert note == "operator times on gpu/0 were measured in the engine's threads"


def test_a_profile_of_cntk_is_called_by_its_name(tmp_path: Path) -> None:
    ranges = both("B", "__Forward + Backward", "PERF", 0, 10, 7, pid=7)
    with pytest.raises(ProfileError, match="CNTK"):
        read(tmp_path, ranges)


@pytest.mark.skipif(not SAMPLE.is_file(), reason=f"no profile at {SAMPLE}")
def test_three_real_steps() -> None:
    events = annotated(formats.read(SAMPLE).events, captured=False)
    steps = windows(events, captured=False)
    assert [step.step for step in steps] == [0, 1, 2]
    rows = [row for row in events.to_pylist() if row["kind"] == "op"]
    names = [row["name"] for row in rows]
    assert names.count("mxnet::RNN") == names.count("mxnet::_backward_RNN") == 3
    assert names.count("mxnet::adam_update") == 15
    other_ns = sum(row["dur_ns"] for row in rows if row["category"] == "other")
    assert other_ns <= 0.02 * sum(step.end_ns - step.start_ns for step in steps)
