"""Inputs that once broke a reader, each reduced to what broke it."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from attack import seeds
from attack.oracle import Tally
from attack.targets import TARGETS


def trace(**event: Any) -> bytes:
    """Kineto's document with one event that is whole and one of these values."""
    whole = {"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 2, "pid": 1, "tid": 1}
    other = {**whole, "cat": "user_annotation", **event}
    return json.dumps({"schemaVersion": 1, "traceEvents": [whole, other]}).encode()


def database(content: bytes, *statements: str) -> bytes:
    """``content`` after these statements."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(content)
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        return connection.serialize()


def sized(field: bytes) -> bytes:
    """An archive of two profiles, of which the second says that it is so large."""
    content = seeds.tar({"a.json": seeds.kineto()[0], "b.json": seeds.onnxruntime()[0]})
    at = content.index(b"b.json")
    header = bytearray(content[at : at + 512])
    header[124:136], header[148:156] = field, b" " * 8
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    return content[:at] + bytes(header) + content[at + 512 :]


ENDLESS = (
    "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE c(n) AS "
    "(SELECT 1 UNION ALL SELECT n+1 FROM c) SELECT n AS start, n AS 'end' FROM c"
)
CASES = {
    "a step of five thousand digits": ("kineto", trace(name="ProfilerStep#" + "9" * 5000)),
    "a step beyond int64": ("kineto", trace(name="ProfilerStep#" + "9" * 30)),
    "a header that is no UTF-8": (
        "kineto",
        trace().replace(b'"schemaVersion": 1', b'"schemaVersion": 1, "traceName": "a\xff"'),
    ),
    "half a surrogate in the header": (
        "kineto",
        trace().replace(b'"schemaVersion": 1', b'"schemaVersion": 1, "traceName": "\\ud800"'),
    ),
    "a rank beyond int64": (
        "kineto",
        trace().replace(b'"schemaVersion"', b'"distributedInfo": {"rank": 1e30}, "schemaVersion"'),
    ),
    "a name that steers a terminal": ("kineto", trace(name="\x1b[31m\nforged")),
    "times that leave int64": ("kineto", trace(ts=2**63, dur=2**63)),
    "a length that is not a number": ("kineto", trace(dur="nan")),
    "a size of a member beyond int64": ("packed", sized(b"\x80" + b"\xff" * 11)),
    "a size of a member below zero": ("packed", sized(b"\xff" * 12)),
    "a size of a member of 8 GiB": ("packed", sized(b"77777777777\0")),
    "a gzip stream in itself": ("packed", gzip.compress(seeds.packed()[0], mtime=0)),
    "nvprof's overhead without the thread": (
        "cuda.nvprof",
        database(
            seeds.nvprof()[0], "ALTER TABLE CUPTI_ACTIVITY_KIND_OVERHEAD DROP COLUMN objectId"
        ),
    ),
    "nvprof's markers without the thread": (
        "cuda.nvprof",
        database(seeds.nvprof()[0], "ALTER TABLE CUPTI_ACTIVITY_KIND_MARKER DROP COLUMN objectId"),
    ),
    "a view without end": (
        "cuda.nsys",
        database(seeds.nsys()[0], "DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL", ENDLESS),
    ),
    "a text that is no UTF-8": (
        "cuda.nsys",
        database(seeds.nsys()[0], "UPDATE StringIds SET value = CAST(x'ff80' AS TEXT)"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_broke_a_reader_is_read_or_refused(case: str, tmp_path: Path) -> None:
    name, content = CASES[case]
    tally = Tally()
    TARGETS[name].attack(content, tally, tmp_path)
    assert [*tally.account(least=1)] == []
    assert tally.accepted + tally.refused
