"""Workers that die, hang or refuse, and supervisors that do."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.supervisor import capture
from lstmprof.errors import CaptureError, UsageError
from lstmprof.workloads import Workload

CE = Workload("tiny-ce", 1, 4, False, 2, 5, 3, 3, "ce")
ENDLESS = 10**7

SUPERVISOR = """
import sys
from pathlib import Path
from lstmprof.capture.supervisor import CaptureRequest, capture
from lstmprof.workloads import Workload

request = CaptureRequest(
    "torch-cudnn", Workload("t", 1, 4, False, 2, 5, 3, 3, "ce"), device="cpu", iterations=10**7
)
capture(request, Path(sys.argv[1]), lambda line: print(line, flush=True))
"""


def request(**fields: Any) -> CaptureRequest:
    return CaptureRequest("torch-cudnn", CE, **{"device": "cpu", **fields})


def running(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def ends_within(pid: int, limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if not running(pid):
            return True
        time.sleep(0.01)
    return False


class Watcher:
    """Remembers the worker's process id, and acts when the timing pass begins."""

    def __init__(self, act: Callable[[int], None]) -> None:
        self.act = act
        self.pid = 0

    def __call__(self, line: str) -> None:
        if " in process " in line:
            self.pid = int(line.rpartition(" ")[2])
        if line == "timing":
            self.act(self.pid)


def test_a_worker_that_is_killed_is_said_to_lack_memory(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    watcher = Watcher(lambda pid: os.kill(pid, signal.SIGKILL))
    with pytest.raises(CaptureError, match=r"killed \(signal 9\), most likely out of memory; try"):
        capture(request(iterations=ENDLESS), tmp_path, watcher)


def test_a_worker_that_crashes_is_named_with_its_signal(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    watcher = Watcher(lambda pid: os.kill(pid, signal.SIGSEGV))
    with pytest.raises(CaptureError, match=r"died of signal 11 \(SIGSEGV\)"):
        capture(request(iterations=ENDLESS), tmp_path, watcher)


def test_an_interrupted_supervisor_leaves_no_worker(tmp_path: Path) -> None:
    pytest.importorskip("torch")

    def interrupt(pid: int) -> None:
        raise KeyboardInterrupt

    watcher = Watcher(interrupt)
    with pytest.raises(KeyboardInterrupt):
        capture(request(iterations=ENDLESS), tmp_path, watcher)
    assert watcher.pid
    assert not running(watcher.pid)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
def test_a_killed_supervisor_leaves_no_worker(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as supervisor:
        assert supervisor.stdout is not None
        pid = int(supervisor.stdout.readline().rpartition(" ")[2])
        assert supervisor.stdout.readline() == "timing\n"
        assert running(pid)
        supervisor.kill()
    # Sooner than its next line of progress, a second on, could fail for want of a reader.
    assert ends_within(pid, 0.7)


def test_a_worker_that_is_not_done_in_time_is_stopped(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    watcher = Watcher(lambda pid: None)
    with pytest.raises(CaptureError, match=r"not done after 4 s and was stopped; give a longer"):
        capture(request(iterations=ENDLESS, timeout_s=4), tmp_path, watcher)
    assert watcher.pid
    assert not running(watcher.pid)


@pytest.mark.parametrize(
    ("name", "framework"), [("torch-cudnn", "torch"), ("keras-lstm", "tensorflow")]
)
def test_a_device_that_is_not_there_is_refused(name: str, framework: str, tmp_path: Path) -> None:
    pytest.importorskip(framework)
    asked = CaptureRequest(name, CE, device="cuda:77")
    with pytest.raises(CaptureError, match=rf"device cuda:77 is not available: {framework} "):
        capture(asked, tmp_path, lambda line: None)


def test_memory_that_cannot_be_had_is_one_clear_line(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    huge = CaptureRequest("torch-cudnn", Workload("h", 1, 10**6, False, 2, 5, 3, 3, "ce"), "cpu")
    with pytest.raises(CaptureError, match=r"^out of memory: .*; try a smaller --batch$"):
        capture(huge, tmp_path, lambda line: None)


def test_more_threads_than_cpus_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"5000 threads are more than the \d+ CPU"):
        capture(request(threads=5000), tmp_path, lambda line: None)


def interpreter(folder: Path, script: str) -> str:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_a_missing_package_is_named_with_the_interpreter(tmp_path: Path) -> None:
    python = interpreter(tmp_path, f'exec {sys.executable} -S "$@"')
    with pytest.raises(CaptureError, match=r"numpy is not installed in .*; install numpy there"):
        capture(request(python=python), tmp_path / "scratch", lambda line: None)


def test_an_interpreter_that_ends_at_once_is_quoted(tmp_path: Path) -> None:
    python = interpreter(tmp_path, "printf 'too \\033[31mold\\n' >&2; exit 3")
    with pytest.raises(CaptureError, match=r"ended with exit status 3: too  \[31mold"):
        capture(request(python=python), tmp_path / "scratch", lambda line: None)


def test_another_interpreter_does_not_look_where_this_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/of/this/interpreter")
    python = interpreter(tmp_path, 'echo "path=$PYTHONPATH" >&2; exit 3')
    with pytest.raises(CaptureError, match=r"path=$"):
        capture(request(python=python), tmp_path / "scratch", lambda line: None)


def test_an_interpreter_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"/no/python: No such file.*; give a Python"):
        capture(request(python="/no/python"), tmp_path, lambda line: None)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"implementation": "torch-cudn"}, "did you mean 'torch-cudnn'"),
        ({"device": "gpu"}, "unknown device 'gpu'"),
        ({"device": "cuda:0\n"}, "unknown device"),
        ({"mode": "backward"}, "unknown mode"),
        ({"precision": "amp"}, "unknown precision"),
        ({"warmup": 0}, "warmup must be at least 1"),
        ({"threads": 0}, "threads must be at least 1"),
        ({"timeout_s": float("nan")}, "timeout must be above 0 s"),
        ({"timeout_s": float("inf")}, "at most 30 days, not inf s"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_requests_that_cannot_be_meant(
    fields: dict[str, Any], message: str, tmp_path: Path
) -> None:
    asked = CaptureRequest(**{"implementation": "torch-cudnn", "workload": CE, **fields})
    with pytest.raises(UsageError, match=message):
        capture(asked, tmp_path, pytest.fail)
    assert not list(tmp_path.iterdir())


def test_a_request_survives_json() -> None:
    asked = request(threads=2, seed=7)
    assert CaptureRequest.from_json(asked.to_json()) == asked
