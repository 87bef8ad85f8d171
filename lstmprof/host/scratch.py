"""Files and folders of work in progress: named after the process that makes them, and swept.

::

    <prefix><host>-<boot>-<namespace>-<pid>-<start>-xxxx

What a killed process left is swept by the next one, but only where nothing of it can live: host,
boot and namespace of process numbers are those of who sweeps, and no process has that number and
started then. The clock is not asked, and a number alone says nothing: in two containers two
processes have the same. Outside Linux nothing is known of processes, and nothing is swept.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from lstmprof.errors import LstmprofError, RunError

_PROC = Path("/proc")
#: Of a folder that lies in TMPDIR.
_TEMPORARY = "lstmprof-"
#: Of a file that is renamed to its place when it is whole.
_WRITING = ".lstmprof-writes-"
_MOST_DIGITS = 9


def own_prefix(prefix: str) -> str:
    """What the name of this process's work begins with."""
    return f"{prefix}{_place()}{os.getpid()}-{_start_of('self') or ''}-"


def left_in(folder: Path, prefix: str) -> list[Path]:
    """What lies in ``folder`` of processes that are gone."""
    place = prefix + _place()
    with suppress(OSError):
        names = [name for name in os.listdir(folder) if name.startswith(place)]
        return [folder / name for name in names if _is_left(name[len(place) :])]
    return []


def _is_left(name: str) -> bool:
    pid, start, *_ = [*name.split("-"), ""]  # what is of another making has other parts
    if not all(_is_number(text) for text in (pid, start)) or not _is_known():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # another user's
    return _start_of(pid) not in (None, start)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 2 * _MOST_DIGITS


def _place() -> str:
    """Host, boot and namespace."""
    return f"{socket.gethostname()}-{_boot()}-{_namespace()}-"


def _is_known() -> bool:
    """Whether the processes that this one sees are those of its own namespace."""
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
    """When a process started, in ticks since the boot. Source: proc_pid_stat(5), starttime."""
    with suppress(OSError):
        stat = (_PROC / pid / "stat").read_text("utf-8", "replace")
        return stat.rpartition(")")[2].split()[19]
    return None


def check_file(path: Path, *, force: bool, next_step: str) -> None:
    """Whether a file may be written to ``path``.

    Raises:
        RunError: it is there already and ``force`` is not given, or it is no plain file.
    """
    if path.is_symlink():
        raise RunError(
            f"{path}: is a link to {os.readlink(str(path))}", "give the path of the file itself"
        )
    if path.exists() and not path.is_file():
        raise RunError(f"{path}: already exists and is not a regular file", "choose another")
    if path.exists() and not force:
        raise RunError(f"{path}: already exists", next_step)


def write_file(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path``, whole or not at all; what killed processes left there goes.

    Raises:
        OSError: it cannot be written.
    """
    with writing(path) as out:
        out.write(content)


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A file that becomes ``path`` when the context ends well, and else leaves nothing.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in left_in(path.parent, _WRITING):
        _unlink(left)
    partial = path.parent / f"{own_prefix(_WRITING)}{os.urandom(4).hex()}"
    try:
        with partial.open("xb") as out:  # not by tempfile: the mode is for the umask to decide
            yield out
        partial.replace(path)
    finally:
        _unlink(partial)


def _unlink(path: Path) -> None:
    with suppress(FileNotFoundError):
        path.unlink()


def remove(folder: Path) -> None:
    """Remove ``folder`` and all in it, also where a signal comes while that is done."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except BaseException:  # it raises once
        shutil.rmtree(folder, ignore_errors=True)
        raise


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder in TMPDIR for as long as the context.

    Raises:
        LstmprofError: it cannot be made.
    """
    folder = made_temporary_folder()
    try:
        yield folder
    finally:
        remove(folder)


def made_temporary_folder() -> Path:
    """A folder in TMPDIR, which the caller removes; what killed processes left there goes.

    Raises:
        LstmprofError: it cannot be made.
    """
    try:
        base = Path(tempfile.gettempdir())
    except OSError as fault:
        raise LstmprofError(
            "no folder for temporary files exists", "set TMPDIR to a writable folder"
        ) from fault
    for left in left_in(base, _TEMPORARY):
        shutil.rmtree(left, ignore_errors=True)
    with room_in(base):
        return Path(tempfile.mkdtemp(prefix=own_prefix(_TEMPORARY), dir=base))


@contextmanager
def room_in(folder: Path) -> Iterator[None]:
    """Tell a fault of the system as one of ``folder``, where temporary files lie.

    Raises:
        LstmprofError: there was one.
    """
    try:
        yield
    except OSError as fault:
        raise LstmprofError(
            f"{folder}: cannot hold temporary files ({fault.strerror or fault})",
            "free some space, or set TMPDIR to another disk",
        ) from fault
