"""A run against the layer op of its framework: which op, what is said, and what is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands.written_runs import step, write_run
from events.rows import Row

from lstmprof import __version__
from lstmprof.base.errors import CaptureError, UsageError
from lstmprof.breakdown import Breakdown, break_down
from lstmprof.capture.harness.rounds import capture_run
from lstmprof.capture.interpreters import Interpreter
from lstmprof.capture.interpreters.environments import STAMP, Environment, this_python
from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker.machine import host
from lstmprof.capture.worker.machine.host import cuda_devices
from lstmprof.cli import run as lstmprof
from lstmprof.diagnose.recommend import builtin
from lstmprof.diagnose.recommend.builtin import Against, against_builtin, request_of
from lstmprof.diagnose.recommend.shapes import Shape
from lstmprof.diagnose.verdict.what_ifs import DiagnosisOptions
from lstmprof.runs.metadata import run_info
from lstmprof.runs.run import open_run
from lstmprof.workloads import Workload

TINY = Workload("tiny", 1, 4, False, 2, 5, 3, 3, "ce")
LAYER: dict[str, Any] = {
    **{"form": "cell op", "op": "aten::lstm_cell", "packed": False},
    **{"forward_ns": 4e6, "backward_ns": 6e6, "ops_per_time_step": 9.0},
}
HERE = {"hardware": {"cpu_model": "EPYC"}, "workload": vars(TINY), "device": "cpu", "seed": 0}
HERE |= {"device_name": "EPYC"}


def shape(**fields: Any) -> Shape:
    usual: dict[str, Any] = {"precision": "fp32", "mode": "train", "device": "cpu"}
    return Shape(**{"workload": TINY, "framework": "torch", **usual, **fields})


def test_the_layer_op_is_that_of_the_framework_where_it_runs() -> None:
    pytest.importorskip("torch")
    request = request_of(shape(precision="amp-bf16", mode="forward", seed=3, threads=2))
    assert (request.implementation, request.precision) == ("torch-nn-lstm", "amp-bf16")
    assert (request.mode, request.seed, request.threads) == ("forward", 3, 2)
    pytest.importorskip("tensorflow")
    row = request_of(shape(framework="tensorflow")).implementation
    assert row == "tf-lstmblockfusedcell"  # cuDNN's needs a GPU


@pytest.mark.parametrize(
    ("fields", "of", "message"),
    [
        ({}, "torch-nn-lstm", "already uses torch-nn-lstm"),
        ({"framework": "pytensor"}, None, "PyTensor has no op for a whole layer"),
        ({"framework": None}, None, "the unknown framework of the run has no op"),
    ],
)
def test_where_there_is_none_it_says_why(
    fields: dict[str, Any], of: str | None, message: str
) -> None:
    pytest.importorskip("torch")
    with pytest.raises(UsageError, match=message):
        request_of(shape(**fields), of)


def test_that_of_tensorflow_1_runs_in_the_environment_of_its_era_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = Environment(("tensorflow==1.15.5",), this_python(), tmp_path)
    known = Interpreter("/era/python", "", environment)
    monkeypatch.setattr(builtin, "interpreters", lambda row, wish: [known])
    with pytest.raises(UsageError, match="tf1-lstmblockfusedcell is not installed"):
        request_of(shape(framework="tensorflow1"))
    environment.interpreter.parent.mkdir(parents=True)
    for file in (environment.interpreter, environment.folder / STAMP):
        file.touch()
    request = request_of(shape(framework="tensorflow1"))
    assert (request.implementation, request.python) == ("tf1-lstmblockfusedcell", "/era/python")


@pytest.mark.skipif(cuda_devices() > 0, reason="this machine has a GPU")
def test_a_run_of_a_gpu_is_held_against_nothing_on_a_machine_without() -> None:
    with pytest.raises(UsageError, match="used a GPU"):
        request_of(shape(device="cuda:0"))


def verdict(
    folder: Path, patch: pytest.MonkeyPatch, mine: float, best: float, **facts: Any
) -> Against:
    """Of a run of ``mine`` ms per step, where the layer op takes ``best``."""

    def ops(ms: float) -> list[Row]:
        return step(("aten::mm", 9), *([("aten::tanh", round(ms - 10))] if ms > 11 else []))

    write_run(folder, "torch-lstmcell-fused", ops(mine), mine, **{**HERE, **facts})
    there = write_run(folder, "torch-nn-lstm", ops(best), best, **HERE)
    patch.setattr(builtin, "builtin_run", lambda request, run, progress: open_run(there))
    return against_builtin(
        break_down(open_run(folder / "torch-lstmcell-fused")), DiagnosisOptions()
    )


def test_it_says_how_the_run_computes_and_how_much_faster_the_layer_op_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    found = verdict(tmp_path, monkeypatch, 41, 10)
    assert (found.state, found.op, found.compared) == ("faster", "nn.LSTM", "steps")
    assert found.factor == pytest.approx(4.1, rel=1e-3)
    assert found.same_machine is True
    for part in ("nn.LSTM", "4.10×", "41.0 against 10.0 ms", "5 "):  # of 5 time steps
        assert part in found.sentence
    assert found.diagnosis is not None
    assert found.diagnosis.slow.name == "torch-lstmcell-fused"
    assert found.to_dict()["diagnosis"]["fast"] == "torch-nn-lstm"


def test_it_says_when_the_layer_op_is_no_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    slower = verdict(tmp_path / "a", monkeypatch, 10, 25)
    assert (slower.state, slower.factor) == ("slower", pytest.approx(0.4, rel=1e-3))
    assert "0.40×" in slower.sentence
    same = verdict(tmp_path / "b", monkeypatch, 10.1, 10)
    assert (same.state, same.factor) == ("same", None)
    assert same.diagnosis is not None
    assert same.diagnosis.outcome.words in same.sentence


def test_times_of_another_machine_are_no_factor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    found = verdict(tmp_path, monkeypatch, 41, 10, hardware={"cpu_model": "Xeon"})
    assert (found.state, found.factor, found.same_machine) == ("unknown", None, False)
    assert "another machine (Xeon; this machine: EPYC)" in found.sentence


def test_a_run_of_unknown_shapes_is_one_line(tmp_path: Path) -> None:
    place = write_run(tmp_path, "mine", step(("aten::mm", 9)), 10)
    found = against_builtin(break_down(open_run(place)), DiagnosisOptions())
    assert (found.state, found.builtin, found.diagnosis) == ("unknown", None, None)
    assert found.sentence.startswith("mine: ")
    assert "not compared with a layer op" in found.sentence


@pytest.mark.parametrize(
    ("mine_ns", "hardware", "state"),
    [(10e6, "EPYC", "faster"), (2.1e6, "EPYC", "same"), (10e6, None, "unknown")],
)
def test_a_strangers_layer_is_compared_with_the_layer_as_it_was_profiled(
    mine_ns: float,
    hardware: str | None,
    state: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("torch")
    row = {**LAYER, "forward_ns": mine_ns / 2, "backward_ns": mine_ns / 2}
    asked = shape(layer=row)
    best = {**LAYER, "form": "layer op", "forward_ns": 1e6, "backward_ns": 1e6}
    monkeypatch.setattr(builtin, "shape_of", lambda breakdown: asked)
    monkeypatch.setattr(builtin, "slowest_layer", lambda breakdown: best)
    monkeypatch.setattr(builtin, "LAYERS", "ledger")
    profiled = {"profiled_wall_ns": [10_000_000]}
    there = write_run(tmp_path, "torch-nn-lstm", step(("aten::mm", 9)), 9, **HERE, **profiled)
    monkeypatch.setattr(builtin, "builtin_run", lambda request, run, progress: open_run(there))
    facts = {"hardware": {"cpu_model": hardware}} if hardware else {}
    mine = write_run(tmp_path, "stranger", step(("aten::mm", 9)), 10, **facts)
    found = against_builtin(break_down(open_run(mine)), DiagnosisOptions())
    assert (found.state, found.compared) == (state, "layers")
    assert (found.factor is not None) == (state == "faster")
    assert "5 calls of LSTMCell" in found.sentence
    assert ("11 %" in found.sentence) == (state != "unknown")  # which profiling changes


@pytest.mark.parametrize("error", [CaptureError("the worker died", "see"), KeyError("ours")])
def test_a_capture_that_fails_is_told_at_the_end_and_costs_no_other_run(
    error: Exception,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def against(breakdown: Breakdown, *_: object) -> Against:
        if breakdown.run.name == "b":
            raise error
        return Against(breakdown.run.name, "unknown", f"{breakdown.run.name} is as it is.")

    monkeypatch.setenv("LSTMPROF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(builtin, "against_builtin", against)
    for name in ("a", "b", "c"):
        write_run(tmp_path / "runs", name, step(("aten::mm", 9)), 10)
    words = ["diagnose", str(tmp_path / "runs"), "--against-builtin"]
    assert lstmprof(words) == 1
    said = capfd.readouterr()
    sentences = ["a is as it is.", "b: not compared with its layer op: ", "c is as it is."]
    assert all(sentence in said.out for sentence in sentences)
    alone = [line.split()[0] for line in said.out.splitlines() if " ms per step  " in line]
    assert alone == ["a", "b", "c"]
    (line,) = said.err.splitlines()
    assert line.startswith("left out: b: not compared with its layer op: ")
    assert lstmprof([*words, "--format", "json"]) == 1
    states = [verdict["run"] for verdict in json.loads(capfd.readouterr().out)]
    assert states == ["a", "b", "c"]


def test_a_capture_is_held_against_one_made_now_which_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("LSTMPROF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(builtin, "ITERATIONS", 1)
    asked: dict[str, Any] = {"device": "cpu", "iterations": 1, "warmup": 1, "profile_steps": 1}
    request = CaptureRequest("torch-lstmcell-fused", TINY, **asked, peaks=False)
    mine = break_down(capture_run(request, tmp_path / "traces"))
    first, again = list[str](), list[str]()
    found = against_builtin(mine, DiagnosisOptions(), first.append)
    assert found.builtin == "torch-nn-lstm--tiny--fp32--cpu"
    assert found.compared == "steps"
    assert any(line.startswith("capturing torch-nn-lstm") for line in first)
    against_builtin(mine, DiagnosisOptions(), again.append)
    assert [line.partition(" ")[0] for line in again] == ["reusing"]


@pytest.mark.parametrize(
    ("facts", "serves"),
    [
        ({}, True),
        ({"device": "cuda"}, False),
        ({"precision": "amp-bf16"}, False),
        ({"mode": "forward"}, False),
        ({"implementation": "torch-script"}, False),
        ({"lstmprof_version": "0.0.1"}, False),
        ({"label": "other"}, False),
        ({"threads": 2}, False),
        ({"hardware": {"cpu_model": "another"}}, False),
        ({"workload": {"name": "another"}}, False),
        ({"framework": None}, False),
    ],
)
def test_a_kept_run_serves_only_what_would_be_captured_again(
    facts: dict[str, Any], serves: bool
) -> None:
    request = CaptureRequest("torch-nn-lstm", TINY, device="cpu", threads=1)
    info = {
        **{"implementation": "torch-nn-lstm", "workload": {"name": "tiny"}, "device": "cpu"},
        **{"precision": "fp32", "mode": "train", "lstmprof_version": __version__, "threads": 1},
        **{"hardware": {"cpu_model": host.hardware()["cpu_model"]}, "framework": "nowhere"},
        **facts,
    }
    assert builtin._serves(run_info(info), request) is serves
