"""Read a Kineto trace in pieces, so that the whole JSON text is never in memory.

::

  head "traceEvents": [ event, event, | event, event, | … event ] tail
                        ---- piece --   ---- piece --

A piece ends at a comma between ``}`` and ``{``. Worker processes read the pieces of a big file.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
from isal import igzip

from lstmprof.base.errors import ProfileError
from lstmprof.base.pool import KilledError, Pool, is_worker
from lstmprof.events import Profile
from lstmprof.events.counters import Counters
from lstmprof.events.spool import Spool
from lstmprof.events.stored import Folder
from lstmprof.formats import kineto
from lstmprof.formats.kineto import pieces
from lstmprof.formats.kineto.event_fields import KINDS
from lstmprof.formats.kineto.pieces import Part, Piece
from lstmprof.formats.raw_file import (
    FREE_BYTES,
    GZIP_MAGIC,
    MAX_RATIO,
    RawFile,
    is_tar,
    json_document,
    last_border,
)

PIECE_BYTES = 2**23
#: Smallest unpacked size of a file in bytes at which lstmprof writes the columns to disk.
SPOOLED_BYTES = 2**26
#: Smallest unpacked size of a file in bytes at which several processes read the file.
SHARED_BYTES = 2**27
#: Largest number of workers; more are no faster, because one process unpacks the file for all.
MOST_WORKERS = 4
#: Largest size in bytes of a piece, and of the text before or after the events (usually some MB).
_MOST_AROUND = 2**26
_MOST_TRIES = 16
#: Bytes at the end of a piece that are searched first for the last comma between events.
_END_BYTES = 2**15
_AHEAD = 2  # unfinished pieces per worker
_MOST_WAITING = 4  # submitted pieces per worker that are not yet yielded in order
_OPENING = re.compile(rb'"traceEvents"\s*+:\s*+\[')
_CLOSING = re.compile(rb"\}\s*+,?\s*+\]")
_EVENTS_KEY = b'"traceEvents"'


#: Type of a piece's text: bytes, or a range of bytes in an unpacked file.
_Text = bytes | Part


def _content(text: _Text) -> bytes:
    return text if isinstance(text, bytes) else text.content


class UnusualError(Exception):
    """The file is too unusual to be read in pieces."""


def profile_of_file(path: Path) -> Profile | None:
    """Read a Kineto trace in pieces; return None if the file is unusual or unreadable."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            return profile(path, file)
    except (OSError, ValueError):  # ``raw_file.load`` will raise the error
        return None


def profile(label: Path | str, file: BinaryIO) -> Profile | None:
    """Read an open Kineto trace in pieces; return None if its layout is unusual."""
    try:
        with contextlib.ExitStack() as stack:
            parts = _profile(label, file, _Reader(label, _unpacked_bytes(file), stack))
        return kineto.profile(*parts) if parts else None  # by now the workers have ended
    except (UnusualError, OSError, EOFError, igzip.isal_zlib.error):
        return None


class _Bounded:
    """A gzipped file that refuses to unpack a gzip bomb."""

    def __init__(self, file: BinaryIO) -> None:
        self._packed = file
        self._file = igzip.open(file, "rb")
        self._unpacked_bytes = 0

    def read(self, size: int) -> bytes:
        content: bytes = self._file.read(size)
        self._unpacked_bytes += len(content)
        if self._unpacked_bytes > max(FREE_BYTES, MAX_RATIO * self._packed.tell()):
            raise UnusualError
        return content


def _is_gzipped(file: BinaryIO) -> bool:
    magic = file.read(len(GZIP_MAGIC))
    file.seek(0)
    return magic == GZIP_MAGIC


def _unpacked_bytes(file: BinaryIO) -> int:
    size = file.seek(0, io.SEEK_END)
    file.seek(max(0, size - 4))
    last = file.read(4)
    file.seek(0)
    # gzip stores the unpacked size, modulo 4 GiB, in the file's last 4 bytes
    return max(size, int.from_bytes(last, "little")) if _is_gzipped(file) else size


