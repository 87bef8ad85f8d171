"""Real workers of TensorFlow 1: steps, phases and operators in the timeline of its own tracing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from implementations.in_era import interpreter_of

from lstmprof import formats
from lstmprof.base.errors import CaptureError
from lstmprof.breakdown.attribution.ledger import ledger
from lstmprof.breakdown.recurrent.profiles import recurrent_calls
from lstmprof.capture.harness.supervisor import CaptureResult, capture
from lstmprof.capture.op_inputs import with_inputs
from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker import profiling
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import windows, with_steps
from lstmprof.formats.xplane import tf1_timeline
from lstmprof.workloads import Workload

CE = Workload("tiny-ce", 1, 4, False, 2, 5, 3, 3, "ce")


def captured(python: Path, scratch: Path, name: str, **fields: Any) -> CaptureResult:
    asked: dict[str, Any] = {"device": "cpu", "iterations": 3, "warmup": 1, "profile_steps": 2}
    request = CaptureRequest(name, CE, python=str(python), **asked | {"peaks": False} | fields)
    return capture(request, scratch / "capture", lambda line: None)


def test_a_capture_has_steps_phases_each_operator_once_and_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF2_BEHAVIOR", "1")  # as where this process has imported TensorFlow 2
    python = interpreter_of("tensorflow-1.15.5")
    result = captured(python, tmp_path, "tf1-basiclstmcell")
    assert result.metadata["loss_fell"] is True
    assert result.metadata["framework"] == "tensorflow1"
    assert result.metadata["kernels_used"] == "separate TensorFlow operators under dynamic_rnn"
    assert result.metadata["versions"]["tensorflow"] == "1.15.5"
    profile = formats.read(result.profiles[0])
    assert profile.format == "tf1_timeline"
    assert profile.notes == ()
    events = annotated(profile.events, captured=True)
    found = windows(events, captured=True)
    assert [window.step for window in found] == [0, 1]
    events = with_inputs(with_steps(events, found), result.shapes)
    rows = [row for row in events.arrow.to_pylist() if row["kind"] == "op"]
    in_steps = [row for row in rows if row["step"] is not None]
    assert {"forward", "loss", "backward", "optimizer"} <= {row["phase"] for row in in_steps}
    assert "other" not in {row["category"] for row in in_steps}
    for step in (0, 1):
        names = [row["name"] for row in in_steps if row["step"] == step]
        assert sum(name.endswith("/BiasAdd:_FusedMatMul") for name in names) == CE.time_steps
        assert sum(name.endswith(":ApplyAdam") for name in names) == 3
    account = ledger(events, found)
    for window in found:
        of_step = account.filter(pc.equal(account["step"], window.step))
        assert pc.sum(of_step["ns"]).as_py() == window.end_ns - window.start_ns
    (network, _) = (call.network for call in recurrent_calls(events))
    assert (network.time_steps, network.batch, network.hidden) == (5, 2, 4)


def test_keras_2_runs_in_the_graph_of_tensorflow_1(tmp_path: Path) -> None:
    python = interpreter_of("keras-2.1.6-tensorflow")
    result = captured(python, tmp_path, "keras-lstm")
    assert result.metadata["loss_fell"] is True
    assert result.metadata["framework"] == "tensorflow1"
    assert result.metadata["versions"]["keras"] == "2.1.6"
    assert "while" in str(result.metadata["kernels_used"])


def test_keras_2_runs_in_a_function_of_tensorflow_2(tmp_path: Path) -> None:
    python = interpreter_of("tensorflow-cpu-2.8.4")
    result = captured(python, tmp_path, "keras-lstm")
    assert result.metadata["loss_fell"] is True
    assert result.metadata["framework"] == "tensorflow"
    assert result.metadata["versions"]["keras"].startswith("2.8.")
    assert "while" in str(result.metadata["kernels_used"])
    assert result.shapes is not None


def test_rows_of_tensorflow_2_are_refused_in_one_line(tmp_path: Path) -> None:
    python = interpreter_of("tensorflow-1.15.5")
    with pytest.raises(CaptureError, match=r"needs tensorflow 2\.0 or newer, not 1\.15\.5"):
        captured(python, tmp_path, "tf-lstmcell")


def test_ranges_have_the_category_that_the_reader_looks_for() -> None:
    source = Path(profiling.__file__).parent / "profilers" / "tensorflow1.py"
    assert f'RANGE, PROCESS = "{tf1_timeline.CATEGORY}", ' in source.read_text(encoding="utf-8")
