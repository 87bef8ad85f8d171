"""Text in an encoding that may not have all our signs: the nearest that it has."""

from __future__ import annotations

import sys

_NEAREST = str.maketrans(
    {"–": "-", "−": "-", "…": "~", "×": "x", "µ": "u", "±": "+-", "→": "->", "²": "2"}
)


def spoken(text: str) -> str:
    """``text`` as standard output can say it."""
    if printable(text):
        return text
    encoding = sys.stdout.encoding or "ascii"
    return text.translate(_NEAREST).encode(encoding, "replace").decode(encoding)


def printable(text: str) -> bool:
    """Whether standard output can say ``text`` as it is."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True
