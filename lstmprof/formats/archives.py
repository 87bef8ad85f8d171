"""The files in a tar archive, as far as it can be read: a damaged place costs what follows it.

Headers are untrusted: sizes of any length, sizes below zero that lead back to an earlier header,
headers nested without end. Links, devices and folders are no files.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass

from lstmprof.errors import ProfileError
from lstmprof.formats.raw_file import RawFile

MOST_FILES = 10_000
_AGAIN = "copy or create the archive again"
#: What ``tarfile`` raises for headers that were tampered with, beside its own errors.
_DAMAGE = (tarfile.TarError, OSError, ValueError, OverflowError, RecursionError, LookupError)


@dataclass(frozen=True)
class Member:
    """A file in an archive; ``fault`` says why it cannot be read."""

    name: str
    begin: int
    size: int
    fault: ProfileError | None = None


@dataclass(frozen=True)
class Members:
    """The files of an archive up to its end, or to the ``fault`` that hides the rest."""

    files: list[Member]
    fault: ProfileError | None


def members(raw: RawFile) -> Members:
    """The files in the archive ``raw``, in its order, ``MOST_FILES`` at most."""
    files: list[Member] = []
    try:
        with tarfile.open(fileobj=io.BytesIO(raw.content)) as tar:
            for count, info in enumerate(_headers(tar, raw)):
                if count == MOST_FILES:
                    fault = f"has more than {MOST_FILES:,} entries; only the first were read"
                    return Members(files, ProfileError(raw.path, fault, "unpack it (tar xf)"))
                if info.isfile():
                    files.append(_member(info, raw))
            rest = raw.content[tar.offset : tar.offset + tarfile.BLOCKSIZE]
    except _DAMAGE as error:
        reason = str(error) if isinstance(error, tarfile.TarError) else "invalid header"
        return Members(files, _damaged(raw, reason))
    is_end = not rest.strip(b"\0")
    return Members(files, None if is_end else _damaged(raw, f"no header at byte {tar.offset}"))


def _headers(tar: tarfile.TarFile, raw: RawFile) -> Iterator[tarfile.TarInfo]:
    """The headers of the members, each behind the one before; the last may reach beyond the end."""
    last = -1
    while info := tar.next():
        if info.size < 0 or info.offset <= last:
            raise tarfile.ReadError(f"negative size at byte {max(last, info.offset)}")
        last = info.offset
        yield info
        if tar.offset >= raw.length + tarfile.BLOCKSIZE:  # but for what fills the last block
            if not info.isfile():
                raise tarfile.ReadError(f"truncated within the member at byte {info.offset}")
            tar.offset = raw.length  # nothing can follow
            return


def _member(info: tarfile.TarInfo, raw: RawFile) -> Member:
    begin, place = info.offset_data, f"{raw.path}/{info.name}"
    fault = None
    if info.issparse():
        fault = ProfileError(place, "is a sparse file in an archive", "unpack it (tar xf)")
    elif begin + info.size > raw.length:
        there = max(0, raw.length - begin)
        fault = ProfileError(
            place, f"is truncated: the archive has {there} of its {info.size} bytes", _AGAIN
        )
    return Member(info.name, begin, info.size, fault)


def _damaged(raw: RawFile, reason: str) -> ProfileError:
    return ProfileError(raw.path, f"the tar archive is damaged ({reason})", _AGAIN)
