"""Calls that two runs make equally often and that take longer in one of them.

The same calls are ops (on a device its activities) of one name and number in two runs of one
implementation, workload and precision. If each takes half as long again, their number is not the
cause: something else differs, and ``reasons`` may find it.
"""

from __future__ import annotations

from dataclasses import replace

from lstmprof.diagnose.findings.reasons import reason
from lstmprof.diagnose.step_profile import Contributor, Spent, StepProfile, by_name
from lstmprof.events.threads import ASKS
from lstmprof.numbers import cropped, quantity

#: A call is slower if it takes at least this many times as long in the slow run.
LONGER = 1.5
#: Calls per step that differ by a smaller share count as equal in number.
AS_MANY = 0.02


def marked(fast: StepProfile, slow: StepProfile) -> tuple[StepProfile, StepProfile]:
    """Return both profiles with their slower calls marked."""
    names = slower_names(fast, slow)
    return _marked(fast, names), _marked(slow, names)


def _marked(profile: StepProfile, names: frozenset[str]) -> StepProfile:
    marks = (
        replace(c, slower=_is_call(c, profile) and c.name in names) for c in profile.contributors
    )
    return replace(profile, contributors=tuple(marks))


def slower_names(fast: StepProfile, slow: StepProfile) -> frozenset[str]:
    """Return the names of calls that both runs make, each ``LONGER`` times as long in ``slow``."""
    if not _alike(fast, slow):
        return frozenset()
    of_fast, of_slow = calls(fast), calls(slow)
    ranges = {row["name"] for profile in (fast, slow) for row in profile.rows("ranges")}
    names = (of_fast.keys() & of_slow.keys()) - ranges  # between a range's ops is no call
    return frozenset(name for name in names if _is_longer(of_fast[name], of_slow[name]))


def _alike(fast: StepProfile, slow: StepProfile) -> bool:
    """Return whether calls of one name certainly do the same in both runs; False for foreign
    profiles.
    """
    first, second = fast.info, slow.info
    on_one_kind = (fast.device is None) == (slow.device is None)
    return (
        on_one_kind
        and first.implementation is not None
        and all(
            getattr(first, fact) == getattr(second, fact)
            for fact in ("implementation", "framework", "workload", "precision", "tf32", "mode")
        )
    )


def _is_longer(fast: tuple[int, float], slow: tuple[int, float]) -> bool:
    (fast_ns, fast_count), (slow_ns, slow_count) = fast, slow
    as_many = fast_count > 0 and abs(slow_count - fast_count) <= AS_MANY * fast_count
    return as_many and fast_ns > 0 and slow_ns / slow_count >= LONGER * fast_ns / fast_count


def calls(profile: StepProfile) -> Spent:
    """Name → (ns, calls) of the work that is called."""
    return by_name(c for c in profile.contributors if _is_call(c, profile))


def _is_call(contributor: Contributor, profile: StepProfile) -> bool:
    """Return whether it is called work: no wait of a device, no Python, no value read."""
    c = contributor
    if c.name is None or c.name in ASKS or c.compiling or c.part == "collective":
        return False
    arranges = profile.device is None and (c.part == "dispatch" or c.call_overhead)
    return c.state == "busy" or (c.state == "idle" and arranges)


def because(fast: StepProfile, slow: StepProfile) -> str:
    """Return which marked call adds most, its time in both runs, and the reason."""
    of_fast, of_slow = (by_name(c for c in run.contributors if c.slower) for run in (fast, slow))
    common = of_fast.keys() & of_slow.keys()
    added = {name: of_slow[name][0] - of_fast[name][0] for name in common if of_slow[name][1]}
    if not added:
        return ""
    most = max(sorted(added), key=added.__getitem__)
    each = [quantity(ns / number, "ns") for ns, number in (of_slow[most], of_fast[most])]
    takes = f"{cropped(most)} takes {each[0]} per call (baseline: {each[1]})"
    return f"{takes}; {reason(fast, slow).text}"
