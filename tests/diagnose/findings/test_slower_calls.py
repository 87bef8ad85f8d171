"""Calls that are as many in both runs and take longer in one: which they are, and why."""

from __future__ import annotations

from typing import Any

import pytest
from diagnose.made import contributor, profile, table
from hypothesis import given, strategies as st

from lstmprof.diagnose.diagnosis import compare
from lstmprof.diagnose.findings import findings
from lstmprof.diagnose.findings.because import because
from lstmprof.diagnose.findings.reasons import reason, slower_names
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.diagnose.step_profile.contributors import Contributor

MS = 1_000_000
SAME = {"implementation": "torch-lstmcell-basic", "precision": "fp32", "mode": "train"}


def products(ns: int, count: float = 3) -> Contributor:
    return contributor("busy", "gemm", ns, "aten::mm", count=count)


def run(*parts: Contributor, name: str = "run", **facts: Any) -> StepProfile:
    given = {key: facts.pop(key) for key in ("device", "tables") if key in facts}
    return profile(*parts, name=name, facts={**SAME, **facts}, **given)


def kinds(fast: StepProfile, slow: StepProfile) -> dict[str, int]:
    return {f.kind: f.delta_ns for f in findings(fast, slow)}


def test_as_many_calls_each_longer_are_no_products() -> None:
    fast, slow = run(products(10 * MS), name="a"), run(products(15 * MS), name="b")
    assert kinds(fast, slow) == {"slower calls": 5 * MS}
    assert compare(fast, slow).outcome.state == "unknown"  # all of it: the machine or a setting
    denormals = run(products(15 * MS), name="b", denormals_flushed=False)
    found = compare(run(products(10 * MS), name="a", denormals_flushed=True), denormals)
    assert found.dominant is not None
    assert found.dominant.finding.kind == "slower calls"


def test_what_lies_between_the_ops_of_a_range_is_no_call() -> None:
    ranges = {"ranges": table({"name": "program", "kind": "range"})}
    fast, slow = (
        run(contributor("idle", "dispatch", ns, "program", count=1), tables=ranges)
        for ns in (MS, 8 * MS)
    )
    assert kinds(fast, slow) == {"dispatch": 7 * MS}


@pytest.mark.parametrize(
    ("ns", "count", "kind"),
    [
        (16 * MS, 3.05, "slower calls"),  # within 2 % as many
        (15 * MS, 3.2, "matmul"),
        (14 * MS, 3, "matmul"),  # 1.4 times as long
        (30 * MS, 9, "matmul"),
    ],
)
def test_more_calls_or_calls_little_longer_are_what_they_are(
    ns: int, count: float, kind: str
) -> None:
    assert list(kinds(run(products(10 * MS)), run(products(ns, count)))) == [kind]


@pytest.mark.parametrize(
    ("fact", "other"),
    [
        ("implementation", "torch-nn-lstm"),
        ("implementation", None),
        ("precision", "amp-bf16"),
        ("mode", "forward"),
        ("workload", {"hidden": 512}),
    ],
)
def test_calls_of_other_work_are_not_the_same(fact: str, other: object) -> None:
    slow = run(products(20 * MS), **{fact: other})
    assert slower_names(run(products(10 * MS)), slow) == frozenset()
    unknown = (
        run(products(10 * MS), implementation=None),
        run(products(20 * MS), implementation=None),
    )
    assert slower_names(*unknown) == frozenset()


def test_a_call_may_be_short_in_one_run_and_long_in_the_other() -> None:
    """With the way into it; what an op arranges counts as well, a range and a question do not."""
    fast, slow = (
        run(
            contributor("busy", "pointwise", 2 * ns, "aten::mul", tiny=tiny, count=40),
            contributor("idle", "python", ns, "aten::mul", call_overhead=True, count=0),
            contributor("idle", "dispatch", ns, "aten::view", count=7),
            contributor("idle", "python", ns, "forward"),
            contributor("idle", "dispatch", ns, "aten::item", count=5),
        )
        for ns, tiny in ((MS, True), (4 * MS, False))
    )
    assert kinds(fast, slow) == {
        "slower calls": 12 * MS,
        "Python": 3 * MS,
        "sync": 3 * MS,
    }


