"""A Kineto trace cut: the events that are kept byte for byte, and all that stands around them.

The file is read in pieces and written as it is read, gzipped or not. An event is told again by its
start and length; what is no interval is kept where it says something of what is kept: metadata,
the ends of arrows, what happened in the span.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec
import numpy as np
from isal import igzip

from lstmprof.errors import ProfileError, RunError
from lstmprof.events.table import EventTable
from lstmprof.export.kept import Kept
from lstmprof.formats.kineto.counters import COUNTER, INSTANT
from lstmprof.formats.kineto.events import PROFILER_SPAN, interval
from lstmprof.formats.raw_file import GZIP_MAGIC, last_border
from lstmprof.scratch import writing

PIECE_BYTES = 2**22
#: Most bytes before the events, after them, and of one of them.
_MOST_AROUND = 2**26
_OPENING = re.compile(rb'"traceEvents"\s*+:\s*+\[\s*+')
_CLOSING = re.compile(rb"\}\s*+\]")
_BOM = b"\xef\xbb\xbf"
_FLOWS = ("s", "t", "f")


class _Args(msgspec.Struct):
    correlation: Any = None


class _Event(msgspec.Struct):
    """What is asked of an event."""

    ph: str = ""
    cat: Any = None
    ts: msgspec.Raw = msgspec.Raw(b"null")
    dur: msgspec.Raw = msgspec.Raw(b"null")
    id: Any = None

    @property
    def interval(self) -> tuple[int, int] | None:
        """(start, length) in nanoseconds, as the reader has them."""
        timed = interval({"ts": _value(self.ts), "dur": _value(self.dur)})
        return None if isinstance(timed, str) else timed

    @property
    def is_timed(self) -> bool:
        """Whether the reader makes a row of it."""
        return self.ph == "X" and str(self.cat).lower() != PROFILER_SPAN


def _value(raw: msgspec.Raw) -> str | int | None:
    text = bytes(raw).decode("ascii", "replace").strip('"')
    if text == "null":
        return None
    return int(text) if text.lstrip("-").isdigit() and len(text) < 20 else text


_decode_raw = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_events = msgspec.json.Decoder(list[_Event], strict=False).decode


@dataclass(frozen=True)
class Written:
    """How many of ``events`` are in the cut, and its size."""

    kept: int
    events: int
    size_bytes: int


def write(
    events: EventTable, kept: Kept, source: Path, path: Path, values_ns: Set[int] = frozenset()
) -> Written:
    """Write to ``path`` what is ``kept`` of the trace at ``source``, of which ``events`` are.

    ``values_ns``: when counters before the span got the values that they have in it.

    Raises:
        ProfileError: ``source`` is no Kineto trace as profilers write them.
        RunError: ``path`` cannot be written.
    """
    origin_ns = _origin_ns(source)
    chosen = _Chosen(events, kept, origin_ns, values_ns)
    count = total = 0
    try:
        with _opened_to_write(path) as out:
            for part in _parts(source):
                if isinstance(part, bytes):
                    out.write(part)
                    continue
                for raw, event in part:
                    total += 1
                    if chosen.has(event):
                        out.write(b",\n" if count else b"\n")
                        out.write(raw)
                        count += 1
    except OSError as fault:
        raise RunError(f"{path}: {fault.strerror}", "choose a writable -o") from fault
    return Written(count, total, path.stat().st_size)


class _Chosen:
    """Which events are kept, by their times counted as in the file."""

    def __init__(self, events: EventTable, kept: Kept, origin_ns: int, values_ns: Set[int]) -> None:
        self._values = {ns + origin_ns for ns in values_ns}
        start, dur = events.start_ns[kept.rows] + origin_ns, events.dur_ns[kept.rows]
        self._timed = set(zip(start.tolist(), dur.tolist(), strict=True))
        self._span = tuple(edge + origin_ns for edge in kept.span)
        ids = events.ints("correlation_id", 0)[kept.rows]
        self._correlations = set(np.unique(ids[ids > 0]).tolist())

    def has(self, event: _Event) -> bool:
        """Whether ``event`` is one."""
        if event.is_timed:
            return event.interval in self._timed
        if event.ph in _FLOWS and event.id in self._correlations:
            return True
        timed = interval({"ts": _value(event.ts), "dur": 0})
        if event.ph in ("M", "X") or isinstance(timed, str):
            return True
        if event.ph in (INSTANT, COUNTER) and timed[0] in self._values:
            return True
        return self._span[0] <= timed[0] < self._span[1]


def _origin_ns(source: Path) -> int:
    """The start of the first event, from which the run's times are counted."""
    least: int | None = None
    for part in _parts(source):
        for _, event in part if not isinstance(part, bytes) else ():
            timed = event.interval if event.is_timed else None
            if timed and (least is None or timed[0] < least):
                least = timed[0]
    return least or 0


