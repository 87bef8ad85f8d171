"""Real captures measure what recording an event costs; the parts of the clean step sum to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from ingested import ingest_profile

from lstmprof.breakdown import account_rows, break_down
from lstmprof.capture.captured_run import write_captured
from lstmprof.capture.harness.supervisor import CaptureResult
from lstmprof.capture.request import CaptureRequest
from lstmprof.workloads import Workload


@pytest.mark.measured
@pytest.mark.parametrize("name", ["torch-lstmcell-fused", "tf-lstmcell", "jax-scan"])
def test_recording_is_measured_and_the_parts_sum_to_the_step(
    name: str, tmp_path: Path, of_row: Callable[[str], CaptureResult]
) -> None:
    found = break_down(write_captured("r", [of_row(name)], tmp_path))
    (cost,) = found.run.info.recording or ()
    if name != "jax-scan":  # whose range costs so little that noise may hide it
        assert cost.event_ns
        assert cost.range_ns
        assert cost.event_ns < cost.range_ns
        assert cost.event_error_ns is not None
    if name.startswith("torch"):
        assert cost.event_before_ns is not None
        assert cost.event_inside_ns is not None
        assert 0 < cost.event_before_ns + cost.event_inside_ns < (cost.event_ns or 0)
    rows = account_rows([found])
    assert {row["steps"] for row in rows} == {"clean"}
    assert found.timings is not None
    assert sum(row["ns"] for row in rows) == pytest.approx(found.timings.step_ns, abs=1)
    assert all(row["ns"] > 0 for row in rows)
    profiled = account_rows([found], profiled=True)
    assert {row["steps"] for row in profiled} == {"profiled"}


def test_a_step_that_does_not_count_comes_first_where_kernels_may_be_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    from lstmprof.capture.worker.loops.torch import Trainer
    from lstmprof.capture.worker.profiling import no_ranges

    monkeypatch.setattr(Trainer, "starts_late", True)
    workload = Workload("tiny-ce", 1, 4, False, 2, 5, 3, 3, "ce")
    trainer = Trainer(CaptureRequest("torch-nn-lstm", workload, device="cpu"), "cpu")
    profiled = trainer.profile(no_ranges, 2, str(tmp_path))
    assert len(profiled.walls_ns) == len(profiled.losses) == 2
    (profile,) = map(Path, profiled.files)
    events = ingest_profile(profile, tmp_path / "runs").events().to_pylist()
    layers = [row["step"] for row in events if row["name"] == "aten::lstm"]
    assert layers == [None, 0, 1]
