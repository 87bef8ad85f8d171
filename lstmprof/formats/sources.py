"""Find the files of a path or URL (fsspec), and guess which files are ranks of one job.

Files are probably ranks if only digits of the names differ, as in
``worker0.1694128201545.pt.trace.json``, or if TensorFlow wrote one file per host
(``plugins/profile/<session>/<host>.xplane.pb``). ``ranks_of`` decides after reading the files.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa

from lstmprof.base.errors import (
    PERMISSIONS,
    ForeignFileError,
    ProfileError,
    is_readable_folder,
    is_url,
    url_fault,
    without_secrets,
)
from lstmprof.events import EventTable, Profile
from lstmprof.events.counters import NO_COUNTERS
from lstmprof.events.schema import COLUMNS
from lstmprof.events.spool import Chunks, Spool
from lstmprof.events.table import events_table
from lstmprof.formats import raw_file, rows
from lstmprof.formats.raw_file import Member, RawFile

#: Endings of the files in a folder that lstmprof tries to read.
_PROFILE_NAMES = (
    *(".json", ".json.gz", ".xplane.pb", ".xplane.pb.gz", ".tar", ".tar.gz", ".tgz"),
    *(".sqlite", ".sqlite.gz", ".sql", ".db", ".nsys-rep", ".qdrep"),
    *(".pftrace", ".pftrace.gz", ".perfetto-trace", ".perfetto-trace.gz", ".pickle", ".pkl"),
)
#: Parts of endings that ``profile_name`` removes from a file's name, such as ``.json``.
_ENDINGS = {f".{part}" for name in _PROFILE_NAMES for part in name.split(".")[1:]}
_ENDINGS |= {".trace", ".pt"}
_GIVE = "give a run, a folder of runs, or a profile"
_MOST_FILES = raw_file.MOST_FILES
_HEAD_BYTES = 2**16
_SESSION = re.compile(r"(^|/)plugins/profile/[^/]+$")
_VIEWER, _XPLANE = ".trace.json.gz", ".xplane.pb"
_RANK = re.compile(r"(?:rank|worker|node|host|proc(?:ess)?)[-_]?(\d+)", re.IGNORECASE)
#: Pattern of a rank in a file's name: ``rank3``, but not ``host3``.
_ONLY_RANK = re.compile(r"rank[-_]?(\d+)", re.IGNORECASE)
#: Pattern of the rank and world size that torch.profiler writes before the events.
_JOB = re.compile(
    rb'"distributedInfo":\s*\{[^{}]*?"rank":\s*(\d{1,9}),\s*"world_size":\s*(\d{1,9})\b'
)
#: Largest number in a file's name that may be a rank.
_LAST_RANK = 2**31 - 1
_MOST_DIGITS = 32
_ONE_FILE_PER_HOST = ("xplane", "trace_viewer")  # TensorFlow's profiler writes one file per host
_RAW_COLUMNS = tuple(
    c.name for c in COLUMNS if not c.derived and c.name not in ("event_id", "rank")
)


@dataclass(frozen=True)
class Source:
    """A raw profile that is loaded on demand; errors call the profile ``label``."""

    label: Path | str
    load: Callable[[], RawFile]
    stamp: str  # changes with the file's content
    folder: str = ""
    folder_numbers: tuple[int, ...] = ()  # ``node0/rank1`` -> (0, 1)

    @property
    def name(self) -> str:
        return _last_part(self.label)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Return the possible ranks: numbers in the names of the folders and of the file."""
        match = (_ONLY_RANK if self.folder_numbers else _RANK).search(self.name)
        return (*self.folder_numbers, _number(match)) if match else self.folder_numbers


@dataclass(frozen=True)
class _Archive:
    """A tar archive; a worker process gets only its source, and reads the file again."""

    source: Source

    @cached_property
    def raw(self) -> RawFile:
        return self.source.load()

    def __getstate__(self) -> dict[str, Source]:
        return {"source": self.source}


def path_of(word: Path | str) -> Path:
    """Convert a text to a path; refuse an empty text."""
    if not str(word):
        raise ProfileError("''", "empty path (perhaps an unset shell variable)", _GIVE)
    return Path(word)


