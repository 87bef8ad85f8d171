"""Captures of Chainer, MXNet and Caffe2 in their eras: steps, phases, and what time is for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from implementations.in_era import interpreter_of

from lstmprof import implementations
from lstmprof.capture.harness.rounds import capture_run
from lstmprof.capture.request import CaptureRequest
from lstmprof.events.schema import PHASES
from lstmprof.workloads import Workload

CE = Workload("tiny-ce", 1, 8, False, 4, 6, 5, 3, "ce")
MOST_OTHER = 0.02
LAYER_OPS = ("mxnet-gluon-lstm", "caffe2-lstm")


def captured(name: str, out: Path, **options: Any) -> Any:
    python = str(interpreter_of(implementations.find(name).era))
    usual: dict[str, Any] = {"device": "cpu", "iterations": 3, "warmup": 2, "profile_steps": 2}
    request = CaptureRequest(name, CE, python=python, peaks=False, **{**usual, **options})
    return capture_run(request, out, rounds=1)


def other_share(computing: list[dict[str, Any]]) -> float:
    """What no rule knows, of the time of all that computes."""
    other_ns = sum(row["dur_ns"] for row in computing if row["category"] == "other")
    return float(other_ns / sum(row["dur_ns"] for row in computing))


@pytest.mark.parametrize(
    "name",
    [
        *("chainer-nsteplstm", "chainer-lstm"),
        *("mxnet-gluon-lstm", "mxnet-gluon-lstmcell", "mxnet-module-lstm", "caffe2-lstm"),
    ],
)
def test_a_capture_has_steps_phases_and_categories(name: str, tmp_path: Path) -> None:
    run, era = captured(name, tmp_path), implementations.find(name).era
    info = run.info
    assert f"{info.framework}-{info.versions[info.framework].partition('+')[0]}" == era
    assert info.loss_fell
    assert info.kernels_used
    rows = run.events().to_pylist()
    assert [row["kind"] for row in rows].count("step") == 2
    computing = [row for row in rows if row["kind"] == "op" and row["category"]]
    assert {row["step"] for row in computing} >= {0, 1}  # MXNet copies each loss after its step
    assert {*PHASES[1:]} - {row["phase"] for row in computing} <= {"loss"}
    categories = {row["category"] for row in computing}
    assert categories >= {"rnn" if name in LAYER_OPS else "gemm", "optimizer"}
    assert other_share(computing) <= MOST_OTHER


def test_a_forward_pass_of_chainer_has_no_gradient(tmp_path: Path) -> None:
    run = captured("chainer-lstm", tmp_path, mode="forward")
    names = [row["name"] for row in run.events().to_pylist()]
    assert not [name for name in names if "Grad" in name or "Backward" in name]
    assert names.count("chainer::LSTM") == 2 * CE.time_steps
