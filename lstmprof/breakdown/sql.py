"""A DuckDB connection that knows the tables of some runs, and nothing else.

``events``, ``counters`` and ``timings`` are views over the runs' Parquet files, so that they may be
larger than memory; a table of ``breakdown.tables`` is made where the query names it. Then the
connection is locked: it reads those files alone, loads no extension, reaches no network. Only a
SELECT is run, which cannot write. Source: DuckDB, "Securing DuckDB". Its rows are read as they are
asked for: the answer may be larger than memory, too.
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
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from lstmprof.breakdown import Breakdown, break_down
from lstmprof.breakdown.tables import TABLES
from lstmprof.breakdown.tables.database import literally, quoted, reading
from lstmprof.errors import LstmprofError, RunError, UsageError
from lstmprof.events.counters import SCHEMA as COUNTERS
from lstmprof.events.schema import SCHEMA, schema
from lstmprof.host.scratch import temporary_folder
from lstmprof.numbers import UNKNOWN
from lstmprof.runs.fields import ITERATIONS, SAMPLES
from lstmprof.runs.metadata import AGAIN, facts_table
from lstmprof.runs.run import Run

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

#: What may be read is settled before; the last one keeps the query from changing the others.
_LOCKED = (
    "python_enable_replacements=false",
    "autoinstall_known_extensions=false",
    "autoload_known_extensions=false",
    "allow_community_extensions=false",
    "enable_external_access=false",
    "lock_configuration=true",
)

#: What DuckDB may take before it writes to the disk, and address space that each of its threads
#: takes for its stack and its heap.
_MOST_BYTES = 2**30
_THREAD_BYTES = 2**27
_STATM = Path("/proc/self/statm")
#: Until a query that was told to end and has not is told again.
_AGAIN_S = 0.1

#: How DuckDB's lines begin that say what may have been meant.
_HINTS = ("Did you mean", "Candidate ", "Either ")

#: Rows that are read at once.
_BATCH_ROWS = 2048
_Value = TypeVar("_Value")

_NUMBERS = ("INT", "DOUBLE", "FLOAT", "DECIMAL", "NUMERIC", "NUMBER")


@dataclass(frozen=True)
class Answer:
    """Columns, their DuckDB types, and rows, which can be read once."""

    names: Sequence[str]
    types: Sequence[str]
    rows: Iterator[Sequence[Any]]

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

    def records(self) -> Iterator[dict[str, Any]]:
        """The rows for JSON and CSV."""
        columns = self.columns
        return (dict(zip(columns, map(_plain, row), strict=True)) for row in self.rows)

    def headings(self) -> list[str]:
        """The columns for a terminal; numbers are aligned to the right."""
        return [(">" if self._is_number(i) else "") + name for i, name in enumerate(self.columns)]

    def texts(self) -> Iterator[list[str]]:
        """The rows for a terminal."""
        return ([_shown(value) for value in row] for row in self.rows)

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


@contextmanager
def answer(sql: str, runs: Sequence[Run], timeout_s: float | None = None) -> Iterator[Answer]:
    """The answer of the SELECT ``sql`` over the tables of ``runs``, to be read within the context.

    ``timeout_s``: how long the tables may be made and the rows looked for.

    Raises:
        UsageError: it is no single SELECT, or DuckDB refuses it; names the tables. Also from
            the rows, as far as they are read.
        RunError: a table that it names cannot be made.
        LstmprofError: DuckDB is not installed; the time is over.
    """
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
        thread.submit(bool).result()  # a signal while it starts would hide it from the pool
        query = _Query(database, thread, timeout_s, timeout_s)
        _lock(database, _add_tables(query, runs, _words(database, sql)), str(spill))
        with _within_memory():
            result = query.waited_for(lambda: database.execute(sql).description)
            names = [name for name, *_ in result]
            types = [str(type_) for _, type_, *_ in result]
            yield Answer(names, types, _rows(query))


@contextmanager
def _within_memory() -> Iterator[None]:
    """Limit what this process may add to its memory: DuckDB's limit does not count long texts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(_STATM.read_text("ascii").split()[0]) if _STATM.exists() else 0
    now = pages * resource.getpagesize()
    most = now + 2 * _MOST_BYTES + _THREAD_BYTES * (os.cpu_count() or 1)
    if not now or (soft not in (-1, resource.RLIM_INFINITY) and soft <= most):
        yield
        return
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextmanager
def _refusals(refusal: type[Exception]) -> Iterator[None]:
    """Make an error for users of what DuckDB says."""
    try:
        yield
    except refusal as fault:
        if type(fault).__name__ == "OutOfMemoryException":
            raise LstmprofError(
                f"the query needs more than {_MOST_BYTES >> 30} GiB of memory",
                "narrow it with WHERE or LIMIT",
            ) from fault
        raise _refused(str(fault)) from fault


def _refused(said: str) -> UsageError:
    """What DuckDB said, in one line, with what it thinks was meant, and the tables."""
    fault, *more = said.split("\n\nLINE ")[0].split("\n")
    hint = next((line for line in more if line.startswith(_HINTS)), "").replace(": :", ":")
    if "Table with name" in fault and not any(f'"{name}"' in hint for name in NAMES):
        hint = ""  # a table of DuckDB's own
    return UsageError(fault, "; ".join([*([hint] if hint else []), "tables: " + ", ".join(NAMES)]))


