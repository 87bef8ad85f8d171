"""Make runs from raw profiles: find files, read profiles, join the ranks of a job, write a run.

A word is the user's argument: a file, a folder, a tar archive, or a URL (``formats.sources``). A
group is a list of files that may become one run, such as ``[rank0.json, rank1.json]``.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import itertools
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

from lstmprof import formats
from lstmprof.base.errors import (
    DefectError,
    ForeignFileError,
    LstmprofError,
    ProfileError,
    RunError,
    UsageError,
    command_line,
    one_line,
    without_secrets,
)
from lstmprof.base.package import __version__
from lstmprof.events import Profile
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.calls import coverage
from lstmprof.events.annotate.recorded import recorded
from lstmprof.events.schema import LACKING
from lstmprof.events.table import EventTable
from lstmprof.formats import sources
from lstmprof.formats.sources import Source, profile_name
from lstmprof.runs import remote
from lstmprof.runs.border import border, from_good
from lstmprof.runs.directory import MOST_NAME_BYTES, cache_folder, new_run, staging, usable_cache
from lstmprof.runs.joined_profiles import ProfileCollection, Read, concurrently, in_files
from lstmprof.runs.metadata import run_info
from lstmprof.runs.remote import RemoteRun
from lstmprof.runs.run import Run, open_run, write_events, write_info

_DIGEST_DIGITS = 8


def run_names(word: Path | str, groups: Sequence[Sequence[Source]]) -> list[str]:
    """Return a unique run name for each group of files."""
    if len(groups) == 1 and len(groups[0]) > 1:
        return [_fitting(profile_name(word))]
    names = [_common_name(group) for group in groups]
    names = [
        f"{profile_name(_folder_name(group))}--{name}" if is_shared else name
        for name, is_shared, group in zip(names, _shared(names), groups, strict=True)
    ]
    return [
        _fitting(name, str(group[0].label).removeprefix(str(word)) if is_shared else "")
        for name, is_shared, group in zip(names, _shared(names), groups, strict=True)
    ]


def _shared(names: Sequence[str]) -> list[bool]:
    counts = Counter(map(_fitting, names))
    return [counts[_fitting(name)] > 1 for name in names]


def _fitting(name: str, place: str = "") -> str:
    """Cut a run name that is too long. A hash keeps cut and repeated names unique."""
    if not place and len(name.encode()) <= MOST_NAME_BYTES:
        return name
    digest = hashlib.sha256(f"{place}|{name}".encode(errors="surrogateescape")).hexdigest()
    ending = f"-{digest[:_DIGEST_DIGITS]}"
    room = MOST_NAME_BYTES - len(ending)
    return name.encode()[:room].decode(errors="ignore") + ending


def _folder_name(group: Sequence[Source]) -> str:
    return sources.common_folder(group).name


def _common_name(group: Sequence[Source]) -> str:
    names = [profile_name(source.name) for source in group]
    if len(names) == 1:
        return names[0]
    if sources.are_apart(group) and (folder := _folder_name(group)):
        return profile_name(folder)
    alike = itertools.takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    prefix = re.sub(r"[-_.]?(rank|worker|host|node)?[-_.\d]*$", "", "".join(a for a, *_ in alike))
    return prefix or _folder_name(group) or "profile"


#: Most missing files that a message names.
_MOST_NAMED = 8
_Error = TypeVar("_Error", bound=LstmprofError)


@dataclass(frozen=True)
class Ingested:
    """The result of making runs from some files."""

    runs: list[Run | RemoteRun] = field(default_factory=list)
    errors: list[LstmprofError] = field(default_factory=list)  # about unreadable files
    # errors about files that are no profiles
    foreign: list[ForeignFileError] = field(default_factory=list)
    # earlier runs of these files, which lstmprof reuses
    made_before: list[Run | RemoteRun] = field(default_factory=list)
    read: list[Read] = field(default_factory=list)  # profiles still to be joined to a run

    def __add__(self, other: Ingested) -> Ingested:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Ingested(*(ours + theirs for ours, theirs in pairs))


NOTHING = Ingested()


def ingest_profiles(
    word: Path | str,
    out: Path | str,
    *,
    name: str | None = None,
    force: bool = False,
    step_range: str | None = None,
) -> Ingested:
    """Make runs in ``out`` from the raw profiles at a path or URL."""
    done = NOTHING
    place = remote.path_or_url(out)
    for task in tasks(word, place, name=name, force=force, step_range=step_range):
        done += task.done()
    return done


@dataclass(frozen=True)
class Task:
    """Makes a run from a group of files, such as the files of a job's ranks."""

    group: Sequence[Source]
    name: str
    out: Path | str  # folder or URL
    force: bool
    step_range: str | None  # regular expression of the host ranges that are the steps
    command: str = field(default_factory=lambda: command_line(sys.argv))

    @property
    def label(self) -> Path | str:
        """Return the path or URL of the first file, for error messages."""
        return self.group[0].label

    @property
    def file_bytes(self) -> int:
        return sum(_file_bytes(source) for source in self.group)

    def done(self) -> Ingested:
        return self.joined(map(read, self.group))

    def joined(self, parts: Iterable[Ingested]) -> Ingested:
        """Write one run for the ranks of a job, or one run per file."""
        profiles, done, failed = ProfileCollection(), NOTHING, []
        for source, part in zip(self.group, parts, strict=True):
            errors = part.errors
            try:
                profiles.add(part.read)
            except LstmprofError as error:
                errors = [_bare(error)]
            done += Ingested(errors=errors, foreign=part.foreign)
            failed += [source] if errors else []
        runs = _runs(self.name, profiles.profiles)
        for run_name, members in runs:
            missing = failed if len(runs) == 1 else []
            done += _ingested(replace(self, name=run_name), members, missing)
        return done

    def made_before(self) -> Ingested | None:
        """Return an earlier run of these files for reuse, or None."""
        run = None if self.force else _run_at(self.out, self.name)
        if run is None:
            return None
        stamps = tuple(source.stamp for source in self.group)
        made_of = (run.info.source_stamps, run.info.step_range)
        same = made_of == (stamps, self.step_range) and run.info.schema_version in LACKING
        return Ingested(made_before=[run]) if same else None


