"""Why runs are slow: each against a faster one or by itself, with its limits."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from lstmprof.breakdown import Breakdown
from lstmprof.diagnose.comparable import comparable_groups
from lstmprof.diagnose.diagnosis import Diagnosis, alone, compare
from lstmprof.diagnose.limits import Asked, roofline_of, what_ifs_of
from lstmprof.diagnose.step_profile import StepProfile, step_profile_of

_NOTHING = Asked()
_NO_ROOFLINE = (
    "the peaks are held against nothing: what a step has to compute is known of runs that "
    "lstmprof captured only"
)


def diagnose(
    breakdown: Breakdown,
    other: Breakdown | None = None,
    across: Collection[str] = (),
    asked: Asked = _NOTHING,
) -> Diagnosis:
    """Why the slower of two runs is slower; what ``breakdown`` is bound by where there is no other.

    Raises:
        UsageError: the runs differ in a condition that ``across`` does not name; what is ``asked``
            cannot be told of this run.
        RunError: a profile has no events, or a file of a run is missing or damaged.
    """
    breakdowns = [breakdown] if other is None else [breakdown, other]
    return diagnose_all(breakdowns, across, asked, must_compare=True)[0]


def diagnose_all(
    breakdowns: Sequence[Breakdown],
    across: Collection[str] = (),
    asked: Asked = _NOTHING,
    *,
    must_compare: bool = False,
) -> list[Diagnosis]:
    """Each of ``breakdowns`` against the fastest that can be compared with it, by slowdown.

    One that has none to compare with is diagnosed alone; with ``must_compare`` all are held
    against the fastest of all.

    Raises:
        UsageError: ``must_compare``, and the runs differ in what ``across`` does not name; what is
            ``asked`` cannot be told of one of them.
        RunError: a profile has no events, or a file of a run is missing or damaged.
    """
    pairs = [(step_profile_of(breakdown), breakdown) for breakdown in breakdowns]
    profiles = [profile for profile, _ in pairs]
    breakdown_of = {id(profile): breakdown for profile, breakdown in pairs}
    made: list[Diagnosis] = []
    for group in [profiles] if must_compare else comparable_groups(profiles, across):
        fast, *slower = sorted(group, key=_length_ns)
        made += [compare(fast, slow, across) for slow in slower] or [alone(fast)]
    return [_with_limits(one, profiles, breakdown_of[id(one.slow)], asked) for one in made]


def _length_ns(profile: StepProfile) -> int:
    return profile.length_ns


def _with_limits(
    one: Diagnosis, profiles: Sequence[StepProfile], breakdown: Breakdown, asked: Asked
) -> Diagnosis:
    """``one`` with the roofline of its slow run and what was asked for."""
    limit = roofline_of(one.slow, profiles, asked.peaks)
    what_ifs = what_ifs_of(breakdown, one.slow, limit, asked)
    notes = one.notes if limit or not asked.peaks else (*one.notes, _NO_ROOFLINE)
    return replace(one, roofline=limit, what_ifs=what_ifs, notes=notes)
