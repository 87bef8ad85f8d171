"""The reference of every table and file of a run, as Markdown: ``docs/tables.md``.

Write it anew with ``make docs``; a test holds the committed file to this one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from lstmprof.breakdown.tables import TABLES, TableKind
from lstmprof.breakdown.timings import COLUMNS as TIMINGS
from lstmprof.events.counters import COLUMNS as COUNTERS
from lstmprof.events.schema import COLUMNS, Column
from lstmprof.runs.columns import ITERATIONS, SAMPLES
from lstmprof.runs.metadata import facts

_HEAD = """\
# Tables

Every table of lstmprof, column by column. Written by `make docs` from the definitions in the code.

- `lstmprof breakdown PATH… --table NAME` shows a table; `--format json|csv` gives all columns and
  rows with a column `run` in front; in Python `lstmprof.read(PATH).table("NAME")` gives it to
  pandas, polars or Arrow.
- `lstmprof query "SELECT …" PATH…` answers SQL over all of them, over `events`, `counters`,
  `timings`, `samples` and `runs`, each with the column `run` in front.
- Times are integers of nanoseconds, means are not. What is unknown is null, never 0 or −1.
  Percentiles are the nearest rank, so that each is the value of a row. A share is 0–1.
- What is JSON is asked by its keys: `launch_config->>'grid'` is `[80,1,1]`.
"""

_EVENTS = """\
One row an event of the profiled steps; int64 nanoseconds since `base_ns` of run.json. Derived
columns are computed from the others when a profile is read."""
_COUNTERS = """\
One row a value of a counter, of profiles that count something only: memory
(`profile_memory=True` of `torch.profiler`, `--cuda-memory-usage=true` of Nsight Systems, the
allocators of TensorFlow and JAX) above all. Rank by rank, each by time; a value holds until the
next of its counter, device and allocator. In SQL the table `counters`."""
_ITERATIONS = """\
One row per iteration that was timed without a profiler, of captures only; in SQL the table
`timings`."""
_SAMPLES = """\
One row a distinct stack that a sampler saw in steps without a profiler, of captures with
`--sampler` only; in SQL the table `samples`."""
_STATISTICS = """\
`lstmprof breakdown --table timings`: one row a run, over its counted iterations. Beside these
columns stand `implementation`, `workload`, `precision`, `mode`, `device`, `device_name`,
`kernels_used` and `threads` of run.json, and `slowdown`, the median against the fastest comparable
run's. In SQL, `timings` are the iterations themselves: the next table."""
_FACTS = """\
What ran. In SQL each field is a column of the table `runs`."""


def reference() -> str:
    """The text of docs/tables.md."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _HEAD
    for table in TABLES.values():
        yield from _of_table(table)
    yield from _section("Statistics of the timings", _STATISTICS, TIMINGS)
    yield from ("## timings.parquet\n", _ITERATIONS, "", *_rows(ITERATIONS), "")
    yield from ("## samples.parquet\n", _SAMPLES, "", *_rows(SAMPLES), "")
    yield from ("## events.parquet\n", _EVENTS, "", *_rows(COLUMNS), "")
    yield from ("## counters.parquet\n", _COUNTERS, "", *_rows(COUNTERS), "")
    yield from ("## run.json\n", _FACTS, "", *_facts())


def _of_table(table: TableKind) -> Iterator[str]:
    meaning = table.meaning[0].upper() + table.meaning[1:] + "."
    order = ", ".join(
        f"`{name.removeprefix('-')}`" + (" (largest first)" if name.startswith("-") else "")
        for name in table.order
    )
    sorted_by = f" Sorted by {order}." if order else ""
    yield from _section(table.name, meaning + sorted_by, table.columns)


def _section(title: str, text: str, columns: Iterable[Column]) -> Iterator[str]:
    yield from (f"## {title}\n", text, "", *_rows(columns), "")


def _rows(columns: Iterable[Column]) -> Iterator[str]:
    yield from ("| column | type | unit | meaning | null when |", "|---|---|---|---|---|")
    for column in columns:
        yield _row(f"`{column.name}`", column)


def _facts() -> Iterator[str]:
    yield "| field | column in SQL | type | unit | meaning | null when |"
    yield "|---|---|---|---|---|---|"
    for fact in facts():
        yield _row(f"`{fact.place}` | `{fact.column.name}`", fact.column)
    yield ""


def _row(first: str, column: Column) -> str:
    meaning = column.meaning + ("; derived" if column.derived else "")
    cells = (_type_name(column.type), column.unit, meaning, column.null_when or "never")
    return f"| {first} | " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _type_name(type_: pa.DataType) -> str:
    if pa.types.is_dictionary(type_) or pa.types.is_string(type_):
        return "text"
    if pa.types.is_list(type_):
        return "texts"
    return {"double": "float64", "bool": "boolean"}.get(str(type_), str(type_))


if __name__ == "__main__":
    print(reference(), end="")
