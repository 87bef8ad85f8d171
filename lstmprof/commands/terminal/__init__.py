"""Print rows as tables for people, and as JSON or CSV for programs.

Names in rows come from profiles, so control characters are removed and markup stays plain text.
Pipes and files get no bars and no colours; titles and verdicts wrap at ``PIPED`` characters there.
"""

from __future__ import annotations

import csv
import json
import math
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from lstmprof.base.errors import one_line
from lstmprof.base.numbers import bare, cropped, cut_text
from lstmprof.base.streams import CONTROL, styled

#: Colours of bars, with a contrast of 3:1 or more on white and on black.
BLUE, ORANGE = "#3b7dd8", "#c8710a"
#: Least and largest width of a bar, in characters.
_SHORTEST, _LONGEST = 8, 30
_BLOCK = "█"
#: Width of the output to a pipe or file, in characters.
PIPED = 100
#: Number of spaces between columns, and least width of shortened names; lstmprof omits columns
#: before names become narrower.
_SPACE, _LEAST_NAME = 2, 32
#: Width below which headers say "fast" and "slow" instead of the runs' names.
_NARROW = 100
#: Indentation of wrapped lines, so that no long name can imitate a new line of output.
_CONTINUED = "    "
#: Character -> replacement if the output's encoding, such as ASCII, lacks the character.
_NEAREST = str.maketrans(
    {"–": "-", "−": "-", "…": "~", "×": "x", "µ": "u", "±": "+-", "→": "->", "²": "2"}
)

#: First characters of texts that a spreadsheet would run as formulas.
_RUN_BY_SPREADSHEETS = tuple("=+-@＝＋－＠")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?").fullmatch

Cells = list[list[str]]
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Bars:
    """The bars beside a table, with a value and a colour per row."""

    values: Sequence[float | None]
    colours: Sequence[str]


def write_json(value: Any, out: TextIO | None = None) -> None:
    """Print JSON, and escape control characters."""
    out = out or sys.stdout
    plain = not (out.encoding or "utf-8").lower().startswith("utf")
    written = json.JSONEncoder(indent=1, ensure_ascii=plain, allow_nan=False).iterencode(value)
    out.writelines(CONTROL.sub(lambda sign: json.dumps(sign[0])[1:-1], part) for part in written)
    out.write("\n")


def write_csv(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[str], out: TextIO | None = None
) -> None:
    """Print CSV in UTF-8, with a header."""
    out = out or sys.stdout
    if hasattr(out, "reconfigure"):
        out.reconfigure(encoding="utf-8")
    writer = csv.writer(out)
    writer.writerow(map(_csv_cell, columns))
    writer.writerows([_csv_cell(row.get(name)) for name in columns] for row in rows)


def _csv_cell(value: Any) -> Any:
    if isinstance(value, (list, tuple)) and all(isinstance(text, str) for text in value):
        value = "; ".join(value)
    elif isinstance(value, (list, tuple, dict)):
        value = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, str):
        return value
    line = one_line(value)
    return "'" + line if line.startswith(_RUN_BY_SPREADSHEETS) and not _NUMBER(line) else line


def write_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    crop: str | Sequence[str] = (),
    cut: Sequence[str] = (),
    spare: Sequence[str] = (),
    bars: Bars | None = None,
    blank: bool = True,
) -> None:
    """Print a table of texts that fits the width of the terminal."""
    columns = [one_line(name) for name in columns]
    cells = [[one_line(cell) for cell in row] for row in rows]
    names = [crop] if isinstance(crop, str) else crop
    long = [*names, *cut]
    hidden: Sequence[str] = ()
    width, room = console().width, 0
    if sys.stdout.isatty():
        cells = [
            [bare(cell) if name in names else cell for name, cell in zip(columns, row, strict=True)]
            for row in cells
        ]
        hidden, room = _fitted(columns, cells, long, spare, width, bars)
    shown = [i for i, name in enumerate(columns) if name not in hidden]
    heads, cells = [columns[i] for i in shown], [[row[i] for i in shown] for row in cells]
    _shorten(heads, cells, names, cut, width - (room + _SPACE if room else 0))
    if title:
        write_line(title, style="bold", wrap=True)
    _print(heads, cells, _drawn(bars, room) if bars and room else [], room)
    if hidden:
        names = ", ".join(name.removeprefix(">") for name in hidden)
        write_line(f"(columns that do not fit this width: {names})", style="dim")
    if blank:
        console().print()


def _fitted(
    columns: Sequence[str],
    cells: Cells,
    long: Sequence[str],
    spare: Sequence[str],
    width: int,
    bars: Bars | None,
) -> tuple[Sequence[str], int]:
    """Return (columns to omit, width left for bars)."""
    drawable = bars is not None and printable(_BLOCK)
    hidden = _left_out(columns, cells, long, spare, width - _SPACE - _SHORTEST)
    if not drawable or hidden is None:
        hidden = _left_out(columns, cells, long, spare, width)
        return spare if hidden is None else hidden, 0
    shown_widths = [
        w for n, w in zip(columns, _widths(columns, cells), strict=True) if n not in hidden
    ]
    return hidden, max(
        min(width - sum(shown_widths) - _SPACE * len(shown_widths), _LONGEST), _SHORTEST
    )


def _left_out(
    columns: Sequence[str], cells: Cells, long: Sequence[str], spare: Sequence[str], width: int
) -> tuple[str, ...] | None:
    """Choose which ``spare`` columns to hide, so that lines fit into ``width``."""
    needed = {
        name: _SPACE + (min(wide, _LEAST_NAME) if name in long else wide)
        for name, wide in zip(columns, _widths(columns, cells), strict=True)
    }
    for count in range(len(spare) + 1):
        hidden = tuple(spare[:count])
        if sum(n for name, n in needed.items() if name not in hidden) - _SPACE <= width:
            return hidden
    return None


