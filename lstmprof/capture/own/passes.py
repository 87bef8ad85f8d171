"""What is done around each of a user's steps: timed, profiled, timed again, as ``capture`` does.

A generator in which the user's code is the ``yield``: the first of two is what lies between steps,
the second is a step, of which the session sends what it made. So the passes read as those of the
worker do, though it is the user's loop that runs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import time
from typing import Any, Callable, Dict, Generator, Iterable, List, Optional, Tuple

from lstmprof.capture.worker import (
    calibration,
    meters,
    profiling,
    settings,
    threads,
    timing,
)
from lstmprof.capture.worker.profilers import Profiler
from lstmprof.capture.worker.profiling import Profiled, Ranges, both, no_ranges
from lstmprof.capture.worker.usage import SELF, difference, usage

#: Of the undisturbed steps before the profile and of those after it, together: no more is begun.
MOST_TIMING_NS = 60_000_000_000

PROFILING = "profiling"
#: Steps of a session that is thrown away: they fill the profiler's buffers, no more.
MOST_THROWN_AWAY = 3

#: By which share recording the shapes of inputs may lengthen a profiled step at the most; what it
#: does to a Python loop of small ops is in ``worker.shapes``.
MOST_FOR_SHAPES = 0.05

Steps = Generator[None, Any, Any]


@dataclasses.dataclass(frozen=True)
class Plan:
    """How many steps each pass has; ``timed`` are before and after the profile, half and half."""

    warmup: int = 5
    timed: int = 20
    steps: int = 10

    @property
    def thrown_away(self) -> int:
        """Steps of a session whose profile is thrown away."""
        return min(self.steps, MOST_THROWN_AWAY)

    def fewest(self, sessions: int = 2) -> int:
        """Steps without which there is no profile, the one before the first border included."""
        away = (sessions - 1) * self.thrown_away
        return 1 + self.warmup + -(-self.timed // 2) + away + self.steps

    def shares(self) -> Tuple[timing.Share, timing.Share]:
        """The steps that are timed before the profile, and after it."""
        return timing.Share(self.timed, MOST_TIMING_NS).halves()


class Passes:
    """The passes around a user's steps, and what they have brought so far."""

    def __init__(self, plan: Plan, profiler: Profiler, folder: str) -> None:
        self.plan, self.profiler, self.folder = plan, profiler, folder
        self.nvtx: Ranges = profiling.nvtx_ranges() or no_ranges
        self.ranges: Ranges = no_ranges  # of a step and its phases, now
        self.rows: List[timing.Iteration] = []
        self.profiled: Optional[Profiled] = None
        self.cost: Dict[str, Any] = {}
        self.shapes_cost: Optional[float] = None
        self.doing = "waiting for the first step"

    @property
    def fewest(self) -> int:
        """Steps without which there is no profile."""
        sessions = 3 if self.profiler.tells_shapes else 2
        return self.plan.fewest(sessions) + sessions * self.profiler.starts_late

    def around_steps(self) -> Steps:
        """All passes; it returns when the last step is measured."""
        self.doing = "warming up"
        first, rest = self.plan.shares()
        yield from self._timed(timing.Share(self.plan.warmup), warmup=True)
        device = str(self.profiler.facts()["device"])
        energy, counts = meters.Meters(device), meters.StepCounts(self.nvtx)
        self.doing = "timing"
        with energy.reading():
            yield from self._timed(first)
        self.doing = PROFILING
        self.profiled = yield from self._profile(counts)
        self._note(energy, counts)
        self.doing = "timing again"
        yield from self._timed(timing.Share(1 if rest.iterations else 0), True, True)
        with energy.reading():
            yield from self._timed(rest, after_profile=True)
        self._note(energy, counts)
        self.doing = "done"

    def _note(self, energy: meters.Meters, counts: meters.StepCounts) -> None:
        """Keep what was found beside the times; a training that ends early leaves this much."""
        found = settings.recorded(self.profiler.settings())
        self.cost = {**energy.facts(), **counts.facts(), "settings": found}
        self.cost["shapes_cost"] = self.shapes_cost

    def _timed(
        self, share: timing.Share, warmup: bool = False, after_profile: bool = False
    ) -> Steps:
        """Add a row for each step of ``share``; none begins after its time."""
        clock, wait = time.perf_counter_ns, self.profiler.wait
        began_ns, number = clock(), 0
        for number in range(share.iterations):
            yield
            if not self.cost:  # a framework may know its device only once it has worked
                self.profiler.find_device()
            wait()  # for what was begun between steps
            self.ranges = self.nvtx
            waits, before = threads.waits(), usage(SELF)
            start_ns = clock()
            with self.nvtx("step"):
                outcome = yield
                wait(outcome)
            end_ns = clock()
            counts = difference(before, usage(SELF))
            waiting = threads.waiting_between(waits, threads.waits(ends=True))
            self.ranges = no_ranges
            took_ns, number_of_row = end_ns - start_ns, len(self.rows)
            row = timing.Iteration(
                number_of_row, warmup, after_profile, took_ns, None, counts, None, None, waiting
            )
            self.rows.append(row)
            enough = share.most_ns is not None and number + 1 >= share.least
            if enough and end_ns - began_ns >= (share.most_ns or 0):
                break

    def _profile(self, counts: meters.StepCounts) -> Generator[None, Any, Profiled]:
        """Sessions to throw away, then the one that counts; its profile lies in the folder."""
        logs = os.path.join(self.folder, "logs")
        warm = profiling.throwaway_steps(self.plan.thrown_away, time.perf_counter_ns)
        readings, plain_ns = yield from self._thrown_away(warm, logs)
        if self.profiler.tells_shapes:
            readings = yield from self._shapes_tried(readings, min(plain_ns), logs)
        cost = self.profiler.recording_cost(readings)
        steps = range(self.plan.steps)
        session, walls_ns = yield from self._session(counts, steps, logs)
        if self.profiler.is_outside:
            return Profiled(walls_ns, [], [], None, cost)
        raw, name = self.profiler.written(session, logs if os.path.isdir(logs) else self.folder)
        kept = os.path.join(self.folder, name)
        os.replace(raw, kept)
        shutil.rmtree(logs, ignore_errors=True)
        return Profiled(walls_ns, [], [kept], None, cost)

    def _shapes_tried(
        self, plain: calibration.Readings, plain_ns: int, logs: str
    ) -> Generator[None, Any, calibration.Readings]:
        """Have shapes recorded where that is cheap; what a trivial event takes then.

        Found by the shortest steps of a session with shapes and of the one without before.
        """
        self.profiler.with_shapes = True
        readings, walls_ns = yield from self._thrown_away(range(self.plan.thrown_away), logs)
        self.shapes_cost = min(walls_ns) / plain_ns - 1
        self.profiler.with_shapes = self.shapes_cost <= MOST_FOR_SHAPES
        return readings if self.profiler.with_shapes else plain

    def _thrown_away(
        self, steps: Iterable[int], logs: str
    ) -> Generator[None, Any, Tuple[calibration.Readings, List[int]]]:
        """What a trivial event takes in a session that is not kept, and the steps' wall times."""
        readings: List[calibration.Readings] = []
        _, walls_ns = yield from self._session(
            no_ranges, steps, logs, lambda: readings.append(self.profiler.trivial_readings())
        )
        shutil.rmtree(logs, ignore_errors=True)
        return readings[0], walls_ns

    def _session(
        self,
        outer: Ranges,
        steps: Iterable[int],
        folder: str,
        at_end: Callable[[], None] = lambda: None,
    ) -> Generator[None, Any, Tuple[Any, List[int]]]:
        """A finished session, and the wall time of each step; ``at_end`` is its last."""
        walls_ns: List[int] = []
        with contextlib.ExitStack() as ended:
            session = ended.enter_context(self.profiler.recording(folder))
            if self.profiler.starts_late:
                yield
                self.profiler.wait((yield))
            for number in steps:
                yield
                self.profiler.wait()
                self.ranges = both(outer, self.profiler.annotated(number))
                start_ns = time.perf_counter_ns()
                with self.ranges("step"):
                    outcome = yield
                    self.profiler.wait(outcome)
                walls_ns.append(time.perf_counter_ns() - start_ns)
                self.ranges = no_ranges
            at_end()
        return session, walls_ns
