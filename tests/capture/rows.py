"""Captures of the table's rows on tiny networks, each made once for all tests of a session."""

from __future__ import annotations

import fcntl
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from lstmprof import implementations
from lstmprof.capture.harness.supervisor import CaptureResult, capture, result_in
from lstmprof.capture.request import RESULT, CaptureRequest
from lstmprof.workloads import Workload

CE = Workload("tiny-ce", 1, 4, False, 2, 5, 3, 3, "ce")
CTC = Workload("tiny-ctc", 2, 4, True, 2, 8, 3, 4, "ctc", labels=2, shortest=5)

#: The rows that train by CTC here, one a loop of training; the reference holds all of them to it.
BY_CTC = ("torch-nn-lstm", "torch-lstmcell-basic", "tf-lstmcell", "keras-lstm", "jax-scan")


def trained_by(name: str) -> Workload:
    """What a row trains here."""
    return CTC if name in BY_CTC else CE


def captured(scratch: Path, name: str, workload: Workload, **fields: Any) -> CaptureResult:
    """What a capture brought back whose files lie in ``scratch``."""
    row = implementations.find(name)
    pytest.importorskip(row.framework)
    if importlib.util.find_spec(row.library or row.framework) is None:
        pytest.skip(f"{row.library} is not installed")
    if "cpu" in row.refuses and not fields:
        pytest.skip(row.refuses["cpu"])
    if "train" in row.refusals():
        fields = {"mode": "forward", **fields}
    asked: dict[str, Any] = {"device": "cpu", "iterations": 3, "warmup": 1, "profile_steps": 2}
    asked["peaks"] = False
    request = CaptureRequest(name, workload, **asked | fields)
    with pytest.MonkeyPatch.context() as patch:
        if name == "torch-compile":  # it tries what the compiler can, with each time torch anew
            patch.setenv("TORCHINDUCTOR_VEC_ISA_OK", "1")
        return capture(request, scratch / "capture", lambda line: None)


def captured_once(shared: Path, name: str) -> CaptureResult:
    """What the capture of a row brought back, in ``shared``: whoever asks first makes it."""
    scratch = shared / name
    scratch.mkdir(parents=True, exist_ok=True)
    with (scratch / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (scratch / "capture" / RESULT).exists():
            return result_in(scratch / "capture")
        return captured(scratch, name, trained_by(name))


def layer_computes_in_bfloat16() -> bool:
    """Return whether nn.LSTM runs in bfloat16 on this CPU; oneDNN needs AVX-512 for it."""
    import torch

    with torch.autocast("cpu", torch.bfloat16):
        try:
            torch.nn.LSTM(2, 2)(torch.ones(1, 1, 2))
        except RuntimeError:
            return False
    return True
