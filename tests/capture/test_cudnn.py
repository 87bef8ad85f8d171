"""The cuDNN loop: whole steps and captures on the stand-in, refusals where there is no GPU."""

from __future__ import annotations

import gzip
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import cudnn_stand_in
import numpy as np
import nvml_stand_in
import pytest

from lstmprof import formats, workloads
from lstmprof.base.errors import CaptureError
from lstmprof.capture.harness import plan
from lstmprof.capture.harness.supervisor import capture
from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker import profiling, reference
from lstmprof.capture.worker.loops import cudnn
from lstmprof.capture.worker.machine.host import cuda_devices
from lstmprof.events.annotate import annotated
from lstmprof.workloads import Workload

MEAN = Workload(
    *("deepbench", 1, 4, False, 3, 6, 4, 4, "mean"),
    **{"head": False, "optimizer": "sgd", "learning_rate": 0.5},
)
MSE = Workload(
    *("glample", 2, 4, True, 3, 6, 5, 8, "mse"),
    **{"head": False, "optimizer": "sgd", "learning_rate": 0.5, "cell": "gru"},
)
ASKED: dict[str, Any] = {"device": "cuda:0", "iterations": 3, "warmup": 1, "profile_steps": 0}

no_gpu = pytest.mark.skipif(cuda_devices() > 0, reason="a GPU is here")


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cudnn_stand_in.built(tmp_path_factory.mktemp("cudnn"))


@pytest.fixture
def _on_the_host(stand_in: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(stand_in))


def trainer_of(workload: Workload, **fields: Any) -> Any:
    request = CaptureRequest("cudnn-direct", workload, **ASKED | fields)
    return cudnn.Trainer(request, request.device)


def losses_of(trainer: Any, steps: int) -> list[float]:
    return [trainer.loss(trainer.step(profiling.no_ranges)) for _ in range(steps)]


def reference_losses(workload: Workload, steps: int, biases: int = 1) -> list[float]:
    """Of float64 steps of SGD. Of two biases that are summed each learns, and their sum twice."""
    weights: dict[str, Any] = dict(workloads.weights(workload, 0))
    batch = workloads.batch(workload, 0)
    found = []
    for _ in range(steps):
        one = reference.outcome(workload, weights, batch)
        found.append(one.loss)
        for name, gradient in one.gradients.items():
            rate = workload.learning_rate * (biases if name.startswith("bias") else 1)
            weights[name] = weights[name] - rate * gradient
    return found


@pytest.mark.usefixtures("_on_the_host")
def test_steps_of_sgd_are_the_references() -> None:
    losses = losses_of(trainer_of(MEAN), 5)
    assert losses == pytest.approx(reference_losses(MEAN, 5, biases=2), rel=1e-4)
    assert losses[-1] < losses[0]
    assert losses[1] != pytest.approx(reference_losses(MEAN, 2)[1], rel=1e-3)  # of one bias


@pytest.mark.usefixtures("_on_the_host")
def test_the_squared_error_falls() -> None:
    losses = losses_of(trainer_of(MSE), 6)
    assert losses[0] == pytest.approx(reference_losses(MSE, 1)[0], rel=1e-5)
    assert losses == sorted(losses, reverse=True)


@pytest.mark.usefixtures("_on_the_host")
def test_in_forward_mode_nothing_is_learnt() -> None:
    for workload in (MEAN, MSE):
        first, second = losses_of(trainer_of(workload, mode="forward"), 2)
        assert first == second == pytest.approx(reference_losses(workload, 1)[0], rel=1e-5)


@pytest.mark.usefixtures("_on_the_host")
def test_a_step_has_every_phase_and_a_device_time() -> None:
    trainer, entered = trainer_of(MEAN), []
    outer = profiling.no_ranges

    def ranges(name: str) -> Any:
        entered.append(name)
        return outer(name)

    trainer.step(ranges)
    assert entered == ["step", "input", "forward", "loss", "backward", "optimizer"]
    assert trainer.device_ns() > 0


def test_a_capture_without_a_profile_is_complete(
    stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(stand_in))
    request = CaptureRequest("cudnn-direct", MSE, **ASKED)
    result = capture(request, tmp_path / "capture", lambda line: None)
    assert result.timings["warmup"] == [True, False, False, False]
    assert min(result.timings["device_ns"]) > 0
    assert result.timings["loss"][0] == pytest.approx(reference_losses(MSE, 1)[0], rel=1e-5)
    facts = result.metadata
    assert (facts["framework"], facts["device"]) == ("cudnn", "cuda:0")
    assert facts["hardware"]["gpu"] == "Stand-in"
    assert facts["hardware"]["gpu_memory_bytes"] == 1 << 32
    assert facts["loss_fell"] is True
    assert facts["kernels_used"] is None
    assert facts["backend"] == "CUDNN_RNN_ALGO_STANDARD"
    libraries = {
        name: facts["versions"][name] for name in ("cudnn", "cuda", "cuda_driver", "torch")
    }
    assert libraries == {"cudnn": 92800, "cuda": "12.9", "cuda_driver": "13.0", "torch": None}
    assert result.profiles == ()
    json.dumps(dict(facts))


