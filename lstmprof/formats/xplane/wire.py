"""Parse the events of an XSpace (the file's protobuf message) as columns of numbers.

Array operations parse all events of a piece together: the first field of all events, then the
second field, and so on. The protobuf library parses the planes and lines around the events. If the
layout is unusual, the module raises ``OddError``, and the protobuf library parses the events, too.
Source: https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstmprof.base.errors import ProfileError
from lstmprof.formats.raw_file import RawFile
from lstmprof.formats.xplane import schema
from lstmprof.formats.xplane.schema import OddError, value_end, varint

Ints = NDArray[np.int64]
Bytes = NDArray[Any]  # of uint8

#: Largest size of a piece (events that are in memory together), in bytes and in events.
PIECE_BYTES = 2**22
PIECE_EVENTS = 2**16
_WINDOW_BYTES = 2**16
#: Tags (field number and wire type) of fields of an XSpace, an XPlane and an XLine.
_PLANES, _PLANE_NAME, _LINES, _EVENTS = 0x0A, 0x12, 0x1A, 0x22
#: Largest number of bytes of a tag (2) and a length (10).
_MOST_HEAD_BYTES = 12
_MOST_LINE_FIELDS = 1000
#: Largest number of planes, lines and names in a file; the file of a long job has about 100,000.
_MOST_PARTS = 2**20
#: Numbers of the XStat fields for values, one field per type; ``NONE`` means no value.
NONE, DOUBLE, UINT64, INT64, TEXT, BYTES, REF = 0, 2, 3, 4, 5, 6, 7
_LENGTH, _FIXED = 2, 1
#: Tags of an XEvent's fields.
_METADATA_ID, _OFFSET_PS, _DURATION_PS, _STATS, _OCCURRENCES = 0x08, 0x10, 0x18, 0x22, 0x28
#: Tags of an XStat's fields, for all types of values.
_STAT_TAGS = (0x08, 0x11, 0x18, 0x20, 0x2A, 0x32, 0x38)
#: Largest number of fields of an event or stat; the protobuf library parses larger messages.
_MOST_FIELDS = 200
#: Bytes that are appended to the content, because decoding may read 10 bytes or a word too far.
_PADDING = bytes(32)
_LAST_BITS = np.uint64(0x8080808080808080)
_ONE = np.uint64(1)
#: Steps that join the 7-bit groups of a number: (bits that stay, bits that move, shift).
_MOVES = tuple(
    (np.uint64(kept), np.uint64(moved), np.uint64(by))
    for kept, moved, by in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    )
)


@dataclass(frozen=True)
class Stats:
    """The stats of all events in file order."""

    event: Ints  # number of the event
    metadata_id: Ints
    field: Ints  # field that has the value
    value: Ints  # 64 bits, or the position of a text
    length: Ints  # of the text in bytes

    def only(self, wanted: NDArray[np.bool_]) -> Stats:
        columns = (self.event, self.metadata_id, self.field, self.value, self.length)
        return Stats(*(column[wanted] for column in columns))


@dataclass(frozen=True)
class Events:
    """Events in file order; ``counted`` is True for an event with a count but no time."""

    metadata_id: Ints
    offset_ps: Ints
    duration_ps: Ints
    counted: NDArray[np.bool_]
    stats: Stats


@dataclass(frozen=True)
class _Fields:
    """The n-th field of every message that has at least n fields."""

    owner: Ints  # number of the message
    tag: Bytes
    value: Ints
    start: Ints  # a number: the position after it; a text or message: its first byte


def events(content: bytes, starts: Ints, stops: Ints) -> Events:
    """Parse the events that begin at ``starts`` and end at ``stops`` in ``content``."""
    metadata_id, offset_ps, duration_ps = (np.zeros(len(starts), np.int64) for _ in range(3))
    counted = np.zeros(len(starts), bool)
    columns = {_METADATA_ID: metadata_id, _OFFSET_PS: offset_ps, _DURATION_PS: duration_ps}
    empty = np.empty(0, np.int64)
    parts = [(empty, empty, empty)]
    for fields in _rounds(content, starts, stops, (*columns, _STATS, _OCCURRENCES)):
        for tag, column in columns.items():
            hit = fields.tag == tag
            column[fields.owner[hit]] = fields.value[hit]
        for tag in (_OFFSET_PS, _OCCURRENCES):
            counted[fields.owner[fields.tag == tag]] = tag == _OCCURRENCES
        hit = fields.tag == _STATS
        parts.append((fields.owner[hit], fields.start[hit], fields.value[hit]))
    owner, first, length = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.argsort(first)
    stats = _stats(content, owner[order], first[order], (first + length)[order])
    return Events(metadata_id, offset_ps, duration_ps, counted, stats)


def _stats(content: bytes, owner: Ints, starts: Ints, stops: Ints) -> Stats:
    metadata_id, field, value, length = (np.zeros(len(starts), np.int64) for _ in range(4))
    for fields in _rounds(content, starts, stops, _STAT_TAGS):
        is_id = fields.tag == _METADATA_ID
        metadata_id[fields.owner[is_id]] = fields.value[is_id]
        holder = fields.owner[~is_id]
        tag = fields.tag[~is_id]
        is_text = tag & 7 == _LENGTH
        field[holder] = tag >> 3
        value[holder] = np.where(is_text, fields.start[~is_id], fields.value[~is_id])
        length[holder] = np.where(is_text, fields.value[~is_id], 0)
    return Stats(owner, metadata_id, field, value, length)


def _rounds(content: bytes, starts: Ints, stops: Ints, tags: tuple[int, ...]) -> Iterator[_Fields]:
    """Yield the first fields of all messages, then their second fields, and so on."""
    padded = content + _PADDING
    octets = np.frombuffer(padded, np.uint8)
    words = np.ndarray((len(padded) - 7,), "<u8", padded, strides=(1,))
    numbered = np.zeros(256, bool)
    numbered[list(tags)] = True
    owner = np.flatnonzero(starts < stops)
    at, stops = starts[owner].astype(np.int64), stops[owner]
    for _ in range(_MOST_FIELDS):
        if not len(owner):
            return
        tag = octets[at]
        if not numbered[tag].all():
            raise OddError
        value, start, end = _values(octets, words, at + 1, tag & 7)
        if (end > stops).any():
            raise OddError
        yield _Fields(owner, tag, value, start)
        more = end < stops
        at, owner, stops = end[more], owner[more], stops[more]
    raise OddError


def _values(octets: Bytes, words: Ints, at: Ints, wire: Bytes) -> tuple[Ints, Ints, Ints]:
    """Return (value, start, end) of each field; the value of a text is its length."""
    value, start = _varints(octets, words, at)
    is_text, is_fixed = wire == _LENGTH, wire == _FIXED
    if is_fixed.any():
        value = np.where(is_fixed, words[at].astype(np.int64), value)
        start = np.where(is_fixed, at + 8, start)
    length = np.where(is_text, value, 0)
    if (length < 0).any() or (length > len(octets)).any():
        raise OddError
    return value, start, start + length


def _varints(octets: Bytes, words: Ints, at: Ints) -> tuple[Ints, Ints]:
    """Decode base-128 numbers; return (values, positions after the numbers)."""
    word = words[at]
    last = ~word & _LAST_BITS
    # keep only the lowest set bit, which marks the number's last byte (0: more than 8 bytes)
    last &= ~last + _ONE
    bits = word & (last - _ONE) & ~_LAST_BITS
    for staying, moved, by in _MOVES:
        bits = (bits & staying) | ((bits & moved) >> by)
    length = np.frexp(last.astype(np.float64))[1].astype(np.int64) >> 3
    longer = np.flatnonzero(last == 0)
    if len(longer):
        ninth, tenth = (octets[at[longer] + n].astype(np.uint64) for n in (8, 9))
        has_tenth = ninth >= 0x80
        tenth = np.where(has_tenth, tenth, np.uint64(0))
        if (tenth > 1).any():
            raise OddError
        bits[longer] |= ((ninth & np.uint64(0x7F)) << np.uint64(56)) | (tenth << np.uint64(63))
        length[longer] = 9 + has_tenth
    return bits.view(np.int64), at + length


@dataclass(frozen=True)
class Piece:
    """Consecutive events of a line: bytes ``start`` to ``stop`` of the file."""

    start: int
    stop: int
    sizes: NDArray[np.uint16] | None  # bytes per event; None for one event of any size

    def __len__(self) -> int:
        return 1 if self.sizes is None else len(self.sizes)

    def bounds(self, content: bytes) -> tuple[Ints, Ints]:
        """Return (begins, ends) of the events in this piece's ``content``."""
        if self.sizes is None:
            _, start = varint(content, varint(content, 0)[1])
            return np.array([start]), np.array([len(content)])
        stops = np.cumsum(self.sizes, dtype=np.int64)
        begins = stops - self.sizes
        is_long = np.frombuffer(content, np.uint8)[begins + 1] >= 0x80
        return begins + 2 + is_long, stops


