"""Answer SQL queries over the tables of runs with DuckDB: ``SELECT name, total_ns FROM kernels``.

DuckDB may read only the files of the runs and may not use the network. Source: DuckDB, "Securing
DuckDB".
"""

from __future__ import annotations

import math
import os
import re
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from lstmprof.base.errors import LstmprofError, RunError, UsageError
from lstmprof.base.numbers import UNKNOWN
from lstmprof.base.scratch import temporary_folder
from lstmprof.breakdown import break_down
from lstmprof.breakdown.tables import TABLES
from lstmprof.events.counters import SCHEMA as COUNTERS
from lstmprof.events.schema import SCHEMA, schema
from lstmprof.runs.fields import ITERATIONS, SAMPLES
from lstmprof.runs.metadata import AGAIN, facts_table
from lstmprof.runs.run import Run, check_file

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_RUN = pa.field("run", pa.string(), False)
_FILES = {
    "samples": schema(SAMPLES),
    "counters": COUNTERS,
    "events": SCHEMA,
    "timings": schema(ITERATIONS),
}
NAMES = ("runs", *reversed(_FILES), *TABLES)

#: DuckDB's settings during a query; the last setting prevents any change of the settings.
_LOCKED = (
    "python_enable_replacements=false",
    "autoinstall_known_extensions=false",
    "autoload_known_extensions=false",
    "allow_community_extensions=false",
    "enable_external_access=false",
    "lock_configuration=true",
)

#: Memory limit of DuckDB in bytes. DuckDB writes further data to disk.
_MOST_BYTES = 2**30
#: Bytes of address space for the stack and heap of each thread.
_THREAD_BYTES = 2**27
_STATM = Path("/proc/self/statm")
#: Seconds between two interrupts of a query.
_AGAIN_S = 0.1

#: Beginnings of the lines in which DuckDB suggests another name.
_HINTS = ("Did you mean", "Candidate ", "Either ")

#: Number of rows to fetch at once, so that long answers need little memory.
_BATCH_ROWS = 2048
_Value = TypeVar("_Value")

_NUMBERS = ("INT", "DOUBLE", "FLOAT", "DECIMAL", "NUMERIC", "NUMBER")


