"""A DuckDB connection that knows the tables of some runs, and nothing else.

``events`` and ``timings`` are views over the runs' Parquet files, so that they may be larger than
memory; a table of ``breakdown.tables`` is made where the query names it. Then the connection is
locked: it reads those files alone, loads no extension, reaches no network. Only a SELECT is run,
which cannot write. Source: DuckDB, "Securing DuckDB".
"""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lstmprof.breakdown import break_down
from lstmprof.breakdown.tables import TABLES
from lstmprof.breakdown.tables.database import literally, quoted, reading
from lstmprof.errors import LstmprofError, UsageError
from lstmprof.events.schema import SCHEMA, schema
from lstmprof.numbers import UNKNOWN
from lstmprof.runs.columns import ITERATIONS, SAMPLES
from lstmprof.runs.metadata import facts_table
from lstmprof.runs.run import Run

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_RUN = pa.field("run", pa.string(), False)
_FILES = {"samples": schema(SAMPLES), "events": SCHEMA, "timings": schema(ITERATIONS)}
NAMES = ("runs", *reversed(_FILES), *TABLES)

#: What may be read is settled before; the last one keeps the query from changing the others.
_LOCKED = (
    "python_enable_replacements=false",
    "autoinstall_known_extensions=false",
    "autoload_known_extensions=false",
    "allow_community_extensions=false",
    "enable_external_access=false",
    "lock_configuration=true",
)

_NUMBERS = ("INT", "DOUBLE", "FLOAT", "DECIMAL", "NUMERIC", "NUMBER")


@dataclass(frozen=True)
class Answer:
    """Columns, their DuckDB types, and rows."""

    names: Sequence[str]
    types: Sequence[str]
    rows: Sequence[Sequence[Any]]

    @property
    def columns(self) -> list[str]:
        """The names; one that came before gets a number."""
        heads: list[str] = []
        for name in self.names:
            number, head = 1, name
            while head in heads:
                number += 1
                head = f"{name}_{number}"
            heads.append(head)
        return heads

    def records(self) -> list[dict[str, Any]]:
        """The rows for JSON and CSV."""
        columns = self.columns
        return [dict(zip(columns, map(_plain, row), strict=True)) for row in self.rows]

    def headings(self) -> list[str]:
        """The columns for a terminal; numbers are aligned to the right."""
        return [(">" if self._is_number(i) else "") + name for i, name in enumerate(self.columns)]

    def texts(self) -> list[list[str]]:
        """The rows for a terminal."""
        return [[_shown(value) for value in row] for row in self.rows]

    def long(self) -> list[str]:
        """The columns that may be cut where a line is too long."""
        return [name for i, name in enumerate(self.columns) if not self._is_number(i)]

    def _is_number(self, at: int) -> bool:
        type_ = self.types[at]
        return any(part in type_ for part in _NUMBERS) and not type_.endswith("]")


def _plain(value: Any) -> Any:
    """``value`` as JSON has it: no NaN, no infinity, no type of Python's own."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(element) for key, element in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(element) for element in value]
    return str(value)


def _shown(value: Any) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, float):
        return f"{value:.6g}" if abs(value) < 1e6 else f"{value:.1f}"
    return str(value)


def answer(sql: str, runs: Sequence[Run]) -> Answer:
    """The rows of the SELECT ``sql`` over the tables of ``runs``.

    Raises:
        UsageError: it is no single SELECT, or DuckDB refuses it; names the tables.
        RunError: a table that it names cannot be made.
        LstmprofError: DuckDB is not installed.
    """
    try:
        import duckdb
    except ImportError as fault:
        raise LstmprofError("DuckDB is not installed", "pip install duckdb") from fault

    with tempfile.TemporaryDirectory(prefix="lstmprof-") as spill, duckdb.connect() as database:
        try:
            _add_tables(database, runs, _words(database, sql))
            _lock(database, runs, spill)
            return _answered(database, sql)
        except duckdb.Error as fault:
            message = str(fault).split("\n\nLINE ")[0].split("\n")[0]
            raise UsageError(message, "tables: " + ", ".join(NAMES)) from fault


def _answered(database: DuckDBPyConnection, sql: str) -> Answer:
    """The rows of ``sql``, which Ctrl-C ends at once: DuckDB itself looks for it too seldom."""
    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(_rows, database, sql)
        try:
            return asked.result()
        except BaseException:
            database.interrupt()
            raise


def _rows(database: DuckDBPyConnection, sql: str) -> Answer:
    result = database.execute(sql)
    return Answer(
        [name for name, *_ in result.description],
        [str(type_) for _, type_, *_ in result.description],
        result.fetchall(),
    )


def _words(database: DuckDBPyConnection, sql: str) -> set[str]:
    """The words of one SELECT in small letters: no table that it reads is not among them.

    DuckDB's own ``get_table_names`` binds the query, which may already reach for the network.

    Raises:
        UsageError: ``sql`` is something else.
    """
    statements = database.extract_statements(sql)
    if [statement.type.name for statement in statements] != ["SELECT"]:
        raise UsageError("a query is one SELECT", "tables: " + ", ".join(NAMES))
    return set(re.findall(r"\w+", sql.lower()))


def _add_tables(database: DuckDBPyConnection, runs: Sequence[Run], wanted: set[str]) -> None:
    database.register("runs", facts_table([(run.name, run.info) for run in runs]))
    for name, columns in _FILES.items():
        _add_files(database, runs if name in wanted else (), name, columns)
    asked = [name for name in TABLES if name in wanted]
    breakdowns = [(run.name, break_down(run, tables=asked)) for run in runs if asked]
    for name, table in TABLES.items():
        empty = pa.schema([_RUN, *schema(table.columns)]).empty_table()
        parts = [_with_run(run, a.table(name)) for run, a in breakdowns if name in asked]
        database.register(name, pa.concat_tables([empty, *parts]))


def _with_run(run: str, table: pa.Table) -> pa.Table:
    return table.add_column(0, _RUN, pa.array([run] * table.num_rows, pa.string()))


def _add_files(
    database: DuckDBPyConnection, runs: Sequence[Run], name: str, columns: pa.Schema
) -> None:
    """A view over the Parquet files ``name`` of the runs that have one.

    Raises:
        RunError: one is damaged or of another schema version.
    """
    files = [(run.name, path) for run in runs if (path := _path(run, name))]
    if not files:
        database.register(name, pa.schema([_RUN, *columns]).empty_table())
        return
    selects = (
        f"SELECT {quoted(run)} AS run, * FROM ({reading(path, columns)})" for run, path in files
    )
    database.execute(f"CREATE VIEW {name} AS " + " UNION ALL ".join(selects))


def _path(run: Run, name: str) -> Path | None:
    path = (run.path / f"{name}.parquet").resolve()
    return path if path.exists() else None


def _lock(database: DuckDBPyConnection, runs: Sequence[Run], spill: str) -> None:
    files = [path for run in runs for name in _FILES if (path := _path(run, name))]
    paths = [name for path in files for name in (path, literally(path))]
    database.execute(f"SET temp_directory={quoted(spill)}")
    database.execute(f"SET allowed_paths=[{', '.join(map(quoted, paths))}]")
    for setting in _LOCKED:
        database.execute(f"SET {setting}")