@dataclass
class _Query:
    """A query under way in ``thread``, which has ``left_s`` of its time; None is no limit."""

    database: DuckDBPyConnection
    thread: ThreadPoolExecutor
    timeout_s: float | None
    left_s: float | None

    def waited_for(self, function: Callable[[], _Value]) -> _Value:
        """What ``function`` returns; Ctrl-C ends it at once: DuckDB looks for it too seldom."""
        begin = time.monotonic()
        try:
            value = self.thread.submit(function).result(self.left_s)
        except TimeoutError:
            self._stop()
            raise self._too_long() from None
        except BaseException:
            self._stop()
            raise
        self.spend(time.monotonic() - begin)
        return value

    def _stop(self) -> None:
        """End what the thread does: DuckDB forgets an interrupt that comes before it begins."""
        ended = self.thread.submit(bool)
        while not ended.done():
            with suppress(Exception):  # it refuses while it looks through a table of Python's
                self.database.interrupt()
            wait([ended], _AGAIN_S)

    def register(self, name: str, table: pa.Table) -> None:
        """Make ``table`` known by ``name``.

        DuckDB calls Python for it, and makes an error of its own of what a signal raises there.
        """
        self.waited_for(lambda: self.database.register(name, table))

    def spend(self, spent_s: float) -> None:
        """Take ``spent_s`` off the time that is left.

        Raises:
            LstmprofError: it was more.
        """
        if self.left_s is not None:
            self.left_s -= spent_s
            if self.left_s < 0:
                raise self._too_long()

    def _too_long(self) -> LstmprofError:
        return LstmprofError(
            f"the query took longer than --timeout {self.timeout_s:g} seconds",
            "narrow it with WHERE or LIMIT, or raise --timeout",
        )


def _rows(query: _Query) -> Iterator[Sequence[Any]]:
    while batch := query.waited_for(lambda: query.database.fetchmany(_BATCH_ROWS)):
        yield from batch


def _words(database: DuckDBPyConnection, sql: str) -> set[str]:
    """The words of one SELECT in small letters: no table that it reads is not among them.

    DuckDB's own ``get_table_names`` binds the query, which may already reach for the network.

    Raises:
        UsageError: ``sql`` is something else.
    """
    statements = database.extract_statements(sql)
    if [statement.type.name for statement in statements] != ["SELECT"]:
        raise UsageError("the query must be exactly one SELECT", "tables: " + ", ".join(NAMES))
    return set(re.findall(r"\w+", sql.lower()))


def _add_tables(query: _Query, runs: Sequence[Run], wanted: set[str]) -> list[Path]:
    """Make the tables; the files that those which are ``wanted`` lie in.

    Raises:
        RunError: one of a run is damaged or of another schema version.
    """
    query.register("runs", facts_table([(run.name, run.info) for run in runs]))
    paths: list[Path] = []
    for name, columns in _FILES.items():
        files = _files(runs, name) if name in wanted else []
        _add_files(query, files, name, columns)
        paths += [path for _, path in files]
    asked = [name for name in TABLES if name in wanted]
    breakdowns = [(run.name, _broken_down(query, run, asked)) for run in runs if asked]
    for name, table in TABLES.items():
        empty = pa.schema([_RUN, *schema(table.columns)]).empty_table()
        parts = [_with_run(run, a.table(name)) for run, a in breakdowns if name in asked]
        query.register(name, pa.concat_tables([empty, *parts]))
    return paths


def _broken_down(query: _Query, run: Run, tables: Sequence[str]) -> Breakdown:
    begin = time.monotonic()
    breakdown = break_down(run, tables=tables)
    query.spend(time.monotonic() - begin)
    return breakdown


def _with_run(run: str, table: pa.Table) -> pa.Table:
    return table.add_column(0, _RUN, pa.array([run] * table.num_rows, pa.string()))


def _files(runs: Sequence[Run], name: str) -> list[tuple[str, Path]]:
    """The Parquet files ``name`` of the runs that have one.

    Raises:
        RunError: one is damaged or of another schema version.
    """
    files: list[tuple[str, Path | None]] = [(run.name, run.file(name)) for run in runs]
    return [(run, path.resolve()) for run, path in files if path]


def _add_files(
    query: _Query, files: Sequence[tuple[str, Path]], name: str, columns: pa.Schema
) -> None:
    """A view over the Parquet ``files`` of some runs."""
    if not files:
        query.register(name, pa.schema([_RUN, *columns]).empty_table())
        return
    selects = (
        f"SELECT {quoted(run)} AS run, * FROM ({reading(path, columns)})" for run, path in files
    )
    import duckdb

    try:
        query.database.execute(f"CREATE VIEW {name} AS " + " UNION ALL ".join(selects))
    except duckdb.Error as fault:  # Arrow could read the footers
        where = files[0][1] if len(files) == 1 else f"{name} of {len(files)} runs"
        first = str(fault).split("\n")[0].rstrip(".")
        raise RunError(f"{where}: is damaged ({first})", AGAIN) from fault


def _lock(database: DuckDBPyConnection, files: Sequence[Path], spill: str) -> None:
    paths = [name for path in files for name in (path, literally(path))]
    database.execute(f"SET temp_directory={quoted(spill)}")
    database.execute(f"SET memory_limit='{_MOST_BYTES}B'")
    database.execute(f"SET allowed_paths=[{', '.join(map(quoted, paths))}]")
    for setting in _LOCKED:
        database.execute(f"SET {setting}")
