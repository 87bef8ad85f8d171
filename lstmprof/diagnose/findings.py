"""How two steps differ: part by part (the waterfall), and by what bounds them (the findings).

Both sum to the difference of the steps' ``lengths``, exact to the nanosecond.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from lstmprof.diagnose import causes, profiler_overhead
from lstmprof.diagnose.counts import EVIDENCE, QUANTITIES
from lstmprof.diagnose.step_profile import Contributor, Spent, StepProfile, by_name, total_ns

#: Kernels or ops that stand as evidence of a finding.
LARGEST = 3
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
    differences = [Difference(*p, fast.parts.get(p, 0), slow.parts.get(p, 0)) for p in parts]
    ends = lengths(fast, slow)
    if timed(fast, slow):
        effects = (
            end - profile.profiled_ns for end, profile in zip(ends, (fast, slow), strict=True)
        )
        differences.append(Difference("", PROFILER, *effects))
    return sorted(differences, key=lambda d: (-abs(d.delta_ns), d.state, d.part))


@dataclass(frozen=True)
class Change:
    """One count in both steps; None is unknown, ``fast`` also where a run is diagnosed alone."""

    quantity: str
    fast: float | None
    slow: float | None


@dataclass(frozen=True)
class Culprit:
    """One op, kernel or range of a finding: its time and calls in both mean steps."""

    name: str
    fast_ns: int
    slow_ns: int
    fast_count: float
    slow_count: float

    @property
    def delta_ns(self) -> int:
        """What it adds to the slow step."""
        return self.slow_ns - self.fast_ns


@dataclass(frozen=True)
class Finding:
    """What one kind adds to the slow step; of a run alone (``fast`` None) what it takes of it.

    ``share`` of the difference, or of the step; None where that is 0. ``contributors`` are those of
    the slow step.
    """

    kind: str
    fast_ns: int
    slow_ns: int
    share: float | None
    changes: tuple[Change, ...]
    largest: tuple[Culprit, ...]
    slow: StepProfile
    fast: StepProfile | None
    contributors: tuple[Contributor, ...]

    @property
    def delta_ns(self) -> int:
        """What the kind adds to the slow step."""
        return self.slow_ns - self.fast_ns

    def change(self, quantity: str) -> Change | None:
        """The change of this quantity, None where it is no evidence here."""
        return next((c for c in self.changes if c.quantity == quantity), None)

    @property
    def repeated(self) -> Culprit | None:
        """The largest that the same implementation calls half as often again as in the fast run."""
        name = self.slow.implementation
        if self.fast is None or name is None or self.fast.implementation != name:
            return None
        grown = (c for c in self.largest if c.slow_count > 1.5 * c.fast_count)
        return next((c for c in grown if c.delta_ns > 0), None)


def findings(fast: StepProfile | None, slow: StepProfile) -> list[Finding]:
    """One finding a kind that has time in either step, the one that adds most first.

    They sum to the difference of the steps' ``lengths``; of a run alone (``fast`` None)
    to its profiled step. Where both were timed they are of the undisturbed steps, and what
    profiling changed is of kind ``profiler`` (``profiler_overhead.spent``).
    """
    comparison = causes.comparison_of(slow)
    of_slow = causes.by_kind(slow, comparison)
    of_fast = causes.by_kind(fast, comparison) if fast else {kind: [] for kind in causes.KINDS}
    if fast is not None and timed(fast, slow):
        fast_ns, slow_ns = profiler_overhead.spent(fast, slow, of_fast, of_slow)
    else:
        fast_ns, slow_ns = _spent(of_fast), _spent(of_slow)
    whole = slow_ns.total() - fast_ns.total()
    rows = [
        Finding(
            kind,
            fast_ns[kind],
            slow_ns[kind],
            share=(slow_ns[kind] - fast_ns[kind]) / whole if whole else None,
            changes=_changes(kind, fast, slow),
            largest=_largest(of_fast[kind], of_slow[kind]),
            slow=slow,
            fast=fast,
            contributors=tuple(of_slow[kind]),
        )
        for kind in causes.KINDS
        if of_fast[kind] or of_slow[kind] or fast_ns[kind] or slow_ns[kind]
    ]
    return sorted(rows, key=lambda f: (-f.delta_ns, f.kind))


def _spent(contributors: Mapping[str, list[Contributor]]) -> Counter[str]:
    return Counter({kind: total_ns(some) for kind, some in contributors.items()})


def _changes(kind: str, fast: StepProfile | None, slow: StepProfile) -> tuple[Change, ...]:
    changes = (
        Change(name, QUANTITIES[name].of(fast) if fast else None, QUANTITIES[name].of(slow))
        for name in EVIDENCE[kind]
    )
    return tuple(change for change in changes if change.slow is not None)


def _largest(fast: list[Contributor], slow: list[Contributor]) -> tuple[Culprit, ...]:
    """What adds most, by name."""
    of_fast, of_slow = by_name(fast), by_name(slow)
    culprits = [
        Culprit(name, *_both(of_fast, of_slow, name))
        for name in dict.fromkeys([*of_slow, *of_fast])
    ]
    by_delta = sorted(culprits, key=lambda c: (-abs(c.delta_ns), c.name))
    return tuple(c for c in by_delta[:LARGEST] if c.delta_ns)


def _both(fast: Spent, slow: Spent, name: str) -> tuple[int, int, float, float]:
    """(fast ns, slow ns, fast calls, slow calls)."""
    (fast_ns, fast_count), (slow_ns, slow_count) = (s.get(name, (0, 0.0)) for s in (fast, slow))
    return fast_ns, slow_ns, fast_count, slow_count
