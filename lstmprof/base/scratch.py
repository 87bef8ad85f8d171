"""Create temporary files and folders, which later processes remove if the creator was killed.

::

  <prefix><host>-<boot>-<namespace>-<pid>-<start>-xxxx

On Linux, the name identifies the process that created the file. Other systems remove nothing.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from lstmprof.base.errors import LstmprofError, RunError

_PROC = Path("/proc")
_TEMPORARY = "lstmprof-"
#: Prefix of an unfinished file, which gets its final name when the file is complete.
_WRITING = ".lstmprof-writes-"
_MOST_DIGITS = 9


def own_prefix(prefix: str) -> str:
    """Return how the names of this process's temporary files begin."""
    return f"{prefix}{_host_identity()}{os.getpid()}-{_start_of('self') or ''}-"


def left_by_ended_processes(folder: Path, prefix: str) -> list[Path]:
    """Return the files that ended processes of this host left behind."""
    place = prefix + _host_identity()
    with suppress(OSError):
        names = [name for name in os.listdir(folder) if name.startswith(place)]
        return [folder / name for name in names if _is_left(name[len(place) :])]
    return []


def _is_left(name: str) -> bool:
    pid, start, *_ = [*name.split("-"), ""]  # names of other programs may have no "-"
    if not all(_is_number(text) for text in (pid, start)) or not _is_known():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # another user's process
    # a different start time: another process has got the creator's process id
    return _start_of(pid) not in (None, start)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 2 * _MOST_DIGITS


def _host_identity() -> str:
    # include the PID namespace, because two containers can use one process id
    return f"{socket.gethostname()}-{_boot()}-{_namespace()}-"


def _is_known() -> bool:
    """Return whether ``/proc`` shows the processes of this PID namespace."""
    with suppress(OSError):
        return bool(_boot()) and os.readlink(str(_PROC / "self")) == str(os.getpid())
    return False


def _boot() -> str:
    with suppress(OSError):
        return (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip().replace("-", "")
    return ""


def _namespace() -> str:
    with suppress(OSError):
        return "".join(filter(str.isdigit, os.readlink(str(_PROC / "self/ns/pid"))))
    return ""


def _start_of(pid: str) -> str | None:
    """Return when a process started, in ticks since the boot."""
    with suppress(OSError):
        stat = (_PROC / pid / "stat").read_text("utf-8", "replace")
        # take the field starttime of proc_pid_stat(5)
        return stat.rpartition(")")[2].split()[19]
    return None


def check_file(path: Path, *, force: bool, next_step: str) -> None:
    """Raise a RunError if ``path`` exists; ``force`` allows a regular file, but no link."""
    if path.is_symlink():
        raise RunError(
            f"{path}: is a link to {os.readlink(str(path))}", "give the path of the file itself"
        )
    if path.exists() and not path.is_file():
        raise RunError(f"{path}: already exists and is not a regular file", "choose another")
    if path.exists() and not force:
        raise RunError(f"{path}: already exists", next_step)


def write_file(path: Path, content: bytes) -> None:
    """Write a file, completely or not at all."""
    with writing(path) as out:
        out.write(content)


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """Yield a file that becomes ``path`` if the block succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in left_by_ended_processes(path.parent, _WRITING):
        _unlink(left)
    partial = path.parent / f"{own_prefix(_WRITING)}{os.urandom(4).hex()}"
    try:
        with partial.open("xb") as out:  # not by tempfile, which ignores the umask
            yield out
        partial.replace(path)
    finally:
        _unlink(partial)


def _unlink(path: Path) -> None:
    with suppress(FileNotFoundError):
        path.unlink()


def remove(folder: Path) -> None:
    """Remove a folder, even if a signal arrives meanwhile."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except BaseException:  # raised by a signal handler, once only
        shutil.rmtree(folder, ignore_errors=True)
        raise


@contextmanager
def temporary_folder() -> Iterator[Path]:
    folder = _unused_folder()
    try:  # a signal may arrive as soon as the folder exists
        _make(folder)
        yield folder
    finally:
        remove(folder)


def made_temporary_folder() -> Path:
    """Return a new folder in TMPDIR, which the caller removes."""
    folder = _unused_folder()
    _make(folder)
    return folder


def _unused_folder() -> Path:
    """Remove folders of killed processes, and return an unused path in TMPDIR."""
    try:
        base = Path(tempfile.gettempdir())
    except OSError as fault:
        raise LstmprofError(
            "no folder for temporary files exists", "set TMPDIR to a writable folder"
        ) from fault
    for left in left_by_ended_processes(base, _TEMPORARY):
        shutil.rmtree(left, ignore_errors=True)
    return base / (own_prefix(_TEMPORARY) + secrets.token_hex(8))


def _make(folder: Path) -> None:
    with room_in(folder.parent):
        folder.mkdir(0o700)


@contextmanager
def room_in(folder: Path) -> Iterator[None]:
    """Convert an OSError in the block to an error about temporary files in ``folder``."""
    try:
        yield
    except OSError as fault:
        raise LstmprofError(
            f"{folder}: cannot hold temporary files ({fault.strerror or fault})",
            "free some space, or set TMPDIR to another disk",
        ) from fault