def groups(word: Path | str, runs: Collection[Path] = ()) -> list[list[Source]]:
    """Return the profiles at a path or URL, grouped into possible jobs of ranks."""
    if is_url(word):
        return _at_url(str(word))
    path = path_of(word)
    if not path.is_dir():
        return _groups_in_file(_local(path), _head(path))
    listed, locked = _listed(path, runs)
    profiles = [f for f in listed if _may_be_profile(f.relative_to(path).as_posix())]
    if not profiles and not runs:
        if locked:
            raise _permission_denied(locked[0])
        raise ProfileError(path, "has no run and no profile in it", _GIVE)
    files = profiles[:_MOST_FILES]
    heads = {str(f): raw_file.unpacked_head(_head(f)) for f in files}
    archives = [f for f in files if raw_file.is_tar(heads[str(f)])]
    alone = [_local(f) for f in files if f not in archives]
    loose = _join_whole_jobs(_grouped(alone), heads)
    archived = [group for f in archives for group in _grouped(_members_or_fault(_local(f)))]
    shut = [[_refused(_local(f), _permission_denied(f))] for f in locked]
    return [*loose, *archived, *shut, *_too_many(_local(path), len(profiles))]


def _listed(folder: Path, runs: Collection[Path]) -> tuple[list[Path], list[Path]]:
    """Return (files, unreadable folders) below ``folder``; skip the folders ``runs``."""
    if not is_readable_folder(folder):
        raise _permission_denied(folder)
    files: list[Path] = []
    locked: list[Path] = []
    for place, folders, names in os.walk(folder):
        if Path(place) in runs:
            folders.clear()
            continue
        inner = [Path(place, name) for name in folders if not name.startswith(".")]
        locked += [f for f in inner if not f.is_symlink() and not is_readable_folder(f)]
        paths = [Path(place, name) for name in names]
        files += [path for path in paths if os.path.isfile(path)]  # noqa: PTH113, no error if locked
    return sorted(files), sorted(locked)


def _permission_denied(path: Path) -> ProfileError:
    return ProfileError(path, "permission denied", PERMISSIONS)


def are_hosts(group: Iterable[Source]) -> bool:
    """Return whether all files are in session folders of TensorFlow's profiler."""
    return all(_SESSION.search(source.folder) for source in group)


def _local(path: Path) -> Source:
    return Source(path, functools.partial(raw_file.load, path), _stamp(path), str(path.parent))


def _head(path: Path) -> bytes:
    try:
        if not path.is_file():  # opening a pipe would wait for its other end
            return b""
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES)
    except (OSError, ValueError):
        return b""  # ``load`` will raise the error


def _stamp(path: Path) -> str:
    try:
        facts = path.stat()
    except (OSError, ValueError):
        return ""
    return f"{_encodable(path.resolve())}|{facts.st_size}|{facts.st_mtime_ns}"


def _encodable(name: Path | str) -> str:
    r"""Return ``name`` as valid UTF-8; undecodable bytes become ``\xff``."""
    return str(name).encode(errors="surrogateescape").decode(errors="backslashreplace")


def _last_part(path: Path | str) -> str:
    """Return the name of the file, without the query of a URL."""
    text = str(path)
    return (text.partition("?")[0] if is_url(text) else text).rstrip("/").rpartition("/")[2]


def profile_name(path: Path | str) -> str:
    """Name a profile after its file, without endings such as ``.json.gz``."""
    name = _last_part(path)
    while name[name.rfind(".") :] in _ENDINGS:
        name = name[: name.rindex(".")]
    shown = "".join(c if c.isprintable() else "_" for c in name)
    return shown.lstrip(".") or "profile"


def _may_be_profile(name: str) -> bool:
    return name.endswith(_PROFILE_NAMES) and not any(p.startswith(".") for p in name.split("/"))


def _groups_in_file(source: Source, head: bytes) -> list[list[Source]]:
    """Return the groups of profiles in an archive, or a group with only the file itself."""
    return (
        _grouped(_members(source)) if raw_file.is_tar(raw_file.unpacked_head(head)) else [[source]]
    )


