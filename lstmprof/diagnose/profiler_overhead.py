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
from lstmprof.diagnose.step_profile import Case, Item, total_ns

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

Kinds = Mapping[str, list[Item]]


def spent(fast: Case, slow: Case, of_fast: Kinds, of_slow: Kinds) -> tuple[Counter[str], ...]:
    """(fast, slow) kind → ns of the undisturbed steps; both were timed."""
    fast_ns, fast_rest = _settled(fast, of_fast, recording_ns(fast, slow))
    slow_ns, slow_rest = _settled(slow, of_slow, recording_ns(slow, fast))
    for kind, ns in _doubted(slow_rest - fast_rest, of_fast, of_slow).items():
        slow_ns[kind] -= ns
        slow_ns[PROFILER] += ns
    return fast_ns, slow_ns


def _settled(case: Case, items: Kinds, each_ns: float) -> tuple[Counter[str], int]:
    """Kind → ns without recording; and what the undisturbed step has over these."""
    recorded = {kind: recording(some, case, each_ns) for kind, some in items.items()}
    found = Counter({kind: total_ns(some) - recorded[kind] for kind, some in items.items()})
    rest = case.length_ns - found.total()
    found[PROFILER] += rest
    return found, rest


def recording_ns(case: Case, *others: Case) -> float:
    """Nanoseconds of recording one op of ``case``: its profiler's, or less where that cannot be.

    What the profiled steps of a run are longer by, shared by their ops, holds the recording and
    whatever else the profile or another process disturbed: a bound from above. A run whose
    profiled steps are no longer was disturbed while it was timed, and bounds nothing.
    """
    known_ns = QUICK_RECORDING_NS.get(str(case.facts.get("profiler")), RECORDING_NS)
    bounds = [_inflation_ns(one) for one in (case, *others)]
    return min([known_ns, *(each for each in bounds if each > 0)])


def _inflation_ns(case: Case) -> float:
    """What a profiled step is longer by than an undisturbed one, an op; 0 unknown."""
    ops = sum(item.count for item in _recorded(case.items))
    if case.device is not None or not ops:
        return 0.0
    return (case.profiled_ns - case.length_ns) / ops


def recording(items: Iterable[Item], case: Case, each_ns: float) -> int:
    """Nanoseconds of the ops among ``items``, and before them, in which these were recorded.

    On a host's own lane; on a device none, where it is not known what recording delayed.
    """
    if case.device is not None:
        return 0
    ops = _recorded(items)
    return min(int(sum(item.count for item in ops) * each_ns), total_ns(ops))


def _recorded(items: Iterable[Item]) -> list[Item]:
    """The ops among ``items``, and the way into ops."""
    return [i for i in items if i.name is not None and (i.before or i.part != "python")]


def _doubted(rest_ns: int, of_fast: Kinds, of_slow: Kinds) -> dict[str, int]:
    """Kind → ns of what was done as often, of the other sign than ``rest_ns`` and no more."""
    changed = {kind: _unchanged_work(of_fast[kind], of_slow[kind]) for kind in of_slow}
    against = {kind: ns for kind, ns in changed.items() if ns * rest_ns < 0}
    left, found = -rest_ns, {}
    for kind, ns in sorted(against.items(), key=lambda pair: -abs(pair[1])):
        found[kind] = min(ns, left, key=abs)
        left -= found[kind]
    return found


def _unchanged_work(fast: list[Item], slow: list[Item]) -> int:
    """What work that both steps do as often takes longer in the slow one."""
    both = [_by_name(some) for some in (fast, slow)]
    return sum(
        both[1][name][0] - both[0][name][0]
        for name in both[0].keys() & both[1].keys()
        if abs(both[1][name][1] - both[0][name][1]) <= AS_OFTEN * both[0][name][1]
    )


def _by_name(items: list[Item]) -> dict[str, tuple[int, float]]:
    """Name → (ns, calls) of the busy items that are no mere calls."""
    found: dict[str, tuple[int, float]] = {}
    for item in items:
        if item.state == "busy" and item.name is not None and not item.short:
            ns, calls = found.get(item.name, (0, 0.0))
            found[item.name] = (ns + item.ns, calls + item.count)
    return found
