"""Run the captures of a session one after the other, until all are done or the time is up.

A capture that would not fit into the remaining time according to its estimate is skipped. After an
implementation has hung once or failed twice, its other captures are skipped.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.gpu import raw_captures
from benchmarks.gpu.estimates import CAUTION, Estimates
from lstmprof.capture.request import CaptureRequest, refusal, run_name

THERE = "is there already"
MOST_FAILURES = 2
#: Time limit of a capture: this many times its estimate, but at least this many seconds.
PATIENCE, LEAST_LIMIT_S = 4.0, 60.0


@dataclasses.dataclass(frozen=True)
class Planned:
    """One capture of the plan; ``skip`` is the reason not to run it, or None."""

    name: str
    request: CaptureRequest
    skip: str | None


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a process ended; ``fault`` is one line, or None if it succeeded."""

    took_s: float
    fault: str | None = None
    hung: bool = False


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of a planned capture.

    If the capture was not begun, ``ended`` is None and ``why`` is the reason.
    """

    planned: Planned
    ended: Ended | None
    why: str = ""


#: A function that captures a request within a number of seconds.
Runner = Callable[[CaptureRequest, float], Ended]


def plan(requests: Sequence[CaptureRequest], out: Path) -> list[Planned]:
    """Return a plan of all ``requests``, some with a reason not to run them."""
    return [
        Planned(name, request, refusal(request) or _there(out, name))
        for request in requests
        for name in [run_name(request)]
    ]


def _there(out: Path, name: str) -> str | None:
    return THERE if raw_captures.is_there(out, name) else None


@dataclasses.dataclass
class Session:
    """Captures one request after the other with ``run``, until ``clock`` shows ``until_s``."""

    run: Runner
    until_s: float
    limit_s: float  # maximum for one capture
    clock: Callable[[], float] = time.monotonic
    estimates: Estimates = dataclasses.field(default_factory=Estimates)
    faults: Counter[str] = dataclasses.field(default_factory=Counter)

    def left_s(self) -> float:
        """Return the remaining seconds."""
        return self.until_s - self.clock()

    def outcomes(self, planned: Sequence[Planned]) -> Iterator[Outcome]:
        """Run the captures that are not skipped, in order, and yield the outcome of each."""
        for one in planned:
            if one.skip is None:
                why = self._why_not(one.request)
                yield Outcome(one, None, why) if why else Outcome(one, self._ended(one.request))

    def _why_not(self, request: CaptureRequest) -> str:
        if self.faults[request.implementation] >= MOST_FAILURES:
            return f"{request.implementation} hung or failed before"
        needed_s, left_s = self.estimates.seconds(request) * CAUTION, self.left_s()
        if needed_s > left_s:
            return f"needs about {needed_s:.0f} s, {max(left_s, 0):.0f} s are left"
        return ""

    def _ended(self, request: CaptureRequest) -> Ended:
        patience_s = max(LEAST_LIMIT_S, PATIENCE * self.estimates.seconds(request))
        ended = self.run(request, min(self.limit_s, patience_s, self.left_s()))
        if ended.fault is None:
            self.estimates.learn(request, ended.took_s)
        else:
            self.faults[request.implementation] += MOST_FAILURES if ended.hung else 1
        return ended