def _file_bytes(source: Source) -> int:
    """Return the size of a file in bytes, or 0 if the file is not local."""
    is_local = isinstance(source.label, Path) and source.label.is_file()
    return Path(source.label).stat().st_size if is_local else 0


def _run_at(out: Path | str, name: str) -> Run | RemoteRun | None:
    """Return the run ``name`` in ``out``, if the run exists and is complete."""
    if isinstance(out, str):
        return remote.whole_run_at(f"{out}/{name}")
    try:
        return open_run(out / name)
    except RunError:
        return None


def tasks(
    word: Path | str, out: Path | str, *, name: str | None, force: bool, step_range: str | None
) -> list[Task]:
    """Return the tasks that make runs from the files at a path or URL."""
    groups = [part for group in sources.groups(word) for part in _parts(group)]
    if name and len(groups) > 1:
        raise UsageError(
            f"{word}: has {len(groups)} profiles, but --name needs one",
            "omit --name, or give one file",
        )
    names = [name] if name else run_names(word, groups)
    return [
        Task(group, run_name, out, force, step_range)
        for run_name, group in zip(names, groups, strict=True)
    ]


def _parts(group: list[Source]) -> list[list[Source]]:
    """Split a group into single files if the files cannot be ranks of one job."""
    if len(group) < 2 or sources.are_hosts(group):
        return [group]
    # decide by one file: the smallest readable file without a rank in its name or folder
    silent = [source for source in group if not source.numbers]
    for source in sorted(silent, key=_file_bytes):
        try:
            with border(source.label):
                profile = formats.read_raw(source.label, source.load)
        except LstmprofError:
            continue
        one_job = sources.ranks_of([source], [profile]) is not None
        return [group] if one_job else [[source] for source in group]
    return [group]


def read(source: Source, base: Path | None = None) -> Ingested:
    """Read a file; return its profile or its error."""
    try:
        with border(source.label):
            profile = formats.read_raw(source.label, source.load)
            return Ingested(read=[(source, in_files(profile, base) if base else profile)])
    except ForeignFileError as error:
        return Ingested(foreign=[_bare(error)])
    except LstmprofError as error:
        return Ingested(errors=[_bare(error)])


def _ingested(task: Task, members: Sequence[Read], missing: Sequence[Source] = ()) -> Ingested:
    """Write one run of all usable files; if this fails, write one run per file."""
    errors: list[LstmprofError] = []

    def made(good: Sequence[Read]) -> tuple[Sequence[Read], Profile]:
        profiles = [profile for _, profile in good]
        # join the profiles of several files, which are ranks of one job (checked by ``_runs``)
        profile = sources.join_ranks(_ranks(good) or (), profiles) if good[1:] else profiles[0]
        steps = annotated(profile.events, captured=False, step_range=task.step_range)
        return good, replace(profile, events=steps)

    try:
        good, profile = from_good(
            made, members, lambda member: member[0].label, errors.append, together=task.label
        )
        with border(task.label):
            group = [source for source, _ in good]
            labels = {source.label for source in group}
            spoilt = [source for source, _ in members if source.label not in labels]
            profile = _with_note_on_missing(profile, good, [*missing, *spoilt])
            return Ingested([_written(replace(task, group=group), profile)], errors)
    except LstmprofError as error:
        done = Ingested(errors=[*errors, error])
        if len(members) < 2 or not isinstance(error, (ProfileError, DefectError)):
            return done
    alone = NOTHING
    for name, member in _named([[member] for member in members]):
        alone += _ingested(replace(task, name=name), member)
    return done + alone if alone.runs else alone


