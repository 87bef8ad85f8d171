"""A session on a GPU: what it plans, what it begins, how it survives, what it leaves."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from capture.rows import layer_computes_in_bfloat16

from benchmarks.gpu import (
    capture_one,
    packing,
    processes,
    questions,
    raw_captures,
    session,
    wishes,
)
from benchmarks.gpu.estimates import CAUTION, Estimates, guess_s
from lstmprof.breakdown.recurrent import cudnn_algorithm
from lstmprof.capture import system
from lstmprof.capture.request import CaptureRequest, refusal, run_name
from lstmprof.runs.run import runs_in
from lstmprof.workloads import Workload
from lstmprof.workloads.studies import named

ROOT = Path(__file__).resolve().parents[1]
#: Of a process: against a hang alone.
PATIENCE_S = 600.0
SHORT = named("1x320-ce-short")
TINY = Workload("tiny-ce", 1, 4, False, 2, 5, 3, 3, "ce")


def request(name: str = "torch-nn-lstm", **fields: Any) -> CaptureRequest:
    return CaptureRequest(name, SHORT, **{"device": "cuda:0", "timing_s": 1.0, **fields})


# ---- the plan


def test_every_combination_is_wished_for_once() -> None:
    found = wishes.requests("cuda:0")
    names = [run_name(one) for one in found]
    assert len(set(names)) == len(names)
    named_ones = [r for r in found if r.workload.name in wishes.EVERY]
    asked = {
        (r.implementation, r.workload.name, r.precision) for r in named_ones if not r.cuda_graph
    }
    assert asked == {(i, w, p) for i in wishes.ALL for w in wishes.EVERY for p in wishes.PRECISIONS}
    graphs = {(r.implementation, r.workload.name, r.precision) for r in found if r.cuda_graph}
    graphs -= {("jax-scan", wishes.SHORT, "fp32")}  # XLA's command buffers, for comparison
    assert graphs == {one for one in asked if one[0] in wishes.TORCH}


def test_the_seed_study_comes_first_and_then_casts_graphs_and_cudnn() -> None:
    first = [run_name(r).replace("--cuda0", "") for r in wishes.requests("cuda:0")[:17]]
    assert first[:9] == [f"{name}--1x320-ce-short--fp32" for name in wishes.ALL]
    assert first[9] == "torch-nn-lstm--1x320-ce-short--amp-fp16"
    assert first[12] == "torch-nn-lstm--1x320-ce-short--fp32--cuda-graph"
    assert first[16] == "torch-nn-lstm--deepbench-lstm-h512-b16-t25--fp32"


@pytest.mark.parametrize(
    ("precision", "one", "other"),
    [
        ("fp32", (128, 64), (129, 64)),
        ("fp32", (192, 64), (193, 64)),
        ("amp-fp16", (1024, 64), (1152, 64)),
        ("amp-fp16", (1024, 128), (1024, 136)),
        ("amp-fp16", (1024, 8), (1024, 60)),
    ],
)
def test_both_sides_of_every_cliff_of_cudnn_are_wished_for(
    precision: str, one: tuple[int, int], other: tuple[int, int]
) -> None:
    assert chosen_by_cudnn(precision, *one) != chosen_by_cudnn(precision, *other)


def chosen_by_cudnn(precision: str, hidden: int, batch: int) -> list[str | None]:
    """Algorithms of both passes, on an H100, of the one network wished for of this size."""
    (network,) = (
        r.workload
        for r in wishes.requests("cuda:0")
        if (r.implementation, r.precision) == ("torch-nn-lstm", precision)
        and r.workload.name.startswith(f"{wishes.DEEPBENCH[0]}-h{hidden}-b{batch}")
    )
    layer = cudnn_algorithm.Layer(
        "torch",
        dtype="float16" if precision == "amp-fp16" else "float32",
        time_steps=network.time_steps,
        batch=network.batch,
        inputs=network.features,
        hidden=network.hidden,
        layers=network.layers,
        directions=network.directions,
        packed=network.variable_length,
        projection=0,
    )
    gpu = cudnn_algorithm.Gpu(90, 132)
    return [cudnn_algorithm.algorithm(layer, gpu, forward).algorithm for forward in (True, False)]


def test_flashrnns_comparison_is_wished_for_forward_alone_and_in_training() -> None:
    found = [r for r in wishes.requests("cuda:0") if r.workload.time_steps == 1024]
    assert {(r.workload.hidden, r.workload.batch) for r in found} == {(768, 16)}
    assert {(r.implementation, r.precision, r.mode) for r in found} == {
        (*asked, mode)
        for asked in (
            ("torch-nn-lstm", "amp-fp16"),
            ("torch-lstmcell-basic", "amp-fp16"),
            ("torch-lstmcell-basic", "amp-bf16"),
        )
        for mode in ("forward", "train")
    }
    assert all(refusal(r) is None for r in found)


def test_what_is_refused_is_left_out_with_the_reason(tmp_path: Path) -> None:
    planned = session.plan(
        [request(), request("cudnn-direct"), request("jax-scan", precision="amp-fp16")], tmp_path
    )
    assert planned[0].skip is None
    assert "which cuDNN lacks" in str(planned[1].skip)
    assert "no automatic mixed precision" in str(planned[2].skip)


def test_three_steps_are_profiled_but_of_a_long_unrolled_network_one() -> None:
    steps = {(r.implementation, r.workload.name): r.profile_steps for r in wishes.requests("cpu")}
    assert steps["torch-nn-lstm", wishes.CTC] == steps["torch-lstmcell-basic", wishes.LONG] == 3
    assert steps["torch-lstmcell-basic", wishes.CTC] == 1


# ---- the time


class Machine:
    """Runs requests on a clock of its own, ``slower`` times as long as guessed."""

    def __init__(self, slower: float, faults: dict[str, session.Ended] | None = None) -> None:
        self.slower, self.faults = slower, faults or {}
        self.now_s = 0.0
        self.limits: list[float] = []

    def run(self, one: CaptureRequest, limit_s: float) -> session.Ended:
        self.limits.append(limit_s)
        fault = self.faults.get(one.implementation)
        took_s = min(fault.took_s if fault else guess_s(one) * self.slower, limit_s)
        self.now_s += took_s
        return dataclasses.replace(fault, took_s=took_s) if fault else session.Ended(took_s)

    def outcomes(
        self, requests: list[CaptureRequest], budget_s: float, out: Path
    ) -> list[session.Outcome]:
        planned = session.plan(requests, out)
        going = session.Session(self.run, budget_s, 180.0, lambda: self.now_s)
        return list(going.outcomes(planned))


@pytest.mark.parametrize("budget_s", [1.0, 60.0, 480.0, 3000.0])
@pytest.mark.parametrize("slower", [0.3, 1.0, 1.2])
def test_the_budget_is_kept_and_used(slower: float, budget_s: float, tmp_path: Path) -> None:
    machine = Machine(slower)
    outcomes = machine.outcomes(wishes.requests("cuda:0"), budget_s, tmp_path)
    assert machine.now_s <= budget_s
    least_s = min(guess_s(r) for r in wishes.requests("cuda:0"))
    assert machine.now_s >= min(budget_s - 2 * CAUTION * slower * least_s - 20, 2500)
    assert all(o.ended is not None or "are left" in o.why for o in outcomes)


def test_what_would_not_fit_is_not_begun_and_a_shorter_one_is(tmp_path: Path) -> None:
    machine = Machine(1.0)
    long, short = request("torch-compile"), request("torch-nn-lstm")
    first, second = machine.outcomes([long, short], 30.0, tmp_path)
    assert first.ended is None
    assert first.why == "needs about 51 s, 30 s are left"
    assert second.ended is not None


def test_an_estimate_is_corrected_by_what_was_measured() -> None:
    estimates = Estimates()
    estimates.learn(request("torch-nn-lstm"), 2 * guess_s(request("torch-nn-lstm")))
    assert estimates.seconds(request("jax-scan")) == 2 * guess_s(request("jax-scan"))
    estimates.learn(request("jax-scan"), 0.5 * guess_s(request("jax-scan")))
    assert estimates.seconds(request("jax-scan")) == 0.5 * guess_s(request("jax-scan"))
    longer = dataclasses.replace(request("torch-nn-lstm"), workload=named("4x320-ce-long"))
    assert estimates.seconds(longer) == 2 * guess_s(longer)


def test_who_hangs_once_or_fails_twice_costs_no_more_time(tmp_path: Path) -> None:
    faults = {
        "torch-nn-lstm": session.Ended(1e9, "was stopped", hung=True),
        "jax-scan": session.Ended(3.0, "died"),
    }
    machine = Machine(1.0, faults)
    asked = [
        request(name, precision=precision)
        for precision in ("fp32", "tf32", "amp-fp16")
        for name in ("torch-nn-lstm", "jax-scan", "torch-script")
    ][:-2]
    outcomes = machine.outcomes(asked, 3000.0, tmp_path)
    begun = [o.planned.request.implementation for o in outcomes if o.ended is not None]
    assert begun == ["torch-nn-lstm", "jax-scan", "torch-script", "jax-scan", "torch-script"]
    assert {o.why for o in outcomes if o.ended is None} == {"torch-nn-lstm hung or failed before"}
    assert machine.limits[0] == 60.0  # four times its estimate, or a minute


# ---- processes


@pytest.fixture
def place(tmp_path: Path) -> processes.Place:
    return processes.Place(tmp_path / "out", tmp_path / "site")


def small(name: str = "torch-nn-lstm", **fields: Any) -> CaptureRequest:
    asked = {"device": "cpu", "iterations": 3, "warmup": 1, "profile_steps": 1, "peaks": False}
    return CaptureRequest(name, TINY, **{**asked, **fields})


def test_a_capture_is_kept_raw_and_made_a_run_later(place: processes.Place) -> None:
    pytest.importorskip("torch")
    asked = small()
    name = run_name(asked)
    assert processes.captured(place, asked, PATIENCE_S).fault is None
    assert raw_captures.waiting(place.out) == [name]
    assert raw_captures.is_there(place.out, name)
    assert len(raw_captures.read(place.out, name)["timings"]["loss"]) == 5
    assert processes.made_run(place, name, PATIENCE_S).fault is None
    assert raw_captures.waiting(place.out) == []
    (run,) = runs_in(place.out)
    assert (run.name, run.info.implementation) == (name, "torch-nn-lstm")
    assert run.events().num_rows > 20
    (profile,) = (run.path / "profile").iterdir()
    assert profile.name.endswith(".pt.trace.json.gz")
    assert session.plan([asked], place.out)[0].skip == session.THERE


def test_a_capture_is_a_run_at_once_where_profiles_can_be_read(place: processes.Place) -> None:
    pytest.importorskip("torch")
    readable = dataclasses.replace(place, readable=True)
    assert processes.captured(readable, small(), PATIENCE_S).fault is None
    assert raw_captures.waiting(place.out) == []
    assert [run.name for run in runs_in(place.out)] == [run_name(small())]


def test_a_capture_that_fails_leaves_the_reason_and_its_log(place: processes.Place) -> None:
    pytest.importorskip("torch")
    ended = processes.captured(place, small(device="cuda:77"), PATIENCE_S)
    assert str(ended.fault).startswith("device cuda:77 is not available")
    assert not ended.hung
    assert [path.name for path in (place.out / "logs").iterdir()]
    assert list((place.out / raw_captures.FOLDER).iterdir()) == []


@pytest.mark.measured
def test_a_capture_that_hangs_is_stopped_with_its_worker(place: processes.Place) -> None:
    pytest.importorskip("torch")
    limit_s = processes.GRACE_S + 4.0
    ended = processes.captured(place, small(iterations=10**9), limit_s)
    assert ended.hung
    told = [f"stopped the worker process after {s:g} s" for s in (4, limit_s)]
    assert any(line in str(ended.fault) for line in told)  # a busy machine's worker starts late
    assert raw_captures.waiting(place.out) == []
    assert list((place.out / raw_captures.FOLDER).iterdir()) == []


# ---- bringing back


def test_archives_hold_what_fits_profiles_dropped_first(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for name, kilobytes in (("a", 10), ("b", 10), ("c", 100), ("d", 10)):
        (out / name / "profile").mkdir(parents=True)
        (out / name / "run.json").write_text("{}")
        (out / name / "events.parquet").write_bytes(os.urandom(1000))
        (out / name / "profile" / "raw.gz").write_bytes(os.urandom(kilobytes * 1000))
    (out / "d" / "events.parquet").write_bytes(os.urandom(90_000))
    archives = packing.packed(out, ["a", "b", "c", "d", "none"], tmp_path / "back", 30_000)
    assert [archive.names for archive in archives] == [("a", "b", "c")]
    assert all(archive.path.stat().st_size <= 30_000 for archive in archives)
    with tarfile.open(archives[0].path) as archive:
        names = set(archive.getnames())
    assert {"a/run.json", "a/profile/raw.gz", "c/events.parquet"} <= names
    assert "c/profile/raw.gz" not in names
    small = packing.packed(out, ["a", "b", "c"], tmp_path / "few", 15_000, most=1)
    assert [archive.names for archive in small] == [("a", "c")]  # b is too large beside a


# ---- the command


def gpu(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu", *arguments],
        **{"cwd": ROOT, "env": {**os.environ, **environment}},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_dry_run_prints_the_plan_and_does_nothing(tmp_path: Path) -> None:
    shown = gpu("--dry-run", "--out", str(tmp_path / "out"))
    assert shown.returncode == 0, shown.stderr
    assert "torch-nn-lstm--1x320-ce-short--fp32--cuda0" in shown.stdout
    assert "left out, 16: cudnn-direct does not support" not in shown.stdout  # the reason alone
    assert "cuDNN has no automatic mixed precision" in shown.stdout
    assert not (tmp_path / "out").exists()


#: Hides lstmprof's packages, but those that torch needs, in every process that has it on its path.
ONLY_TORCH = """
import sys
from importlib.machinery import PathFinder

