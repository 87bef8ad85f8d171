"""A step replayed as a CUDA graph computes what the step computes."""

from typing import Any

import pytest

from lstmprof.capture.worker_request import CaptureRequest
from lstmprof.workloads import Workload

CE = Workload("tiny-ce", 2, 8, True, 4, 6, 5, 3, "ce")


def losses(steps: int, **fields: Any) -> list[float]:
    from lstmprof.capture import worker_ranges, worker_torch

    request = CaptureRequest("torch-lstmcell-fused", CE, **fields)
    trainer = worker_torch.Trainer(request, request.device)
    return [trainer.loss(trainer.step(worker_ranges.no_ranges)) for _ in range(steps)]


def test_the_warm_up_leaves_no_trace() -> None:
    pytest.importorskip("torch")
    from lstmprof.capture import worker_ranges, worker_torch, worker_torch_graph

    trainer = worker_torch.Trainer(CaptureRequest("torch-cudnn", CE, device="cpu"), "cpu")
    with worker_torch_graph.weights_kept(trainer.module, trainer.optimizer):
        first = [trainer.loss(trainer.step(worker_ranges.no_ranges)) for _ in range(3)]
    again = [trainer.loss(trainer.step(worker_ranges.no_ranges)) for _ in range(3)]
    assert again == first
    assert len(set(first)) == 3


@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["train", "forward"])
@pytest.mark.parametrize("precision", ["fp32", "amp-bf16", "amp-fp16"])
def test_replayed_steps_lose_as_eager_ones_do(precision: str, mode: str) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    eager = losses(6, device="cuda:0", precision=precision, mode=mode)
    replayed = losses(6, device="cuda:0", precision=precision, mode=mode, cuda_graph=True)
    assert replayed == pytest.approx(eager, rel=1e-3)
