"""Check the quality of a profile: what it contains, what it lacks, and what recording cost.

::

    breakdown ─ parts_of ─▶ counts and missing data per rank ─ QUESTIONS, in order ─▶ results
"""

from __future__ import annotations

from collections.abc import Sequence

from lstmprof.breakdown import Breakdown
from lstmprof.breakdown.check import document
from lstmprof.breakdown.check.document import FAIL, OK, WARN, Checked, Document, Row, State
from lstmprof.breakdown.check.questions import (
    QUESTIONS,
    Part,
    Question,
    is_counted,
    parts_of,
    state_of,
)
from lstmprof.breakdown.lacks import NOTE
from lstmprof.breakdown.lacks.advice import recipes_for
from lstmprof.breakdown.lacks.rules import RULES
from lstmprof.events.annotate import MEASURED

#: If only these checks are not ok, no recipe for a better profile is shown, because their data need
#: a second run, or cost time per op.
_COSTLY_CHECKS = ("profiler overhead", "stacks", "memory")
#: Exit status if a check fails, the same as that of ``lstmprof compare`` if a run fails the gate.
FAILED = 3
_RUN_KINDS = {rule.kind for rule in RULES if rule.of_run} | {NOTE}


def check(breakdowns: Sequence[Breakdown]) -> Document:
    """Check the profiles of ``breakdowns``, and return the results.

    Raises:
        RunError: the events are missing, damaged or of another schema version.
    """
    runs = [checked(breakdown) for breakdown in breakdowns]
    status = FAILED if any(run.state == FAIL for run in runs) else 0
    return Document(schema_version=document.VERSION, exit_status=status, runs=runs)


def checked(breakdown: Breakdown) -> Checked:
    """Check the profile of one run, and return the results."""
    info = breakdown.run.info
    rows = []
    for number, part in enumerate(parts_of(breakdown)):
        for question in QUESTIONS:
            rows += _rows(question, part, first=number == 0)
    if not rows:
        rows.append(_row(None, QUESTIONS[0], WARN, breakdown.no_steps.fault))
    states = {row.state for row in rows}
    own = info.source in MEASURED
    missed = [row for row in rows if row.state != OK and row.question not in _COSTLY_CHECKS]
    return Checked(
        run=breakdown.run.name,
        state=FAIL if FAIL in states else WARN if WARN in states else OK,
        profile_format=info.profile_format,
        rows=rows,
        record_with=[] if own or not missed else list(recipes_for(info.profile_format)),
    )


def _rows(question: Question, part: Part, *, first: bool) -> list[Row]:
    """Return the rows of missing data, and the answer if it is not ok or nothing is missing."""
    rows = []
    for lack in part.lacks:
        of_run = lack.kind in _RUN_KINDS
        if lack.kind in question.lacks and is_counted(lack, part) and (first or not of_run):
            rank = None if of_run else part.has.rank
            rows.append(_row(rank, question, state_of(lack), lack.sentence, lack.share))
    answer = question.answer(part)
    if answer and not (rows and answer[0] == OK):
        rows.append(_row(part.has.rank, question, *answer))
    return rows


def _row(
    rank: int | None, question: Question, state: State, sentence: str, share: float | None = None
) -> Row:
    return Row(
        rank=rank,
        question=question.name,
        state=state,
        sentence=sentence,
        share=share,
    )
