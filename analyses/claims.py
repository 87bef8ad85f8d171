"""The verdict on a study's claim: "reproduced", "differs here" or "needs a GPU".

A number is reproduced if our number differs by at most a quarter, because the studies used other
machines and versions. A verdict is "likely" if our 95 % interval also allows another verdict.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from analyses.published import STUDIES, Study, rows as published

#: Largest ratio of two numbers that agree. Chosen by hand.
ALIKE = 1.25


@dataclass(frozen=True)
class Measured:
    """A value that runs show, with its 95 % interval."""

    value: float
    low: float | None = None
    high: float | None = None

    def over(self, base: Measured) -> Measured:
        """Return the ratio to ``base``; the relative errors add in quadrature."""
        value = self.value / base.value
        if not (self.low and self.high and base.low and base.high):
            return Measured(value)
        below = math.hypot(math.log(self.value / self.low), math.log(base.high / base.value))
        above = math.hypot(math.log(self.high / self.value), math.log(base.value / base.low))
        return Measured(value, value * math.exp(-below), value * math.exp(above))

    def times(self, factor: float) -> Measured:
        low, high = (None if end is None else end * factor for end in (self.low, self.high))
        return Measured(self.value * factor, low, high)

    @classmethod
    def mean(cls, values: Sequence[Measured]) -> Measured:
        """Return the mean of the values, and of the ends of their intervals."""
        ends = ([v.low for v in values], [v.high for v in values])
        low, high = (None if None in end else sum(filter(None, end)) / len(values) for end in ends)
        return cls(sum(v.value for v in values) / len(values), low, high)

    def text(self, unit: str = "") -> str:
        """Return the value as text: ``1.23× (1.10–1.38)``."""
        value = number(self.value, unit)
        if self.low is None or self.high is None:
            return value
        return f"{value} ({number(self.low)}–{number(self.high)})"


@dataclass(frozen=True)
class Claim:
    """A number or a sentence of a study, beside what our runs show."""

    study: Study
    says: str  # the study's sentence, or what its number is
    theirs: float | None  # None for a sentence without a number
    ours: Measured | None = None
    unit: str = "×"
    holds: bool | None = None  # whether our runs confirm the sentence
    likely: bool = False  # the verdict is uncertain
    seen: str = ""  # what our runs show
    here: str = ""  # our runs
    conditions: str = "CPU"  # how our runs differ from the study's
    needs: str = "a GPU"  # what settles the claim if no run of ours does
    why: str = ""  # the measured reason for a difference
    command: str = ""  # to settle the claim
    place: str = "text"  # where the study states the claim
    row: str = ""
    column: str = ""
    raw: str = ""  # the study's text there

    @property
    def kind(self) -> str:
        if self.theirs is None or self.ours is None:
            agrees = self.holds
        else:
            agrees = alike(self.theirs, self.ours.value)
        return "needs a GPU" if agrees is None else "reproduced" if agrees else "differs here"

    @property
    def certain(self) -> bool:
        """Return False if our 95 % interval also allows another verdict."""
        if self.theirs is None or self.ours is None:
            return not self.likely
        ends = (self.ours.low or self.ours.value, self.ours.high or self.ours.value)
        agrees = {alike(self.theirs, end) for end in ends}
        around = ends[0] < self.theirs < ends[1]
        return len(agrees) == 1 and (agrees == {True} or not around)

    @property
    def verdict(self) -> str:
        """Return the verdict in words, such as ``likely differs here (CPU, 20 time steps)``."""
        if self.kind == "needs a GPU":
            return f"needs {self.needs}"
        where = f" ({self.conditions})" if self.kind == "differs here" else ""
        return ("" if self.certain else "likely ") + self.kind + where

    @property
    def their_number(self) -> str:
        """Return the study's number as text: ``2.80×``."""
        return "" if self.theirs is None else number(self.theirs, self.unit)

    @property
    def our_number(self) -> str:
        """Return our number as text: ``1.23× (1.10–1.38)``, or what our runs show."""
        return self.ours.text(self.unit) if self.ours else self.seen


def quoted(question: str) -> list[Claim]:
    """Return the study's sentences about ``question``, as claims."""
    table = published("in_words")
    table = table[table.question == question].astype(object).where(table.notna(), None)
    return [
        Claim(
            next(study for study in STUDIES if study.name == row.study),
            row.says,
            row.number,
            unit=row.unit or "",
            holds=None if row.holds is None else row.holds == "yes",
            seen=row.seen or "",
            conditions="newer versions",
            needs=row.needs or "a GPU",
            command=row.command or "",
            place=row.place,
        )
        for row in table.itertuples()
    ]


def number(value: float, unit: str = "") -> str:
    """Format a value with its unit: ``2.80×``, ``12.6 s``, ``5,700 µs``."""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    gap = "" if unit in ("", "×") else " "
    return f"{value:,.{digits}f}{gap}{unit}"


def alike(first: float, second: float) -> bool:
    return max(first, second) <= ALIKE * min(first, second)
