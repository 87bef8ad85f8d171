"""The loops of engines that run an ONNX graph forward, and what their profilers tell."""

from __future__ import annotations

import datetime
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lstmprof import formats, implementations
from lstmprof.breakdown.tables import TABLES
from lstmprof.capture.request import CaptureRequest, refusal
from lstmprof.capture.worker import loops
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import windows
from lstmprof.workloads import Workload

CE = Workload("small-ce", 2, 8, True, 4, 6, 5, 3, "ce")
ENGINES = ("onnxruntime-lstm", "openvino-lstm")


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def loop_of(name: str) -> Any:
    framework = implementations.find(name).framework
    pytest.importorskip(framework)
    pytest.importorskip("onnx")
    return loops.loop_for(framework)


@pytest.mark.parametrize("name", ENGINES)
def test_training_is_refused_with_what_to_give_instead(name: str) -> None:
    request = CaptureRequest(name, CE, device="cpu")
    assert str(refusal(request)).endswith("it computes no gradients; use --mode forward")
    assert refusal(CaptureRequest(name, CE, device="cpu", mode="forward")) is None


@pytest.mark.parametrize("name", ENGINES)
def test_a_profile_has_steps_phases_and_the_nodes_within_them(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lstmprof.capture.worker import profiling

    monkeypatch.setattr(profiling, "THROWAWAY_NS", 0)
    asked = CaptureRequest(name, CE, device="cpu", mode="forward")
    trainer = loop_of(name).Trainer(asked, "cpu")
    before = trainer.loss(trainer.step(profiling.no_ranges))
    timed = trainer.running
    profiled = trainer.profile(profiling.no_ranges, 2, str(tmp_path))
    assert trainer.running is timed
    assert profiled.losses == [pytest.approx(before, rel=1e-6)] * 2
    assert profiled.kernels is not None

    events = annotated(formats.read(Path(profiled.files[0])).events, captured=True)
    rows = events.to_pylist()
    steps = [row for row in rows if row["kind"] == "step"]
    assert [step["step"] for step in steps] == [0, 1]
    assert [row["name"] for row in rows].count("program") == 2
    layers = [row for row in rows if row["category"] == "rnn"]
    assert {row["phase"] for row in layers} == {"forward"}
    assert {row["step"] for row in layers} == {0, 1}
    assert {row["phase"] for row in rows if row["category"] == "softmax_loss"} <= {"loss"}
    (layer,) = TABLES["layers"].of(events, windows(events, captured=True)).to_pylist()
    network = ("time_steps", "batch", "inputs", "hidden", "layers", "directions", "per_step")
    assert [layer[fact] for fact in network] == [6, 4, 5, 8, 2, 2, 1]
    for row in rows:
        whole = steps[0 if row["step"] in (None, 0) else 1]
        assert row["start_ns"] >= whole["start_ns"]
        assert row["start_ns"] + row["dur_ns"] <= whole["start_ns"] + whole["dur_ns"]


def test_a_node_of_onnx_runtime_has_its_type_its_time_and_its_inputs() -> None:
    event = loop_of("onnxruntime-lstm").event_of(
        {
            **{"cat": "Node", "name": "forward/l0_kernel_time", "ts": 7, "dur": 12, "ph": "X"},
            "args": {
                "op_name": "LSTM",
                "input_type_shape": [{"float": [20, 4, 12]}, {"float": [2, 128]}],
            },
        },
        1_000_000,
    )
    assert (event.name, event.start_ns, event.end_ns) == ("onnxruntime::LSTM", 1_007_000, 1_019_000)
    assert event.facts == {
        "node": "forward/l0",
        "Input Dims": [[20, 4, 12], [2, 128]],
        "Input type": ["float", "float"],
    }


def info(name: str, mean_us: int) -> SimpleNamespace:
    took = datetime.timedelta(microseconds=mean_us)
    return SimpleNamespace(node_name=name, node_type=name, exec_type="jit", real_time=took)


def test_a_run_of_openvinos_is_the_difference_of_its_means_and_ends_with_its_call() -> None:
    counters = loop_of("openvino-lstm").NodeCounters()
    from lstmprof.capture.worker.loops.onnx import RANGE, NodeEvent

    counters.begin([info("A", 100), info("B", 40), info("C", 0)], 2)
    # of three runs A's mean is 80: the third took 3·80 − 2·100 = 40 µs; B's 3·50 − 2·40 = 70
    call = NodeEvent(RANGE, "program", 1_000_000, 1_100_000, {})
    counters.read([info("A", 80), info("B", 50), info("C", 0)], call)
    spans = [(event.name, event.start_ns, event.end_ns) for event in counters.events]
    assert spans == [
        ("openvino::A", 1_000_000, 1_040_000),
        ("openvino::B", 1_040_000, 1_100_000),  # 70 µs, of which the call has 60
    ]
    # a mean that did not change is a run as long as it: 4·80 − 3·80
    counters.read([info("A", 80), info("B", 50), info("C", 0)], call._replace(end_ns=2_000_000))
    assert [event.end_ns - event.start_ns for event in counters.events[2:]] == [80_000, 50_000]


def test_phases_end_with_their_call_though_it_has_no_node_of_the_loss() -> None:
    loop_of("onnxruntime-lstm")
    from lstmprof.capture.worker.loops.onnx import OP, RANGE, NodeEvent, phases

    calls = [NodeEvent(RANGE, "program", at, at + 90, {}) for at in (0, 100)]
    nodes = [
        NodeEvent(OP, "onnxruntime::LSTM", 5, 80, {"node": "forward/l0"}),
        NodeEvent(OP, "onnxruntime::LSTM", 105, 150, {"node": "forward/l0"}),
        NodeEvent(OP, "onnxruntime::Neg", 160, 170, {"node": "loss/negated"}),
    ]
    found = [(event.name, event.start_ns, event.end_ns) for event in phases(nodes, calls)]
    assert found == [("forward", 5, 80), ("forward", 105, 150), ("loss", 160, 170)]


def test_openvino_reports_itself_to_nobody() -> None:
    pytest.importorskip("openvino")
    script = (
        "import os; forks = []; os.register_at_fork(before=lambda: forks.append(1));"
        "import lstmprof.capture.worker.loops.onnx.openvino; print(len(forks))"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, "0\n"), ended.stderr


def test_openvino_computes_in_bfloat16_where_it_is_told_to() -> None:
    loop = loop_of("openvino-lstm")
    losses = {}
    for precision in ("fp32", "amp-bf16"):
        asked = CaptureRequest("openvino-lstm", CE, "cpu", precision, "forward")
        try:
            trainer = loop.Trainer(asked, "cpu")
        except loop.CaptureError as error:
            pytest.skip(str(error))
        engine = trainer.engine(True)
        (loss,) = trainer.run(engine, [trainer.loss_name])
        losses[precision] = float(np.asarray(loss))
        kernels = {i.exec_type for i in engine.request.profiling_info if "LSTM" in i.node_type}
        if precision == "amp-bf16":
            assert any(kernel.endswith("bf16") for kernel in kernels), kernels
        else:
            assert not any(kernel.endswith("bf16") for kernel in kernels), kernels
    assert losses["amp-bf16"] == pytest.approx(losses["fp32"], rel=0.02)