def test_on_a_device_its_activities_are_calls_and_its_waits_are_none() -> None:
    fast, slow = (
        run(
            contributor("busy", "gemm", ns, "sgemm"),
            contributor("busy", "collective", ns, "ncclAllReduce"),
            contributor("idle", "dispatch", ns, "aten::mm"),
            contributor("idle", "sync", ns, "cudaDeviceSynchronize"),
            device=0,
        )
        for ns in (MS, 2 * MS)
    )
    assert slower_names(fast, slow) == {"sgemm"}


def ops(*names: str) -> dict[str, Any]:
    return {"ops": table(*({"name": name, "count": 9, "host_self_ns": 9} for name in names))}


STEP = {"timing_wall_ns": 100 * MS}


@pytest.mark.parametrize(
    ("of_fast", "of_slow", "name"),
    [
        ({}, {}, "not recorded"),
        ({"denormals_flushed": True}, {"denormals_flushed": False}, "denormals"),
        ({"denormals_flushed": False}, {"denormals_flushed": False}, "not recorded"),
        ({"threads": 1}, {"threads": 8, "affinity": [0, 1]}, "threads"),
        ({"threads": 2}, {"threads": 2, "affinity": [0, 1]}, "not recorded"),
        (
            {**STEP, "timing_cpu_ns": 99 * MS, "threads": 4},
            {**STEP, "timing_cpu_ns": 390 * MS, "threads": 4},
            "threads",
        ),
        ({"tables": ops("aten::mm")}, {"tables": ops("aten::_is_any_true")}, "anomaly mode"),
        (
            {"tables": ops("aten::mkldnn_linear")},
            {"tables": ops("aten::addmm")},
            "kernel path",
        ),
        ({"kernels_used": "oneDNN's"}, {"kernels_used": "ATen's own"}, "kernel path"),
        (
            {**STEP, "timing_page_faults": 0},
            {**STEP, "timing_page_faults": 20_000},
            "page faults",
        ),
        ({**STEP, "timing_page_faults": 0}, {**STEP, "timing_page_faults": 90}, "not recorded"),
        (
            {"device": 0, "gpu_sm_clock_mhz": 1980},
            {"device": 0, "gpu_sm_clock_mhz": 1200, "gpu_throttle_reasons": ["power cap"]},
            "clocks",
        ),
        (
            {**STEP, "timing_cpu_ns": 99 * MS, "threads": 1},
            {**STEP, "timing_cpu_ns": 60 * MS, "threads": 1},
            "contention",
        ),
        (
            {**STEP, "timing_preemptions": 0},
            {**STEP, "timing_preemptions": 50},
            "contention",
        ),
    ],
)
def test_the_reason_is_what_the_facts_of_both_runs_show(
    of_fast: dict[str, Any], of_slow: dict[str, Any], name: str
) -> None:
    fast = run(products(10 * MS), name="a", **of_fast)
    slow = run(products(20 * MS), name="b", **of_slow)
    assert reason(fast, slow).name == name
    (finding,) = findings(fast, slow)
    assert finding.kind == "slower calls"
    assert because(finding).endswith(reason(fast, slow).text)


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 10**6), st.integers(1, 9)), min_size=1
    ),
    st.integers(1, 5),
)
def test_the_kinds_still_sum_to_the_difference(
    rows: list[tuple[str, int, int]], times: int
) -> None:
    fast, slow = (
        run(*(contributor("busy", "gemm", ns * by, name, count=n) for name, ns, n in rows))
        for by in (1, times)
    )
    first, second = fast.length_ns, slow.length_ns
    assert sum(f.delta_ns for f in findings(fast, slow)) == second - first
