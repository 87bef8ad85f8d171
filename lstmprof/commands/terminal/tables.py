"""The text of a run's tables: the kernels with most time, or one table that the user names."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lstmprof.base.names import PART_WORDS
from lstmprof.base.numbers import UNKNOWN, milliseconds, or_dash
from lstmprof.breakdown import Breakdown
from lstmprof.breakdown.tables import TABLES
from lstmprof.commands import terminal
from lstmprof.events.annotate.calls import is_copy
from lstmprof.events.schema import Column

#: Columns whose texts lstmprof shortens to fit a line.
_LONG = ("name", "rule", "op", "within")
#: Names of columns with parts, for which ``PART_WORDS`` has words for users.
_PARTS = ("category", "part")
#: Name of the column that a narrow terminal omits.
_SPARE = "rule"
#: Unit of a column -> (minimum, unit to print, factor, decimals), largest minimum first.
_SCALES = {
    "ns": ((1e6, "ms", 1e-6, 3), (0, "µs", 1e-3, 1)),
    "bytes": ((1e6, "MB", 1e-6, 1), (0, "B", 1, 0)),
    "bytes/s": ((0, "GB/s", 1e-9, 2),),
    "share": ((0, "%", 100, 1),),
    "1/s": ((0, "/s", 1, 0),),
}
#: Decimals of times in milliseconds: three show microseconds.
_DIGITS = 3


def show_kernels(breakdown: Breakdown, top: int) -> None:
    """Print the kernels with most time, summed over ranks and devices."""
    everywhere = _summed_over_devices(breakdown.kernels)
    table = everywhere.slice(0, top).to_pylist()
    rows = [
        [
            milliseconds(row["total_ns"], _DIGITS),
            or_dash(row["share"], "{:.1%}").replace("%", " %"),
            f"{row['count']:,}",
            or_dash(row["per_step"], "{:,.1f}"),
            f"{row['mean_ns'] / 1e3:,.1f}",
            PART_WORDS.get(row["category"], row["category"]) or "dispatch",
            str(row["name"]),
        ]
        for row in table
    ]
    names = breakdown.kernels["name"].to_pylist()
    on_devices = "kernels and copies" if any(map(is_copy, names)) else "kernels"
    on_device = breakdown.kernels["device"].null_count < len(names)
    what = on_devices if on_device else "ops that compute, by self time"
    lanes_of = len(_rank_devices(breakdown.kernels))
    what += f" of {lanes_of} {'devices' if on_device else 'ranks'}" if lanes_of > 1 else ""
    hidden = everywhere.num_rows - len(rows)
    heads = [
        *(">ms in all steps", ">of total", ">calls", ">calls per step", ">mean µs"),
        *("category", "name"),
    ]
    unknown = {heads[i] for i in range(len(heads)) if all(row[i] == UNKNOWN for row in rows)}
    unknown |= set() if ">calls per step" in unknown else {">calls"}
    shown = [i for i, head in enumerate(heads) if head not in unknown]
    terminal.write_table(
        f"{breakdown.run.name}: {what}" + (f" ({hidden} more with --top N)" if hidden > 0 else ""),
        [heads[i] for i in shown],
        [[row[i] for i in shown] for row in rows],
        crop="name",
        spare=(">mean µs", ">calls per step"),
    )


def _rank_devices(kernels: pa.Table) -> set[tuple[int | None, int | None]]:
    # do not use group_by, because group_by imports Arrow's query engine
    return set(zip(*(kernels[name].to_pylist() for name in ("rank", "device")), strict=True))


def _summed_over_devices(kernels: pa.Table) -> pa.Table:
    if len(_rank_devices(kernels)) < 2:
        return kernels
    sums = [("total_ns", "sum"), ("count", "sum")]
    joined = kernels.group_by(["name", "category"]).aggregate(sums)
    total, count = joined["total_ns_sum"], joined["count_sum"]
    whole = pc.cast(pc.sum(total), pa.float64())
    table = pa.table(
        {
            **{name: joined[name] for name in ("name", "category")},
            "total_ns": total,
            "count": count,
            "share": pc.divide(pc.cast(total, pa.float64()), whole),
            "mean_ns": pc.divide(pc.cast(total, pa.float64()), pc.cast(count, pa.float64())),
            "per_step": pa.nulls(len(joined), pa.float64()),
            "p95_ns": pa.nulls(len(joined), pa.int64()),
        }
    )
    return table.sort_by([("total_ns", "descending"), ("name", "ascending")])


def show_table(breakdown: Breakdown, name: str, top: int) -> None:
    table, everything = TABLES[name], breakdown.table(name)
    rows = everything.slice(0, top).to_pylist()
    columns = {column.name: column for column in table.columns}
    shown = [columns[c] for c in table.shown if any(row[c] is not None for row in rows)]
    cells = [_cells(column, [row[column.name] for row in rows]) for column in shown]
    hidden = everything.num_rows - len(rows)
    more = f" ({hidden:,} more with --top N)" if hidden else ""
    terminal.write_table(
        f"{breakdown.run.name}, table {name}: {table.meaning}{more}",
        [head for head, _ in cells] if rows else ["the profile has no rows for this table"],
        [list(row) for row in zip(*(texts for _, texts in cells), strict=True)],
        crop=tuple(column.name for column in shown if column.name in _LONG),
        spare=tuple(column.name for column in shown if column.name == _SPARE),
    )


def _cells(column: Column, values: list[Any]) -> tuple[str, list[str]]:
    """Return (header with unit, values as text) for a column."""
    heading = column.name.removesuffix("_ns").replace("_", " ")
    if pa.types.is_string(column.type):
        in_words = PART_WORDS if column.name in _PARTS else {}
        return column.name, [or_dash(in_words.get(v, v), "{}") for v in values]
    largest = max(abs(v) for v in values if v is not None)
    integer = pa.types.is_integer(column.type)
    plain = (0, "", 1, 0 if integer else 1)
    _, unit, factor, digits = next(
        scale for scale in _SCALES.get(column.unit, (plain,)) if largest >= scale[0]
    )
    for suffix in (" per s", " share", " bytes") if unit else ():
        heading = heading.removesuffix(suffix)
    texts = [or_dash(v if v is None else v * factor, f"{{:z,.{digits}f}}") for v in values]
    return f">{heading} {unit}".rstrip(), texts
