"""Read the tables of an SQLite profile as columns.

Profiles are untrusted. Only ordinary tables are read, by full scans or by row number: a view,
trigger, generated column or index could run an expression of the file
(https://sqlite.org/security.html). A value of an unexpected type counts as null. A scan that yields
more rows than fit into the file raises an error.
"""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lstmprof.base.errors import ProfileError
from lstmprof.formats.raw_file import RawFile

Ints = NDArray[np.int64]

#: Number that stands for null in integer arrays of these readers; the events table has nulls.
UNKNOWN = int(np.iinfo(np.int64).min)


MAGIC = b"SQLite format 3\x00"
#: Longest value in bytes; the name of a C++ template may have 100,000 bytes.
MAX_VALUE_BYTES = 2**24
#: Fewest bytes of a row in the file: position, length, row number and header.
_MIN_ROW_BYTES = 4
_CHUNK_ROWS = 65_536
#: Alias of the foreign key in SQL joins.
_KEY = "pointing_key"
#: Bytes (begin, end) of page size and page count. Source: sqlite.org/fileformat2.html, 1.3.
_PAGE_SIZE, _PAGES = (16, 18), (28, 32)


@dataclass(frozen=True)
class Database:
    """An open database, with the names of its readable columns."""

    connection: sqlite3.Connection
    columns: Mapping[str, frozenset[str]]
    most_rows: int

    def ints(self, table: str, *names: str) -> dict[str, Ints]:
        """Return columns of integers; ``UNKNOWN`` for other values and missing columns."""
        chunks = list(self.int_chunks(table, *names))
        empty = np.empty(0, np.int64)
        return {name: np.concatenate([empty, *(read[name] for read in chunks)]) for name in names}

    def texts(self, table: str, name: str) -> list[str | None]:
        """Return a column of texts, with None instead of other values."""
        return [text for chunk in self.text_chunks(table, name) for text in chunk.to_pylist()]

    def strings(self, table: str, key: str, value: str) -> dict[int, str]:
        """Return {integer in column ``key``: text in column ``value``}."""
        if not {key, value} <= self.columns.get(table, frozenset()):
            return {}
        keys = self.ints(table, key)[key].tolist()
        pairs = zip(keys, self.texts(table, value), strict=True)
        return {number: text for number, text in pairs if text is not None}

    def int_chunks(self, table: str, *names: str) -> Iterator[dict[str, Ints]]:
        """Yield columns of integers in chunks of rows."""
        return self._int_chunks(self.columns[table], names, f"{quoted(table)} NOT INDEXED")

    def pointed_ints(
        self, table: str, key: str, other: str, *names: str
    ) -> Iterator[dict[str, Ints]]:
        """Join each ``table.key`` with the row of ``other`` that has this row number."""
        return self._int_chunks(self.columns[other], names, self._pointed(table, key, other))

    def pointed_texts(self, table: str, key: str, other: str, name: str) -> Iterator[pa.Array]:
        """Yield a text of ``other`` per row of ``table``, joined as in ``pointed_ints``."""
        exact = f"CASE WHEN typeof({quoted(name)}) = 'text' THEN {quoted(name)} END"
        # Limit the texts' total length: a hostile file may refer to one long text in every row.
        texts = self._within(f"SELECT {exact} FROM {self._pointed(table, key, other)}")
        while chunk := list(itertools.islice(texts, _CHUNK_ROWS)):
            yield pa.array(chunk, pa.string())

    def _within(self, query: str) -> Iterator[str | None]:
        room = self.most_rows * _MIN_ROW_BYTES
        for (text,) in self.connection.execute(query):
            room -= len(text or "")
            if room < 0:
                raise sqlite3.DatabaseError("references to texts exceed the file's size")
            yield text

    def text_at(self, table: str, name: str, number: int) -> str | None:
        self._check_numbered(table)
        exact = f"CASE WHEN typeof({quoted(name)}) = 'text' THEN {quoted(name)} END"
        query = (
            f"SELECT {exact} FROM {quoted(table)} NOT INDEXED WHERE rowid = :number AND +id = rowid"
        )
        row = self.connection.execute(query, {"number": number}).fetchone()
        return row[0] if row else None

    def _pointed(self, table: str, key: str, other: str) -> str:
        self._check_numbered(other)
        keys = f"(SELECT {quoted(key)} AS {_KEY} FROM {quoted(table)} NOT INDEXED)"
        return f"{keys} LEFT JOIN {quoted(other)} AS other NOT INDEXED ON other.rowid = {_KEY}"

    def _check_numbered(self, table: str) -> None:
        """Raise sqlite3.DatabaseError if a column of the table hides SQLite's row number."""
        if {"rowid", _KEY} & {name.lower() for name in self.columns[table]}:
            raise sqlite3.DatabaseError(f"table {table} has a column named rowid")

    def _int_chunks(
        self, columns: frozenset[str], names: tuple[str, ...], source: str
    ) -> Iterator[dict[str, Ints]]:
        present = [name for name in names if name in columns]
        chosen = present or sorted(columns)[:1]
        exact = ", ".join(
            f"CASE WHEN typeof({quoted(n)}) = 'integer' THEN {quoted(n)} ELSE :value END"
            for n in chosen
        )
        for rows in self._chunks(source, exact, UNKNOWN):
            chunk = np.array(rows, np.int64)
            absent = np.full(len(chunk), UNKNOWN)
            read = {name: np.ascontiguousarray(chunk[:, i]) for i, name in enumerate(present)}
            yield {name: read.get(name, absent) for name in names}

    def text_chunks(self, table: str, name: str) -> Iterator[pa.Array]:
        """Yield a column of texts in chunks, with null instead of other values."""
        return (pa.array(chunk, pa.string()) for chunk in self._values(table, name, "text"))

    def blobs(self, table: str, name: str) -> list[bytes | None]:
        """Return a column of byte strings, with None instead of other values."""
        return [blob for chunk in self._values(table, name, "blob") for blob in chunk]

    def _values(self, table: str, name: str, type_: str) -> Iterator[list[Any]]:
        if name in self.columns.get(table, frozenset()):
            exact = f"CASE WHEN typeof({quoted(name)}) = :value THEN {quoted(name)} END"
            for rows in self._chunks(f"{quoted(table)} NOT INDEXED", exact, type_):
                yield [row[0] for row in rows]

    def _chunks(self, source: str, exact: str, value: int | str) -> Iterator[list[Any]]:
        # Name the parameter: numbers (?1) raise a DeprecationWarning in Python 3.12.0 to 3.12.3.
        query = f"SELECT {exact} FROM {source}"
        cursor = self.connection.execute(query, {"value": value})
        room = self.most_rows
        while rows := cursor.fetchmany(_CHUNK_ROWS):
            room -= len(rows)
            if room < 0:
                raise sqlite3.DatabaseError(f"{source} has more rows than fit into the file")
            yield rows


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def is_sqlite(raw: RawFile) -> bool:
    return raw.part(0, len(MAGIC)) == MAGIC


