"""The text of one table of ``lstmprof breakdown --table``: units for reading, columns that fit."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lstmprof.breakdown import Breakdown
from lstmprof.breakdown.tables import TABLES, TableKind
from lstmprof.commands import terminal
from lstmprof.events.columns import Column

UNKNOWN = "–"
#: Texts that may be cut where a line is too long.
_LONG = ("name", "rule", "op", "within")
#: What a narrow terminal leaves out.
_SPARE = "rule"
#: Unit → (from this largest value on, shown in, factor, digits), the largest first.
_SCALES = {
    "ns": ((1e6, "ms", 1e-6, 3), (0, "µs", 1e-3, 1)),
    "bytes": ((1e6, "MB", 1e-6, 1), (0, "B", 1, 0)),
    "bytes/s": ((0, "GB/s", 1e-9, 2),),
    "share": ((0, "%", 100, 1),),
    "1/s": ((0, "/s", 1, 0),),
}


def show(breakdown: Breakdown, name: str, top: int) -> None:
    """Print the first ``top`` rows of the table ``name``."""
    table = TABLES[name]
    made = breakdown.table(name)
    rows = made.slice(0, top).to_pylist()
    shown = [c for c in _shown(table) if any(row[c.name] is not None for row in rows)]
    cells = [_cells(column, [row[column.name] for row in rows]) for column in shown]
    hidden = made.num_rows - len(rows)
    more = f" ({hidden:,} more: --top)" if hidden else ""
    terminal.write_table(
        f"{breakdown.run.name}: {name}: {table.meaning}{more}",
        [head for head, _ in cells] if rows else ["nothing of that is in the profile"],
        [list(row) for row in zip(*(texts for _, texts in cells), strict=True)],
        crop=tuple(column.name for column in shown if column.name in _LONG),
        spare=tuple(column.name for column in shown if column.name == _SPARE),
    )


def _shown(table: TableKind) -> list[Column]:
    by_name = {column.name: column for column in table.columns}
    return [by_name[name] for name in table.shown]


def _cells(column: Column, values: list[Any]) -> tuple[str, list[str]]:
    """The heading and the texts of one column."""
    heading = column.name.removesuffix("_ns").replace("_", " ")
    if pa.types.is_string(column.type):
        return column.name, [UNKNOWN if v is None else str(v) for v in values]
    largest = max(abs(v) for v in values if v is not None)
    integer = pa.types.is_integer(column.type)
    plain = (0, "", 1, 0 if integer else 1)
    _, unit, factor, digits = next(
        scale for scale in _SCALES.get(column.unit, (plain,)) if largest >= scale[0]
    )
    heading = heading.removesuffix(" per s").removesuffix(" share") if unit else heading
    texts = [UNKNOWN if v is None else f"{v * factor:,.{digits}f}" for v in values]
    return f">{heading} {unit}".rstrip(), texts
