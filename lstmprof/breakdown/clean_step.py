"""The clean step: what a step takes when nothing disturbs it.

Reads the attribution of the profiled steps and their slots (``slots``). A preemption makes a few
events of each step many times as long; the same event of another step is untouched. So each slot
takes a low percentile of its times over all steps (``QUANTILE``; of a foreign profile the median),
less what recording took, and the clean step is the sum over its slots. A slot of some steps counts
by its share of them. How the percentile was chosen: docs/diagnosis.md, "The clean step".

What one recorded event costs is solved so that the clean step equals a low percentile of the timed
iterations, or their median if the profiled steps vary, up to ``MOST_TIMES`` the cost in a loop
(``recording``). To this is added what some of the steps do beside it, as far as the mean iteration
is longer. A step that is still longer is scaled down to them. On a busy machine the timed
iterations are longer than the clean step; then an event costs ``USUAL_TIMES`` the loop.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lstmprof.breakdown.attribution import Stretches, attributed
from lstmprof.breakdown.mean_step import MeanStep, Recording, in_reading_order
from lstmprof.breakdown.now_and_then import Rare, now_and_then
from lstmprof.breakdown.recording import costs_of, recorded
from lstmprof.breakdown.slots import slots_of_stretches
from lstmprof.events.annotate import OWN_CODE
from lstmprof.events.annotate.steps import Window
from lstmprof.events.call_tree import inherited
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.preparing import prepares
from lstmprof.events.table import NONE, EventTable
from lstmprof.runs.metadata import RunInfo

Floats = NDArray[np.float64]

#: The percentile of a slot's times, and of the timed iterations, that counts as clean.
QUANTILE = 0.1
#: The same for profiles that lstmprof did not record: nothing says that others disturbed them.
QUANTILE_FOREIGN = 0.5
#: Fewer steps say nothing about which of them was disturbed: their mean counts.
LEAST_STEPS = 3
#: A profile with more events is shown as recorded. The clean step of so many takes 2 CPU seconds.
MOST_EVENTS = 2_000_000
#: An event costs so many times what it costs in a loop of one trivial call, if nothing tells more:
#: its code and data are no longer in the caches. Measured: ``recording``.
USUAL_TIMES = 2.0
#: The profiler whose loop of one call costs as much as an event of a step, or more.
TENSORFLOWS = "tf.profiler"
#: Standard deviation of the logarithm of the step of processes that run the same code, on a quiet
#: machine. Measured on 25 processes: docs/diagnosis.md, "Rounds".
BETWEEN_PROCESSES = 0.03
#: How far the medians of a quiet machine sum to more than the low percentiles, in logarithms.
#: Measured on six programs: docs/diagnosis.md, "The clean step".
QUIET_SPREAD = 0.1
Z95 = 1.96
#: How much longer a thread takes whose core others share all the time, in logarithms: 16 %. Chosen
#: from six programs beside four spinning processes per core.
SHARED_CORE = 0.15
#: Resamples of the bootstrap, and the slots that it resamples, the largest first.
RESAMPLES, MOST_RESAMPLED = 60, 4_000
#: Steps whose numbers of events differ by more may not do the same: variable lengths, logging. So
#: may TensorFlow's, whose profiler leaves out short ops: 16 of the samples, by up to 74 %.
VARYING_SHARE = 0.05
#: Ops of one name and shapes of which the medians are so many times their lowest times are
#: disturbed, if they are so many: planted denormals and cold caches stay below.
SPREAD, LEAST_ALIKE = 3, 8
#: A wait is a part of the step although it is long in some steps alone: in so many of them, so much
#: of the step. All such waits are most of what waits are longer by, and a good part of the step.
#: What other processes take lies in other slots in each step. Chosen by hand, on drawn stalls.
STALL_STEPS, STALL_SHARE, LEAST_STALL = 2, 0.2, 0.05
MOST_OF_EXCESS, LEAST_STALLED = 0.75, 0.15


@dataclass(frozen=True)
class Span:
    """A length in ns, and the least and the most that it may be (95 %)."""

    low_ns: float
    ns: float
    high_ns: float


@dataclass(frozen=True)
class CleanLane:
    """The clean step of one lane: a device of a rank, or its host (``device`` None).

    ``windows`` and ``stretches`` are those of the profile by a clock that counts clean time only.
    ``span`` is the length of the step; ``parts`` have one span per label of ``stretches`` with
    time. ``recording`` is None if the run is not lstmprof's own.
    """

    rank: int | None
    device: int | None
    windows: tuple[Window, ...]
    stretches: Stretches
    span: Span
    parts: tuple[tuple[tuple[str, str], Span], ...]
    recording: Recording | None
    rare: tuple[Rare, ...]
    _profiled: EventTable
    _clock: _Clock

    @cached_property
    def events(self) -> EventTable:
        """The events by the clock that counts clean time only."""
        return self._clock.moved(self._profiled)

    def at(self, instants_ns: Ints) -> Ints:
        """Return instants of the profile by the clock that counts clean time only."""
        return self._clock.at(instants_ns)

    @property
    def mean_step(self) -> MeanStep:
        """The clean step as the mean over its windows; parts in whole ns that sum to it."""
        spent = self.stretches.end_ns - self.stretches.start_ns
        sums: Counter[tuple[str, str]] = Counter()
        totals = np.bincount(self.stretches.label, weights=spent).astype(np.int64)
        for label, ns in enumerate(totals.tolist()):
            if ns:
                sums[self.stretches.labels[label]] += ns
        steps = len(self.windows)
        return MeanStep(
            rank=self.rank,
            device=self.device,
            steps=steps,
            total_ns=sum(sums.values()),
            parts=in_reading_order(sums),
            recording=self.recording,
            clean=True,
        )


@dataclass(frozen=True)
class _Clock:
    """A piecewise linear map of instants: stretch by stretch from profiled to clean time."""

    knots_ns: Ints
    clean_ns: Ints

    @classmethod
    def of(cls, stretches: Stretches, left_ns: Ints) -> _Clock:
        """Return the clock by which each stretch, in order of time, lasts ``left_ns``."""
        start, end = stretches.start_ns, stretches.end_ns
        knots = np.empty(2 * len(start), dtype=np.int64)
        knots[0::2], knots[1::2] = start, end
        spent = np.empty_like(knots)
        spent[0::2] = np.append(0, start[1:] - end[:-1])[: len(start)]
        spent[1::2] = left_ns
        first = int(start[0]) if len(start) else 0
        return cls(knots, first + np.cumsum(spent))

    def at(self, instants_ns: Ints) -> Ints:
        """Return the clean instants."""
        if not len(self.knots_ns):
            return instants_ns
        place = np.searchsorted(self.knots_ns, instants_ns, side="right") - 1
        low = np.clip(place, 0, len(self.knots_ns) - 2)
        first, last = self.knots_ns[low], self.knots_ns[low + 1]
        to_first, to_last = self.clean_ns[low], self.clean_ns[low + 1]
        into = np.clip(instants_ns - first, 0, last - first)
        share = into / np.maximum(last - first, 1)
        inside = to_first + np.rint(share * (to_last - to_first)).astype(np.int64)
        before = np.minimum(instants_ns - self.knots_ns[0], 0)
        after = np.maximum(instants_ns - self.knots_ns[-1], 0)
        return np.asarray(np.where(into == last - first, to_last, inside) + before + after)

    def moved(self, events: EventTable) -> EventTable:
        """Return ``events`` by this clock."""
        start, end = self.at(events.start_ns), self.at(events.end_ns)
        return events.with_columns({"start_ns": start, "dur_ns": end - start})

    def window(self, window: Window) -> Window:
        """Return ``window`` by this clock."""
        ends = self.at(np.array([window.start_ns, window.end_ns]))
        return replace(window, start_ns=int(ends[0]), end_ns=int(ends[1]))


def one_thread(info: RunInfo) -> bool:
    """Return whether one thread of a CPU did all the work, so that CPU time is the step's time.

    Own code is left out: it may wait for data, and have threads of its own.
    """
    alone = info.threads == 1 and len(info.affinity or (0,)) == 1
    return info.device == "cpu" and alone and info.source != OWN_CODE


@dataclass(frozen=True)
class Measured:
    """What lstmprof knows of a run that it measured: run.json and the rows of timings.parquet."""

    info: RunInfo
    timings: pa.Table | None


def clean_lane(
    events: EventTable,
    windows: Sequence[Window],
    device: int | None,
    measured: Measured | None,
) -> CleanLane:
    """Return the clean step of ``device`` (None: the host) in ``windows``, all of one rank.

    ``measured`` is None for a profile that lstmprof did not record.
    """
    rank, count = windows[0].rank, len(windows)
    stretches = attributed(events, windows, rank)[device].by_time()
    slots = _Slots(events, windows, stretches, device is not None)
    quantile = QUANTILE_FOREIGN if measured is None else QUANTILE
    times = slots.means() if count < LEAST_STEPS else slots.undisturbed(quantile)
    usual_ns = float(times @ slots.share)
    off, recording, contended = np.zeros(len(times)), None, _Contended()
    rounds: Sequence[int] | None = None
    if measured is not None:
        cost = _Cost(slots, measured.info, device is not None)
        usual = 0.5 if slots.vary else QUANTILE
        timed = timed_ns(measured.timings, measured.info, usual, slots.of_some_steps_ns(times))
        off, recording = cost.off(times, timed)
        rounds = measured.info.profiled_rounds
        contended = _contended(measured, timed, float((times - off) @ slots.share))
    stalls = slots.stalls(times, of_input=measured is not None)
    left = np.maximum(np.where(stalls, slots.means(), times) - off, 0.0)
    left_ns = slots.spread(left)
    span, parts = slots.spans(left, off, stalls, quantile, rounds, contended)
    clock = _Clock.of(stretches, left_ns)
    start = clock.at(stretches.start_ns)
    moved = replace(stretches, start_ns=start, end_ns=start + left_ns)
    kept = left_ns > 0
    columns = (moved.window, moved.row, moved.label, moved.start_ns, moved.end_ns)
    return CleanLane(
        rank=rank,
        device=device,
        windows=tuple(clock.window(window) for window in windows),
        stretches=Stretches(moved.labels, *(column[kept] for column in columns)),
        span=span,
        parts=parts,
        recording=recording,
        rare=now_and_then(
            events,
            windows,
            slots.of_event,
            step_ns=usual_ns,
            quantile=quantile,
            on_device=device is not None,
            foreign=measured is None,
        ),
        _profiled=events,
        _clock=clock,
    )


@dataclass(frozen=True)
class _Contended:
    """How much too long a clean step may be, in logarithms, because others had its CPUs.

    ``most_disturbed`` bounds what the spread of the slots says.
    """

    down: float = 0.0
    most_disturbed: float = math.inf


def _contended(measured: Measured, timed: float | None, clean_ns: float) -> _Contended:
    """Return what the timed iterations say of the CPUs of a run.

    A run without CPUs for a share of its time shares cores and caches as long, and its threads wait
    for each other: with two of them an op that both compute takes up to twice as long.
    """
    table, info = measured.timings, measured.info
    if table is None or timed is None:
        return _Contended()
    share, threads = cpu_share(table, info), info.threads or len(info.affinity or (0,))
    lost = 0.0 if share is None else 1 - share
    down = lost * (math.log(max(threads, 1)) + SHARED_CORE)
    if (
        clean_ns < 0.99 * timed
    ):  # the timed iterations are longer: they say nothing of a quiet machine
        return _Contended(down)
    median = timed_ns(table, info, 0.5) or timed
    return _Contended(down, max(math.log(median / timed), 0.0))


def cpu_share(table: pa.Table, info: RunInfo) -> float | None:
    """Return the share of the timed iterations in which their thread did not wait for a CPU."""
    counted = table.filter(pc.invert(table.column("warmup")))
    wall_ns = known(counted, "wall_ns")
    if wall_ns is None or not wall_ns.sum():
        return None
    if one_thread(info):
        cpu_ns = known(counted, "cpu_ns")
        return None if cpu_ns is None else min(float(cpu_ns.sum() / wall_ns.sum()), 1.0)
    waited_ns, ran_ns = known(counted, "waited_ns"), known(counted, "thread_cpu_ns")
    if waited_ns is None or ran_ns is None:
        return None
    # A wait between the end of an iteration and the reading of the wait belongs to none.
    within_ns = np.minimum(waited_ns, np.maximum(wall_ns - ran_ns, 0))
    return 1 - float(within_ns.sum() / wall_ns.sum())


def known(table: pa.Table, name: str) -> Ints | None:
    """Return a column as int64, None if the table lacks it or it has a null."""
    if name not in table.column_names or table.column(name).null_count:
        return None
    values: Ints = table.column(name).to_numpy().astype(np.int64)
    return values


def timed_ns(
    timings: pa.Table | None,
    info: RunInfo,
    quantile: float = QUANTILE,
    of_some_steps_ns: float = 0.0,
) -> float | None:
    """Return this quantile of the timed iterations: CPU time if one thread did the work.

    The profiled steps do ``of_some_steps_ns`` that most do not, in the mean. The timed ones did it,
    too, as far as their mean is longer.
    """
    if timings is None:
        return None
    counted = timings.filter(pc.invert(timings.column("warmup")))
    if not len(counted):
        return None
    by_cpu = one_thread(info) and known(counted, "cpu_ns") is not None
    times = counted.column("cpu_ns" if by_cpu else "wall_ns").to_numpy()
    usual = float(np.quantile(times, quantile))
    return usual + min(of_some_steps_ns, max(float(times.mean()) - usual, 0.0))


class _Slots:
    """The times of the slots of one lane in each step."""

    def __init__(
        self,
        events: EventTable,
        windows: Sequence[Window],
        stretches: Stretches,
        on_device: bool,
    ) -> None:
        self.events, self.stretches, self.steps = events, stretches, len(windows)
        self._windows, self._on_device = windows, on_device
        places = slots_of_stretches(events, windows, stretches, on_device)
        self.slot, self._like_of, self.of_event = places.slot, places.like, places.of_event
        self.count = int(self.slot.max(initial=-1)) + 1
        self.length_ns = stretches.end_ns - stretches.start_ns
        cell = self.slot * self.steps + stretches.window
        absent = self._absent(cell, *places.absent)
        self.cells, self.cell_of = np.unique(np.append(cell, absent), return_inverse=True)
        weights = np.append(self.length_ns, np.zeros(len(absent), dtype=np.int64))
        self.cell_ns = np.bincount(self.cell_of, weights=weights)
        self.slot_of_cell = self.cells // max(self.steps, 1)
        self._order = np.lexsort((self.cell_ns, self.slot_of_cell))
        self.sorted_ns = self.cell_ns[self._order]
        self.present = np.bincount(self.slot_of_cell, minlength=self.count)
        self.first = np.cumsum(self.present) - self.present
        # of a gap, which may have several, that of its longest stretch
        self.label = np.zeros(self.count, dtype=np.int64)
        by_length = np.argsort(self.length_ns, kind="stable")
        self.label[self.slot[by_length]] = stretches.label[by_length]
        busy = np.array([state == "busy" for state, _ in stretches.labels], dtype=np.bool_)
        self._is_idle = ~busy[self.label]

    def _absent(self, cell: Ints, slot: Ints, window: Ints) -> Ints:
        """Return the cells of gaps without length that count: of long gaps that few steps have.

        Where the host is disturbed, a device waits that does not wait in other steps. A short gap
        may be before one activity in some steps and before its neighbour in others.
        """
        present = np.bincount(np.unique(cell) // max(self.steps, 1), minlength=self.count)
        absent = np.bincount(slot, minlength=self.count)
        whole_ns = np.bincount(self.slot, self.length_ns, minlength=self.count)
        long = whole_ns >= LEAST_STALL * present * self.length_ns.sum() / self.steps
        counted = long & (present < absent)
        return np.asarray((slot * self.steps + window)[counted[slot]])

    @property
    def share(self) -> Floats:
        """The share of the steps that has each slot."""
        return np.asarray(self.present / self.steps)

    @property
    def vary(self) -> bool:
        """Whether the steps differ in how many events they have: they may not do the same."""
        starts = np.sort(self.events.start_ns)
        ends = [(w.start_ns, w.end_ns) for w in self._windows]
        counts = [int(np.diff(np.searchsorted(starts, np.array(pair)))[0]) for pair in ends]
        return max(counts) > (1 + VARYING_SHARE) * min(counts)

    def of_some_steps_ns(self, times: Floats) -> float:
        """Return what slots of half of the steps or fewer take of the mean step; 0 if it is little.

        Events without a partner are in such slots: ops that a profiler leaves out in other steps.
        """
        some = 2 * self.present <= self.steps
        ns = float(times[some] @ self.share[some])
        return ns if ns >= LEAST_STALLED * float(times @ self.share) else 0.0

    def means(self) -> Floats:
        """Return the mean time of each slot in the steps that have it."""
        sums = np.bincount(self.slot_of_cell, weights=self.cell_ns, minlength=self.count)
        return np.asarray(sums / np.maximum(self.present, 1))

    def undisturbed(self, quantile: float) -> Floats:
        """Return this quantile of each slot's times, that of its like if every step disturbed it.

        Threads that wait for each other at every op have no undisturbed step on a busy machine. Of
        a hundred ops of one name and shapes some are undisturbed all the same.
        """
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
        disturbed = spread & (medians > 1.5 * least) & (times > 2 * usual)
        return np.asarray(np.where(disturbed, usual, times))

    def quantiles(self, quantile: float) -> Floats:
        """Return this quantile of each slot's times in the steps that have it."""
        at = quantile * (self.present - 1)
        low = np.floor(at).astype(np.int64)
        high = np.minimum(low + 1, self.present - 1)
        below, above = self.sorted_ns[self.first + low], self.sorted_ns[self.first + high]
        return np.asarray(below + (at - low) * (above - below))

    def stalls(self, times: Floats, *, of_input: bool) -> Flags:
        """Return the slots that wait for long in some of the steps, where others take ``times``.

        Work of a host is none: a busy machine makes that longer. ``of_input``: only waits for the
        input are. On a busy machine a thread waits for others that have no CPU, in any step.
        """
        means, long = self.means(), self.cell_ns > SPREAD * times[self.slot_of_cell]
        often = np.bincount(self.slot_of_cell[long], minlength=self.count)
        waits = self._is_idle | self._on_device
        excess = np.where(waits, np.maximum(means - times, 0), 0.0) * self.share
        step_ns = float(times @ self.share + excess.sum())
        found = (often >= max(STALL_STEPS, STALL_SHARE * self.steps)) & (means > SPREAD * times)
        found &= excess >= LEAST_STALL * step_ns
        if of_input:
            inside = self.length_ns * self._in_input()
            found &= np.bincount(self.slot, 2 * inside - self.length_ns, minlength=self.count) > 0
        least = max(MOST_OF_EXCESS * excess.sum(), LEAST_STALLED * step_ns)
        return np.asarray(found & (excess[found].sum() >= least), dtype=np.bool_)

    def _in_input(self) -> Flags:
        """Return whether the input is prepared in each stretch."""
        preparing = np.where(prepares(self.events), np.arange(len(self.events)), NONE)
        around = inherited(self.events.rows_named("parent_id"), preparing)
        row = self.stretches.row
        return np.asarray((row != NONE) & (around[row] != NONE), dtype=np.bool_)

    def spread(self, times: Floats) -> Ints:
        """Return whole ns for each stretch, so that each slot takes ``times`` wherever it is.

        A gap of a device takes them in the mean: cut where it is longest, for what it waits for in
        a long gap is not what it waits for in a short one.
        """
        here = self.cell_of[: len(self.slot)]
        cells_ns = self._cut(times) if self._on_device else times[self.slot_of_cell]
        ends = np.rint(np.cumsum(cells_ns[here] * (self.length_ns / self.cell_ns[here])))
        return np.asarray(np.diff(ends, prepend=0.0), dtype=np.int64)

    def _cut(self, times: Floats) -> Floats:
        """Return the time of each cell, no longer than one length per slot; the mean is ``times``.

        Busy cells take ``times``. If all cells together are too short, they are scaled.
        """
        slot, sorted_ns = self.slot_of_cell[self._order], self.sorted_ns
        place = np.arange(len(slot)) - self.first[slot]
        before: Floats = np.append(0.0, np.cumsum(sorted_ns))[:-1]
        before = before - before[self.first[slot]]
        goal = times * self.present
        whole = before + (self.present[slot] - place) * sorted_ns <= goal[slot]
        taken = np.bincount(slot[whole], sorted_ns[whole], minlength=self.count)
        rest = self.present - np.bincount(slot[whole], minlength=self.count)
        cut = np.where(rest > 0, (goal - taken) / np.maximum(rest, 1), np.inf)
        scale = np.where((rest == 0) & (taken > 0), goal / np.maximum(taken, 1.0), 1.0)
        cells_ns = np.empty(len(slot))
        cells_ns[self._order] = np.minimum(sorted_ns, cut[slot]) * scale[slot]
        return np.where(self._is_idle[self.slot_of_cell], cells_ns, times[self.slot_of_cell])

    def matrix(self, slots: Ints) -> Floats:
        """Return the times of ``slots`` (rows) in each step, infinite where a step has it not."""
        place = np.full(self.count, NONE, dtype=np.int64)
        place[slots] = np.arange(len(slots))
        row = place[self.slot_of_cell]
        table = np.full((len(slots), self.steps), np.inf)
        mine = row != NONE
        table[row[mine], (self.cells % self.steps)[mine]] = self.cell_ns[mine]
        return table

    def spans(
        self,
        times: Floats,
        off: Floats,
        stalls: Flags,
        quantile: float,
        round_of: Sequence[int] | None,
        contended: _Contended,
    ) -> tuple[Span, tuple[tuple[tuple[str, str], Span], ...]]:
        """Return the span of the step, and of each label that has time.

        The bootstrap resamples rounds, then their steps. Below, a span reaches as far as the
        medians lie above the percentiles beyond what they do on a quiet machine, and farther if
        others had its CPUs: disturbed steps make the clean time too long, never too short.
        """
        share = self.share
        whole = float(times @ share)
        taken = self.spread(times)
        sums = np.bincount(self.stretches.label, taken, minlength=len(self.stretches.labels))
        per_label = sums / self.steps
        medians = np.maximum(self.quantiles(0.5) - off, 0.0) * share
        longer = np.where(times > 0, medians / np.maximum(times * share, 1e-9), 1.0)
        of_medians = np.bincount(self.stretches.label, taken * longer[self.slot]) / self.steps
        errors = self._errors(times, off, stalls, quantile, round_of)
        usual = Z95 * BETWEEN_PROCESSES / math.sqrt(len(_members(round_of, self.steps)))

        def span(ns: float, median_ns: float, error: float) -> Span:
            further = math.log(max(median_ns, ns) / ns) if ns > 0 else 0.0
            disturbed = min(max(further - QUIET_SPREAD, 0.0), contended.most_disturbed)
            up, down = math.hypot(error, usual), disturbed + contended.down
            return Span(ns * math.exp(-up - down), ns, ns * math.exp(up))

        parts = tuple(
            (self.stretches.labels[label], span(ns, of_medians[label], errors[1][label]))
            for label, ns in enumerate(per_label.tolist())
            if ns > 0
        )
        return span(whole, float(medians.sum()), errors[0]), parts

    def _errors(
        self,
        times: Floats,
        off: Floats,
        stalls: Flags,
        quantile: float,
        round_of: Sequence[int] | None,
    ) -> tuple[float, Floats]:
        """Return half the 95 % bootstrap interval, in logarithms: of the step, of each label."""
        labels = len(self.stretches.labels)
        if self.steps < LEAST_STEPS:
            return 0.0, np.zeros(labels)
        weight = times * self.share
        slots = np.argsort(-weight, kind="stable")[:MOST_RESAMPLED]
        table, label = self.matrix(slots), self.label[slots]
        rounds = _members(round_of, self.steps)
        generator = np.random.default_rng(0)
        wholes, parts = np.empty(RESAMPLES), np.empty((RESAMPLES, labels))
        for number in range(RESAMPLES):
            picked = generator.integers(0, len(rounds), len(rounds))
            chosen = [
                rounds[p][generator.integers(0, len(rounds[p]), len(rounds[p]))] for p in picked
            ]
            drawn = np.sort(table[:, np.concatenate(chosen)], axis=1)
            present = np.isfinite(drawn).sum(axis=1)
            at = np.rint(quantile * np.maximum(present - 1, 0)).astype(np.int64)
            ns = np.take_along_axis(drawn, at[:, None], axis=1)[:, 0]
            sums = np.where(np.isfinite(drawn), drawn, 0.0).sum(axis=1)
            ns = np.where(stalls[slots], sums / np.maximum(present, 1), ns)
            left = np.where(present > 0, np.maximum(ns - off[slots], 0.0), 0.0)
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


