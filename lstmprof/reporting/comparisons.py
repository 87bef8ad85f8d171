"""The verdicts of a report, and the way between the steps of any two runs of a group."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from lstmprof.diagnose import diagnosis
from lstmprof.diagnose.case import Case
from lstmprof.diagnose.diagnosis import Diagnosis
from lstmprof.diagnose.waterfall import lengths, timed, waterfall
from lstmprof.report.rows import Cause, Group, Pair, Verdict
from lstmprof.reporting.runs import Known

#: Findings with a smaller share are left to ``lstmprof diagnose --format json``.
LEAST_SHARE = 0.01


def verdicts(known: Sequence[Known], groups: Sequence[Group]) -> tuple[Verdict, ...]:
    """Each run against the fastest of its group, one that has no other alone."""
    found = []
    for group in groups:
        fast, *slower = _by_length(known, group)
        made = [diagnosis.compare(fast, slow) for slow in slower] or [diagnosis.alone(fast)]
        found += [_verdict(group, one) for one in made]
    return tuple(found)


def _by_length(known: Sequence[Known], group: Group) -> list[Case]:
    cases = [one.case for one in known if one.case and one.run in group.runs]
    return sorted(cases, key=lambda case: case.length_ns)


def _verdict(group: Group, made: Diagnosis) -> Verdict:
    told = [e for e in made.findings if abs(e.finding.share or 0) >= LEAST_SHARE]
    return Verdict(
        group=group.number,
        fast=made.fast.name if made.fast else None,
        slow=made.slow.name,
        sentence=made.sentence,
        causes=tuple(
            Cause(e.finding.kind, e.sentence, tuple((a.sentence, a.source) for a in e.remedies))
            for e in told
        ),
        warnings=made.warnings,
        notes=made.notes,
    )


def pairs(known: Sequence[Known], groups: Sequence[Group]) -> tuple[Pair, ...]:
    """Every two runs of a group, the largest difference of the first group first."""
    found = []
    for group in groups:
        of_group = []
        for one, other in itertools.combinations(_by_length(known, group), 2):
            ends = lengths(one, other)
            fast, slow = (one, other) if ends[0] <= ends[1] else (other, one)
            of_group.append(_pair(group, fast, slow))
        found += sorted(of_group, key=lambda pair: pair.fast_ns - pair.slow_ns)
    return tuple(found)


def _pair(group: Group, fast: Case, slow: Case) -> Pair:
    ends = lengths(fast, slow)
    return Pair(
        group=group.number,
        fast=fast.name,
        slow=slow.name,
        fast_ns=ends[0],
        slow_ns=ends[1],
        profiled=not timed(fast, slow),
        rows=tuple((d.state, d.part, d.fast_ns, d.slow_ns) for d in waterfall(fast, slow)),
    )
