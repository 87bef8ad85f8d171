"""The precisions of the PyTorch loop: what is refused where, and how far autocast is from float64.

Autocast computes matmuls, and what follows from them, in the short type. Measured on a CPU
(torch 2.13) over every torch row and the networks below, the largest error of loss, outputs or a
gradient, relative to the largest value: 0.020 with bfloat16, whose unit roundoff is 2^-9, and
0.0025 with float16 (2^-11). The tolerances are 2.5 and 2 times that.
"""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from capture.rows import layer_computes_in_bfloat16

from lstmprof import implementations, workloads
from lstmprof.base.errors import CaptureError, UsageError
from lstmprof.capture.harness.supervisor import capture
from lstmprof.capture.request import CaptureRequest, refusal
from lstmprof.capture.worker import reference
from lstmprof.implementations import Implementation
from lstmprof.workloads import Workload

TOLERANCE = {"amp-bf16": 0.05, "amp-fp16": 0.005}
SEED = 5
WORKLOADS = (
    Workload("one-layer-ce", 1, 5, False, 3, 7, 4, 3, "ce"),
    Workload("one-layer-mse", 1, 5, False, 3, 7, 4, 3, "mse"),
    Workload("three-layers-bidirectional-ce", 3, 4, True, 3, 6, 5, 3, "ce"),
    Workload("bidirectional-ctc", 2, 4, True, 4, 9, 5, 4, "ctc", labels=2, shortest=5),
)
EAGER = ("torch-lstmcell-basic", "torch-lstmcell-fused", "torch-nn-lstm")
ROWS = [row for row in implementations.TABLE if row.name in EAGER]


def request(row: Implementation, workload: Workload, **fields: Any) -> CaptureRequest:
    asked = {"device": "cpu", "seed": SEED, "peaks": False}
    return CaptureRequest(row.name, workload, **{**asked, **fields})


def trained(row: Implementation, workload: Workload, precision: str) -> Any:
    """The trainer with the gradients of its first step, unscaled, and that step's loss."""
    from lstmprof.capture.worker import profiling
    from lstmprof.capture.worker.loops import torch as worker_torch

    trainer = worker_torch.Trainer(request(row, workload, precision=precision), "cpu")
    inputs, targets = trainer._on_device()
    loss = trainer._gradients(profiling.no_ranges, inputs, targets)
    if trainer.scaler is not None:
        trainer.scaler.unscale_(trainer.optimizer)
    return trainer, trainer.loss(loss)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.name)
@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_autocast_agrees_with_the_reference(
    row: Implementation, precision: str, workload: Workload
) -> None:
    pytest.importorskip("torch")
    if refusal(request(row, workload, precision=precision)):
        pytest.skip("refused")
    if (row.name, precision) == ("torch-nn-lstm", "amp-bf16") and not layer_computes_in_bfloat16():
        pytest.skip("oneDNN has no bfloat16 LSTM on this CPU")
    trainer, loss = trained(row, workload, precision)
    weights, batch = workloads.weights(workload, SEED), workloads.batch(workload, SEED)
    right = reference.outcome(workload, weights, batch)
    parameters = trainer.implementation.parameters(trainer.module)
    found = trainer.implementation.canonical(
        trainer.module, {name: p.grad.numpy() for name, p in parameters.items()}
    )
    assert all(
        p.dtype == p.grad.dtype == trainer.module.head.weight.dtype for p in parameters.values()
    )
    assert loss == pytest.approx(right.loss, rel=TOLERANCE[precision])
    for name, expected in right.gradients.items():
        allowed = TOLERANCE[precision] * (np.abs(expected).max() or 1)
        assert np.abs(found[name] - expected).max() <= allowed, name


@pytest.mark.parametrize(
    ("name", "precision"), [("torch-lstmcell-fused", "amp-fp16"), ("torch-script", "amp-bf16")]
)
def test_autocast_trains(name: str, precision: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    row, workload = implementations.find(name), WORKLOADS[0]
    asked = request(row, workload, precision=precision, iterations=8, profile_steps=1)
    facts = capture(asked, tmp_path, lambda line: None).metadata
    weights, batch = workloads.weights(workload, SEED), workloads.batch(workload, SEED)
    right = reference.outcome(workload, weights, batch).loss
    assert facts["loss_first"] == pytest.approx(right, rel=TOLERANCE[precision])
    assert facts["loss_fell"]
    assert (facts["precision"], facts["tf32"]) == (precision, False)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"precision": "tf32"}, "tf32 on cpu: only NVIDIA GPUs have TF32"),
        ({"precision": "amp-fp16"}, "amp-fp16 on cpu: oneDNN"),
        ({"cuda_graph": True}, "cuda-graph on cpu: only NVIDIA GPUs have CUDA graphs"),
    ],
)
def test_what_a_cpu_cannot_do_is_refused(
    fields: dict[str, Any], message: str, tmp_path: Path
) -> None:
    row = implementations.find("torch-nn-lstm")
    with pytest.raises(UsageError, match=message):
        capture(request(row, WORKLOADS[0], **fields), tmp_path, pytest.fail)


