"""SQLite databases with their cells, columns, tables and pages changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from random import Random
from typing import Any

from attack import bytes_mutations
from attack.bytes_mutations import INTEGERS, REALS, TEXTS

_TABLES = (
    *("StringIds", "StringTable", "NVTX_EVENTS", "TARGET_INFO_GPU", "META_DATA_EXPORT"),
    *("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", "PROFILER_OVERHEAD"),
    *("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_MEMSET", "CUPTI_ACTIVITY_KIND_MARKER"),
    *("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "ENUM_NSYS_EVENT_TYPE", "ThreadNames", "TARGET_INFO"),
)
#: What a hostile file says of its own tables.
_SCHEMAS = (
    "CREATE VIEW {0} AS WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c) "
    "SELECT n AS start, n AS 'end', n AS id, 'x' AS value FROM c",
    "CREATE TABLE {0} (start INT, 'end' INT AS (start / 0), correlationId)",
    "CREATE TABLE {0} (start INTEGER PRIMARY KEY, 'end') WITHOUT ROWID",
    "CREATE TABLE {0} (start)",
    "CREATE VIRTUAL TABLE {0} USING fts5(value)",
)


def mutated(content: bytes, draw: Random) -> bytes:
    """``content`` with up to three changes by SQL, or of its bytes."""
    if draw.random() < 0.35:
        return _pages(content, draw)
    with closing(sqlite3.connect(":memory:")) as connection:
        try:
            connection.deserialize(content)
            for _ in range(draw.randint(1, 3)):
                draw.choice(_CHANGES)(connection, draw)
            connection.commit()
            written = connection.serialize()
        except (sqlite3.Error, MemoryError, UnicodeError, OverflowError, IndexError):
            return _pages(content, draw)
    return _pages(written, draw) if draw.random() < 0.1 else written


def _pages(content: bytes, draw: Random) -> bytes:
    """With changes in the header, in a page's own header, or anywhere."""
    if len(content) > 100 and draw.random() < 0.6:
        page = draw.randrange(max(1, len(content) // 1024)) * 1024
        at = draw.choice((draw.randrange(16, 100), page + draw.randrange(12), page))
        byte = draw.choice((0, 1, 2, 5, 10, 13, 127, 255, draw.randrange(256)))
        return content[:at] + bytes([byte]) + content[at + 1 :]
    return bytes_mutations.mutated(content, draw)


def _value(draw: Random) -> Any:
    numbers = [number for number in INTEGERS if -(2**63) <= number < 2**63]
    texts = [text for text in TEXTS if text.isprintable()]
    kinds = (
        numbers,
        numbers,
        REALS,
        texts,
        (None, b"", bytes(12), b"\xff" * 12, draw.randbytes(5)),
    )
    return draw.choice(draw.choice(kinds))


def _table(connection: sqlite3.Connection, draw: Random) -> tuple[str, list[str]]:
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    table = draw.choice(rows)[0]
    columns = connection.execute(f'PRAGMA table_info("{table}")').fetchall()
    return table, [column[1] for column in columns]


def _cell(connection: sqlite3.Connection, draw: Random) -> None:
    table, columns = _table(connection, draw)
    where = f"rowid = {draw.randint(1, 3)}" if draw.random() < 0.8 else "1"
    column = draw.choice(columns)
    if draw.random() < 0.1:
        sql = f'UPDATE "{table}" SET "{column}" = CAST(x\'ff80\' AS TEXT) WHERE {where}'
        connection.execute(sql)
        return
    connection.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE {where}', (_value(draw),))


def _copied(connection: sqlite3.Connection, draw: Random) -> None:
    """A value of one column in another, or rows twice."""
    table, columns = _table(connection, draw)
    if draw.random() < 0.5:
        connection.execute(f'INSERT INTO "{table}" SELECT * FROM "{table}"')
    else:
        one, other = draw.choice(columns), draw.choice(columns)
        connection.execute(f'UPDATE "{table}" SET "{one}" = "{other}"')


def _column(connection: sqlite3.Connection, draw: Random) -> None:
    table, columns = _table(connection, draw)
    column = draw.choice(columns)
    if draw.random() < 0.5:
        connection.execute(f'ALTER TABLE "{table}" DROP COLUMN "{column}"')
    else:
        other = draw.choice((*columns, "start", "end", "text", "id", "value", "x y", 'a"b'))
        quoted = other.replace('"', '""')
        connection.execute(f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "{quoted}"')


def _other_table(connection: sqlite3.Connection, draw: Random) -> None:
    table, _ = _table(connection, draw)
    if draw.random() < 0.4:
        connection.execute(f'ALTER TABLE "{table}" RENAME TO "{draw.choice(_TABLES)}"')
        return
    connection.execute(f'DROP TABLE "{table}"')
    if draw.random() < 0.6:
        connection.execute(draw.choice(_SCHEMAS).format(table))


def _emptied(connection: sqlite3.Connection, draw: Random) -> None:
    table, _ = _table(connection, draw)
    connection.execute(f'DELETE FROM "{table}"')


def _described(connection: sqlite3.Connection, draw: Random) -> None:
    """What the schema's own table says, changed past SQLite's checks."""
    connection.execute("PRAGMA writable_schema = ON")
    column = draw.choice(("type", "name", "tbl_name", "rootpage", "sql"))
    value = draw.choice(("table", "view", "x", 0, 1, 2, 99, -1, None, b"\xff", "CREATE TABLE x(y)"))
    row = draw.randint(1, 8)
    connection.execute(f"UPDATE sqlite_master SET {column} = ? WHERE rowid = {row}", (value,))


_CHANGES: tuple[Callable[[sqlite3.Connection, Random], None], ...] = (
    *(_cell, _cell, _cell, _cell, _copied, _column, _column, _other_table, _emptied, _described),
)
