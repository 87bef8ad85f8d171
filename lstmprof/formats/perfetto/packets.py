"""Parse the packets of a Perfetto trace, and define the messages that lstmprof reads.

A trace is a sequence of length-prefixed packets. A packet may contain hundreds of compressed
packets. Source of field numbers: Perfetto's ``protos/perfetto/trace`` (trace_packet.proto,
track_event/*.proto, interned_data.proto, clock_snapshot.proto).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import cache
from typing import Any

from lstmprof.base.errors import ProfileError
from lstmprof.formats.raw_file import RawFile
from lstmprof.formats.xplane.schema import Messages, OddError, message_class, value_end, varint

_WINDOW_BYTES = 2**20
#: Unpacked bytes that any file may have; largest unpacked size per file byte (exports: 5 to 8).
FREE_BYTES, MAX_RATIO = 2**21, 50
#: Largest packet in bytes; writers end a packet after some kB, or after 500 kB if compressed.
MOST_PACKET_BYTES = 2**26
#: Tag of the field ``packet``, the only field of a trace.
_TAG = 0x0A
_MOST_HEAD_BYTES = 11
_AGAIN = "copy or record the trace again"
#: Field number -> wire type of a packet's fields that TensorFlow's XSpace files never have.
_OWN_FIELDS = {
    **dict.fromkeys((8, 10, 13, 41, 42, 58, 87), 0),
    **dict.fromkeys((11, 12, 36, 43, 44, 50, 59, 60, 133), 2),
}
#: Field number -> wire type of a packet's fields 1 to 13 (trace_packet.proto).
TYPES = {
    **dict.fromkeys((3, 8, 10, 13), 0),
    **dict.fromkeys((1, 2, 4, 5, 6, 7, 9, 11, 12), 2),
}


def begins(head: bytes) -> bool:
    """Return whether a file begins like a sequence of packets."""
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
                at = value_end(head, tag & 7, at)[1]
            if own:
                return True
    except OddError:
        pass
    return own


def packets(raw: RawFile, message: Any) -> Iterator[Any]:
    """Parse all packets of the file, and unpack compressed packets."""
    from google.protobuf.message import DecodeError

    room = max(FREE_BYTES, MAX_RATIO * raw.length)
    for at, content in _contents(raw):
        try:
            packet = message.FromString(content)
            if not packet.compressed_packets:
                yield packet
                continue
            unpacked = _unpacked(raw, packet.compressed_packets, room)
            room -= len(unpacked)
            for _, inner in _contents(RawFile(raw.path, unpacked)):
                yield message.FromString(inner)
        except (DecodeError, zlib.error, _CutError) as error:
            fault = f"the Perfetto trace is damaged in the packet at byte {at}"
            raise ProfileError(raw.path, fault, _AGAIN) from error


def refuse_zstd(raw: RawFile, packet: Any) -> None:
    if packet.zstd_compressed_packets:
        fault = "is a Perfetto trace with zstd-compressed packets"
        raise ProfileError(raw.path, fault, "run traceconv decompress_packets first")


class _CutError(Exception):
    """The packets inside a compressed packet end too early."""


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
    """Yield (position in the file, bytes) of each packet."""
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
        except OddError as error:
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


_CLOCKS: Messages = {
    "Clocks": "clocks 1 *Clock",
    "Clock": (
        "clock_id 1 uint32, timestamp 2 uint64, is_incremental 3 bool, unit_multiplier_ns 4 uint64"
    ),
}
#: Messages of the first pass over the file, which reads only tracks and clocks. Texts are bytes,
#: because texts of a damaged file may not be UTF-8.
_OUTLINE: Messages = {
    "Packet": (
        "sequence 10 uint32, clocks 6 Clocks, process_descriptor 43 Process, "
        "thread_descriptor 44 Thread, compressed_packets 50 bytes, track_descriptor 60 Track, "
        "zstd_compressed_packets 133 bytes"
    ),
    **_CLOCKS,
    "Track": (
        "uuid 1 uint64, name 2 bytes, process 3 Process, thread 4 Thread, parent_uuid 5 uint64, "
        "static_name 10 bytes, description 14 bytes"
    ),
    "Process": "pid 1 int32, process_name 6 bytes",
    "Thread": "pid 1 int32, tid 2 int64, thread_name 5 bytes",
}
_PACKET: Messages = {
    "Packet": (
        "clocks 6 Clocks, timestamp 8 uint64, sequence 10 uint32, event 11 Event, "
        "interned 12 Interned, flags 13 uint32, state_cleared 41 bool, previous_dropped 42 bool, "
        "compressed_packets 50 bytes, clock_id 58 uint32, defaults 59 Defaults"
    ),
    **_CLOCKS,
    "Defaults": "event 11 EventDefaults, clock_id 58 uint32",
    "EventDefaults": "track_uuid 11 uint64",
    "Interned": "categories 1 *Text, names 2 *Text, keys 3 *Text, values 29 *Text",
    "Text": "iid 1 uint64, text 2 bytes",
    "Event": (
        "category_iids 3 *uint64, annotations 4 *Annotation, type 9 int32, name_iid 10 uint64, "
        "track_uuid 11 uint64, categories 22 *bytes, name 23 bytes, counter_value 30 int64, "
        "double_counter_value 44 double, old_flow_ids 36 *uint64, "
        "old_terminating_flow_ids 42 *uint64, flow_ids 47 *fixed64, "
        "terminating_flow_ids 48 *fixed64"
    ),
    "Annotation": (
        "name_iid 1 uint64, name 10 bytes, bool_value 2 |bool, uint_value 3 |uint64, "
        "int_value 4 |int64, double_value 5 |double, string_value 6 |bytes, "
        "pointer_value 7 |uint64, legacy_json_value 9 |bytes, string_value_iid 17 |uint64, "
        "dict_entries 11 *Annotation, array_values 12 *Annotation"
    ),
}


@cache
def outline() -> Any:
    return message_class("perfetto_outline", _OUTLINE, "Packet")


@cache
def packet() -> Any:
    return message_class("perfetto", _PACKET, "Packet")
