"""What of a profiled step is the profiler's: whose time it takes, how much, and how it is known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from diagnose.made import contributor, profile
from events.rows import row, table
from hypothesis import given, strategies as st

from lstmprof.diagnose.findings import findings
from lstmprof.diagnose.findings.profiler_overhead import unrecorded
from lstmprof.diagnose.step_profile.contributors import contributors
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import windows

HOST = {"pid": 1, "tid": 1}
MS = 1_000_000


def recorded(rows: list[dict[str, object]], device: int | None) -> dict[tuple[object, ...], float]:
    """(part, name, whether it is the way into an op) → the events recorded there."""
    events = annotated(table(rows), captured=True)
    found = contributors(events, windows(events, captured=True), None, device).to_pylist()
    return {
        (r["part"], r["name"], r["call_overhead"]): r["recorded"] for r in found if r["recorded"]
    }


#              0        10        20        30        40        50        60 µs
# step         |==========================================================|
# aten::item      |4 ----------- 20|
#   inner              |8 - 12|
# aten::mm                                    |40 -------- 52|
def test_an_event_is_recorded_in_what_lies_around_it() -> None:
    rows = [
        row("step", "step", 0, 60_000, **HOST),
        row("op", "aten::item", 4_000, 20_000, **HOST),
        row("op", "aten::_local_scalar_dense", 8_000, 12_000, **HOST),
        row("op", "aten::mm", 40_000, 52_000, **HOST),
    ]
    assert recorded(rows, None) == {
        ("python", "aten::item", True): 0.5,
        ("dispatch", "aten::item", False): 1.0,
        ("python", "step", False): 0.5 + 0.5 + 0.5,  # item's end, the begin and end of mm
    }


#              0        10        20        30 µs
# step         |===========================|
# aten::mm       |2 ------ 11|
#   launch          |5-- 9|
# kernel                          |20 -- 28|
# aten::t                           |22 25|   (the device works: it delays nothing)
def test_on_a_device_recording_lengthens_the_waits_for_the_host() -> None:
    rows = [
        row("step", "step", 0, 30_000, **HOST),
        row("op", "aten::mm", 2_000, 11_000, **HOST),
        row("runtime", "cudaLaunchKernel", 5_000, 9_000, **HOST, correlation_id=1),
        row("kernel", "sgemm", 20_000, 28_000, device=0, stream=7, correlation_id=1),
        row("op", "aten::t", 22_000, 25_000, **HOST),
    ]
    assert recorded(rows, 0) == {
        ("python", "step", False): 0.5,
        ("dispatch", "aten::mm", False): 0.5,
    }


def test_each_gives_up_what_recording_took_of_it() -> None:
    parts = (
        contributor("busy", "gemm", 10 * MS, "aten::mm", count=9),
        contributor("idle", "dispatch", 6 * MS, "aten::item", recorded=8000, disturbed_ns=4 * MS),
        contributor("idle", "python", 4 * MS, "step", recorded=2000, disturbed_ns=MS),
    )
    fast = profile(parts[0], step_ns=10 * MS)
    slow = profile(*parts, step_ns=15 * MS)
    found = {f.kind: f.delta_ns for f in findings(fast, slow)}
    assert found == {"sync-bound": 2 * MS, "Python-bound": 3 * MS, "GEMM-bound": 0}
    (largest,) = next(f.largest for f in findings(fast, slow) if f.kind == "sync-bound")
    assert largest.slow_ns == 2 * MS
    alone = {f.kind: f.slow_ns for f in findings(None, slow)}
    assert alone == {"sync-bound": 2 * MS, "Python-bound": 3 * MS, "GEMM-bound": 10 * MS}


def test_what_lies_beyond_recording_is_the_profilers_own_kind() -> None:
    run = profile(
        contributor("busy", "gemm", 10 * MS, "aten::mm"),
        contributor("idle", "dispatch", 10 * MS, "aten::view", recorded=100, disturbed_ns=3 * MS),
        step_ns=12 * MS,
    )
    fast = profile(contributor("busy", "gemm", 10 * MS, "aten::mm"), step_ns=10 * MS)
    found = {f.kind: f.slow_ns for f in findings(fast, run)}
    assert found["dispatch-bound"] == 7 * MS
    assert found["profiler"] == 12 * MS - 17 * MS


contributor_lists = st.lists(
    st.builds(
        contributor,
        st.sampled_from(["busy", "idle"]),
        st.sampled_from(["gemm", "python", "dispatch"]),
        st.integers(0, 10**9),
        st.just("a"),
        recorded=st.integers(0, 10**5).map(float),
    ).flatmap(lambda c: st.integers(0, c.ns).map(lambda ns: replace(c, disturbed_ns=ns))),
    min_size=1,
)


@given(contributor_lists, st.integers(1, 10**10), st.sampled_from([None, 0]))
def test_nothing_is_less_than_none_nor_more_than_the_undisturbed_step(
    parts: list[object], step_ns: int, device: int | None
) -> None:
    run = profile(*parts, step_ns=step_ns, device=device)  # type: ignore[arg-type]
    for before, after in zip(run.contributors, unrecorded(run).contributors, strict=True):
        assert 0 <= after.ns <= min(before.ns, step_ns)


@pytest.mark.parametrize("median_ms", [8, 12, 19])
def test_the_kinds_sum_to_the_undisturbed_step(median_ms: int) -> None:
    run = profile(
        contributor("busy", "gemm", 10 * MS, "aten::mm", recorded=10),
        contributor("idle", "dispatch", 10 * MS, "aten::view", recorded=4000),
        step_ns=median_ms * MS,
    )
    fast = profile(contributor("busy", "gemm", 5 * MS, "aten::mm"), step_ns=5 * MS)
    assert sum(f.slow_ns for f in findings(fast, run)) == median_ms * MS
