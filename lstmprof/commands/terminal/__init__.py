"""Rows to text: tables for a person, JSON and CSV for a program. Nothing is computed here.

Names come from profiles, so they are printed as text: no markup, no control characters. What a
terminal gets besides (bars, colours, lines broken between words) a pipe does not get.
"""

from __future__ import annotations

import csv
import io
import json
import math
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

from lstmprof.commands.terminal.bars import BLUE, LEAST, MOST, ORANGE, Bars, drawn
from lstmprof.commands.terminal.encoding import spoken
from lstmprof.commands.terminal.fit import (
    SPACE,
    left_out,
    shorten,
    widths,
)
from lstmprof.errors import one_line
from lstmprof.numbers import bare, cropped, with_short_names

__all__ = [
    "BLUE",
    "FORMATS",
    "ORANGE",
    "Bars",
    "console",
    "cropped",
    "narrow",
    "parts_that_add_up",
    "with_short_names",
    "write_csv",
    "write_json",
    "write_line",
    "write_table",
]

FORMATS = ("table", "json", "csv")

Rows = Sequence[Mapping[str, Any]]


def write_json(value: Any, out: TextIO | None = None) -> None:
    """``value`` as JSON; unknown numbers are null, never NaN."""
    out = out or sys.stdout
    plain = not (out.encoding or "utf-8").lower().startswith("utf")
    json.dump(value, out, indent=1, ensure_ascii=plain, allow_nan=False)
    out.write("\n")


def write_csv(rows: Rows, columns: Sequence[str], out: TextIO | None = None) -> None:
    """``rows`` as CSV with a header; unknown is an empty field. A program's text is UTF-8.

    Several texts in one cell are joined by ``; ``, what else is no single value is JSON.
    """
    out = out or sys.stdout
    if isinstance(out, io.TextIOWrapper):
        out.reconfigure(encoding="utf-8")
    writer = csv.DictWriter(out, columns, extrasaction="ignore")
    writer.writeheader()
    writer.writerows({name: _csv_cell(value) for name, value in row.items()} for row in rows)


def _csv_cell(value: Any) -> Any:
    if not isinstance(value, (list, tuple, dict)):
        return value
    if not isinstance(value, dict) and all(isinstance(text, str) for text in value):
        return "; ".join(value)
    return json.dumps(value, ensure_ascii=False)


def write_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    crop: str | Sequence[str] = (),
    spare: Sequence[str] = (),
    bars: Bars | None = None,
) -> None:
    """A table of texts; columns whose name starts with ``>`` are aligned to the right.

    The columns called ``crop`` are shortened to what the others leave of the line; no other is. On
    a terminal too narrow for them those called ``spare`` are left out, the first one first, and
    ``bars`` are drawn where there is room; elsewhere all columns are there and no bar is.
    """
    cells = [[one_line(cell) for cell in row] for row in rows]
    long = [crop] if isinstance(crop, str) else crop
    hidden: Sequence[str] = ()
    width, room = console().width, 0
    if sys.stdout.isatty():
        cells = [
            [bare(cell) if name in long else cell for name, cell in zip(columns, row, strict=True)]
            for row in cells
        ]
        hidden, room = _fitted(columns, cells, long, spare, width, bars)
    kept = [i for i, name in enumerate(columns) if name not in hidden]
    heads, cells = [columns[i] for i in kept], [[row[i] for i in kept] for row in cells]
    shorten(heads, cells, long, width - (room + SPACE if room else 0))
    if title:
        write_line(title, style="bold")
    _print(heads, cells, drawn(bars, room) if bars and room else [])
    if hidden:
        names = ", ".join(name.removeprefix(">") for name in hidden)
        write_line(f"(left out, for want of room: {names})", style="dim")
    console().print()


def _fitted(
    columns: Sequence[str],
    cells: list[list[str]],
    long: Sequence[str],
    spare: Sequence[str],
    width: int,
    bars: Bars | None,
) -> tuple[Sequence[str], int]:
    """The columns that give way on a line of ``width``, and the room that bars have."""
    hidden = left_out(columns, cells, long, spare, width - SPACE - LEAST) if bars else None
    if hidden is None:
        found = left_out(columns, cells, long, spare, width)
        return spare if found is None else found, 0
    kept = [w for n, w in zip(columns, widths(columns, cells), strict=True) if n not in hidden]
    return hidden, max(min(width - sum(kept) - SPACE * len(kept), MOST), LEAST)


def _print(heads: Sequence[str], cells: list[list[str]], bars: Sequence[Any]) -> None:
    """The table, on lines as long as it needs: no number is cut."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=None, box=None, pad_edge=False, header_style="bold")
    for head in heads:
        justify: Any = "right" if head.startswith(">") else "left"
        table.add_column(Text(spoken(head.removeprefix(">"))), justify=justify, no_wrap=True)
    if bars:
        table.add_column("", no_wrap=True)
    for i, row in enumerate(cells):
        table.add_row(*(Text(spoken(cell)) for cell in row), *bars[i : i + 1])
    longest = sum(widths(heads, cells)) + SPACE * len(heads) + max(map(len, bars), default=0)
    console(longest).print(table)


def write_line(
    text: str = "", *, style: str = "", head: str = "", names: Iterable[str] = ()
) -> None:
    """One line of text.

    A terminal shows its beginning ``head`` in bold, those of ``names`` that are long shortened, and
    breaks it between words.
    """
    from rich.text import Text

    screen, line = console(), spoken(one_line(text))
    if sys.stdout.isatty():
        line = spoken(with_short_names(one_line(text), names))
        wrapped = textwrap.wrap(line, screen.width, subsequent_indent="  ", break_on_hyphens=False)
        line = "\n".join(wrapped)
    said = Text(line, style=style)
    said.stylize("bold", 0, len(head))
    screen.print(said, soft_wrap=True)


def console(least: int = 0) -> Any:
    """The terminal, or 120 columns where the output goes elsewhere; ``least`` if that is more."""
    from rich.console import Console

    found = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    return found if found.width >= least else Console(width=least, highlight=False)


#: Columns of a terminal on which two names of runs have no room over a table.
_NARROW = 100


def narrow() -> bool:
    """Whether the output is a terminal with little room."""
    return bool(sys.stdout.isatty() and console().width < _NARROW)


def parts_that_add_up(values: Sequence[float], whole: float, digits: int) -> list[str]:
    """``values``, of either sign, which sum to ``whole``, rounded so that the printed add up too.

    Method of the largest remainder (Hamilton).
    """
    scale = 10**digits
    floors = [math.floor(v * scale) for v in values]
    missing = round(whole * scale) - sum(floors)
    by_remainder = sorted(range(len(values)), key=lambda i: floors[i] - values[i] * scale)
    for i in by_remainder[: max(missing, 0)]:
        floors[i] += 1
    return [f"{n / scale:,.{digits}f}" for n in floors]
