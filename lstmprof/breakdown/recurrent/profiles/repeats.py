"""Runs of a pattern in a sequence: ``x a b c a b c a b c`` has ``a b c`` three times from 1 on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from lstmprof.events.intervals import Ints

#: A pattern is looked for up to so many entries: a time step of a cell has fewer than ten products
#: and activations, of a few layers together some dozens.
LONGEST = 96


@dataclass(frozen=True)
class Repeat:
    """The entries from ``start`` on are ``count`` times the ``period`` entries there."""

    start: int
    period: int
    count: int

    @property
    def end(self) -> int:
        """The first entry after it."""
        return self.start + self.period * self.count


def repeats(
    codes: Ints,
    wanted: Callable[[Ints], bool],
    begins: Callable[[Ints], bool],
    least: int,
) -> list[Repeat]:
    """The runs of ``least`` or more of one pattern that is ``wanted``, in order, none overlapping.

    The longest run comes first, and of equally long ones that of the shorter pattern. Entries
    before a run may look like the end of its pattern: it begins at the first place from which the
    pattern ``begins`` well, where that costs no repetition, else at its first entry.
    """
    found: list[Repeat] = []
    free = np.ones(len(codes), dtype=np.bool_)
    for start, period, covered in sorted(_stretches(codes, least), key=lambda s: (-s[2], s[1])):
        pattern = codes[start : start + period]
        if not wanted(pattern):
            continue
        spare = range(covered % period + 1)
        shift = next((n for n in spare if begins(np.roll(pattern, -n))), 0)
        run = Repeat(start + shift, period, (covered - shift) // period)
        if free[run.start : run.end].all():
            found.append(run)
            free[run.start : run.end] = False
    return sorted(found, key=lambda run: run.start)


def _stretches(codes: Ints, least: int) -> Iterator[tuple[int, int, int]]:
    """(start, period, entries covered) of every longest stretch that repeats with some period."""
    for period in range(1, min(LONGEST, len(codes) // least) + 1):
        same = np.concatenate(([0], (codes[period:] == codes[:-period]).astype(np.int8), [0]))
        edges = np.diff(same)
        starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
        long = ends - starts + period >= least * period
        for start, end in zip(starts[long].tolist(), ends[long].tolist(), strict=True):
            yield start, period, end - start + period
