"""Open raw profiles: unpack gzip, list tar archives, parse and repair JSON.

Files are untrusted: a file may be a gzip bomb, or a tar header may contain a negative size. JSON of
profilers may contain ``[1,]``, ``nan``, or single backslashes in a Windows path.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import re
import tarfile
import weakref
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from lstmprof.base.errors import PERMISSIONS, ProfileError
from lstmprof.base.scratch import made_temporary_folder, remove, room_in, temporary_folder

GZIP_MAGIC = b"\x1f\x8b"
#: Largest file in bytes that is read: twice the largest file that Perfetto opens.
MAX_BYTES = 4 * 2**30
#: Largest ratio of unpacked to gzipped size above ``FREE_BYTES`` (traces: 10 to 50, zeros: 1030).
MAX_RATIO = 200
FREE_BYTES = 8 * 2**20
#: Bytes of memory that parsed JSON may take, whatever the size of the file.
FREE_OBJECT_BYTES = 2**30
#: Largest memory of parsed JSON per byte of the file: traces take 5 to 10, hostile ``{},{},…`` 25.
_MOST_GROWTH = 16
#: Character of JSON -> bytes of memory that its parsed value takes, measured in traces.
_OBJECT_BYTES = ((b"{", 200), (b"[", 72), (b",", 40), (b'"', 15), (b".", 24))
_CHUNK_BYTES = 2**20
_HEAD_BYTES = 4096

_MOST_TRIES = 16
#: Beginning of Python's error message about text after a JSON document.
_EXTRA_TEXT = "Extra data"
_BOM = b"\xef\xbb\xbf"
# Pattern of JSON to repair; ++ and *+ prevent slow backtracking in hostile text.
_TO_MEND = re.compile(
    r'"(?:[^"\\]++|\\.)*+"?|\[\s*+,|,(?=\s*+[\]}])|-?\b(?:nan|inf)\b',
    re.DOTALL | re.IGNORECASE,
)
_BAD_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|\\')
_CUT_TOKEN = re.compile(r"[-+.\w]{0,9}\s*\Z")


class OpenFile:
    """A file that stays open while this object exists."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("rb", buffering=0)
        weakref.finalize(self, self._file.close)
        self.length = os.fstat(self._file.fileno()).st_size

    def part(self, start: int, stop: int) -> bytes:
        """Return the bytes from ``start`` to ``stop``, or to the file's end."""
        self._file.seek(start)
        parts = []
        while start < stop and (read := self._file.read(stop - start)):
            parts.append(read)
            start += len(read)
        return b"".join(parts)


