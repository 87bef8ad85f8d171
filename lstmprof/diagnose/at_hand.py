"""Add the measured time of an advised implementation if it ran beside the slow run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lstmprof.diagnose.certainty.pair import no_difference
from lstmprof.diagnose.findings import lengths
from lstmprof.diagnose.remedies import Advice
from lstmprof.diagnose.step_profile import StepProfile


def worth(advice: Advice, slow: StepProfile, beside: Sequence[StepProfile]) -> Advice | None:
    """Return ``advice`` with the step of a run ``beside`` that follows it and is surely faster.

    Return None if such runs are there and none is faster. Return ``advice`` without a gain if there
    is no such run, or if the fastest may be faster by noise alone.
    """
    others = [p for p in beside if p.implementation == advice.implementation is not None]
    if not others:
        return advice
    other = min(others, key=lambda profile: profile.length_ns)
    other_ns, slow_ns = lengths(other, slow)
    if other_ns >= slow_ns:
        return None
    if no_difference(other, slow):
        return advice
    return replace(advice, measured_ns=other_ns, gain_ns=slow_ns - other_ns)
