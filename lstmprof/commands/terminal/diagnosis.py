"""The text of ``lstmprof diagnose``: verdicts in a few lines, the evidence if asked for.

For a terminal and, as Markdown, for a pull request; names come from profiles: they are escaped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from fractions import Fraction
from itertools import groupby

from lstmprof.breakdown.mean_step import lane_words
from lstmprof.breakdown.timings import lost_in_words
from lstmprof.commands import terminal
from lstmprof.commands.terminal.breakdown import conditions
from lstmprof.diagnose.diagnosis import ADVISED_SHARE, LEAST_SHARE, Diagnosis, Explained
from lstmprof.diagnose.findings import Change, Difference, Finding
from lstmprof.diagnose.findings.because import each_step, worth_a_line
from lstmprof.diagnose.findings.counts import QUANTITIES
from lstmprof.diagnose.roofline import Roofline
from lstmprof.diagnose.sentences import of_roofline
from lstmprof.diagnose.step_profile import labels
from lstmprof.diagnose.verdict import Verdict
from lstmprof.names import DETAILS
from lstmprof.numbers import (
    UNKNOWN,
    count,
    cropped,
    escaped,
    listed,
    milliseconds,
    percent,
    quantity,
    with_short_names,
)

#: More diagnoses than these are listed, one line each; the first few of them are shown in full.
_MANY, _SHOWN = 6, 3
#: Fixes in a verdict; all are in JSON and with --evidence.
_FIXES = 2
#: Lines of a verdict are no longer than this.
_LINE = 100
#: The width of the words that begin a line of a verdict.
_INDENT = 9
#: Kinds of time on one line.
_PLACES = 6
#: Findings whose evidence is shown; all are in JSON.
_WITH_EVIDENCE = 3
#: Characters of a run's name over a column.
_WIDTH = 28
_REACH_HEADS = ("busy with", ">ms", ">least ms", ">reached")
#: A mean number of calls is so many in at most so many steps.
_MOST_STEPS = 100_000


def show_all(diagnoses: Sequence[Diagnosis], details: Collection[str] = ()) -> None:
    """Print the verdicts and the ``details`` (``names.DETAILS``) that are asked for.

    Many diagnoses begin with one line each, worst first, and only the first few follow in full.
    """
    shown = sorted(diagnoses, key=_badness, reverse=True)
    if len(diagnoses) > _MANY:
        _list(shown)
        shown = shown if details else shown[:_SHOWN]
    for heading, members in _by_baseline(shown):
        for line in heading:
            terminal.write_line(line, style="bold")
        for diagnosis in members:
            _show(diagnosis, details)
    _show_machine(diagnoses, details)
    hidden = [name for name in DETAILS if name not in details]
    if hidden:
        terminal.write_line("More: " + "  ".join(f"--{name}" for name in hidden), style="dim")


def _badness(diagnosis: Diagnosis) -> tuple[bool, float]:
    """Ratios before runs alone; of these the share that the best fix saves, or the bottleneck's."""
    if diagnosis.ratio is not None:
        return True, diagnosis.ratio.value
    verdict = diagnosis.verdict
    saved = max((fix.worth_ns for fix in verdict.fixes), default=0)
    return False, (saved or verdict.bottleneck_ns / 1e3) / (verdict.whole_ns or 1)


def _list(diagnoses: Sequence[Diagnosis]) -> None:
    """Print one line for each diagnosis."""
    rows = []
    for diagnosis in diagnoses:
        verdict = diagnosis.verdict
        times = f"{verdict.times} {verdict.baseline}" if verdict.baseline else ""
        rows.append([verdict.subject, milliseconds(verdict.step.ns), times, _in_short(verdict)])
    compared = any(row[2] for row in rows)
    heads = ["run", ">ms", *(["as long as"] if compared else []), "why"]
    cells = [row if compared else [*row[:2], row[3]] for row in rows]
    terminal.write_table("", heads, cells, crop=("run", "as long as", "why"))


def _in_short(verdict: Verdict) -> str:
    """The cause, or the bottleneck with its amount, or why neither is known."""
    if verdict.bottleneck is None:
        return verdict.words
    return verdict.cause or f"{verdict.bottleneck} {verdict.amount}"


def _by_baseline(
    diagnoses: Sequence[Diagnosis],
) -> list[tuple[tuple[str, ...], list[Diagnosis]]]:
    """Diagnoses with one baseline together, with what ran and the baseline as heading."""

    def heading(diagnosis: Diagnosis) -> tuple[str, ...]:
        what, verdict = conditions(diagnosis.slow.info), diagnosis.verdict
        lines = [what] if what else []
        if verdict.baseline is not None:
            lines.append(f"baseline: {verdict.baseline}, {verdict.baseline_ms}")
        return tuple(lines)

    return [(lines, list(members)) for lines, members in groupby(diagnoses, key=heading)]


def show(diagnosis: Diagnosis) -> None:
    """Print one verdict alone."""
    show_all([diagnosis])


