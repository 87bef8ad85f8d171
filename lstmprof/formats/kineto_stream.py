"""A Kineto trace read in pieces, so that memory is bounded by the columns and not by the file.

::

    head "traceEvents": [ event, event, | event, event, | … event ] tail
                          ---- piece --   ---- piece --

A piece ends where ``}`` and ``,`` meet a ``{``, which may also be inside a string or a list. That
it is a border of events is known once the piece has been read as whole elements of an array, given
that the piece before was: so a wrong guess is always found, and the piece grows. Where the file is
not as Kineto writes it, the answer is None, and ``kineto.read`` takes the file as a whole.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
from isal import igzip

from lstmprof.errors import ProfileError
from lstmprof.events import Profile
from lstmprof.formats import json_text, kineto, kineto_columns, rows
from lstmprof.formats.kineto_events import KINDS
from lstmprof.formats.raw_file import FREE_BYTES, GZIP_MAGIC, MAX_RATIO, RawFile, is_tar

PIECE_BYTES = 2**23
#: Most bytes before the events and after them; Kineto writes a few kB, environments a few MB.
_MOST_AROUND = 2**26
_MOST_TRIES = 16
_OPENING = re.compile(rb'"traceEvents"\s*+:\s*+\[')
_CLOSING = re.compile(rb"\}\s*+,?\s*+\]")
_EVENTS_KEY = b'"traceEvents"'


class _UnusualError(Exception):
    """The file is not as Kineto writes it."""


def of_file(path: Path) -> Profile | None:
    """The profile in the file at ``path``, as ``profile`` says."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            return profile(path, file)
    except (OSError, ValueError):  # loading it will say why
        return None


def profile(label: Path | str, file: BinaryIO) -> Profile | None:
    """The profile in ``file``, gzipped or not, None where it is no Kineto trace of usual making."""
    try:
        return _profile(label, _unpacked(file))
    except (_UnusualError, OSError, EOFError, igzip.isal_zlib.error):
        return None


class _Bounded:
    """A gzipped file unpacked as it is read; no gzip bomb."""

    def __init__(self, file: BinaryIO) -> None:
        self._packed = file
        self._file = igzip.open(file, "rb")
        self._unpacked_bytes = 0

    def read(self, size: int) -> bytes:
        found: bytes = self._file.read(size)
        self._unpacked_bytes += len(found)
        if self._unpacked_bytes > max(FREE_BYTES, MAX_RATIO * self._packed.tell()):
            raise _UnusualError
        return found


def _unpacked(file: BinaryIO) -> Any:
    magic = file.read(len(GZIP_MAGIC))
    file.seek(0)
    return _Bounded(file) if magic == GZIP_MAGIC else file


def _profile(label: Path | str, file: Any) -> Profile | None:
    head, rest = _head(label, file)
    found = _Found([], kineto.LeftOut(), set())
    tail = _read_events(label, head, rest, file, found)
    header = _header(label, head, tail)
    tables = [table for table in found.tables if len(table)]
    if not tables or not kineto.is_kineto(header, found.categories):
        return None
    return kineto.profile(header, _joined(tables), found.left_out)


@dataclass(frozen=True)
class _Found:
    """What has been read of the events; the categories are those of some events at least."""

    tables: list[pa.Table]
    left_out: kineto.LeftOut
    categories: set[str]

    def add(self, other: _Found) -> None:
        self.tables.extend(other.tables)
        self.left_out.add(other.left_out)
        self.categories.update(other.categories)


def _joined(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables, promote_options="default").unify_dictionaries()


def _head(label: Path | str, file: Any) -> tuple[bytes, bytes]:
    """What stands before the first event, and what has been read beyond."""
    head = b""
    while len(head) < _MOST_AROUND:
        more = file.read(PIECE_BYTES)
        head += more
        opening = _OPENING.search(head)
        if not RawFile(label, head[:4096]).looks_like_json or is_tar(head):
            raise _UnusualError
        if opening:
            return head[: opening.end()], head[opening.end() :]
        if not more:
            break
    raise _UnusualError


def _read_events(label: Path | str, head: bytes, rest: bytes, file: Any, found: _Found) -> bytes:
    """Add all events to ``found``; what follows them, from the bracket on."""
    while more := file.read(PIECE_BYTES):
        rest += more
        border = json_text.last_border(rest)
        if border and _is_read(label, rest[:border], found):
            rest = rest[border + 1 :]
            if not (found.categories & KINDS.keys() or kineto.may_be_header(head)):
                raise _UnusualError  # of another profiler, most likely
        elif len(rest) > _MOST_AROUND:
            raise _UnusualError
    return _last(label, rest, found)


def _is_read(label: Path | str, piece: bytes, found: _Found) -> bool:
    """Whether ``piece`` is whole events; they are added to ``found``."""
    try:
        found.add(_read(label, piece))
    except _UnusualError:
        return False
    return True


def _last(label: Path | str, piece: bytes, found: _Found) -> bytes:
    """Add the events of the last piece to ``found``; what follows them, from the bracket on."""
    closings = list(_CLOSING.finditer(piece))[-_MOST_TRIES:]
    for closing in reversed(closings):
        if _is_read(label, piece[: closing.start() + 1], found):
            return piece[closing.end() - 1 :]
    raise _UnusualError


def _read(label: Path | str, text: bytes) -> _Found:
    """The events in ``text``: by columns, or row by row where something is written oddly."""
    try:
        chunk = kineto_columns.chunk(text)
    except kineto_columns.OddError:
        return _read_rows(label, text)
    left_out = kineto.LeftOut(spans=list(chunk.spans))
    return _Found([chunk.columns], left_out, set(chunk.categories))


def _read_rows(label: Path | str, text: bytes) -> _Found:
    try:
        events = json_text.document(label, b"[" + text + b"]")
    except ProfileError as error:
        raise _UnusualError from error
    found, left_out = kineto.found_rows(events)
    categories = {str(e.get("cat")).lower() for e in events if isinstance(e, dict)}
    return _Found([rows.columns(found)] if found else [], left_out, categories)


def _header(label: Path | str, head: bytes, tail: bytes) -> dict[str, Any]:
    """The document without its events; that they stood in it, and once, is checked."""
    try:
        header = json_text.document(label, head + tail)
    except ProfileError as error:
        raise _UnusualError from error
    once = (head + tail).count(_EVENTS_KEY) == 1
    if not (once and isinstance(header, dict) and header.get("traceEvents") == []):
        raise _UnusualError
    return header
