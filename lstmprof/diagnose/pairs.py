"""Which run each of several is held against."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lstmprof.diagnose.certainty.noise import in_turn
from lstmprof.diagnose.certainty.sure import no_difference
from lstmprof.diagnose.findings import lengths
from lstmprof.diagnose.step_profile import StepProfile


def held_against(profiles: Sequence[StepProfile]) -> list[tuple[StepProfile, StepProfile]]:
    """Every one of ``profiles`` but one after what it is held against; by one measure, by length.

    That is the fastest. Of it and those that cannot be told from it the one whose rounds took turns
    with most stands for it, and for a run that took turns with others of them the fastest of these:
    runs that took turns are compared best.
    """
    ordered = sorted(profiles, key=lambda profile: profile.length_ns)
    alike = _alike(ordered[0], ordered)
    base = max(alike, key=lambda profile: _partners(profile, profiles))
    alike = [base, *_alike(base, (p for p in alike if p is not base))]
    others = (profile for profile in ordered if profile is not base)
    return [(next((p for p in alike if _partners(p, [o])), base), o) for o in others]


def _alike(fast: StepProfile, others: Iterable[StepProfile]) -> list[StepProfile]:
    return [p for p in others if p is fast or no_difference(*_by_length(fast, p))]


def _by_length(first: StepProfile, second: StepProfile) -> tuple[StepProfile, StepProfile]:
    ends = lengths(first, second)
    return (first, second) if ends[0] <= ends[1] else (second, first)


def _partners(profile: StepProfile, others: Sequence[StepProfile]) -> int:
    return sum(in_turn(profile, other) for other in others if other is not profile)
