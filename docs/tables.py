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

This page lists the columns of every table of lstmprof. There are three ways to read a table:

- **Terminal:** `lstmprof breakdown PATH… --table NAME` prints the main columns and the first rows.
  `--format json` and `--format csv` print all columns and rows.
- **Python:** `lstmprof.read(PATH).table("NAME")`, then `.to_pandas()`, `.to_arrow()` or
  `.to_polars()`.
- **SQL:** `lstmprof query "SELECT …" PATH…`. In SQL, the files of a run are also tables: `events`,
  `counters`, `timings`, `samples`, and `runs` (one row per run.json).

Conventions:

- In JSON, CSV and SQL, each table also has the column `run`, the name of the run.
- Times are in nanoseconds. Shares are between 0 and 1.
- Unknown values are null, never 0 or −1.
- An *activity* is a kernel, copy or memset on a device.
- A *device* is usually a GPU. The column `device` is null for work on the host (CPU).
- An *op* is an operation of the framework on the host, such as `aten::mm`.
- Some columns contain JSON text. In SQL, read a key of this text with `->>`: for example,
  `launch_config->>'grid'` is `[80,1,1]`.

A value is also null in two cases that the tables below do not mention:

- Most fields of run.json are null if another tool recorded the profile.
- Newer columns are null in runs that an older lstmprof wrote. To fill them, ingest the profile
  again.

`make docs` generates this page from the code.
"""

_EVENTS = """\
One row per event of the profiled steps. In SQL, this file is the table `events`.

The column `launch_config` contains JSON with the keys `grid` and `block` (sizes by x, y, z),
`registers` (per thread), `shared_bytes` and `dynamic_shared_bytes` (per block),
`estimated_occupancy` and `theoretical_occupancy` (shares). For the kernel of a collective, it also
has the keys `message_bytes`, `group_size` and `process_group`.

lstmprof computes the columns marked "derived" from the other columns of this table."""
_COUNTERS = """\
One row per recorded value of a counter, sorted by rank and time. In SQL, this file is the table
`counters`.

Most counters show the use of memory. torch.profiler records them with `profile_memory=True`, and
Nsight Systems with `--cuda-memory-usage=true`. PyTorch's memory snapshots, and the profilers of
TensorFlow and JAX, always contain them.

The value in a row is valid until the next row with the same counter, device and allocator."""
_ITERATIONS = """\
One row per step that was timed without a profiler. Only `lstmprof capture`, `lstmprof run` and
`lp.profile` write this file. In SQL, this file is the table `timings`."""
_SAMPLES = """\
One row per distinct call stack that a sampler (py-spy or perf) saw. Only `lstmprof capture
--sampler` writes this file. In SQL, this file is the table `samples`."""
_STATISTICS = """\
`lstmprof breakdown --table timings` prints one row per run, with statistics of the iterations that
were timed without a profiler. Warm-up iterations do not count.

In addition to the columns below, the table has the columns `implementation`, `workload`,
`precision`, `mode`, `device`, `device_name`, `kernels_used` and `threads` (see
[run.json](#runjson)), and `slowdown`: `step_ns` divided by the `step_ns` of the fastest run with
the same workload and settings.

The SQL table `timings` is not this table: it contains [timings.parquet](#timingsparquet)."""
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
