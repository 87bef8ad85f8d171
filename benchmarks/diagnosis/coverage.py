"""How often a 95 % interval holds the step that it is of: three methods on drawn runs.

A drawn run is some processes, each faster or slower than usual by a draw, with iterations of which
each is like the one before; both draws are normal, or have heavy tails: Student's t of 3 degrees of
freedom between processes, and one iteration in twenty half as long again. The methods: Student's t
of the rounds' logarithms with the variance moderated by what is usual (``breakdown/rounds.py``,
which lstmprof uses); the same without; and rounds resampled, then blocks of their iterations.

Example: ``python benchmarks/diagnosis/coverage.py --runs 400``
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lstmprof.breakdown.rounds import error_of, midmean, round_of, t95

Floats = NDArray[np.float64]
Interval = tuple[float, float] | None

STEP_NS, NOISE = 1e7, 0.02
SPREADS, ROUNDS = (0.005, 0.02, 0.05, 0.17), (1, 3, 5)
#: Iterations that a block holds, and how often a run is resampled.
BLOCK, RESAMPLES = 3, 400


@dataclass(frozen=True)
class Drawn:
    """What is drawn: ``spread`` between processes, correlation ``alike`` of iterations."""

    rounds: int
    iterations: int
    spread: float
    alike: float
    heavy: bool


def drawn(generator: np.random.Generator, kind: Drawn) -> list[Floats]:
    """The iterations of each round of a run."""
    return [_round(generator, kind) for _ in range(kind.rounds)]


def _round(generator: np.random.Generator, kind: Drawn) -> Floats:
    steps = generator.normal(0, NOISE, kind.iterations)
    for i in range(1, kind.iterations):
        steps[i] = kind.alike * steps[i - 1] + math.sqrt(1 - kind.alike**2) * steps[i]
    process = generator.normal()
    if kind.heavy:
        process = generator.standard_t(3) / math.sqrt(3)
        steps += math.log(1.5) * (generator.random(kind.iterations) < 0.05)
    lengths: Floats = STEP_NS * np.exp(steps + kind.spread * process)
    return lengths


def _about(walls: Sequence[Floats], error: float | None) -> Interval:
    middle = midmean(np.concatenate(walls))
    return None if error is None else (middle * math.exp(-error), middle * math.exp(error))


def moderated(walls: Sequence[Floats], _: np.random.Generator) -> Interval:
    """What lstmprof says."""
    return _about(walls, error_of([round_of(some.astype(int).tolist()) for some in walls]))


def students_t(walls: Sequence[Floats], _: np.random.Generator) -> Interval:
    """By the spread of the rounds alone; None of one."""
    logs = [math.log(midmean(some)) for some in walls]
    if len(logs) < 2:
        return None
    return _about(walls, t95(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs)))


def resampled(walls: Sequence[Floats], generator: np.random.Generator) -> Interval:
    """Rounds with replacement, then blocks of the iterations of each."""
    whole, size = np.asarray(walls), len(walls[0])
    blocks = -(-size // BLOCK)
    picked = generator.integers(0, len(walls), (RESAMPLES, len(walls)))
    begins = generator.integers(0, size - BLOCK + 1, (RESAMPLES, len(walls), blocks))
    places = (begins[..., None] + np.arange(BLOCK)).reshape(RESAMPLES, len(walls), -1)[..., :size]
    samples = whole[picked[..., None], places].reshape(RESAMPLES, -1)
    low, high = np.percentile([midmean(some) for some in samples], (2.5, 97.5))
    return float(low), float(high)


METHODS: dict[str, Callable[[Sequence[Floats], np.random.Generator], Interval]] = {
    "moderated t": moderated,
    "Student's t": students_t,
    "resampled": resampled,
}


def held(kind: Drawn, runs: int) -> dict[str, float | None]:
    """Method → the share of runs whose interval holds the step; None where it gives none."""
    generator = np.random.default_rng(1)
    hits: dict[str, list[bool]] = {name: [] for name in METHODS}
    for _ in range(runs):
        walls = drawn(generator, kind)
        for name, method in METHODS.items():
            interval = method(walls, generator)
            if interval is not None:
                hits[name].append(interval[0] <= STEP_NS <= interval[1])
    return {name: statistics.fmean(some) if some else None for name, some in hits.items()}


def rows(runs: int) -> list[str]:
    """The table in Markdown: of each method the coverage at each spread between processes."""
    spreads = " | ".join(f"{spread:.1%}".replace("%", " %") for spread in SPREADS)
    lines = [f"| rounds × iterations | tails | correlation | method | {spreads} |"]
    lines.append("|---|---|---:|---|" + "---:|" * len(SPREADS))
    for rounds in ROUNDS:
        for heavy, alike in ((False, 0.0), (False, 0.6), (True, 0.6)):
            kinds = [Drawn(rounds, 20 // rounds, spread, alike, heavy) for spread in SPREADS]
            shares = [held(kind, runs) for kind in kinds]
            for name in METHODS:
                cells = ["–" if s[name] is None else f"{s[name]:.0%}" for s in shares]
                which = f"{rounds} × {20 // rounds} | {'heavy' if heavy else 'normal'} | {alike:g}"
                lines.append(f"| {which} | {name} | {' | '.join(cells)} |".replace("%", " %"))
    return lines


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=400, help="drawn for each cell")
    print("\n".join(rows(parser.parse_args().runs)))


if __name__ == "__main__":
    main()