def _members(archive: Source) -> Iterator[Source]:
    """Yield the files of a tar archive that may be profiles."""
    packed = _Archive(archive)
    listed = raw_file.members(packed.raw)
    members = [m for m in listed.files if _may_be_profile(m.name.removeprefix("./"))]
    if listed.fault:
        if not members:
            raise listed.fault
        yield _refused(archive, listed.fault)
    if not members:
        raise ForeignFileError(packed.raw.path, "is a tar archive without a profile", _GIVE)
    for member in sorted(members, key=lambda m: m.name):
        label = f"{archive.label}/{member.name.removeprefix('./')}"
        load = functools.partial(_member, packed, label, member)
        folder = PurePosixPath(label).parent.as_posix()
        yield Source(label, load, f"{archive.stamp}|{_encodable(member.name)}", folder)


def _members_or_fault(archive: Source) -> Iterator[Source]:
    """Yield an archive's files, or a failing source if the archive is unreadable."""
    try:
        yield from _members(archive)
    except ProfileError as fault:
        yield _refused(archive, fault)


def _too_many(folder: Source, count: int) -> list[list[Source]]:
    """Return a group that raises an error on loading if there are too many files."""
    if count <= _MOST_FILES:
        return []
    fault = f"has {count:,} files; only the first {_MOST_FILES:,} were read"
    return [
        [_refused(folder, ProfileError(folder.label, fault, "give the other files separately"))]
    ]


def _refused(source: Source, fault: ProfileError) -> Source:
    return replace(source, load=functools.partial(_raise, fault))


def _raise(fault: ProfileError) -> RawFile:
    raise fault


def _member(archive: _Archive, label: str, member: Member) -> RawFile:
    if member.fault:
        raise member.fault
    content = archive.raw.content[member.begin : member.begin + member.size]
    return raw_file.raw_of_bytes(label, content)


def _grouped(sources: Iterable[Source]) -> list[list[Source]]:
    """Group files that may be ranks of one job: ``node0/rank1.json``, ``node1/rank2.json``."""
    jobs: dict[tuple[tuple[str, ...], str], list[Source]] = {}
    files = _without_viewer_copies(list(sources))
    above = len(common_folder(files).parts)
    for source in files:
        name = re.sub(r"\d+", "#", source.name)
        if _SESSION.search(source.folder):
            name = next((e for e in (_XPLANE, _VIEWER) if source.name.endswith(e)), name)
        parts = PurePosixPath(source.folder).parts
        matches = [_RANK.fullmatch(part) for part in parts[above:]]
        numbers = tuple(_number(match) for match in matches if match)
        below = (
            re.sub(r"\d+", "#", part) if match else part
            for part, match in zip(parts[above:], matches, strict=True)
        )
        job = jobs.setdefault(((*parts[:above], *below), name), [])
        job.append(replace(source, folder_numbers=numbers))
    return list(jobs.values())


def common_folder(group: Sequence[Source]) -> PurePosixPath:
    parts = [PurePosixPath(source.folder).parts for source in group]
    alike = itertools.takewhile(lambda column: len(set(column)) == 1, zip(*parts, strict=False))
    return PurePosixPath(*(part for part, *_ in alike))


def are_apart(group: Sequence[Source]) -> bool:
    """Return whether the files lie in different folders."""
    return len({source.folder for source in group}) > 1


def _number(match: re.Match[str]) -> int:
    return int(match.group(1)[:_MOST_DIGITS])


def _join_whole_jobs(groups: list[list[Source]], heads: Mapping[str, bytes]) -> list[list[Source]]:
    """Join groups that together have all ranks of a torch.profiler job."""
    ranks_in: dict[int, list[int]] = {}  # by the place of the group
    folder_of: dict[int, tuple[tuple[str, ...], int]] = {}
    for place, group in enumerate(groups):
        jobs = [_JOB.search(heads.get(str(source.label), b"")) for source in group]
        numbers = [(int(job[1]), int(job[2])) for job in jobs if job]
        sizes = {size for _, size in numbers}
        if len(numbers) == len(group) and len(sizes) == 1 and len(group) < (size := sizes.pop()):
            ranks_in[place] = [rank for rank, _ in numbers]
            folder_of[place] = (common_folder(group).parts, size)
    joined = list(groups)
    depths = [len(parts) for parts, _ in folder_of.values()]
    # inner folders first
    for depth in range(max(depths, default=0), -1, -1):
        below: dict[tuple[tuple[str, ...], int], list[int]] = {}
        for place, (parts, size) in folder_of.items():
            if len(parts) >= depth:
                below.setdefault((parts[:depth], size), []).append(place)
        for (_, size), places in below.items():
            if sorted(rank for place in places for rank in ranks_in[place]) == list(range(size)):
                joined[places[0]] = [source for place in places for source in groups[place]]
                for place in places:
                    del folder_of[place]
                for place in places[1:]:
                    joined[place] = []
    return [group for group in joined if group]


