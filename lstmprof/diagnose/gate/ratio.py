"""How many times as long a step of the new run takes, and all that this may be.

Each end is what a diagnosis would still call a difference: the ratio less the noise of the two
steps (never less than ``EQUAL_SHARE``) and the largest doubt (``sure.least_ratio``). For the
upper end the two change places.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from lstmprof.diagnose.certainty.noise import EQUAL_SHARE, error_of_step, noise_ns
from lstmprof.diagnose.certainty.sure import least_ratio
from lstmprof.diagnose.findings import lengths
from lstmprof.diagnose.step_profile import StepProfile


@dataclass(frozen=True)
class Span:
    """A number, and the least and the most that it may be; ``high`` None: without an end."""

    low: float
    value: float
    high: float | None


def ratio_of(base: StepProfile, new: StepProfile) -> Span:
    """A step of ``new`` over one of ``base``, both by one measure and of some length."""
    base_ns, new_ns = lengths(base, new)
    most = least_ratio(new, base)
    return Span(least_ratio(base, new), new_ns / base_ns, 1 / most if most > 0 else None)


def inverse(span: Span) -> Span:
    """One over ``span``."""
    low = 0.0 if span.high is None else 1 / span.high
    return Span(low, 1 / span.value, 1 / span.low if span.low > 0 else None)


def certain_noise_ns(fast: StepProfile, slow: StepProfile) -> float:
    """By how much of a step of ``slow`` the two may differ by chance."""
    equal_ns = lengths(fast, slow)[1] * EQUAL_SHARE / (1 + EQUAL_SHARE)
    return max(noise_ns(fast, slow), equal_ns)


def interval_of(profile: StepProfile) -> Span:
    """The length of its own step in nanoseconds, with its 95 % interval."""
    timed = profile.step_ns is not None
    length = float(profile.length_ns)
    low, high = (
        length * math.exp(sign * error_of_step(profile, timed, upper=sign > 0)) for sign in (-1, 1)
    )
    return Span(low, length, high)


def step_of(profile: StepProfile) -> Span:
    """The same, with the largest doubt about it."""
    span = interval_of(profile)
    doubt_ns = span.value * max((d.size or 0.0 for d in profile.doubts), default=0.0)
    return Span(max(span.low - doubt_ns, 0.0), span.value, (span.high or 0.0) + doubt_ns)
