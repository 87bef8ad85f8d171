"""How far a sweep is, and how long it still takes, by the times that its rounds took."""

from __future__ import annotations

import statistics


class Pace:
    """The rounds of each run of a sweep, in the order in which runs were planned."""

    def __init__(self) -> None:
        self._left: dict[str, int] = {}
        self._took_s: dict[str, list[float]] = {}

    def plan(self, name: str, rounds: int) -> None:
        """Expect so many rounds of the run ``name``."""
        self._left[name] = rounds
        self._took_s[name] = []

    def finished(self, name: str, took_s: float | None) -> None:
        """One round of a run is done; ``took_s`` is None where that is not known."""
        self._left[name] -= 1
        self._took_s[name] += [] if took_s is None else [took_s]

    def ended(self, name: str) -> None:
        """No further round of this run is to come."""
        self._left[name] = 0

    def left_s(self) -> float | None:
        """Seconds that the rounds still take that are to come; None before one is done.

        A round takes what those of its run took, before one is done what those of all runs did.
        """
        measured = [took_s for of_run in self._took_s.values() for took_s in of_run]
        if not measured:
            return None
        usual_s = statistics.fmean(measured)
        return sum(
            left * (statistics.fmean(self._took_s[name]) if self._took_s[name] else usual_s)
            for name, left in self._left.items()
        )

    def words(self, name: str, number: int, rounds: int) -> str:
        """``3 of 8 captures, round 2 of 3, about 4 min left`` before round ``number``, from 0."""
        planned, left_s = list(self._left), self.left_s()
        parts = [f"{planned.index(name) + 1} of {len(planned)} captures"]
        parts += [f"round {number + 1} of {rounds}"] if rounds > 1 else []
        parts += [f"about {span(left_s)} left"] if left_s else []
        return ", ".join(parts if len(planned) > 1 else parts[1:])


def span(seconds: float) -> str:
    """``40 s``, ``4 min``, ``2.5 h``: as a person says how long something takes."""
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