def _without_viewer_copies(sources: list[Source]) -> list[Source]:
    """Drop the trace-viewer copy of each XPlane file."""
    planes = {str(s.label).removesuffix(_XPLANE) for s in sources if s.name.endswith(_XPLANE)}
    return [
        s
        for s in sources
        if not (s.name.endswith(_VIEWER) and str(s.label).removesuffix(_VIEWER) in planes)
    ]


def _at_url(url: str) -> list[list[Source]]:
    import fsspec

    try:
        system, path = fsspec.core.url_to_fs(url)
        # Avoid isdir, which downloads the file over HTTP.
        if system.info(path)["type"] != "directory" and not url.endswith("/"):
            _check_plain(system, path, url)
            with system.open(path, "rb") as file:
                head = file.read(_HEAD_BYTES)
            return _groups_in_file(_remote(url, path, url, system.ukey(path)), head)
        names = sorted(n for n in system.find(path) if _may_be_profile(n.removeprefix(path)))
    except Exception as error:  # whatever a protocol's library raises
        raise _unreachable(url, error) from error
    if not names:
        raise ProfileError(url, "has no profile in it", _GIVE)
    remote_files = [
        _remote(url, name, system.unstrip_protocol(name), system.ukey(name))
        for name in names[:_MOST_FILES]
    ]
    return [*_grouped(remote_files), *_too_many(replace(remote_files[0], label=url), len(names))]


def _remote(word: str, path: str, url: str, stamp: str) -> Source:
    folder = PurePosixPath(path).parent.as_posix()
    return Source(
        url,
        functools.partial(_downloaded, word, path, url),
        f"{without_secrets(url)}|{stamp}",
        folder,
    )


def _downloaded(word: str, path: str, url: str) -> RawFile:
    import fsspec

    try:
        system, _ = fsspec.core.url_to_fs(word)
        _check_plain(system, path, url)
        with system.open(path, "rb") as file:
            content = file.read(raw_file.MAX_BYTES + 1)
    except Exception as error:  # whatever a protocol's library raises
        raise _unreachable(url, error) from error
    if len(content) > raw_file.MAX_BYTES:
        raise ProfileError(url, f"is larger than {raw_file.MAX_BYTES} bytes", "profile fewer steps")
    return raw_file.raw_of_bytes(url, content)


def _check_plain(system: Any, path: str, url: str) -> None:
    """Refuse a local pipe or device, because reading it could block."""
    if getattr(system, "local_file", False) and not Path(path).is_file():
        raise ProfileError(url, "is not a regular file", "give the profile's file")


def _unreachable(url: str, error: Exception) -> ProfileError:
    if isinstance(error, ProfileError):
        return error
    reason, next_step = url_fault(url, error)
    return ProfileError(url, f"cannot be reached ({reason})", next_step)


def ranks_of(group: Sequence[Source], profiles: Sequence[Profile]) -> list[int] | None:
    """Return the rank of each profile, or None if the profiles are not of one job."""
    if len({profile.format for profile in profiles}) > 1:
        return None
    if len({p.metadata.get("world_size") for p in profiles} - {None}) > 1:
        return None
    ranks: Sequence[Any] = [profile.metadata.get("rank") for profile in profiles]
    if all(rank is None for rank in ranks):
        if any(source.numbers for source in group):
            ranks = _ranks_in_names([source.numbers for source in group])
        elif profiles[0].format in _ONE_FILE_PER_HOST:
            ranks = range(len(profiles))
    whole = [rank for rank in ranks if isinstance(rank, int) and 0 <= rank <= _LAST_RANK]
    if len(set(whole)) < len(profiles) or not _agree_on_groups(whole, profiles):
        return None
    return whole if not are_apart(group) or _overlap(profiles) else None


