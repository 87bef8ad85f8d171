"""The pairs of base and new runs that the gate compares.

Two runs form a pair if they have the same name, else the same implementation and label, else the
same implementation. In each case workload, precision, mode, device, threads and seed must agree. A
single base run and a single new run always form a pair. A run with no or several candidates has no
pair.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Sequence

from lstmprof import names
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.runs.metadata import condition

Pair = tuple[StepProfile, StepProfile]
_Key = Callable[[StepProfile], Hashable]


def paired(
    base: Sequence[StepProfile], new: Sequence[StepProfile], across: Collection[str] = ()
) -> tuple[list[Pair], list[StepProfile], list[StepProfile]]:
    """Return the pairs in the order of ``base``, then the base and new runs without a pair."""
    if len(base) == len(new) == 1:
        return [(base[0], new[0])], [], []
    pairs: list[Pair] = []
    left = [list(base), list(new)]
    for key in _keys(across):
        counts = [Counter(map(key, side)) for side in left]
        of_new = {key(profile): profile for profile in left[1]}
        once = {k for k, uses in counts[0].items() if uses == 1 == counts[1][k]}
        pairs += [(p, of_new[key(p)]) for p in left[0] if key(p) in once]
        left = [[p for p in side if key(p) not in once] for side in left]
    places = {id(profile): place for place, profile in enumerate(base)}
    return sorted(pairs, key=lambda pair: places[id(pair[0])]), left[0], left[1]


def _keys(across: Collection[str]) -> Sequence[_Key]:
    """Return functions whose results must agree for two runs to form a pair, strictest first."""

    def conditions(profile: StepProfile) -> Hashable:
        agreeing = (name for name in names.CONDITIONS if name not in across)
        return tuple(str(condition(name, profile.info)) for name in agreeing)

    return (
        lambda p: (p.implementation, p.name, conditions(p)),
        lambda p: (p.implementation or p.name, p.info.label, conditions(p)),
        lambda p: (p.implementation or p.name, conditions(p)),
    )
