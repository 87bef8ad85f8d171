"""Protobuf with its wire changed: values, types, numbers and lengths of fields, at any depth.

https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from attack import bytes_mutations
from attack.bytes_mutations import INTEGERS, TEXTS

_VARINT, _FIXED64, _LENGTH, _GROUP, _END_GROUP, _FIXED32 = range(6)
_DEEPEST = 6


@dataclass
class Field:
    """One field: ``value`` is a varint's number, the bytes of others, or the fields within it."""

    number: int
    type: int
    value: int | bytes | list[Field]
    length: int | None = None  # what is claimed, where it is not what is there


def mutated(content: bytes, draw: Random) -> bytes:
    """``content`` with up to three changes of its fields, or of its bytes if it is no protobuf."""
    fields = _fields(content, 0)
    if not fields or draw.random() < 0.1:
        return bytes_mutations.mutated(content, draw)
    for _ in range(draw.randint(1, 3)):
        lists = [(fields, None), *_lists(fields)]
        inside, owner = draw.choice(lists)
        if not inside:
            continue
        _change(inside, draw)
        if owner is not None and draw.random() < 0.05:
            owner.length = draw.choice((0, 1, 127, 2**31 - 1, 2**32, 2**63, len(content)))
    written = _written(fields)
    return bytes_mutations.mutated(written, draw) if draw.random() < 0.1 else written


def _lists(fields: list[Field]) -> list[tuple[list[Field], Field | None]]:
    found: list[tuple[list[Field], Field | None]] = []
    for field in fields:
        if isinstance(field.value, list):
            found.append((field.value, field))
            found += _lists(field.value)
    return found


def _change(fields: list[Field], draw: Random) -> None:
    at = draw.randrange(len(fields))
    field, kind = fields[at], draw.randrange(9)
    if kind == 0:
        del fields[at]
    elif kind == 1:
        fields.insert(draw.randint(0, len(fields)), field)
    elif kind == 2:
        field.number = draw.choice((0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 15, 16, 2**28, 2**29 - 1))
    elif kind == 3:
        field.type = draw.randrange(8)
    elif kind == 4:
        draw.shuffle(fields)
    elif kind == 5 and isinstance(field.value, list):
        field.value = _written(field.value)[: draw.randint(0, 200)]
    elif kind == 6:
        depth = draw.choice((1, 3, 120))
        for _ in range(depth):
            fields[at] = Field(field.number, _LENGTH, [fields[at]])
    else:
        _revalue(field, draw)


def _revalue(field: Field, draw: Random) -> None:
    if field.type == _VARINT:
        field.value = draw.choice(INTEGERS) % 2**64
    elif field.type == _FIXED64:
        field.value = draw.choice((bytes(8), b"\xff" * 8, draw.randbytes(8)))
    elif isinstance(field.value, bytes):
        text = draw.choice(TEXTS).encode("utf-8", "surrogatepass")
        field.value = draw.choice((text, b"", field.value * 2, draw.randbytes(9)))
    elif isinstance(field.value, list) and field.value:
        _revalue(draw.choice(field.value), draw)


def _fields(content: bytes, depth: int) -> list[Field] | None:
    """The fields that ``content`` is; None where it is no message."""
    fields, at = [], 0
    while at < len(content):
        key = _varint(content, at)
        if key is None or not 1 <= key[0] >> 3 < 64:
            return None
        number, type_, at = key[0] >> 3, key[0] & 7, key[1]
        value: int | bytes | list[Field]
        if type_ == _VARINT:
            varint = _varint(content, at)
            if varint is None:
                return None
            value, at = varint
        elif type_ in (_FIXED64, _FIXED32):
            length = 8 if type_ == _FIXED64 else 4
            value, at = content[at : at + length], at + length
        elif type_ == _LENGTH:
            varint = _varint(content, at)
            if varint is None or varint[1] + varint[0] > len(content):
                return None
            inner = content[varint[1] : varint[1] + varint[0]]
            value = (_fields(inner, depth + 1) if depth < _DEEPEST else None) or inner
            at = varint[1] + varint[0]
        else:
            return None
        fields.append(Field(number, type_, value))
    return fields if at == len(content) else None


def _varint(content: bytes, at: int) -> tuple[int, int] | None:
    value = 0
    for place in range(10):
        if at + place >= len(content):
            return None
        byte = content[at + place]
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    return None


def _written(fields: list[Field]) -> bytes:
    return b"".join(map(_field, fields))


def _field(field: Field) -> bytes:
    value = field.value
    key = _as_varint(field.number << 3 | field.type)
    if isinstance(value, int):
        return key + _as_varint(value)
    content = _written(value) if isinstance(value, list) else value
    if field.type in (_FIXED64, _FIXED32) and isinstance(value, bytes):
        return key + content
    return key + _as_varint(len(content) if field.length is None else field.length) + content


def _as_varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
