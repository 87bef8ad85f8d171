"""ONNX Runtime's profile: two runs of a graph of two nodes, as ``enable_profiling`` writes them.

::

    µs        22848 ─────────────── model_run ─────────────── 23221
              22870 ──── SequentialExecutor::Execute ──── 23213
                 22874 ─ l0 ─ 23125      23181 ─ mean ─ 23214 (a microsecond too long)
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lstmprof import formats
from lstmprof.base.errors import ProfileError
from lstmprof.breakdown.attribution.ledger import ledger
from lstmprof.events import Profile
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import windows


def event(category: str, name: str, ts: int, dur: int, **args: Any) -> dict[str, Any]:
    place = {"pid": 20752, "tid": 20752, "ph": "X"}
    return {"cat": category, **place, "dur": dur, "ts": ts, "name": name, "args": args}


def run(at: int, provider: str = "CPUExecutionProvider") -> list[dict[str, Any]]:
    inputs = [{"float": [20, 4, 12]}, {"float": [2, 128]}]
    known = {"provider": provider, "input_type_shape": inputs}
    reduced = dict(known, op_name="ReduceMean")
    return [
        event("Node", "l0_kernel_time", at + 26, 251, op_name="LSTM", **known),
        event("Node", "mean_fence_before", at + 330, 0, op_name="ReduceMean"),
        event("Node", "mean_kernel_time", at + 333, 33, **reduced),
        event("Session", "SequentialExecutor::Execute", at + 22, 343),
        event("Session", "model_run", at, 373),
    ]


EVENTS = [
    event("Session", "model_loading_array", 5, 600),
    event("Session", "session_initialization", 691, 21787),
    *run(22848),
    *run(33004),
]


def read(folder: Path, events: list[dict[str, Any]]) -> Profile:
    path = folder / "onnxruntime_profile__2026-11-22_12-49-26.json"
    path.write_text(json.dumps(events), encoding="utf-8")
    return formats.read(path)


def test_a_run_is_a_step_and_a_node_an_op_with_its_inputs(tmp_path: Path) -> None:
    profile = read(tmp_path, EVENTS)
    assert (profile.format, profile.base_ns) == ("onnxruntime", None)
    events = annotated(profile.events, captured=False)
    rows = events.to_pylist()
    assert [row["kind"] for row in rows].count("step") == 2
    ops = [row for row in rows if row["kind"] == "op" and row["category"]]
    assert [(row["name"], row["category"]) for row in ops] == [
        ("onnxruntime::LSTM", "rnn"),
        ("onnxruntime::ReduceMean", "reduction"),
    ] * 2
    assert [row["dur_ns"] for row in ops] == [251_000, 32_000] * 2  # the last with its holder
    assert json.loads(ops[0]["shapes"]) == [[20, 4, 12], [2, 128]]
    assert json.loads(ops[0]["dtypes"]) == ["float", "float"]
    assert ops[0]["op_name"] == "l0"
    seen = windows(events, captured=False)
    assert len(seen) == 2
    assert seen[1].start_ns - seen[0].start_ns == 10_156_000


def test_no_python_is_seen_within_a_run(tmp_path: Path) -> None:
    events = annotated(read(tmp_path, run(22848)).events, captured=False)
    parts = ledger(events, windows(events, captured=False)).to_pylist()
    assert {part["part"]: part["ns"] for part in parts} == {
        **{"rnn": 251_000, "reduction": 32_000},
        "dispatch": 90_000,
    }


def test_what_a_gpu_did_is_not_claimed(tmp_path: Path) -> None:
    kernel = event("Kernel", "ampere_sgemm_32x32", 22900, 9, stream="7")
    profile = read(tmp_path, [*run(22848, "CUDAExecutionProvider"), kernel])
    assert profile.format == "onnxruntime"
    assert not profile.events.is_kind("kernel").any()
    assert [note for note in profile.notes if "CUDAExecutionProvider" in note]
    assert [note for note in profile.notes if note.startswith("1 GPU kernels")]


def test_a_session_that_never_ran_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="Chrome trace"):
        read(tmp_path, EVENTS[:2])
