"""What PyTorch asks cuDNN for and what cuDNN ran, in the layer table of profiles of Kineto."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from diagnose.layer_documents import A30, A100, SMALL, SMALL_BACKWARD, Document, training

import lstmprof as lp
from lstmprof.breakdown.recurrent.cudnn_algorithm import Gpu, gpu_of
from lstmprof.events import DeviceFacts


def layer_of(document: Document, folder: Path) -> dict[str, Any]:
    """The one row of the layer table."""
    run = lp.read(document.written(folder / "trace.json"))
    (row,) = run.breakdown.table("layers").to_pylist()
    return dict(row)


def test_both_passes_have_what_was_asked_for_and_what_ran(tmp_path: Path) -> None:
    row = layer_of(training(A100, hidden=256, batch=60), tmp_path)
    assert (row["hidden"], row["batch"], row["dtype"]) == (256, 60, "float16")
    for prefix in ("", "backward_"):
        assert row[f"{prefix}algorithm"] == row[f"{prefix}algorithm_seen"] == "standard"
        assert (
            "persist_static: use a batch size that is a multiple of 8"
            in row[f"{prefix}algorithm_unmet"]
        )
    assert row["rung"] == "combined inputs"
    assert row["next_rung"] == "persistent kernel"


def test_the_passes_are_decided_apart(tmp_path: Path) -> None:
    row = layer_of(training(A100, hidden=160, batch=64, dtype="float", kernels=SMALL), tmp_path)
    assert (row["algorithm"], row["backward_algorithm"]) == ("persist_static_small_h", "standard")
    assert row["algorithm_seen"] == "persist_static_small_h"
    assert row["backward_algorithm_seen"] == "standard"
    assert (row["rung"], row["next_rung"]) == ("persistent kernel", None)


@pytest.mark.parametrize(("device", "algorithm"), [(A100, "persist_static"), (A30, "standard")])
def test_the_device_of_the_file_decides(
    tmp_path: Path, device: dict[str, Any], algorithm: str
) -> None:
    row = layer_of(training(device, hidden=512, batch=64), tmp_path)
    assert row["algorithm"] == algorithm


def test_without_the_device_it_is_unknown(tmp_path: Path) -> None:
    device = {"id": 0, "name": "", "warpSize": 32}
    document = training(device, hidden=128, batch=64, kernels=SMALL, backward=SMALL_BACKWARD)
    row = layer_of(document, tmp_path)
    assert (row["algorithm"], row["algorithm_seen"]) == (None, "persist_static_small_h")


@pytest.mark.parametrize(
    ("facts", "gpu"),
    [
        (None, Gpu()),
        (DeviceFacts("8.0", 108, 32), Gpu(80, 108)),
        (DeviceFacts("12.0", None, 32), Gpu(120, None)),
        (DeviceFacts(None, 14), Gpu(None, 14)),
    ],
)
def test_a_gpu_by_what_a_profile_says_of_it(facts: DeviceFacts | None, gpu: Gpu) -> None:
    assert gpu_of(facts) == gpu
