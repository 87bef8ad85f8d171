"""The text of ``lstmprof diagnose``: a verdict of at most eight lines, and details on request.

::

    Diagnosis ─▶ Lines, the most important first ─▶ the first MOST_LINES lines ─▶ terminal
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from lstmprof.base.names import DETAILS
from lstmprof.base.numbers import (
    cropped,
    escaped,
    labels,
    milliseconds,
    number_of,
    percent,
    with_short_names,
)
from lstmprof.breakdown.clean.timings import lost_in_words
from lstmprof.commands import terminal
from lstmprof.commands.terminal import evidence, warned
from lstmprof.commands.terminal.timings import conditions
from lstmprof.diagnose.diagnosis import Diagnosis
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.diagnose.verdict.sentences import roofline_sentence
from lstmprof.diagnose.verdict.verdict_text import (
    INDENT,
    Line,
    baseline_line,
    best_fix,
    in_short,
    verdict_text,
    worst_first,
)

#: Largest number of diagnoses without a table, and of full diagnoses below a table.
MANY, SHOWN = 6, 3


@dataclass
class _Labels:
    """The labels of the diagnosed runs, by profile: ``names[profile]``."""

    diagnoses: Sequence[Diagnosis]
    _label_of: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        runs = {p.name: p for d in self.diagnoses for p in (d.fast, d.slow) if p is not None}
        called = labels(list(runs), [profile.label for profile in runs.values()])
        self._label_of = dict(zip(runs, called, strict=True))

    def __getitem__(self, profile: StepProfile) -> str:
        return self._label_of[profile.name]


def show(diagnosis: Diagnosis) -> None:
    show_all([diagnosis])


def show_all(
    diagnoses: Sequence[Diagnosis], details: Collection[str] = (), *, more: bool = True
) -> None:
    """Print verdicts, worst first, with the requested details."""
    ordered = worst_first(diagnoses)
    names = _Labels(diagnoses)
    if len(diagnoses) > MANY:
        _list(ordered, names)
        ordered = ordered if details else ordered[:SHOWN]
    before: list[str] = []
    measured = {conditions(diagnosis.slow.info) for diagnosis in ordered}
    for number, diagnosis in enumerate(ordered):
        against = baseline_line(diagnosis)
        what = conditions(diagnosis.slow.info) if len(measured) > 1 else ""
        heading = [line for line in (what, against) if line]
        if number:
            terminal.write_line()
        for line in heading if heading != before else ():
            terminal.write_line(line, style="bold", wrap=True)
        before = heading
        _show(diagnosis, details)
    terminal.write_line()
    if len(measured) == 1 and "" not in measured:
        terminal.write_line(f"Measured: {measured.pop()}", style="dim", wrap=True)
    _show_machine(diagnoses, names)
    _show_warnings(diagnoses, full="warnings" in details)
    if more:
        hidden = [name for name in DETAILS if name not in details]
        switches = "  ".join(f"--{name}" for name in hidden)
        terminal.write_line(f"More: {switches}    In a browser: --open", style="dim")


def _list(diagnoses: Sequence[Diagnosis], names: _Labels) -> None:
    """Print the diagnoses in tables, one table per baseline."""
    groups: dict[str, list[Diagnosis]] = {}
    for diagnosis in diagnoses:
        groups.setdefault(_group_title(diagnosis, names), []).append(diagnosis)
    for heading, members in groups.items():
        title = heading if len(groups) > 1 or members[0].fast else ""
        rows = [_row(diagnosis, names) for diagnosis in members]
        heads = ["run", ">ms per step", ">vs. baseline", ">fix saves", "why"]
        shown = [i for i, head in enumerate(heads) if head == "run" or any(r[i] for r in rows)]
        terminal.write_table(
            title,
            [heads[i] for i in shown],
            [[row[i] for i in shown] for row in rows],
            cut=("why",),
        )


def _group_title(diagnosis: Diagnosis, names: _Labels) -> str:
    if diagnosis.fast is None:
        return "no baseline: no other run has the same workload, mode, precision and device"
    took = diagnosis.verdict.baseline_ms
    what = conditions(diagnosis.slow.info)
    return "; ".join([*([what] if what else []), f"baseline: {names[diagnosis.fast]}, {took}"])


def _row(diagnosis: Diagnosis, names: _Labels) -> list[str]:
    verdict = diagnosis.verdict
    saves, best = "", best_fix(verdict)
    if best is not None and verdict.step.ns:
        bound = "" if best.gain_ns is not None else "≤ "
        saves = f"{bound}{percent(best.worth_ns / verdict.step.ns)}"
    run = cropped(names[diagnosis.slow], 32)
    return [run, milliseconds(verdict.step.ns), verdict.times, saves, in_short(diagnosis)]


def _show(diagnosis: Diagnosis, details: Collection[str]) -> None:
    names = diagnosis.kernel_names
    first, *lines = verdict_text(diagnosis, terminal.console().width, terminal.spoken)
    terminal.write_lines(first, bold=len(first[0]))
    further = [("If", what_if.sentence) for what_if in diagnosis.what_ifs]
    further += [("Note", note) for note in diagnosis.notes if "warnings" in details]
    for label, text in further:
        head = Line(0, label, "").head
        lines.append(terminal.wrapped(head, with_short_names(text, names)))
    for line in lines:
        terminal.write_lines(line, bold=INDENT)
    if "waterfall" in details and diagnosis.differences:
        evidence.show_waterfall(diagnosis)
    if "evidence" in details:
        evidence.show_findings(diagnosis)
    if "roofline" in details and diagnosis.roofline is not None:
        evidence.show_roofline(diagnosis.roofline)


def _show_machine(diagnoses: Sequence[Diagnosis], names: _Labels) -> None:
    """Print the time that each run lost to other processes and threads of the machine."""
    runs = {p.name: p for d in diagnoses for p in (d.fast, d.slow) if p is not None}
    lost = [
        f"run '{names[profile]}': {text}" if len(runs) > 1 else text
        for profile in runs.values()
        if (text := lost_in_words(profile.lost_ns, profile.length_ns, profile.cpu_share))
    ]
    for text in lost[:SHOWN]:
        terminal.write_under("Lost time: ", text)
    if len(lost) > SHOWN:
        more = number_of(len(lost) - SHOWN, "other run", "other runs")
        terminal.write_under("Lost time: ", f"also in {more}")


def _show_warnings(diagnoses: Sequence[Diagnosis], *, full: bool) -> None:
    """Print each kind of warning once, with its sentence if ``full``."""
    warnings = [(lack.words, run, lack.sentence) for d in diagnoses for run, lack in d.lacks]
    warnings += [(doubt.kind, p.label, str(doubt)) for d in diagnoses for p, doubt in d.doubts]
    alone = len(diagnoses) == 1 and diagnoses[0].fast is None
    warned.show(warnings, named=not alone, full=full, see="--warnings")


def markdown_of_all(diagnoses: Sequence[Diagnosis]) -> str:
    """Write diagnoses in Markdown, worst first."""
    ordered = worst_first(diagnoses)
    texts = []
    if len(ordered) > MANY:
        texts = ["\n".join(f"- {escaped(d.sentence)}" for d in ordered)]
        ordered = ordered[:SHOWN]
    before = ""
    for diagnosis in ordered:
        what = conditions(diagnosis.slow.info)
        texts += [f"### {escaped(what)}"] if what and what != before else []
        texts.append(markdown(diagnosis))
        before = what
    return "\n\n".join(texts)


def markdown(diagnosis: Diagnosis) -> str:
    """Return a diagnosis as Markdown for a pull request; escape markup in names."""
    lines = [f"**{escaped(diagnosis.sentence)}**"]
    doubts = [f"- recording: {escaped(text)}" for text in diagnosis.lacking]
    doubts += [f"- warning: {escaped(text)}" for text in diagnosis.warnings]
    doubts += [f"- note: {escaped(text)}" for text in diagnosis.notes]
    lines += ["", *doubts] if doubts else []
    if diagnosis.outcome.differs and diagnosis.differences:
        heads, cells = evidence.waterfall_heads(diagnosis), evidence.waterfall_cells(diagnosis)
        lines += ["", *_markdown_table(heads, cells)]
    large = evidence.large_findings(diagnosis)
    lines += [""] if large else []
    for explained in large:
        lines.append(f"- **{explained.finding.words}** {escaped(explained.sentence)}")
        for advice in explained.remedies:
            lines.append(f"  - {escaped(advice.text)} ({escaped(advice.source)})")
    if diagnosis.dominant is not None:
        finding = diagnosis.dominant.finding
        cells = evidence.evidence_cells(finding, alone=diagnosis.fast is None)
        lines += ["", *_markdown_table(evidence.evidence_heads(diagnosis), cells)] if cells else []
    limit = diagnosis.roofline
    limits = [] if limit is None else [f"roofline: {roofline_sentence(limit)}"]
    limits += [what_if.sentence for what_if in diagnosis.what_ifs]
    return "\n".join([*lines, *([""] if limits else []), *(f"- {escaped(s)}" for s in limits)])


def _markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    named = [escaped(head.removeprefix(">")) or " " for head in heads]
    rule = ["---:" if head.startswith(">") else "---" for head in heads]
    cells = [[escaped(cell) for cell in row] for row in rows]
    return [f"| {' | '.join(line)} |" for line in (named, rule, *cells)]