class _Cost:
    """What recording took of each slot."""

    def __init__(self, slots: _Slots, info: RunInfo, on_device: bool) -> None:
        costs, profiler = costs_of(info), info.profiler
        self._slots = slots
        # what a host records while its device works delays nothing
        times = 1.0 if profiler == TENSORFLOWS else USUAL_TIMES
        self._usual = 0.0 if on_device else max(times * costs.least_ns, costs.usual_ns)
        self._costs = costs
        own_ranges = costs.measured and not on_device
        self._what = recorded(slots.events, slots.stretches, own_ranges=own_ranges)
        # for each slot where it is: of an event of 1 ns, and of lstmprof's own ranges
        self._of_events = self._mean(self._what.events.ns(costs.shape))
        self._of_ranges = self._mean(self._what.ranges.ns(costs.of_range))

    def _mean(self, values: Floats) -> Floats:
        sums = np.bincount(self._slots.slot, weights=values, minlength=self._slots.count)
        return np.asarray(sums / np.maximum(self._slots.present, 1))

    def off(self, times: Floats, timed: float | None) -> tuple[Floats, Recording]:
        """Return what recording took of each slot's ``times``, and a summary.

        ``timed`` is the low percentile of the timed iterations, None unknown.
        """
        share, steps = self._slots.share, self._slots.steps

        def taken(cost_ns: float) -> Floats:
            return np.minimum(cost_ns * self._of_events + self._of_ranges, times)

        def left(cost_ns: float) -> float:
            return float((times - taken(cost_ns)) @ share)

        cost_ns = self._usual
        if timed is not None and timed < left(0.0):
            cost_ns = _solved(left, timed, 0.0, self._costs.most_ns)
        off = taken(cost_ns)
        recorded_ns = round(float(off @ share))
        rest = float((times - off) @ share)
        if timed is not None and rest > timed:  # a step takes no longer than the timed ones do
            off = times - (times - off) * (timed / rest)
        recording = Recording(
            events=int(self._what.borders.sum()) / 2 / steps,
            event_ns=cost_ns,
            ns=recorded_ns,
            measured=self._costs.measured,
        )
        return off, recording


def _solved(left: object, timed: float, low: float, high: float) -> float:
    """Return the cost between ``low`` and ``high`` at which ``left`` is nearest to ``timed``."""
    assert callable(left)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if left(middle) > timed else (low, middle)
    return (low + high) / 2