_Pairs = list[tuple[msgspec.Raw, _Event]]


def _parts(source: Path) -> Iterator[bytes | _Pairs]:
    """What stands before the events, these piece by piece, what stands after them.

    Raises:
        ProfileError: it is not written so, cannot be read or is damaged.
    """
    try:
        with _opened(source) as file:
            yield from _of_file(source, file)
    except (OSError, EOFError, igzip.isal_zlib.error) as fault:
        raise ProfileError(source, f"cannot be read ({fault})", "copy it again") from fault


def _of_file(source: Path, file: BinaryIO) -> Iterator[bytes | _Pairs]:
    head, text = _head(source, file)
    yield head
    at_end = False
    while not at_end:
        read = file.read(PIECE_BYTES)
        at_end, text = not read, text + read
        border = last_border(text)
        pairs = _pairs(text[:border]) if border else None
        if pairs is not None:
            yield pairs
            text = text[border + 1 :]
        elif len(text) > _MOST_AROUND:
            break
    for closing in _CLOSING.finditer(text):
        pairs = _pairs(text[: closing.start() + 1])
        if pairs is not None:
            yield pairs
            yield b"\n" + text[closing.end() - 1 :]
            return
    if text.lstrip().startswith(b"]"):
        yield text
        return
    raise _unusual(source)


def _head(source: Path, file: BinaryIO) -> tuple[bytes, bytes]:
    """What stands up to the first event, and what was read beyond."""
    text = b""
    while len(text) < _MOST_AROUND:
        read = file.read(PIECE_BYTES)
        text += read
        if not text.lstrip().startswith((b"{", _BOM)):
            break  # an archive of traces, say
        opening = _OPENING.search(text)
        if opening and opening.end() < len(text):
            return text[: opening.end()].rstrip(), text[opening.end() :]
        if not read:
            break
    raise _unusual(source)


def _unusual(source: Path) -> ProfileError:
    fault = "is not in torch.profiler's layout, so it cannot be cut to .json"
    return ProfileError(source, fault, "use -o FILE.pftrace instead")


def _pairs(text: bytes) -> _Pairs | None:
    """Each event in ``text`` as it is written and as it is read; None: no whole events."""
    listed = b"[" + text + b"]"
    try:
        return list(zip(_decode_raw(listed), _decode_events(listed), strict=True))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


@contextmanager
def _opened(source: Path) -> Iterator[BinaryIO]:
    with source.open("rb") as file:
        magic = file.read(len(GZIP_MAGIC))
        file.seek(0)
        yield igzip.open(file, "rb") if magic == GZIP_MAGIC else file


@contextmanager
def _opened_to_write(path: Path) -> Iterator[BinaryIO]:
    with writing(path) as file:
        if path.suffix != ".gz":
            yield file
            return
        with igzip.IGzipFile("", "wb", fileobj=file, compresslevel=2, mtime=0) as packed:
            yield cast(BinaryIO, packed)
