"""Drawn runs: so many rounds in turn, processes that differ by a spread, iterations like the last.

::

    base  ─ 10 iterations ─        ─ 10 iterations ─        …   10 ms × a draw of each process
    new                    ─ 10 ─                    ─ 10 ─ …   as long, or longer by a cause
"""

from __future__ import annotations

import math

import numpy as np
from diagnose.made import contributor, profile

from lstmprof.breakdown.rounds import midmean, round_of
from lstmprof.breakdown.timings import interval_of
from lstmprof.diagnose.step_profile import StepProfile

STEP_NS = 10_000_000
ITERATIONS = 10


def pair(
    generator: np.random.Generator, rounds: int, spread: float, planted: float = 0.0
) -> tuple[StepProfile, StepProfile]:
    """A base and what is new, ``planted`` longer; each process is off by ``spread``."""
    return (
        run(generator, rounds, spread, 0.0, name="base", at=0),
        run(generator, rounds, spread, planted, name="new", at=30),
    )


def run(
    generator: np.random.Generator,
    rounds: int,
    spread: float,
    planted: float,
    *,
    name: str,
    at: int,
) -> StepProfile:
    """One run, whose rounds begin ``at`` that second of each minute."""
    walls = [_walls(generator, STEP_NS * (1 + planted), spread) for _ in range(rounds)]
    processes = [round_of(some) for some in walls]
    middle = midmean([wall for some in walls for wall in some])
    starts = [f"2026-11-23T10:{minute:02}:{at:02}Z" for minute in range(rounds)]
    parts = [contributor("busy", "gemm", STEP_NS, "mm")]
    parts += [contributor("idle", "python", round(planted * STEP_NS))] if planted else []
    return profile(
        *parts,
        name=name,
        facts={"rounds": starts, "iterations": ITERATIONS * rounds},
        step_ns=round(middle),
        interval_ns=interval_of(middle, processes),
        rounds=tuple(processes),
    )


def _walls(generator: np.random.Generator, step_ns: float, spread: float) -> list[float]:
    usual = step_ns * math.exp(generator.normal(0, spread))
    drawn = generator.normal(0, 0.01, ITERATIONS)
    for i in range(1, ITERATIONS):
        drawn[i] = 0.5 * drawn[i - 1] + math.sqrt(0.75) * drawn[i]
    return [float(wall) for wall in usual * np.exp(drawn)]
