"""The conditions of ``lstmprof compare --fail-if``.

::

    slower > 3 %        a step of the new run takes over 3 % longer than a step of the base run
    faster > 20 %       a step of the base run takes over 20 % longer than a step of the new run
    step > 12 ms        a step of the new run takes over 12 ms, whatever the base run takes
    slower > 3 % or step > 12 ms
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from lstmprof.errors import UsageError

Word = Literal["slower", "faster", "step"]

_SHAPE = re.compile(r"(?i)\s*(slower|faster|step)\s*>\s*(\d{1,9}(?:\.\d{1,9})?)\s*(\S+)\s*")
_UNITS = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}
_EXAMPLE = "write 'slower > 3 %', 'faster > 20 %' or 'step > 12 ms', joined by 'or'"


@dataclass(frozen=True)
class Limit:
    """A condition that fails the gate if ``word`` (slower, faster or step) exceeds ``most``.

    ``most`` is in ns for ``step``, else a share, such as 0.03 for ``slower > 3 %``.
    """

    word: Word
    most: float
    text: str

    @property
    def unit(self) -> Literal["share", "ns"]:
        """Return the unit of ``most``: ``ns`` or ``share``."""
        return "ns" if self.word == "step" else "share"


def limits(text: str) -> tuple[Limit, ...]:
    """Parse ``text`` into conditions, each of which fails the gate.

    Raises:
        UsageError: ``text`` cannot be parsed.
    """
    return tuple(_limit(part, text) for part in re.split(r"(?i)\bor\b", text))


def _limit(part: str, whole: str) -> Limit:
    shape = _SHAPE.fullmatch(part)
    if shape is None:
        raise UsageError(f"--fail-if '{whole}' cannot be parsed", _EXAMPLE)
    word, number, unit = shape[1].lower(), shape[2], shape[3]
    shown = f"{word} > {number} {unit}"
    if word == "step" and unit in _UNITS:
        return Limit("step", float(number) * _UNITS[unit], shown)
    if word != "step" and unit == "%":
        return Limit("slower" if word == "slower" else "faster", float(number) / 100, shown)
    units = ", ".join(_UNITS) if word == "step" else "%"
    raise UsageError(f"--fail-if '{whole}': '{unit}' is not a unit of {word}", f"use {units}")
