"""Virtual environments for workers, created by uv or venv and kept in a cache.

Old packages that do not support the running Python get another Python from PATH, pyenv or uv.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from lstmprof.base.errors import CaptureError, UsageError
from lstmprof.base.package import version_numbers
from lstmprof.capture.interpreters import eras
from lstmprof.runs.directory import cache_folder

Progress = Callable[[str], None]

STAMP = "lstmprof.json"
ALWAYS = ("numpy",)
OLDEST = (3, 7)
#: Seconds to wait for an interpreter's answer; a working interpreter needs 0.1 s.
ANSWERS_WITHIN_S = 30.0
_ASK = (
    "import os, sys; print('%d.%d' % sys.version_info[:2]); print(os.path.realpath(sys.executable))"
)


@dataclasses.dataclass(frozen=True)
class Python:
    """An interpreter on this machine, identified by its path without symbolic links."""

    version: str  # such as 3.7
    path: str


def this_python() -> Python:
    # follow the link of a virtual environment's Python to the base Python
    return Python("{}.{}".format(*sys.version_info), os.path.realpath(sys.executable))


def python_at(path: str) -> Python:
    executable = shutil.which(path)
    python = _ask(executable) if executable else None
    if python is None:
        raise UsageError(f"{path}: no such interpreter", "give the path of a Python interpreter")
    if version_numbers(python.version) < OLDEST:
        raise UsageError(
            f"{path} is Python {python.version}, but lstmprof needs Python 3.7 or newer there",
            "choose a newer --python",
        )
    return python


def python_of(versions: Sequence[str], what: str) -> Python:
    """Find a Python of one of these versions, preferably the running one."""
    this = this_python()
    if this.version in versions:
        return this
    searched = os.environ.get("PATH"), os.environ.get("PYENV_ROOT")
    for version in versions:
        python = find_python(version, searched)
        if python:
            return python
    raise CaptureError(
        f"{what} needs Python {_any_of(versions)}, which neither PATH nor pyenv nor uv has",
        f"install Python (pyenv install {versions[0]}, or uv python install {versions[0]}), "
        "or give its path to --python",
    )


@functools.cache
def find_python(version: str, searched: tuple[str | None, str | None]) -> Python | None:
    """Find an interpreter of a Python version such as ``3.7``."""
    # ``searched`` (PATH, PYENV_ROOT) only makes the cache search again if one of these changes
    answers = (_ask(path) for path in _candidates(version))
    return next((python for python in answers if python and python.version == version), None)


def _any_of(versions: Sequence[str]) -> str:
    *others, last = versions
    return f"{', '.join(others)} or {last}" if others else last


def _candidates(version: str) -> Iterator[str]:
    """Yield interpreters on PATH, of pyenv (newest first) and of uv."""
    if on_path := shutil.which(f"python{version}"):
        yield on_path
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    folders = root.glob(f"versions/{version}.*")
    for folder in sorted(folders, key=lambda f: version_numbers(f.name), reverse=True):
        yield str(folder / "bin" / "python")
    if uv := shutil.which("uv"):
        yield from _output([uv, "python", "find", "--no-python-downloads", version])


def _ask(path: str) -> Python | None:
    """Run an interpreter to get its version and path."""
    answer = _output([path, "-c", _ASK])
    return Python(*answer) if len(answer) == 2 else None


def _output(command: Sequence[str]) -> list[str]:
    """Return the lines of a command's output, or [] if the command fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=ANSWERS_WITHIN_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []


@dataclasses.dataclass(frozen=True)
class Environment:
    """A virtual environment with these packages; the environment may not exist yet."""

    packages: tuple[str, ...]  # pip's requirement specifiers and options
    python: Python
    cache: Path
    download_mb: int | None = None
    disk_mb: int | None = None

    @property
    def folder(self) -> Path:
        """Return the folder, named by a hash of the packages and the interpreter."""
        what = json.dumps([self.python.path, *self.packages])
        return self.cache / hashlib.sha256(what.encode()).hexdigest()[:16]

    @property
    def interpreter(self) -> Path:
        return self.folder / ("Scripts" if os.name == "nt" else "bin") / "python"

    @property
    def is_made(self) -> bool:
        """Return whether the environment is complete and its base Python still exists."""
        return (self.folder / STAMP).is_file() and self.interpreter.exists()

    @property
    def words(self) -> str:
        """Return the packages, the Python version, the download size and the disk size as text."""
        sizes = ((self.download_mb, "to download"), (self.disk_mb, "on disk"))
        about = ", ".join(f"{_size(mb)} {what}" for mb, what in sizes if mb is not None)
        packages = " ".join(self.packages)
        words = f"{packages} for Python {self.python.version}"
        return f"{words} (about {about})" if about else words

    def made(self, progress: Progress = lambda line: None) -> Path:
        """Return the environment's interpreter, creating the environment if necessary."""
        if self.is_made:
            return self.interpreter
        self.cache.mkdir(parents=True, exist_ok=True)
        with _alone(self.folder.with_suffix(".lock")):
            if not self.is_made:  # another process may have created it meanwhile
                progress(f"installing {self.words} into {self.folder}")
                # build the environment in its final folder, because an environment cannot be moved
                shutil.rmtree(self.folder, ignore_errors=True)
                _build(self)
                _stamp(self)  # last, so that an interrupted build is repeated
        return self.interpreter


def _size(megabytes: int) -> str:
    return f"{megabytes} MB" if megabytes < 1000 else f"{megabytes / 1000:.1f} GB"


def environment_for(
    packages: Sequence[str], era: str | None = None, python: str | None = None
) -> Environment:
    """Choose packages, Python and folder of an environment; create nothing."""
    found_era = eras.find(era) if era else eras.era_of_packages(packages)
    cache = cache_folder() / "environments"
    if found_era is None:
        return environment(packages, cache, python_at(python) if python else None)
    base = python_at(python) if python else python_of(found_era.pythons, found_era.name)
    made = environment(eras.with_pins(packages, found_era.packages), cache, base)
    return dataclasses.replace(made, download_mb=found_era.download_mb, disk_mb=found_era.disk_mb)


def environment(packages: Sequence[str], cache: Path, python: Python | None = None) -> Environment:
    named = {eras.package_of(package) for package in packages}
    always = [package for package in ALWAYS if package not in named]
    return Environment(tuple(sorted({*packages, *always})), python or this_python(), cache)


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Let one process at a time create an environment."""
    with lock.open("w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _stamp(made: Environment) -> None:
    with tempfile.NamedTemporaryFile("w", dir=made.folder, delete=False, encoding="utf-8") as file:
        json.dump({"packages": list(made.packages), "python": made.python.version}, file)
    Path(file.name).replace(made.folder / STAMP)


def _build(wanted: Environment) -> None:
    path, interpreter, python = wanted.folder, str(wanted.interpreter), wanted.python.path
    uv = shutil.which("uv")
    if uv and _runs([uv, "venv", "--quiet", "--python", python, str(path)]) is None:
        install = [uv, "pip", "install", "--quiet", "--python", interpreter]
        if _runs([*install, *wanted.packages]) is None:
            return
        shutil.rmtree(path, ignore_errors=True)
    fault = _runs([python, "-m", "venv", str(path)])
    pip = [interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    fault = fault or _runs([*pip, *wanted.packages])
    if fault:
        shutil.rmtree(path, ignore_errors=True)
        raise CaptureError(
            f"could not install {' '.join(wanted.packages)}: {fault}",
            "check the package names and versions",
        )


def _runs(command: Sequence[str]) -> str | None:
    """Run a command; return the last error line, or None after success."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as fault:
        return f"{command[0]}: {fault.strerror}"
    if done.returncode == 0:
        return None
    messages = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    errors = [line for line in messages if line.lower().startswith("error")]
    return (errors or messages or [f"{command[0]} failed with exit status {done.returncode}"])[-1]