HIDDEN = "altair click duckdb flax google isal jax msgspec nvtx pandas psutil pyarrow pytest"
HIDDEN += " rapidfuzz rich tensorflow vl_convert"


class Hiding(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        hidden = name.partition(".")[0] in HIDDEN.split()
        return None if hidden else PathFinder.find_spec(name, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = Hiding
"""


@pytest.fixture
def only_torch(tmp_path: Path) -> str:
    """A PYTHONPATH under which only NumPy and torch are installed."""
    folder = tmp_path / "blocked"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(ONLY_TORCH)
    return os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])


def test_a_dry_run_needs_no_package(only_torch: str, tmp_path: Path) -> None:
    shown = gpu("--dry-run", "--out", str(tmp_path / "out"), PYTHONPATH=only_torch)
    assert shown.returncode == 0, shown.stderr
    assert "torch-nn-lstm--1x320-ce-short--fp32--cuda0" in shown.stdout


@pytest.mark.measured
def test_numpy_and_torch_are_enough_to_capture(only_torch: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    ended = gpu(
        *("--device", "cpu", "--tiny", "--no-tests", "--budget", "3m", "--most", "1"),
        *("--out", str(tmp_path / "out")),
        PYTHONPATH=only_torch,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "done without: isal, msgspec, pyarrow" in ended.stdout
    assert len(raw_captures.waiting(tmp_path / "out")) == 1


def test_the_machine_is_shown_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from benchmarks.gpu import __main__ as command

    lines = [system.Probe("driver", system.OK, "CUDA 13.0"), system.Probe("nsys", "", "none", "go")]
    monkeypatch.setattr(system, "lines", lambda: iter(lines))
    for _ in range(2):
        command._show_machine(tmp_path / "system.txt")
    assert capsys.readouterr().out == "driver: CUDA 13.0\nnsys: none; go\n"


def test_the_tests_marked_gpu_are_found_captures_first() -> None:
    from benchmarks.gpu.__main__ import gpu_tests

    found = gpu_tests()
    assert found[0] == "tests/capture/test_on_a_gpu.py"
    assert "tests/implementations/test_cudnn_direct.py" in found
    assert "tests/capture/test_meters.py" not in found


@pytest.mark.parametrize("name", ["autocast type", "algorithm", "replayed graph"])
def test_a_question_is_answered_in_a_process_of_its_own(name: str) -> None:
    torch = pytest.importorskip("torch")
    if name == "autocast type" and not layer_computes_in_bfloat16():
        pytest.skip("oneDNN has no bfloat16 LSTM on this CPU")
    asked = questions.answered(name, "cpu")
    assert asked["question"] == name
    if name == "autocast type":
        assert asked["answer"]["output"] == "torch.bfloat16"
        assert "aten::mkldnn_rnn_layer c10::BFloat16" in asked["answer"]["calls"]
    elif name == "algorithm":
        assert asked["answer"] == {"hidden 192": {}, "hidden 193": {}}  # no kernels on a CPU
    elif torch.version.cuda is None:
        assert "CUDA" in asked["fault"]


def test_kernels_that_are_lost_or_early_are_counted() -> None:
    def event(name: str, correlation: int, ts: int, cat: str) -> dict[str, Any]:
        return {"name": name, "cat": cat, "ts": ts, "args": {"correlation": correlation}}

    calls = [event("cudaLaunchKernel", n, 10 * n, "cuda_runtime") for n in (1, 2, 3)]
    kernels = [event("gemm", 2, 25, "kernel"), event("gemm", 3, 29, "kernel")]
    assert questions.linked([*calls, *kernels]) == {
        "launches": 3,
        "kernels": 2,
        "launches without a kernel": 1,
        "kernels before their launch": 1,
    }


@pytest.mark.measured
def test_a_session_on_a_cpu_captures_packs_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    where = ("--out", str(tmp_path / "out"), "--pack", str(tmp_path / "back"))
    asked = ("--device", "cpu", "--tiny", "--no-tests", "--budget", "3m", *where)
    first = gpu(*asked, "--only", "torch-nn-lstm--1x320-ce-short", "--most", "1")
    assert first.returncode == 0, first.stdout + first.stderr
    (run,) = runs_in(tmp_path / "out")
    assert run.name == "torch-nn-lstm--1x320-ce-short-h8-b2-t12--fp32--cpu"
    assert run.info.iterations >= 3
    assert f"*  {run.name}" in first.stdout
    assert (tmp_path / "back" / "runs-1.tar.gz").is_file()
    again = gpu(*asked, "--only", "torch-nn-lstm--1x320-ce-short", "--most", "1")
    assert again.returncode == 0
    assert "left out, 1: is there already" in again.stdout
    written = json.loads((run.path / "run.json").read_text())
    assert written == json.loads(msgspec.json.encode(run.info))


def test_when_nothing_fits_the_exit_code_says_so(tmp_path: Path) -> None:
    ended = gpu(
        *("--device", "cpu", "--tiny", "--no-tests", "--budget", "2s", "--most", "1"),
        *("--out", str(tmp_path)),
    )
    assert ended.returncode == 3
    assert "not begun: torch-nn-lstm" in ended.stdout


def test_a_capture_by_hand_asks_for_its_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert capture_one.main(["--help"]) == 2
    assert capsys.readouterr().err == "give REQUEST.json OUT, or --read OUT [NAME…]: docs/gpu.md\n"


@pytest.mark.parametrize("arguments", [("--budget", "soon"), ("--device", "cuda:0")])
def test_what_cannot_be_meant_is_one_line(arguments: tuple[str, ...], tmp_path: Path) -> None:
    from lstmprof.capture.worker.machine.host import cuda_devices

    if cuda_devices() and "cuda:0" in arguments:
        pytest.skip("a GPU is here")
    ended = gpu(*arguments, "--out", str(tmp_path))
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
