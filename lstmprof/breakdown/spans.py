"""The interval of a clean step and of each of its parts.

A bootstrap resamples rounds, then their steps; its interval is the basic one (pivot), in
logarithms. Processes of the same code differ besides. Disturbed steps make a clean step too long,
never too short: so an interval reaches farther down the more the steps were disturbed, and the more
of the time others had the CPUs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lstmprof.breakdown.slot_times import Floats, SlotTimes
from lstmprof.events.intervals import Flags, Ints

Z95 = 1.96
#: Standard deviation of the logarithm of the step of processes that run the same code with one
#: thread, on a quiet machine. Measured on 25 processes of torch-lstmcell-fused.
BETWEEN_PROCESSES = 0.03
#: The same for several threads on a CPU, which may share a core or not. Measured on four quiet
#: processes each of two PyTorch scripts with two threads on two CPUs: 0.20 and 0.23.
BETWEEN_THREADED = 0.2
#: So many processes show by themselves how far they differ.
CLUSTERS = 3
#: How far the medians of a quiet machine sum to more than the 10th percentiles, in logarithms.
#: Measured on two PyTorch scripts: 0.09 and 0.12.
QUIET_SPREAD = 0.1
#: Resamples of the bootstrap, and the slots that it resamples, the largest first.
RESAMPLES, MOST_RESAMPLED = 60, 4_000


@dataclass(frozen=True)
class Span:
    """A length in ns with the ends of its 95 % interval."""

    low_ns: float
    ns: float
    high_ns: float


@dataclass(frozen=True)
class Estimate:
    """How the clean time of each slot was taken: a quantile, less ``off``; of ``stalls`` the mean.

    ``times`` are the clean times, ``round_of`` has the round of each step, None if there is one.
    """

    times: Floats
    off: Floats
    stalls: Flags
    quantile: float
    round_of: Sequence[int] | None


@dataclass(frozen=True)
class Disturbance:
    """What else may be wrong with a clean step, in logarithms.

    ``down``: how much too long shared CPUs may have made it. ``most`` bounds what the slots and the
    bootstrap say: the timed iterations spread no farther. ``between``: how far processes of the
    same code differ (standard deviation).
    """

    down: float = 0.0
    most: float = math.inf
    between: float = BETWEEN_PROCESSES


Parts = tuple[tuple[tuple[str, str], Span], ...]


def spans_of(slots: SlotTimes, of: Estimate, disturbance: Disturbance) -> tuple[Span, Parts]:
    """Return the span of the step, and of each label that has time."""
    share, labels = slots.share, slots.stretches.labels
    taken = slots.spread(of.times)
    per_label = np.bincount(slots.stretches.label, taken, minlength=len(labels)) / slots.steps
    medians = np.maximum(slots.quantiles(0.5) - of.off, 0.0) * share
    longer = np.where(of.times > 0, medians / np.maximum(of.times * share, 1e-9), 1.0)
    of_medians = np.bincount(slots.stretches.label, taken * longer[slots.slot]) / slots.steps
    error, errors = _errors(slots, of)
    rounds = len(_members(of.round_of, slots.steps))
    between = BETWEEN_PROCESSES if rounds >= CLUSTERS else disturbance.between
    usual = Z95 * between / math.sqrt(rounds)

    def span(ns: float, median_ns: float, own: tuple[float, float]) -> Span:
        further = math.log(max(median_ns, ns) / ns) if ns > 0 else 0.0
        disturbed = min(max(further - QUIET_SPREAD, 0.0), disturbance.most)
        long, short = (math.hypot(min(log, disturbance.most), usual) for log in own)
        low = ns * math.exp(-long - disturbed - disturbance.down)
        return Span(low, ns, ns * math.exp(short))

    parts = tuple(
        (labels[label], span(ns, of_medians[label], errors[label]))
        for label, ns in enumerate(per_label.tolist())
        if ns > 0
    )
    return span(float(of.times @ share), float(medians.sum()), error), parts


_Error = tuple[float, float]


def _errors(slots: SlotTimes, of: Estimate) -> tuple[_Error, list[_Error]]:
    """Return how much too long and too short the step may be (95 %), in logarithms.

    The same for each label.
    """
    labels = len(slots.stretches.labels)
    chosen = np.argsort(-of.times * slots.share, kind="stable")[:MOST_RESAMPLED]
    table, label = slots.matrix(chosen), slots.label[chosen]
    rounds = _members(of.round_of, slots.steps)
    generator = np.random.default_rng(0)
    wholes, parts = np.empty(RESAMPLES + 1), np.empty((RESAMPLES + 1, labels))
    for number in range(RESAMPLES + 1):
        picked = generator.integers(0, len(rounds), len(rounds))
        steps = [rounds[p][generator.integers(0, len(rounds[p]), len(rounds[p]))] for p in picked]
        steps = steps if number else [np.arange(slots.steps)]  # the first is the estimate itself
        drawn = np.sort(table[:, np.concatenate(steps)], axis=1)
        present = np.isfinite(drawn).sum(axis=1)
        at = np.rint(of.quantile * np.maximum(present - 1, 0)).astype(np.int64)
        ns = np.take_along_axis(drawn, at[:, None], axis=1)[:, 0]
        sums = np.where(np.isfinite(drawn), drawn, 0.0).sum(axis=1)
        ns = np.where(of.stalls[chosen], sums / np.maximum(present, 1), ns)
        left = np.where(present > 0, np.maximum(ns - of.off[chosen], 0.0), 0.0)
        left = np.where(np.isfinite(left), left, 0.0) * present / drawn.shape[1]
        wholes[number] = left.sum()
        parts[number] = np.bincount(label, left, minlength=labels)
    return _pivot(wholes), [_pivot(parts[:, p]) for p in range(labels)]


def _members(round_of: Sequence[int] | None, steps: int) -> list[Ints]:
    """Return the places of the steps of each round."""
    if not round_of or len(round_of) != steps:
        return [np.arange(steps)]
    numbers = np.array(round_of)
    return [np.flatnonzero(numbers == number) for number in np.unique(numbers)]


def _pivot(values: Floats) -> _Error:
    """Return the logarithms of high over estimate, and estimate over low; the estimate is first."""
    estimate, (low, high) = float(values[0]), np.percentile(values[1:], (2.5, 97.5))
    if estimate <= 0 or low <= 0:
        return 0.0, 0.0
    return max(math.log(high / estimate), 0.0), max(math.log(estimate / low), 0.0)
