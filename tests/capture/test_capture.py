"""Real workers on tiny networks: what a capture brings back."""

import gzip
import itertools
import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from capture.rows import CE, CTC, captured, trained_by

from lstmprof import implementations, workloads
from lstmprof.breakdown.tables import TABLES
from lstmprof.capture.captured_run import _profile
from lstmprof.capture.harness.supervisor import CaptureResult
from lstmprof.capture.worker import reference
from lstmprof.capture.worker.machine.settings import environment
from lstmprof.events.annotate.steps import windows
from lstmprof.implementations import Implementation
from lstmprof.workloads import Workload

PHASES = ("step", "input", "forward", "loss", "backward", "optimizer")


def test_what_is_switched_is_what_the_worker_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MALLOC_TOP_PAD_", "4096")
    switches = {"keep_denormals": True, "onednn": False, "anomaly": True, "deterministic": True}
    result = captured(tmp_path, "torch-nn-lstm", CE, **switches)
    settings = result.metadata["settings"]
    assert result.metadata["denormals_flushed"] is False
    assert settings["framework_denormals"] == "kept"
    assert (settings["flush_to_zero"], settings["denormals_are_zero"]) == (False, False)
    assert (settings["onednn"], settings["anomaly_mode"]) == (False, True)
    assert settings["deterministic"] is True
    assert settings["environment"]["MALLOC_TOP_PAD_"] == "4096"
    assert settings["environment"] == environment(dict(os.environ))  # a machine may set some
    with gzip.open(result.profiles[0], "rt") as file:
        names = {event.get("name", "") for event in json.load(file)["traceEvents"]}
    assert "aten::_is_any_true" in names
    assert not any("mkldnn" in name for name in names)


def test_a_network_is_fed_the_tokens_of_the_users_text(tmp_path: Path) -> None:
    text = tmp_path / "words.txt"
    text.write_text("one two three two\nthree three one\n" * 4, encoding="utf-8")
    tiny = Workload("tiny", 1, 4, False, 2, 5, 3, 7, "ce", each_step=True, vocabulary=7)
    fed = workloads.with_overrides(tiny, data=str(text))
    result = captured(tmp_path, "torch-nn-lstm", fed)
    losses = [
        reference.outcome(w, workloads.weights(w, 0), workloads.batch(w, 0)).loss
        for w in (fed, tiny)
    ]
    assert result.metadata["workload"]["data"] == str(text)
    assert result.timings["loss"][0] == pytest.approx(losses[0], rel=1e-5)
    assert losses[0] != pytest.approx(losses[1], rel=1e-3)


@pytest.mark.parametrize("row", implementations.TABLE, ids=lambda row: row.name)
def test_a_capture_is_complete(row: Implementation, of_row: Callable[[str], CaptureResult]) -> None:
    if row.name == "torch-aot-inductor":
        pytest.skip("it compiles for a minute: what it compiles is held to the reference instead")
    workload = trained_by(row.name)
    result = of_row(row.name)
    shared = workloads.weights(workload, 0)
    first = reference.outcome(workload, shared, workloads.batch(workload, 0)).loss

    assert result.timings["iteration"] == [0, 1, 2, 3, 4]
    assert result.timings["warmup"] == [True, False, False, True, False]
    assert result.timings["after_profile"] == [False, False, False, True, True]
    assert result.timings["device_ns"] == [None] * 5
    assert min(result.timings["cpu_ns"]) > 0
    assert min(result.timings["voluntary_switches"] + result.timings["preemptions"]) >= 0
    assert min(result.timings["minor_faults"] + result.timings["major_faults"]) >= 0
    assert min(result.timings["wall_ns"]) > 0
    assert result.timings["loss"][0] == pytest.approx(first, rel=1e-5)

    facts = result.metadata
    assert facts["implementation"] == row.name
    assert facts["framework"] == row.framework
    assert facts["workload"]["labels"] == workload.labels
    assert (facts["device"], facts["threads"], len(facts["affinity"])) == ("cpu", 1, 1)
    assert facts["denormals_flushed"] is True
    assert facts["loss_fell"] is (None if "train" in row.refusals() else True)
    assert facts["compile_ns"] == result.timings["wall_ns"][0]
    assert len(facts["profiled_wall_ns"]) == len(facts["profiled_cpu_ns"]) == 2
    threads = facts["timing_threads"]
    counted = zip(result.timings["cpu_ns"], result.timings["warmup"], strict=True)
    of_steps_ns = sum(cpu_ns for cpu_ns, warmup in counted if not warmup)
    assert sum(thread["cpu_ns"] for thread in threads) > of_steps_ns / 2
    assert [thread["main"] for thread in threads].count(True) == 1
    assert facts["versions"][row.framework]
    computes_with_torch = "torch" in row.name
    built_for = pytest.importorskip("torch").version.cuda if computes_with_torch else None
    assert facts["versions"]["cuda"] == built_for  # None of a build for CPUs
    assert facts["packages"]["numpy"] == facts["versions"]["numpy"]
    assert facts["hardware"]["gpu"] is None
    assert isinstance(facts["kernels_used"], str)
    settings = facts["settings"]
    assert (settings["flush_to_zero"], settings["denormals_are_zero"]) == (True, True)
    assert settings.get("framework_denormals") in {"flushed", None}
    assert settings["gc_enabled"] is False  # while steps were timed
    assert settings.get("anomaly_mode") in {False, None}
    assert facts["counters"].get("reason") or facts["counters"]["instructions"] > 0
    json.dumps(dict(facts))
    _tells_its_network(row, workload, result)

    (profile,) = result.profiles
    assert profile.suffix == ".gz"
    assert len(gzip.decompress(profile.read_bytes())) > 1000
    assert sorted(p.name for p in profile.parent.iterdir()) == [profile.name]


