"""The bytes of a raw profile: found, unpacked within bounds, and parsed as JSON at most once."""

from __future__ import annotations

import gzip
import io
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from lstmprof.errors import ProfileError
from lstmprof.formats import json_text

GZIP_MAGIC = b"\x1f\x8b"
#: The most that is read into memory; the largest traces that Perfetto still opens are half of it.
MAX_BYTES = 4 * 2**30
#: gzip packs real traces 10 to 50 times (a 35 MB Kineto file: 30) and zeros 1030 times. Past
#: ``FREE_BYTES`` a file that unpacks to more than ``MAX_RATIO`` times itself is a bomb.
MAX_RATIO = 200
FREE_BYTES = 64 * 2**20
_CHUNK_BYTES = 2**20


@dataclass(frozen=True)
class RawFile:
    """A raw profile in memory; ``content`` is decompressed."""

    path: Path | str  # where the user finds it: a file, an archive's member, a URL
    content: bytes

    @cached_property
    def looks_like_json(self) -> bool:
        """Whether the first two characters open JSON; a protobuf may begin with a line break."""
        head = self.content[:4096].removeprefix(b"\xef\xbb\xbf").lstrip()
        inside = head[1:].lstrip()[:1]
        return head[:1] in (b"{", b"[") and inside in (b"", b'"', b"{", b"[", b"}", b"]")

    @cached_property
    def json(self) -> Any:
        """The file as JSON, floats as the text they were written in; ProfileError if it is none."""
        return json_text.document(self.path, self.content)


def load(path: Path) -> RawFile:
    """The file at ``path``, unpacked if it is gzipped.

    Raises:
        ProfileError: missing, unreadable, empty, no plain file, a damaged gzip or too large.
    """
    try:
        if path.is_dir():
            raise ProfileError(path, "is a directory", "give a profile's file")
        if path.exists() and not path.is_file():
            raise ProfileError(path, "is no plain file", "give the profile's file")
        if path.stat().st_size > MAX_BYTES:
            raise ProfileError(path, f"is larger than {MAX_BYTES} bytes", "profile fewer steps")
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise ProfileError(path, "there is no such file", "check the path") from error
    except PermissionError as error:
        raise ProfileError(path, "may not be read", "check its permissions") from error
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        reason = getattr(error, "strerror", None) or str(error)
        raise ProfileError(path, f"cannot be read ({reason})", "check the path") from error
    return of_bytes(path, content)


def of_bytes(path: Path | str, content: bytes) -> RawFile:
    """The raw profile whose file holds ``content``, unpacked if it is gzipped.

    Raises:
        ProfileError: empty, a damaged gzip or too large.
    """
    if content.startswith(GZIP_MAGIC):
        content = _unpacked(path, content)
    if not content.strip():
        raise ProfileError(path, "is empty", "record the profile again")
    return RawFile(path, content)


def is_tar(content: bytes) -> bool:
    """Whether ``content`` begins as a tar archive does."""
    return content[257:262] == b"ustar"


def unpacked_head(head: bytes) -> bytes:
    """The first bytes of a file, unpacked if it is gzipped; fewer where the gzip is damaged."""
    if not head.startswith(GZIP_MAGIC):
        return head
    try:
        return zlib.decompressobj(wbits=31).decompress(head, 512)
    except zlib.error:
        return b""


def _unpacked(path: Path | str, packed: bytes) -> bytes:
    limit = min(MAX_BYTES, max(FREE_BYTES, MAX_RATIO * len(packed)))
    unpacked = bytearray()
    with gzip.GzipFile(fileobj=io.BytesIO(packed)) as stream:
        while True:
            try:
                chunk = stream.read(_CHUNK_BYTES)
            except EOFError as error:
                raise ProfileError(
                    path,
                    f"the gzip stream is cut short at byte {len(packed)}"
                    f" (after {len(unpacked)} unpacked bytes)",
                    "copy or record the file again",
                ) from error
            except (OSError, zlib.error) as error:
                raise ProfileError(
                    path,
                    f"the gzip stream is damaged after {len(unpacked)} unpacked bytes ({error})",
                    "copy or record the file again",
                ) from error
            if not chunk:
                return bytes(unpacked)
            unpacked += chunk
            if len(unpacked) > limit:
                raise ProfileError(
                    path,
                    f"its {len(packed)} gzipped bytes unpack to more than {limit}: a gzip bomb",
                    "unpack it yourself if you trust it, and give the unpacked file",
                )
