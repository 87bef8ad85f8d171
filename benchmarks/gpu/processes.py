"""Run the session's processes, each with a time limit; end each with its child processes."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from benchmarks.gpu import raw_captures
from benchmarks.gpu.session import Ended
from lstmprof.capture.request import CaptureRequest, run_name

ROOT = Path(__file__).resolve().parents[2]
#: Seconds by which a capture's own time limit is shorter than that of its process. If the former is
#: reached first, the worker's log is kept.
GRACE_S = 5.0


@dataclasses.dataclass(frozen=True)
class Place:
    """Folders: ``out`` for captures, ``site`` for packages that were unpacked from wheels."""

    out: Path
    site: Path
    readable: bool = False  # whether the packages that read profiles are available

    def environment(self) -> dict[str, str]:
        """Return this process's environment, with lstmprof and ``site`` on PYTHONPATH."""
        before = os.environ.get("PYTHONPATH", "")
        paths = [str(self.site), str(ROOT), *([before] if before else [])]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}


def captured(place: Place, request: CaptureRequest, limit_s: float) -> Ended:
    """Capture ``request`` within ``limit_s`` seconds; convert a small capture to a run."""
    own_s = max(limit_s - GRACE_S, 1.0)
    asked = dataclasses.replace(request, timeout_s=own_s)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "request.json")
        file.write_text(asked.to_json(), encoding="utf-8")
        arguments = [str(file), str(place.out), *(["--at-once"] if place.readable else [])]
        ended = _module(place, "benchmarks.gpu.capture_one", arguments, limit_s)
    raw_captures.sweep(place.out)
    if raw_captures.is_there(place.out, run_name(request)):  # as a run or raw capture
        return dataclasses.replace(ended, fault=None, hung=False)
    fault = ended.fault or "it ended without a capture"
    return dataclasses.replace(ended, fault=fault, hung=ended.hung or ended.took_s >= own_s)


def made_run(place: Place, name: str, limit_s: float) -> Ended:
    """Convert the raw capture ``name`` to a run within ``limit_s`` seconds."""
    return _module(place, "benchmarks.gpu.capture_one", ["--read", str(place.out), name], limit_s)


def tested(place: Place, files: Sequence[str], limit_s: float, log: Path) -> Ended:
    """Run the tests in ``files`` that are marked ``gpu``; write their output to ``log``."""
    arguments = ["-m", "gpu", "-W", "default", "-ra", "-vv", "-p", "no:cacheprovider", *files]
    return _module(place, "pytest", arguments, limit_s, log)


def _module(
    place: Place, module: str, arguments: Sequence[str], limit_s: float, log: Path | None = None
) -> Ended:
    """Run ``python -m module`` for at most ``limit_s`` seconds; return how it ended.

    The fault is the last line of its output, or a line that says that it took too long.
    """
    began_s = time.monotonic()
    with tempfile.TemporaryFile() if log is None else log.open("w+b") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            env=place.environment(),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        code = _code(process, limit_s)
        took_s = time.monotonic() - began_s
        if code == 0:
            return Ended(took_s)
        if code is None:
            return Ended(took_s, f"was not done after {limit_s:.0f} s and was stopped", hung=True)
        return Ended(took_s, _last_line(said) or f"ended with {code}")


def _code(process: subprocess.Popen[bytes], limit_s: float) -> int | None:
    """Return the exit code of ``process``, or None after ``limit_s``; end all its children."""
    try:
        return process.wait(max(limit_s, 0.1))
    except subprocess.TimeoutExpired:
        return None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _last_line(said: IO[bytes]) -> str:
    said.seek(0)
    lines = said.read()[-8192:].decode("utf-8", "replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
