"""The events of a run in DuckDB, and SQL functions that several tables use.

::

    events    the events table; for a stored run its Parquet file, read by columns
    windows   number, rank, step, start_ns, end_ns: the steps for which the ledger is computed
    ranks     rank, steps, window_ns, unmarked (one window, no steps), on_device, computes
    names     name of each runtime call, copy and memset, and what ``annotate.calls`` says of it

``activity(kind)``, ``per(a, b)`` (a / b, null if b is 0) and ``time_steps()`` are macros. Ranks are
compared by IS NOT DISTINCT FROM, because in SQL null does not equal null.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from lstmprof.errors import RunError
from lstmprof.events.annotate import calls
from lstmprof.events.annotate.steps import Window
from lstmprof.events.schema import ACTIVITY_KINDS, SCHEMA, Column, schema
from lstmprof.events.table import EventTable
from lstmprof.host.scratch import temporary_folder
from lstmprof.runs.metadata import AGAIN
from lstmprof.runs.run import check_file

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Number of DuckDB's threads; more threads do not read a file of a million events faster.
_THREADS = 4
#: Converts a column to int64, because DuckDB's sums are 128-bit integers.
_INTEGER = "{0}::BIGINT AS {0}"
_NUMBERS = ("number", "rank", "step", "start_ns", "end_ns")
_WINDOWS = pa.schema([(name, pa.int64()) for name in _NUMBERS])
_NAMES = pa.schema(
    [
        ("name", pa.string()),
        ("is_launch", pa.bool_()),
        ("is_kernel_launch", pa.bool_()),
        ("direction", pa.string()),
        ("host_memory", pa.string()),
    ]
)
_MACROS = f"""
CREATE MACRO activity(kind) AS kind IN {ACTIVITY_KINDS};
CREATE MACRO per(amount, whole) AS CASE WHEN whole <> 0 THEN amount::DOUBLE / whole::DOUBLE END
"""
_RANKS = """
CREATE TABLE ranks AS
SELECT e.rank, steps, window_ns::BIGINT AS window_ns, coalesce(unmarked, false) AS unmarked,
       on_device, NOT on_device AND NOT launches AS computes
FROM (SELECT rank, bool_or(activity(kind)) AS on_device,
             bool_or(kind = 'runtime' AND coalesce(is_kernel_launch, false)) AS launches
      FROM events LEFT JOIN names USING (name) GROUP BY rank) e
LEFT JOIN (SELECT rank, count(step) AS steps, sum(end_ns - start_ns) AS window_ns,
                  bool_or(step IS NULL) AS unmarked
           FROM windows GROUP BY rank) w ON w.rank IS NOT DISTINCT FROM e.rank
"""


@contextmanager
def database(events: EventTable | pa.Table | Path) -> Iterator[Database]:
    """Yield a database of ``events``, or of the events in a Parquet file.

    Raises:
        RunError: the file is missing, damaged, or of an unsupported schema version.
    """
    import duckdb

    with temporary_folder() as spill:
        threads = min(_THREADS, os.cpu_count() or 1)
        settings = {
            "threads": threads,
            "temp_directory": str(spill),
            "python_enable_replacements": False,
        }
        with duckdb.connect(config=settings) as connection:
            source = str(events) if isinstance(events, Path) else "the events"
            opened = Database(connection, source, duckdb.Error)
            if isinstance(events, Path):
                with opened.run_errors():
                    connection.execute(f"CREATE VIEW events AS {reading(events, SCHEMA)}")
            else:
                connection.register("events", EventTable.of(events).arrow)
            connection.execute(_MACROS)
            yield opened


@dataclass(frozen=True)
class Database:
    """The events of one run in DuckDB, to be queried with SELECTs.

    ``source`` names the events in error messages. ``fault`` is the class of DuckDB's errors.
    """

    connection: DuckDBPyConnection
    source: str
    fault: type[Exception]

    def account_for(self, step_windows: Sequence[Window], time_steps: int | None) -> None:
        """Define the tables ``windows``, ``names`` and ``ranks`` and the function ``time_steps()``.

        ``step_windows`` become the rows of ``windows``. ``time_steps`` is the workload's number of
        time steps; None if unknown.
        """
        rows = [{**vars(window), "number": n} for n, window in enumerate(step_windows)]
        self.connection.register("windows", pa.Table.from_pylist(rows, schema=_WINDOWS))
        self.connection.register("names", self._names())
        self.connection.execute(f"CREATE MACRO time_steps() AS {time_steps or 'NULL::BIGINT'}")
        with self.run_errors():
            self.connection.execute(_RANKS)

    def table(self, select: str, columns: Sequence[Column]) -> pa.Table:
        """Return the rows of ``select``, which has these ``columns``, sorted by all columns.

        Raises:
            RunError: the events are damaged, or a sum of their values exceeds 64 bits.
        """
        wanted = schema(columns)
        values = [_INTEGER.format(f.name) if f.type == pa.int64() else f.name for f in wanted]
        keys = [f"{name} NULLS FIRST" for name in wanted.names]
        rows = f"SELECT {', '.join(values)} FROM ({select}) ORDER BY {', '.join(keys)}"
        return self._rows(rows).cast(wanted)

    def _names(self) -> pa.Table:
        select = "SELECT DISTINCT name FROM events WHERE kind IN ('runtime', 'memcpy', 'memset')"
        names = self._rows(select).column(0).to_pylist()
        says = (calls.is_launch, calls.is_kernel_launch, calls.direction, calls.host_memory)
        columns = [names, *([say(name) for name in names] for say in says)]
        return pa.table(
            [pa.array(c, f.type) for c, f in zip(columns, _NAMES, strict=True)], schema=_NAMES
        )

    def _rows(self, select: str) -> pa.Table:
        with self.run_errors():
            return self.connection.sql(select).to_arrow_table()

    @contextmanager
    def run_errors(self) -> Iterator[None]:
        """Convert DuckDB's errors in the context to a RunError that names the events' source."""
        try:
            yield
        except self.fault as fault:
            first = str(fault).split("\n")[0].rstrip(".")
            is_sum = re.search("out of range|overflow", first, re.IGNORECASE)
            what = "a sum of event values exceeds 64 bits" if is_sum else "is damaged"
            raise RunError(f"{self.source}: {what} ({first})", AGAIN) from fault


def reading(path: Path, columns: pa.Schema) -> str:
    """Return a SELECT of ``columns`` from the Parquet file ``path``; missing columns are NULL.

    Raises:
        RunError: the file is missing, damaged, or of an unsupported schema version.
    """
    absent = check_file(path, columns)
    selected = ", ".join(
        f"NULL::{_sql_type(field.type)} AS {field.name}" if field.name in absent else field.name
        for field in columns
    )
    return f"SELECT {selected} FROM read_parquet({quoted(literally(path))})"


def _sql_type(type_: pa.DataType) -> str:
    """Return DuckDB's name for the type of a column."""
    names = {pa.int64(): "BIGINT", pa.float64(): "DOUBLE", pa.bool_(): "BOOLEAN"}
    return names.get(type_, "VARCHAR")


def literally(path: Path) -> str:
    """Return ``path`` with ``*``, ``?`` and ``[`` escaped: DuckDB reads them as wildcards."""
    return re.sub(r"[*?\[]", r"[\g<0>]", str(path))


def quoted(text: object) -> str:
    """Return ``text`` as an SQL literal."""
    return "'" + str(text).replace("'", "''") + "'"
