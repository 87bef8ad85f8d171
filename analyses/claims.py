"""A study's number beside ours, and the verdict: reproduced, differs here, or what is needed.

Two numbers agree that differ by no more than a quarter: a study of another machine and of other
versions cannot be met more closely, and the studies round. Where the interval of ours holds
numbers that agree and numbers that do not, the claim is open.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd

from analyses.published import KERNELS, Study, rows as published

#: Two numbers agree whose quotient is at most this.
ALIKE = 1.25


@dataclass(frozen=True)
class Measured:
    """A value that runs show; ``low`` and ``high`` are its 95 % interval, None if unknown."""

    value: float
    low: float | None = None
    high: float | None = None

    def over(self, base: Measured) -> Measured:
        """Return this divided by ``base``, with the root sum of squares of both errors."""
        value = self.value / base.value
        if not (self.low and self.high and base.low and base.high):
            return Measured(value)
        below = math.hypot(math.log(self.value / self.low), math.log(base.high / base.value))
        above = math.hypot(math.log(self.high / self.value), math.log(base.value / base.low))
        return Measured(value, value * math.exp(-below), value * math.exp(above))

    def times(self, factor: float) -> Measured:
        """Return the value multiplied by the exact ``factor``."""
        low, high = (None if end is None else end * factor for end in (self.low, self.high))
        return Measured(self.value * factor, low, high)

    def text(self, unit: str = "") -> str:
        """Return the value as text: ``1.23× (1.10–1.38)``."""
        value = number(self.value, unit)
        if self.low is None or self.high is None:
            return value
        return f"{value} ({number(self.low)}–{number(self.high)})"


@dataclass(frozen=True)
class Claim:
    """``says`` is the study's sentence, ``theirs`` its number in ``unit``, None without one.

    ``here`` is what ours is of; ``needs`` is what no run of this machine can have, and ``command``
    settles it elsewhere; ``why`` is a reason for a difference, from the runs.
    """

    study: Study
    says: str
    theirs: float | None
    ours: Measured | None = None
    unit: str = "×"
    here: str = ""
    needs: str = ""
    why: str = ""
    command: str = ""

    @property
    def verdict(self) -> str:
        """Return ``reproduced``, ``differs here``, ``open``, ``needs …`` or ``not captured``."""
        if self.ours is None or self.theirs is None:
            return f"needs {self.needs}" if self.needs else "not captured"
        ends = (self.ours.low or self.ours.value, self.ours.high or self.ours.value)
        alike = [_alike(self.theirs, end) for end in ends]
        if all(alike):
            return "reproduced"
        if any(alike) or ends[0] < self.theirs < ends[1]:
            return "open"
        return "differs here"

    @property
    def their_number(self) -> str:
        """Return the study's number as text: ``2.8×``; empty for a claim in words."""
        return "" if self.theirs is None else number(self.theirs, self.unit)

    @property
    def source(self) -> str:
        """Return which runs our number is from, or the command that settles the claim."""
        return self.here or (f"`{self.command}`" if self.command else "")

    @property
    def our_number(self) -> str:
        """Return our number as text: ``1.23× (1.10–1.38)``; empty if there is none."""
        return self.ours.text(self.unit) if self.ours else ""


def quoted(question: str) -> list[Claim]:
    """Return the claims that the kernel study makes in words on ``question``; all need a GPU."""
    table = published("kernel_study_claims")
    return [
        Claim(
            KERNELS,
            f"({row.claim}) {row.says}",
            None if pd.isna(row.number) else row.number,
            unit=row.unit if isinstance(row.unit, str) else "",
            needs="a GPU",
            command=row.command,
        )
        for row in table[table.question == question].itertuples()
    ]


def number(value: float, unit: str = "") -> str:
    """Return ``value`` with three significant digits: ``2.8×``, ``12.6 s``, ``5,700 µs``."""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    gap = "" if unit in ("", "×") else " "
    return f"{value:,.{digits}f}{gap}{unit}"


def _alike(theirs: float, ours: float) -> bool:
    return max(theirs, ours) <= ALIKE * min(theirs, ours)
