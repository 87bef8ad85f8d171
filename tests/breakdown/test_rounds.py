"""How far a median may be off: iterations that are not independent, processes that differ.

Series are drawn: what a process adds to all its steps, and noise in which iterations that follow
each other are alike. ::

    process:     ───┬─────────────┬──────────────  + 1 %, − 3 %, …
    iterations:     ▁▂▂▁▃▃▂ ▁ …   ▂▂▃▃▁ …          each like the one before
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from lstmprof.breakdown.rounds import (
    CLUSTERS,
    QUIET_BETWEEN_PROCESSES,
    Round,
    error_of,
    error_of_change,
    error_of_pairs,
    error_within,
    midmean,
    ratios_of_pairs,
    round_of,
    t95,
)
from lstmprof.breakdown.timings import interval_of

STEP_NS = 1e7


def series(
    generator: np.random.Generator, iterations: int, alike: float = 0.0, noise: float = 0.02
) -> list[int]:
    """Wall times about ``STEP_NS``, each correlated by ``alike`` with the one before."""
    drawn = generator.normal(0, noise, iterations)
    for i in range(1, iterations):
        drawn[i] = alike * drawn[i - 1] + math.sqrt(1 - alike**2) * drawn[i]
    walls: list[int] = (STEP_NS * np.exp(drawn)).astype(int).tolist()
    return walls


def covered(low: float | None, high: float | None) -> bool:
    assert low is not None
    assert high is not None
    return low <= STEP_NS <= high


def held_within(alike: float, iterations: int) -> float:
    """How often a process's own interval holds the median from which its steps were drawn."""
    generator = np.random.default_rng(1)
    rounds = [round_of(series(generator, iterations, alike)) for _ in range(300)]
    return sum(covered(r.low_ns, r.high_ns) for r in rounds) / 300


def held(rounds: int, spread: float, alike: float = 0.5) -> float:
    """How often a run's interval holds it, where processes differ by ``spread``."""
    generator = np.random.default_rng(2)
    hits = 0
    for _ in range(300):
        factors = np.exp(generator.normal(0, spread, rounds))
        walls = [
            [round(wall * factor) for wall in series(generator, 20, alike)] for factor in factors
        ]
        middle = midmean([wall for some in walls for wall in some])
        hits += covered(*interval_of(middle, [round_of(some) for some in walls]))
    return hits / 300


@pytest.mark.parametrize(("alike", "least"), [(0.0, 0.92), (0.3, 0.88), (0.6, 0.84)])
def test_iterations_that_are_alike_widen_a_rounds_interval(alike: float, least: float) -> None:
    assert held_within(alike, 30) >= least


@pytest.mark.parametrize("spread", [0.0, 0.01, 0.02, 0.05])
@pytest.mark.parametrize("rounds", [3, 5])
def test_rounds_that_differ_widen_a_runs_interval(rounds: int, spread: float) -> None:
    assert held(rounds, spread) >= 0.91


@pytest.mark.parametrize("rounds", [1, 2])
def test_few_rounds_have_the_usual_spread(rounds: int) -> None:
    assert held(rounds, QUIET_BETWEEN_PROCESSES) >= 0.91


def test_rounds_in_one_process_have_only_their_own_error() -> None:
    alone = Round(100.0, 90.0, 110.0)
    own = error_within([alone])
    whole = error_of([alone])
    assert own == pytest.approx(math.log(110 / 90) / 2)
    assert whole is not None
    assert whole > own


def test_three_rounds_are_taken_by_their_spread_and_two_at_least_by_the_usual_one() -> None:
    rounds = [Round(1e6 * factor, 1e6, 1e6) for factor in (1.0, 1.02, 1.04)]
    spread = float(np.std(np.log([r.length_ns for r in rounds]), ddof=1))
    moderated = math.sqrt((QUIET_BETWEEN_PROCESSES**2 + 2 * spread**2) / 3)
    assert error_of(rounds) == pytest.approx(t95(3) * moderated / math.sqrt(3))
    quiet, busy = (error_of([rounds[0]] * 2, between) for between in (0.02, 0.2))
    assert quiet == pytest.approx(1.96 * 0.02 / math.sqrt(2))
    assert busy == pytest.approx(1.96 * 0.2 / math.sqrt(2))
    assert len(rounds) == CLUSTERS


