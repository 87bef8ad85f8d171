"""Interpreters of this machine: this one, those on PATH, pyenv's, uv's."""

from __future__ import annotations

import dataclasses
import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from lstmprof.errors import CaptureError, UsageError
from lstmprof.implementations import version_numbers

#: What a worker's code is written for.
OLDEST = (3, 7)
#: One that starts answers in 0.1 s; a shim of pyenv's that leads nowhere says so as soon.
ANSWERS_WITHIN_S = 30.0
_ASK = (
    "import os, sys; print('%d.%d' % sys.version_info[:2]); print(os.path.realpath(sys.executable))"
)


@dataclasses.dataclass(frozen=True)
class Python:
    """An interpreter that runs; ``path`` is without links, so that all mean the same by it."""

    version: str  # 3.7
    path: str


def this_python() -> Python:
    """The interpreter that runs now; of a virtual environment the one it was made of."""
    return Python("{}.{}".format(*sys.version_info), os.path.realpath(sys.executable))


def python_at(path: str) -> Python:
    """The interpreter at ``path``, or so called on PATH.

    Raises:
        UsageError: there is none, it does not run, or it is too old for a worker.
    """
    place = shutil.which(path)
    python = _answer(place) if place else None
    if python is None:
        raise UsageError(f"{path}: no such interpreter", "give the path of a Python interpreter")
    if version_numbers(python.version) < OLDEST:
        raise UsageError(
            f"{path} is Python {python.version}, but lstmprof needs Python 3.7 or newer there",
            "choose a newer --python",
        )
    return python


def python_of(versions: Sequence[str], what: str) -> Python:
    """This interpreter where it is of one of ``versions``, else the first that the machine has.

    Raises:
        CaptureError: it has none, so that ``what`` cannot be had here.
    """
    this = this_python()
    if this.version in versions:
        return this
    searched = os.environ.get("PATH"), os.environ.get("PYENV_ROOT")
    for version in versions:
        python = found(version, searched)
        if python:
            return python
    raise CaptureError(
        f"{what} needs Python {_any_of(versions)}, which neither PATH nor pyenv nor uv has",
        f"install it (pyenv install {versions[0]}, or uv python install {versions[0]}), "
        "or give its path to --python",
    )


@functools.cache
def found(version: str, searched: tuple[str | None, str | None]) -> Python | None:
    """The first interpreter of a minor version; ``searched`` is where, so that it is kept."""
    answers = (_answer(place) for place in _places(version))
    return next((python for python in answers if python and python.version == version), None)


def _any_of(versions: Sequence[str]) -> str:
    *others, last = versions
    return f"{', '.join(others)} or {last}" if others else last


def _places(version: str) -> Iterator[str]:
    """Where an interpreter of a minor version may be; of pyenv's the newest first."""
    if on_path := shutil.which(f"python{version}"):
        yield on_path
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    folders = root.glob(f"versions/{version}.*")
    for folder in sorted(folders, key=lambda f: version_numbers(f.name), reverse=True):
        yield str(folder / "bin" / "python")
    if uv := shutil.which("uv"):
        yield from _output([uv, "python", "find", "--no-python-downloads", version])


def _answer(place: str) -> Python | None:
    """What the interpreter at ``place`` says of itself; None where it does not run."""
    answer = _output([place, "-c", _ASK])
    return Python(*answer) if len(answer) == 2 else None


def _output(command: Sequence[str]) -> list[str]:
    """The lines that a command wrote; none where it failed."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=ANSWERS_WITHIN_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []
