"""The Markdown of ``lstmprof diagnose``, for a pull request; names are escaped."""

from __future__ import annotations

from collections.abc import Sequence

from lstmprof.commands.terminal import evidence
from lstmprof.commands.terminal.diagnosis import MANY, SHOWN, worst_first
from lstmprof.commands.terminal.timings import conditions
from lstmprof.diagnose.diagnosis import Diagnosis, Explained
from lstmprof.diagnose.sentences import of_roofline
from lstmprof.numbers import escaped


def of_all(diagnoses: Sequence[Diagnosis]) -> str:
    """Return each diagnosis in Markdown, worst first; many begin with one line each."""
    ordered = worst_first(diagnoses)
    texts = []
    if len(ordered) > MANY:
        texts = ["\n".join(f"- {escaped(d.sentence)}" for d in ordered)]
        ordered = ordered[:SHOWN]
    before = ""
    for diagnosis in ordered:
        what = conditions(diagnosis.slow.info)
        texts += [f"### {escaped(what)}"] if what and what != before else []
        texts.append(of_one(diagnosis))
        before = what
    return "\n\n".join(texts)


def of_one(diagnosis: Diagnosis) -> str:
    """Return the sentence, the waterfall as a table, the causes as a list with what to do."""
    lines = [f"**{escaped(diagnosis.sentence)}**"]
    doubts = [f"- recording: {escaped(text)}" for text in diagnosis.lacking]
    doubts += [f"- warning: {escaped(text)}" for text in diagnosis.warnings]
    doubts += [f"- note: {escaped(text)}" for text in diagnosis.notes]
    lines += ["", *doubts] if doubts else []
    if diagnosis.outcome.differs and diagnosis.differences:
        heads, cells = evidence.waterfall_heads(diagnosis), evidence.waterfall_cells(diagnosis)
        lines += ["", *_table(heads, cells)]
    found = [line for e in evidence.large_findings(diagnosis) for line in _finding(e)]
    lines += ["", *found] if found else []
    if diagnosis.dominant is not None:
        finding = diagnosis.dominant.finding
        cells = evidence.evidence_cells(finding, alone=diagnosis.fast is None)
        lines += ["", *_table(evidence.evidence_heads(diagnosis), cells)] if cells else []
    limits = [f"- {escaped(line)}" for line in _limits(diagnosis)]
    return "\n".join([*lines, "", *limits] if limits else lines)


def _finding(explained: Explained) -> list[str]:
    """The line of a finding, and one for each fix."""
    return [
        f"- **{explained.finding.kind}**: {escaped(explained.sentence)}",
        *(f"  - {escaped(a.text)} ({escaped(a.source)})" for a in explained.remedies),
    ]


def _limits(diagnosis: Diagnosis) -> list[str]:
    """The roofline of the slow run, and each change that was asked for."""
    limit = diagnosis.roofline
    lines = [] if limit is None else [f"roofline: {of_roofline(limit)}"]
    return lines + [what_if.sentence for what_if in diagnosis.what_ifs]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    named = [escaped(head.removeprefix(">")) or " " for head in heads]
    rule = ["---:" if head.startswith(">") else "---" for head in heads]
    cells = [[escaped(cell) for cell in row] for row in rows]
    return [f"| {' | '.join(line)} |" for line in (named, rule, *cells)]
