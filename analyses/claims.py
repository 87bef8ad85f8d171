"""Show a study's number beside ours, and the verdict: reproduced, differs here, needs a GPU.

Two numbers agree if they differ by at most a quarter. The studies ran on other machines with other
versions, and they round, so a closer match would be chance. The word "likely" precedes a verdict if
the 95 % interval of our number contains both numbers that agree with the study's and numbers that
do not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from analyses.published import STUDIES, Study, rows as published

#: Two numbers agree if the larger divided by the smaller is at most this. Chosen by hand.
ALIKE = 1.25


@dataclass(frozen=True)
class Measured:
    """A value that runs show; ``low`` and ``high`` are its 95 % interval, None if unknown."""

    value: float
    low: float | None = None
    high: float | None = None

    def over(self, base: Measured) -> Measured:
        """Return this value over ``base``; relative errors combine as a root sum of squares."""
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

    @classmethod
    def mean(cls, values: Sequence[Measured]) -> Measured:
        """Return the mean of ``values``; its interval has the means of the lower and upper ends."""
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
    """A number or a sentence of a study, beside the number or observation from our runs.

    Attributes:
        says: the study's sentence, or a description of its number.
        theirs: the study's number in ``unit``; None for a sentence without a number.
        ours: the same number from our runs; None if no run has it.
        holds: for a sentence without a number, whether it is true of our runs; ``likely`` is True
            if the intervals of the runs would also allow the opposite.
        seen: for a sentence without a number, what our runs show, in words.
        here: the runs from which our number comes; ``conditions``: how their conditions differ from
            the study's.
        needs: what is needed to settle the claim if no run of ours does; ``command`` settles it.
        why: the measured reason for a difference.
        place: the part of the study's text. ``row`` and ``column`` are the claim's place in a table
            of the study, and ``raw`` is the text of the study's numbers.
    """

    study: Study
    says: str
    theirs: float | None
    ours: Measured | None = None
    unit: str = "×"
    holds: bool | None = None
    likely: bool = False
    seen: str = ""
    here: str = ""
    conditions: str = "CPU"
    needs: str = "a GPU"
    why: str = ""
    command: str = ""
    place: str = "text"
    row: str = ""
    column: str = ""
    raw: str = ""

    @property
    def kind(self) -> str:
        """Return ``reproduced``, ``differs here`` or ``needs a GPU``."""
        if self.theirs is None or self.ours is None:
            agrees = self.holds
        else:
            agrees = alike(self.theirs, self.ours.value)
        return "needs a GPU" if agrees is None else "reproduced" if agrees else "differs here"

    @property
    def certain(self) -> bool:
        """Return whether every value in the interval of our number gives the same verdict."""
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
        """Return the study's number as text: ``2.8×``; empty for a claim in words."""
        return "" if self.theirs is None else number(self.theirs, self.unit)

    @property
    def our_number(self) -> str:
        """Return our number as text, ``1.23× (1.10–1.38)``, or what our runs show (``seen``)."""
        return self.ours.text(self.unit) if self.ours else self.seen


def quoted(question: str) -> list[Claim]:
    """Return the claims in words on ``question`` that no table of a study gives.

    A claim about the interface of a library is true or false on every machine; ``seen`` is the
    evidence. The other claims need a GPU.
    """
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
    """Return ``value`` with three significant digits: ``2.8×``, ``12.6 s``, ``5,700 µs``."""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    gap = "" if unit in ("", "×") else " "
    return f"{value:,.{digits}f}{gap}{unit}"


def alike(first: float, second: float) -> bool:
    """Return whether two numbers differ by at most the factor ``ALIKE``."""
    return max(first, second) <= ALIKE * min(first, second)
