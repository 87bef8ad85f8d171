"""Named baselines: copies of runs under a name, to hold later ones against.

They lie in the project, so that CI keeps them as it keeps any folder::

    .lstmprof/baselines/<name>/<run>/
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from lstmprof.errors import RunError, UsageError
from lstmprof.numbers import told_apart
from lstmprof.runs.directory import MOST_NAME_BYTES, put, staging
from lstmprof.runs.run import RUN_FILE, Run, open_run

FOLDER = Path(".lstmprof") / "baselines"
PREFIX = "baseline:"
#: What a comparison reads of a run; the raw profile is not kept.
_FILES = (RUN_FILE, "events.parquet", "counters.parquet", "timings.parquet", "samples.parquet")


def place_of(word: str) -> str:
    """Where the runs that ``word`` means lie: a path as it is, ``baseline:NAME`` in ``FOLDER``.

    Raises:
        UsageError: no baseline has this name.
    """
    if not word.startswith(PREFIX):
        return word
    name = _checked(word.removeprefix(PREFIX))
    if not (FOLDER / name).is_dir():
        there = sorted(p.name for p in FOLDER.glob("[!.]*")) if FOLDER.is_dir() else []
        hint = (
            f"existing baselines: {', '.join(there)}"
            if there
            else "create one with --save-baseline"
        )
        raise UsageError(f"no baseline '{name}' in {FOLDER}", hint)
    return str(FOLDER / name)


def save(name: str, runs: Sequence[Run], *, force: bool = False) -> Path:
    """Copy ``runs`` into the baseline ``name``; it is there whole, or as it was before.

    Raises:
        UsageError: ``name`` is no single visible path component.
        RunError: it is there already and ``force`` is not given; a run is damaged, or the folder
            cannot be written.
    """
    place = FOLDER / _checked(name)
    if place.is_symlink() or (place.exists() and not force):
        raise RunError(
            f"{place}: already exists", "add --force to overwrite it, or choose another name"
        )
    with staging(FOLDER) as partial:
        content = partial / "new"
        for run, folder in zip(runs, told_apart(run.path.name for run in runs), strict=True):
            _copy(run, content / folder)
        put(content, place, partial / "replaced")
    return place


def _copy(run: Run, folder: Path) -> None:
    try:
        folder.mkdir(parents=True)
        for name in _FILES:
            if (run.path / name).is_file():
                shutil.copyfile(run.path / name, folder / name)
    except OSError as fault:
        raise RunError(
            f"{run.path}: could not copy ({fault.strerror or fault})",
            "check permissions and free space",
        ) from fault
    open_run(folder)


def _checked(name: str) -> str:
    if not name or name != Path(name).name or name.startswith(".") or len(name) > MOST_NAME_BYTES:
        raise UsageError(
            f"'{name}' cannot name a baseline",
            "choose a name without a '/' or a leading dot",
        )
    return name
