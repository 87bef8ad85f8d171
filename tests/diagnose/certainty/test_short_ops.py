"""What TensorFlow's profiler leaves out on a CPU makes what its profile says of dispatch likely."""

from __future__ import annotations

import pytest
from diagnose.made import contributor, profile, span

from lstmprof.diagnose.diagnosis import alone, compare
from lstmprof.diagnose.step_profile import StepProfile

MS = 1_000_000


def ran(name: str, dispatch_ms: int, pointwise_ms: int, by: str, **fields: int) -> StepProfile:
    """A timed run of 10 ms of products; what arranges it is called ``by``."""
    parts = [
        contributor("busy", "gemm", 10 * MS, "MatMul"),
        contributor("busy", "pointwise", pointwise_ms * MS, "Tanh"),
        contributor("idle", "dispatch", dispatch_ms * MS, by, call_overhead=True),
    ]
    step_ns = (10 + dispatch_ms + pointwise_ms) * MS
    return profile(*parts, name=name, step_ns=step_ns, span=span(step_ns), **fields)


@pytest.mark.parametrize(
    ("by", "level"), [("KernelAndDeviceFunc::Run", "likely"), ("aten::mm", "measured")]
)
def test_dispatch_of_an_executor_that_leaves_ops_out_is_likely(by: str, level: str) -> None:
    verdict = compare(ran("fast", 1, 1, "aten::mm"), ran("slow", 9, 1, by)).verdict
    assert (verdict.kind, verdict.certainty) == ("dispatch", level)
    assert any("TensorFlow" in reason for reason in verdict.reasons) == (level == "likely")


@pytest.mark.parametrize(
    ("dispatch_ms", "level"),
    [(8, "likely"), (1, "measured")],  # of the fast run, against 6 ms more of other work
)
def test_work_that_may_be_in_the_dispatch_of_the_fast_run_is_likely(
    dispatch_ms: int, level: str
) -> None:
    fast = ran("fast", dispatch_ms, 1, "FunctionRun")
    verdict = compare(fast, ran("slow", dispatch_ms, 7, "aten::mm")).verdict
    assert (verdict.kind, verdict.certainty) == ("elementwise", level)
    doubts = [reason for reason in verdict.reasons if "8.0 ms" in reason]
    assert bool(doubts) == (level == "likely")


def test_a_run_alone_and_a_device_s_lane() -> None:
    one = alone(ran("one", 30, 1, "SessionRun")).verdict
    assert (one.kind, one.certainty) == ("dispatch", "likely")
    on_device = alone(ran("one", 30, 1, "SessionRun", device=0)).verdict
    assert (on_device.kind, on_device.certainty) == ("dispatch", "measured")
