"""Folders of runs: a run is written beside its place and renamed, so that it is whole or not there.

::

    <out>/<run>/                                whole
    <out>/.partial-<host>-<pid>-<run>-xxxx/     being written; swept when its process is gone
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lstmprof.errors import RunError, UsageError

PARTIAL = ".partial-"
#: Of a component of a path: NAME_MAX of Linux's file systems.
MOST_NAME_BYTES = 255


def cache_folder() -> Path:
    """Where raw profiles are ingested on the fly: $LSTMPROF_CACHE, else the user's cache folder."""
    given = os.environ.get("LSTMPROF_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(given) if given else Path(base) / "lstmprof"


def check_name(out: Path, name: str, *, force: bool = False) -> None:
    """Whether a run called ``name`` may be written to ``out``.

    Raises:
        UsageError: ``name`` is no single visible path component.
        RunError: the run is there already and ``force`` is not given.
    """
    if not name or name != Path(name).name or name.startswith("."):
        raise UsageError(f"'{name}' is no name for a run", "give one without / and not hidden")
    if len(os.fsencode(name)) > MOST_NAME_BYTES:
        raise UsageError(f"'{name[:40]}…' is too long a name for a run", "give a shorter --name")
    if not force and (out / name).exists():
        raise RunError(
            f"{out / name}: is there already",
            "give --force to replace it, or another --out or --name",
        )


@contextmanager
def staging(out: Path) -> Iterator[Path]:
    """A directory in ``out`` that nobody takes for a run; removed at the end, or by a later sweep.

    Raises:
        RunError: ``out`` cannot be written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        sweep(out)
        prefix = f"{PARTIAL}{socket.gethostname()}-{os.getpid()}-"
        partial = Path(tempfile.mkdtemp(prefix=prefix, dir=out))
    except OSError as fault:
        raise RunError(f"{out}: {fault.strerror}", "give an --out that can be written") from fault
    maker = os.getpid()
    try:
        yield partial
    finally:
        if os.getpid() == maker:  # not a process forked meanwhile, which ends before it
            shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def new_run(out: Path, name: str, *, force: bool = False) -> Iterator[Path]:
    """A directory to write the run ``name`` into; renamed to its place at the end, else removed.

    Raises:
        UsageError: ``name`` is no single visible path component.
        RunError: the run is there already and ``force`` is not given, or ``out`` cannot be written.
    """
    check_name(out, name, force=force)
    with staging(out) as partial:
        content = partial / name
        try:
            content.mkdir()
            yield content
        except OSError as fault:
            reason = fault.strerror or str(fault)
            raise RunError(
                f"{out / name}: cannot be written ({reason})",
                "give an --out that has room and can be written",
            ) from fault
        _put_in_place(content, out / name, partial / "replaced")


def _put_in_place(content: Path, place: Path, replaced: Path) -> None:
    """Rename ``content`` to ``place``; an older run there goes to ``replaced`` in between."""
    if place.exists():
        replaced.mkdir()
        place.rename(replaced / place.name)
    try:
        content.rename(place)
    except OSError as fault:
        if (replaced / place.name).exists() and not place.exists():
            (replaced / place.name).rename(place)
        raise RunError(
            f"{place}: {fault.strerror}", "another capture may have written it"
        ) from fault


def sweep(out: Path) -> None:
    """Remove what processes killed on this host left in ``out``; put back a run being replaced."""
    for partial in out.glob(f"{PARTIAL}{socket.gethostname()}-*"):
        pid = partial.name.removeprefix(f"{PARTIAL}{socket.gethostname()}-").split("-")[0]
        if not (pid.isascii() and pid.isdigit()) or _alive(int(pid)):
            continue
        for old in (partial / "replaced").glob("*"):
            if not (out / old.name).exists():
                old.rename(out / old.name)
        shutil.rmtree(partial, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
