"""Write the reference of every table and file of a run as Markdown: ``docs/tables.md``.

Run it with ``make docs``; a test compares the committed file with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from lstmprof.breakdown.clean.timings import COLUMNS as TIMINGS
from lstmprof.breakdown.tables import TABLES, TableKind
from lstmprof.events.counters import COLUMNS as COUNTERS
from lstmprof.events.schema import COLUMNS, Column
from lstmprof.runs.fields import ITERATIONS, SAMPLES
from lstmprof.runs.metadata import facts

_HEAD = """\
# Look up a table, column or field

This page lists every table of lstmprof, column by column. `make docs` generates it from the code.
Read the tables in one of three ways:

- **Terminal:** `lstmprof breakdown PATH… --table NAME`. `--format json|csv` gives all columns and
  rows.
- **Python:** `lstmprof.read(PATH).table("NAME")`, then `.to_pandas()`, `.to_arrow()` or
  `.to_polars()`.
- **SQL:** `lstmprof query "SELECT …" PATH…` reads all these tables, and five more from the files of
  a run: `events`, `counters`, `timings`, `samples` and `runs`.

Conventions:

- In JSON, CSV and SQL the first column is `run`, the name of the run.
- Times are whole nanoseconds; means may have fractions. Unknown values are null, never 0 or −1.
- A percentile is a value that occurred (the nearest rank), not an interpolated value. A share is
  between 0 and 1.
- An *activity* is a kernel, copy or memset on a device. An *op* is an op of the framework on the
  host. A *device* is usually a GPU; the column `device` is null for work on the host (CPU).
- SQL can read the keys of a column with JSON text: `launch_config->>'grid'` is `[80,1,1]`.
"""

_EVENTS = """\
One row per event of the profiled steps. Times are int64 nanoseconds since `base_ns` of run.json.
lstmprof computes derived columns from the other columns when it reads a profile."""
_COUNTERS = """\
One row per value of a counter, if the profile has counters. Most counters are of memory; record
them with `profile_memory=True` in `torch.profiler`, PyTorch's memory snapshots, or
`--cuda-memory-usage=true` in Nsight Systems (TensorFlow and JAX need no option). Sorted by rank and
time. A value holds until the next row with the same counter, device and allocator. In SQL: the
table `counters`."""
_ITERATIONS = """\
One row per iteration (step) that was timed without a profiler. Only runs of `lstmprof capture` and
`lstmprof run` have this file. In SQL: the table `timings`."""
_SAMPLES = """\
One row per distinct call stack that a sampler (py-spy or perf) saw in steps without a profiler.
Only runs of `lstmprof capture --sampler` have this file. In SQL: the table `samples`."""
_STATISTICS = """\
`lstmprof breakdown --table timings` has one row per run, computed from its counted iterations. It
also has `implementation`, `workload`, `precision`, `mode`, `device`, `device_name`, `kernels_used`
and `threads` of run.json, and `slowdown`: the step divided by the step of the fastest comparable
run. A counted iteration is a timed iteration after warm-up. In SQL, the table `timings` is another
table, with one row per iteration: see the next section."""
_FACTS = """\
What ran, where and how. In SQL, each field is a column of the table `runs`."""


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
        yield _row(f"`{fact.field_path}` | `{fact.column.name}`", fact.column)
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
