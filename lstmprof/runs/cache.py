"""The runs that words mean: those that are there, and profiles, ingested now or before."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path

from lstmprof import __version__
from lstmprof.errors import LstmprofError, RunError
from lstmprof.events import annotate
from lstmprof.events.schema import SCHEMA_VERSION
from lstmprof.formats import sources
from lstmprof.runs import remote
from lstmprof.runs.directory import cache_folder
from lstmprof.runs.ingest import Task, run_names
from lstmprof.runs.run import Run, is_run, open_run, runs_in

Warn = Callable[[str], None]


def open_runs(
    words: Iterable[Path | str], cache: Path | None = None, warn: Warn = lambda line: None
) -> list[Run]:
    """The runs that ``words`` mean: a run, every run in a folder, or raw profiles; here or at URLs.

    Raw profiles are ingested into ``cache`` (default ``cache_folder()``), never beside the file,
    and only when the file has changed since, or the rules that annotate its events have; a run at a
    URL is fetched into it. Of several, one that cannot be read is told to ``warn``.

    Raises:
        ProfileError: nothing of a word can be read as a profile.
        RunError: a run is damaged, or cannot be fetched.
    """
    cache = cache or cache_folder()
    return [run for word in words for run in _runs_at(word, cache) or _cached(word, cache, warn)]


def _runs_at(word: Path | str, cache: Path) -> list[Run]:
    """The run that ``word`` is, or those directly in it."""
    if sources.is_url(word):
        return [run.fetched(cache) for run in remote.runs_at(str(word))]
    path = sources.path_of(word)
    if is_run(path):
        return [open_run(path)]
    return runs_in(path) if path.is_dir() else []


def _cached(word: Path | str, cache: Path, warn: Warn) -> list[Run]:
    """The runs of the profiles at ``word``, read now or before."""
    runs: list[Run] = []
    refused: list[LstmprofError] = []
    groups = sources.groups(word)
    for name, group in zip(run_names(word, groups), groups, strict=True):
        readers = [__version__, str(SCHEMA_VERSION), _annotation(Path(annotate.__file__).parent)]
        key = "|".join([*(source.stamp for source in group), *readers])
        folder = cache / hashlib.sha256(key.encode()).hexdigest()[:20]
        runs_before = runs_in(folder) if folder.is_dir() else []
        if runs_before:
            runs += runs_before
            continue
        done = Task(group, name, folder, force=True, step_range=None).done()
        runs += [run for run in done.runs if isinstance(run, Run)]
        refused += [*done.errors, *done.foreign]
    if not runs:
        first = refused[0]
        if len(refused) == 1:
            raise first
        raise RunError(f"{word}: holds no run and no profile that can be read", str(first))
    for error in refused:
        warn(str(error))
    return runs


@lru_cache(maxsize=1)
def _annotation(folder: Path) -> str:
    """A digest of the code that fills the derived columns, which a run in the cache holds."""
    digest = hashlib.sha256()
    for source in sorted(folder.rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()