@dataclass(frozen=True)
class Answer:
    """Result of an SQL query, with rows that can be read only once."""

    names: Sequence[str]
    types: Sequence[str]
    rows: Iterator[Sequence[Any]]

    @property
    def columns(self) -> list[str]:
        """Return the column names; repeated names get a number."""
        heads: list[str] = []
        for name in self.names:
            number, head = 1, name
            while head in heads:
                number += 1
                head = f"{name}_{number}"
            heads.append(head)
        return heads

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield the rows as {column: value} for JSON."""
        columns = self.columns
        return (dict(zip(columns, map(_plain, row), strict=True)) for row in self.rows)

    def headings(self) -> list[str]:
        """Return the column names for a terminal; ">" aligns a column to the right."""
        return [(">" if self._is_number(i) else "") + name for i, name in enumerate(self.columns)]

    def texts(self) -> Iterator[list[str]]:
        """Yield the rows as texts for a terminal."""
        return ([_shown(value) for value in row] for row in self.rows)

    def long(self) -> list[str]:
        """Return the names of the text columns, which a terminal may crop."""
        return [name for i, name in enumerate(self.columns) if not self._is_number(i)]

    def _is_number(self, at: int) -> bool:
        type_ = self.types[at]
        return any(part in type_ for part in _NUMBERS) and not type_.endswith("]")


def _plain(value: Any) -> Any:
    """Convert ``value`` for JSON, which has no NaN, infinity, Decimal or date."""
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


@contextmanager
def answer(sql: str, runs: Sequence[Run], timeout_s: float | None = None) -> Iterator[Answer]:
    """Run one SELECT over the tables of ``runs``; read the answer inside ``with``."""
    try:
        import duckdb
    except ImportError as fault:
        raise LstmprofError("DuckDB is not installed", "pip install duckdb") from fault

    with (
        _refusals(duckdb.Error),
        temporary_folder() as spill,
        duckdb.connect() as database,
        ThreadPoolExecutor(1) as thread,
    ):
        # start the thread now: a signal during a later start would lose the thread
        thread.submit(bool).result()
        query = _Query(database, thread, timeout_s)
        _lock(database, _add_tables(query, runs, _words(database, sql)), str(spill))
        with _within_memory():
            result = query.waited_for(lambda: database.execute(sql).description)
            names = [name for name, *_ in result]
            types = [str(type_) for _, type_, *_ in result]
            # yield inside ``_refusals``, because DuckDB may also fail while rows are read
            yield Answer(names, types, _rows(query))


@contextmanager
def _within_memory() -> Iterator[None]:
    """Limit this process's memory, because DuckDB's own limit ignores long strings."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(_STATM.read_text("ascii").split()[0]) if _STATM.exists() else 0
    now = pages * resource.getpagesize()
    limit = now + 2 * _MOST_BYTES + _THREAD_BYTES * (os.cpu_count() or 1)
    if not now or (soft not in (-1, resource.RLIM_INFINITY) and soft <= limit):
        yield
        return
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextmanager
def _refusals(refusal: type[Exception]) -> Iterator[None]:
    """Raise DuckDB's errors as lstmprof's errors, which say what to do."""
    try:
        yield
    except refusal as fault:
        if type(fault).__name__ == "OutOfMemoryException":
            raise LstmprofError(
                f"the query needs more than {_MOST_BYTES >> 30} GiB of memory",
                "narrow it with WHERE or LIMIT",
            ) from fault
        raise _refused(str(fault)) from fault


def _refused(message: str) -> UsageError:
    """Return an error with DuckDB's message, its suggestion and the table names."""
    fault, *more = message.split("\n\nLINE ")[0].split("\n")
    hint = next((line for line in more if line.startswith(_HINTS)), "").replace(": :", ":")
    if "Table with name" in fault and not any(f'"{name}"' in hint for name in NAMES):
        hint = ""  # the suggestion is an internal table of DuckDB
    return UsageError(fault, "; ".join([*([hint] if hint else []), "tables: " + ", ".join(NAMES)]))


@dataclass
class _Query:
    """Runs a query in ``thread``, for at most ``timeout_s``."""

    database: DuckDBPyConnection
    thread: ThreadPoolExecutor
    timeout_s: float | None
    begun_s: float = field(default_factory=time.monotonic)

    def waited_for(self, function: Callable[[], _Value]) -> _Value:
        """Return ``function()`` from ``thread``. Ctrl-C or a timeout stops the query."""
        try:
            return self.thread.submit(function).result(self._left_s())
        except TimeoutError:
            self._stop()
            raise LstmprofError(
                f"the query took longer than --timeout {self.timeout_s:g} seconds",
                "narrow it with WHERE or LIMIT, or raise --timeout",
            ) from None
        except BaseException:
            self._stop()
            raise

    def _left_s(self) -> float | None:
        if self.timeout_s is None:
            return None
        left_s = self.begun_s + self.timeout_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s

    def _stop(self) -> None:
        """Interrupt the query until its thread is free."""
        ended = self.thread.submit(bool)
        # interrupt again and again, because DuckDB ignores an early interrupt
        while not ended.done():
            with suppress(Exception):  # DuckDB raises while it reads a table from Python
                self.database.interrupt()
            wait([ended], _AGAIN_S)

    def register(self, name: str, table: pa.Table) -> None:
        # use the query's thread: in the main thread, DuckDB hides exceptions that a signal raises
        self.waited_for(lambda: self.database.register(name, table))


def _rows(query: _Query) -> Iterator[Sequence[Any]]:
    while batch := query.waited_for(lambda: query.database.fetchmany(_BATCH_ROWS)):
        yield from batch


