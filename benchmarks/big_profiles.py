"""Make a big Kineto profile from a real one by repeating its events at later times.

Each copy has the events of the real file; only times, correlation ids, flow ids and ids of ops
change. So no id occurs in two copies, and the links within each copy stay valid.

Example: ``python benchmarks/big_profiles.py real.pt.trace.json.gz 1000000000 big.json``
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')
_TIME = rb'(?P<time>"ts": )(?P<whole>\d+)'
_ID = rb'(?P<id>"(?:correlation|External id|external id|id)": )(?P<number>\d+)'
_CHANGING = re.compile(_TIME + rb"|" + _ID)
_PAUSE_US = 100


def grown(profile: bytes, least_bytes: int) -> Iterator[bytes]:
    """Yield the content of a grown ``profile``, of at least ``least_bytes``, in pieces."""
    opening = _ARRAY.search(profile)
    if opening is None:
        raise SystemExit("the profile has no traceEvents")
    closing = _closing(profile, opening.end() - 1)
    head, tail = profile[: opening.end()], profile[closing:]
    template = profile[opening.end() : closing].rstrip()
    found = list(_CHANGING.finditer(template))
    times = [int(one["whole"]) for one in found if one["time"]]
    numbers = [int(one["number"]) for one in found if one["id"]]
    period_us = max(times) - min(times) + _PAUSE_US
    parts = re.sub(rb"%", rb"%%", template)
    parts = _CHANGING.sub(lambda one: (one["time"] or one["id"]) + b"%d", parts)
    is_time = [bool(one["time"]) for one in found]
    first = [int(one["whole"] or one["number"]) for one in found]
    yield head
    written = len(head)
    copy = 0
    while written < least_bytes:
        moved = (copy * period_us, copy * (max(numbers) + 1))
        values = [
            v + moved[0] if t else v + moved[1] * (v > 0)
            for v, t in zip(first, is_time, strict=True)
        ]
        piece = (b"," if copy else b"") + parts % tuple(values)
        yield piece
        written += len(piece)
        copy += 1
    yield tail


def _closing(profile: bytes, opening: int) -> int:
    """Return the position of the bracket that closes the bracket at position ``opening``."""
    array = profile[opening:].decode("utf-8", errors="surrogateescape")
    _, length = json.JSONDecoder(strict=False).raw_decode(array)
    return opening + len(array[:length].encode("utf-8", errors="surrogateescape")) - 1


def write(profile: Path, least_bytes: int, path: Path) -> None:
    """Write a profile of at least ``least_bytes``, grown from ``profile``, to ``path``.

    The file is gzipped if ``path`` ends in .gz; ``least_bytes`` is the size before compression.
    """
    content = profile.read_bytes()
    content = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
    with gzip.open(path, "wb", 6) if path.suffix == ".gz" else path.open("wb") as file:
        for piece in grown(content, least_bytes):
            file.write(piece)


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(float(sys.argv[2])), Path(sys.argv[3]))
