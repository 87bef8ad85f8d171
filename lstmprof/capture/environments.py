"""Interpreters for workers: environments with given packages, made once and kept in a cache.

``--with torch==2.4.1`` means a virtual environment of this Python that holds NumPy and these
packages and nothing else; uv makes it where it is installed, else venv and pip. An environment
appears whole or not at all: its stamp is written last.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from lstmprof.errors import CaptureError, UsageError
from lstmprof.runs.directory import cache_folder

Progress = Callable[[str], None]

STAMP = "lstmprof.json"
#: What a worker needs besides its framework.
ALWAYS = ("numpy",)


def worker_python(
    packages: Sequence[str], python: str | None = None, progress: Progress = lambda line: None
) -> Path:
    """The interpreter for workers: ``python``, or an environment made of it with ``packages``.

    Raises:
        CaptureError: the packages cannot be installed.
    """
    base = shutil.which(python) if python else sys.executable
    if base is None:
        raise UsageError(f"{python}: no such interpreter", "give the path of a Python")
    if not packages:
        return Path(base)
    return environment(packages, cache_folder() / "environments", progress, base)


def environment(
    packages: Sequence[str],
    cache: Path,
    progress: Progress = lambda line: None,
    python: str = sys.executable,
) -> Path:
    """The interpreter of an environment with ``packages`` (pip's requirement specifiers).

    Raises:
        CaptureError: the packages cannot be installed.
    """
    wanted = sorted({*ALWAYS, *packages})
    place = cache / hashlib.sha256(json.dumps([python, *wanted]).encode()).hexdigest()[:16]
    interpreter = place / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not (place / STAMP).is_file():
        progress(f"installing {' '.join(wanted)}")
        cache.mkdir(parents=True, exist_ok=True)
        # Built in its place, as an environment cannot be moved; without a stamp it is built again.
        shutil.rmtree(place, ignore_errors=True)
        _build(place, interpreter, wanted, python)
        _stamp(place, wanted)
    return interpreter


def _stamp(place: Path, wanted: Sequence[str]) -> None:
    with tempfile.NamedTemporaryFile("w", dir=place, delete=False, encoding="utf-8") as file:
        json.dump({"packages": list(wanted)}, file)
    Path(file.name).replace(place / STAMP)


def _build(place: Path, interpreter: Path, wanted: Sequence[str], python: str) -> None:
    uv = shutil.which("uv")
    if uv and _runs([uv, "venv", "--quiet", "--python", python, str(place)]) is None:
        install = [uv, "pip", "install", "--quiet", "--python", str(interpreter)]
        if _runs([*install, *wanted]) is None:
            return
        shutil.rmtree(place, ignore_errors=True)
    fault = _runs([python, "-m", "venv", str(place)])
    pip = [str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    fault = fault or _runs([*pip, *wanted])
    if fault:
        shutil.rmtree(place, ignore_errors=True)
        raise CaptureError(
            f"{' '.join(wanted)} cannot be installed: {fault}",
            "check the names and versions given to --with",
        )


def _runs(command: Sequence[str]) -> str | None:
    """Run ``command``; None where it ended well, else the last line that it said."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as fault:
        return f"{command[0]}: {fault.strerror}"
    if done.returncode == 0:
        return None
    messages = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    errors = [line for line in messages if line.lower().startswith("error")]
    return (errors or messages or [f"{command[0]} ended with {done.returncode}"])[-1]
