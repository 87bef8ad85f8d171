"""From the profiled steps to the undisturbed ones: what of each kind is the profiler's.

Two things are taken from the kinds and given to ``profiler``, so that all still sum to the
undisturbed steps. Recording an op takes a known time. And where the profiled steps differ by more
than the undisturbed ones, what was done as often in both and took longer in one is the first to be
doubted: it is taken off, up to what there is too much.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from lstmprof.diagnose.causes import PROFILER
from lstmprof.diagnose.step_profile import Contributor, StepProfile, by_name, total_ns

#: Of recording one op, where the runs do not show less. Measured on an EPYC (torch 2.13,
#: torch.profiler): 20,000 calls of ``.item()``, two ops each, take 2.5 ms undisturbed and 9.7 ms
#: profiled.
RECORDING_NS = 180
#: Profiler → the same where it takes less. Measured on that EPYC: a jitted product of one element
#: takes 3.2 µs undisturbed and 4.8 µs profiled, 14 events (jax 0.10); an eager one in TensorFlow
#: 5.2 µs and 5.7 µs, 8 events (2.21).
QUICK_RECORDING_NS = {"jax.profiler": 119, "tf.profiler": 69}
#: Calls in one step against the other: closer than this, an op is called as often.
AS_OFTEN = 0.1

Kinds = Mapping[str, list[Contributor]]


def spent(
    fast: StepProfile, slow: StepProfile, of_fast: Kinds, of_slow: Kinds
) -> tuple[Counter[str], ...]:
    """(fast, slow) kind → ns of the undisturbed steps; both were timed."""
    fast_ns, fast_rest = _settled(fast, of_fast, recording_ns(fast, slow))
    slow_ns, slow_rest = _settled(slow, of_slow, recording_ns(slow, fast))
    for kind, ns in _doubted(slow_rest - fast_rest, of_fast, of_slow).items():
        slow_ns[kind] -= ns
        slow_ns[PROFILER] += ns
    return fast_ns, slow_ns


def _settled(profile: StepProfile, contributors: Kinds, each_ns: float) -> tuple[Counter[str], int]:
    """Kind → ns without recording; and what the undisturbed step has over these."""
    recorded = {kind: recording(some, profile, each_ns) for kind, some in contributors.items()}
    kinds_ns = Counter(
        {kind: total_ns(some) - recorded[kind] for kind, some in contributors.items()}
    )
    rest = profile.length_ns - kinds_ns.total()
    kinds_ns[PROFILER] += rest
    return kinds_ns, rest


def recording_ns(profile: StepProfile, *others: StepProfile) -> float:
    """Nanoseconds of recording one op of ``profile``: its profiler's, or less where that cannot be.

    What the profiled steps of a run are longer by, shared by their ops, holds the recording and
    whatever else the profile or another process disturbed: a bound from above. A run whose
    profiled steps are no longer was disturbed while it was timed, and bounds nothing.
    """
    usual_ns = QUICK_RECORDING_NS.get(str(profile.info.profiler), RECORDING_NS)
    bounds = [_inflation_ns(run) for run in (profile, *others)]
    return min([usual_ns, *(each for each in bounds if each > 0)])


def _inflation_ns(profile: StepProfile) -> float:
    """What a profiled step is longer by than an undisturbed one, an op; 0 unknown."""
    ops = sum(contributor.count for contributor in _recorded(profile.contributors))
    if profile.device is not None or not ops:
        return 0.0
    return (profile.profiled_ns - profile.length_ns) / ops


def recording(contributors: Iterable[Contributor], profile: StepProfile, each_ns: float) -> int:
    """Nanoseconds of the ops among ``contributors``, and before them, in which these were recorded.

    On a host's own lane; on a device none, where it is not known what recording delayed.
    """
    if profile.device is not None:
        return 0
    ops = _recorded(contributors)
    return min(int(sum(contributor.count for contributor in ops) * each_ns), total_ns(ops))


def _recorded(contributors: Iterable[Contributor]) -> list[Contributor]:
    """The ops among ``contributors``, and the way into ops."""
    return [
        i for i in contributors if i.name is not None and (i.call_overhead or i.part != "python")
    ]


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
