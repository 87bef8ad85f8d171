"""How fast a machine was while a run was captured: a fixed product, Python loop and copy.

Each round times them before its framework is imported and at its end (run.json, ``yardsticks``).
They compare rounds, and runs, of one version of Python and NumPy and of as many threads; of others
they say nothing. Where one thread of a CPU does the work it is their CPU time that counts: another
process that takes the CPU makes the machine no slower, and is told of apart (``cpu_share``).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from lstmprof.breakdown.rounds import Round, error_of
from lstmprof.numbers import milliseconds
from lstmprof.runs.metadata import RunInfo

#: What is timed, and what it is called.
SORTS = {"product": "product", "python": "Python loop", "copy": "copy of memory"}
#: A yardstick that differs by less from one reading to another is one that did not change.
STEADY_SHARE = 0.10
#: Standard deviation of a run's yardstick, in logarithms, where nothing changes the machine.
USUAL_SPREAD = 0.02


@dataclass(frozen=True)
class Change:
    """How much longer ``sort`` took in one reading than in another: ``share`` of the shorter.

    By ``size`` the mean of all may be off, so far as these readings tell.
    """

    sort: str
    low_ns: float
    high_ns: float
    size: float

    @property
    def share(self) -> float:
        """By which the longer is longer."""
        return self.high_ns / self.low_ns - 1

    @property
    def sentence(self) -> str:
        """``a fixed product took 3.6 to 5.0 ms``."""
        low, high = milliseconds(self.low_ns), milliseconds(self.high_ns)
        return f"a fixed {SORTS[self.sort]} took {low} to {high} ms"


@dataclass(frozen=True)
class Speed:
    """How many times as long ``sort`` took for the slower run, of all sorts the most.

    ``log`` of that may be off by ``error``.
    """

    sort: str
    log: float
    error: float
    fast_ns: float
    slow_ns: float

    @property
    def sentence(self) -> str:
        """``a fixed product took 5.0 against 3.6 ms``."""
        slow, fast = milliseconds(self.slow_ns), milliseconds(self.fast_ns)
        return f"a fixed {SORTS[self.sort]} took {slow} against {fast} ms"


def _readings(info: RunInfo, sort: str) -> Iterator[tuple[float | None, float | None]]:
    """(before, after) of each round."""
    field = f"{sort}_cpu_ns" if info.device == "cpu" and info.threads == 1 else f"{sort}_ns"
    for pair in info.yardsticks or ():
        some = (getattr(side, field, None) for side in (pair.before, pair.after))
        before, after = (float(ns) if ns and ns > 0 else None for ns in some)
        yield before, after


def cpu_share(info: RunInfo) -> float | None:
    """For how much of the time the Python loop, one thread that never waits, had its CPU.

    The least of all readings; None unknown.
    """
    sides = [side for pair in info.yardsticks or () for side in (pair.before, pair.after)]
    known = [(s.python_cpu_ns, s.python_ns) for s in sides if s is not None]
    return min((min(cpu / wall, 1.0) for cpu, wall in known if cpu and wall), default=None)


def largest_change(info: RunInfo) -> Change | None:
    """The sort that differs most between any two readings of a run; None unknown."""
    changes = []
    for sort in SORTS:
        some = [ns for pair in _readings(info, sort) for ns in pair if ns is not None]
        if len(some) > 1:
            error = error_of([Round(ns, None, None) for ns in some], USUAL_SPREAD) or 0.0
            changes.append(Change(sort, min(some), max(some), math.expm1(error)))
    return max(changes, key=lambda change: change.share, default=None)


def change_of_rounds(info: RunInfo) -> float | None:
    """By which the ends of rounds differ from their beginnings, of the sort that does most.

    A logarithm; None unknown.
    """
    means = []
    for sort in SORTS:
        logs = [math.log(b / a) for a, b in _readings(info, sort) if a and b]
        means += [statistics.fmean(logs)] if logs else []
    return max(means, key=abs, default=None)


def speed(fast: RunInfo, slow: RunInfo) -> Speed | None:
    """How much slower the machine was for ``slow``; None where their yardsticks tell nothing."""
    if _what_ran(fast) != _what_ran(slow):
        return None
    speeds = [s for sort in SORTS if (s := _speed(sort, fast, slow)) is not None]
    return max(speeds, key=lambda speed: speed.log + speed.error, default=None)


def range_of(fast: RunInfo, slow: RunInfo) -> float | None:
    """How far apart the speeds are that any reading of either run saw, in logarithms.

    Of the sort that saw most; None where the two have no yardstick in common.
    """
    if _what_ran(fast) != _what_ran(slow):
        return None
    ranges = []
    for sort in SORTS:
        some = [[ns for pair in _readings(i, sort) for ns in pair if ns] for i in (fast, slow)]
        if all(some):
            ranges.append(math.log(max(map(max, some)) / min(map(min, some))))
    return max(ranges, default=None)


def _what_ran(info: RunInfo) -> tuple[object, ...]:
    versions, cpus = info.versions or {}, info.affinity and len(info.affinity)
    return versions.get("python"), versions.get("numpy"), info.threads, cpus


def _speed(sort: str, fast: RunInfo, slow: RunInfo) -> Speed | None:
    ends = [_of_rounds(info, sort) for info in (fast, slow)]
    errors = [error_of(rounds, USUAL_SPREAD) for rounds in ends]
    if errors[0] is None or errors[1] is None:
        return None
    first, second = (
        math.exp(statistics.fmean(math.log(r.length_ns) for r in rounds)) for rounds in ends
    )
    return Speed(sort, math.log(second / first), math.hypot(errors[0], errors[1]), first, second)


def _of_rounds(info: RunInfo, sort: str) -> list[Round]:
    """The mean of each round's readings."""
    rounds = []
    for pair in _readings(info, sort):
        known = [ns for ns in pair if ns is not None]
        if known:
            rounds.append(Round(math.exp(statistics.fmean(map(math.log, known))), None, None))
    return rounds
