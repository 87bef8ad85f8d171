"""The verdicts of a report, and the way between the steps of any two runs of a group."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Sequence

from lstmprof.diagnose import diagnosis
from lstmprof.diagnose.diagnosis import Diagnosis
from lstmprof.diagnose.step_profile import Case
from lstmprof.diagnose.waterfall import lengths, timed, waterfall
from lstmprof.numbers import with_short_names
from lstmprof.report.model import Cause, Group, Pair, Verdict
from lstmprof.report.runs import Known

#: Findings with a smaller share are left to ``lstmprof diagnose --format json``.
LEAST_SHARE = 0.01
#: Of a group with more pairs only those with its fastest run are drawn.
MOST_PAIRS = 800


def verdicts(
    known: Sequence[Known], groups: Sequence[Group], across: Collection[str] = ()
) -> tuple[Verdict, ...]:
    """Each run against the fastest of its group, one that has no other alone."""
    found = []
    for group in groups:
        fast, *slower = _by_length(known, group)
        made = [diagnosis.compare(fast, slow, across) for slow in slower] or [diagnosis.alone(fast)]
        found += [_verdict(group, one) for one in made]
    return tuple(found)


def _by_length(known: Sequence[Known], group: Group) -> list[Case]:
    cases = [one.case for one in known if one.case and one.run in group.runs]
    return sorted(cases, key=lambda case: case.length_ns)


def _verdict(group: Group, made: Diagnosis) -> Verdict:
    told = [e for e in made.findings if abs(e.finding.share or 0) >= LEAST_SHARE]
    names = [row["name"] for case in (made.fast, made.slow) if case for row in case.rows("kernels")]

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


def pairs(known: Sequence[Known], groups: Sequence[Group]) -> tuple[Pair, ...]:
    """Every two runs of a group, ``MOST_PAIRS`` allowing, the largest difference first."""
    found = []
    for group in groups:
        of_group = []
        cases = _by_length(known, group)
        every = math.comb(len(cases), 2) <= MOST_PAIRS
        for one, other in itertools.combinations(cases, 2) if every else _with(cases):
            ends = lengths(one, other)
            fast, slow = (one, other) if ends[0] <= ends[1] else (other, one)
            of_group.append(_pair(group, fast, slow))
        found += sorted(of_group, key=lambda pair: pair.fast_ns - pair.slow_ns)
    return tuple(found)


def _with(cases: Sequence[Case]) -> Iterator[tuple[Case, Case]]:
    """The first of ``cases`` with each of the others."""
    yield from ((cases[0], other) for other in cases[1:])


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
        fast_steps=fast.steps,
        slow_steps=slow.steps,
    )