def _widths(columns: Sequence[str], cells: Cells) -> list[int]:
    return [
        max(len(spoken(name.removeprefix(">"))), *(len(spoken(row[i])) for row in cells), 0)
        for i, name in enumerate(columns)
    ]


def _shorten(
    columns: Sequence[str], cells: Cells, names: Sequence[str], cut: Sequence[str], width: int
) -> None:
    """Shorten long texts in ``cells`` in place, so that lines fit into ``width``."""
    wide, long = _widths(columns, cells), [*names, *cut]
    places = sorted((i for i, name in enumerate(columns) if name in long), key=lambda i: wide[i])
    fixed = sum(w + _SPACE for i, w in enumerate(wide) if i not in places)
    room = width + _SPACE - fixed - _SPACE * len(places)
    for left, at in zip(range(len(places), 0, -1), places, strict=True):
        widest = max(min(wide[at], room // left), 16)
        room -= widest
        for row in cells:
            is_name = columns[at] in names
            row[at] = cropped(row[at], widest) if is_name else cut_text(row[at], widest)


def _drawn(bars: Bars, width: int) -> list[Any]:
    """Draw one bar per row; bars of nonzero values are at least 1/8 character long."""
    from rich.bar import Bar

    values = [value or 0.0 for value in bars.values]
    low, high = min(0.0, *values), max(0.0, *values)
    eighths = 8 * width / (high - low or 1.0)
    zero = 8 * min(max(round(-low * eighths / 8), low < 0), width - (high > 0))
    drawn: list[Any] = []
    for value, colour in zip(values, bars.colours, strict=True):
        length = max(round(abs(value) * eighths), 1)
        ends = (zero - length, zero) if value < 0 else (zero, zero + length)
        drawn.append(Bar(8 * width, *ends, width=width, color=colour) if value else "")
    return drawn


def _print(heads: Sequence[str], cells: Cells, bars: Sequence[Any], room: int) -> None:
    """Print the table without breaking lines; ``room`` is the width of the bars."""
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
    longest = sum(_widths(heads, cells)) + _SPACE * len(heads) + room
    screen = console(longest)
    if sys.stdout.isatty():
        screen.print(table)
        return
    with screen.capture() as printed:
        screen.print(table)
    screen.print(Text("\n".join(map(str.rstrip, printed.get().splitlines()))), soft_wrap=True)


def write_line(text: str = "", *, style: str = "", head: str = "", wrap: bool = False) -> None:
    """Print one line, wrapped on a terminal; its beginning ``head`` is bold."""
    from rich.text import Text

    screen, line = console(), spoken(_indented(text))
    if sys.stdout.isatty() or wrap:
        indent = line[: len(line) - len(line.lstrip(" "))]
        broken = textwrap.wrap(
            line.lstrip(" "),
            screen.width,
            initial_indent=indent,
            subsequent_indent=f"{indent}{_CONTINUED}",
            break_on_hyphens=False,
        )
        line = "\n".join(broken)
    words = Text(line, style=style)
    words.stylize("bold", 0, len(head))
    screen.print(words, soft_wrap=True)


def _indented(text: str) -> str:
    """Make a text one line, and keep its leading spaces."""
    return text[: len(text) - len(text.lstrip(" "))] + one_line(text)


def wrapped(head: str, text: str) -> list[str]:
    """Break ``text`` into lines that all begin right of ``head``."""
    from lstmprof.diagnose.verdict import verdict_text

    return verdict_text.wrapped(spoken(head), spoken(one_line(text)), "", None, console().width)


def write_under(head: str, text: str) -> None:
    """Print ``head`` in bold, and wrapped ``text`` to the right of ``head``."""
    write_lines(wrapped(head, text), bold=len(head))


def write_lines(lines: Sequence[str], *, bold: int) -> None:
    """Print lines without wrapping, the first ``bold`` characters in bold."""
    from rich.text import Text

    words = Text(spoken("\n".join(map(_indented, lines))))
    words.stylize("bold", 0, bold)
    console().print(words, soft_wrap=True)


def console(least: int = 0) -> Any:
    """Return a rich console for stdout, at least ``least`` characters wide."""
    from rich.console import Console

    out, width = styled(sys.stdout), None if sys.stdout.isatty() else PIPED
    screen = Console(file=out, width=width, highlight=False)
    return screen if screen.width >= least else Console(file=out, width=least, highlight=False)


def narrow() -> bool:
    return bool(sys.stdout.isatty() and console().width < _NARROW)


def spoken(text: str) -> str:
    """Replace characters that the encoding of standard output lacks."""
    if printable(text):
        return text
    encoding = sys.stdout.encoding or "ascii"
    return text.translate(_NEAREST).encode(encoding, "replace").decode(encoding)


def printable(text: str) -> bool:
    """Return whether the encoding of standard output has all characters of a text."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def parts_that_add_up(values: Sequence[float], whole: float, digits: int) -> list[str]:
    """Round parts so that the printed numbers add up to ``whole``."""
    scale = 10**digits
    floors = [math.floor(v * scale) for v in values]
    missing = round(whole * scale) - sum(floors)
    # distribute the missing units by the largest remainder method (Hamilton)
    by_remainder = sorted(range(len(values)), key=lambda i: floors[i] - values[i] * scale)
    for i in by_remainder[: max(missing, 0)]:
        floors[i] += 1
    return [f"{n / scale:,.{digits}f}" for n in floors]
