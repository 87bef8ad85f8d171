"""Bars of a table's rows, to an eighth of a character, on both sides of one zero."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lstmprof.commands.terminal.encoding import printable

if TYPE_CHECKING:
    from rich.text import Text

#: Of work or of less, of waiting or of more; 3:1 and more on white and on black.
BLUE, ORANGE = "#3b7dd8", "#c8710a"
#: Characters of a bar.
LEAST, MOST = 8, 30
#: The left eighths of a character, and those right parts that there are for them.
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_MIRRORED = str.maketrans("▏▎▍▌▋▊▉", "▕▕▐▐▐██")
_ASCII = "#"


@dataclass(frozen=True)
class Bars:
    """One bar a row, None for none; of a negative value it goes left."""

    values: Sequence[float | None]
    colours: Sequence[str]


def drawn(bars: Bars, width: int) -> list[Text]:
    """Each bar in ``width`` characters; in ASCII where blocks cannot be printed."""
    from rich.text import Text

    known = [value for value in bars.values if value is not None]
    low, high = min([0.0, *known]), max([0.0, *known])
    left = _left_of_zero(low, high, width)
    found = []
    for value, colour in zip(bars.values, bars.colours, strict=True):
        before = bar(min(value or 0.0, 0.0) / low, left) if low else ""
        after = bar(max(value or 0.0, 0.0) / high, width - left) if high else ""
        text = before.translate(_MIRRORED)[::-1].rjust(left) + after
        found.append(Text(text.rstrip(), style=colour))
    return found


def _left_of_zero(low: float, high: float, width: int) -> int:
    """Characters for negative bars: their part of the range, and one where there is any."""
    if not low < 0:
        return 0
    left = round(width * -low / (high - low))
    return min(max(left, 1), width - 1) if high > 0 else width


def bar(share: float, width: int) -> str:
    """A bar of ``share`` (0–1) of ``width`` characters; what is not nothing is seen."""
    if not printable(_EIGHTHS):
        return _ASCII * max(round(share * width), share > 0)
    whole, rest = divmod(max(round(8 * share * width), share > 0), 8)
    return _EIGHTHS[8] * whole + _EIGHTHS[rest].strip()
