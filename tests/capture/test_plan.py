"""Many captures: which, in what order, and again after being killed."""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lstmprof.base.errors import LstmprofError, UsageError
from lstmprof.capture.harness import plan
from lstmprof.capture.harness.kept_rounds import ROUNDS
from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker.machine.host import cuda_devices
from lstmprof.runs.run import runs_in
from lstmprof.workloads import Workload, with_overrides
from lstmprof.workloads.studies import named

TINY = with_overrides(named("1x320-ce-short"), hidden=4, batch=2, time_steps=5)
COMMON = CaptureRequest(
    "torch-nn-lstm", TINY, device="cpu", iterations=4, profile_steps=1, peaks=False
)
BOTH = ["torch-lstmcell-fused", "torch-nn-lstm"]


def test_patterns_and_names_mean_rows_in_the_order_of_the_table() -> None:
    assert plan.implementation_names(["torch-nn-lstm", "torch-lstmcell-*"])[:3] == [
        "torch-lstmcell-basic",
        "torch-lstmcell-fused",
        "torch-nn-lstm",
    ]
    assert plan.implementation_names(["keras-lstm-mode0"]) == ["keras-lstm"]
    with pytest.raises(UsageError, match="did you mean 'torch-nn-lstm'"):
        plan.implementation_names(["torch-nn-lstn"])
    with pytest.raises(UsageError, match="cntk"):
        plan.implementation_names(["cntk-*"])


def test_a_plan_is_the_cross_product_with_the_reasons_for_what_cannot_run(tmp_path: Path) -> None:
    long: Workload = with_overrides(named("1x320-ce-long"), hidden=4)
    planned = plan.plan(BOTH, [TINY, long], ["fp32", "tf32"], COMMON, tmp_path)
    assert len(planned) == 8
    assert [p.skip is None for p in planned] == [True, True, False, False] * 2
    assert "does not support tf32" in str(planned[2].skip)
    assert planned[0].name == "torch-lstmcell-fused--1x320-ce-short-h4-b2-t5--fp32--cpu"


@pytest.mark.measured  # how many iterations fit into a turn
def test_rounds_interleave_and_every_other_goes_backwards(tmp_path: Path) -> None:
    pytest.importorskip("jax")  # whose workers start in half the time of torch's
    said: list[str] = []
    planned = []
    for label in ("a", "b"):
        common = dataclasses.replace(COMMON, mode="forward", label=label)
        planned += plan.plan(["jax-scan"], [TINY], ["fp32"], common, tmp_path)
    outcomes = list(plan.run(planned, tmp_path, rounds=2, progress=said.append))
    timing = [line.partition(":")[0] for line in said if line.endswith(": timing")]
    assert timing == [
        "jax-scan a, round 1 of 2",
        "jax-scan b, round 1 of 2",
        "jax-scan b, round 2 of 2",
        "jax-scan a, round 2 of 2",
    ]
    profiling = [line.partition(":")[0] for line in said if line.endswith(": profiling")]
    assert profiling == timing
    assert plan.counted(outcomes) == {"captured": 2, "failed": 0}
    timings = runs_in(tmp_path)[0].timings()
    assert timings is not None
    rows = timings.to_pylist()
    assert [r["iteration"] for r in rows] == list(range(len(rows)))
    counted = [r["round"] for r in rows if not r["warmup"]]
    assert sorted(set(counted)) == [0, 1]
    assert len(counted) > 4  # four turns, in each as many short iterations as fit
    info = runs_in(tmp_path)[0].info
    kept = [r for r in rows if not r["warmup"]]
    assert info.iterations == len(kept)
    assert set(info.turn_with or ()) == {p.name for p in planned}
    assert info.timing_wall_ns == sum(r["wall_ns"] for r in kept)
    assert info.timing_cpu_ns == sum(r["cpu_ns"] for r in kept)
    assert info.timing_page_faults == sum(r["minor_faults"] for r in kept)
    assert info.profiled_rounds == (0, 1)
    assert len(info.profiled_wall_ns or ()) == len(info.profiled_cpu_ns or ()) == 2
    assert [t.round for t in info.timing_threads or () if t.main] == [0, 1]


def test_one_failure_stops_no_other(tmp_path: Path) -> None:
    common = CaptureRequest("torch-nn-lstm", TINY, device="cuda:99", iterations=1, profile_steps=1)
    planned = plan.plan(BOTH, [TINY], ["fp32"], common, tmp_path)
    outcomes = list(plan.run(planned, tmp_path))
    assert [isinstance(o.result, LstmprofError) for o in outcomes] == [True, True]
    assert runs_in(tmp_path) == []


def command(out: Path) -> list[str]:
    network = ["--hidden=4", "--batch=2", "--time-steps=5", "--iterations=2", "--profile-steps=1"]
    impls = ["--impl=jax-scan", "--mode=forward"]
    workloads = ["--workload=1x320-ce-short", "--workload=4x320-ce-long"]
    base = [sys.executable, "-m", "lstmprof", "capture", "--device=cpu", f"--out={out}"]
    base += ["--no-peaks", "--rounds=1"]
    return [*base, *impls, *workloads, *network]


def test_what_was_kept_of_a_run_that_is_there_is_cleared_away(tmp_path: Path) -> None:
    (planned,) = plan.plan(["torch-nn-lstm"], [TINY], ["fp32"], COMMON, tmp_path)
    for file in (tmp_path / planned.name / "run.json", tmp_path / ROUNDS / planned.name / "0/a"):
        file.parent.mkdir(parents=True)
        file.write_text("{}")
    (planned,) = plan.plan(["torch-nn-lstm"], [TINY], ["fp32"], COMMON, tmp_path)
    assert planned.is_there
    assert list(plan.run([planned], tmp_path)) == []
    assert [path.name for path in tmp_path.iterdir()] == [planned.name]


@pytest.mark.measured
def test_a_killed_sweep_started_again_ends_with_the_same_runs(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    killed = subprocess.Popen(command(tmp_path / "killed"), stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 300
    while not (tmp_path / "killed").is_dir() or not runs_in(tmp_path / "killed"):
        assert time.monotonic() < until
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    there = {r.name for r in runs_in(tmp_path / "killed")}
    again = subprocess.run(
        command(tmp_path / "killed"), capture_output=True, text=True, check=False
    )
    assert again.returncode == 0
    assert all(f"{name}  skipped: already captured" in again.stderr for name in there)
    names = {r.name for r in runs_in(tmp_path / "killed")}
    planned = subprocess.run(
        [*command(tmp_path / "other"), "--plan"], capture_output=True, text=True, check=True
    )
    assert names == {line.strip() for line in planned.stderr.splitlines()[1:]}
    assert {p.name for p in (tmp_path / "killed").iterdir()} == names


@pytest.mark.skipif(cuda_devices() > 0, reason="a GPU is here")
def test_what_needs_a_gpu_is_listed_and_not_run_where_there_is_none(tmp_path: Path) -> None:
    anywhere = CaptureRequest("torch-nn-lstm", TINY)
    (planned,) = plan.plan(["tf-cudnnlstm"], [TINY], ["fp32"], anywhere, tmp_path)
    assert "no CPU kernel" in str(planned.skip)
