"""An XSpace without its events, and where in the file these are: in pieces of bounded size.

The fields of a message stand one after another, each behind its tag
(https://protobuf.dev/programming-guides/encoding). Planes and lines are walked field by field;
everything but the events is parsed by the protobuf library. What is written otherwise than
profilers write it raises ``OddError``: then the whole file is for that library.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstmprof.formats.raw_file import RawFile
from lstmprof.formats.xplane import schema

#: Of a line's events, what is held in memory at once.
PIECE_BYTES = 2**22
_WINDOW_BYTES = 2**16
#: Tags: field number and wire type (2: a length and as many bytes).
_PLANES, _PLANE_NAME, _LINES, _EVENTS = 0x0A, 0x12, 0x1A, 0x22
#: A tag of two bytes at most and a length of ten.
_MOST_HEAD_BYTES = 12
_FIXED_BYTES = {1: 8, 5: 4}
_MOST_LINE_FIELDS = 1000


class OddError(Exception):
    """Something is written otherwise than profilers write it."""


@dataclass(frozen=True)
class Piece:
    """Neighbouring events of a line: the bytes of the file, and in these where each one's are."""

    start: int
    stop: int
    starts: NDArray[np.int32]
    stops: NDArray[np.int32]


@dataclass(frozen=True)
class Outline:
    """``space`` without events; ``pieces`` of its planes, by line, hold them."""

    space: Any
    pieces: list[list[list[Piece]]]


def outline(raw: RawFile) -> Outline:
    """The outline of the XSpace in ``raw``.

    Raises:
        OddError: something is written oddly, or damaged.
        google.protobuf.message.DecodeError: something else than an event is damaged.
    """
    rest, planes, pieces = [], [], []
    for tag, start, value, stop in _fields(raw, 0, raw.length):
        if tag == _PLANES:
            plane, of_lines = _plane(raw, value, stop)
            planes.append(plane)
            pieces.append(of_lines)
        else:
            rest.append(raw.part(start, stop))
    space = schema.message("XSpace").FromString(b"".join(rest))
    space.planes.extend(planes)
    return Outline(space, pieces)


def plane_names(raw: RawFile) -> list[bytes]:
    """The names of the planes in ``raw``.

    Raises:
        OddError: something is written oddly, or damaged.
    """
    names = []
    for plane_tag, _, plane, end in _fields(raw, 0, raw.length):
        if plane_tag == _PLANES:
            found = [(v, s) for t, _, v, s in _fields(raw, plane, end) if t == _PLANE_NAME]
            names += [raw.part(value, stop) for value, stop in found[-1:]]
    return names


def _plane(raw: RawFile, start: int, stop: int) -> tuple[Any, list[list[Piece]]]:
    """A plane without its events, and the pieces of each line."""
    rest: list[tuple[int, int]] = []
    lines = []
    for tag, field, value, end in _fields(raw, start, stop):
        if tag == _LINES:
            lines.append(_line(raw, value, end))
        elif rest and rest[-1][1] == field:
            rest[-1] = (rest[-1][0], end)
        else:
            rest.append((field, end))
    content = b"".join(raw.part(*span) for span in rest)
    plane = schema.message("XPlane").FromString(content)
    plane.lines.extend(line for line, _ in lines)
    return plane, [pieces for _, pieces in lines]


def _line(raw: RawFile, start: int, stop: int) -> tuple[Any, list[Piece]]:
    """A line without its events, and these."""
    rest, pieces = [], []
    at, window, base = start, b"", start
    while at < stop:
        if at + _MOST_HEAD_BYTES > base + len(window):
            base, window = at, raw.part(at, min(at + PIECE_BYTES, stop))
        tag, value, end = _field(window, at - base, base, stop)
        if tag != _EVENTS:
            rest.append(raw.part(at, end))
            if len(rest) > _MOST_LINE_FIELDS:
                raise OddError
        else:
            starts, stops = _run_of_events(window, at - base)
            if starts:
                end = base + stops[-1]
            else:  # one that is not whole in the window
                starts, stops = [value - base], [end - base]
            bounds = (np.array(places, np.int64) - (at - base) for places in (starts, stops))
            pieces.append(Piece(at, end, *(found.astype(np.int32) for found in bounds)))
        at = end
    return schema.message("XLine").FromString(b"".join(rest)), pieces


def _run_of_events(window: bytes, at: int) -> tuple[list[int], list[int]]:
    """Where the events from ``at`` on begin and end, as many as are whole in ``window``."""
    starts: list[int] = []
    stops: list[int] = []
    end = len(window) - 4
    while at < end and window[at] == _EVENTS:
        length = window[at + 1]
        start = at + 2
        if length >= 0x80:
            length += (window[start] << 7) - 0x80
            start += 1
            if length >= 0x4000:
                break
        at = start + length
        if at > end + 4:
            break
        starts.append(start)
        stops.append(at)
    return starts, stops


def _fields(raw: RawFile, start: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
    """(tag, start, start of the value, end) of each field from ``start`` to ``stop``."""
    base, window = start, b""
    while start < stop:
        if start + _MOST_HEAD_BYTES > base + len(window):
            base, window = start, raw.part(start, min(start + _WINDOW_BYTES, stop))
        tag, value, end = _field(window, start - base, base, stop)
        yield tag, start, value, end
        start = end


def _field(window: bytes, at: int, base: int, stop: int) -> tuple[int, int, int]:
    """(tag, start of the value, end) in the file of the field at ``at`` in ``window``."""
    tag, value = _varint(window, at)
    wire = tag & 7
    if wire == 2:
        length, value = _varint(window, value)
        end = value + length
    elif wire == 0:
        end = _varint(window, value)[1]
    elif wire in _FIXED_BYTES:
        end = value + _FIXED_BYTES[wire]
    else:
        raise OddError
    if base + end > stop or tag >= 1 << 14 or tag < 8:
        raise OddError
    return tag, base + value, base + end


def _varint(window: bytes, at: int) -> tuple[int, int]:
    """(value, the position after it) of the base-128 number at ``at``."""
    value = shift = 0
    for byte in window[at : at + 10]:
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise OddError