def test_auto_that_turns_out_to_be_a_cpu_is_refused_in_the_worker(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("a GPU is here")
    row = implementations.find("torch-nn-lstm")
    asked = request(row, WORKLOADS[0], device="auto", cuda_graph=True)
    with pytest.raises(CaptureError, match="cuda-graph on cpu: only NVIDIA GPUs"):
        capture(asked, tmp_path, lambda line: None)


def test_a_graph_of_ctc_is_refused_on_a_gpu_too() -> None:
    said = refusal(request(ROWS[0], WORKLOADS[-1], device="cuda:0", cuda_graph=True))
    assert said is not None
    assert "cuda-graph with ctc: torch's CTC loss copies" in said
    assert refusal(request(ROWS[0], WORKLOADS[0], device="cuda:0", cuda_graph=True)) is None


@pytest.mark.parametrize("name", ["torch-nn-lstm", "torch-compile-layer", "keras-torch-lstm"])
def test_autocast_to_bfloat16_of_a_cudnn_layer_is_refused(name: str) -> None:
    """It would compute in float16 under the name of bfloat16."""
    row = implementations.find(name)
    asked = request(row, WORKLOADS[0], device="cuda:0", precision="amp-bf16")
    assert "in float16" in str(refusal(asked))
    assert refusal(request(row, WORKLOADS[0], precision="amp-bf16")) is None


def test_a_torch_that_does_not_cast_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from lstmprof.capture.worker.loops import torch as loop

    class Idle(torch.autocast):  # type: ignore[misc, unused-ignore]
        def __init__(self, device: str, dtype: Any) -> None:
            super().__init__(device, dtype=dtype, enabled=False)

    monkeypatch.setattr(torch, "autocast", Idle)
    with pytest.raises(CaptureError, match=r"torch .* has no amp-fp16 on cpu; choose another"):
        loop.autocast("amp-fp16", "cpu")


#: What a script may do to torch's switches, by the API before PyTorch 2.9 and by the one since.
SWITCHES = {
    "nothing": {},
    "everything": {"": "tf32"},
    "CUDA": {"cudnn": "tf32"},
    "matmuls": {"cuda.matmul": "tf32"},
    "layers": {"cudnn.rnn": "ieee"},
    "oneDNN": {"mkldnn.matmul": "bf16"},
}


def backend(torch: Any, place: str) -> Any:
    return functools.reduce(getattr, filter(None, place.split(".")), torch.backends)


@pytest.fixture
def switched(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Return torch after a script has set ``fp32_precision`` in some places."""
    torch = pytest.importorskip("torch")
    if not hasattr(torch.backends, "fp32_precision"):
        pytest.skip("this torch has no fp32_precision")
    from lstmprof.capture.worker.loops import torch as loop

    for place, precision in SWITCHES[request.param].items():
        backend(torch, place).fp32_precision = precision
    yield torch
    torch.backends.fp32_precision = torch.backends.cudnn.fp32_precision = "none"
    loop.set_tf32("fp32")


@pytest.mark.parametrize("switched", SWITCHES, indirect=True)
def test_settings_are_read_whatever_a_script_has_switched(switched: Any) -> None:
    from lstmprof.capture.worker.profilers.torch import settings

    on_gpu = settings("cuda")
    assert on_gpu["matmul_tf32"] == (switched.backends.cuda.matmul.fp32_precision == "tf32")
    assert on_gpu["cudnn_tf32"] == (switched.backends.cudnn.rnn.fp32_precision == "tf32")
    assert on_gpu["matmul_precision"] == ("high" if on_gpu["matmul_tf32"] else "highest")
    short = {"none": "highest", "ieee": "highest", "tf32": "high", "bf16": "medium"}
    precision = switched.backends.mkldnn.matmul.fp32_precision
    assert settings("cpu")["matmul_precision"] == short[precision]


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
@pytest.mark.parametrize("switched", SWITCHES, indirect=True)
def test_precision_is_set_whatever_a_script_has_switched(switched: Any, precision: str) -> None:
    from lstmprof.capture.worker.loops import torch as loop

    loop.set_tf32(precision)
    wanted = "tf32" if precision == "tf32" else "ieee"
    on_gpu = ("cuda.matmul", "cudnn.rnn", "cudnn.conv")
    assert [backend(switched, place).fp32_precision for place in on_gpu] == [wanted] * 3
    on_cpu = ("mkldnn.matmul", "mkldnn.rnn")
    assert [backend(switched, place).fp32_precision for place in on_cpu] == ["ieee"] * 2
    # torch's own libraries may read the older switches
    assert switched.get_float32_matmul_precision() == ("high" if wanted == "tf32" else "highest")
    assert switched.backends.cuda.matmul.allow_tf32 is (wanted == "tf32")
    assert switched.backends.cudnn.allow_tf32 is (wanted == "tf32")


def test_a_set_float32_matmul_precision_is_what_is_recorded() -> None:
    torch = pytest.importorskip("torch")
    from lstmprof.capture.worker.profilers.torch import settings

    try:
        for word in ("medium", "high", "highest"):
            torch.set_float32_matmul_precision(word)
            assert settings("cpu")["matmul_precision"] == word
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_tf32_is_allowed_only_where_it_is_asked_for(precision: str) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    from lstmprof.capture.worker.loops import torch as loop

    loop.set_tf32(precision)
    values = torch.randn(512, 512, device="cuda")
    error = (values @ values - (values.double() @ values.double())).abs().max().item()
    loop.set_tf32("fp32")
    assert (error > 1e-3) == (precision == "tf32")