def _words(database: DuckDBPyConnection, sql: str) -> set[str]:
    """Return all words of the query, including the names of tables."""
    statements = database.extract_statements(sql)
    if [statement.type.name for statement in statements] != ["SELECT"]:
        raise UsageError("the query must be exactly one SELECT", "tables: " + ", ".join(NAMES))
    # take all words, because DuckDB's exact ``get_table_names`` may access the network
    return set(re.findall(r"\w+", sql.lower()))


def _add_tables(query: _Query, runs: Sequence[Run], wanted: set[str]) -> list[Path]:
    """Define all tables, with rows only in ``wanted`` tables; return the files to read."""
    query.register("runs", facts_table([(run.name, run.info) for run in runs]))
    paths: list[Path] = []
    for name, columns in _FILES.items():
        files = _files(runs, name) if name in wanted else []
        _add_files(query, files, name, columns)
        paths += [path for _, path in files]
    computed = [name for name in TABLES if name in wanted]
    breakdowns = [(run.name, break_down(run, tables=computed)) for run in runs if computed]
    for name, table in TABLES.items():
        empty = pa.schema([_RUN, *schema(table.columns)]).empty_table()
        parts = [empty]
        for run, breakdown in breakdowns if name in computed else ():
            rows = breakdown.table(name)
            parts.append(rows.add_column(0, _RUN, pa.array([run] * len(rows), pa.string())))
        query.register(name, pa.concat_tables(parts))
    return paths


def _files(runs: Sequence[Run], name: str) -> list[tuple[str, Path]]:
    files: list[tuple[str, Path | None]] = [(run.name, run.file(name)) for run in runs]
    return [(run, path.resolve()) for run, path in files if path]


def _add_files(
    query: _Query, files: Sequence[tuple[str, Path]], name: str, columns: pa.Schema
) -> None:
    """Create the view ``name`` over the Parquet files of all runs."""
    if not files:
        query.register(name, pa.schema([_RUN, *columns]).empty_table())
        return
    selects = (
        f"SELECT {_quoted(run)} AS run, * FROM ({_reading(path, columns)})" for run, path in files
    )
    import duckdb

    try:
        query.database.execute(f"CREATE VIEW {name} AS " + " UNION ALL ".join(selects))
    except duckdb.Error as fault:  # Arrow had checked only the footers
        where = files[0][1] if len(files) == 1 else f"{name} of {len(files)} runs"
        first = str(fault).split("\n")[0].rstrip(".")
        raise RunError(f"{where}: is damaged ({first})", AGAIN) from fault


def _lock(database: DuckDBPyConnection, files: Sequence[Path], spill: str) -> None:
    paths = [name for path in files for name in (path, _literally(path))]
    database.execute(f"SET temp_directory={_quoted(spill)}")
    database.execute(f"SET memory_limit='{_MOST_BYTES}B'")
    database.execute(f"SET allowed_paths=[{', '.join(map(_quoted, paths))}]")
    for setting in _LOCKED:
        database.execute(f"SET {setting}")


def _reading(path: Path, columns: pa.Schema) -> str:
    """Return a SELECT of ``columns`` from a Parquet file; missing columns are NULL."""
    absent = check_file(path, columns)
    types = {pa.int64(): "BIGINT", pa.float64(): "DOUBLE", pa.bool_(): "BOOLEAN"}
    selected = ", ".join(
        f"NULL::{types.get(field.type, 'VARCHAR')} AS {field.name}"
        if field.name in absent
        else field.name
        for field in columns
    )
    return f"SELECT {selected} FROM read_parquet({_quoted(_literally(path))})"


def _literally(path: Path) -> str:
    """Escape ``*``, ``?`` and ``[``, which DuckDB reads as wildcards."""
    return re.sub(r"[*?\[]", r"[\g<0>]", str(path))


def _quoted(text: object) -> str:
    return "'" + str(text).replace("'", "''") + "'"
