"""The length of a run's step and how far it may be off: rounds are clusters.

Two processes that run the same code differ, and the iterations of one process are not independent
of each other. So each round, a process of its own, has one length. With three rounds and more their
spread says how far the run's step is off: Student's t of the logarithms, with the variance
moderated by what is usual (G. Smyth, Statistical Applications in Genetics 3, 2004), as long as it
could be that by chance; by itself where it is larger. With fewer the spread between processes is
what is usual, as far as it was measured. Rounds resampled, then blocks of their iterations, are of
no use for so few: ``benchmarks/diagnosis/coverage.py`` holds these methods against each other.

Within a process the bootstrap interval (percentile method, B. Efron 1979) is widened to the number
of independent iterations that the series is worth (G. Bayley and J. Hammersley 1946), by the
correlation of the ranks of iterations that follow each other, which a short series shows too small
(M. Kendall, Biometrika 41, 1954). Of 400 series of 30 iterations, normal and correlated by 0, 0.3,
0.6 and 0.8, the interval held the interquartile mean in 97, 93, 90 and 83 %; without widening in
95, 87, 68 and 46 %; by blocks of the cube root of 30 in 92, 89, 80 and 60 %.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lstmprof.events.intervals import Ints

#: A round of fewer iterations says nothing of its own spread.
LEAST_FOR_INTERVAL = 6
RESAMPLES = 2000
#: Rounds from which their own spread is taken.
CLUSTERS = 3
#: Standard deviation of the medians of processes that run the same code, in logarithms. Of 27
#: workers of torch-lstmcell-fused (1 layer of 64 units, batch 32, 20 time steps, 30 iterations)
#: that had their CPU for 95 % of the time and more, on 2 CPUs with a load of 1 to 5, 95 % lay
#: within 0.31 of the median one: 7.4 to 14.0 ms. A heap of 25 among all 96, from 7.9 to 8.9 ms, is
#: taken for those that nothing disturbed: 0.029.
QUIET_BETWEEN_PROCESSES, BUSY_BETWEEN_PROCESSES = 0.03, 0.16
#: Of the normal distribution, 95 % two-sided; and Student's t for 1 degree of freedom, 2, …
Z95 = 1.96
T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
#: Of the normal distribution, 98 % two-sided; and Student's t for 2 degrees of freedom, 3, …
Z98 = 2.326
T98 = (6.965, 4.541, 3.747, 3.365, 3.143, 2.998, 2.896, 2.821, 2.764)
#: Iterations that follow each other are never taken for more alike.
MOST_CORRELATED = 0.95


def midmean(values: Sequence[float] | Ints | NDArray[np.float64]) -> float:
    """The interquartile mean: of what lies between the quartiles, which count by their part in it.

    A machine that runs at one speed for half of the time and at another for the rest has its median
    in either; this lies between, and few long iterations do not move it.
    """
    return float(np.sort(np.asarray(values, dtype=np.float64)) @ _weights(len(values)))


def _weights(number: int) -> NDArray[np.float64]:
    """What each of so many sorted values has of their interquartile mean."""
    ends = np.clip(np.arange(number + 1), number / 4, 3 * number / 4)
    return np.asarray(np.diff(ends) / (number / 2), dtype=np.float64)


@dataclass(frozen=True)
class Round:
    """The counted iterations of one process.

    ``low_ns`` and ``high_ns`` are the 95 % interval of its length that its own iterations give;
    None where they are too few. ``turns`` are the numbers and lengths of its turns, where it took
    them; nine in ten of its iterations lie between ``ends_ns``, None unknown.
    """

    length_ns: float
    low_ns: float | None
    high_ns: float | None
    turns: tuple[tuple[int, float], ...] = ()
    ends_ns: tuple[float, float] | None = None

    @property
    def error(self) -> float:
        """Half of that interval, in logarithms; 0 unknown or where a step takes no time."""
        if self.low_ns is None or self.high_ns is None or self.low_ns <= 0:
            return 0.0
        return math.log(self.high_ns / self.low_ns) / 2


def round_of(lengths_ns: Sequence[float], turns: Sequence[int] = ()) -> Round:
    """The round of one process with these iterations; the same ones give the same interval.

    Where it took turns they are the lengths of these.
    """
    series = np.asarray(lengths_ns, dtype=np.float64)
    middle = midmean(series)
    numbered = tuple(zip(turns, series.tolist(), strict=True)) if turns else ()
    ends = (float(np.percentile(series, 5)), float(np.percentile(series, 95)))
    if len(series) < LEAST_FOR_INTERVAL:
        return Round(middle, None, None, numbered, ends)
    generator = np.random.default_rng(0)
    picked = generator.integers(0, len(series), (RESAMPLES, len(series)))
    middles = np.sort(series[picked], axis=1) @ _weights(len(series))
    low, high = np.percentile(middles, (2.5, 97.5))
    wider = _widening(series)
    low, high = max(middle - (middle - low) * wider, 0.0), middle + (high - middle) * wider
    return Round(middle, float(low), float(high), numbered, ends)


def _widening(series: NDArray[np.float64]) -> float:
    """The square root of how many iterations are worth one independent one."""
    ranks = series.argsort().argsort() - (len(series) - 1) / 2
    alike = float(ranks[:-1] @ ranks[1:] / (ranks @ ranks))
    alike += (1 + 3 * alike) / len(series)
    alike = min(max(alike, 0.0), MOST_CORRELATED)
    return math.sqrt((1 + alike) / (1 - alike))


def error_of(rounds: Sequence[Round], between: float = QUIET_BETWEEN_PROCESSES) -> float | None:
    """Half of the 95 % interval of the step of ``rounds``, in logarithms; None unknown.

    ``between`` is the usual spread of processes, all that is known of it where rounds are fewer
    than ``CLUSTERS``; where they show their own, that of a quiet machine is one more observation.
    """
    lengths = [r.length_ns for r in rounds]
    if not lengths or min(lengths) <= 0:
        return None
    number = len(lengths)
    spread = statistics.stdev(map(math.log, lengths)) if number > 1 else 0.0
    if number >= CLUSTERS:
        usual, freedom = QUIET_BETWEEN_PROCESSES, number - 1
        if spread > usual * math.sqrt(_chance(freedom)):
            return t95(freedom) * spread / math.sqrt(number)
        moderated = math.sqrt((usual**2 + freedom * spread**2) / number)
        return t95(number) * moderated / math.sqrt(number)
    within = sum(r.error**2 for r in rounds) / number
    return math.sqrt((within + (Z95 * max(spread, between)) ** 2) / number)


def ratios_of_pairs(fast: Sequence[Round], slow: Sequence[Round]) -> list[float] | None:
    """The logarithm of each round's ratio to that of the other run beside it; None unknown.

    Where they took turns it is the median of the ratios of turns side by side: a machine that
    changes its speed within a round changes both turns.
    """
    if len(fast) != len(slow) or min((r.length_ns for r in (*fast, *slow)), default=0) <= 0:
        return None
    return [_log_ratio(a, b) for a, b in zip(fast, slow, strict=True)]


def _log_ratio(fast: Round, slow: Round) -> float:
    beside = dict(slow.turns)
    ratios = [math.log(beside[n] / ns) for n, ns in fast.turns if beside.get(n, 0) > 0 < ns]
    return statistics.median(ratios) if ratios else math.log(slow.length_ns / fast.length_ns)


def error_of_pairs(fast: Sequence[Round], slow: Sequence[Round]) -> float | None:
    """How far the ratio of two runs in turn may be off, in logarithms; None unknown.

    98 % of Student's t of the ``ratios_of_pairs``, and of the usual spread between two processes:
    of identical code whose rounds are spread normally it is exceeded in 2 % at most, whatever their
    spread.
    """
    ratios = ratios_of_pairs(fast, slow)
    if ratios is None or len(ratios) < CLUSTERS:
        return None
    number = len(ratios)
    own = T98[min(number - 2, len(T98)) - 1] * statistics.stdev(ratios)
    usual = Z98 * math.sqrt(2) * QUIET_BETWEEN_PROCESSES
    return math.hypot(own, usual) / math.sqrt(number)


def error_of_change(pairs: Sequence[tuple[Ints, Ints]]) -> float:
    """How far the mean change from one timing of a round to the other may be off, in logarithms.

    98 %: by the spread of the rounds' changes (of three and more Student's t), and by the errors of
    their medians, 1.25 standard deviations over the root of the number each; the deviation is by
    the quartiles of all iterations over their timing's median.
    """
    series = [np.log(some / np.median(some)) for pair in pairs for some in pair]
    rest = np.concatenate(series)
    low, high = np.percentile(rest, (25, 75))
    free = max(len(rest) - len(series), 1)
    deviation = (high - low) / 1.349 * math.sqrt(len(rest) / free)
    long = [_widening(some) for some in series if len(some) >= LEAST_FOR_INTERVAL]
    deviation *= statistics.fmean(long) if long else 1.0
    within = sum((1.25 * deviation) ** 2 / len(some) for some in series)
    number, own = len(pairs), Z98 * math.sqrt(within) / len(pairs)
    if number < CLUSTERS:
        return own
    changes = [math.log(np.median(after) / np.median(before)) for before, after in pairs]
    t = T98[min(number - 2, len(T98)) - 1]
    return math.hypot(own, t * statistics.stdev(changes) / math.sqrt(number))


def error_within(rounds: Sequence[Round]) -> float | None:
    """``error_of`` rounds between which nothing but their iterations differs; None unknown."""
    return math.sqrt(sum(r.error**2 for r in rounds)) / len(rounds) if rounds else None


def _chance(freedom: int) -> float:
    """The ratio of a sample variance to the true one that chance exceeds in 5 %.

    Chi-squared over ``freedom`` (E. Wilson and M. Hilferty, PNAS 17, 1931).
    """
    part = 2 / (9 * freedom)
    return (1 - part + 1.645 * math.sqrt(part)) ** 3


def t95(freedom: int) -> float:
    """Student's t, 95 % two-sided; beyond the table by G. Hill (Algorithm 395, CACM 13, 1970)."""
    if freedom <= len(T95):
        return T95[freedom - 1]
    first, second = Z95**3 + Z95, 5 * Z95**5 + 16 * Z95**3 + 3 * Z95
    return Z95 + first / (4 * freedom) + second / (96 * freedom**2)