#: What the layer table says of the network, by the events alone.
TOLD = ("time_steps", "batch", "inputs", "hidden", "layers", "directions", "packed", "dtype")


def _tells_its_network(row: Implementation, workload: Workload, result: CaptureResult) -> None:
    """The layer table, by the events alone, has one row, which is the workload's network."""
    events = _profile([result], own_scopes=True).events
    (layer,) = TABLES["layers"].of(events, windows(events, captured=True)).to_pylist()
    w = workload
    network = (w.time_steps, w.batch, w.features, w.hidden, w.layers, w.directions)
    assert tuple(layer[name] for name in TOLD) == (*network, False, "float32")
    assert (layer["cell"], layer["form"], layer["per_step"]) == ("lstm", row.form, 1)


def test_a_run_says_how_many_iterations_there_was_time_for(tmp_path: Path) -> None:
    result = captured(tmp_path, "torch-nn-lstm", CE, iterations=100_000, timing_s=0.02)
    counted = result.timings["warmup"].count(False)
    assert 3 <= counted < 100_000
    assert result.metadata["iterations"] == counted


def annotations(result: CaptureResult) -> list[dict[str, Any]]:
    trace = json.loads(gzip.decompress(result.profiles[0].read_bytes()))
    marked = [e for e in trace["traceEvents"] if e.get("cat") == "user_annotation"]
    return sorted((e for e in marked if e["name"] in PHASES), key=lambda e: e["ts"])


def test_torch_phases_are_consecutive_ranges_within_the_step(
    of_row: Callable[[str], CaptureResult],
) -> None:
    marked = annotations(of_row("torch-lstmcell-fused"))
    assert [e["name"] for e in marked] == list(PHASES) * 2
    step, *phases = marked[: len(PHASES)]
    for before, after in itertools.pairwise(phases):
        assert before["ts"] + before["dur"] <= after["ts"]
    assert step["ts"] + step["dur"] >= phases[-1]["ts"] + phases[-1]["dur"]


def test_forward_mode_has_no_backward_and_an_unchanging_loss(tmp_path: Path) -> None:
    result = captured(tmp_path, "torch-nn-lstm", CE, mode="forward")
    counts = Counter(e["name"] for e in annotations(result))
    assert counts == {"step": 2, "input": 2, "forward": 2, "loss": 2}
    assert result.metadata["loss_fell"] is None
    assert len(set(result.timings["loss"])) == 1


def test_tensorflow_steps_and_phases_are_in_the_profile(
    of_row: Callable[[str], CaptureResult],
) -> None:
    result = of_row("tf-lstmcell")
    raw = gzip.decompress(result.profiles[0].read_bytes())
    for name in (b"step_num", b"input", b"forward/", b"loss/", b"gradient_tape/", b"optimizer/"):
        assert name in raw


def test_keras_runs_forward_alone(tmp_path: Path) -> None:
    result = captured(tmp_path, "keras-lstm", CE, mode="forward")
    assert len(set(result.timings["loss"])) == 1
    assert b"gradient_tape" not in gzip.decompress(result.profiles[0].read_bytes())


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["torch-nn-lstm", "torch-lstmcell-fused"])
def test_a_gpu_capture_has_device_times_and_cuda_kernels(name: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    result = captured(tmp_path, name, CTC, device="cuda:0")
    walls, devices = result.timings["wall_ns"], result.timings["device_ns"]
    assert all(0 < device <= wall for device, wall in zip(devices, walls, strict=True))
    assert result.metadata["hardware"]["gpu"]
    assert result.metadata["kernels_used"] in ("cuDNN", "ATen fused cell")
    assert b'"cat": "kernel"' in gzip.decompress(result.profiles[0].read_bytes())
    assert np.isfinite(result.timings["loss"]).all()
