"""Define the protobuf messages of an ``*.xplane.pb``, and build the classes at run time.

Generated code would tie lstmprof to one protobuf version. Source of the field numbers:
``tsl/profiler/protobuf/xplane.proto`` in openxla/xla.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

#: Name of a message -> its fields, "name number type, …"; type ``*T`` is repeated, ``|T`` a oneof.
Messages = Mapping[str, str]

#: Messages of a file. Texts are bytes, because texts of a damaged file may not be UTF-8.
_MESSAGES: Messages = {
    "XSpace": "planes 1 *XPlane, errors 2 *bytes, warnings 3 *bytes, hostnames 4 *bytes",
    "XPlane": (
        "id 1 int64, name 2 bytes, lines 3 *XLine, event_metadata 4 *EventEntry, "
        "stat_metadata 5 *StatEntry, stats 6 *XStat"
    ),
    # an entry of a protobuf map, which is encoded as a repeated message of key and value
    "EventEntry": "key 1 int64, value 2 XEventMetadata",
    "StatEntry": "key 1 int64, value 2 XStatMetadata",
    "XLine": (
        "id 1 int64, name 2 bytes, timestamp_ns 3 int64, events 4 *XEvent, duration_ps 9 int64, "
        "display_id 10 int64, display_name 11 bytes"
    ),
    "XEvent": (
        "metadata_id 1 int64, offset_ps 2 |int64, num_occurrences 5 |int64, duration_ps 3 int64, "
        "stats 4 *XStat"
    ),
    "XStat": (
        "metadata_id 1 int64, double_value 2 |double, uint64_value 3 |uint64, "
        "int64_value 4 |int64, str_value 5 |bytes, bytes_value 6 |bytes, ref_value 7 |uint64"
    ),
    "XEventMetadata": (
        "id 1 int64, name 2 bytes, metadata 3 bytes, display_name 4 bytes, stats 5 *XStat, "
        "child_id 6 *int64"
    ),
    "XStatMetadata": "id 1 int64, name 2 bytes, description 3 bytes",
}
#: Name of a type -> number in google.protobuf.FieldDescriptorProto.Type.
_TYPES = {"double": 1, "int64": 3, "uint64": 4, "int32": 5, "fixed64": 6, "bool": 8, "bytes": 12}
_TYPES |= {"uint32": 13}
_MESSAGE, _OPTIONAL, _REPEATED = 11, 1, 3
#: Bytes with which an XSpace may begin: the tags of its four fields.
FIRST_BYTES = b"\x0a\x12\x1a\x22"
_FIXED_BYTES = {1: 8, 5: 4}


class OddError(Exception):
    """A file differs from what profilers write."""


def varint(content: bytes, at: int) -> tuple[int, int]:
    """Parse a base-128 number; return (value, position after the number)."""
    if content[at : at + 1] < b"\x80" and at < len(content):  # most numbers have one byte
        return content[at], at + 1
    value = shift = 0
    for byte in content[at : at + 10]:
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise OddError


def value_end(content: bytes, wire: int, at: int) -> tuple[int, int]:
    """Return (start, end) of a field's value; a length prefix comes before the start."""
    if wire == 0:
        return at, varint(content, at)[1]
    if wire == 2:
        length, at = varint(content, at)
        return at, at + length
    if wire in _FIXED_BYTES:
        return at, at + _FIXED_BYTES[wire]
    raise OddError


@cache
def xspace() -> Any:
    return message_class("xplane", _MESSAGES, "XSpace")


@cache
def message(name: str) -> Any:
    """Return the protobuf class of a message, such as ``XLine``."""
    from google.protobuf import message_factory

    messages = xspace().DESCRIPTOR.file.message_types_by_name
    return message_factory.GetMessageClass(messages[name])


def message_class(name: str, messages: Messages, root: str) -> Any:
    """Build the protobuf classes of ``messages``; return the class of ``root``."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(
        name=f"lstmprof/{name}.proto", package=f"lstmprof.{name}", syntax="proto3"
    )
    for message, fields in messages.items():
        described = file.message_type.add(name=message)
        for field_name, number, type_ in map(str.split, fields.split(",")):
            field = described.field.add(name=field_name, number=int(number))
            field.label = _REPEATED if type_[0] == "*" else _OPTIONAL
            if type_[0] == "|":
                if not described.oneof_decl:
                    described.oneof_decl.add(name="value")
                field.oneof_index = 0
            bare = type_.lstrip("*|")
            field.type = _TYPES.get(bare, _MESSAGE)
            if field.type == _MESSAGE:
                field.type_name = f".{file.package}.{bare}"
    # use lstmprof's own pool of protobuf classes, because TensorFlow may be loaded as well
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.{root}"))


def parsed(content: bytes) -> Any:
    from google.protobuf.message import DecodeError

    try:
        return xspace().FromString(content)
    except DecodeError:
        return None


def damage(content: bytes) -> str:
    """Describe where in the file the content stops being an XSpace."""
    position = 0
    while position < len(content):
        if content[position] not in FIRST_BYTES:
            break
        try:
            length, start = varint(content, position + 1)
        except OddError:
            break
        missing = start + length - len(content)
        if missing > 0:
            return (
                "the XPlane protobuf is truncated or damaged: the part that begins at byte "
                f"{position} ends {missing} bytes after the end of the file"
            )
        plane = content[position : start + length]
        if content[position] == FIRST_BYTES[0] and parsed(plane) is None:
            return f"the XPlane protobuf is damaged in the plane at byte {position}"
        position = start + length
    return f"the XPlane protobuf is damaged at byte {position}"