def test_a_spread_that_is_no_longer_usual_counts_by_itself() -> None:
    rounds = [Round(1e6 * factor, 1e6, 1e6) for factor in (1.0, 1.1, 1.2)]
    spread = float(np.std(np.log([r.length_ns for r in rounds]), ddof=1))
    assert error_of(rounds) == pytest.approx(t95(2) * spread / math.sqrt(3))


@pytest.mark.parametrize("rounds", [3, 5])
def test_rounds_that_differ_by_much_are_held_as_often(rounds: int) -> None:
    assert held(rounds, 0.17) >= 0.91


def test_the_interquartile_mean_lies_between_the_speeds_of_a_machine() -> None:
    assert midmean([7.0]) == 7.0
    assert midmean([1.0, 2.0]) == 1.5
    assert midmean([1.0, 2.0, 90.0]) == pytest.approx((0.25 * 1 + 2 + 0.25 * 90) / 1.5)
    assert midmean([90.0, 1.0, 3.0, 2.0]) == 2.5  # one in four on each side is left out
    for slow in range(25, 76):  # of 100, the median is 8 up to 49 and 12 from 51 on
        assert midmean([8.0] * (100 - slow) + [12.0] * slow) == pytest.approx(
            8 + 4 * (slow - 25) / 50
        )


def test_turns_side_by_side_tell_a_ratio_that_the_rounds_do_not() -> None:
    """The machine changes its speed from turn to turn; one run lost other turns than the other."""
    speeds = [1.0, 1.6, 1.6, 1.0, 1.6, 1.0, 1.0, 1.6, 1.6, 1.6]
    fast, slow = [], []
    for kept in (range(10), range(2, 10), range(8)):
        fast.append(round_of([10 * speeds[n] for n in kept], list(kept)))
        slow.append(round_of([11 * s for s in speeds], list(range(10))))
    assert ratios_of_pairs(fast, slow) == pytest.approx([math.log(1.1)] * 3)
    apart = [Round(r.length_ns, None, None) for r in fast]
    assert ratios_of_pairs(apart, slow) == pytest.approx(
        [math.log(s.length_ns / f.length_ns) for f, s in zip(fast, slow, strict=True)]
    )
    assert ratios_of_pairs(fast, slow[:2]) is None
    narrow, wide = error_of_pairs(fast, slow), error_of_pairs(apart, slow)
    assert narrow is not None
    assert wide is not None
    assert narrow < wide


def test_the_error_of_a_change_is_by_the_quartiles_of_all_iterations() -> None:
    before, after = (
        np.rint(1e12 * np.exp(np.array(logs) / 100)).astype(np.int64)
        for logs in ((-4, -3, 0, 3, 4), (-2, -1, 0, 1, 2))
    )
    # of −4 −3 −2 −1 0 0 1 2 3 4 %, of two medians: quartiles −1.75 and 1.75 %
    deviation = 2 * 0.0175 / 1.349 * math.sqrt(10 / 8)
    expected = 2.326 * 1.25 * deviation * math.sqrt(1 / 5 + 1 / 5)
    assert error_of_change([(before, after)]) == pytest.approx(expected, rel=1e-6)


def test_students_t_goes_on_beyond_its_table() -> None:
    # NIST, Engineering Statistics Handbook 1.3.6.7.2
    assert [t95(n) for n in (1, 3, 10)] == [12.706, 3.182, 2.228]
    for freedom, expected in ((11, 2.201), (20, 2.086), (60, 2.000)):
        assert t95(freedom) == pytest.approx(expected, abs=0.003)


def test_the_same_series_has_the_same_interval_and_it_holds_the_median() -> None:
    walls = series(np.random.default_rng(3), 40)
    once = round_of(walls)
    assert once == round_of(walls)
    assert once.low_ns is not None
    assert once.high_ns is not None
    assert once.low_ns <= once.length_ns <= once.high_ns


def test_too_few_iterations_of_one_round_have_no_interval_and_three_rounds_of_them_do() -> None:
    short = round_of([100, 110])
    assert (short.low_ns, short.high_ns) == (None, None)
    assert interval_of(105.0, [short]) == (None, None)
    low, high = interval_of(105.0, [short] * 3)
    assert low is not None
    assert high is not None
    assert low < 105 < high


@pytest.mark.parametrize("place", [0, -1])
def test_an_interval_knows_of_every_iteration(place: int) -> None:
    lengths_ns = [1e6] * 10
    lengths_ns[place] = 2e6
    assert (round_of(lengths_ns).high_ns or 0) > 1e6