@dataclass(frozen=True)
class Outline:
    """A parsed XSpace without its events, and the pieces that contain the events."""

    space: Any
    pieces: list[list[list[Piece]]]  # events of pieces[plane][line]


def outline(raw: RawFile) -> Outline:
    """Parse all but the events, and find their bytes; raise OddError if unusual."""
    rest, planes, pieces = [], [], []
    for tag, start, value, stop in _fields(raw, 0, raw.length):
        if tag == _PLANES:
            plane, line_pieces = _plane(raw, value, stop)
            planes.append(plane)
            pieces.append(line_pieces)
        else:
            rest.append(raw.part(start, stop))
    space = schema.message("XSpace").FromString(b"".join(rest))
    space.planes.extend(planes)
    return Outline(space, pieces)


def plane_names(raw: RawFile) -> list[bytes]:
    """Return the names of the planes; raise OddError if the layout is unusual."""
    names, count = [], 0
    for plane_tag, _, plane, end in _fields(raw, 0, raw.length):
        name: tuple[int, int] | None = None
        count = _counted(raw, count)
        if plane_tag == _PLANES:
            for tag, _, value, stop in _fields(raw, plane, end):
                count = _counted(raw, count)
                name = (value, stop) if tag == _PLANE_NAME else name
        names += [raw.part(*name)] if name else []
    return names


