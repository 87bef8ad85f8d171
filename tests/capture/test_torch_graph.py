"""A step replayed as a CUDA graph computes what the step computes."""

import contextlib
import dataclasses
from typing import Any

import pytest

from lstmprof.capture.request import CaptureRequest
from lstmprof.workloads import Workload

CE = Workload("tiny-ce", 2, 8, True, 4, 6, 5, 3, "ce")


def losses(steps: int, workload: Workload = CE, **fields: Any) -> list[float]:
    from lstmprof.capture.worker import profiling
    from lstmprof.capture.worker.loops import torch as worker_torch

    request = CaptureRequest("torch-lstmcell-fused", workload, **fields)
    trainer = worker_torch.Trainer(request, request.device)
    return [trainer.loss(trainer.step(profiling.no_ranges)) for _ in range(steps)]


def test_the_warm_up_leaves_no_trace() -> None:
    pytest.importorskip("torch")
    from lstmprof.capture.worker import profiling
    from lstmprof.capture.worker.loops import torch as worker_torch

    trainer = worker_torch.Trainer(CaptureRequest("torch-nn-lstm", CE, device="cpu"), "cpu")
    with worker_torch.weights_kept(trainer.module, trainer.optimizer):
        first = [trainer.loss(trainer.step(profiling.no_ranges)) for _ in range(3)]
    again = [trainer.loss(trainer.step(profiling.no_ranges)) for _ in range(3)]
    assert again == first
    assert len(set(first)) == 3


@pytest.fixture
def _graphs_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA graphs as a CPU can have them: what is captured is not done, a replay computes it again.

    A replay overwrites the gradients, as on a GPU, where they lie in the graph's memory.
    """
    torch = pytest.importorskip("torch")
    from lstmprof.capture.worker.loops import torch as worker_torch

    class Stream:
        def wait_stream(self, other: Any) -> None:
            assert isinstance(other, Stream)

    class OnTheHost(worker_torch.GraphedWork):
        def __init__(self, work: Any, module: Any, optimizer: Any, warmup: int) -> None:
            self.work, self.module = work, module
            with worker_torch.weights_kept(module, optimizer):
                super().__init__(work, module, optimizer, warmup)

        def replay(self) -> Any:
            for parameter in self.module.parameters():
                parameter.grad = None
            self.loss.detach().copy_(self.work().detach())
            return self.loss

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    for context in ("stream", "graph"):
        monkeypatch.setattr(torch.cuda, context, lambda _: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    monkeypatch.setattr(worker_torch, "GraphedWork", OnTheHost)
    for name in ("DISABLE_CUPTI_LAZY_REINIT", "TEARDOWN_CUPTI"):
        monkeypatch.setenv(name, "")


@pytest.mark.usefixtures("_graphs_on_the_host")
@pytest.mark.parametrize("mode", ["train", "forward"])
@pytest.mark.parametrize("precision", ["fp32", "amp-bf16", "amp-fp16"])
def test_what_stands_around_a_graph_trains_as_an_eager_step_does(precision: str, mode: str) -> None:
    workload = dataclasses.replace(CE, optimizer="sgd")  # Adam's state on a device needs one
    asked: dict[str, Any] = {"device": "cpu", "precision": precision, "mode": mode}
    eager = losses(5, workload, **asked)
    replayed = losses(5, workload, **asked, cuda_graph=True)
    assert replayed == pytest.approx(eager, rel=1e-6)
    assert (len(set(eager)) == 1) == (mode == "forward")


@pytest.mark.usefixtures("_graphs_on_the_host")
@pytest.mark.parametrize(("steps", "order"), [(2, ["session", "graph"]), (0, ["graph"])])
def test_a_session_comes_before_the_graph_where_steps_are_profiled(
    steps: int, order: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from lstmprof.capture.worker.loops import torch as worker_torch

    seen: list[str] = []

    @contextlib.contextmanager
    def recording(self: Any, folder: str) -> Any:
        seen.append("session")
        yield

    made = worker_torch.GraphedWork.__init__

    def noted(self: Any, *given: Any) -> None:
        seen.append("graph")
        made(self, *given)

    monkeypatch.setattr(worker_torch.Trainer, "recording", recording)
    monkeypatch.setattr(worker_torch.GraphedWork, "__init__", noted)
    workload = dataclasses.replace(CE, optimizer="sgd")
    losses(3, workload, device="cpu", cuda_graph=True, profile_steps=steps)
    assert seen == order


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