def _with_note_on_missing(
    profile: Profile, good: Sequence[Read], missing: Sequence[Source]
) -> Profile:
    """Add a note about the files of the job that could not be read."""
    if not missing or _ranks(good) is None:
        return profile
    names = [source.name for source in missing[:_MOST_NAMED]]
    more = [f"{len(missing) - _MOST_NAMED} more"] if len(missing) > _MOST_NAMED else []
    note = (
        f"{len(missing)} of the {len(good) + len(missing)} files of this job could not be read, so "
        f"their ranks are missing: {', '.join([*map(one_line, names), *more])}"
    )
    return replace(profile, notes=(note, *profile.notes))


def _bare(error: _Error) -> _Error:
    """Remove an error's traceback, which keeps the file's content in memory."""
    error.__cause__ = error.__context__ = error.__traceback__ = None
    return error


def _written(task: Task, profile: Profile) -> Run | RemoteRun:
    if isinstance(task.out, Path):
        return _written_to(task.out, task, profile)
    with staging(usable_cache(cache_folder()) / "uploads") as folder:
        run = _written_to(folder, task, profile)
        return remote.uploaded(run, f"{task.out}/{task.name}", force=task.force)


INGESTED = "ingest"


def _written_to(out: Path, task: Task, profile: Profile) -> Run:
    """Write an annotated profile as a run into the folder ``out``."""

    def written(stop: Event) -> None:
        write_events(folder, profile.events, profile.counters, stop)

    labels = [source.label for source in task.group]
    with new_run(out, task.name, force=task.force) as folder:
        with concurrently(written):
            counted = described(task.name, profile, profile.events)
        info = run_info(
            {
                **counted,
                "source": INGESTED,
                "command": task.command,
                "source_paths": [
                    str(x.resolve()) if isinstance(x, Path) else without_secrets(x) for x in labels
                ],
                "source_stamps": [source.stamp for source in task.group],
                "step_range": task.step_range or None,
            }
        )
        write_info(folder, info)
    return open_run(out / task.name)


def described(name: str, profile: Profile, events: EventTable) -> dict[str, Any]:
    """Return a profile's fields in run.json; ``events`` must have all derived columns."""
    return {
        "name": name,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": command_line(sys.argv),
        "lstmprof_version": __version__,
        "base_ns": profile.base_ns,
        "profile_format": profile.format,
        "profile_metadata": dict(profile.metadata),
        "device_names": {str(k): v for k, v in profile.device_names.items()},
        "device_facts": {str(k): dataclasses.asdict(v) for k, v in profile.device_facts.items()},
        "accelerators": list(profile.accelerators),
        "gpu_complaint": profile.gpu_complaint,
        "notes": list(profile.notes),
        "recorded": [dataclasses.asdict(of_rank) for of_rank in recorded(events)],
        "links": dataclasses.asdict(coverage(events)),
    }


def _runs(name: str, members: Sequence[Read]) -> list[tuple[str, Sequence[Read]]]:
    """Divide the read files into runs, by job; return (run name, files) of each run."""
    if len(members) < 2:
        return [(name, members)] if members else []
    if _ranks(members):
        return [(name, members)]
    folders: dict[str, list[Read]] = {}
    for member in members:
        folders.setdefault(member[0].folder, []).append(member)
    jobs = [part for part in folders.values() if len(folders) > 1 and _ranks(part)]
    joined = {id(member) for job in jobs for member in job}
    return _named([*jobs, *([member] for member in members if id(member) not in joined)])


def _named(parts: Sequence[Sequence[Read]]) -> list[tuple[str, Sequence[Read]]]:
    """Choose a run name for each group of files; return (run name, files) pairs."""
    names = run_names("", [[source for source, _ in part] for part in parts])
    return list(zip(names, parts, strict=True))


def _ranks(members: Sequence[Read]) -> list[int] | None:
    """Return the rank of each file, or None if the files are not one job."""
    return sources.ranks_of([file for file, _ in members], [profile for _, profile in members])
