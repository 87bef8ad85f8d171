"""What came of an implementation that is advised, where it was measured beside the slow run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lstmprof.diagnose.certainty.pair import no_difference
from lstmprof.diagnose.findings import lengths
from lstmprof.diagnose.remedies import Advice
from lstmprof.diagnose.step_profile import StepProfile


def worth(advice: Advice, slow: StepProfile, beside: Sequence[StepProfile]) -> Advice | None:
    """``advice`` with the time that it took ``beside`` the slow run, where that was less for sure.

    None where it was not; as it is where what it advises to use instead was not measured.
    """
    name = advice.implementation
    others = [profile for profile in beside if profile.implementation == name is not None]
    if not others:
        return advice
    for other in sorted(others, key=lambda profile: profile.length_ns):
        other_ns, slow_ns = lengths(other, slow)
        if other_ns < slow_ns and not no_difference(other, slow):
            return replace(advice, measured_ns=other_ns, gain_ns=slow_ns - other_ns)
    return None
