"""What the clock around PyTensor's operators records."""

from pathlib import Path

import numpy as np
import pytest

from lstmprof import breakdown, formats
from lstmprof.capture.worker_request import CaptureRequest
from lstmprof.workloads import Workload

pytest.importorskip("pytensor")

CE = Workload("tiny-ce", 1, 4, False, 2, 5, 3, 3, "ce")


def test_five_steps_of_adam_are_torchs() -> None:
    import pytensor

    from lstmprof.capture import worker_pytensor

    torch = pytest.importorskip("torch")
    start = np.random.RandomState(3).randn(4, 3).astype(np.float32)
    theirs = torch.tensor(start, requires_grad=True)
    ours = pytensor.shared(start)
    optimizer = torch.optim.Adam([theirs], lr=CE.learning_rate)
    adam = worker_pytensor.Adam(CE, {"w": ours})
    step = pytensor.function([], updates=adam.updates((ours**4).sum()), mode="FAST_COMPILE")
    for _ in range(5):
        step()
        optimizer.zero_grad()
        (theirs**4).sum().backward()
        optimizer.step()
    assert np.abs(ours.get_value() - theirs.detach().numpy()).max() < 1e-6


def test_a_profile_has_steps_and_operators_within_scans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lstmprof.capture import worker_profile, worker_pytensor, worker_ranges

    monkeypatch.setattr(worker_profile, "THROWAWAY_NS", 0)
    trainer = worker_pytensor.Trainer(CaptureRequest("pytensor-scan", CE), "cpu")
    before = trainer.loss(trainer.step(worker_ranges.no_ranges))
    profiled = trainer.profile(worker_ranges.no_ranges, 2, str(tmp_path))
    assert all(loss < before for loss in profiled.losses)
    assert profiled.kernels == "separate PyTensor operators in a Scan"

    events = breakdown.annotated(formats.read(Path(profiled.files[0])).events, captured=True)
    rows = events.to_pylist()
    assert [row["kind"] for row in rows].count("step") == 2
    products = [row for row in rows if row["category"] == "gemm"]
    assert {row["phase"] for row in products} >= {"forward", "backward"}
    assert {row["step"] for row in products} == {0, 1}
