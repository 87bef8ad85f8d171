"""Time and profile the steps of a user's training loop, in several passes.

A pass, such as timing, is a generator that loops over steps. In each iteration, the first ``yield``
waits until the user's step begins, and the second ``yield`` waits until the step ends.
"""

from __future__ import annotations

import dataclasses
import gc
import os
import shutil
import tempfile
import time
from typing import Any, Callable, Dict, Generator, Iterable, List, Optional, Tuple

from lstmprof.capture.own.sizes import has_compiled
from lstmprof.capture.worker import profiling, timing
from lstmprof.capture.worker.lines import MOST_NS, MOST_STEPS, LineSampler
from lstmprof.capture.worker.machine import meters, settings
from lstmprof.capture.worker.machine.usage import SELF, difference, usage, waiting_between, waits
from lstmprof.capture.worker.profilers import Profiler, calibration
from lstmprof.capture.worker.profiling import Profiled, Ranges, both, no_ranges

#: Time limit for all timed steps; half of this time is for steps before the profile.
MOST_TIMING_NS = 60_000_000_000

PROFILING, TIMING_AGAIN, SAMPLING = "profiling", "timing again", "sampling lines"
#: Largest number of steps that a discarded session needs, which fills the profiler's buffers.
MOST_THROWN_AWAY = 3
#: Number of steps in the first session after timing, which each rank of a job discards.
#: Chosen by hand.
ALIKE_THROWN_AWAY = 10

#: Largest slowdown of a profiled step that recording input shapes may cause: 5 %.
MOST_FOR_SHAPES = 0.05

Steps = Generator[None, Any, Any]


