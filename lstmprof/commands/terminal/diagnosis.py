"""The text of ``lstmprof diagnose``: the sentence, the waterfall, the causes and what to do.

For a terminal and, as Markdown, for a pull request; names come from profiles: they are escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import groupby

from lstmprof.commands import terminal
from lstmprof.commands.terminal.breakdown import conditions
from lstmprof.diagnose.diagnosis import LEAST_SHARE, Diagnosis, Explained
from lstmprof.diagnose.findings import Change, Difference, Finding
from lstmprof.diagnose.findings.because import each_step, worth_a_line
from lstmprof.diagnose.findings.counts import QUANTITIES
from lstmprof.diagnose.roofline import Roofline
from lstmprof.diagnose.sentences import of_roofline
from lstmprof.diagnose.step_profile import labels
from lstmprof.diagnose.verdicts import Verdict, verdicts
from lstmprof.numbers import UNKNOWN, count, cropped, escaped, milliseconds, percent, quantity

#: Causes whose evidence is shown; all are in JSON.
_WITH_EVIDENCE = 3
#: Characters of a run's name over a column.
_WIDTH = 28
_REACH_HEADS = ("busy with", ">ms", ">least ms", ">reached")
#: A mean number of calls is so many in at most so many steps.
_MOST_STEPS = 100_000
#: More diagnoses than these begin with a list of their verdicts.
_FEW = 2


def show_all(diagnoses: Sequence[Diagnosis]) -> None:
    """Print diagnoses; the verdicts of many come first, and each warning is printed once."""
    parts = _by_conditions(diagnoses)
    if len(diagnoses) > _FEW:
        for heading, members in parts:
            if heading:
                terminal.write_line(f"{heading}:", style="bold")
            for verdict in verdicts(members):
                terminal.write_line(f"- {_in_short(verdict)}")
        terminal.write_line()
    for heading, members in parts:
        if heading and len(parts) > 1:
            terminal.write_line(f"{heading}:")
        printed: set[str] = set()
        for diagnosis in members:
            show(diagnosis, printed)


def _by_conditions(diagnoses: Sequence[Diagnosis]) -> list[tuple[str, list[Diagnosis]]]:
    """Those that stand together and are of one network, device and so on, with these in words."""
    parts = groupby(diagnoses, key=lambda d: conditions(d.slow.info))
    return [(heading, list(members)) for heading, members in parts]


def _in_short(verdict: Verdict) -> str:
    doubt = verdict.certainty
    return verdict.sentence + (f" ({doubt})" if doubt not in verdict.sentence else "")


def show(diagnosis: Diagnosis, printed: set[str]) -> None:
    """Print a diagnosis without the warnings in ``printed``; the others are added to them."""
    for text in diagnosis.lacking:
        terminal.write_line(f"recording: {text}")
    terminal.write_line(diagnosis.sentence, style="bold", names=_kernels(diagnosis))
    for warning in diagnosis.warnings:
        if warning not in printed:
            terminal.write_line(f"warning: {warning}")
    printed.update(diagnosis.warnings)
    for note in diagnosis.notes:
        terminal.write_line(f"note: {note}")
    terminal.write_line()
    if diagnosis.outcome.differs and diagnosis.differences:
        terminal.write_table(
            "From the fast step to the slow one",
            _waterfall_heads(diagnosis, terminal.narrow()),
            _waterfall_cells(diagnosis),
            spare=(">share",),
            bars=_waterfall_bars(diagnosis),
        )
    for place, explained in enumerate(diagnosis.shown):
        _show_finding(diagnosis, explained, evidence=place < _WITH_EVIDENCE)
    for line in _limit_lines(diagnosis):
        terminal.write_line(line)
    if diagnosis.roofline is not None:
        terminal.write_table("", _REACH_HEADS, _reach_cells(diagnosis.roofline))
    elif diagnosis.what_ifs:
        terminal.write_line()


def _show_finding(diagnosis: Diagnosis, explained: Explained, *, evidence: bool) -> None:
    finding = explained.finding
    names = _kernels(diagnosis)
    terminal.write_line(f"{finding.kind}: {explained.sentence}", head=finding.kind, names=names)
    for advice in explained.remedies:
        terminal.write_line(f"  → {advice.text}  [{advice.source}]", names=names)
    cells = _evidence_cells(finding, alone=diagnosis.fast is None)
    if evidence and finding.delta_ns > 0 and cells:
        heads = _evidence_heads(diagnosis, terminal.narrow())
        terminal.write_table("", heads, cells, crop="evidence")
    else:
        terminal.write_line()


def _kernels(diagnosis: Diagnosis) -> list[str]:
    """The names of the kernels of both runs, which may be in a sentence."""
    profiles = [profile for profile in (diagnosis.fast, diagnosis.slow) if profile is not None]
    return [row["name"] for profile in profiles for row in profile.rows("kernels")]


def markdown_of_all(diagnoses: Sequence[Diagnosis]) -> str:
    """Each diagnosis in Markdown; of many their verdicts first."""
    parts = _by_conditions(diagnoses)
    texts = []
    if len(diagnoses) > _FEW:
        for heading, members in parts:
            lines = [f"- {escaped(_in_short(verdict))}" for verdict in verdicts(members)]
            texts.append("\n".join([f"{escaped(heading)}:", "", *lines] if heading else lines))
    for heading, members in parts:
        texts += [f"### {escaped(heading)}"] if heading and len(parts) > 1 else []
        texts += [markdown(diagnosis) for diagnosis in members]
    return "\n\n".join(texts)


def markdown(diagnosis: Diagnosis) -> str:
    """The sentence, the waterfall as a table, the causes as a list with what to do."""
    lines = [f"- recording: {escaped(text)}" for text in diagnosis.lacking]
    lines += [""] if lines else []
    lines.append(f"**{escaped(diagnosis.sentence)}**")
    doubts = [f"- warning: {escaped(text)}" for text in diagnosis.warnings]
    doubts += [f"- note: {escaped(text)}" for text in diagnosis.notes]
    lines += ["", *doubts] if doubts else []
    if diagnosis.outcome.differs and diagnosis.differences:
        lines += ["", *_table(_waterfall_heads(diagnosis), _waterfall_cells(diagnosis))]
    lines.append("")
    for explained in diagnosis.shown:
        lines.append(f"- **{explained.finding.kind}**: {escaped(explained.sentence)}")
        lines += [
            f"  - {escaped(advice.text)} ({escaped(advice.source)})"
            for advice in explained.remedies
        ]
    dominant = diagnosis.dominant
    if dominant is not None:
        cells = _evidence_cells(dominant.finding, alone=diagnosis.fast is None)
        lines += ["", *_table(_evidence_heads(diagnosis), cells)] if cells else []
    limits = [f"- {escaped(line)}" for line in _limit_lines(diagnosis)]
    return "\n".join([*lines, "", *limits] if limits else lines)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    named = [escaped(head.removeprefix(">")) or " " for head in heads]
    rule = ["---:" if head.startswith(">") else "---" for head in heads]
    cells = [[escaped(cell) for cell in row] for row in rows]
    return [f"| {' | '.join(line)} |" for line in (named, rule, *cells)]


def _names(diagnosis: Diagnosis, narrow: bool = False) -> tuple[str, str]:
    """What the fast and the slow run are called; of a run alone the fast one is empty."""
    if diagnosis.fast is None:
        return "", cropped(diagnosis.slow.name, _WIDTH)
    if narrow:
        return "fast", "slow"
    fast, slow = labels(diagnosis.fast, diagnosis.slow)
    return cropped(fast, _WIDTH), cropped(slow, _WIDTH)


def _waterfall_heads(diagnosis: Diagnosis, narrow: bool = False) -> list[str]:
    """The headings; numbers begin with ``>``."""
    fast, slow = _names(diagnosis, narrow)
    return ["time of", f">{fast} ms", f">{slow} ms", ">difference ms", ">share"]


def _waterfall_cells(diagnosis: Diagnosis) -> list[list[str]]:
    """One line a kind and the sum; each column adds up as printed."""
    rows = _with_small_ones_joined(diagnosis.differences)
    columns = [[d.fast_ns for d in rows], [d.slow_ns for d in rows], [d.delta_ns for d in rows]]
    whole = sum(columns[2])
    shares = terminal.parts_that_add_up(
        [100 * delta / whole if whole else 0.0 for delta in columns[2]], 100.0 if whole else 0.0, 1
    )
    printed = [
        terminal.parts_that_add_up([ns / 1e6 for ns in column], sum(column) / 1e6, 3)
        for column in columns
    ]
    cells = [
        [d.kind, fast, slow, _signed(delta), f"{share} %"]
        for d, fast, slow, delta, share in zip(rows, *printed, shares, strict=True)
    ]
    sums = [milliseconds(sum(column), 3) for column in columns]
    return [*cells, ["sum", *sums[:2], _signed(sums[2]), "100.0 %" if whole else UNKNOWN]]


def _waterfall_bars(diagnosis: Diagnosis) -> terminal.Bars:
    """The differences of the rows of ``_waterfall_cells``, and none for their sum."""
    deltas = [d.delta_ns for d in _with_small_ones_joined(diagnosis.differences)]
    colours = [terminal.ORANGE if delta > 0 else terminal.BLUE for delta in deltas]
    return terminal.Bars([*deltas, None], [*colours, ""])


def _with_small_ones_joined(rows: tuple[Difference, ...]) -> list[Difference]:
    """The rows that matter, and the others as one."""
    least = LEAST_SHARE * max(abs(sum(d.delta_ns for d in rows)), 1)
    large = [d for d in rows if abs(d.delta_ns) >= least]
    small = [d for d in rows if abs(d.delta_ns) < least]
    if len(small) < 2:
        return list(rows)
    fast, slow = sum(d.fast_ns for d in small), sum(d.slow_ns for d in small)
    return [*large, Difference(f"{len(small)} smaller differences", fast, slow)]


def _signed(number: str) -> str:
    return number if number.startswith("-") or not float(number.replace(",", "")) else f"+{number}"


def _evidence_heads(diagnosis: Diagnosis, narrow: bool = False) -> list[str]:
    """The headings of a finding's evidence."""
    fast, slow = _names(diagnosis, narrow)
    return ["evidence", f">{fast}", f">{slow}"] if fast else ["evidence", f">{slow}"]


