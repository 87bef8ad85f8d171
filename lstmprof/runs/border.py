"""Convert any exception that an input causes to a one-line error, so that a command can go on.

::

    exception                becomes             because
    LstmprofError            remains             the input, or an option, is at fault
    MemoryError, OSError     a ``ProfileError``  the machine is at fault
    any other exception      a ``DefectError``   lstmprof is at fault: the traceback goes to a log
"""

from __future__ import annotations

import datetime
import os
import platform
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from lstmprof.base.errors import (
    DefectError,
    LstmprofError,
    ProfileError,
    RunError,
    command_line,
    system_error,
    without_secrets,
    without_url_secrets,
)
from lstmprof.base.package import __version__
from lstmprof.runs.directory import cache_folder

_MOST_WORDS, _MOST_TRACE = 120, 100_000
#: Size of a log in bytes at which lstmprof stops adding text.
_MOST_BYTES = 2**24

if TYPE_CHECKING:
    from lstmprof.runs.run import Run

LeaveOut = Callable[[LstmprofError], None]
_Item = TypeVar("_Item")
_Made = TypeVar("_Made")


def path_of(run: Run) -> Path:
    """Return the folder of a run, for error messages."""
    return run.path


@contextmanager
def border(place: object) -> Iterator[None]:
    """Convert the block's exceptions to ``LstmprofError``; ``place``: path or URL."""
    try:
        yield
    except RunError as error:
        if not isinstance(place, Path) or (
            str(place) in error.fault
            or error.fault.startswith((f"{place.name}: ", f"{place.parent}"))
        ):
            raise
        raise RunError(f"{place}: {error.fault}", error.next_step) from error
    except LstmprofError:
        raise
    except MemoryError as error:
        fault = "needs more memory than this machine has"
        raise ProfileError(place, fault, "profile fewer steps") from error
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            machine_error = system_error(error)
            fault = f"cannot be read ({machine_error.fault})"
            raise ProfileError(place, fault, machine_error.next_step) from error
        what = f"{type(error).__name__}: {error}".removesuffix(": ")
        what = what if len(what) <= _MOST_WORDS else f"{what[:_MOST_WORDS]}…"
        log = _logged(place, error)
        report = f"please report it with {log}" if log else "please report it (no log was written)"
        raise DefectError(f"{place}: a bug in lstmprof ({what})", report) from error


def from_good(
    make: Callable[[Sequence[_Item]], _Made],
    items: Sequence[_Item],
    path_of: Callable[[_Item], object],
    leave_out: LeaveOut,
    together: object = "the runs together",
) -> _Made:
    """Call ``make`` with all items; if this fails, leave out items that fail alone."""
    try:
        with border(path_of(items[0]) if len(items) == 1 else together):
            return make(items)
    except (ProfileError, RunError, DefectError):
        faults = _faults(make, items, path_of) if len(items) > 1 else {}
        if not faults or len(faults) == len(items):
            raise
    for fault in faults.values():
        leave_out(fault)
    good = [item for number, item in enumerate(items) if number not in faults]
    return make(good)


def _faults(
    make: Callable[[Sequence[_Item]], object],
    items: Sequence[_Item],
    path_of: Callable[[_Item], object],
) -> dict[int, LstmprofError]:
    """Call ``make`` with each item alone; return {index of the item: error}."""
    faults = {}
    for number, item in enumerate(items):
        try:
            with border(path_of(item)):
                make([item])
        except LstmprofError as fault:
            faults[number] = fault
    return faults


def _logged(place: object, error: Exception) -> Path | None:
    """Append a traceback to a log of bugs in lstmprof; return the log's path."""
    text = _entry(place, error).encode(errors="backslashreplace")
    for log in (_log_in_cache, _temporary_log):
        with suppress(OSError):
            path = log()
            with path.open("ab") as file:
                if file.tell() < _MOST_BYTES:
                    file.write(text)
            return path
    return None


def _log_in_cache() -> Path:
    folder = cache_folder() / "defects"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{datetime.date.today():%Y-%m-%d}-{socket.gethostname()}-{os.getpid()}.log"


@lru_cache(maxsize=1)
def _temporary_log() -> Path:
    """Make an empty log file in TMPDIR, with a random name that nobody can guess."""
    handle, path = tempfile.mkstemp(prefix="lstmprof-defects-", suffix=".log")
    os.close(handle)
    return Path(path)


def _entry(place: object, error: Exception) -> str:
    trace = "".join(traceback.format_exception(error))
    if len(trace) > _MOST_TRACE:
        trace = f"{trace[: _MOST_TRACE // 2]}\n…\n{trace[-_MOST_TRACE // 2 :]}"
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return (
        f"{now} lstmprof {__version__}, Python {platform.python_version()}, {platform.platform()}\n"
        f"command: {command_line(sys.argv)}\n"
        f"input: {without_secrets(str(place))}\n{without_url_secrets(trace)}\n"
    )
