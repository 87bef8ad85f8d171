"""Pack runs and raw captures, in order, into gzipped archives of a limited size.

If a run is too large for an archive, its raw profile is left out, because its events contain the
information. If it is still too large, the whole run is left out.
"""

from __future__ import annotations

import dataclasses
import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.gpu import raw_captures

#: A run smaller than this (in bytes) may be committed as a sample.
SAMPLE_BYTES = 2_000_000


@dataclasses.dataclass(frozen=True)
class Archive:
    """An archive file, and the names of the runs in it."""

    path: Path
    names: tuple[str, ...]


def folder_of(out: Path, name: str) -> Path | None:
    """Return the folder of the run ``name``, or of its raw capture; None if there is neither."""
    for path in (out / name, raw_captures.place(out, name)):
        if path.is_dir():
            return path
    return None


def size_bytes(folder: Path) -> int:
    """Return the total size in bytes of all files in ``folder``."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def packed(
    out: Path, names: Sequence[str], place: Path, most_bytes: int, most: int | None = None
) -> list[Archive]:
    """Write the runs ``names`` in ``out`` to archives ``runs-1.tar.gz`` … in ``place``.

    There are at most ``most`` archives of at most ``most_bytes`` each. A run that does not fit into
    any is left out.
    """
    place.mkdir(parents=True, exist_ok=True)
    groups: list[list[_Packed]] = []
    for name in names:
        one = _smallest_loss(out, name, most_bytes)
        if one is None:
            continue
        roomy = [g for g in groups if sum(p.bytes for p in g) + one.bytes <= most_bytes]
        if not roomy and len(groups) == most:
            continue
        if not roomy:
            groups.append([])
        (roomy or groups[-1:])[0].append(one)
    made = []
    for number, group in enumerate(groups, 1):
        path = place / f"runs-{number}.tar.gz"
        path.write_bytes(_archived(out, [file for one in group for file in one.files]))
        made.append(Archive(path, tuple(one.name for one in group)))
    return made


@dataclasses.dataclass(frozen=True)
class _Packed:
    name: str
    files: tuple[Path, ...]
    bytes: int  # size if packed alone


def _smallest_loss(out: Path, name: str, most_bytes: int) -> _Packed | None:
    """Return the files to pack: all of the run, or, if too large, all but the raw profile.

    Return None if neither fits into ``most_bytes``.
    """
    folder = folder_of(out, name)
    if folder is None:
        return None
    whole = tuple(sorted(path for path in folder.rglob("*") if path.is_file()))
    bare = tuple(p for p in whole if p.relative_to(folder).parts[0] != raw_captures.PROFILE)
    for files in (whole, bare) if folder == out / name else (whole,):
        size = len(_archived(out, files))
        if size <= most_bytes:
            return _Packed(name, files, size)
    return None


def _archived(out: Path, files: Sequence[Path]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz", compresslevel=6) as archive:
        for path in files:
            archive.add(path, str(path.relative_to(out)))
    return content.getvalue()