def _ranks_in_names(numbers: Sequence[tuple[int, ...]]) -> Sequence[int]:
    """Find ranks in names: ``node1/rank0``, ``node1/rank1`` -> 0, 1."""
    if len({len(of_file) for of_file in numbers}) > 1:
        return []
    columns: list[tuple[int, ...]] = list(zip(*numbers, strict=True))
    for column in reversed(columns):
        if len(set(column)) == len(numbers):
            return column
    # number files in the order of names: ``node0/rank0``, ``node0/rank1``, ``node1/rank0``
    place = {of_file: number for number, of_file in enumerate(sorted(set(numbers)))}
    return [place[of_file] for of_file in numbers]


def _agree_on_groups(ranks: Sequence[int], profiles: Sequence[Profile]) -> bool:
    """Return whether the profiles agree about the members of each process group."""
    groups_of = {r: p.process_groups for r, p in zip(ranks, profiles, strict=True)}
    return all(
        group in groups_of[member]
        for groups in groups_of.values()
        for group in groups
        for member in group
        if groups_of.get(member)
    )


def _overlap(profiles: Sequence[Profile]) -> bool:
    """Return whether all profiles that have a date overlap in time."""
    dated = [(p.base_ns, p.events) for p in profiles if p.base_ns is not None]
    if len(dated) < 2:
        return True
    begins, ends = [], []
    for base_ns, events in dated:
        parts = [part for part in events.parts(("start_ns", "dur_ns")) if len(part)]
        begins.append(base_ns + min((int(part.start_ns.min()) for part in parts), default=0))
        ends.append(base_ns + max((int(part.end_ns.max()) for part in parts), default=0))
    return max(begins) <= min(ends)


def join_ranks(ranks: Sequence[int], profiles: Sequence[Profile]) -> Profile:
    """Join the profiles of all ranks into one."""
    order = sorted(range(len(ranks)), key=lambda i: ranks[i])
    ranks, profiles = [ranks[i] for i in order], [profiles[i] for i in order]
    bases = [p.base_ns for p in profiles if p.base_ns is not None]
    aligned = len(bases) == len(profiles) and max(bases) - min(bases) <= rows.MAX_NS
    # without dates, each rank's times count from its own start
    base_ns = min(bases) if aligned else None
    shifts = [base - min(bases) for base in bases] if aligned else [0] * len(profiles)
    chunks = Chunks()
    for rank, profile, shift in zip(ranks, profiles, shifts, strict=True):
        for part in profile.events.parts(_RAW_COLUMNS):
            start = pa.compute.add(part.column("start_ns"), shift)
            raw = part.select(_RAW_COLUMNS)
            raw = raw.set_column(raw.schema.get_field_index("start_ns"), "start_ns", start)
            chunks.add(raw.append_column("rank", pa.array([rank] * len(part), pa.int64())))
    moved = zip(profiles, shifts, ranks, strict=True)
    names = {number: name for profile in profiles for number, name in profile.device_names.items()}
    notes = [
        f"rank {rank}: {note}"
        for rank, profile in zip(ranks, profiles, strict=True)
        for note in profile.notes
    ]
    return Profile(
        format=profiles[0].format,
        base_ns=base_ns,
        events=_events(chunks) or profiles[0].events,
        counters=sum((p.counters.shifted(ns, rank) for p, ns, rank in moved), NO_COUNTERS),
        device_names=names,
        device_facts={n: facts for p in profiles for n, facts in p.device_facts.items()},
        accelerators=tuple(dict.fromkeys(a for p in profiles for a in p.accelerators)),
        gpu_complaint=next((p.gpu_complaint for p in profiles if p.gpu_complaint), None),
        notes=tuple(notes),
        metadata={"ranks": {str(r): p.metadata for r, p in zip(ranks, profiles, strict=True)}},
    )


def _events(chunks: Chunks) -> EventTable | None:
    columns = chunks.columns()
    if columns is None:
        return None
    if isinstance(columns, Spool):
        return columns.events(0, None)
    return events_table({name: columns.column(name) for name in columns.column_names})
