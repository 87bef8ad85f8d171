"""SQLite profiles built in code: tables as rows of columns, with the types that SQLite infers."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from lstmprof.events import Profile
from lstmprof.formats import read
from lstmprof.formats.cuda.database_tables import quoted

Rows = list[dict[str, Any]]


def write(file: Path, *statements: str, **tables: Rows) -> Path:
    """A database of ``tables`` at ``file``, a column for each key; then ``statements`` run."""
    file.unlink(missing_ok=True)
    with closing(sqlite3.connect(file)) as connection, connection:
        for table, rows in tables.items():
            columns = list(dict.fromkeys(key for row in rows for key in row))
            listed = ", ".join(quoted(c) for c in columns)
            connection.execute(f"CREATE TABLE {quoted(table)} ({listed})")
            marks = ", ".join("?" * len(columns))
            values = [[row.get(c) for c in columns] for row in rows]
            connection.executemany(f"INSERT INTO {quoted(table)} VALUES ({marks})", values)
        for statement in statements:
            connection.execute(statement)
    return file


def column(profile: Profile, name: str) -> list[Any]:
    return list(profile.events[name].to_pylist())


def by_name(profile: Profile, name: str) -> dict[str, Any]:
    """A column of the events by their names."""
    return dict(zip(column(profile, "name"), column(profile, name), strict=True))


def read_tables(folder: Path, *statements: str, **tables: Rows) -> Profile:
    return read(write(folder / "profile.sqlite", *statements, **tables))