def test_a_capture_says_what_nvml_told_of_its_iterations(
    stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml = nvml_stand_in.built(tmp_path)
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{stand_in}:{nvml.parent}")
    request = CaptureRequest("cudnn-direct", MEAN, **ASKED)
    facts = capture(request, tmp_path / "capture", lambda line: None).metadata
    assert facts["timing_gpu_energy_j"] is None  # of less than a second
    assert facts["gpu_sm_clock_mhz"] == 1980
    assert facts["gpu_memory_clock_mhz"] is None
    assert facts["gpu_temperature_c"] == 61
    assert facts["gpu_throttle_reasons"] == ["software power cap", "hardware thermal slowdown"]


def test_a_torch_without_cuda_cannot_profile_and_says_so(
    stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(stand_in))
    if torch.cuda.is_available():
        pytest.skip("this torch has CUDA")
    request = CaptureRequest("cudnn-direct", MEAN, **ASKED | {"profile_steps": 1})
    with pytest.raises(CaptureError) as failed:
        capture(request, tmp_path / "capture", lambda line: None)
    assert failed.value.fault.startswith(f"torch {torch.__version__}, whose profiler records")
    assert failed.value.next_step.endswith("or use --profiler nsys")


def test_without_torch_a_profile_is_refused_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CaptureError, match=r"torch, whose profiler .* or use --profiler nsys"):
        trainer_of(MEAN, profile_steps=1)


@pytest.mark.usefixtures("_on_the_host")
def test_in_a_profile_every_call_of_cudnn_is_an_operator_of_its_phase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    cpu = (torch.profiler.ProfilerActivity.CPU,)  # there is no CUDA to record here
    monkeypatch.setattr(cudnn.Trainer, "activities", lambda trainer: cpu)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    trainer = trainer_of(MSE)
    session, walls_ns, losses = trainer._session(profiling.no_ranges, range(2), str(tmp_path))
    assert (len(walls_ns), losses) == (2, sorted(losses, reverse=True))
    assert trainer.cudnn.observer is None
    raw = tmp_path / "trace.json"
    session.export_chrome_trace(str(raw))
    packed = tmp_path / "cudnn-direct.pt.trace.json.gz"
    packed.write_bytes(gzip.compress(raw.read_bytes()))
    events = annotated(formats.read(packed).events, captured=True).to_pylist()
    seen = [(e["step"], e["phase"], e["name"]) for e in events if e["kind"] == "op"]
    one_step = [
        ("forward", "cudnn::RNNForward"),
        ("loss", "cudnn::OpTensor"),
        ("loss", "cudnn::ReduceTensor"),
        ("backward", "cudnn::ScaleTensor"),
        ("backward", "cudnn::RNNBackwardData_v8"),
        ("backward", "cudnn::RNNBackwardWeights_v8"),
        ("optimizer", "cudnn::AddTensor"),
    ]
    assert seen == [(step, *named) for step in range(2) for named in one_step]


@no_gpu
def test_a_device_that_is_not_there_is_refused() -> None:
    assert cudnn.device_of("auto") == "cpu"
    with pytest.raises(CaptureError, match=r"cuda:0 is not available: the driver shows 0 CUDA"):
        cudnn.device_of("cuda:0")


def lstmprof(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lstmprof", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@no_gpu
@pytest.mark.parametrize(("device", "status"), [("cpu", 2), ("auto", 1), ("cuda:0", 1)])
def test_without_a_gpu_a_capture_is_refused_in_one_line(
    device: str, status: int, tmp_path: Path
) -> None:
    small = ["--workload=glample-h128-b32", "--time-steps=3", "--batch=2", f"--device={device}"]
    refused = lstmprof("capture", "--impl=cudnn-direct", *small, "--out", str(tmp_path))
    assert refused.returncode == status
    last = refused.stderr.splitlines()[-1]
    reason = "the driver shows 0 CUDA" if device == "cuda:0" else "NVIDIA GPUs only"
    assert reason in last
    assert "Traceback" not in refused.stderr
    assert list(tmp_path.iterdir()) == []


@no_gpu
def test_a_plan_and_the_list_say_that_it_needs_a_gpu(tmp_path: Path) -> None:
    anywhere = CaptureRequest("cudnn-direct", MEAN)
    (planned,) = plan.plan(["cudnn-direct"], [MEAN], ["fp32"], anywhere, tmp_path)
    assert planned.skip == "cudnn-direct does not support cpu: cuDNN runs on NVIDIA GPUs only"
    shown = json.loads(lstmprof("list", "implementations", "--format", "json").stdout)
    (row,) = [row for row in shown if row["name"] == "cudnn-direct"]
    assert row["here"] == "needs a GPU"
    assert row["refuses"]["adam"].startswith("cuDNN has no division")
    assert "gru" not in row["refuses"]


@pytest.mark.gpu
@pytest.mark.parametrize("workload", [MEAN, MSE], ids=lambda w: w.name)
@pytest.mark.parametrize("mode", ["train", "forward"])
def test_a_capture_on_a_gpu_has_kernels_under_its_operators(
    workload: Workload, mode: str, tmp_path: Path
) -> None:
    if not cuda_devices():
        pytest.skip("the driver shows no CUDA device")
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    asked = ASKED | {"profile_steps": 2, "mode": mode}
    request = CaptureRequest("cudnn-direct", workload, **asked)
    result = capture(request, tmp_path / "capture", lambda line: None)
    assert result.timings["loss"][0] == pytest.approx(reference_losses(workload, 1)[0], rel=1e-4)
    assert min(result.timings["device_ns"]) > 0
    assert result.metadata["kernels_used"] == "cuDNN, standard algorithm"
    assert result.metadata["versions"]["cudnn"] == torch.backends.cudnn.version()
    read = formats.read(result.profiles[0]).events
    events = annotated(read, captured=True).to_pylist()
    names = {e["event_id"]: e["name"] for e in events}
    issuers = {
        names[e["op_id"]] for e in events if e["kind"] == "kernel" and e["op_id"] is not None
    }
    assert "cudnn::RNNForward" in issuers
    assert ("cudnn::RNNBackwardData_v8" in issuers) == (mode == "train")
    assert np.isfinite(result.timings["loss"]).all()