class _Reader:
    """Reads the pieces of a trace, in worker processes if the file is big."""

    def __init__(self, label: Path | str, size_bytes: int, stack: contextlib.ExitStack) -> None:
        self._label = label
        self._folder = Folder() if size_bytes >= SPOOLED_BYTES else None
        self._workers: Pool | None = None
        self._read_here = 0
        if self._folder:
            stack.push(functools.partial(_remove_on_error, self._folder))
        self._count = _worker_count()
        if self._folder and size_bytes >= SHARED_BYTES and self._count:
            with contextlib.suppress(OSError):  # no more processes can be started
                self._workers = stack.enter_context(Pool(self._count))

    def in_order(self, texts: Iterable[_Text]) -> Iterator[tuple[_Text, Piece | None]]:
        """Yield (text, piece) in file order; the piece is None if the text cuts an event."""
        if self._workers and self._folder:
            return self._shared(texts, self._workers, self._folder.path)
        return ((text, self.read(_content(text))) for text in texts)

    def _shared(
        self, texts: Iterable[_Text], workers: Pool, folder: Path
    ) -> Iterator[tuple[_Text, Piece | None]]:
        """Read pieces in worker processes, and in this process while all workers are busy."""
        submitted: list[tuple[_Text, Future[Piece | None]]] = []
        try:
            for number, text in enumerate(texts):
                spooled = folder / f"piece-{number}"
                if sum(not answer.done() for _, answer in submitted) < _AHEAD * self._count:
                    submitted.append((text, workers.submit(pieces.read_part, text, spooled)))
                else:
                    submitted.append((text, _done(pieces.read_part(text, spooled))))
                while submitted and (
                    submitted[0][1].done() or len(submitted) > _MOST_WAITING * self._count
                ):
                    text, answer = submitted.pop(0)
                    yield text, answer.result()
            for text, answer in submitted:
                yield text, answer.result()
        except KilledError as error:
            fault = (
                "the system killed a process that read the file, most likely because memory ran out"
            )
            raise ProfileError(self._label, fault, "profile fewer steps") from error

    def read(self, content: bytes) -> Piece | None:
        """Read a piece in this process."""
        self._read_here += 1
        spooled = self._folder.path / f"here-{self._read_here}" if self._folder else None
        return pieces.read(self._label, content, spooled)

    def counters(self, content: Iterable[Piece]) -> Counters:
        read = [piece.counters for piece in content if piece.counters is not None]
        if self._folder:
            paths = [path for path in read if isinstance(path, Path)]
            return Counters.in_files(paths, self._folder)
        return Counters.of([table for table in read if isinstance(table, pa.Table)])

    def columns(self, content: Iterable[Piece]) -> pa.Table | Spool:
        if self._folder:
            return Spool(self._folder, [p.columns for p in content])
        tables = [piece.columns for piece in content]
        return pa.concat_tables(tables, promote_options="default").unify_dictionaries()


def _remove_on_error(folder: Folder, error: type[BaseException] | None, *_: object) -> None:
    if error:
        folder.remove()


def _done(piece: Piece | None) -> Future[Piece | None]:
    answer: Future[Piece | None] = Future()
    answer.set_result(piece)
    return answer


def _worker_count() -> int:
    """Return how many workers to start; one core stays free."""
    if is_worker():
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(MOST_WORKERS, (cores or 1) - 1)


class _Total:
    """All pieces read so far, and counts of the events that were omitted."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.with_counters: list[Piece] = []
        self.left_out = kineto.LeftOut()
        self.categories: set[str] = set()

    def add(self, piece: Piece) -> None:
        self.pieces += [piece] if piece.rows else []
        self.with_counters += [piece] if piece.counters is not None else []
        self.left_out.add(piece.left_out)
        self.categories |= piece.categories


def _profile(
    label: Path | str, file: BinaryIO, reader: _Reader
) -> tuple[dict[str, Any], pa.Table | Spool, kineto.LeftOut, Counters] | None:
    is_gzipped = _is_gzipped(file)
    unpacked = _Bounded(file) if is_gzipped else file
    head, rest = head_of(label, unpacked)
    if isinstance(label, Path) and not is_gzipped:
        texts: _Texts = _TextsOfPlainFile(file, rest, label, len(head))
    else:
        texts = _Texts(unpacked, rest)
    total = _Total()
    tail = _read_events(head, texts, reader, total)
    header = _header(label, head, tail)
    if not total.pieces or not kineto.is_kineto(header, total.categories):
        return None
    beside = reader.counters(total.with_counters)
    return header, reader.columns(total.pieces), total.left_out, beside


def head_of(label: Path | str, file: Any) -> tuple[bytes, bytes]:
    """Read a file's start; return (text before the first event, the rest that was read)."""
    head = b""
    while len(head) < _MOST_AROUND:
        more = file.read(PIECE_BYTES)
        head += more
        opening = _OPENING.search(head)
        if not RawFile(label, head[:4096]).looks_like_json or is_tar(head):
            raise UnusualError
        if opening:
            return head[: opening.end()], head[opening.end() :]
        if not more:
            break
    raise UnusualError


