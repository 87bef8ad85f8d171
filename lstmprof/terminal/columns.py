"""What fits on a line: columns that give way, names that are shortened, numbers that never are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

#: Spaces between columns, and what a shortened name should have before columns give way for it.
SPACE, _LEAST_NAME = 2, 32
#: What the names of many kernels begin with, which tells none from another.
_PREFIXES = ("void ", "at::native::", "(anonymous namespace)::")

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


def cropped(name: str, room: int) -> str:
    """``name`` in ``room`` characters: graph nodes keep their end, C++ names their start."""
    if len(name) <= room:
        return name
    if "/" in name and "<" not in name:
        return "…" + name[len(name) - room + 1 :]
    return name[: room - 1] + "…"


def with_short_names(sentence: str, names: Iterable[str], most: int = 60) -> str:
    """``sentence`` with those of ``names`` that are longer than ``most`` shortened to it."""
    for name in sorted({n for n in names if len(n) > most}, key=len, reverse=True):
        sentence = sentence.replace(name, cropped(bare(name), most))
    return sentence


def bare(name: str) -> str:
    """``name`` without the prefixes that most kernels share."""
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name
