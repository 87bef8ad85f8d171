"""What the name of a runtime call or a copy says: CUPTI, ROCTracer, Nsight Systems and XLA."""

from __future__ import annotations

import re

DIRECTIONS = ("HtoD", "DtoH", "DtoD", "PtoP", "HtoH")
MEMORIES = ("pinned", "pageable", "managed")

_LETTERS = re.compile(r"([HDPA])(?:to|2)([HDPA])(?![a-z])")
_WORDS = re.compile(r"(Host|Device|Peer|Array)[- ]?(?:To|to|->)[- ]?(Host|Device|Peer|Array)")
_MEMORY = re.compile(r"(?i)\b(pinned|pageable|managed)\b")


def direction(name: str) -> str | None:
    """Which way a copy of this name goes, one of DIRECTIONS; None where it does not say.

    An array is memory of a device.
    """
    found = _LETTERS.search(name) or _WORDS.search(name)
    if found is None:
        return None
    ends = [end[0].replace("A", "D") for end in found.groups()]
    way = "PtoP" if "P" in ends else "to".join(ends)
    return way if way in DIRECTIONS else None


def host_memory(name: str) -> str | None:
    """``pinned``, ``pageable`` or ``managed``; None where the name of a copy does not say."""
    found = _MEMORY.search(name)
    return found.group(1).lower() if found else None