def names(raw: RawFile, wanted: tuple[str, ...]) -> set[str]:
    """Return table names; if the file is damaged, the ``wanted`` names in its bytes."""
    if not is_sqlite(raw):
        return set()
    try:
        with raw.on_disk() as path, contextlib.closing(_connected(path)) as connection:
            return set(_columns(connection))
    except (sqlite3.Error, UnicodeError):
        return {name for name in wanted if name.encode() in raw.content}


@contextlib.contextmanager
def opened(raw: RawFile) -> Iterator[Database]:
    """Open a database; raise ProfileError if the file is truncated or damaged."""
    _check_length(raw)
    try:
        with raw.on_disk() as path, contextlib.closing(_connected(path)) as connection:
            most_rows = raw.length // _MIN_ROW_BYTES
            yield Database(connection, _columns(connection), most_rows)
    except (sqlite3.Error, UnicodeError) as error:
        raise ProfileError(
            raw.path, f"the SQLite database is damaged ({error})", "copy or export it again"
        ) from error


def _check_length(raw: RawFile) -> None:
    page_bytes = int.from_bytes(raw.part(*_PAGE_SIZE), "big")
    page_bytes = 65_536 if page_bytes == 1 else page_bytes
    expected = page_bytes * int.from_bytes(raw.part(*_PAGES), "big")
    if raw.length < expected:
        raise ProfileError(
            raw.path,
            f"the SQLite database is truncated: {raw.length} of {expected} bytes",
            "copy or export it again",
        )


def _connected(path: Path) -> sqlite3.Connection:
    """Connect read-only, without looking for a journal beside the file."""
    uri = f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"
    connection = sqlite3.connect(uri, uri=True)
    connection.text_factory = lambda value: value.decode("utf-8", errors="replace")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA query_only = ON")
    return connection


def _columns(connection: sqlite3.Connection) -> dict[str, frozenset[str]]:
    """Return the columns of ordinary tables, without views and virtual tables."""
    listed = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage")
    columns = {}
    for (table,) in listed.fetchall():
        described = connection.execute(f"PRAGMA table_info({quoted(str(table))})").fetchall()
        columns[str(table)] = frozenset(str(row[1]) for row in described)
    return columns
