"""Rows to text: tables for a person, JSON and CSV for a program. Nothing is computed here.

Names come from profiles, so they are printed as text: no markup, no control characters.
"""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from lstmprof.errors import one_line

FORMATS = ("table", "json", "csv")

Rows = Sequence[Mapping[str, Any]]


def write_json(value: Any, out: TextIO | None = None) -> None:
    """``value`` as JSON; unknown numbers are null, never NaN."""
    out = out or sys.stdout
    json.dump(value, out, indent=1, ensure_ascii=False, allow_nan=False)
    out.write("\n")


def write_csv(rows: Rows, columns: Sequence[str], out: TextIO | None = None) -> None:
    """``rows`` as CSV with a header; unknown is an empty field."""
    writer = csv.DictWriter(out or sys.stdout, columns, extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)


def write_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    crop: str | Sequence[str] = (),
) -> None:
    """A table of texts; columns whose name starts with ``>`` are aligned to the right.

    The columns called ``crop`` are shortened to what the others leave of the line; no other is.
    """
    from rich.table import Table
    from rich.text import Text

    screen = console()
    cells = [[one_line(cell) for cell in row] for row in rows]
    cropped_columns = [crop] if isinstance(crop, str) else crop
    _crop(cells, columns, [list(columns).index(name) for name in cropped_columns], screen.width)
    table = Table(title=None, box=None, pad_edge=False, header_style="bold")
    for column in columns:
        right = column.startswith(">")
        table.add_column(
            Text(column.removeprefix(">")), justify="right" if right else "left", no_wrap=True
        )
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    if title:
        screen.print(Text(one_line(title), style="bold"), soft_wrap=True)
    screen.print(table)
    screen.print()


def _crop(cells: list[list[str]], columns: Sequence[str], long: list[int], width: int) -> None:
    """Shorten the columns ``long``, which share what the others leave."""
    widths = [
        max(len(name.removeprefix(">")), *(len(row[i]) for row in cells), 0)
        for i, name in enumerate(columns)
    ]
    room = width + 2 - sum(w + 2 for i, w in enumerate(widths) if i not in long) - 2 * len(long)
    for left, at in zip(
        range(len(long), 0, -1), sorted(long, key=lambda i: widths[i]), strict=True
    ):
        mine = max(min(widths[at], room // left), 16)
        room -= mine
        for row in cells:
            row[at] = cropped(row[at], mine)


def cropped(name: str, room: int) -> str:
    """``name`` in ``room`` characters: graph nodes keep their end, C++ names their start."""
    if len(name) <= room:
        return name
    if "/" in name and "<" not in name:
        return "…" + name[len(name) - room + 1 :]
    return name[: room - 1] + "…"


def write_line(text: str = "") -> None:
    """One line of text, wrapped by the terminal and not by us."""
    from rich.text import Text

    console().print(Text(one_line(text)), soft_wrap=True)


def console() -> Any:
    """The terminal, or 120 columns where the output goes elsewhere."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 120, highlight=False)


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
    return [f"{n / scale:.{digits}f}" for n in floors]
