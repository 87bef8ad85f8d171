"""Which kind of bottleneck a contributor's time belongs to: every rule, and their order."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from diagnose.made import contributor, profile, table

from lstmprof.breakdown.attribution import UNATTRIBUTED
from lstmprof.breakdown.clean.recording import MOST_RECORDING_NS, QUICK_RECORDING_NS, RECORDING_NS
from lstmprof.breakdown.lacks import Lack
from lstmprof.breakdown.mean_step import WAITS_FOR_HOST
from lstmprof.diagnose.diagnosis import alone
from lstmprof.diagnose.findings import causes, findings
from lstmprof.diagnose.findings.causes import (
    KINDS,
    PYTHON,
    RANGE,
    RULES,
    UNRECORDED,
    Comparison,
    kind_of,
)
from lstmprof.diagnose.step_profile.contributors import TINY_OP_NS, Contributor
from lstmprof.events.threads import CALL_GAP_NS

HOST, DEVICE = Comparison(on_device=False), Comparison(on_device=True)


@pytest.mark.parametrize(
    ("one", "kind"),
    [
        (contributor("busy", "gemm", 1, "aten::mm"), "matmul"),
        (contributor("idle", "dispatch", 1, "mxnet::MXNDArraySyncCopyToCPU"), "sync"),
        (contributor("idle", "dispatch", 1, "mxnet::MXNDArrayWaitAll"), "sync"),
        (contributor("idle", "python", 1, "$profiler.py:193 stop_trace"), "profiler"),
        (contributor("idle", "python", 1, "torch/profiler/profiler.py(704): stop"), "profiler"),
        (contributor("idle", "python", 1, "my_profiler.py(7): stop_at_once"), "Python"),
        (contributor("busy", "rnn", 1, "aten::mkldnn_rnn_layer"), "matmul"),
        (contributor("busy", "attention", 1, "aten::sdpa"), "matmul"),
        (contributor("busy", "pointwise", 1, "aten::tanh"), "elementwise"),
        (contributor("busy", "optimizer", 1, "aten::lerp_"), "elementwise"),
        (contributor("busy", "pointwise", 1, "aten::add", tiny=True), "dispatch"),
        (contributor("busy", "gemm", 1, "aten::mm", tiny=True), "dispatch"),
        (contributor("busy", "cast", 1, "aten::copy_"), "cast"),
        (contributor("busy", "cast", 1, "aten::copy_", tiny=True), "cast"),
        (contributor("busy", "layout", 1, "aten::copy_"), "copy"),
        (contributor("busy", "layout", 1, "aten::cat", tiny=True), "dispatch"),
        (contributor("busy", "ctc", 1, "aten::_ctc_loss"), "CTC"),
        (contributor("busy", "collective", 1, "gloo:all_reduce"), "communication"),
        (contributor("busy", "other", 1, "mine::op"), "unknown"),
        (contributor("idle", "dispatch", 1, "aten::view"), "dispatch"),
        (contributor("idle", "dispatch", 1, "aten::to", purpose="cast"), "cast"),
        (contributor("idle", "dispatch", 1, "aten::clone", purpose="layout"), "copy"),
        (
            contributor("idle", "dispatch", 1, "aten::clone", purpose="layout", tiny=True),
            "dispatch",
        ),
        (contributor("idle", "dispatch", 1, "aten::item"), "sync"),
        (contributor("idle", "python", 1, "forward"), "Python"),
        (contributor("idle", "python", 1, "aten::add", call_overhead=True), "dispatch"),
        (contributor("idle", "python", 1, "aten::item", call_overhead=True), "sync"),
        (
            contributor("idle", "python", 1, "aten::to", purpose="cast", call_overhead=True),
            "cast",
        ),
        (contributor("idle", "host", 1), "unrecorded"),
        (contributor("idle", "profiler", 1, "Buffer Flush"), "profiler"),
        (contributor("input", "python", 1, "input"), "input"),
        (contributor("input", "gemm", 1, "aten::mm"), "input"),
        (contributor("idle", "python", 1, "view.py(3): go", compiling=True), "compile"),
        (contributor("busy", "gemm", 1, "aten::mm", compiling=True), "compile"),
        (contributor("idle", "runtime", 1, "synEventCreate"), "runtime"),
        (contributor("idle", "runtime", 1, "cudaLaunchKernel"), "launch"),
        (contributor("busy", "pointwise", 1, "Torch-Compiled Region: 0/0"), "elementwise"),
    ],
)
def test_on_a_host(one: Contributor, kind: str) -> None:
    assert kind_of(one, HOST) == kind


@pytest.mark.parametrize(
    ("one", "kind"),
    [
        (contributor("idle", "launch call", 1), "launch"),
        (contributor("idle", "launch latency", 1), "launch"),
        (contributor("idle", "runtime", 1, "cuModuleUnload"), "runtime"),
        (contributor("idle", "dispatch", 1, "aten::item"), "dispatch"),
        (contributor("idle", "host", 1, compiling=True), "compile"),
        (contributor("idle", "dispatch", 1), "dispatch"),
        (contributor("idle", "dispatch", 1, "aten::to", purpose="cast"), "dispatch"),
        (contributor("idle", "python", 1), "Python"),
        (contributor("idle", "sync", 1), "sync"),
        (contributor("idle", "alloc", 1), "allocation"),
        (contributor("idle", "unattributed", 1), "unknown"),
        (contributor("idle", "queued", 1, "sgemm"), "queued"),
        (contributor("input", "transfer", 1, "Memcpy HtoD"), "input"),
        (contributor("busy", "transfer", 1, "Memcpy HtoD", tiny=True), "copy"),
        (contributor("busy", "memset", 1, "Memset"), "copy"),
        (contributor("busy", "pointwise", 1, "add", tiny=True), "elementwise"),
        (contributor("busy", "rnn", 1, "LSTM_elementWise", family="pointwise"), "elementwise"),
        (contributor("busy", "rnn", 1, "sgemm", family="gemm"), "matmul"),
        (contributor("busy", "gemm", 1, "sgemm", tiny=True), "matmul"),
    ],
)
def test_on_a_device(one: Contributor, kind: str) -> None:
    assert kind_of(one, DEVICE) == kind


@pytest.mark.parametrize("part", [*WAITS_FOR_HOST, "sync", "queued", "profiler", UNATTRIBUTED])
@pytest.mark.parametrize("name", [None, "aten::item", "aten::to", "cuModuleUnload"])
def test_waiting_for_the_host_is_what_the_ledger_calls_so(part: str, name: str | None) -> None:
    kind = kind_of(contributor("idle", part, 1, name, purpose="cast"), DEVICE)
    assert (kind in causes.WAITS) == (part in WAITS_FOR_HOST)
    assert (kind == "launch") == (part in ("launch call", "launch latency"))


def test_short_kernels_are_work_however_many_more_there_are() -> None:
    few, many = (
        profile(contributor("busy", "pointwise", ns, "add", tiny=True, count=count), device=0)
        for ns, count in ((9, 10), (50, 20))
    )
    assert [f.kind for f in findings(few, many)] == ["elementwise"]


def test_a_short_kernel_is_work_beside_a_run_of_a_host_too() -> None:
    on_gpu = profile(contributor("busy", "gemm", 9, "sgemm", tiny=True, count=3), device=0)
    on_host = profile(contributor("busy", "gemm", 90, "aten::mm", count=3))
    told = {f.kind: (f.fast_ns, f.slow_ns) for f in findings(on_gpu, on_host)}
    assert told == {"matmul": (9, 90)}


def test_every_kind_can_be_reached_and_says_what_its_time_is() -> None:
    assert {rule.kind for rule in RULES} == set(KINDS)
    assert all(rule.reason for rule in RULES)
    assert set(causes.WAITS) <= set(KINDS)


def test_the_documentation_names_every_kind_and_every_threshold() -> None:
    docs = Path(__file__).parents[2] / "docs"
    text = (docs / "diagnosis.md").read_text(encoding="utf-8")
    assert [kind for kind in KINDS if kind not in text] == []
    assert f"at most {TINY_OP_NS // 1000} µs" in text
    assert re.search(rf"at most {CALL_GAP_NS // 1000} µs .*before an op", text)
    ledger = " ".join((docs / "ledger.md").read_text(encoding="utf-8").split())
    assert f"{RECORDING_NS} ns per event" in ledger
    assert f"{MOST_RECORDING_NS:,} ns" in ledger
    assert [n for n, ns in QUICK_RECORDING_NS.items() if f"{ns} ns for {n}" not in ledger] == []


def test_time_in_ranges_of_a_profile_without_ops_is_not_pythons() -> None:
    # host  |step 1-----------------)      of a profile without an op
    #         [find_centers--)
    named = Contributor("idle", "python", 80, name="find_centers")
    bare = Contributor("idle", "python", 20, name="ProfilerStep")
    known = Comparison(on_device=False, markers=frozenset(["ProfilerStep"]))
    lacking = replace(known, ranges_only=True)
    assert [kind_of(each, known) for each in (named, bare)] == [PYTHON, PYTHON]
    assert [kind_of(each, lacking) for each in (named, bare)] == [RANGE, UNRECORDED]


def test_a_profile_without_ops_is_judged_as_one() -> None:
    lack = Lack("ranges without ops", "no op was recorded")
    markers = table({"name": "ProfilerStep", "kind": "step"}, {"name": "x", "kind": "range"})
    run = profile(
        contributor("idle", "python", 80, "find_centers"),
        contributor("idle", "python", 20, "ProfilerStep"),
        lacks=(lack,),
        tables={"ranges": markers},
    )
    assert {f.finding.kind: f.finding.slow_ns for f in alone(run).findings} == {
        "ranges": 80,
        "unrecorded": 20,
    }


@pytest.mark.parametrize(
    ("name", "ops", "kind"),
    [
        ("## backward ##", ["aten::mm"], UNRECORDED),
        ("backward", ["aten::mm"], UNRECORDED),
        (
            "## backward ##",
            ["aten::mm", "autograd::engine::evaluate_function: MmBackward0"],
            PYTHON,
        ),
        ("## forward ##", ["aten::mm"], PYTHON),
        ("## backward ##", [], PYTHON),
    ],
)
def test_a_backward_pass_of_which_nothing_was_recorded_is_no_python(
    name: str, ops: list[str], kind: str
) -> None:
    rows = [
        {"name": op, "count": 1, "host_total_ns": 1, "device_total_ns": 0, "host_self_ns": 1}
        for op in ops
    ]
    tables = {"ops": table(*rows)} if rows else {}
    (finding,) = findings(None, profile(contributor("idle", "python", 9, name), tables=tables))
    assert finding.kind == kind
