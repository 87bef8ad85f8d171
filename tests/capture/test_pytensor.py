"""What the clock around PyTensor's operators records."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import lstmprof as lp
from lstmprof import formats, workloads
from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker import reference
from lstmprof.events.annotate import annotated
from lstmprof.workloads import Workload

pytest.importorskip("pytensor")

CE = Workload("tiny-ce", 1, 4, False, 2, 5, 3, 3, "ce")
UNUSUAL = (
    Workload("glample", 1, 4, False, 3, 6, 4, 4, "mse", head=False, optimizer="sgd"),
    Workload(
        *("ptb", 2, 4, False, 3, 6, 4, 7, "ce"),
        **{"each_step": True, "vocabulary": 7, "optimizer": "sgd"},
    ),
    Workload("lengths", 2, 4, True, 5, 6, 5, 3, "ce", shortest=2, variable_length=True),
)


@pytest.mark.parametrize("torchs", ["Adam", "SGD"])
def test_five_steps_of_an_optimizer_are_torchs(torchs: str) -> None:
    import pytensor

    from lstmprof.capture.worker.loops.symbolic import pytensor as loop

    workload = dataclasses.replace(CE, optimizer=torchs.lower())
    torch = pytest.importorskip("torch")
    start = np.random.RandomState(3).randn(4, 3).astype(np.float32)
    theirs = torch.tensor(start, requires_grad=True)
    ours = pytensor.shared(start)
    optimizer = getattr(torch.optim, torchs)([theirs], lr=CE.learning_rate)
    updates = loop.LIBRARY.optimizer_of(workload, {"w": ours}).updates((ours**4).sum())
    step = pytensor.function([], updates=updates, mode="FAST_COMPILE")
    for _ in range(5):
        step()
        optimizer.zero_grad()
        (theirs**4).sum().backward()
        optimizer.step()
    expected = theirs.detach().numpy()
    assert np.abs(ours.get_value() - expected).max() < 1e-6
    assert np.abs(expected - start).max() > 1e-4


@pytest.mark.parametrize("workload", UNUSUAL, ids=lambda w: w.name)
def test_the_loop_feeds_an_unusual_network_as_the_reference(
    workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lstmprof.capture.worker import profiling
    from lstmprof.capture.worker.loops.symbolic import pytensor as worker_pytensor

    monkeypatch.setattr(worker_pytensor, "BACKEND", "FAST_COMPILE")
    request = CaptureRequest("pytensor-scan", workload)
    trainer = worker_pytensor.Trainer(request, "cpu")
    losses = [trainer.loss(trainer.step(profiling.no_ranges)) for _ in range(3)]
    shared = workloads.weights(workload, request.seed)
    right = reference.outcome(workload, shared, workloads.batch(workload, request.seed))
    assert losses[0] == pytest.approx(right.loss, rel=1e-5)
    assert losses[2] < losses[1] < losses[0]


def test_a_profile_has_steps_and_operators_within_scans_which_are_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lstmprof.capture.worker import profiling
    from lstmprof.capture.worker.loops.symbolic import pytensor as worker_pytensor

    monkeypatch.setattr(profiling, "THROWAWAY_NS", 0)
    trainer = worker_pytensor.Trainer(CaptureRequest("pytensor-scan", CE), "cpu")
    before = trainer.loss(trainer.step(profiling.no_ranges))
    profiled = trainer.profile(profiling.no_ranges, 2, str(tmp_path))
    assert all(loss < before for loss in profiled.losses)
    assert profiled.kernels == "separate PyTensor operators in a Scan"

    events = annotated(formats.read(Path(profiled.files[0])).events, captured=True)
    rows = events.to_pylist()
    assert [row["kind"] for row in rows].count("step") == 2
    products = [row for row in rows if row["category"] == "gemm"]
    assert {row["phase"] for row in products} >= {"forward", "backward"}
    assert {row["step"] for row in products} == {0, 1}

    (diagnosis,) = lp.diagnose([lp.read(Path(profiled.files[0]))])
    assert "Scan as a whole" in {advice.name for advice in diagnosis.remedies}
