"""The captures of a session, one after the other, until all are done or the time is up.

None is begun that would not fit by its estimate: a later one that does fit takes its place. An
implementation that hung once, or failed twice, costs no more time.
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
#: What a capture that hangs may have, at most: this many times its estimate, and this many seconds.
PATIENCE, LEAST_LIMIT_S = 4.0, 60.0


@dataclasses.dataclass(frozen=True)
class Planned:
    """One capture of the plan; ``skip`` says why it will not be run, None that it will."""

    name: str
    request: CaptureRequest
    skip: str | None


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a capture ended; ``fault`` in one line, None where it is there."""

    took_s: float
    fault: str | None = None
    hung: bool = False


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of a planned capture; ``ended`` is None where it was not begun, ``why`` not."""

    planned: Planned
    ended: Ended | None
    why: str = ""


#: Runs a request for at most so many seconds.
Runner = Callable[[CaptureRequest, float], Ended]


def plan(requests: Sequence[CaptureRequest], out: Path) -> list[Planned]:
    """Every request with the reason why it is not run, if there is one."""
    return [
        Planned(name, request, refusal(request) or _there(out, name))
        for request in requests
        for name in [run_name(request)]
    ]


def _there(out: Path, name: str) -> str | None:
    return THERE if raw_captures.is_there(out, name) else None


@dataclasses.dataclass
class Session:
    """``until_s`` on ``clock`` is when everything must have ended."""

    run: Runner
    until_s: float
    limit_s: float  # of one capture, at most
    clock: Callable[[], float] = time.monotonic
    estimates: Estimates = dataclasses.field(default_factory=Estimates)
    faults: Counter[str] = dataclasses.field(default_factory=Counter)

    def left_s(self) -> float:
        """Seconds until then."""
        return self.until_s - self.clock()

    def outcomes(self, planned: Sequence[Planned]) -> Iterator[Outcome]:
        """One of each capture that is not skipped, in the order of the plan, when it ended."""
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
