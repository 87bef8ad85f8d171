"""Choose the run with which each of several runs is compared."""

from __future__ import annotations

from collections.abc import Sequence

from lstmprof.diagnose.step_profile import StepProfile


def against_fastest(profiles: Sequence[StepProfile]) -> list[tuple[StepProfile, StepProfile]]:
    """Return each of ``profiles`` but the fastest after the fastest, by length."""
    ordered = sorted(profiles, key=lambda profile: profile.length_ns)
    return [(ordered[0], other) for other in ordered[1:]]
