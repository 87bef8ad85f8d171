"""Workers that die, hang or refuse, and supervisors that do."""

import ctypes
import importlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from capture.processes import LIMIT_S, processes_of, running, wait_until
from capture.rows import layer_computes_in_bfloat16

from lstmprof.base.errors import CaptureError, UsageError
from lstmprof.capture.harness import supervisor
from lstmprof.capture.harness.supervisor import capture
from lstmprof.capture.request import CaptureRequest
from lstmprof.workloads import Workload

CE = Workload("tiny-ce", 1, 4, False, 2, 5, 3, 3, "ce")
ENDLESS = 10**7
#: prctl(2)
PR_SET_CHILD_SUBREAPER = 36

SUPERVISOR = """
import sys
from pathlib import Path
from lstmprof.capture.harness.supervisor import CaptureRequest, capture
from lstmprof.workloads import Workload

request = CaptureRequest(
    "torch-nn-lstm", Workload("t", 1, 4, False, 2, 5, 3, 3, "ce"), device="cpu", iterations=10**7
)
capture(request, Path(sys.argv[1]), lambda line: print(line, flush=True))
"""


def request(**fields: Any) -> CaptureRequest:
    return CaptureRequest("torch-nn-lstm", CE, **{"device": "cpu", **fields})


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


@pytest.fixture
def adopts() -> Iterator[None]:
    """This process becomes the parent of those whose own ends."""
    libc = ctypes.CDLL(None)
    assert libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    yield
    libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def status_of(child: int) -> int:
    """How it ended."""
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        time.sleep(0.01)
    raise AssertionError(f"process {child} still runs")


