"""The interval of a clean step and of each of its parts.

A bootstrap resamples rounds, then their steps. Processes of the same code differ besides. Disturbed
steps make a clean step too long, never too short: so an interval reaches farther down the more the
steps were disturbed, and the more of the time others had the CPUs.
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
    """A length in ns, and the least and the most that it may be (95 %)."""

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

    ``down``: how much too long shared CPUs may have made it. ``most`` bounds what the spread of the
    slots says. ``between``: how far processes of the same code differ (standard deviation).
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

    def span(ns: float, median_ns: float, own: float) -> Span:
        further = math.log(max(median_ns, ns) / ns) if ns > 0 else 0.0
        disturbed = min(max(further - QUIET_SPREAD, 0.0), disturbance.most)
        up = math.hypot(own, usual)
        return Span(ns * math.exp(-up - disturbed - disturbance.down), ns, ns * math.exp(up))

    parts = tuple(
        (labels[label], span(ns, of_medians[label], errors[label]))
        for label, ns in enumerate(per_label.tolist())
        if ns > 0
    )
    return span(float(of.times @ share), float(medians.sum()), error), parts


def _errors(slots: SlotTimes, of: Estimate) -> tuple[float, Floats]:
    """Return half the 95 % bootstrap interval, in logarithms: of the step, of each label."""
    labels = len(slots.stretches.labels)
    chosen = np.argsort(-of.times * slots.share, kind="stable")[:MOST_RESAMPLED]
    table, label = slots.matrix(chosen), slots.label[chosen]
    rounds = _members(of.round_of, slots.steps)
    generator = np.random.default_rng(0)
    wholes, parts = np.empty(RESAMPLES), np.empty((RESAMPLES, labels))
    for number in range(RESAMPLES):
        picked = generator.integers(0, len(rounds), len(rounds))
        steps = [rounds[p][generator.integers(0, len(rounds[p]), len(rounds[p]))] for p in picked]
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
    return _half_width(wholes), np.array([_half_width(parts[:, p]) for p in range(labels)])


def _members(round_of: Sequence[int] | None, steps: int) -> list[Ints]:
    """Return the places of the steps of each round."""
    if not round_of or len(round_of) != steps:
        return [np.arange(steps)]
    numbers = np.array(round_of)
    return [np.flatnonzero(numbers == number) for number in np.unique(numbers)]


def _half_width(values: Floats) -> float:
    low, high = np.percentile(values, (2.5, 97.5))
    return math.log(high / low) / 2 if low > 0 else 0.0
