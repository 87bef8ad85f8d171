"""Compute the time of each slot in each step, and the slot's time without disturbances.

A slot is an event that recurs in the steps, such as the third matmul of the second layer
(``slots``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lstmprof.breakdown.attribution import BETWEEN_OPS, Intervals
from lstmprof.breakdown.clean.script_waits import SCRIPT_WAITS
from lstmprof.breakdown.clean.slots import slots_of_intervals
from lstmprof.events.annotate.calls import NEXT_OP, prepares
from lstmprof.events.annotate.steps import Window
from lstmprof.events.groups import distinct, nearest, values_at
from lstmprof.events.intervals import Covered, Flags, Ints
from lstmprof.events.table import NONE, EventTable

Floats = NDArray[np.float64]

#: Largest difference in number of events between steps of equal work, as a share. TensorFlow's
#: profiles differ by 74 % (16 samples), because the profiler omits short ops.
VARYING_SHARE = 0.05
#: Smallest ratio of median to low time, and smallest size, at which lstmprof treats a group of
#: slots with equal code as disturbed. Chosen by hand.
SPREAD, LEAST_ALIKE = 3, 8
#: Smallest number of steps with a long wait, smallest share of such steps, and smallest share of a
#: step that the wait takes, at which lstmprof treats the wait as a stall (a wait that the script
#: causes). Chosen by hand, on simulated stalls.
STALL_STEPS, STALL_SHARE, LEAST_STALL_SHARE = 2, 0.2, 0.05
#: Smallest sum of all stalls at which lstmprof accepts the stalls: as a share of the excess of all
#: waits over usual waits, and as a share of the step.
MOST_OF_EXCESS, LEAST_STALLED = 0.75, 0.15


class SlotTimes:
    """The times of slots (events that recur in the steps); a cell is a slot in one step."""

    def __init__(
        self,
        events: EventTable,
        windows: Sequence[Window],
        intervals: Intervals,
        on_device: bool,
    ) -> None:
        self.events, self.intervals, self.steps = events, intervals, len(windows)
        self._windows, self._on_device = windows, on_device
        places = slots_of_intervals(events, windows, intervals, on_device)
        self.slot, self._like_of, self.of_event = places.slot, places.like, places.of_event
        self.count = int(self.slot.max(initial=-1)) + 1
        self.length_ns = intervals.end_ns - intervals.start_ns
        cell = self.slot * self.steps + intervals.window
        absent = self._absent(cell, *places.absent)
        self.cells, self.cell_of = np.unique(np.append(cell, absent), return_inverse=True)
        weights = np.append(self.length_ns, np.zeros(len(absent), dtype=np.int64))
        self.cell_ns = np.bincount(self.cell_of, weights=weights)
        self.slot_of_cell = self.cells // max(self.steps, 1)
        self._order = np.lexsort((self.cell_ns, self.slot_of_cell))
        self.sorted_ns = self.cell_ns[self._order]
        self.present = np.bincount(self.slot_of_cell, minlength=self.count)
        self.first = np.cumsum(self.present) - self.present
        # give each slot its longest interval's label: intervals of an idle slot may differ in cause
        self.label = np.zeros(self.count, dtype=np.int64)
        by_length = np.argsort(self.length_ns, kind="stable")
        self.label[self.slot[by_length]] = intervals.label[by_length]
        busy = np.array([state == "busy" for state, _ in intervals.labels], dtype=np.bool_)
        self._is_idle = ~busy[self.label]

    def _absent(self, cell: Ints, slot: Ints, window: Ints) -> Ints:
        """Find gaps that are long in some steps, but absent in most steps."""
        present = np.bincount(distinct(cell) // max(self.steps, 1), minlength=self.count)
        absent = np.bincount(slot, minlength=self.count)
        whole_ns = np.bincount(self.slot, self.length_ns, minlength=self.count)
        long = whole_ns >= LEAST_STALL_SHARE * present * self.length_ns.sum() / self.steps
        # keep long gaps only: in other steps, short gaps lie before neighbouring activities
        counted = long & (present < absent)
        return np.asarray((slot * self.steps + window)[counted[slot]])

    @property
    def share(self) -> Floats:
        """Return the share of steps that contain each slot, 0–1."""
        return np.asarray(self.present / self.steps)

    @property
    def vary(self) -> bool:
        """Return whether steps differ in number of events, and so perhaps in work."""
        starts = np.sort(self.events.start_ns)
        ends = [(w.start_ns, w.end_ns) for w in self._windows]
        counts = [int(np.diff(np.searchsorted(starts, np.array(pair)))[0]) for pair in ends]
        return max(counts) > (1 + VARYING_SHARE) * min(counts)

    @property
    def work_varies(self) -> bool:
        """Return whether steps differ in number of events or in shapes of layers or matmuls."""
        if self.vary:
            return True
        codes, _ = self.events.texts("shapes")
        works = self.events.is_kind("op") & self.events.is_one_of("category", "rnn", "gemm")
        rows = np.flatnonzero(works & (codes != NONE))
        rows = rows[np.argsort(self.events.start_ns[rows], kind="stable")]
        starts = self.events.start_ns[rows]
        ends = [np.searchsorted(starts, (w.start_ns, w.end_ns)) for w in self._windows]
        shapes = [np.sort(codes[rows[first:last]]) for first, last in ends]
        return any(not np.array_equal(shapes[0], others) for others in shapes[1:])

    @property
    def moves(self) -> bool:
        """Return whether time moves between slots from step to step."""
        # sum the slots that some steps lack: if a profiler omits an op, another slot gets the time
        mean_ns = self.means() * self.share
        partial_ns = float(mean_ns[self.present < self.steps].sum())
        return self.vary or partial_ns >= LEAST_STALLED * float(mean_ns.sum())

    def occasional_ns(self, times: Floats, quantile: float) -> float:
        """Return the mean ns per step of work that a step at ``quantile`` lacks."""
        step_of_cell = self.cells % max(self.steps, 1)
        steps_ns = np.bincount(step_of_cell, times[self.slot_of_cell], minlength=self.steps)
        ns = float(steps_ns.mean() - np.quantile(steps_ns, quantile))
        return ns if ns >= LEAST_STALLED * float(steps_ns.mean()) else 0.0

    def slots_of_extra_work(self, longest_ns: float) -> Flags:
        """Mark the slots that occur only in steps with much extra work."""
        rare = 2 * self.present <= self.steps
        step, extra = self.cells % max(self.steps, 1), rare[self.slot_of_cell]
        extra_ns = np.bincount(step[extra], self.cell_ns[extra], minlength=self.steps)
        # find usual steps: extra work that is longer than a timed iteration is compilation
        usual = (extra_ns <= longest_ns)[step]
        return np.asarray(rare & (np.bincount(self.slot_of_cell, usual, minlength=self.count) == 0))

    def means(self) -> Floats:
        """Return the mean time of each slot over the steps that have the slot."""
        sums = np.bincount(self.slot_of_cell, weights=self.cell_ns, minlength=self.count)
        return np.asarray(sums / np.maximum(self.present, 1))

    def undisturbed(self, quantile: float) -> Floats:
        """Estimate each slot's time without disturbances, as a quantile over the steps."""
        times, medians = self.quantiles(quantile), self.quantiles(0.5)
        least = self.quantiles(0.0)
        like = np.zeros(self.count, dtype=np.int64)
        like[self.slot] = self._like_of
        order = np.lexsort((least, like))
        first = np.flatnonzero(np.append(True, like[order][1:] != like[order][:-1]))
        sizes = np.diff(np.append(first, len(order)))
        lowest = least[order][first + sizes // 4]
        by_median = np.lexsort((medians, like))
        middle = medians[by_median][first + sizes // 2]
        place = np.zeros(int(like.max(initial=0)) + 1, dtype=np.int64)
        place[like[order][first]] = np.arange(len(first))
        group = place[like]
        usual = lowest[group]
        spread = (middle[group] > SPREAD * usual) & (sizes[group] >= LEAST_ALIKE)
        # use the usual time of equal code for slots that a busy machine delays
        disturbed = spread & (medians > 1.5 * least) & (times > 2 * usual)
        return np.asarray(np.where(disturbed, usual, times))

    def raised(
        self, quantile: float, times: Floats, extra: Flags, least_ns: float
    ) -> tuple[float, Floats]:
        """Raise the quantile until the slots' times sum to ``least_ns``."""

        def at(tried: float) -> Floats:
            return np.where(extra, times, np.maximum(times, self.quantiles(tried)))

        # bisect the quantile: the sum is too small if the profiler omits different ops per step
        low, high = quantile, 1.0
        for _ in range(12):
            middle = (low + high) / 2
            low, high = (middle, high) if at(middle) @ self.share < least_ns else (low, middle)
        return high, at(high)

    def quantiles(self, quantile: float) -> Floats:
        """Return the ``quantile`` of each slot's times over the steps that have the slot."""
        at = quantile * (self.present - 1)
        low = np.floor(at).astype(np.int64)
        high = np.minimum(low + 1, self.present - 1)
        below, above = self.sorted_ns[self.first + low], self.sorted_ns[self.first + high]
        return np.asarray(below + (at - low) * (above - below))

    def stalled(self, times: Floats, *, only_input: bool, blocked_ns: float = 0.0) -> Floats:
        """Return the times of slots with long waits of the script, and 0 for other slots."""
        means = self.means()
        waits = self._may_block if blocked_ns else self._is_idle | self._on_device
        excess = np.where(waits, np.maximum(means - times, 0), 0.0) * self.share
        step_ns = float(times @ self.share) + (blocked_ns or float(excess.sum()))
        least_ns = LEAST_STALL_SHARE * step_ns
        usual = times + least_ns if blocked_ns else SPREAD * times
        long = self.cell_ns > usual[self.slot_of_cell]
        often = np.bincount(self.slot_of_cell[long], minlength=self.count)
        stalls = often >= max(STALL_STEPS, STALL_SHARE * self.steps)
        stalls &= excess >= least_ns
        if not blocked_ns:
            stalls &= means > SPREAD * times
            # keep waits for input only: on a busy machine, any wait between threads may be long
            if only_input:
                stalls &= self._prepares_input
        whole_ns = float(excess[stalls].sum())
        least_ns = max(
            MOST_OF_EXCESS * excess.sum(), 0.0 if blocked_ns else LEAST_STALLED * step_ns
        )
        if not stalls.any() or whole_ns < least_ns:
            return np.zeros(self.count)
        stretch = blocked_ns / whole_ns if blocked_ns else 1.0
        return np.where(stalls, times + stretch * (means - times), 0.0)

    @cached_property
    def _prepares_input(self) -> Flags:
        """Return a mask of the slots that are mostly inside the preparation of the input."""
        preparing = prepares(self.events)
        around = nearest(self.events.rows_named("parent_id"), preparing)
        inside = self.length_ns * (values_at(around, self.intervals.row) != NONE)
        return np.asarray(
            np.bincount(self.slot, 2 * inside - self.length_ns, minlength=self.count) > 0
        )

    def long_waits_ns(self, times: Floats) -> float:
        """Sum the long slots in which the script may wait, in ns per step."""
        ns = np.where(self._may_block, times * self.share, 0.0)
        return float(ns[ns >= LEAST_STALL_SHARE * (times @ self.share)].sum())

    @property
    def _may_block(self) -> Flags:
        """Mark the slots in which the host is between ops or waits for input."""
        between = [label in BETWEEN_OPS for label in self.intervals.labels]
        takes_next = self.events.where_name(NEXT_OP.fullmatch)
        times = Covered(self.events.start_ns[takes_next], self.events.end_ns[takes_next])
        waits_ns = times.within(self.intervals.start_ns, self.intervals.end_ns)
        waits = np.bincount(self.slot, 2 * waits_ns - self.length_ns, minlength=self.count) > 0
        waits &= self._is_idle
        return np.asarray(
            waits | self._prepares_input | np.array(between, dtype=np.bool_)[self.label]
        )

    def new_lengths(self, times: Floats) -> Ints:
        """Return interval lengths in ns with which each slot takes ``times``."""
        here = self.cell_of[: len(self.slot)]
        # shorten only the longest gaps of a device: short gaps have other causes
        cells_ns = self._cells_with_means(times) if self._on_device else times[self.slot_of_cell]
        ends = np.rint(np.cumsum(cells_ns[here] * (self.length_ns / self.cell_ns[here])))
        return np.asarray(np.diff(ends, prepend=0.0), dtype=np.int64)

    def _cells_with_means(self, times: Floats) -> Floats:
        """Shorten the longest gaps of each idle slot until the slot's mean is ``times``."""
        slot, sorted_ns = self.slot_of_cell[self._order], self.sorted_ns
        place = np.arange(len(slot)) - self.first[slot]
        before: Floats = np.append(0.0, np.cumsum(sorted_ns))[:-1]
        before = before - before[self.first[slot]]
        goal = times * self.present
        whole = before + (self.present[slot] - place) * sorted_ns <= goal[slot]
        whole_ns = np.bincount(slot[whole], sorted_ns[whole], minlength=self.count)
        rest = self.present - np.bincount(slot[whole], minlength=self.count)
        cut = np.where(rest > 0, (goal - whole_ns) / np.maximum(rest, 1), np.inf)
        scale = np.where((rest == 0) & (whole_ns > 0), goal / np.maximum(whole_ns, 1.0), 1.0)
        cells_ns = np.empty(len(slot))
        cells_ns[self._order] = np.minimum(sorted_ns, cut[slot]) * scale[slot]
        return np.where(self._is_idle[self.slot_of_cell], cells_ns, times[self.slot_of_cell])

    def matrix(self, slots: Ints) -> Floats:
        """Return the times of ``slots`` as (slot, step), infinite if a step lacks a slot."""
        place = np.full(self.count, NONE, dtype=np.int64)
        place[slots] = np.arange(len(slots))
        row = place[self.slot_of_cell]
        table = np.full((len(slots), self.steps), np.inf)
        mine = row != NONE
        table[row[mine], (self.cells % self.steps)[mine]] = self.cell_ns[mine]
        return table


#: Half the width of a normal distribution's 95 % interval, in standard deviations.
Z95 = 1.96
#: Standard deviation of log step time between processes with one thread. Measured on 25 quiet
#: processes of torch-lstmcell-fused.
BETWEEN_PROCESSES = 0.03
#: Standard deviation of log step time between processes with several threads, which may share a
#: core. Measured on two scripts: 0.20, 0.23.
BETWEEN_THREADED = 0.2
#: Standard deviation of log step time between processes if the profiler omits different ops in each
#: step. Measured: 0.03 (tf-lstmcell), 0.09 (jax-scan).
BETWEEN_RAISED = 0.06
#: Smallest number of processes at which resampling estimates the differences between processes.
CLUSTERS = 3
#: Log ratio of the sum of slots' medians to the sum of their 10th percentiles on a quiet machine.
#: Measured: 0.09 and 0.12.
QUIET_SPREAD = 0.1
#: Largest log ratio (0.35: 42 %) of a step to the sum of the slots' low percentiles, if time moves
#: between slots. Chosen by hand. Eight captures of tf-lstmcell show 0 to 14 %.
MOST_MOVED = 0.35
#: Number of bootstrap resamples, and largest number of resampled slots (the longest slots).
RESAMPLES, MOST_RESAMPLED = 60, 4_000


@dataclass(frozen=True)
class Span:
    """A length in ns with the ends of its 95 % interval."""

    low_ns: float
    ns: float
    high_ns: float


@dataclass(frozen=True)
class Estimate:
    """The clean time of each slot: a quantile of the slot's times, minus overhead."""

    times: Floats  # clean time of each slot
    cost_ns: Floats  # cost of recording
    stalled: Floats  # times of the slots with long waits, else 0
    quantile: float
    round_of: Sequence[int] | None  # process that ran each step


@dataclass(frozen=True)
class Disturbance:
    """Uncertainties of a clean step that resampling does not show, as log ratios."""

    down: float = 0.0  # too long because CPUs were shared
    most: float = math.inf  # limit of the bootstrap's uncertainty
    between: float = BETWEEN_PROCESSES  # standard deviation between processes
    least_between: float = BETWEEN_PROCESSES  # the same, with ``CLUSTERS`` processes or more
    up: float = 0.0  # too short because time moves between slots


Parts = tuple[tuple[tuple[str, str], Span], ...]


def spans_of(
    slots: SlotTimes,
    estimate: Estimate,
    disturbance: Disturbance,
    waits_ns: float = 0.0,  # of the script
    sleeps_ns: float = 0.0,  # those waits that a busy CPU does not make longer
) -> tuple[Span, Parts]:
    """Return the length of the step and of each part, with 95 % intervals."""
    share, labels = slots.share, slots.intervals.labels
    length_ns = slots.new_lengths(estimate.times)
    per_label = np.bincount(slots.intervals.label, length_ns, minlength=len(labels)) / slots.steps
    medians = np.maximum(slots.quantiles(0.5) - estimate.cost_ns, 0.0) * share
    longer = np.where(estimate.times > 0, medians / np.maximum(estimate.times * share, 1e-9), 1.0)
    by_medians = np.bincount(slots.intervals.label, length_ns * longer[slots.slot]) / slots.steps
    error, errors = _errors(slots, estimate)
    rounds = len(_members(estimate.round_of, slots.steps))
    between = disturbance.least_between
    if rounds < CLUSTERS:
        between = max(between, disturbance.between)
    usual = Z95 * between / math.sqrt(rounds)

    def span(ns: float, median_ns: float, own: tuple[float, float], awake: float = 1.0) -> Span:
        further = math.log(max(median_ns, ns) / ns) if ns > 0 else 0.0
        disturbed = min(max(further - QUIET_SPREAD, 0.0), disturbance.most)
        long, short = (math.hypot(min(log, disturbance.most), awake * usual) for log in own)
        low = ns * math.exp(-long - disturbed - awake * disturbance.down)
        return Span(low, ns, ns * math.exp(short + min(disturbance.up, MOST_MOVED)))

    parts = [
        (labels[label], span(ns, by_medians[label], errors[label]))
        for label, ns in enumerate(per_label.tolist())
        if ns > 0
    ]
    step_ns = float(estimate.times @ share)
    if waits_ns > 0:
        awake = max(1 - sleeps_ns / waits_ns, 0.0)
        parts.append((("idle", SCRIPT_WAITS), span(waits_ns, waits_ns, error, awake)))
    awake = max(1 - sleeps_ns / step_ns, 0.0) if step_ns > 0 else 1.0
    return span(step_ns, float(medians.sum()), error, awake), tuple(parts)


_Error = tuple[float, float]


def _errors(slots: SlotTimes, estimate: Estimate) -> tuple[_Error, list[_Error]]:
    """Bootstrap the errors of the step and of each part, as log ratios."""
    labels = len(slots.intervals.labels)
    chosen = np.argsort(-estimate.times * slots.share, kind="stable")[:MOST_RESAMPLED]
    table, label = slots.matrix(chosen), slots.label[chosen]
    stretch = estimate.stalled[chosen] / np.maximum(slots.means()[chosen], 1.0)
    rounds = _members(estimate.round_of, slots.steps)
    generator = np.random.default_rng(0)
    wholes, parts = np.empty(RESAMPLES + 1), np.empty((RESAMPLES + 1, labels))
    for number in range(RESAMPLES + 1):
        picked = generator.integers(0, len(rounds), len(rounds))
        steps = [rounds[p][generator.integers(0, len(rounds[p]), len(rounds[p]))] for p in picked]
        # use all steps, without resampling, for the estimate itself (number 0)
        steps = steps if number else [np.arange(slots.steps)]
        drawn = np.sort(table[:, np.concatenate(steps)], axis=1)
        present = np.isfinite(drawn).sum(axis=1)
        at = np.rint(estimate.quantile * np.maximum(present - 1, 0)).astype(np.int64)
        ns = np.take_along_axis(drawn, at[:, None], axis=1)[:, 0]
        sums = np.where(np.isfinite(drawn), drawn, 0.0).sum(axis=1)
        ns = np.where(stretch > 0, stretch * sums / np.maximum(present, 1), ns)
        clean_ns = np.where(present > 0, np.maximum(ns - estimate.cost_ns[chosen], 0.0), 0.0)
        clean_ns = np.where(np.isfinite(clean_ns), clean_ns, 0.0) * present / drawn.shape[1]
        wholes[number] = clean_ns.sum()
        parts[number] = np.bincount(label, clean_ns, minlength=labels)
    return _pivot(wholes), [_pivot(parts[:, p]) for p in range(labels)]


def _members(round_of: Sequence[int] | None, steps: int) -> list[Ints]:
    """Return, for each process, the indices of its steps."""
    if not round_of or len(round_of) != steps:
        return [np.arange(steps)]
    numbers = np.array(round_of)
    return [np.flatnonzero(numbers == number) for number in np.unique(numbers)]


def _pivot(values: Floats) -> _Error:
    """Return log(high / estimate) and log(estimate / low) of a 95 % interval."""
    # the first value is the estimate
    estimate, (low, high) = float(values[0]), np.percentile(values[1:], (2.5, 97.5))
    if estimate <= 0 or low <= 0:
        return 0.0, 0.0
    return max(math.log(high / estimate), 0.0), max(math.log(estimate / low), 0.0)
