"""Folders of runs: a run is written beside its place and renamed, so that it is whole or not there.

::

    <out>/<run>/                                whole
    <out>/.partial-<process>-xxxx/              being written; swept when its process is gone
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

from lstmprof.errors import CacheWarning, RunError, UsageError, next_step_of
from lstmprof.host.scratch import left_in, made_temporary_folder, own_prefix, remove

PARTIAL = ".partial-"
#: Longest component of a path: NAME_MAX of Linux's file systems.
MOST_NAME_BYTES = 255
#: A cache with less free space is not written to.
_LEAST_BYTES = 2**16
#: Constants of linux/fs.h and fcntl.h.
_RENAME_EXCHANGE, _AT_FDCWD = 2, -100


def cache_folder() -> Path:
    """Return $LSTMPROF_CACHE, else the user's cache folder; a temporary one if another user's.

    The cache has scripts that go into reports, and interpreters that capture runs.
    """
    given = os.environ.get("LSTMPROF_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or str(_home() / ".cache")
    cache = Path(given) if given else Path(base) / "lstmprof"
    fault = _untrusted(cache)
    return cache if fault is None else instead_of(cache, fault)


def _untrusted(folder: Path) -> str | None:
    """Return why somebody else may have put files into ``folder``; None if nobody may."""
    try:
        facts = folder.stat()
    except (OSError, ValueError):
        return None  # it does not exist, or cannot be used
    if hasattr(os, "geteuid") and facts.st_uid not in (0, os.geteuid()):
        return "it belongs to another user"
    return "every user can write to it" if facts.st_mode & stat.S_IWOTH else None


def _home() -> Path:
    """Return the home folder; a path that does not exist in a container without one."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/nonexistent")  # as Debian calls it


def written_to(cache: Path) -> Path:
    """Return ``cache``, or a temporary folder with a ``CacheWarning`` if it cannot be written.

    The temporary folder is removed with this process.

    Raises:
        LstmprofError: the temporary folder cannot be made.
    """
    fault = unwritable(cache)
    return cache if fault is None else instead_of(cache, fault)


def unwritable(folder: Path) -> str | None:
    """Return why ``folder``, which is made if necessary, cannot be written; None if it can."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            file.write(bytes(_LEAST_BYTES))
    except OSError as fault:
        return fault.strerror or str(fault)
    return None


@lru_cache(maxsize=None)
def instead_of(cache: Path, fault: str) -> Path:
    """Return this process's temporary folder in place of ``cache``; warn once with the reason.

    Raises:
        LstmprofError: it cannot be made.
    """
    folder = made_temporary_folder()
    atexit.register(remove, folder)
    warnings.warn(
        f"{cache}: is not used ({fault}), so results are not cached; set LSTMPROF_CACHE to a"
        " writable folder of your own",
        CacheWarning,
        stacklevel=2,
    )
    return folder


def check_name(out: Path, name: str, *, force: bool = False) -> None:
    """Raise an error if a run called ``name`` must not be written to ``out``.

    Raises:
        UsageError: ``name`` is not a single visible path component.
        RunError: the run exists and ``force`` is False.
    """
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
    """Check that a run may be put there.

    Raises:
        RunError: a run exists and ``force`` is not given, or something else is there.
    """
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


def _cannot(out: Path, what: str, fault: OSError) -> RunError:
    reason = fault.strerror or str(fault)
    place = "LSTMPROF_CACHE" if cache_folder() in [out, *out.parents] else "--out"
    step = f"set {place} to a writable folder with free space"
    if fault.errno == errno.EFBIG:
        step = next_step_of(fault, step)
    return RunError(f"{what} ({reason})", step)


@contextmanager
def staging(out: Path) -> Iterator[Path]:
    """Yield a folder in ``out`` that is not mistaken for a run; it is removed at the end.

    Raises:
        RunError: ``out`` cannot be written.
    """
    try:
        str(out).encode()
    except UnicodeEncodeError as fault:  # Parquet's library cannot
        raise RunError(
            f"{out}: cannot be written to (its name is not UTF-8)", "rename it"
        ) from fault
    try:
        out.mkdir(parents=True, exist_ok=True)
        sweep(out)
    except OSError as fault:
        raise _cannot(out, f"{out}: cannot be written", fault) from fault
    # Named before it is made: a signal between the two leaves nothing that is not removed.
    partial, maker = out / f"{own_prefix(PARTIAL)}{os.urandom(4).hex()}", os.getpid()
    try:
        try:
            partial.mkdir(mode=0o700)
        except OSError as fault:
            raise _cannot(out, f"{out}: cannot be written", fault) from fault
        yield partial
    finally:
        if os.getpid() == maker:  # not a process forked meanwhile, which ends before it
            remove(partial)


@contextmanager
def new_run(out: Path, name: str, *, force: bool = False) -> Iterator[Path]:
    """Yield a folder for the run ``name``; it is renamed at the end, or removed after an error.

    Raises:
        UsageError: ``name`` is not a single visible path component.
        RunError: the run exists and ``force`` is False, or ``out`` cannot be written.
    """
    check_name(out, name, force=force)
    with staging(out) as partial:
        content = partial / name
        try:
            content.mkdir()
            yield content
        except OSError as fault:
            raise _cannot(out, f"{out / name}: cannot be written", fault) from fault
        _put_in_place(content, out / name, partial / "replaced", force=force)


def _put_in_place(content: Path, place: Path, replaced: Path, *, force: bool) -> None:
    """Rename ``content`` to ``place``; with ``force`` swap it with an older run.

    Raises:
        RunError: a run exists and ``force`` is not given, or the rename fails.
    """
    _check_place(place, force=force)  # another process may have been faster
    put(content, place, replaced, force=force)


def put(content: Path, place: Path, replaced: Path, *, force: bool = True) -> None:
    """Rename ``content`` to ``place``; with ``force``, exchange it with an existing file.

    Raises:
        RunError: it cannot be renamed.
    """
    try:
        if _moved(content, place):
            return
        if not force:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        if not _exchanged(content, place):
            _put_for(content, place, replaced)
    except OSError as fault:
        raise RunError(
            f"{place}: {fault.strerror}", "check whether another command writes the same run"
        ) from fault


def _moved(content: Path, place: Path) -> bool:
    """Move ``content`` to ``place`` unless something is there; return whether it moved."""
    try:
        if not place.exists():
            content.rename(place)
            return True
    except OSError as fault:
        if fault.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    return False


def _exchanged(one: Path, other: Path) -> bool:
    """Swap both names at once; return False if the system cannot. Source: rename(2)."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    names = [os.fsencode(path.absolute()) for path in (one, other)]
    if rename is None:
        return False
    return bool(rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0)


def _put_for(content: Path, place: Path, replaced: Path) -> None:
    """Replace by two renames; ``sweep`` restores the older run after a crash."""
    replaced.mkdir()
    place.rename(replaced / place.name)
    try:
        content.rename(place)
    except OSError:
        if not place.exists():
            (replaced / place.name).rename(place)
        raise


def sweep(out: Path) -> None:
    """Remove what killed processes left in ``out``; put back a run that was being replaced."""
    for partial in left_in(out, PARTIAL):
        for old in (partial / "replaced").glob("*"):
            with suppress(OSError):  # another process was faster
                if not (out / old.name).exists():
                    old.rename(out / old.name)
        remove(partial)
