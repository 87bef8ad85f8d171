"""The text of ``lstmprof diagnose``: the sentence, the waterfall, the causes and what to do."""

from __future__ import annotations

from lstmprof.commands import terminal
from lstmprof.commands.terminal import diagnosis_cells
from lstmprof.diagnose.diagnosis import Diagnosis, Explained

#: Causes whose evidence is shown; all are in JSON.
_WITH_EVIDENCE = 3


def show(diagnosis: Diagnosis) -> None:
    """Print a diagnosis."""
    terminal.write_line(diagnosis.sentence, style="bold", names=_kernels(diagnosis))
    for warning in diagnosis.warnings:
        terminal.write_line(f"warning: {warning}")
    for note in diagnosis.notes:
        terminal.write_line(f"note: {note}")
    terminal.write_line()
    if diagnosis.waterfall:
        terminal.write_table(
            "From the fast step to the slow one",
            diagnosis_cells.waterfall_heads(diagnosis, terminal.narrow()),
            diagnosis_cells.waterfall_cells(diagnosis),
            spare=(">share",),
            bars=diagnosis_cells.waterfall_bars(diagnosis),
        )
    findings = [diagnosis.findings[place] for place in diagnosis_cells.shown(diagnosis)]
    for place, explained in enumerate(findings):
        _show_finding(diagnosis, explained, evidence=place < _WITH_EVIDENCE)
    _show_limits(diagnosis)


def _show_limits(diagnosis: Diagnosis) -> None:
    """How near the step came to its roofline, and what the changes that were asked for buy."""
    for line in diagnosis_cells.limit_lines(diagnosis):
        terminal.write_line(line)
    if diagnosis.roofline is not None:
        terminal.write_table(
            "", diagnosis_cells.REACH_HEADS, diagnosis_cells.reach_cells(diagnosis.roofline)
        )
    elif diagnosis.what_ifs:
        terminal.write_line()


def _show_finding(diagnosis: Diagnosis, explained: Explained, *, evidence: bool) -> None:
    finding = explained.finding
    names = _kernels(diagnosis)
    terminal.write_line(f"{finding.kind}: {explained.sentence}", head=finding.kind, names=names)
    for advice in explained.remedies:
        terminal.write_line(f"  → {advice.sentence}  [{advice.source}]", names=names)
    adds = finding.delta_ns > 0
    cells = diagnosis_cells.evidence_cells(finding, alone=diagnosis.fast is None)
    if evidence and adds and cells:
        heads = diagnosis_cells.evidence_heads(diagnosis, terminal.narrow())
        terminal.write_table("", heads, cells, crop="evidence")
    else:
        terminal.write_line()


def _kernels(diagnosis: Diagnosis) -> list[str]:
    """The names of the kernels of both runs, which may be in a sentence."""
    profiles = [profile for profile in (diagnosis.fast, diagnosis.slow) if profile is not None]
    return [row["name"] for profile in profiles for row in profile.rows("kernels")]
