"""A capture as its worker left it, before anything has read its profile; and the run made of it.

::

    <out>/.captured/<name>/captured.json   {"metadata", "timings", "profiles"}
                           profile/        as the profiler wrote it, gzipped
    <out>/logs/<name>.log                  what the worker of a capture that failed has said
    <out>/<name>/                          the run, once the profile was read; the capture is gone

A capture appears whole or not at all, and so does the run.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lstmprof.capture.request import CaptureRequest, run_name
from lstmprof.capture.supervisor import LOG, CaptureResult, capture
from lstmprof.errors import CaptureError

FOLDER, FILE, PROFILE = ".captured", "captured.json", "profile"
PARTIAL, LOGS, MOST_LOG_BYTES = ".partial-", "logs", 1 << 18
#: What reads profiles and writes runs, beyond the base packages.
READERS = ("isal", "msgspec", "pyarrow", "google.protobuf")


def place(out: Path, name: str) -> Path:
    """Where the capture ``name`` lies until it is a run."""
    return out / FOLDER / name


def is_there(out: Path, name: str) -> bool:
    """Whether it was captured, and perhaps made a run."""
    return (out / name / "run.json").is_file() or (place(out, name) / FILE).is_file()


def waiting(out: Path) -> list[str]:
    """Names of the captures that are no runs yet."""
    return sorted(path.parent.name for path in (out / FOLDER).glob(f"*/{FILE}"))


def keep(request: CaptureRequest, out: Path, progress: Callable[[str], None]) -> Path:
    """Capture ``request``, and keep what it brought.

    Raises:
        CaptureError: the worker died, hung or refused; its log alone is left, in ``logs``.
    """
    (out / FOLDER).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=PARTIAL, dir=out / FOLDER) as folder:
        try:
            result = capture(request, Path(folder, "scratch"), progress)
        except CaptureError:
            _keep_log(Path(folder, "scratch", LOG), out / LOGS, run_name(request))
            raise
        kept = Path(folder, "kept")
        (kept / PROFILE).mkdir(parents=True)
        for profile in result.profiles:
            profile.rename(kept / PROFILE / profile.name)
        found: dict[str, Any] = {"metadata": dict(result.metadata), "timings": dict(result.timings)}
        found["profiles"] = [profile.name for profile in result.profiles]
        (kept / FILE).write_text(json.dumps(found), encoding="utf-8")
        return kept.rename(place(out, run_name(request)))


def _keep_log(log: Path, folder: Path, name: str) -> None:
    if log.is_file():
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.log").write_bytes(log.read_bytes()[-MOST_LOG_BYTES:])


def sweep(out: Path) -> None:
    """Remove what captures that were killed have left."""
    for partial in (out / FOLDER).glob(PARTIAL + "*"):
        shutil.rmtree(partial, ignore_errors=True)


def read(out: Path, name: str) -> dict[str, Any]:
    """``captured.json`` of a capture that is no run yet."""
    found: dict[str, Any] = json.loads((place(out, name) / FILE).read_text(encoding="utf-8"))
    return found


def make_run(out: Path, name: str) -> Path:
    """Read the profile of the capture ``name`` and make it a run of ``out``.

    Raises:
        LstmprofError: its profile cannot be read; the capture stays.
    """
    from lstmprof.capture.rounds import write_captured

    found, kept = read(out, name), place(out, name)
    profiles = tuple(kept / PROFILE / profile for profile in found["profiles"])
    result = CaptureResult(found["metadata"], found["timings"], profiles)
    run = write_captured(name, [result], out)
    shutil.rmtree(kept)
    return run.path
