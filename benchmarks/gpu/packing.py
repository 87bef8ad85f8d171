"""What is brought back: runs and captures in gzipped archives of a given size, in their order.

A run that is larger than an archive may be goes without the raw profile, which its events were made
of; one that is too large even so stays, and is named.
"""

from __future__ import annotations

import dataclasses
import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.gpu import raw_captures

#: A run below this many bytes may be committed as a sample.
SAMPLE_BYTES = 2_000_000


@dataclasses.dataclass(frozen=True)
class Archive:
    """A file with its runs in it."""

    path: Path
    names: tuple[str, ...]


def folder_of(out: Path, name: str) -> Path | None:
    """The run ``name``, or the capture that is no run yet; None where there is neither."""
    for path in (out / name, raw_captures.place(out, name)):
        if path.is_dir():
            return path
    return None


def size_bytes(folder: Path) -> int:
    """Of all its files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def packed(
    out: Path, names: Sequence[str], place: Path, most_bytes: int, most: int | None = None
) -> list[Archive]:
    """Write the runs ``names`` of ``out`` to ``runs-1.tar.gz`` … in ``place``.

    None is larger than ``most_bytes``, and there are ``most`` of them at most; a run that does not
    fit is left out, a later one may still fit.
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
    bytes: int  # in an archive of its own


def _smallest_loss(out: Path, name: str, most_bytes: int) -> _Packed | None:
    """All files of the run, else those of a run less its raw profile, whichever fit."""
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
