"""A capture that is killed leaves no run and no process, and the next one goes on from there."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from capture.processes import LIMIT_S, processes_of, wait_until

from lstmprof.capture.harness.kept_rounds import ROUNDS
from lstmprof.runs.directory import PARTIAL
from lstmprof.runs.run import is_run, runs_in

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc"),
    pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed"),
    pytest.mark.measured,  # a capture is to be met at work
]

CAPTURE = [sys.executable, "-m", "lstmprof", "capture", "--impl", "jax-scan"]
TINY = ["--hidden=4", "--batch=2", "--time-steps=5", "--iterations=3", "--profile-steps=2"]
TINY += ["--no-peaks", "--mode=forward"]
NAME = "jax-scan--1x320-ce-short-h4-b2-t5--fp32--forward"


def capture(out: Path, rounds: int = 1) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*CAPTURE, *TINY, f"--rounds={rounds}", "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.8, 0.95])
def test_killing_the_parent_leaves_no_half_written_run(
    share: float, tmp_path: Path, whole_capture_s: float
) -> None:
    parent = capture(tmp_path)
    time.sleep(share * whole_capture_s)
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    assert wait_until(lambda: not processes_of(tmp_path)), "a worker outlived its parent"
    for run in runs_in(tmp_path):  # it may have been whole already
        assert run.events().num_rows > 0
    left = [p for p in tmp_path.iterdir() if p.name != ROUNDS]
    assert all(p.name.startswith(PARTIAL) or is_run(p) for p in left)


def test_the_next_capture_works_and_sweeps(tmp_path: Path) -> None:
    parent = capture(tmp_path)
    assert wait_until(lambda: processes_of(tmp_path)), "no worker was started"
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    assert [p.name.startswith(PARTIAL) for p in tmp_path.iterdir()] == [True]
    assert wait_until(lambda: not processes_of(tmp_path))
    _, said = capture(tmp_path).communicate()
    assert [p.name for p in tmp_path.iterdir()] == [r.name for r in runs_in(tmp_path)], said


def test_killing_the_worker_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    parent = capture(tmp_path)
    assert wait_until(lambda: processes_of(tmp_path)), "no worker was started"
    for worker in processes_of(tmp_path):
        subprocess.run(["kill", "-KILL", str(worker)], check=False)
    out, said = parent.communicate()
    assert (parent.returncode, out) == (1, "")
    assert "signal 9 killed the worker process" in said.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_capture_cleans_up_itself(how: signal.Signals, tmp_path: Path) -> None:
    parent = capture(tmp_path)
    assert wait_until(lambda: processes_of(tmp_path)), "no worker was started"
    parent.send_signal(how)
    _, said = parent.communicate(timeout=LIMIT_S)
    assert parent.returncode == 128 + how
    assert "interrupted" in said.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []
    assert wait_until(lambda: not processes_of(tmp_path))


def test_a_capture_that_is_stopped_goes_on_with_the_rounds_that_were_done(tmp_path: Path) -> None:
    parent = capture(tmp_path, rounds=2)
    first = tmp_path / ROUNDS / NAME / "0"
    assert wait_until(first.exists), "no round was done"
    assert wait_until(lambda: processes_of(tmp_path)), "no second worker was started"
    parent.send_signal(signal.SIGINT)
    _, said = parent.communicate(timeout=LIMIT_S)
    assert parent.returncode == 128 + signal.SIGINT
    assert f"kept 1 round of 1 run in {tmp_path / ROUNDS}" in said.splitlines()[-1]
    assert wait_until(lambda: not processes_of(tmp_path))
    assert [p.name for p in tmp_path.iterdir()] == [ROUNDS]
    assert (runs_in(tmp_path), processes_of(tmp_path)) == ([], [])
    stopped = datetime.now(UTC)

    _, said = capture(tmp_path, rounds=2).communicate()
    assert f"resuming {NAME}: 1 of 2 rounds are done" in said
    assert [line for line in said.splitlines() if line.endswith(": timing")] == [
        "jax-scan, round 2 of 2: timing"
    ]
    (run,) = runs_in(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [run.name]  # nothing is kept any more
    earlier, later = map(datetime.fromisoformat, run.info.rounds or ())
    assert earlier < stopped < later + timedelta(seconds=1)  # they are whole seconds
    assert run.info.profiled_rounds == (0, 0, 1, 1)
    assert len({row["pid"] for row in run.events().to_pylist()} - {None}) == 2


@pytest.fixture(scope="module")
def whole_capture_s(tmp_path_factory: pytest.TempPathFactory) -> float:
    """Seconds that a capture takes when nobody disturbs it."""
    began = time.monotonic()
    capture(tmp_path_factory.mktemp("whole")).communicate()
    return time.monotonic() - began
