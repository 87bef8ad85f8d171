"""A study's number beside ours, and what follows: reproduced, contradicted, or what it needs.

Two numbers agree that differ by no more than a quarter: a study of another machine and of other
versions cannot be met more closely, and the studies round. Where the interval of ours holds
numbers that agree and numbers that do not, the claim is open.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from analyses.published import Study
from lstmprof.breakdown.rounds import Round, error_of_pairs, ratios_of_pairs

#: Two numbers agree whose quotient is at most this.
ALIKE = 1.25


@dataclass(frozen=True)
class Measured:
    """What runs here show; ``low`` and ``high`` are the ends of its 95 % interval, None unknown.

    ``rounds`` are those of the run that it is of, ``turns`` the runs that it took turns with.
    """

    value: float
    low: float | None = None
    high: float | None = None
    rounds: tuple[Round, ...] = ()
    turns: tuple[str, ...] = ()

    def over(self, base: Measured) -> Measured:
        """This divided by ``base``.

        Of runs that took turns it is the mean of the rounds' ratios with its 98 % interval, else
        the interval is the widest that both allow.
        """
        beside = self.turns == base.turns and len(self.turns) > 1
        ratios = ratios_of_pairs(base.rounds, self.rounds) if beside else None
        error = error_of_pairs(base.rounds, self.rounds)
        if ratios and error is not None:
            ratio, off = math.exp(statistics.fmean(ratios)), math.exp(error)
            return Measured(ratio, ratio / off, ratio * off)
        value = self.value / base.value
        if self.low and self.high and base.low and base.high:
            return Measured(value, self.low / base.high, self.high / base.low)
        return Measured(value)

    def times(self, factor: float) -> Measured:
        """This in another unit: ``factor`` is exact."""
        low, high = (None if end is None else end * factor for end in (self.low, self.high))
        rounds = tuple(
            Round(r.length_ns * factor, None, None, tuple((n, ns * factor) for n, ns in r.turns))
            for r in self.rounds
        )
        return Measured(self.value * factor, low, high, rounds, self.turns)

    def text(self, unit: str = "") -> str:
        """For reading: ``1.23× (1.10–1.38)``."""
        value = number(self.value, unit)
        if self.low is None or self.high is None:
            return value
        return f"{value} ({number(self.low)}–{number(self.high)})"


@dataclass(frozen=True)
class Claim:
    """``says`` is the study's sentence, ``theirs`` its number in ``unit``.

    ``here`` is what ours is of; ``needs`` is what no run of this machine can have; ``why`` is a
    reason for a difference, from the runs.
    """

    study: Study
    says: str
    theirs: float
    ours: Measured | None = None
    unit: str = "×"
    here: str = ""
    needs: str = ""
    why: str = ""

    @property
    def verdict(self) -> str:
        """``reproduced``, ``contradicted``, ``open``, ``needs …`` or ``not captured``."""
        if self.ours is None:
            return f"needs {self.needs}" if self.needs else "not captured"
        ends = (self.ours.low or self.ours.value, self.ours.high or self.ours.value)
        alike = [_alike(self.theirs, end) for end in ends]
        if all(alike):
            return "reproduced"
        if any(alike) or ends[0] < self.theirs < ends[1]:
            return "open"
        return "contradicted"

    @property
    def their_number(self) -> str:
        """For reading: ``2.8×``."""
        return number(self.theirs, self.unit)

    @property
    def our_number(self) -> str:
        """For reading: ``1.23× (1.10–1.38)``; empty where there is none."""
        return self.ours.text(self.unit) if self.ours else ""


def number(value: float, unit: str = "") -> str:
    """Three digits that count, as few as say so: ``2.8×``, ``12.6 s``, ``5,700 µs``."""
    digits = 0 if value >= 100 or unit == "%" else 1 if value >= 10 else 2
    gap = "" if unit in ("", "×") else " "
    return f"{value:,.{digits}f}{gap}{unit}"


def _alike(theirs: float, ours: float) -> bool:
    return max(theirs, ours) <= ALIKE * min(theirs, ours)
