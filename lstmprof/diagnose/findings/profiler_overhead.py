"""From the profiled steps to the undisturbed ones: what of each contributor is the profiler's.

What recording took of each, and what other processes did, was found with the account of the
undisturbed step (``breakdown.undisturbed``): a run alone and two compared give it up alike. What
the profiled steps differ by beyond that is of kind ``profiler``: so all kinds still sum to the
undisturbed steps. Where the profiled steps differ by more than the undisturbed ones, what was done
as often in both and took longer in one is the first to be doubted: it is taken off, up to what
there is too much.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from lstmprof.diagnose.causes import PROFILER
from lstmprof.diagnose.step_profile import Contributor, StepProfile, by_name, total_ns

#: Calls in one step against the other: closer than this, an op is called as often.
AS_OFTEN = 0.1

Kinds = Mapping[str, list[Contributor]]


def unrecorded(profile: StepProfile) -> StepProfile:
    """``profile``, of which recording and others took no time; none has more than the step.

    It was timed.
    """
    return replace(
        profile,
        contributors=tuple(
            replace(c, ns=min(c.ns - c.disturbed_ns, profile.length_ns), disturbed_ns=0)
            for c in profile.contributors
        ),
    )


def spent(
    fast: StepProfile, slow: StepProfile, of_fast: Kinds, of_slow: Kinds
) -> tuple[Counter[str], ...]:
    """(fast, slow) kind → ns of the undisturbed steps; both were timed.

    ``of_fast`` and ``of_slow`` are the contributors of both ``unrecorded``.
    """
    fast_ns, fast_rest = _settled(fast, of_fast)
    slow_ns, slow_rest = _settled(slow, of_slow)
    for kind, ns in _doubted(slow_rest - fast_rest, of_fast, of_slow).items():
        slow_ns[kind] -= ns
        slow_ns[PROFILER] += ns
    return fast_ns, slow_ns


def spent_alone(profile: StepProfile, contributors: Kinds) -> Counter[str]:
    """Kind → ns of the undisturbed step of a run that was timed; as ``spent``."""
    return _settled(profile, contributors)[0]


def _settled(profile: StepProfile, contributors: Kinds) -> tuple[Counter[str], int]:
    """Kind → ns; and what the undisturbed step has over these."""
    kinds_ns = Counter({kind: total_ns(some) for kind, some in contributors.items()})
    rest = profile.length_ns - kinds_ns.total()
    kinds_ns[PROFILER] += rest
    return kinds_ns, rest


def _doubted(rest_ns: int, of_fast: Kinds, of_slow: Kinds) -> dict[str, int]:
    """Kind → ns of what was done as often, of the other sign than ``rest_ns`` and no more."""
    changed = {kind: _unchanged_work(of_fast[kind], of_slow[kind]) for kind in of_slow}
    against = {kind: ns for kind, ns in changed.items() if ns * rest_ns < 0}
    left, doubted = -rest_ns, {}
    for kind, ns in sorted(against.items(), key=lambda pair: -abs(pair[1])):
        doubted[kind] = min(ns, left, key=abs)
        left -= doubted[kind]
    return doubted


def _unchanged_work(fast: list[Contributor], slow: list[Contributor]) -> int:
    """What work that both steps do as often takes longer in the slow one."""
    of_fast, of_slow = (
        by_name(c for c in some if c.state == "busy" and not c.tiny) for some in (fast, slow)
    )
    pairs = [(of_fast[name], of_slow[name]) for name in of_fast.keys() & of_slow.keys()]
    return sum(
        slow_ns - fast_ns
        for (fast_ns, fast_calls), (slow_ns, slow_calls) in pairs
        if abs(slow_calls - fast_calls) <= AS_OFTEN * fast_calls
    )