@dataclasses.dataclass(frozen=True)
class Plan:
    """How many steps to warm up, to time and to profile."""

    warmup: int = 5
    timed: int = 20
    steps: int = 10
    alike: bool = False  # no pass depends on a clock: all ranks of a job measure the same steps
    lines: int = MOST_STEPS  # most steps in which slow lines of the script are sampled

    @property
    def thrown_away(self) -> int:
        """Return the least number of steps in a profiler session that is discarded."""
        return min(self.steps, MOST_THROWN_AWAY)

    def fewest(self, sessions: int = 2) -> int:
        """Return how many steps a training must run before the profile is complete."""
        away = (sessions - 1) * self.thrown_away
        warmup = max(self.warmup, EARLY.warmup + EARLY.timed)
        # add 1, because the first call of ``step()`` only begins a step
        return 1 + warmup + EARLY.steps + -(-self.timed // 2) + away + self.steps

    def shares(self) -> Tuple[timing.Quota, timing.Quota]:
        """Return limits for the steps to time before the profile and after the profile."""
        return timing.Quota(self.timed, None if self.alike else MOST_TIMING_NS).halves()


#: Step counts of a short first measurement, in case a training ends early.
EARLY = Plan(warmup=1, timed=2, steps=3)
#: Smallest number of steps of a training at which lstmprof can write a run.
FEWEST_STEPS = 1 + EARLY.warmup + EARLY.timed + 1  # the first call only begins a step


@dataclasses.dataclass(frozen=True)
class _Recorded:
    """A finished profiler session, with the wall times and counts of its steps."""

    session: Any
    walls_ns: List[int]
    folder: str
    counts: meters.StepCounts


class StepPasses:
    """Warms up, times and profiles a user's steps, and keeps the results."""

    def __init__(self, plan: Plan, profiler: Profiler, folder: str) -> None:
        self.plan, self.profiler, self.folder = plan, profiler, folder
        self.nvtx: Ranges = profiling.nvtx_ranges() or no_ranges
        self.ranges: Ranges = no_ranges  # current ranges of a step and its phases
        self.rows: List[timing.Iteration] = []
        self.profiled: Optional[Profiled] = None
        self.cost: Dict[str, Any] = {}
        self.shapes_cost: Optional[float] = None
        self.doing = "waiting for the first step"
        self.later = 0  # steps that ended after the session that is kept
        self._latest: Optional[_Recorded] = None
        # durations of trivial calls under the profiler, which show what recording an event costs
        self._readings: Optional[calibration.LoopTimes] = None

    @property
    def fewest(self) -> int:
        """Return how many steps a training must run before a run can be written."""
        least = self.plan.fewest() if self.profiler.is_outside else FEWEST_STEPS
        return least + self.profiler.starts_late

    def around_steps(self) -> Steps:
        """Run all passes; yield before each of the user's steps and during the step."""
        self.doing = "warming up"
        first, rest = self.plan.shares()
        yield from self._timed(timing.Quota(EARLY.warmup), warmup=True)
        if not self.profiler.is_outside:  # nsys can record only once
            self.doing = "timing"
            yield from self._timed(timing.Quota(EARLY.timed))
            self.doing = PROFILING
            yield from self._thrown_away(range(EARLY.steps))
            self.doing = "warming up"
        early = len(self.rows)
        yield from self._timed(timing.Quota(max(self.plan.warmup - early, 0)), warmup=True)
        self.doing = "timing"
        energy = meters.Meters(str(self.profiler.facts()["device"]))
        with energy.reading():
            yield from self._timed(first)
        self.cost.update(energy.facts())
        self.rows[:early] = [row._replace(warmup=True) for row in self.rows[:early]]
        self.doing = PROFILING
        yield from self._profile()
        self.doing = TIMING_AGAIN
        # run one warm-up step after the profiler has stopped
        yield from self._timed(timing.Quota(1 if rest.iterations else 0), True, True)
        with energy.reading():
            yield from self._timed(rest, after_profile=True)
        self.cost.update(energy.facts())
        self.doing = SAMPLING
        if self.plan.lines:
            yield from self._sample_lines()
        self.doing = "done"

    def _sample_lines(self) -> Steps:
        """Sample which lines of the user's script take time."""
        sampler, began_ns = LineSampler(), time.perf_counter_ns()
        most = min(self.plan.lines, self.plan.steps) if self.plan.alike else self.plan.lines
        try:
            with sampler.sampling_stacks():
                while sampler.steps < most:
                    yield
                    self.profiler.wait()
                    with sampler.in_step():
                        self.profiler.wait((yield))
                    if not self.plan.alike and time.perf_counter_ns() - began_ns >= MOST_NS:
                        break
        finally:  # also if the training ends meanwhile
            self.cost.update(sampler.facts())

    def keep_latest(self) -> None:
        """Make the latest profiler session the profile, after a training ended early."""
        if self._latest is not None and not self.profiler.is_outside:
            self._keep(self._latest)

    def _keep(self, recorded: _Recorded) -> None:
        """Make this profiler session the profile of the run."""
        files = []
        if not self.profiler.is_outside:
            raw, name = self.profiler.written(recorded.session, recorded.folder)
            files.append(os.path.join(self.folder, name))
            os.replace(raw, files[0])
        readings = self._readings
        cost = None if readings is None else self.profiler.recording_cost(readings)
        current = settings.recorded(self.profiler.settings())
        self.cost.update(recorded.counts.facts(), settings=current, shapes_cost=self.shapes_cost)
        self.profiled = Profiled(recorded.walls_ns, [], files, None, cost)

    def _replace_latest(self, recorded: Optional[_Recorded]) -> None:
        # free the old session now, because a garbage collection during a step would take 94 ms
        if self._latest is not None:
            shutil.rmtree(self._latest.folder, ignore_errors=True)
        self._latest = recorded
        gc.collect()

    def _timed(
        self, share: timing.Quota, warmup: bool = False, after_profile: bool = False
    ) -> Steps:
        """Time the user's steps, up to a number of steps or a time limit."""
        clock, wait = time.perf_counter_ns, self.profiler.wait
        began_ns, number = clock(), 0
        for number in range(share.iterations):
            yield
            if self.profiled is None:  # some frameworks know their device only after the first step
                self.profiler.find_device()
            wait()  # work that was started between steps
            self.ranges = self.nvtx
            waiting, before = waits(), usage(SELF)
            start_ns = clock()
            with self.nvtx("step"):
                outcome = yield
                wait(outcome)
            end_ns = clock()
            counts = difference(before, usage(SELF))
            waited = waiting_between(waiting, waits(ends=True))
            self.ranges = no_ranges
            took_ns, number_of_row = end_ns - start_ns, len(self.rows)
            row = timing.Iteration(
                number_of_row, warmup, after_profile, took_ns, None, counts, None, None, waited
            )
            self.rows.append(row)
            enough = share.most_ns is not None and number + 1 >= share.least
            if enough and end_ns - began_ns >= (share.most_ns or 0):
                break

    def _profile(self) -> Steps:
        """Run profiler sessions; keep the last as the profile, and discard the others."""
        warm: Iterable[int] = range(ALIKE_THROWN_AWAY)
        if not self.plan.alike:
            warm = profiling.throwaway_steps(self.plan.thrown_away, time.perf_counter_ns)
        plain_ns = min((yield from self._thrown_away(warm)))
        if self.profiler.can_record_shapes:
            yield from self._try_shapes(plain_ns)
        recorded = yield from self._session(self.nvtx, range(self.plan.steps))
        self._keep(recorded)
        del recorded
        self._replace_latest(None)

    def _try_shapes(self, plain_ns: int) -> Steps:
        """Decide whether to record input shapes, from the measured slowdown."""
        plain = self._readings
        self.profiler.with_shapes = True
        walls_ns = yield from self._thrown_away(range(self.plan.thrown_away))
        self.shapes_cost = min(walls_ns) / plain_ns - 1
        # record shapes after torch.compile at any cost, because hooks would recompile the model
        self.profiler.with_shapes = has_compiled() or self.shapes_cost <= MOST_FOR_SHAPES
        if not self.profiler.with_shapes:
            self._readings = plain

    def _thrown_away(self, steps: Iterable[int]) -> Generator[None, Any, List[int]]:
        """Profile steps, discard the profile, and return each step's wall time in ns."""

        # time trivial calls at the end of the session, to measure what an event costs
        def measure() -> None:
            self._readings = self.profiler.trivial_readings()

        recorded = yield from self._session(no_ranges, steps, measure)
        return recorded.walls_ns

    def _session(
        self, outer: Ranges, steps: Iterable[int], at_end: Callable[[], None] = lambda: None
    ) -> Generator[None, Any, _Recorded]:
        """Record steps in one profiler session."""
        folder = tempfile.mkdtemp(dir=self.folder)
        walls_ns: List[int] = []
        counts, ended = meters.StepCounts(outer), 0
        try:
            with self.profiler.recording(folder) as session:
                if self.profiler.starts_late:
                    yield
                    self.profiler.wait((yield))
                    ended = 1
                for number in steps:
                    yield
                    self.profiler.wait()
                    self.ranges = both(counts, self.profiler.annotated(number))
                    start_ns = time.perf_counter_ns()
                    with self.ranges("step"):
                        outcome = yield
                        self.profiler.wait(outcome)
                    walls_ns.append(time.perf_counter_ns() - start_ns)
                    self.ranges = no_ranges
                at_end()
        except GeneratorExit:
            # if the training ends meanwhile, keep the session with more steps
            if self._latest is None or len(walls_ns) >= len(self._latest.walls_ns):
                self._latest = _Recorded(session, walls_ns, folder, counts) if walls_ns else None
            else:
                self.later = ended + len(walls_ns)
            raise
        recorded = _Recorded(session, walls_ns, folder, counts)
        self._replace_latest(recorded)
        return recorded
