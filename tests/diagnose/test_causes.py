"""Which kind of bottleneck an item's time belongs to: every rule, and their order."""

from __future__ import annotations

from pathlib import Path

import pytest
from diagnose.made import case, item

from lstmprof.breakdown.holdings import CALL_GAP_NS
from lstmprof.diagnose import causes
from lstmprof.diagnose.causes import KINDS, RULES, Scene, kind_of, scene_of
from lstmprof.diagnose.contributors import SHORT_KERNEL_NS, SHORT_OP_NS
from lstmprof.diagnose.profiler_overhead import QUICK_RECORDING_NS, RECORDING_NS
from lstmprof.diagnose.step_profile import Item

HOST, DEVICE = Scene(on_device=False), Scene(on_device=True)


@pytest.mark.parametrize(
    ("one", "kind"),
    [
        (item("busy", "gemm", 1, "aten::mm"), "GEMM-bound"),
        (item("busy", "rnn", 1, "aten::mkldnn_rnn_layer"), "GEMM-bound"),
        (item("busy", "attention", 1, "aten::sdpa"), "GEMM-bound"),
        (item("busy", "pointwise", 1, "aten::tanh"), "memory-bound"),
        (item("busy", "optimizer", 1, "aten::lerp_"), "memory-bound"),
        (item("busy", "pointwise", 1, "aten::add", short=True), "dispatch-bound"),
        (item("busy", "gemm", 1, "aten::mm", short=True), "dispatch-bound"),
        (item("busy", "cast", 1, "aten::copy_"), "cast-bound"),
        (item("busy", "cast", 1, "aten::copy_", short=True), "cast-bound"),
        (item("busy", "layout", 1, "aten::copy_"), "copy-bound"),
        (item("busy", "layout", 1, "aten::cat", short=True), "dispatch-bound"),
        (item("busy", "ctc", 1, "aten::_ctc_loss"), "CTC-bound"),
        (item("busy", "collective", 1, "gloo:all_reduce"), "collective-bound"),
        (item("busy", "other", 1, "mine::op"), "unknown"),
        (item("idle", "dispatch", 1, "aten::view"), "dispatch-bound"),
        (item("idle", "dispatch", 1, "aten::to", serves="cast"), "cast-bound"),
        (item("idle", "dispatch", 1, "aten::clone", serves="layout"), "copy-bound"),
        (item("idle", "dispatch", 1, "aten::clone", serves="layout", short=True), "dispatch-bound"),
        (item("idle", "dispatch", 1, "aten::item"), "sync-bound"),
        (item("idle", "python", 1, "forward"), "Python-bound"),
        (item("idle", "python", 1, "aten::add", before=True), "dispatch-bound"),
        (item("idle", "python", 1, "aten::item", before=True), "sync-bound"),
        (item("idle", "python", 1, "aten::to", serves="cast", before=True), "cast-bound"),
        (item("idle", "host", 1), "host-bound"),
        (item("idle", "profiler", 1, "Buffer Flush"), "profiler"),
        (item("input", "python", 1, "input"), "input-bound"),
        (item("input", "gemm", 1, "aten::mm"), "input-bound"),
        (item("idle", "dispatch", 1, "PjRtClient::Compile"), "compile-bound"),
        (item("busy", "pointwise", 1, "Torch-Compiled Region: 0/0"), "memory-bound"),
    ],
)
def test_on_a_host(one: Item, kind: str) -> None:
    assert kind_of(one, HOST) == kind


@pytest.mark.parametrize(
    ("one", "kind"),
    [
        (item("idle", "launch call", 1), "launch-bound"),
        (item("idle", "launch latency", 1), "launch-bound"),
        (item("idle", "runtime", 1), "launch-bound"),
        (item("idle", "dispatch", 1), "dispatch-bound"),
        (item("idle", "dispatch", 1, "aten::to", serves="cast"), "dispatch-bound"),
        (item("idle", "python", 1), "Python-bound"),
        (item("idle", "sync", 1), "sync-bound"),
        (item("idle", "alloc", 1), "allocation-bound"),
        (item("idle", "unattributed", 1), "unknown"),
        (item("input", "transfer", 1, "Memcpy HtoD"), "input-bound"),
        (item("busy", "transfer", 1, "Memcpy HtoD", short=True), "copy-bound"),
        (item("busy", "memset", 1, "Memset"), "copy-bound"),
        (item("busy", "pointwise", 1, "add", short=True), "memory-bound"),
        (item("busy", "rnn", 1, "LSTM_elementWise", family="pointwise"), "memory-bound"),
        (item("busy", "rnn", 1, "sgemm", family="gemm"), "GEMM-bound"),
        (item("busy", "gemm", 1, "sgemm", short=True), "GEMM-bound"),
    ],
)
def test_on_a_device(one: Item, kind: str) -> None:
    assert kind_of(one, DEVICE) == kind


def test_many_more_short_kernels_than_before_are_launches() -> None:
    few = case(item("busy", "pointwise", 9, "add", short=True, count=10), device=0)
    many = case(item("busy", "pointwise", 50, "add", short=True, count=20), device=0)
    more = scene_of(many, few)
    assert kind_of(many.items[0], more) == "launch-bound"
    assert kind_of(many.items[0], scene_of(few, many)) == "memory-bound"
    assert kind_of(item("busy", "pointwise", 9, "add"), more) == "memory-bound"


def test_every_kind_can_be_reached_and_says_what_its_time_is() -> None:
    assert {rule.kind for rule in RULES} == set(KINDS)
    assert all(rule.reason for rule in RULES)
    assert set(causes.WAITS) <= set(KINDS)


def test_the_documentation_names_every_kind_and_every_threshold() -> None:
    text = (Path(__file__).parents[2] / "docs" / "diagnosis.md").read_text(encoding="utf-8")
    assert [kind for kind in KINDS if kind not in text] == []
    assert f"{RECORDING_NS} ns for each op" in text
    assert [name for name, ns in QUICK_RECORDING_NS.items() if f"{ns} by {name}" not in text] == []
    assert f"{SHORT_OP_NS // 1000} µs or less" in text
    assert f"kernels under {SHORT_KERNEL_NS // 1000} µs" in text
    assert f"up to {CALL_GAP_NS // 1000} µs of Python" in text
