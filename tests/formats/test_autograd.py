"""The list of ``torch.autograd.profiler``: two threads of a step, as PyTorch 1.0 and 1.8 write it.

::

    µs    0         10        20        30        40        50        60        70
    tid 0 ────────────────────────────── step ──────────────────────────────────
            ─ forward ──────  ──────────────── backward ────────────────
             ─ lstm ──────
               t  ─ addmm ─
    tid 1                      ── AddmmBackward ──  ─ torch::autograd::AccumulateGrad ─
                                 ─ mm ─
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


def event(name: str, ts: float, dur: float, tid: int = 0, pid: str = "CPU functions") -> Any:
    return {"name": name, "ph": "X", "ts": ts, "dur": dur, "tid": tid, "pid": pid, "args": {}}


EVENTS = [
    event("step", 0.0, 70.0),
    event("forward", 2.0, 15.0),
    event("lstm", 3.0, 13.0),
    event("unsigned short", 4.0, 1.0),
    event("addmm", 6.0, 8.5),
    event("backward", 18.0, 42.0),
    event("AddmmBackward", 20.0, 15.0, 1),
    event("mm", 22.0, 8.25, 1),
    event("torch::autograd::AccumulateGrad", 40.0, 15.0, 1),
    event("add_", 42.0, 10.0, 1),
]


def read(folder: Path, events: list[dict[str, Any]]) -> Profile:
    path = folder / "prof.json"
    path.write_text(json.dumps(events), encoding="utf-8")
    return formats.read(path)


def kinds(profile: Profile) -> list[tuple[str, str]]:
    return [(row["kind"], row["name"]) for row in profile.events.to_pylist()]


def test_ops_ranges_and_nodes_are_told_apart_and_named_as_today(tmp_path: Path) -> None:
    profile = read(tmp_path, EVENTS)
    assert (profile.format, profile.base_ns) == ("autograd", None)
    assert kinds(profile) == [
        ("step", "step"),
        ("range", "forward"),
        ("op", "aten::lstm"),
        ("op", "aten::t"),
        ("op", "aten::addmm"),
        ("range", "backward"),
        ("op", "AddmmBackward"),
        ("op", "aten::mm"),
        ("op", "torch::autograd::AccumulateGrad"),
        ("op", "aten::add_"),
    ]


def test_where_ops_have_their_namespace_a_bare_word_is_a_range(tmp_path: Path) -> None:
    update = "Optimizer.step#Adam.step"
    events = [event("encoder", 0, 9), event("aten::mm", 1, 2), event(update, 4, 2)]
    assert kinds(read(tmp_path, events)) == [
        ("range", "encoder"),
        ("op", "aten::mm"),
        ("range", update),
    ]


def test_every_nanosecond_of_the_step_is_accounted_for(tmp_path: Path) -> None:
    events = annotated(read(tmp_path, EVENTS).events, captured=True)
    rows = events.to_pylist()
    assert {r["name"]: r["phase"] for r in rows if r["kind"] == "op"} == {
        "aten::lstm": "forward",
        "aten::t": "forward",
        "aten::addmm": "forward",
        "AddmmBackward": "backward",
        "aten::mm": "backward",
        "torch::autograd::AccumulateGrad": "backward",
        "aten::add_": "backward",
    }
    (window,) = windows(events, captured=True)
    parts = {row["part"]: row["ns"] for row in ledger(events, [window]).to_pylist()}
    assert sum(parts.values()) == 70_000
    assert parts["gemm"] == 8_500 + 8_250
    assert parts["pointwise"] == 10_000


def test_without_ranges_the_nodes_of_the_gradient_say_that_it_is_backward(tmp_path: Path) -> None:
    events = annotated(read(tmp_path, EVENTS[6:]).events, captured=False)
    assert {row["phase"] for row in events.to_pylist()} == {"backward"}


def test_on_a_gpu_only_the_innermost_spans_are_work(tmp_path: Path) -> None:
    spans = [("lstm", 5.0, 20.0), ("addmm", 6.0, 8.0), ("sigmoid", 15.0, 5.0), ("mul", 30.0, 2.0)]
    device = [event(name, ts, dur, 0, "CUDA functions") for name, ts, dur in spans]
    arrow = {"name": "lstm", "ph": "s", "ts": 1, "tid": 0, "pid": "CPU functions", "id": 0}
    profile = read(tmp_path, [*EVENTS, *device, {**arrow, "cat": "cpu_to_cuda"}])
    kernels = [r for r in profile.events.to_pylist() if r["kind"] == "kernel"]
    assert [(k["name"], k["start_ns"], k["dur_ns"], k["device"]) for k in kernels] == [
        ("aten::addmm", 6_000, 8_000, 0),
        ("aten::sigmoid", 15_000, 5_000, 0),
        ("aten::mul", 30_000, 2_000, 0),
    ]
    assert any("whole ops" in note for note in profile.notes)


def test_a_span_that_computes_beside_the_spans_inside_it_is_work(tmp_path: Path) -> None:
    """A convolution copies its input, and computes for most of its time itself."""
    spans = [("conv2d", 5.0, 20.0), ("cudnn_convolution", 6.0, 18.0), ("contiguous", 8.0, 1.0)]
    device = [event(name, ts, dur, 0, "CUDA functions") for name, ts, dur in spans]
    rows = read(tmp_path, [*EVENTS, *device]).events.to_pylist()
    kernels = [(r["name"], r["start_ns"], r["dur_ns"]) for r in rows if r["kind"] == "kernel"]
    assert sorted(kernels) == [
        ("aten::contiguous", 8_000, 1_000),
        ("aten::cudnn_convolution", 9_000, 15_000),
    ]


def test_unreadable_times_are_counted_and_a_list_of_nothing_else_is_refused(tmp_path: Path) -> None:
    profile = read(tmp_path, [*EVENTS, event("mm", 80, -1)])
    assert profile.notes[-1] == "1 events were left out because their duration is negative"
    with pytest.raises(ProfileError, match="no event has a readable time"):
        read(tmp_path, [event("mm", 80, -1)])


def test_what_only_old_versions_record_is_no_work_of_an_unknown_kind(tmp_path: Path) -> None:
    names = [
        *("profiler::_record_function_enter", "profiler::_record_function_exit"),
        *("resize_as_", "cudnn_is_acceptable"),
    ]
    profile = read(tmp_path, [event(name, 10 * n, 5) for n, name in enumerate(names)])
    rows = annotated(profile.events, captured=True).to_pylist()
    assert [(row["kind"], row["category"]) for row in rows] == [("op", None)] * 4
