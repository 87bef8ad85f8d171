"""Write a run to a temporary folder, and rename the folder when the run is complete.

::

    <out>/<run>/                      a complete run
    <out>/.partial-<process>-xxxx/    a run that a process writes, or was writing when it was killed
"""

from __future__ import annotations

import atexit
import ctypes
import errno
import os
import stat
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from lstmprof.base.errors import CacheWarning, RunError, UsageError, next_step_of
from lstmprof.base.scratch import left_by_ended_processes, made_temporary_folder, own_prefix, remove

PARTIAL = ".partial-"
#: Longest file name, in bytes, on Linux file systems (NAME_MAX).
MOST_NAME_BYTES = 255
#: Smallest free space in bytes with which lstmprof uses the cache folder.
_LEAST_BYTES = 2**16
#: Flags for renameat2 (RENAME_EXCHANGE, AT_FDCWD) from linux/fs.h and fcntl.h.
_RENAME_EXCHANGE, _AT_FDCWD = 2, -100


def cache_folder() -> Path:
    """Return the cache folder, which $LSTMPROF_CACHE may set."""
    chosen = os.environ.get("LSTMPROF_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or str(_home() / ".cache")
    cache = Path(chosen) if chosen else Path(base) / "lstmprof"
    # other users must not be able to replace the scripts and interpreters in the cache
    fault = _untrusted(cache)
    return cache if fault is None else instead_of(cache, fault)


def _untrusted(folder: Path) -> str | None:
    """Return the reason if other users can write to ``folder``."""
    try:
        facts = folder.stat()
    except (OSError, ValueError):
        return None  # missing or unusable
    if hasattr(os, "geteuid") and facts.st_uid not in (0, os.geteuid()):
        return "it belongs to another user"
    return "every user can write to it" if facts.st_mode & stat.S_IWOTH else None


def _home() -> Path:
    """Return the home folder; without a home folder, a path that does not exist."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/nonexistent")  # Debian's home folder of users without one


def usable_cache(cache: Path) -> Path:
    fault = unwritable(cache)
    return cache if fault is None else instead_of(cache, fault)


def unwritable(folder: Path) -> str | None:
    """Make ``folder``; return why lstmprof cannot write files there, or None."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            file.write(bytes(_LEAST_BYTES))
    except OSError as fault:
        return fault.strerror or str(fault)
    return None


@lru_cache(maxsize=None)
def instead_of(cache: Path, fault: str) -> Path:
    """Warn that the cache folder is unusable; return a temporary folder instead."""
    folder = made_temporary_folder()
    atexit.register(remove, folder)
    warnings.warn(
        f"{cache}: lstmprof does not use this cache folder ({fault}), so results are not cached; "
        "set LSTMPROF_CACHE to a writable folder of your own",
        CacheWarning,
        stacklevel=2,
    )
    return folder


def check_name(out: Path, name: str, *, force: bool = False) -> None:
    """Check that a run of this name may be written to ``out``."""
    if not name or name != Path(name).name or name.startswith("."):
        raise UsageError(
            f"'{name}' cannot name a run", "choose a name without a '/' or a leading dot"
        )
    if len(os.fsencode(name)) > MOST_NAME_BYTES:
        raise UsageError(f"the run name '{name[:40]}…' is too long", "choose a shorter --name")
    if (out / name).is_symlink():
        raise RunError(
            f"{out / name}: is a link to {os.readlink(str(out / name))}",
            "choose another --out or --name",
        )
    _check_place(out / name, force=force)


def _check_place(place: Path, *, force: bool) -> None:
    if not place.exists():
        return
    if not force:
        raise (
            RunError(
                f"{place}: already exists",
                "add --force to overwrite it, or choose another --out or --name",
            )
        )
    if not place.is_dir() or (any(place.iterdir()) and not (place / "run.json").exists()):
        raise RunError(
            f"{place}: already exists and is not a run", "choose another --out or --name"
        )


def _write_error(out: Path, text: str, fault: OSError) -> RunError:
    reason = fault.strerror or str(fault)
    place = "LSTMPROF_CACHE" if cache_folder() in [out, *out.parents] else "--out"
    step = f"set {place} to a writable folder with free space"
    if fault.errno == errno.EFBIG:
        step = next_step_of(fault, step)
    return RunError(f"{text} ({reason})", step)


@contextmanager
def staging(out: Path) -> Iterator[Path]:
    """Yield a temporary folder in ``out``, and remove the folder after the block."""
    try:
        str(out).encode()
    except UnicodeEncodeError as fault:  # Parquet's library cannot write there
        raise RunError(
            f"{out}: cannot be written to (its name is not UTF-8)", "rename it"
        ) from fault
    try:
        out.mkdir(parents=True, exist_ok=True)
        sweep(out)
    except OSError as fault:
        raise _write_error(out, f"{out}: cannot be written", fault) from fault
    # choose the name first, so that a signal before mkdir leaves no folder
    partial, maker = out / f"{own_prefix(PARTIAL)}{os.urandom(4).hex()}", os.getpid()
    try:
        try:
            partial.mkdir(mode=0o700)
        except OSError as fault:
            raise _write_error(out, f"{out}: cannot be written", fault) from fault
        yield partial
    finally:
        if os.getpid() == maker:  # not in a forked process, which may end earlier
            remove(partial)


@contextmanager
def new_run(out: Path, name: str, *, force: bool = False) -> Iterator[Path]:
    """Yield a temporary folder, which becomes the run ``name`` if the block succeeds."""
    check_name(out, name, force=force)
    with staging(out) as partial:
        content = partial / name
        try:
            content.mkdir()
            yield content
        except OSError as fault:
            raise _write_error(out, f"{out / name}: cannot be written", fault) from fault
        _put_in_place(content, out / name, partial / "replaced", force=force)


def _put_in_place(content: Path, place: Path, replaced: Path, *, force: bool) -> None:
    _check_place(place, force=force)  # another process may have been faster
    put(content, place, replaced, force=force)


def put(content: Path, place: Path, replaced: Path, *, force: bool = True) -> None:
    """Rename a folder to ``place``; with ``force``, replace an older folder."""
    try:
        if _moved(content, place):
            return
        if not force:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        if not _exchanged(content, place):
            _replace_by_renames(content, place, replaced)
    except OSError as fault:
        raise RunError(
            f"{place}: {fault.strerror}", "check whether another command writes the same run"
        ) from fault


def _moved(content: Path, place: Path) -> bool:
    """Rename folder ``content`` to ``place``, or return False if ``place`` exists."""
    try:
        if not place.exists():
            content.rename(place)
            return True
    except OSError as fault:
        if fault.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    return False


def _exchanged(first: Path, second: Path) -> bool:
    """Exchange two folders' names atomically; return False if the system cannot."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    names = [os.fsencode(path.absolute()) for path in (first, second)]
    if rename is None:
        return False
    # rename(2)
    return bool(rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0)


def _replace_by_renames(content: Path, place: Path, replaced: Path) -> None:
    replaced.mkdir()
    # if the process is killed after this rename, ``sweep`` restores the old folder
    place.rename(replaced / place.name)
    try:
        content.rename(place)
    except OSError:
        if not place.exists():
            (replaced / place.name).rename(place)
        raise


def sweep(out: Path) -> None:
    """Clean up after killed processes: restore old runs, remove temporary folders."""
    for partial in left_by_ended_processes(out, PARTIAL):
        for old in (partial / "replaced").glob("*"):
            with suppress(OSError):  # another process has already restored it
                if not (out / old.name).exists():
                    old.rename(out / old.name)
        remove(partial)
