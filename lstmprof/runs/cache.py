"""Open the runs that a user's arguments ("words") name: runs, raw profiles or baselines.

Raw profiles become runs in the cache folder. A baseline is a folder in the user's project, with
copies of runs for CI::

    .lstmprof/baselines/<name>/<run>/
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from lstmprof.base.errors import LstmprofError, RunError, UsageError, is_url
from lstmprof.base.numbers import made_unique
from lstmprof.base.package import __version__
from lstmprof.events import annotate
from lstmprof.events.schema import SCHEMA_VERSION
from lstmprof.runs import remote
from lstmprof.runs.border import LeaveOut, border
from lstmprof.runs.directory import (
    MOST_NAME_BYTES,
    cache_folder,
    instead_of,
    put,
    staging,
    sweep,
    usable_cache,
)
from lstmprof.runs.run import RUN_FILE, Run, is_run, open_run, run_folders_in, runs_in

if TYPE_CHECKING:
    from lstmprof.formats.sources import Source
    from lstmprof.runs.ingest import Ingested


#: Callback before a profile is read; its arguments: the profile's path and the run's name.
Reading = Callable[[Path, str], None]


def open_runs(
    words: Iterable[Path | str], cache: Path | None = None, leave_out: LeaveOut = lambda fault: None
) -> list[Run]:
    """Open the runs at paths or URLs, and convert raw profiles to runs in ``cache``."""
    return [run for runs in opened(words, cache, leave_out) for run in runs]


def opened(
    words: Iterable[Path | str],
    cache: Path | None,
    leave_out: LeaveOut,
    reading: Reading = lambda path, name: None,
) -> list[list[Run]]:
    """Open runs like ``open_runs``; return one list per path or URL."""
    words, cache = list(words), cache or cache_folder()
    opened_of = [_opened(word, cache, reading) for word in words]
    faults = [fault for opened_word in opened_of for fault in opened_word.faults]
    all_failed = bool(faults) and not any(opened_word.runs for opened_word in opened_of)
    if all_failed and len(faults) == 1:
        raise faults[0]
    for fault in faults:
        leave_out(fault)
    if all_failed:
        where = f"{words[0]}: no" if len(words) == 1 else f"none of {len(words)} paths has a"
        raise RunError(f"{where} readable run or profile", str(faults[0]))
    return [opened_word.runs for opened_word in opened_of if opened_word.runs]


@dataclass
class _Opened:
    """The runs that were opened at one path or URL, and the errors."""

    runs: list[Run] = field(default_factory=list)
    faults: list[LstmprofError] = field(default_factory=list)

    @contextmanager
    def trying(self, place: object) -> Iterator[None]:
        """Catch an error of the block, and add the error to ``faults``."""
        try:
            with border(place):
                yield
        except LstmprofError as fault:
            self.faults.append(fault)


def _opened(word: Path | str, cache: Path, reading: Reading) -> _Opened:
    opened_word = _Opened()
    with opened_word.trying(word):
        places = _runs_at(word)
        deeper = [] if places else _runs_below(word)
        for place in (*places, *deeper):
            with opened_word.trying(place):
                opened_word.runs.append(_run_at(place, cache))
        if not places:
            _ingest(word, cache, opened_word, reading, deeper)
    return opened_word


def _runs_at(word: Path | str) -> Sequence[Path | str]:
    """Return the places of runs: ``word`` itself, or runs directly inside ``word``."""
    if is_url(word):
        return remote.run_urls_at(str(word))
    path = Path(word)
    # return no runs for a file or a missing path; ``_ingest`` reads the path next
    if not str(word) or not path.is_dir():
        return []
    return [path] if is_run(path) else run_folders_in(path)


def _runs_below(word: Path | str) -> list[Path]:
    """Return the folders of runs at any depth below the folder ``word``."""
    if is_url(word) or not str(word):
        return []
    below = []
    for place, folders, names in os.walk(word):
        folders[:] = [name for name in folders if not name.startswith(".")]
        if RUN_FILE in names:
            below.append(Path(place))
            folders.clear()
    return sorted(below)


def _run_at(place: Path | str, cache: Path) -> Run:
    if isinstance(place, Path):
        return open_run(place)
    run = remote.run_at(place)
    if run is None:
        raise RunError(f"{place}: the run no longer exists", "check the URL")
    return run.fetched(cache)


def _ingest(
    word: Path | str, cache: Path, result: _Opened, reading: Reading, deeper: Collection[Path]
) -> None:
    """Make runs from raw profiles at a path or URL, or find these runs in the cache."""
    # import late, because importing the readers takes long
    from lstmprof.formats import sources
    from lstmprof.runs.ingest import run_names

    groups = sources.groups(word, deeper)
    for name, group in zip(run_names(word, groups), groups, strict=True):
        readers = [__version__, str(SCHEMA_VERSION), _annotation(Path(annotate.__file__).parent)]
        key = "|".join([*(source.stamp for source in group), *readers])
        folder = hashlib.sha256(os.fsencode(key)).hexdigest()[:20]
        sweep(cache / folder)
        runs_before = _cached_runs(cache / folder)
        if runs_before:
            result.runs += runs_before
            continue
        if len(group) == 1 and isinstance(label := group[0].label, Path):
            reading(label, name)
        done = _made(group, name, folder, cache)
        result.runs += [run for run in done.runs if isinstance(run, Run)]
        result.faults += [*done.errors, *done.foreign]


def _made(group: Sequence[Source], name: str, folder: str, cache: Path) -> Ingested:
    """Make a run from some files, in the cache or in a temporary folder."""
    from lstmprof.runs.ingest import Ingested, Task

    place = usable_cache(cache)
    if place != cache and (runs_before := _cached_runs(place / folder)):
        return Ingested([*runs_before])
    done = Task(group, name, place / folder, force=True, step_range=None).done()
    fault = next((error.__cause__ for error in done.errors if isinstance(error, RunError)), None)
    if not isinstance(fault, OSError) or place != cache:
        return done
    place = instead_of(cache, fault.strerror or str(fault))
    return Task(group, name, place / folder, force=True, step_range=None).done()


def _cached_runs(folder: Path) -> list[Run]:
    """Return the runs in ``folder``, or no run if any run is damaged."""
    try:
        return runs_in(folder) if folder.is_dir() else []
    except RunError:
        return []


@lru_cache(maxsize=1)
def _annotation(folder: Path) -> str:
    """Return a hash of the annotation code; if the code changes, runs are made again."""
    digest = hashlib.sha256()
    for source in sorted(folder.rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()


FOLDER = Path(".lstmprof") / "baselines"
PREFIX = "baseline:"
#: Files that a comparison reads, and that a baseline therefore copies.
_FILES = (RUN_FILE, "events.parquet", "counters.parquet", "timings.parquet", "samples.parquet")


def resolve_baseline(word: str) -> str:
    """Replace ``baseline:NAME`` by the baseline's folder."""
    if not word.startswith(PREFIX):
        return word
    name = _checked(word.removeprefix(PREFIX))
    if not (FOLDER / name).is_dir():
        existing = sorted(p.name for p in FOLDER.glob("[!.]*")) if FOLDER.is_dir() else []
        hint = "create one with --save-baseline"
        hint = f"existing baselines: {', '.join(existing)}" if existing else hint
        raise UsageError(f"no baseline '{name}' in {FOLDER}", hint)
    return str(FOLDER / name)


def save(name: str, runs: Sequence[Run], *, force: bool = False) -> Path:
    """Copy runs into the baseline ``name``, completely or not at all."""
    place = FOLDER / _checked(name)
    if place.is_symlink() or (place.exists() and not force):
        next_step = "add --force to overwrite it, or choose another name"
        raise RunError(f"{place}: already exists", next_step)
    with staging(FOLDER) as partial:
        content = partial / "new"
        for run, folder in zip(runs, made_unique(run.path.name for run in runs), strict=True):
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
        next_step = "choose a name without a '/' or a leading dot"
        raise UsageError(f"'{name}' cannot name a baseline", next_step)
    return name