def _counted(raw: RawFile, count: int) -> int:
    """Return ``count`` + 1, or raise ProfileError if the limit is reached."""
    if count == _MOST_PARTS:
        fault = f"has more than {_MOST_PARTS:,} planes, lines and names"
        raise ProfileError(raw.path, fault, "profile fewer steps")
    return count + 1


def _plane(raw: RawFile, start: int, stop: int) -> tuple[Any, list[list[Piece]]]:
    """Return (plane without its events, pieces of each line)."""
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
    """Return (line without its events, pieces with the events)."""
    rest, pieces = [], []
    at, window, base = start, b"", start
    while at < stop:
        if at + _MOST_HEAD_BYTES > base + len(window):
            base, window = at, raw.part(at, min(at + PIECE_BYTES, stop))
        tag, _, end = _field(window, at - base, base, stop)
        if tag != _EVENTS:
            rest.append(raw.part(at, end))
            if len(rest) > _MOST_LINE_FIELDS:
                raise OddError
        else:
            stops = _run_of_events(window, at - base)
            sizes = np.diff(stops, prepend=at - base).astype(np.uint16) if stops else None
            if stops:  # without stops, one event is longer than ``window``
                end = base + stops[-1]
            pieces.append(Piece(at, end, sizes))
        at = end
    return schema.message("XLine").FromString(b"".join(rest)), pieces


def _run_of_events(window: bytes, at: int) -> list[int]:
    """Return the ends of consecutive events that ``window`` contains completely."""
    stops: list[int] = []
    end = len(window) - 4
    while at < end and window[at] == _EVENTS and len(stops) < PIECE_EVENTS:
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
        stops.append(at)
    return stops


def _fields(raw: RawFile, start: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield (tag, start, start of the value, end) of each field."""
    base, window = start, b""
    while start < stop:
        if start + _MOST_HEAD_BYTES > base + len(window):
            base, window = start, raw.part(start, min(start + _WINDOW_BYTES, stop))
        tag, value, end = _field(window, start - base, base, stop)
        yield tag, start, value, end
        start = end


def _field(window: bytes, at: int, base: int, stop: int) -> tuple[int, int, int]:
    """Return (tag, start of the value, end) of one field."""
    tag, value = varint(window, at)
    value, end = value_end(window, tag & 7, value)
    if base + end > stop or tag >= 1 << 14 or tag < 8:
        raise OddError
    return tag, base + value, base + end
