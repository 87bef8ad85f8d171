"""Trace packets: the protobuf messages of a Perfetto trace, written as they come.

A trace is a row of packets (perfetto/protos/perfetto/trace/trace.proto); one that tells of a slice
or a counter holds a TrackEvent. All are of one sequence, on which each text stands once and has a
number from then on (InternedData). Numbers of fields are Perfetto's; the tests hold what is written
here to its own messages.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import BinaryIO

_VARINT, _FIXED64, _LENGTH = 0, 1, 2
_MASK = 2**64 - 1
_ONE_BYTE = [bytes([value]) for value in range(128)]
#: TrackEvent.Type
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
#: TracePacket.SequenceFlags
_CLEARED, _NEEDS_STATE = 1, 2
#: BuiltinClock
_REALTIME, _BOOTTIME = 1, 6
#: TrackDescriptor.ChildTracksOrdering
_EXPLICIT = 3


def varint(value: int) -> bytes:
    """``value`` in groups of 7 bits, a negative one as its 64 bits."""
    if 0 <= value < 128:
        return _ONE_BYTE[value]
    value &= _MASK
    groups = bytearray()
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def _tag(field: int, wire: int) -> bytes:
    return varint(field << 3 | wire)


def number(field: int, value: int) -> bytes:
    """A field that holds an integer."""
    return _tag(field, _VARINT) + varint(value)


def message(field: int, content: bytes) -> bytes:
    """A field that holds a message, or bytes."""
    return _tag(field, _LENGTH) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    """A field that holds a text."""
    return message(field, value.encode("utf-8", "replace"))


class _Interned:
    """Texts of one kind by number; new ones wait in ``fresh`` for the packet that uses them."""

    def __init__(self, field: int, fresh: list[bytes]) -> None:
        self._field, self._fresh = field, fresh
        self._numbers: dict[str, int] = {}

    def __getitem__(self, value: str) -> int:
        place = self._numbers.get(value)
        if place is None:
            place = self._numbers[value] = len(self._numbers) + 1
            self._fresh.append(message(self._field, number(1, place) + text(2, value)))
        return place


class Packets:
    """The packets of a trace, written to ``file``; a track is named by its number, from 1."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._fresh: list[bytes] = []
        self._categories = _Interned(1, self._fresh)
        self._names = _Interned(2, self._fresh)
        self._keys = _Interned(3, self._fresh)
        self._values = _Interned(29, self._fresh)
        self._heads: dict[tuple[int, str, str], bytes] = {}
        self._tracks = 0
        self._packet(number(13, _CLEARED) + number(87, 1))

    def clocks(self, at_ns: int, epoch_ns: int) -> None:
        """Say that the instant ``at_ns`` of the trace is ``epoch_ns`` since 1970."""
        pairs = ((_BOOTTIME, at_ns), (_REALTIME, epoch_ns))
        clocks = [message(1, number(1, clock) + number(2, ns)) for clock, ns in pairs]
        self._packet(number(8, at_ns) + message(6, b"".join(clocks)))

    def track(
        self, name: str = "", parent: int = 0, *, rank: int | None = None, more: bytes = b""
    ) -> int:
        """A new track; ``rank`` is its place among those of its parent, ``more`` other fields."""
        self._tracks += 1
        content = number(1, self._tracks) + (text(2, name) if name else b"")
        content += number(5, parent) if parent else b""
        content += b"" if rank is None else number(12, rank)
        self._packet(message(60, content + more))
        return self._tracks

    def process(self, pid: int, name: str, rank: int) -> int:
        """A new track for a process, whose other tracks are in the order of their ranks."""
        process = number(1, pid) + text(6, name) + number(3, rank)
        return self.track(more=message(3, process) + number(11, _EXPLICIT))

    def thread(self, pid: int, tid: int, name: str, more: bytes = b"") -> int:
        """A new track for a thread of the process ``pid``; ``more``: other fields."""
        thread = number(1, pid) + number(2, tid) + text(5, name)
        return self.track(more=message(4, thread) + more)

    def group(self, name: str, parent: int, rank: int) -> int:
        """A new track that holds others, in the order of their ranks."""
        return self.track(name, parent, rank=rank, more=number(11, _EXPLICIT))

    def counter(self, name: str, unit: str, parent: int, rank: int, more: bytes = b"") -> int:
        """A new track for a counter of this ``unit``; ``more``: other fields."""
        return self.track(name, parent, rank=rank, more=message(8, text(6, unit)) + more)

    def argument(self, name: str, value: int | float | str) -> bytes:
        """An argument of a slice."""
        key = number(1, self._keys[name])
        if isinstance(value, str):
            return message(4, key + number(17, self._values[value]))
        if isinstance(value, float):
            return message(4, key + _tag(5, _FIXED64) + struct.pack("<d", value))
        return message(4, key + number(4, value))

    def begin(
        self,
        track: int,
        at_ns: int,
        name: str,
        category: str,
        rest: bytes = b"",
    ) -> None:
        """Begin a slice inside what is open on ``track``; ``rest``: its arguments and flows."""
        key = (track, name, category)
        head = self._heads.get(key)
        if head is None:
            head = number(9, _BEGIN) + number(3, self._categories[category])
            head += number(10, self._names[name]) + number(11, track)
            self._heads[key] = head
        self._event(at_ns, head + rest)

    def end(self, track: int, at_ns: int) -> None:
        """End the slice of ``track`` that began last."""
        self._event(at_ns, _END_HEAD + varint(track))

    def count(self, track: int, at_ns: int, value: int | float) -> None:
        """The value of a counter from ``at_ns`` on."""
        head = number(9, _COUNTER) + number(11, track)
        if isinstance(value, float):
            self._event(at_ns, head + _tag(44, _FIXED64) + struct.pack("<d", value))
        else:
            self._event(at_ns, head + number(30, value))

    def _event(self, at_ns: int, event: bytes) -> None:
        packet = _TIME + varint(at_ns) + _STATE + varint(len(event)) + event
        if self._fresh:
            packet += message(12, b"".join(self._fresh))
            self._fresh.clear()
        self._packet(packet)

    def _packet(self, content: bytes) -> None:
        packet = content + _SEQUENCE
        self._file.write(_PACKET + varint(len(packet)) + packet)


def description(value: str) -> bytes:
    """What a track says of itself."""
    return text(14, value)


def flows(started: Sequence[int] = (), ended: Sequence[int] = ()) -> bytes:
    """That arrows of these numbers start at a slice, or end there."""
    return b"".join(
        [_FLOW + struct.pack("<Q", arrow) for arrow in started]
        + [_FLOW_END + struct.pack("<Q", arrow) for arrow in ended]
    )


_PACKET, _SEQUENCE = _tag(1, _LENGTH), number(10, 1)
_TIME, _STATE = _tag(8, _VARINT), number(13, _NEEDS_STATE) + _tag(11, _LENGTH)
_END_HEAD = number(9, _END) + _tag(11, _VARINT)
_FLOW, _FLOW_END = _tag(47, _FIXED64), _tag(48, _FIXED64)
