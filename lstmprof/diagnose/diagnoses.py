"""Why runs are slow: each against a faster one or by itself, with its limits."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from lstmprof.breakdown import Breakdown
from lstmprof.diagnose.cases import case_of
from lstmprof.diagnose.comparable import comparable_groups
from lstmprof.diagnose.diagnosis import Diagnosis, alone, compare
from lstmprof.diagnose.limits import Asked, roofline_of, what_ifs_of
from lstmprof.diagnose.step_profile import Case

_NOTHING = Asked()
_NO_ROOFLINE = (
    "the peaks are held against nothing: what a step has to compute is known of runs that "
    "lstmprof captured only"
)


def diagnose(
    account: Breakdown,
    other: Breakdown | None = None,
    across: Collection[str] = (),
    asked: Asked = _NOTHING,
) -> Diagnosis:
    """Why the slower of two runs is slower; what ``account`` is bound by where there is no other.

    Raises:
        UsageError: the runs differ in a condition that ``across`` does not name; what is ``asked``
            cannot be told of this run.
        RunError: a profile has no events, or a file of a run is missing or damaged.
    """
    accounts = [account] if other is None else [account, other]
    return diagnose_all(accounts, across, asked, must_compare=True)[0]


def diagnose_all(
    accounts: Sequence[Breakdown],
    across: Collection[str] = (),
    asked: Asked = _NOTHING,
    *,
    must_compare: bool = False,
) -> list[Diagnosis]:
    """Each of ``accounts`` against the fastest that can be compared with it, by slowdown.

    One that has none to compare with is diagnosed alone; with ``must_compare`` all are held
    against the fastest of all.

    Raises:
        UsageError: ``must_compare``, and the runs differ in what ``across`` does not name; what is
            ``asked`` cannot be told of one of them.
        RunError: a profile has no events, or a file of a run is missing or damaged.
    """
    pairs = [(case_of(account), account) for account in accounts]
    cases = [case for case, _ in pairs]
    account_of = {id(case): account for case, account in pairs}
    made: list[Diagnosis] = []
    for group in [cases] if must_compare else comparable_groups(cases, across):
        fast, *slower = sorted(group, key=_length_ns)
        made += [compare(fast, slow, across) for slow in slower] or [alone(fast)]
    return [_with_limits(one, cases, account_of[id(one.slow)], asked) for one in made]


def _length_ns(case: Case) -> int:
    return case.length_ns


def _with_limits(
    one: Diagnosis, cases: Sequence[Case], account: Breakdown, asked: Asked
) -> Diagnosis:
    """``one`` with the roofline of its slow run and what was asked for."""
    limit = roofline_of(one.slow, cases, asked.peaks)
    what_ifs = what_ifs_of(account, one.slow, limit, asked)
    notes = one.notes if limit or not asked.peaks else (*one.notes, _NO_ROOFLINE)
    return replace(one, roofline=limit, what_ifs=what_ifs, notes=notes)
