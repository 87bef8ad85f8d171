"""Raw captures: what a worker has written, before its profile is read and converted to a run.

::

    <out>/.captured/<name>/captured.json   {"metadata", "timings", "profiles"}
                           profile/        the profiler's files, gzipped
    <out>/logs/<name>.log                  the output of the worker, if the capture failed
    <out>/<name>/                          the run; its raw capture is then deleted

A raw capture appears complete or not at all; so does a run.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lstmprof.base.errors import CaptureError
from lstmprof.capture.harness.supervisor import LOG, capture
from lstmprof.capture.request import CaptureRequest, CaptureResult, run_name

FOLDER, FILE, PROFILE = ".captured", "captured.json", "profile"
PARTIAL, LOGS, MOST_LOG_BYTES = ".partial-", "logs", 1 << 18
#: Packages that are needed to read profiles and write runs, but not to capture.
READERS = ("isal", "msgspec", "pyarrow", "google.protobuf")


def place(out: Path, name: str) -> Path:
    """Return the folder of the raw capture ``name``."""
    return out / FOLDER / name


def is_there(out: Path, name: str) -> bool:
    """Return whether ``name`` exists as a run or as a raw capture."""
    return (out / name / "run.json").is_file() or (place(out, name) / FILE).is_file()


def waiting(out: Path) -> list[str]:
    """Return the names of the raw captures, which are not yet runs."""
    return sorted(path.parent.name for path in (out / FOLDER).glob(f"*/{FILE}"))


def keep(request: CaptureRequest, out: Path, progress: Callable[[str], None]) -> Path:
    """Capture ``request`` into a raw capture, and return its folder.

    Raises:
        CaptureError: the worker died, hung or refused; only its log is kept, in ``logs``.
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
    """Delete incomplete folders of captures that were killed."""
    for partial in (out / FOLDER).glob(PARTIAL + "*"):
        shutil.rmtree(partial, ignore_errors=True)


def read(out: Path, name: str) -> dict[str, Any]:
    """Return the content of ``captured.json`` of the raw capture ``name``."""
    found: dict[str, Any] = json.loads((place(out, name) / FILE).read_text(encoding="utf-8"))
    return found


def make_run(out: Path, name: str) -> Path:
    """Convert the raw capture ``name`` to a run in ``out``; return the run's folder.

    The raw capture is then deleted.

    Raises:
        LstmprofError: the profile cannot be read; the raw capture is kept.
    """
    from lstmprof.capture.harness.rounds import write_captured

    found, kept = read(out, name), place(out, name)
    profiles = tuple(kept / PROFILE / profile for profile in found["profiles"])
    result = CaptureResult(found["metadata"], found["timings"], profiles)
    run = write_captured(name, [result], out)
    shutil.rmtree(kept)
    return run.path
