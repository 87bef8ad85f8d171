"""What of a difference between two steps is sure: at the most unfavourable end of all doubt.

The ratio of the steps may be too large by their noise (``noise``), by a doubt about one of them,
or by no more than the machine's speeds that were seen. What is left then is told whatever the
machine did: by itself where it is less than half of the difference.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from lstmprof.breakdown import doubts
from lstmprof.diagnose.certainty.noise import (
    EQUAL_SHARE,
    in_turn,
    noise_log,
    one_process,
    sameness,
    speeds_apart,
    took_turns,
)
from lstmprof.diagnose.findings import Finding, lengths, timed
from lstmprof.diagnose.step_profile import StepProfile, labels

#: Where less of a ratio is sure, in logarithms, what is sure is told instead of the ratio.
_SURE_SHARE = 0.5
#: That so little is sure is not worth telling where most is not.
_LEAST_SURE = 0.1


@dataclass(frozen=True)
class Doubt:
    """What may make a time longer by ``ns``; None unknown.

    Of a doubt about two steps ``log`` is by how much their ratio may be too large, a logarithm.
    """

    text: str
    remedy: str
    ns: float | None
    log: float = 0.0


def no_difference(fast: StepProfile, slow: StepProfile) -> bool:
    """Whether the two steps cannot be told apart."""
    if None in (fast.compared_by, slow.compared_by):
        return True
    return sameness(fast, slow) is not None and not is_told(fast, slow)


def least_ratio(fast: StepProfile, slow: StepProfile) -> float:
    """How many times as long a step of ``slow`` takes at the most unfavourable end.

    The ratio less noise (``EQUAL_SHARE`` at least) and the largest doubt; or, where that leaves
    more, less all speeds of the machine that were seen (``speeds_apart``). Infinite where a step of
    ``fast`` takes no time.
    """
    if lengths(fast, slow)[0] <= 0:
        return math.inf
    least, speeds = _least_by_noise(fast, slow), speeds_apart(fast, slow)
    if speeds is None:
        return least
    doubt = largest_doubt(fast, slow)
    return max(least, ratio(fast, slow) * math.exp(-max(speeds, doubt.log if doubt else 0.0)))


def told_by_speeds(fast: StepProfile, slow: StepProfile) -> bool:
    """Whether more is sure by the speeds of the machine that were seen than by the noise."""
    if speeds_apart(fast, slow) is None:
        return False
    return least_ratio(fast, slow) > max(_least_by_noise(fast, slow), 1.0)


def _least_by_noise(fast: StepProfile, slow: StepProfile) -> float:
    """The ratio less noise and the largest doubt."""
    doubt = largest_doubt(fast, slow)
    off = max(noise_log(fast, slow), math.log1p(EQUAL_SHARE)) + (doubt.log if doubt else 0.0)
    return ratio(fast, slow) * math.exp(-off)


def at_least(fast: StepProfile, slow: StepProfile) -> float | None:
    """The least ratio where, for what the machine did, less than half of the difference is sure.

    None where more is sure, or none at all.
    """
    if not timed(fast, slow) or _mostly_sure(fast, slow) or not is_told(fast, slow):
        return None
    return least_ratio(fast, slow)


def least_delta_ns(finding: Finding) -> int:
    """What a finding adds to the slow step at that end, where all of it takes as much less."""
    if finding.fast is None:
        return finding.delta_ns
    share = least_ratio(finding.fast, finding.slow) / ratio(finding.fast, finding.slow)
    return round(finding.slow_ns * share) - finding.fast_ns


def is_told(fast: StepProfile, slow: StepProfile) -> bool:
    """Whether ``slow`` takes longer at the most unfavourable end."""
    least = least_ratio(fast, slow)
    return least > 1 if _mostly_sure(fast, slow) else least >= 1 + _LEAST_SURE


def _mostly_sure(fast: StepProfile, slow: StepProfile) -> bool:
    """Whether no machine is in doubt, or half of the difference and more is sure all the same."""
    if sameness(fast, slow) is not None:
        return False
    doubt = largest_doubt(fast, slow)
    return doubt is None or least_ratio(fast, slow) >= ratio(fast, slow) ** _SURE_SHARE


def ratio(fast: StepProfile, slow: StepProfile) -> float:
    """How many times as long ``slow`` takes; infinite where a step of ``fast`` takes no time."""
    ends = lengths(fast, slow)
    return ends[1] / ends[0] if ends[0] > 0 else math.inf


def largest_doubt(fast: StepProfile, slow: StepProfile) -> Doubt | None:
    """What may have made ``slow`` longer by most; None where nothing of a known size may."""
    sized = reversed([d for d in doubts_of_times(fast, slow) if d.ns])
    return max(sized, key=lambda d: d.ns or 0.0, default=None)


def doubts_of_times(fast: StepProfile, slow: StepProfile) -> list[Doubt]:
    """What may have made the undisturbed steps differ without a cause in the code.

    That the fast run lost its CPU makes none: it would be faster still. What one process timed in
    turn saw the same machine, and so did rounds in turn; where every iteration took turns a change
    that one run alone shows is its own.
    """
    if not timed(fast, slow) or one_process(fast, slow):
        return []
    some = []
    rounds = (doubts.MACHINE, doubts.MODES, doubts.BUSY) if in_turn(fast, slow) else ()
    iterations = (doubts.DRIFT, doubts.STATE) if took_turns(fast, slow) else ()
    for label, profile in zip(labels(fast, slow), (fast, slow), strict=True):
        if profile.interval_ns is None:
            some.append(Doubt(f"{label}: too few iterations were timed", "more --iterations", None))
        for warning in profile.doubts:
            taken = warning.kind in (doubts.BUSY, doubts.CPU_TAKEN)
            passed = warning.kind in (doubts.INFLATION, *rounds, *iterations)
            if not passed and not (taken and profile is fast):
                log = _off(warning)
                ns = None if log is None else lengths(fast, slow)[1] * -math.expm1(-log)
                text = f"{label}: {warning.fault}"
                some.append(Doubt(text, warning.remedy, ns, log or 0.0))
    return some


def _off(warning: doubts.Warning) -> float | None:
    """By how much a step may be too long, in logarithms; None unknown.

    What took the CPU is a part of the step; a speed makes all of it longer.
    """
    if warning.size is None:
        return None
    if warning.kind in (doubts.BUSY, doubts.CPU_TAKEN):
        return -math.log1p(-warning.size) if warning.size < 1 else math.inf
    return math.log1p(warning.size)
