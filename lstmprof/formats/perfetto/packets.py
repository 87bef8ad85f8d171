"""The packets of a Perfetto trace, one by one: a trace is a row of them, each behind its length.

Some writers put packets by the hundred into one that is compressed; these are unpacked within the
bound of a gzipped file.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

from lstmprof.errors import ProfileError
from lstmprof.formats.raw_file import FREE_BYTES, MAX_RATIO, RawFile

_WINDOW_BYTES = 2**20
#: Writers end a packet at some kB, a compressed one at 500.
MOST_PACKET_BYTES = 2**26
#: ``packet``, the only field of a trace, whose value is a length and as many bytes.
_TAG = 0x0A
_MOST_HEAD_BYTES = 11
_AGAIN = "copy or record the trace again"
#: Of a packet, each field and the type of its value (0: a number, 2: a length and as many bytes):
#: its time, sequence, event, interned texts, flags, old descriptors, compressed packets, clock,
#: defaults, track, first of its sequence. None of them is a field of an XSpace's plane.
_OWN_FIELDS = {
    **dict.fromkeys((8, 10, 13, 41, 42, 58, 87), 0),
    **dict.fromkeys((11, 12, 36, 43, 44, 50, 59, 60, 133), 2),
}
#: The types of the first fields of every packet (perfetto's trace_packet.proto): other protobufs
#: have other types there.
TYPES = {
    **dict.fromkeys((3, 8, 10, 13), 0),
    **dict.fromkeys((1, 2, 4, 5, 6, 7, 9, 11, 12), 2),
}
_FIXED_BYTES = {1: 8, 5: 4}


def begins(head: bytes) -> bool:
    """Whether a file that begins with ``head`` is a row of packets."""
    at, own = 0, False
    try:
        while head[at : at + 1] == bytes([_TAG]):
            length, at = varint(head, at + 1)
            if length > MOST_PACKET_BYTES:
                return False
            end = min(at + length, len(head))
            while at < end:
                tag, at = varint(head, at)
                if TYPES.get(tag >> 3, tag & 7) != tag & 7:
                    return False
                own = own or _OWN_FIELDS.get(tag >> 3) == tag & 7
                at = _after(head, tag & 7, at)
            if own:
                return True
    except ValueError:
        pass
    return own


def _after(content: bytes, wire: int, at: int) -> int:
    """Where the value of this type that begins at ``at`` ends.

    Raises:
        ValueError: there is no such type, or the value is cut.
    """
    if wire == 0:
        return varint(content, at)[1]
    if wire == 2:
        length, at = varint(content, at)
        return at + length
    if wire in _FIXED_BYTES:
        return at + _FIXED_BYTES[wire]
    raise ValueError("no wire type of a packet")


def varint(content: bytes, at: int) -> tuple[int, int]:
    """(value, the position after it) of the base-128 number at ``at``.

    Raises:
        ValueError: it is cut, or longer than ten bytes.
    """
    value = shift = 0
    if content[at : at + 1] < b"\x80" and at < len(content):  # most are of one byte
        return content[at], at + 1
    for byte in content[at : at + 10]:
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError("no number")


def packets(raw: RawFile, message: Any) -> Iterator[Any]:
    """The packets of ``raw`` as ``message``, those that are compressed with the others.

    Raises:
        ProfileError: it is cut short, damaged, or its packets unpack to too much.
    """
    from google.protobuf.message import DecodeError

    left = max(FREE_BYTES, MAX_RATIO * raw.length)
    for at, content in _contents(raw):
        try:
            packet = message.FromString(content)
            if not packet.compressed_packets:
                yield packet
                continue
            unpacked = _unpacked(raw, packet.compressed_packets, left)
            left -= len(unpacked)
            for _, inner in _contents(RawFile(raw.path, unpacked)):
                yield message.FromString(inner)
        except (DecodeError, zlib.error, _CutError) as error:
            fault = f"the Perfetto trace is damaged in the packet at byte {at}"
            raise ProfileError(raw.path, fault, _AGAIN) from error


def refuse_zstd(raw: RawFile, packet: Any) -> None:
    """Raises ProfileError where ``packet`` holds others in a compression that is not read."""
    if packet.zstd_compressed_packets:
        fault = "is a Perfetto trace with zstd-compressed packets"
        raise ProfileError(raw.path, fault, "run traceconv decompress_packets first")


class _CutError(Exception):
    """Compressed packets end in the middle of one."""


def _unpacked(raw: RawFile, packed: bytes, most_bytes: int) -> bytes:
    stream = zlib.decompressobj()
    unpacked = stream.decompress(packed, most_bytes + 1)
    if len(unpacked) > most_bytes:
        fault = f"its packets decompress to more than {MAX_RATIO} times the file's size"
        raise ProfileError(
            raw.path, fault, "if you trust the file, run traceconv decompress_packets first"
        )
    if not stream.eof:
        raise _CutError
    return unpacked


def _contents(raw: RawFile) -> Iterator[tuple[int, bytes]]:
    """(where it stands, the bytes) of each packet."""
    whole = raw.length
    base, window, at = 0, b"", 0  # ``at`` counts from ``base``
    while base + at < whole:
        if at + _MOST_HEAD_BYTES > len(window) and base + len(window) < whole:
            base, at = base + at, 0
            window = raw.part(base, base + _WINDOW_BYTES)
        if window[at] != _TAG:
            raise _damaged(raw, base + at)
        try:
            length, start = varint(window, at + 1)
        except ValueError as error:
            raise _cut(raw, base + at) from error
        if start + length > len(window):
            if length > MOST_PACKET_BYTES:
                raise _damaged(raw, base + at)
            if base + start + length > whole:
                raise _cut(raw, base + at)
            base, start, at = base + at, start - at, 0
            window = raw.part(base, base + max(start + length, _WINDOW_BYTES))
        yield base + at, window[start : start + length]
        at = start + length


def _damaged(raw: RawFile, at: int) -> ProfileError:
    return ProfileError(raw.path, f"the Perfetto trace is damaged at byte {at}", _AGAIN)


def _cut(raw: RawFile, at: int) -> ProfileError:
    fault = f"the Perfetto trace is truncated in the packet at byte {at}"
    return ProfileError(raw.path, fault, _AGAIN)
