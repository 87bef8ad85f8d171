"""Run a worker process: start the process, show progress, and explain a failure.

Example: "signal 9 killed the worker process, most likely because memory ran out". With Nsight
Systems, nsys starts the worker, so this module supervises nsys.
"""

from __future__ import annotations

import errno
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO

from lstmprof.base.errors import CaptureError
from lstmprof.base.package import FOLDER
from lstmprof.capture import nsys
from lstmprof.capture.request import (
    LIFELINE,
    MARK,
    NSYS,
    RESULT,
    TURN,
    CaptureRequest,
    CaptureResult,
    check,
)
from lstmprof.capture.worker.profiling import PROFILE
from lstmprof.runs.directory import cache_folder

Progress = Callable[[str], None]

REQUEST, LOG = "request.json", "worker.log"
WORK, KERAS, INDUCTOR = "worker", "keras", "inductor"
#: Message of the syntax error that a Python older than 3.7 raises.
_TOO_OLD = "future feature annotations is not defined"
#: Free bytes of a disk below which lstmprof reports a full disk.
_LEAST_BYTES = 2**16
#: Folders that only a running worker needs. Kept rounds do not have these folders.
WORKERS_OWN = (WORK, KERAS, INDUCTOR)


def capture(
    request: CaptureRequest, scratch: Path, progress: Progress, seat: Seat | None = None
) -> CaptureResult:
    """Time and profile a request in a worker process, in the empty folder ``scratch``."""
    check(request)
    with _worker(request, scratch.resolve()) as worker:
        if seat:
            seat.started(partial(_kill, worker))
        _follow(worker, request.timeout_s, _worker_progress(request, progress), seat)
    if not (scratch / RESULT).exists():
        raise _death(worker.returncode, scratch / LOG)
    if request.profiler != NSYS:
        return replace(result_in(scratch), pid=worker.pid)
    result_in(scratch)  # raises the worker's error
    progress("exporting the nsys recording")
    nsys.export(scratch, PROFILE)
    return result_in(scratch)


def _worker_progress(request: CaptureRequest, progress: Progress) -> Progress:
    """Filter out the lines that nsys itself prints."""
    if request.profiler != NSYS:
        return progress

    def report(line: str) -> None:
        if line.startswith(MARK):
            progress(line[len(MARK) :])

    return report


