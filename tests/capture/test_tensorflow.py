"""Real TensorFlow workers: mixed precision, XLA, other networks, and what only a GPU runs."""

import gzip
import importlib
from pathlib import Path
from typing import Any

import pytest

from lstmprof import formats
from lstmprof.base.errors import CaptureError
from lstmprof.capture.harness.supervisor import CaptureResult, capture
from lstmprof.capture.request import CaptureRequest, refusal
from lstmprof.workloads import Workload

CE = Workload("tiny-ce", 1, 4, False, 2, 5, 3, 3, "ce")
GRU_OF_TOKENS = Workload(
    *("tiny-gru", 1, 4, True, 3, 6, 5, 2, "ce"),
    **{"cell": "gru", "vocabulary": 7, "shortest": 3, "variable_length": True},
)


def captured(scratch: Path, name: str, workload: Workload = CE, **fields: Any) -> CaptureResult:
    pytest.importorskip("tensorflow")
    asked: dict[str, Any] = {"device": "cpu", "iterations": 3, "warmup": 1, "profile_steps": 1}
    asked["peaks"] = False
    request = CaptureRequest(name, workload, **asked | fields)
    return capture(request, scratch / "capture", lambda line: None)


def test_mixed_precision_trains_and_its_casts_are_seen(tmp_path: Path) -> None:
    if "avx512f" not in Path("/proc/cpuinfo").read_text():
        with pytest.raises(CaptureError, match=r"needs AVX-512 .*another --precision$"):
            captured(tmp_path, "tf-lstmcell", precision="amp-bf16")
        return
    result = captured(tmp_path, "tf-lstmcell", precision="amp-bf16")
    assert result.metadata["loss_fell"] is True
    assert b":Cast" in gzip.decompress(result.profiles[0].read_bytes())


def test_xla_compiles_the_step_whose_phases_are_still_seen(tmp_path: Path) -> None:
    result = captured(tmp_path, "tf-lstmcell", xla=True)
    assert result.metadata["loss_fell"] is True
    assert result.metadata["kernels_used"] == "XLA's fused operators"
    names = set(formats.read(result.profiles[0]).events.column("name").to_pylist())
    assert any("fusion" in name for name in names)
    assert not any(name.endswith("MatMul") for name in names)


def test_a_gru_of_tokens_of_unequal_length_trains_its_embedding_by_halves(tmp_path: Path) -> None:
    result = captured(tmp_path, "keras-lstm", GRU_OF_TOKENS, precision="amp-fp16")
    assert result.metadata["loss_fell"] is True
    assert "Keras's while loop" in result.metadata["kernels_used"]
    names = formats.read(result.profiles[0]).events.column("name").to_pylist()
    assert any(name.endswith(":Cast") for name in names)
    assert any("embedding" in name and name.endswith(":GatherV2") for name in names)
    assert any("optimizer" in name and name.endswith(":ResourceScatterAdd") for name in names)


def test_auto_is_a_cpu_without_a_gpu_and_there_what_needs_one_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tf = pytest.importorskip("tensorflow")
    loop = importlib.import_module("lstmprof.capture.worker.loops.tensorflow")
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [])
    request = CaptureRequest("tf-cudnnlstm", CE, device=loop.device_of("auto"))
    assert "does not support cpu: CudnnRNNV3 has no CPU kernel" in str(refusal(request))
