"""Tar archives and gzip streams with their headers, members and lengths changed."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Sequence
from random import Random

from attack import bytes_mutations
from attack.bytes_mutations import TEXTS

_BLOCK = 512
#: Offset and length of the fields of a header: https://www.gnu.org/software/tar/manual/ (ustar).
_FIELDS = ((0, 100), (100, 8), (108, 8), (116, 8), (124, 12), (136, 12), (157, 100), (257, 8))
_SUM, _TYPE, _SIZE = (148, 156), 156, (124, 136)
_TYPES = b"0\x001234567LKxgSVDMN\xff"
_NUMBERS = (
    *(b"\x80" + b"\xff" * 11, b"\xff" * 12, b"7" * 12, b"-1".ljust(12), b"\x80" + bytes(11)),
    *(b"0" * 11 + b"\0", b"9" * 12, b"\0" * 12, b"77777777777\0", b"\x80" + bytes(6) + b"\x7f" * 5),
)
_PAX = (b"size=-1", b"size=1e9", b"path=" + b"a" * 400, b"path=\xff\xfe", b"GNU.sparse.map=1", b"")
GZIP_MAGIC = b"\x1f\x8b"


def mutated(content: bytes, draw: Random, plain: Sequence[bytes]) -> bytes:
    """``content``, a gzip stream or an archive, changed; ``plain`` are profiles to pack anew."""
    if content.startswith(GZIP_MAGIC) and draw.random() < 0.85:
        return _gzip(content, draw, plain)
    if content[257:262] == b"ustar" and draw.random() < 0.9:
        return _tar(content, draw, plain)
    return bytes_mutations.mutated(content, draw)


def _gzip(content: bytes, draw: Random, plain: Sequence[bytes]) -> bytes:
    kind = draw.randrange(8)
    if kind == 0:  # its flags, which say what else stands in the header
        return content[:3] + bytes([draw.randrange(256)]) + content[4:]
    if kind == 1:  # the check sum or the length at its end
        at = len(content) - draw.randint(1, 8)
        return content[:at] + draw.randbytes(1) + content[at + 1 :]
    if kind == 2:
        return content + draw.choice((content, bytes(64), b"junk", content[:20], GZIP_MAGIC))
    if kind == 3:
        return gzip.compress(content, mtime=0)
    if kind == 4:
        return _with_header(draw.choice(plain), draw)
    if kind == 5:
        inner = bytes_mutations.mutated(draw.choice(plain), draw)
        return gzip.compress(inner, compresslevel=draw.choice((0, 1, 9)), mtime=0)
    if kind == 6:  # stored blocks, whose lengths are written twice
        stored = gzip.compress(draw.choice(plain), compresslevel=0, mtime=0)
        at = 10 + draw.randrange(5)
        return stored[:at] + draw.randbytes(1) + stored[at + 1 :]
    return bytes_mutations.mutated(content, draw)


def _with_header(inner: bytes, draw: Random) -> bytes:
    """A gzip stream whose header has a name, a comment and more, all as the standard allows."""
    extra = draw.randbytes(draw.choice((0, 3, 300)))
    name = draw.choice(TEXTS).encode("utf-8", "surrogatepass").replace(b"\0", b"")[:200] + b"\0"
    body = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = body.compress(inner) + body.flush()
    head = GZIP_MAGIC + b"\x08\x1c" + draw.randbytes(4) + b"\0\xff"
    head += struct.pack("<H", len(extra)) + extra + name + b"comment\0"
    return head + packed + struct.pack("<II", zlib.crc32(inner), len(inner) % 2**32)


def _tar(content: bytes, draw: Random, plain: Sequence[bytes]) -> bytes:
    blocks = [content[at : at + _BLOCK] for at in range(0, len(content), _BLOCK)]
    headers = [at for at, block in enumerate(blocks) if block[257:262] == b"ustar"]
    at = draw.choice(headers)
    header, kind = bytearray(blocks[at].ljust(_BLOCK, b"\0")), draw.randrange(8)
    if kind == 0:
        blocks.insert(draw.randint(0, len(blocks)), blocks[draw.randrange(len(blocks))])
    elif kind == 1:
        del blocks[draw.randrange(len(blocks))]
    elif kind == 2:
        return content[: draw.randrange(len(content))]
    elif kind == 3:
        header[_TYPE] = draw.choice(_TYPES)
    elif kind == 4:
        header[slice(*_SIZE)] = draw.choice(_NUMBERS)
    elif kind == 5:
        text = draw.choice(TEXTS).encode("utf-8", "surrogatepass")
        header[:100] = (draw.choice((text, b"\xff" * 8, b"a/" * 40)) + b".json")[:100].ljust(
            100, b"\0"
        )
    elif kind == 6:
        blocks[at:at] = _pax(draw)
        return b"".join(blocks)
    else:
        begin, length = draw.choice(_FIELDS)
        header[begin + draw.randrange(length)] = draw.randrange(256)
    if kind >= 3:
        blocks[at] = _summed(header) if draw.random() < 0.9 else bytes(header)
    return b"".join(blocks)


def _pax(draw: Random) -> list[bytes]:
    """A header of extensions before the next member, their length true or not."""
    record = draw.choice(_PAX)
    length = draw.choice((len(record) + 4, 5, 99_999_999, 0, -1))
    body = f"{length} ".encode() + record + b"\n"
    header = bytearray(_BLOCK)
    header[:5], header[257:265] = b"x.pax", b"ustar\x0000"
    header[_TYPE] = draw.choice(b"xgLKX")
    header[slice(*_SIZE)] = f"{draw.choice((len(body), 0, 10**9)):011o}\0".encode()
    return [_summed(header), body.ljust(_BLOCK, b"\0")]


def _summed(header: bytearray) -> bytes:
    header[slice(*_SUM)] = b" " * 8
    header[slice(*_SUM)] = f"{sum(header):06o}\0 ".encode()
    return bytes(header)