class _Texts:
    """Splits a file between events into texts."""

    def __init__(self, file: Any, rest: bytes) -> None:
        self._file = file
        self.rest = rest  # at the end: the text after the last cut

    def __iter__(self) -> Iterator[_Text]:
        while more := self._file.read(PIECE_BYTES):
            self.rest += more
            border = last_border(self.rest)
            if border:
                yield self.rest[:border]
                self.rest = self.rest[border + 1 :]
            elif len(self.rest) > _MOST_AROUND:
                raise UnusualError


class _TextsOfPlainFile(_Texts):
    """Splits an unpacked file between events into byte ranges."""

    def __init__(self, file: BinaryIO, rest: bytes, path: Path, start: int) -> None:
        super().__init__(file, rest)
        self._path, self._start = path, start

    def __iter__(self) -> Iterator[_Text]:
        read_to, size = self._start + len(self.rest), self._file.seek(0, io.SEEK_END)
        while read_to < size:
            read_to = min(read_to + PIECE_BYTES, size)
            border = self._last_border(read_to)
            if border:
                yield Part(self._path, self._start, border - self._start)
                self._start = border + 1
            elif read_to - self._start > _MOST_AROUND:
                raise UnusualError
        self.rest = self._part(self._start, size)

    def _last_border(self, read_to: int) -> int:
        """Return the position of the last comma between events before ``read_to``, or 0."""
        for start in (max(self._start, read_to - _END_BYTES), self._start):
            border = last_border(self._part(start, read_to))
            if border:
                return start + border
        return 0

    def _part(self, start: int, stop: int) -> bytes:
        self._file.seek(start)
        part: bytes = self._file.read(stop - start)
        return part


def _read_events(head: bytes, texts: _Texts, reader: _Reader, total: _Total) -> bytes:
    """Read all events into ``total``; return the text after the last event."""
    unread = b""
    for text, read in reader.in_order(texts):
        if unread:
            unread += b"," + _content(text)
            piece = reader.read(unread)
        else:
            piece = read
        if piece is None:
            # join the next text, because the comma at the end is inside a string or a list
            unread = unread or _content(text)
            if len(unread) > _MOST_AROUND:
                raise UnusualError
            continue
        unread = b""
        total.add(piece)
        if not (total.categories & KINDS.keys() or kineto.may_be_header(head)):
            raise UnusualError  # probably written by another profiler
    return _last(unread + b"," + texts.rest if unread else texts.rest, reader, total)


def _last(text: bytes, reader: _Reader, total: _Total) -> bytes:
    """Read the last events into ``total``; return the text after these events."""
    for events_end, bracket in closings(text):
        piece = reader.read(text[:events_end])
        if piece:
            total.add(piece)
            return text[bracket:]
    raise UnusualError


def closings(text: bytes) -> list[tuple[int, int]]:
    """Return where the events may end, last place first: (end of event, closing bracket)."""
    matches = list(_CLOSING.finditer(text))[-_MOST_TRIES:]
    return [(closing.start() + 1, closing.end() - 1) for closing in reversed(matches)]


def _header(label: Path | str, head: bytes, tail: bytes) -> dict[str, Any]:
    """Parse the text before and after the events as one JSON object."""
    try:
        header = json_document(label, head + tail)
    except ProfileError as error:
        raise UnusualError from error
    once = (head + tail).count(_EVENTS_KEY) == 1
    if not (once and isinstance(header, dict) and header.get("traceEvents") == []):
        raise UnusualError
    return header
