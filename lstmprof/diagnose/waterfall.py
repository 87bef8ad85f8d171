"""The way from the fast step to the slow one, part by part, exact to the nanosecond."""

from __future__ import annotations

from dataclasses import dataclass

from lstmprof.diagnose.step_profile import StepProfile

#: The part in which profiled steps differ from the undisturbed ones.
PROFILER = "the profiler's effect"


@dataclass(frozen=True)
class Difference:
    """One part of both mean steps; ``state`` is empty for the profiler's effect."""

    state: str
    part: str
    fast_ns: int
    slow_ns: int

    @property
    def delta_ns(self) -> int:
        """What the part adds to the slow step."""
        return self.slow_ns - self.fast_ns


def timed(fast: StepProfile, slow: StepProfile) -> bool:
    """Whether both have undisturbed steps, so that these are what is compared."""
    return fast.median_ns is not None and slow.median_ns is not None


def lengths(fast: StepProfile, slow: StepProfile) -> tuple[int, int]:
    """(fast, slow) lengths of a step in ns: undisturbed where both were timed, else profiled."""
    if timed(fast, slow):
        return fast.length_ns, slow.length_ns
    return fast.profiled_ns, slow.profiled_ns


def waterfall(fast: StepProfile, slow: StepProfile) -> list[Difference]:
    """One difference a part, the largest first; they sum to that of the ``lengths``.

    Where both runs were timed, what the undisturbed median has less than the mean profiled step
    (or more) is a part of its own.
    """
    parts = dict.fromkeys([*fast.parts, *slow.parts])
    found = [Difference(*p, fast.parts.get(p, 0), slow.parts.get(p, 0)) for p in parts]
    ends = lengths(fast, slow)
    if timed(fast, slow):
        effects = (
            end - profile.profiled_ns for end, profile in zip(ends, (fast, slow), strict=True)
        )
        found.append(Difference("", PROFILER, *effects))
    return sorted(found, key=lambda d: (-abs(d.delta_ns), d.state, d.part))