@contextmanager
def _worker(request: CaptureRequest, scratch: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start the worker; kill its process group when the context ends."""
    place = scratch / WORK
    place.mkdir(parents=True)
    (place / "lstmprof").symlink_to(Path(FOLDER).resolve())
    (scratch / REQUEST).write_text(request.to_json(), encoding="utf-8")
    with ExitStack() as stack:
        if request.profiler == NSYS:  # nsys starts the worker, so the worker is no child process
            stack.enter_context(closing(nsys.Lifeline(scratch / LIFELINE)))
        log = stack.enter_context((scratch / LOG).open("wb"))
        worker = stack.enter_context(_started(request, scratch, log))  # its exit waits for the end
        stack.callback(_kill, worker)
        yield worker


def _started(request: CaptureRequest, scratch: Path, log: IO[bytes]) -> subprocess.Popen[bytes]:
    python = request.python
    command = [
        python,
        "-m",
        "lstmprof.capture.worker",
        str(scratch / REQUEST),
        str(os.getpid()),
    ]
    if request.profiler == NSYS:
        command = nsys.around([*command, str(scratch / LIFELINE)], scratch)
    try:
        return subprocess.Popen(
            command,
            cwd=scratch / WORK,
            env=_environment(request, scratch),
            stdin=subprocess.PIPE if request.turn_with else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    except OSError as fault:
        raise CaptureError(
            f"{python}: {fault.strerror}", "give an executable Python interpreter"
        ) from fault


def _environment(request: CaptureRequest, scratch: Path) -> dict[str, str]:
    # drop PYTHONSAFEPATH, which changes imports, and TensorFlow 2's TF2_BEHAVIOR, which
    # changes TensorFlow 1's loops
    dropped = {"PYTHONSAFEPATH", "TF2_BEHAVIOR"}
    if request.python != sys.executable:
        dropped |= {"PYTHONPATH", "PYTHONHOME"}
    environment = {name: value for name, value in os.environ.items() if name not in dropped}
    return environment | {
        "KERAS_BACKEND": request.row.framework,
        # let the worker find a py-spy that is next to this interpreter, but not on PATH
        "PATH": os.pathsep.join(
            [os.environ.get("PATH", os.defpath), sysconfig.get_path("scripts")]
        ),
        "KERAS_HOME": str(scratch / KERAS),
        "LSTMPROF_CACHE": str(cache_folder().absolute()),
        "PYTHONUNBUFFERED": "1",
        "TMPDIR": str(scratch / WORK),
        # an empty cache makes every capture compile anew; only Theano's cache is shared
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / INDUCTOR),
    }


def _kill(worker: subprocess.Popen[bytes]) -> None:
    if worker.poll() is None:  # else another process may have its id by now
        with suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)


def _follow(
    worker: subprocess.Popen[bytes], timeout_s: float, progress: Progress, seat: Seat | None
) -> None:
    """Show progress until the worker ends. Raise an error after ``timeout_s``."""
    assert worker.stdout is not None
    deadline = time.monotonic() + timeout_s
    descriptor = worker.stdout.fileno()
    pending = b""
    while select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
        chunk = os.read(descriptor, 1 << 16)
        if not chunk:
            break
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            if seat and line == TURN.encode():
                # extend the timeout by the time that the worker waited for its turn
                deadline += _turn_given(worker, seat)
            else:
                progress(line.decode("utf-8", "replace"))
    try:
        worker.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise CaptureError(
            f"stopped the worker process after {timeout_s:g} s (--timeout)",
            "raise --timeout, or choose a smaller network",
        ) from None


def _turn_given(worker: subprocess.Popen[bytes], seat: Seat) -> float:
    """Let the worker continue at the next turn, and return the seconds of waiting."""
    assert worker.stdin is not None
    began = time.monotonic()
    seat.take()
    with suppress(BrokenPipeError):  # the worker died meanwhile; ``capture`` reports that
        os.write(worker.stdin.fileno(), b"\n")
    return time.monotonic() - began


def result_in(scratch: Path) -> CaptureResult:
    """Read a worker's result from ``scratch``, or raise the worker's error."""
    result = json.loads((scratch / RESULT).read_text(encoding="utf-8"))
    if "failure" in result:
        raise CaptureError(*result["failure"])
    return CaptureResult(
        result["metadata"],
        result["timings"],
        tuple(scratch / profile for profile in result["profiles"]),
        result.get("pid"),
        samples=scratch / result["samples"] if result.get("samples") else None,
        shapes=scratch / result["shapes"] if result.get("shapes") else None,
    )


def _death(code: int, log: Path) -> CaptureError:
    """Explain why a worker ended without a result."""
    # convert the exit code: nsys reports a signal as 128 + signal
    code = 128 - code if code > 128 else code
    if code == -signal.SIGKILL:
        return CaptureError(
            "signal 9 killed the worker process, most likely because memory ran out",
            "try a smaller --batch",
        )
    if _ran_out_of_space(log):
        fault = "the disk of --out is full"
        return CaptureError(fault, "free some space, or give another --out")
    if _TOO_OLD in _last_line(log):
        fault = "the interpreter is older than Python 3.7"
        return CaptureError(fault, "choose a newer --python")
    how = f"was killed by {_signal_name(-code)}" if code < 0 else f"failed with exit status {code}"
    return CaptureError(f"the worker process {how}: {_last_line(log)}")


def _ran_out_of_space(log: Path) -> bool:
    if log.stat().st_size:
        return os.strerror(errno.ENOSPC) in _last_line(log)
    # the log is empty, perhaps because the disk had no space for the message
    return shutil.disk_usage(log.parent).free < _LEAST_BYTES


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def _last_line(log: Path) -> str:
    lines = log.read_bytes()[-4096:].decode("utf-8", "replace").splitlines()
    return next((line for line in reversed(lines) if line.strip()), "no message")


@dataclass(frozen=True)
class Seat:
    """One worker's place among workers that take turns."""

    turns: Turns
    member: str

    def take(self) -> None:
        self.turns.take(self.member)

    def started(self, stop: Callable[[], None]) -> None:
        """Register the function that kills this worker."""
        self.turns.started(self.member, stop)


class Turns:
    """Lets workers run one at a time, in a fixed order."""

    def __init__(self, members: Iterable[str]) -> None:
        self._order = list(members)
        self._present = list(self._order)
        self._waiting: set[str] = set()
        self._running: str | None = None
        self._last: str | None = None
        self._changed = threading.Condition()
        self._stops: dict[str, Callable[[], None]] = {}
        self._stopped = False

    def take(self, member: str) -> None:
        """End this worker's turn, and wait for its next one."""
        with self._changed:
            self._given_up(member)
            self._waiting.add(member)
            self._next()
            self._changed.wait_for(lambda: self._running == member or self._stopped)
            if self._stopped:
                raise CaptureError("the capture was stopped")

    def leave(self, member: str) -> None:
        with self._changed:
            self._given_up(member)
            self._stops.pop(member, None)
            with suppress(ValueError):
                self._present.remove(member)
            self._waiting.discard(member)
            self._next()

    def started(self, member: str, stop: Callable[[], None]) -> None:
        """Register the function that kills a worker."""
        with self._changed:
            self._stops[member] = stop
            if self._stopped:
                stop()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            for stop in self._stops.values():
                stop()
            self._changed.notify_all()

    def _given_up(self, member: str) -> None:
        if self._running == member:
            self._running, self._last = None, member

    def _next(self) -> None:
        """Let the next worker run if all workers wait."""
        if self._running is not None or not self._present or self._waiting != set(self._present):
            return
        place = self._order.index(self._last) + 1 if self._last in self._order else 0
        members = self._order[place:] + self._order[:place]
        self._running = next(member for member in members if member in self._waiting)
        self._waiting.discard(self._running)
        self._changed.notify_all()
