"""Damage that knows nothing of a format: bytes changed, cut, doubled, moved; and hostile values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

#: Numbers at the ends of what types hold, and beyond.
INTEGERS = (
    *(0, 1, -1, 2, 7, 127, 128, 255, 65_535, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53 + 1),
    *(2**61 - 1, 2**61, 2**62, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64 - 1, 2**64, 10**30),
)
REALS = (0.5, -0.0, 1e-320, 1e17, 9.2e18, 1.8e19, 1e300, -1e300)
#: Texts that terminals, spreadsheets, parsers and file systems take for something else.
TEXTS = (
    *("", " ", "x", "nan", "inf", "-inf", "null", "1e400", "0x10", "1_0", "٣", "9" * 400, "-"),
    *("\x1b[31mred", "a\nb", "a\r\nforged", "\x00", "\x85", "\u202e\u2066", "\ud800", "=1+1"),
    *("../../etc/passwd", "/", ".", "x" * 3000, "%s%n{0}", "stream 7", "CUDA functions"),
    *("ProfilerStep#" + "9" * 400, "ProfilerStep#-1", "step#1", "1:2:3", "size:-1", "[[1, 2]]"),
)
_BYTES = (0, 1, 8, 10, 18, 26, 34, 0x22, 0x2C, 0x5C, 0x7B, 0x7D, 0x7F, 0x80, 0xC0, 0xFF)
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
#: The part of an input that one mutation touches is seldom longer.
_SPAN = 40


def mutated(content: bytes, draw: Random, others: Sequence[bytes] = ()) -> bytes:
    """``content`` with one change that ``draw`` decides; ``others`` lend their bytes."""
    if not content:
        return draw.randbytes(draw.randint(1, 64))
    kind = draw.choice((_flipped, _set, _cut, _dropped, _doubled, _moved, _numbered, _grown))
    if others and draw.random() < 0.1:
        other = draw.choice(others)
        return content[: draw.randrange(len(content))] + other[draw.randrange(len(other)) :]
    return kind(content, draw)


def _span(content: bytes, draw: Random) -> tuple[int, int]:
    begin = draw.randrange(len(content))
    return begin, min(len(content), begin + draw.randint(1, _SPAN))


def _flipped(content: bytes, draw: Random) -> bytes:
    at = draw.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1 << draw.randrange(8)]) + content[at + 1 :]


def _set(content: bytes, draw: Random) -> bytes:
    at = draw.randrange(len(content))
    return content[:at] + bytes([draw.choice(_BYTES)]) + content[at + 1 :]


def _cut(content: bytes, draw: Random) -> bytes:
    return content[: draw.randrange(len(content))]


def _dropped(content: bytes, draw: Random) -> bytes:
    begin, end = _span(content, draw)
    return content[:begin] + content[end:]


def _doubled(content: bytes, draw: Random) -> bytes:
    begin, end = _span(content, draw)
    return content[:end] + content[begin:end] * draw.choice((1, 1, 2, 50)) + content[end:]


def _moved(content: bytes, draw: Random) -> bytes:
    begin, end = _span(content, draw)
    rest = content[:begin] + content[end:]
    at = draw.randint(0, len(rest))
    return rest[:at] + content[begin:end] + rest[at:]


def _grown(content: bytes, draw: Random) -> bytes:
    at = draw.randint(0, len(content))
    return content[:at] + draw.randbytes(draw.randint(1, 12)) + content[at:]


def _numbered(content: bytes, draw: Random) -> bytes:
    """With another number in place of one that is written in digits."""
    numbers = [*_NUMBER.finditer(content)]
    if not numbers:
        return _set(content, draw)
    number = draw.choice(numbers)
    other = str(draw.choice((*INTEGERS, *REALS))).encode()
    return content[: number.start()] + other + content[number.end() :]
