"""The bytes of a raw profile: found, unpacked within bounds, and parsed as JSON at most once."""

from __future__ import annotations

import gzip
import io
import itertools
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

#: What profiles are called, for naming those in a directory; nothing is recognised by these.
_PROFILE_NAMES = (".json", ".json.gz", ".xplane.pb", ".xplane.pb.gz", ".sqlite", ".nsys-rep")


@dataclass(frozen=True)
class RawFile:
    """A raw profile in memory; ``content`` is decompressed."""

    path: Path
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
            raise _directory(path)
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
    if content.startswith(GZIP_MAGIC):
        content = _unpacked(path, content)
    if not content.strip():
        raise ProfileError(path, "is empty", "record the profile again")
    return RawFile(path, content)


def _unpacked(path: Path, packed: bytes) -> bytes:
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


def _directory(path: Path) -> ProfileError:
    found = itertools.islice(path.rglob("*"), 10_000)
    profiles = sorted(str(f) for f in found if f.name.endswith(_PROFILE_NAMES))
    if not profiles:
        return ProfileError(path, "is a directory without profiles", "give a profile's file")
    more = f" (or one of {len(profiles) - 1} others)" if len(profiles) > 1 else ""
    return ProfileError(path, "is a directory", f"give the file, such as {profiles[0]}{more}")