def _show(diagnosis: Diagnosis, details: Collection[str]) -> None:
    """Print one verdict and its details."""
    terminal.write_line()
    first, lines = verdict_lines(diagnosis)
    terminal.write_line(first, style="bold")
    names = _kernels(diagnosis)
    for label, text in lines:
        _write(label, text, names)
    for what_if in diagnosis.what_ifs:
        _write("If", what_if.sentence, names)
    if "warnings" in details:
        for text in (*diagnosis.lacking, *diagnosis.warnings, *diagnosis.notes):
            _write("Note", text, names)
    if "waterfall" in details and diagnosis.differences:
        terminal.write_line()
        terminal.write_table(
            "From the fast step to the slow one",
            _waterfall_heads(diagnosis, terminal.narrow()),
            _waterfall_cells(diagnosis),
            spare=(">share",),
            bars=_waterfall_bars(diagnosis),
        )
    if "evidence" in details:
        terminal.write_line()
        for place, explained in enumerate(diagnosis.shown):
            _show_finding(diagnosis, explained, evidence=place < _WITH_EVIDENCE)
    if "roofline" in details and diagnosis.roofline is not None:
        terminal.write_line()
        terminal.write_line(f"roofline: {of_roofline(diagnosis.roofline)}")
        terminal.write_table("", _REACH_HEADS, _reach_cells(diagnosis.roofline))


def _write(label: str, text: str, names: Sequence[str]) -> None:
    """Print a line of a verdict, broken between words and indented under its label."""
    terminal.write_labelled(label, with_short_names(text, names), width=_LINE)


def verdict_lines(diagnosis: Diagnosis) -> tuple[str, list[tuple[str, str]]]:
    """Return the first line of a verdict, and its other lines as (label, text)."""
    verdict = diagnosis.verdict
    words = [verdict.subject, verdict.step_ms]
    words += [f"{verdict.times} as long"] if verdict.baseline else []
    slow = diagnosis.slow
    words += [f"{lane_words(*slow.place)}, one of {slow.lanes}"] if slow.lanes > 1 else []
    lines: list[tuple[str, str]] = []
    if verdict.state == "none":
        lines.append(("Same" if diagnosis.outcome.equal else "Unsure", verdict.words))
        lines += [("Differ", verdict.cause)] if verdict.cause else []
        return "   ".join(words), lines
    lines.append(("Why", verdict.why))
    for fix in verdict.fixes[:_FIXES]:
        lines.append(("Fix", f"{fix.fix}: {fix.gain}") if fix.gain else ("Try", fix.fix))
    where = _where(verdict)
    lines += [("Where", where)] if where else []
    lines += [("Doubt", listed(list(verdict.reasons)))] if verdict.reasons else []
    for rare in verdict.now_and_then[:1]:
        often = f"in {rare.steps} of {slow.steps} steps"
        lines.append(("Rare", f"{cropped(rare.name)}: {milliseconds(rare.each_ns)} ms {often}"))
    return "   ".join([*words, verdict.certainty]), lines


def _where(verdict: Verdict) -> str:
    """The kinds of time, ms: of two runs the differences; what is under 5 % is one number."""
    least = ADVISED_SHARE * max(abs(verdict.whole_ns), 1)
    large = [d for d in verdict.where if abs(d.delta_ns) >= least][:_PLACES]
    large.sort(key=lambda d: -d.delta_ns)
    rest = verdict.whole_ns - sum(d.delta_ns for d in large)
    sign = "+" if verdict.baseline is not None else ""
    pairs = [(d.kind, d.delta_ns) for d in large]
    pairs += [("other", rest)] if abs(rest) >= 50_000 and len(large) < len(verdict.where) else []
    texts = [f"{kind} {sign if ns >= 0 else '−'}{milliseconds(abs(ns))}" for kind, ns in pairs]
    return "   ".join(texts) + (" ms" if texts else "")


def _show_machine(diagnoses: Sequence[Diagnosis], details: Collection[str]) -> None:
    """Print what the machine took, and the kinds of warnings, one line each."""
    terminal.write_line()
    lost = [
        f"{profile.label}: {text}"
        for profile in {p.name: p for d in diagnoses for p in (d.fast, d.slow) if p}.values()
        if (text := lost_in_words(profile.lost_ns, profile.length_ns, profile.cpu_share))
    ]
    for text in lost[:_SHOWN]:
        _write("Lost", text, ())
    if "warnings" in details:
        return
    kinds = Counter(lack.kind for d in diagnoses for _, lack in d.lacks)
    kinds.update({doubt.kind: 1 for d in diagnoses for _, doubt in d.doubts})
    if kinds:
        each = ", ".join(kind if n == 1 else f"{kind} ({n})" for kind, n in kinds.items())
        _write("Warn", f"{each}; see --warnings", ())


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
    """Each diagnosis in Markdown, worst first; many begin with one line each."""
    ordered = sorted(diagnoses, key=_badness, reverse=True)
    texts = []
    if len(ordered) > _MANY:
        texts = ["\n".join(f"- {escaped(d.sentence)}" for d in ordered)]
        ordered = ordered[:_SHOWN]
    for heading, members in _by_baseline(ordered):
        texts += [f"### {escaped(line)}" for line in heading[:1]]
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
