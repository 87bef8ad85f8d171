"""Write a ``Grid`` as LaTeX, Markdown, HTML, or rows for CSV; special characters are escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import Any

from lstmprof.base.errors import one_line
from lstmprof.base.numbers import escaped
from lstmprof.report.grid import Grid

#: Special character → LaTeX code of the character.
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "–": "--",
    "†": r"$\dagger$",
    "‡": r"$\ddagger$",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}
_SPECIAL = re.compile("|".join(map(re.escape, _LATEX)))


def latex(grid: Grid) -> str:
    """Return a LaTeX table for the package booktabs."""
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{_tex(grid.caption)}}}"]
    lines += [rf"\begin{{tabular}}{{l{'r' * len(grid.columns)}}}", r"\toprule"]
    lines += [(" & ".join(map(_tex, [grid.corner, *grid.columns])) + r" \\"), r"\midrule"]
    for row, name in enumerate(grid.rows):
        lines.append(" & ".join([_tex(name), *_cells(grid, row, _tex, r"\textbf{%s}")]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"])


def _tex(text: str) -> str:
    return _SPECIAL.sub(lambda sign: _LATEX[sign[0]], one_line(text))


def _cells(grid: Grid, row: int, write: Callable[[str], str], bold: str) -> list[str]:
    """Return the texts of a row's cells, with the best values in bold."""
    cells = [grid.cells.get((row, column)) for column in range(len(grid.columns))]
    return [
        "" if cell is None else (bold if cell.best else "%s") % write(cell.text) for cell in cells
    ]


def markdown(grid: Grid) -> str:
    lines = ["| " + " | ".join(map(escaped, [grid.corner, *grid.columns])) + " |"]
    lines.append("|---|" + "---:|" * len(grid.columns))
    for row, name in enumerate(grid.rows):
        cells = _cells(grid, row, escaped, "**%s**")
        lines.append("| " + " | ".join([escaped(name), *cells]) + " |")
    return "\n".join([*lines, "", escaped(grid.caption)])


def page(grid: Grid) -> str:
    """Return an HTML ``<table>`` element, not a whole page."""
    heads = "".join(f'<th scope="col">{_html(name)}</th>' for name in [grid.corner, *grid.columns])
    lines = ["<table>", f"<caption>{_html(grid.caption)}</caption>"]
    lines.append(f"<thead><tr>{heads}</tr></thead>")
    lines.append("<tbody>")
    for row, name in enumerate(grid.rows):
        cells = "".join(f"<td>{cell}</td>" for cell in _cells(grid, row, _html, "<b>%s</b>"))
        lines.append(f'<tr><th scope="row">{_html(name)}</th>{cells}</tr>')
    return "\n".join([*lines, "</tbody>", "</table>"])


def _html(text: str) -> str:
    return html.escape(one_line(text))


def rows(grid: Grid) -> tuple[list[str], list[dict[str, Any]]]:
    """Return columns and rows for CSV; each number of a cell gets its own column."""
    heads = {
        (column, heading): f"{name} {heading}" if len(grid.columns) > 1 else heading
        for column, name in enumerate(grid.columns)
        for heading in grid.headings
    }
    records = []
    for row, name in enumerate(grid.rows):
        record: dict[str, Any] = {grid.corner: name}
        for (column, heading), head in heads.items():
            cell = grid.cells.get((row, column))
            record[head] = None if cell is None else cell.numbers.get(heading)
        records.append(record)
    return [grid.corner, *heads.values()], records