@dataclass(frozen=True)
class RawFile:
    """A raw profile after unpacking, in memory or in an open file."""

    path: Path | str  # for messages: a path, a place in an archive, or a URL
    data: bytes | OpenFile
    packed_bytes: int | None = None  # size before unpacking

    @property
    def length(self) -> int:
        return self.data.length if isinstance(self.data, OpenFile) else len(self.data)

    def part(self, start: int, stop: int) -> bytes:
        """Return the bytes from ``start`` to ``stop``, or to the file's end."""
        if not isinstance(self.data, OpenFile):
            return self.data[start:stop]
        try:
            return self.data.part(start, min(stop, self.length))
        except OSError as error:
            raise _unreadable(self.path, error) from error

    @cached_property
    def content(self) -> bytes:
        """Return the whole file as bytes, which stay in memory."""
        return self.data if isinstance(self.data, bytes) else self.part(0, self.length)

    @property
    def head(self) -> RawFile:
        """Return the first 4 KiB, for quick checks."""
        return RawFile(self.path, self.part(0, _HEAD_BYTES))

    @cached_property
    def looks_like_json(self) -> bool:
        """Return whether the first characters may begin JSON, not protobuf."""
        head = self.part(0, _HEAD_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip()
        inside = head[1:].lstrip()[:1]
        return head[:1] in (b"{", b"[") and inside in (b"", b'"', b"{", b"[", b"}", b"]")

    @cached_property
    def json(self) -> Any:
        """Return the parsed JSON, with floats as texts."""
        return json_document(self.path, self.content, self.most_object_bytes)

    @property
    def most_object_bytes(self) -> int:
        """Return how much memory the parsed JSON may take."""
        file_bytes = self.length if self.packed_bytes is None else self.packed_bytes
        return max(FREE_OBJECT_BYTES + 4 * file_bytes, _MOST_GROWTH * file_bytes)

    @contextlib.contextmanager
    def on_disk(self) -> Iterator[Path]:
        """Yield the path of the unpacked profile, which may be a temporary file."""
        if isinstance(self.data, OpenFile):
            yield self.data.path
            return
        with temporary_folder() as folder:
            path = folder / "profile"
            with room_in(folder):
                path.write_bytes(self.data)
            yield path


def load(path: Path) -> RawFile:
    """Open a file, and unpack gzip."""
    try:
        if path.is_dir():
            raise ProfileError(path, "is a directory", "give a file")
        if path.exists() and not path.is_file():
            raise ProfileError(path, "is not a regular file", "give the profile's file")
        file = OpenFile(path)
        if file.length > MAX_BYTES:
            raise ProfileError(path, f"is larger than {MAX_BYTES} bytes", "profile fewer steps")
        return _unpacked_and_filled(RawFile(path, file))
    except FileNotFoundError as error:
        raise ProfileError(path, "no such file", "check the path") from error
    except PermissionError as error:
        raise ProfileError(path, "permission denied", PERMISSIONS) from error
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        raise _unreadable(path, error) from error


def _unreadable(path: Path | str, error: OSError | ValueError) -> ProfileError:
    reason = getattr(error, "strerror", None) or str(error)
    return ProfileError(path, f"cannot be read ({reason})", "check the path")


def raw_of_bytes(path: Path | str, content: bytes) -> RawFile:
    """Make a raw profile from bytes; errors call the profile ``path``."""
    return _unpacked_and_filled(RawFile(path, content))


def _unpacked_and_filled(raw: RawFile) -> RawFile:
    if raw.part(0, len(GZIP_MAGIC)) == GZIP_MAGIC:
        raw = _unpacked(raw)
    if not any(
        raw.part(at, at + _CHUNK_BYTES).strip() for at in range(0, raw.length, _CHUNK_BYTES)
    ):
        raise ProfileError(raw.path, "is empty", "record the profile again")
    return raw


def is_tar(content: bytes) -> bool:
    return content[257:262] == b"ustar"


def unpacked_head(head: bytes) -> bytes:
    """Unpack the first bytes of a file if the file is gzipped."""
    if not head.startswith(GZIP_MAGIC):
        return head
    try:
        return zlib.decompressobj(wbits=31).decompress(head, 2**16)
    except zlib.error:
        return b""


def _unpacked(raw: RawFile) -> RawFile:
    """Unpack gzip into memory, or into a temporary file if the gzip exceeds 1 MiB."""
    if raw.length <= _CHUNK_BYTES:
        return RawFile(raw.path, b"".join(_unpacked_chunks(raw)), raw.length)
    folder = made_temporary_folder()
    try:
        path = folder / "profile"
        with room_in(folder), path.open("wb") as file:
            file.writelines(_unpacked_chunks(raw))
        unpacked = OpenFile(path)
    except BaseException:
        remove(folder)
        raise
    weakref.finalize(unpacked, remove, folder)
    return RawFile(raw.path, unpacked, raw.length)


def _unpacked_chunks(raw: RawFile) -> Iterator[bytes]:
    limit = min(MAX_BYTES, max(FREE_BYTES, MAX_RATIO * raw.length))
    length = 0
    with _stream(raw) as packed, gzip.GzipFile(fileobj=packed) as stream:
        while chunk := _next_chunk(raw, stream, length):
            length += len(chunk)
            if length > limit:
                raise ProfileError(
                    raw.path,
                    f"its {raw.length} gzipped bytes unpack to more than {limit} bytes, as in "
                    "a gzip bomb",
                    "if you trust the file, unpack it and give the result",
                )
            yield chunk


def _stream(raw: RawFile) -> IO[bytes]:
    return raw.data.path.open("rb") if isinstance(raw.data, OpenFile) else io.BytesIO(raw.data)


def _next_chunk(raw: RawFile, stream: gzip.GzipFile, length: int) -> bytes:
    try:
        return stream.read(_CHUNK_BYTES)
    except EOFError as error:
        raise ProfileError(
            raw.path,
            f"the gzip stream is truncated at byte {raw.length} (after {length} unpacked bytes)",
            "copy or record the file again",
        ) from error
    except (OSError, zlib.error) as error:
        raise ProfileError(
            raw.path,
            f"the gzip stream is damaged after {length} unpacked bytes ({error})",
            "copy or record the file again",
        ) from error


def json_document(
    path: Path | str, content: bytes, most_object_bytes: int = FREE_OBJECT_BYTES
) -> Any:
    """Parse JSON, repaired if necessary; return floats as texts."""
    _check_objects(path, content, most_object_bytes)
    # decode invalid bytes as lone surrogates, which ``rows.clean`` replaces
    text = content.removeprefix(_BOM).decode("utf-8", errors="surrogateescape")
    try:
        try:
            return _loads(text)
        except json.JSONDecodeError as error:
            if error.msg.startswith(_EXTRA_TEXT):
                raise  # the document is valid and text follows: no repair helps
            return _loads(_TO_MEND.sub(_mended, text))
    except json.JSONDecodeError as error:
        raise _fault(path, content, text, error) from error
    except RecursionError as error:
        raise ProfileError(path, "its JSON is nested too deeply") from error
    except ValueError as error:  # an integer exceeds Python's limit on digits
        raise ProfileError(path, "its JSON has an integer of thousands of digits") from error


def _check_objects(path: Path | str, content: bytes, most_bytes: int) -> None:
    """Refuse JSON whose parsed objects would need too much memory."""
    needed = sum(content.count(sign) * each for sign, each in _OBJECT_BYTES)
    if needed > most_bytes:
        raise ProfileError(
            path,
            f"its {len(content)} bytes of JSON need {needed >> 20} MiB of memory, more than "
            "the limit"
            f" of {most_bytes >> 20} MiB for a file of this size",
            "profile fewer steps; if the file is gzipped and you trust it, unpack it first",
        )


def json_value(raw: bytes) -> Any:
    """Parse JSON without repairs."""
    return _loads(raw.decode("utf-8", errors="surrogateescape"))


def json_object(text: str) -> dict[str, Any]:
    """Parse a JSON object; return an empty object if the text is none."""
    try:
        return as_object(json_value(text.encode("utf-8", "replace")))
    except (ValueError, RecursionError):
        return {}


def as_object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects in a JSON list."""
    return [entry for entry in as_list(value) if isinstance(entry, dict)]


def last_border(text: bytes, start: int = 0, stop: int | None = None) -> int:
    """Return the position of the last comma between objects in ``text[start:stop]``, or 0."""
    brace = len(text) if stop is None else stop
    for _ in range(_MOST_TRIES):
        brace = text.rfind(b"{", start, brace)
        if brace < 0:
            break
        head = text[max(start, brace - 64) : brace].rstrip()
        if head.endswith(b",") and head[:-1].rstrip().endswith(b"}"):
            return text.rindex(b",", start, brace)
    return 0


def _loads(text: str) -> Any:
    return json.loads(text, strict=False, parse_float=str, parse_constant=lambda _: None)


def _mended(token: re.Match[str]) -> str:
    """Repair JSON without changing its length, so that error positions stay right."""
    text = token[0]
    if text[-1] == "," and text[0] in "[,":
        return text[:-1] + " "
    if text[0] != '"':
        return "NaN".rjust(len(text))
    if "\\" not in text:
        return text
    return _BAD_ESCAPE.sub(lambda escape: "/" if escape[0] == "\\" else escape[0], text)


def _fault(
    path: Path | str, content: bytes, text: str, error: json.JSONDecodeError
) -> ProfileError:
    is_extra = error.msg.startswith(_EXTRA_TEXT)
    is_string = error.msg.startswith("Unterminated string")
    if is_string or (not is_extra and _CUT_TOKEN.match(text, error.pos)):
        return ProfileError(
            path,
            f"is truncated: its JSON is incomplete at byte {len(content)}",
            "record or copy it again after the profiler has finished writing",
        )
    byte = len(text[: error.pos].encode("utf-8", errors="surrogateescape"))
    byte += len(_BOM) if content.startswith(_BOM) else 0
    return ProfileError(
        path, f"is not JSON at byte {byte} ({error.msg})", "record or copy the profile again"
    )


MOST_FILES = 10_000
_AGAIN = "copy or create the archive again"
#: Errors that ``tarfile`` raises if the headers of a tar file are manipulated.
_DAMAGE = (tarfile.TarError, OSError, ValueError, OverflowError, RecursionError, LookupError)


@dataclass(frozen=True)
class Member:
    """A file in an archive."""

    name: str
    begin: int
    size: int
    fault: ProfileError | None = None  # why it cannot be read


@dataclass(frozen=True)
class Members:
    """The files of an archive."""

    files: list[Member]
    fault: ProfileError | None  # why later files are missing


def members(raw: RawFile) -> Members:
    """Return the files among the first ``MOST_FILES`` entries of an archive."""
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
    """Yield the headers of an archive's entries; the last file may be truncated."""
    last = -1
    while info := tar.next():
        if info.size < 0 or info.offset <= last:
            raise tarfile.ReadError(f"negative size at byte {max(last, info.offset)}")
        last = info.offset
        yield info
        if tar.offset >= raw.length + tarfile.BLOCKSIZE:  # more than the padding is missing
            if not info.isfile():
                raise tarfile.ReadError(f"truncated within the member at byte {info.offset}")
            tar.offset = raw.length  # ``members`` takes this as the archive's end
            return


def _member(info: tarfile.TarInfo, raw: RawFile) -> Member:
    begin, place = info.offset_data, f"{raw.path}/{info.name}"
    fault = None
    if info.issparse():
        fault = ProfileError(place, "is a sparse file in an archive", "unpack it (tar xf)")
    elif begin + info.size > raw.length:
        present = max(0, raw.length - begin)
        fault = ProfileError(
            place, f"is truncated: the archive has {present} of its {info.size} bytes", _AGAIN
        )
    return Member(info.name, begin, info.size, fault)


def _damaged(raw: RawFile, reason: str) -> ProfileError:
    return ProfileError(raw.path, f"the tar archive is damaged ({reason})", _AGAIN)
