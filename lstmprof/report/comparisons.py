"""The verdicts of a report, and the way between the steps of any two runs of a group."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Sequence

from lstmprof.diagnose import diagnosis
from lstmprof.diagnose.diagnosis import Diagnosis
from lstmprof.diagnose.findings import (
    lengths,
    timed,
    waterfall,
)
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.numbers import with_short_names
from lstmprof.report.model import Cause, Group, Pair, Verdict
from lstmprof.report.runs import RunReport

#: Findings with a smaller share are left to ``lstmprof diagnose --format json``.
LEAST_SHARE = 0.01
#: Of a group with more pairs only those with its fastest run are drawn.
MOST_PAIRS = 800


def verdicts(
    known: Sequence[RunReport], groups: Sequence[Group], across: Collection[str] = ()
) -> tuple[Verdict, ...]:
    """Each run against the fastest of its group, one that has no other alone."""
    found = []
    for group in groups:
        fast, *slower = _by_length(known, group)
        made = [diagnosis.compare(fast, slow, across) for slow in slower] or [diagnosis.alone(fast)]
        found += [_verdict(group, one) for one in made]
    return tuple(found)


def _by_length(known: Sequence[RunReport], group: Group) -> list[StepProfile]:
    profiles = [one.profile for one in known if one.profile and one.run in group.runs]
    return sorted(profiles, key=lambda profile: profile.length_ns)


def _verdict(group: Group, made: Diagnosis) -> Verdict:
    told = [e for e in made.findings if abs(e.finding.share or 0) >= LEAST_SHARE]
    names = [
        row["name"]
        for profile in (made.fast, made.slow)
        if profile
        for row in profile.rows("kernels")
    ]

    def short(text: str) -> str:
        return with_short_names(text, names)

    return Verdict(
        group=group.number,
        fast=made.fast.name if made.fast else None,
        slow=made.slow.name,
        sentence=short(made.sentence),
        causes=tuple(
            Cause(
                e.finding.kind,
                short(e.sentence),
                tuple((short(a.sentence), a.source) for a in e.remedies),
            )
            for e in told
        ),
        warnings=made.warnings,
        notes=made.notes,
    )


def pairs(known: Sequence[RunReport], groups: Sequence[Group]) -> tuple[Pair, ...]:
    """Every two runs of a group, ``MOST_PAIRS`` allowing, the largest difference first."""
    found = []
    for group in groups:
        of_group = []
        profiles = _by_length(known, group)
        every = math.comb(len(profiles), 2) <= MOST_PAIRS
        for one, other in itertools.combinations(profiles, 2) if every else _with(profiles):
            ends = lengths(one, other)
            fast, slow = (one, other) if ends[0] <= ends[1] else (other, one)
            of_group.append(_pair(group, fast, slow))
        found += sorted(of_group, key=lambda pair: pair.fast_ns - pair.slow_ns)
    return tuple(found)


def _with(profiles: Sequence[StepProfile]) -> Iterator[tuple[StepProfile, StepProfile]]:
    """The first of ``profiles`` with each of the others."""
    yield from ((profiles[0], other) for other in profiles[1:])


def _pair(group: Group, fast: StepProfile, slow: StepProfile) -> Pair:
    ends = lengths(fast, slow)
    return Pair(
        group=group.number,
        fast=fast.name,
        slow=slow.name,
        fast_ns=ends[0],
        slow_ns=ends[1],
        profiled=not timed(fast, slow),
        rows=tuple((d.state, d.part, d.fast_ns, d.slow_ns) for d in waterfall(fast, slow)),
        fast_steps=fast.steps,
        slow_steps=slow.steps,
    )
