"""What fits on a line: columns that give way, names that are shortened, numbers that never are."""

from __future__ import annotations

from collections.abc import Sequence

from lstmprof.numbers import cropped

#: Spaces between columns, and what a shortened name should have before columns give way for it.
SPACE, _LEAST_NAME = 2, 32
Cells = list[list[str]]


def widths(columns: Sequence[str], cells: Cells) -> list[int]:
    """Characters of each column."""
    return [
        max(len(name.removeprefix(">")), *(len(row[i]) for row in cells), 0)
        for i, name in enumerate(columns)
    ]


def left_out(
    columns: Sequence[str],
    cells: Cells,
    crop: Sequence[str],
    spare: Sequence[str],
    width: int,
) -> tuple[str, ...] | None:
    """The fewest of ``spare``, in order, without which the others fit; None if they never do."""
    needed = {
        name: SPACE + (min(wide, _LEAST_NAME) if name in crop else wide)
        for name, wide in zip(columns, widths(columns, cells), strict=True)
    }
    for count in range(len(spare) + 1):
        hidden = tuple(spare[:count])
        if sum(n for name, n in needed.items() if name not in hidden) - SPACE <= width:
            return hidden
    return None


def shorten(columns: Sequence[str], cells: Cells, crop: Sequence[str], width: int) -> None:
    """Shorten the cells of the columns ``crop``, which share what the others leave of ``width``."""
    wide = widths(columns, cells)
    long = [i for i, name in enumerate(columns) if name in crop]
    fixed = sum(w + SPACE for i, w in enumerate(wide) if i not in long)
    room = width + SPACE - fixed - SPACE * len(long)
    for left, at in zip(range(len(long), 0, -1), sorted(long, key=lambda i: wide[i]), strict=True):
        mine = max(min(wide[at], room // left), 16)
        room -= mine
        for row in cells:
            row[at] = cropped(row[at], mine)
