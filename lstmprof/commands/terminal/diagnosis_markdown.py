"""A diagnosis as Markdown for a pull request. Names come from profiles: they are escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lstmprof.commands.terminal import diagnosis_cells
from lstmprof.diagnose.diagnosis import Diagnosis
from lstmprof.errors import one_line

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#])")


def page(diagnosis: Diagnosis) -> str:
    """The sentence, the waterfall as a table, the causes as a list with what to do."""
    lines = [f"**{escaped(diagnosis.sentence)}**"]
    said = [f"- warning: {escaped(text)}" for text in diagnosis.warnings]
    said += [f"- note: {escaped(text)}" for text in diagnosis.notes]
    lines += ["", *said] if said else []
    if diagnosis.waterfall:
        heads = diagnosis_cells.waterfall_heads(diagnosis)
        lines += ["", *_table(heads, diagnosis_cells.waterfall_cells(diagnosis))]
    lines.append("")
    for place in diagnosis_cells.shown(diagnosis):
        explained = diagnosis.findings[place]
        lines.append(f"- **{explained.finding.kind}**: {escaped(explained.sentence)}")
        lines += [
            f"  - {escaped(advice.sentence)} ({escaped(advice.source)})"
            for advice in explained.remedies
        ]
    dominant = diagnosis.dominant
    if dominant is not None:
        cells = diagnosis_cells.evidence_cells(dominant.finding, alone=diagnosis.fast is None)
        lines += ["", *_table(diagnosis_cells.evidence_heads(diagnosis), cells)] if cells else []
    limits = [f"- {escaped(line)}" for line in diagnosis_cells.limit_lines(diagnosis)]
    return "\n".join([*lines, "", *limits] if limits else lines)


def escaped(text: str) -> str:
    """``text`` in one line, in which nothing is markup."""
    return _SPECIAL.sub(r"\\\1", one_line(text))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    named = [escaped(head.removeprefix(">")) or " " for head in heads]
    rule = ["---:" if head.startswith(">") else "---" for head in heads]
    cells = [[escaped(cell) for cell in row] for row in rows]
    return [f"| {' | '.join(line)} |" for line in (named, rule, *cells)]