def _evidence_cells(finding: Finding, alone: bool) -> list[list[str]]:
    """The counts and the largest kernels or ops of a finding, a line each."""
    each = each_step(finding.slow)
    cells = [_count_cells(change, each) for change in worth_a_line(finding)]
    for c in finding.largest:
        spent = _spent(c.fast_ns, c.fast_count), _spent(c.slow_ns, c.slow_count)
        cells.append([cropped(c.name), *spent])
    return [[name, slow] for name, _, slow in cells] if alone else cells


def _spent(ns: int, calls: float) -> str:
    """``3.2 ms in 20``, ``3.2 ms, 2 in 3 steps``; time before or after calls has none itself."""
    if 0 < calls < 1:
        times = Fraction(calls).limit_denominator(_MOST_STEPS)
        often = "once" if times.numerator == 1 else count(times.numerator)
        return f"{milliseconds(ns, 3)} ms, {often} in {count(times.denominator)} steps"
    return f"{milliseconds(ns, 3)} ms" + (f" in {count(calls)}" if calls else "")


def _count_cells(change: Change, each: str) -> list[str]:
    about = QUANTITIES[change.quantity]
    counted = not about.unit and "_per_" not in about.name
    text = f"{about.text}{each}" if counted else about.text
    return [text, *(quantity(value, about.unit) for value in (change.fast, change.slow))]


def _limit_lines(diagnosis: Diagnosis) -> list[str]:
    """What is said of the slow run's roofline and of each change that was asked for."""
    limit = diagnosis.roofline
    lines = [] if limit is None else [f"roofline: {of_roofline(limit)}"]
    return lines + [what_if.sentence for what_if in diagnosis.what_ifs]


def _reach_cells(limit: Roofline) -> list[list[str]]:
    """One line a category: its busy time, the least it could be, the share reached."""
    return [
        [
            " + ".join(reach.categories),
            milliseconds(reach.busy_ns, 3),
            milliseconds(reach.bound_ns, 3),
            UNKNOWN if reach.share is None else percent(reach.share),
        ]
        for reach in limit.reaches
    ]