def test_a_worker_that_is_killed_is_said_to_lack_memory(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    watcher = Watcher(lambda pid: os.kill(pid, signal.SIGKILL))
    with pytest.raises(
        CaptureError, match=r"signal 9 killed the worker process, .* memory ran out; try"
    ):
        capture(request(iterations=ENDLESS), tmp_path, watcher)


def test_a_worker_that_crashes_is_named_with_its_signal(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    watcher = Watcher(lambda pid: os.kill(pid, signal.SIGSEGV))
    with pytest.raises(CaptureError, match=r"killed by signal 11 \(SIGSEGV\)"):
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
def test_a_killed_supervisor_leaves_no_worker(tmp_path: Path, adopts: None) -> None:
    pytest.importorskip("torch")
    with subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as supervisor:
        assert supervisor.stdout is not None
        pid = int(supervisor.stdout.readline().rpartition(" ")[2])
        assert supervisor.stdout.readline() == "timing\n"
        assert running(pid)
        supervisor.kill()
    # Its next line of progress, for want of a reader, would end it by an error.
    assert os.WTERMSIG(status_of(pid)) == signal.SIGKILL


def test_a_worker_that_is_not_done_in_time_is_stopped(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with pytest.raises(CaptureError, match=r"stopped the worker process after 4 s .*; raise"):
        capture(request(iterations=ENDLESS, timeout_s=4), tmp_path, lambda line: None)
    assert wait_until(lambda: not processes_of(tmp_path))


def test_a_device_that_is_not_there_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with pytest.raises(CaptureError, match="device cuda:77 is not available: "):
        capture(request(device="cuda:77"), tmp_path, lambda line: None)


def test_tensorflow_refuses_a_device_that_is_not_there() -> None:
    pytest.importorskip("tensorflow")
    loop = importlib.import_module("lstmprof.capture.worker.loops.tensorflow")
    with pytest.raises(CaptureError, match="device cuda:77 is not available: "):
        loop.device_of("cuda:77")


def test_memory_that_cannot_be_had_is_one_clear_line(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    huge = CaptureRequest("torch-nn-lstm", Workload("h", 1, 10**6, False, 2, 5, 3, 3, "ce"), "cpu")
    with pytest.raises(CaptureError, match=r"^out of memory: .*; try a smaller --batch$"):
        capture(huge, tmp_path, lambda line: None)


def test_a_precision_without_a_kernel_is_one_clear_line(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    if layer_computes_in_bfloat16():
        pytest.skip("this CPU has the kernel")
    with pytest.raises(CaptureError, match=r"^oneDNN cannot compute .*; use --no-onednn"):
        capture(request(precision="amp-bf16"), tmp_path, lambda line: None)


def test_more_threads_than_cpus_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"5000 threads need more than the \d+ CPU"):
        capture(request(threads=5000), tmp_path, lambda line: None)


def interpreter(folder: Path, script: str) -> str:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("implementation", "package", "remedy"),
    [
        ("torch-nn-lstm", "torch", r"install lstmprof\[torch\] in that environment"),
        ("tf1-lstmcell", "numpy", "use --era tensorflow-1.15.5 instead of that Python"),
    ],
)
def test_a_missing_package_is_named_with_the_interpreter(
    implementation: str, package: str, remedy: str, tmp_path: Path
) -> None:
    python = interpreter(tmp_path, f'exec {sys.executable} -S "$@"')
    with pytest.raises(CaptureError, match=f"{package} is not installed in .*; {remedy}"):
        capture(
            replace(request(python=python), implementation=implementation),
            tmp_path / "scratch",
            lambda line: None,
        )


def test_an_interpreter_that_ends_at_once_is_quoted(tmp_path: Path) -> None:
    python = interpreter(tmp_path, "printf 'too \\033[31mold\\n' >&2; exit 3")
    with pytest.raises(CaptureError, match=r"failed with exit status 3: too  \[31mold"):
        capture(request(python=python), tmp_path / "scratch", lambda line: None)


def test_another_interpreter_does_not_look_where_this_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/of/this/interpreter")
    python = interpreter(tmp_path, 'echo "path=$PYTHONPATH" >&2; exit 3')
    with pytest.raises(CaptureError, match=r"path=$"):
        capture(request(python=python), tmp_path / "scratch", lambda line: None)


def test_an_interpreter_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        CaptureError, match=r"/no/python: No such file.*; give an executable Python"
    ):
        capture(request(python="/no/python"), tmp_path, lambda line: None)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"implementation": "torch-nn-lstn"}, "did you mean 'torch-nn-lstm'"),
        ({"device": "gpu"}, "unknown device 'gpu'"),
        ({"device": "cuda:0\n"}, "unknown device"),
        ({"mode": "backward"}, "unknown mode"),
        ({"precision": "amp"}, "unknown precision"),
        ({"warmup": 0}, "warmup must be at least 1"),
        ({"threads": 0}, "threads must be at least 1"),
        ({"timeout_s": float("nan")}, "--timeout must be above 0"),
        ({"timeout_s": float("inf")}, "at most 30 days, not inf s"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_requests_that_cannot_be_meant(
    fields: dict[str, Any], message: str, tmp_path: Path
) -> None:
    asked = CaptureRequest(**{"implementation": "torch-nn-lstm", "workload": CE, **fields})
    with pytest.raises(UsageError, match=message):
        capture(asked, tmp_path, pytest.fail)
    assert not list(tmp_path.iterdir())


def test_a_request_survives_json() -> None:
    asked = request(threads=2, seed=7)
    assert CaptureRequest.from_json(asked.to_json()) == asked


def test_a_failed_import_shows_the_whole_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch").mkdir()
    message = "Descriptors cannot be created.\\nWhat helps:\\n 1. Downgrade it.\\n\\n 2. Set X."
    (tmp_path / "torch" / "__init__.py").write_text(f'raise TypeError("{message}")')
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(CaptureError) as raised:
        capture(request(), tmp_path / "scratch", lambda line: None)
    assert raised.value.fault == (
        "TypeError: Descriptors cannot be created. What helps: 1. Downgrade it. 2. Set X."
    )


def test_an_interpreter_that_is_too_old_is_said_to_be(tmp_path: Path) -> None:
    old = tmp_path / "python3.6"
    said = "SyntaxError: future feature annotations is not defined"
    old.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 1\n")
    old.chmod(0o755)
    with pytest.raises(CaptureError, match=r"is older than Python 3\.7"):
        capture(request(python=str(old)), tmp_path / "scratch", lambda line: None)


@pytest.mark.parametrize(
    ("log", "free_bytes", "said"),
    [
        ("OSError: [Errno 28] No space left on device: 'x'\n", 10**9, "of --out is full"),
        ("", 4096, "of --out is full"),
        ("", 10**9, "no message"),
        ("ValueError: 3\n", 4096, "ValueError: 3"),
    ],
)
def test_a_worker_that_finds_the_disk_full_is_told_so(
    log: str, free_bytes: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "worker.log").write_text(log)
    usage = shutil.disk_usage(tmp_path)._replace(free=free_bytes)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage)
    assert said in str(supervisor._death(1, tmp_path / "worker.log"))
