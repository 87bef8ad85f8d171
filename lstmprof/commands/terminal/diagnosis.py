"""The text of ``lstmprof diagnose``: verdicts of eight lines at most, details if asked for.

::

    Diagnosis ─▶ Line, the most important first ─▶ those that fit into MOST_LINES ─▶ terminal

Names come from profiles, so they are printed as text; ``markdown`` prints the same for a pull
request.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from lstmprof.breakdown.mean_step import lane_words
from lstmprof.breakdown.timings import lost_in_words
from lstmprof.commands import terminal
from lstmprof.commands.terminal import evidence, warned
from lstmprof.commands.terminal.timings import conditions
from lstmprof.diagnose.certainty.pair import EQUAL_SHARE
from lstmprof.diagnose.diagnosis import ADVISED_SHARE, Diagnosis
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.diagnose.verdict import Verdict
from lstmprof.names import DETAILS
from lstmprof.numbers import (
    cropped,
    labels,
    listed,
    milliseconds,
    percent,
    with_short_names,
)

#: More diagnoses than these are listed, one line each; the first few of them are shown in full.
MANY, SHOWN = 6, 3
#: Lines of a verdict, its first one and those under labels. Chosen by hand: two verdicts, their
#: heading and what follows them fit into 25 lines.
MOST_LINES = 8
#: Fixes in a verdict; all are in JSON and with --evidence.
_FIXES = 2
#: Characters of a label with the spaces around it.
_INDENT = 9
#: Kinds of time on one line.
_PLACES = 6
#: What a list of runs leaves out of the words for an unknown cause.
_NO_CAUSE = "not explained by the profile: "
#: Milliseconds have one digit in a row of which the largest is this long.
_LONG_NS = 1_000_000


@dataclass(frozen=True)
class Line:
    """One labelled text of a verdict: whole in ``most`` lines, else cut; its ``end`` stays.

    A verdict has no room for all its lines: those of the lowest ``rank`` are shown.
    """

    rank: int
    label: str
    text: str
    end: str = ""
    most: int = 2

    @property
    def head(self) -> str:
        """The label in a column of its own."""
        return f"  {self.label:{_INDENT - 3}} "

    def wrapped(self, names: Sequence[str]) -> list[str]:
        """Return the lines to print, long kernel ``names`` shortened."""
        short = [with_short_names(text, names) for text in (self.text, self.end)]
        return terminal.wrapped(self.head, short[0], end=short[1], most=self.most)


@dataclass
class _Labels:
    """What runs are called: the short label of each where no other run of the output has it."""

    diagnoses: Sequence[Diagnosis]
    _of: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        runs = {p.name: p for d in self.diagnoses for p in (d.fast, d.slow) if p is not None}
        called = labels(list(runs), [profile.label for profile in runs.values()])
        self._of = dict(zip(runs, called, strict=True))

    def __getitem__(self, profile: StepProfile) -> str:
        return self._of[profile.name]


def show(diagnosis: Diagnosis) -> None:
    """Print one verdict alone."""
    show_all([diagnosis])


def show_all(diagnoses: Sequence[Diagnosis], details: Collection[str] = ()) -> None:
    """Print the verdicts and the ``details`` (``names.DETAILS``) that are asked for.

    Many diagnoses begin with one line each, worst first, and only the first few follow in full.
    """
    ordered = worst_first(diagnoses)
    names = _Labels(diagnoses)
    if len(diagnoses) > MANY:
        _list(ordered, names)
        ordered = ordered if details else ordered[:SHOWN]
    before: list[str] = []
    for number, diagnosis in enumerate(ordered):
        heading = _heading(diagnosis)
        if number:
            terminal.write_line()
        for line in heading if heading != before else ():
            terminal.write_line(line, style="bold")
        before = heading
        _show(diagnosis, details)
    terminal.write_line()
    _show_machine(diagnoses, names)
    _show_warnings(diagnoses, full="warnings" in details)
    hidden = [name for name in DETAILS if name not in details]
    more = "  ".join(f"--{name}" for name in (*hidden, "open"))
    terminal.write_line(f"More: {more}", style="dim")


def worst_first(diagnoses: Sequence[Diagnosis]) -> list[Diagnosis]:
    """Return ratios before runs alone, the largest first.

    Runs alone are ordered by the share of the step that the best fix saves, then by the share of
    the bottleneck; those without a known cause are last.
    """

    def badness(diagnosis: Diagnosis) -> tuple[bool, float, float]:
        if diagnosis.ratio is not None:
            return True, diagnosis.ratio.value, 0.0
        verdict = diagnosis.verdict
        share = verdict.bottleneck_ns / (verdict.whole_ns or 1)
        return False, (_saved_share(verdict) or 0.0) if share else -1.0, share

    return sorted(diagnoses, key=badness, reverse=True)


def _saved_share(verdict: Verdict) -> float | None:
    """Return the share of the step that the best fix saves at most; None if unknown."""
    best = max((fix.worth_ns for fix in verdict.fixes), default=0)
    return best / verdict.step.ns if best and verdict.step.ns else None


def _list(diagnoses: Sequence[Diagnosis], names: _Labels) -> None:
    """Print one line for each diagnosis; runs with one baseline have a table together."""
    groups: dict[str, list[Diagnosis]] = {}
    for diagnosis in diagnoses:
        groups.setdefault(_of_group(diagnosis, names), []).append(diagnosis)
    for heading, members in groups.items():
        title = heading if len(groups) > 1 or members[0].fast else ""
        rows = [_row(diagnosis, names) for diagnosis in members]
        heads = ["run", ">ms", ">as long", ">fix saves", "why"]
        shown = [i for i, head in enumerate(heads) if head == "run" or any(r[i] for r in rows)]
        terminal.write_table(
            title,
            [heads[i] for i in shown],
            [[row[i] for i in shown] for row in rows],
            cut=("why",),
        )


def _of_group(diagnosis: Diagnosis, names: _Labels) -> str:
    """What ran and the baseline, in one line."""
    if diagnosis.fast is None:
        return "not compared"
    took = f"{milliseconds(diagnosis.verdict.baseline_ns)} ms"
    what = conditions(diagnosis.slow.info)
    return "; ".join([*([what] if what else []), f"baseline {names[diagnosis.fast]}, {took}"])


def _row(diagnosis: Diagnosis, names: _Labels) -> list[str]:
    verdict, share = diagnosis.verdict, _saved_share(diagnosis.verdict)
    measured = verdict.fixes and verdict.fixes[0].gain_ns is not None
    saves = "" if share is None else f"{'' if measured else '≤ '}{percent(share)}"
    run = cropped(names[diagnosis.slow], 32)
    return [run, milliseconds(verdict.step.ns), verdict.times, saves, _in_short(diagnosis)]


def _in_short(diagnosis: Diagnosis) -> str:
    """The cause and the bottleneck, or why they are unknown."""
    verdict = diagnosis.verdict
    if diagnosis.outcome.equal:
        return f"as long as the baseline, within {percent(EQUAL_SHARE)}"
    if verdict.bottleneck is None:
        blind = (lack.kind for _, lack in diagnosis.lacks if lack.blinds)
        return next((f"unknown: {kind}" for kind in blind), verdict.words.removeprefix(_NO_CAUSE))
    if verdict.baseline is not None:
        cause = verdict.cause.partition(" (")[0]  # the baseline's count is in brackets
        parts = [cause, f"{verdict.bottleneck} +{milliseconds(verdict.bottleneck_ns)} ms"]
        return "; ".join(part for part in parts if part)
    share = verdict.bottleneck_ns / (verdict.whole_ns or 1)
    kind = f"{verdict.bottleneck} {percent(share)}"
    counts = f"{kind}: {verdict.evidence}" if verdict.evidence else kind
    text = f"{verdict.cause}; {kind}" if verdict.cause else counts
    return with_short_names(text, evidence.kernels(diagnosis), 32)


def _heading(diagnosis: Diagnosis) -> list[str]:
    """What ran, and the baseline."""
    what, verdict = conditions(diagnosis.slow.info), diagnosis.verdict
    lines = [what] if what else []
    if diagnosis.fast is not None and verdict.baseline is not None:
        kernels = diagnosis.fast.info.kernels_used
        on = f" ({kernels})" if kernels else ""
        took = f"{milliseconds(verdict.baseline_ns)} ms {verdict.per}"
        lines.append(f"baseline: {verdict.baseline}, {took}{on}")
    return lines


def _show(diagnosis: Diagnosis, details: Collection[str]) -> None:
    """Print one verdict and its details."""
    first, *lines = verdict_text(diagnosis)
    terminal.write_lines(first, bold=len(first[0]))
    asked = [Line(0, "If", what_if.sentence, most=9) for what_if in diagnosis.what_ifs]
    asked += [Line(0, "Note", n, most=9) for n in diagnosis.notes if "warnings" in details]
    for line in [*lines, *(line.wrapped(evidence.kernels(diagnosis)) for line in asked)]:
        terminal.write_lines(line, bold=_INDENT)
    if "waterfall" in details and diagnosis.differences:
        evidence.show_waterfall(diagnosis)
    if "evidence" in details:
        evidence.show_findings(diagnosis)
    if "roofline" in details and diagnosis.roofline is not None:
        evidence.show_roofline(diagnosis.roofline)


def verdict_text(diagnosis: Diagnosis) -> list[list[str]]:
    """Return a verdict in ``MOST_LINES`` lines at most, those of one label together."""
    names = evidence.kernels(diagnosis)
    lines = [(line, line.wrapped(names)) for line in _lines(diagnosis)]
    room, kept = MOST_LINES - 1, set()
    for line, wrapped in sorted(lines, key=lambda pair: pair[0].rank):
        if len(wrapped) <= room:
            room -= len(wrapped)
            kept.add(line)
    return [[_first(diagnosis)], *(wrapped for line, wrapped in lines if line in kept)]


def _first(diagnosis: Diagnosis) -> str:
    """The run, its step, the ratio and the certainty."""
    verdict = diagnosis.verdict
    words = [verdict.subject, verdict.step_ms]
    words += [f"{verdict.times} as long"] if verdict.baseline else []
    slow = diagnosis.slow
    words += [f"{lane_words(*slow.place)}, one of {slow.lanes}"] if slow.lanes > 1 else []
    words += [] if verdict.state == "none" else [verdict.certainty]
    return "   ".join(words)


def _lines(diagnosis: Diagnosis) -> Iterator[Line]:
    """Yield the labelled lines in the order in which they are printed."""
    verdict = diagnosis.verdict
    if verdict.state == "none":
        yield Line(0, "Same" if diagnosis.outcome.equal else "Unsure", verdict.words)
        if verdict.cause:
            yield Line(1, "Differ", verdict.cause)
        return
    yield Line(0, "Why", verdict.cause or verdict.why)
    for number, fix in enumerate(verdict.fixes[:_FIXES]):
        rank, most = (1, 3) if not number else (5, 2)
        gain = f": {fix.gain}" if fix.gain else ""
        yield Line(rank, "Fix" if gain else "Try", fix.fix, gain, most)
    if where := _where(verdict):
        yield Line(2, "Where", where)
    if verdict.cause and verdict.evidence:
        yield Line(4, "", verdict.evidence)
    if verdict.reasons:
        yield Line(3, "Doubt", listed(list(verdict.reasons)))
    for rare in verdict.now_and_then[:1]:
        often = f"in {rare.steps} of {diagnosis.slow.steps} steps"
        yield Line(6, "Rare", f"{cropped(rare.name)}: {milliseconds(rare.each_ns)} ms {often}")


def _where(verdict: Verdict) -> str:
    """The kinds of time, ms: of two runs the differences; what is under 5 % is one number."""
    least = ADVISED_SHARE * max(abs(verdict.whole_ns), 1)
    large = [d for d in verdict.where if abs(d.delta_ns) >= least][:_PLACES]
    large.sort(key=lambda d: -d.delta_ns)
    rest = verdict.whole_ns - sum(d.delta_ns for d in large)
    digits = 1 if abs(verdict.whole_ns) >= _LONG_NS else 3
    shown = [(d.kind, d.delta_ns) for d in large]
    shown += [("other", rest)] if len(large) < len(verdict.where) else []
    plus = "+" if verdict.baseline is not None else ""
    texts = []
    for kind, ns in shown:
        amount = f"{abs(ns) / 1e6:,.{digits}f}"
        if kind != "other" or amount.strip("0.,"):
            texts.append(f"{kind} {plus if ns >= 0 else '−'}{amount}")
    return "   ".join(texts) + (" ms" if texts else "")


def _show_machine(diagnoses: Sequence[Diagnosis], names: _Labels) -> None:
    """Print what runs lost to the machine, for the first few runs."""
    runs = {p.name: p for d in diagnoses for p in (d.fast, d.slow) if p is not None}
    lost = [
        f"{names[profile]}: {text}" if len(runs) > 1 else text
        for profile in runs.values()
        if (text := lost_in_words(profile.lost_ns, profile.length_ns, profile.cpu_share))
    ]
    for text in lost[:SHOWN]:
        terminal.write_under("Machine: ", f"{text} (not in the times above)")
    if len(lost) > SHOWN:
        terminal.write_under("Machine: ", f"{len(lost) - SHOWN} more runs lost time")


def _show_warnings(diagnoses: Sequence[Diagnosis], *, full: bool) -> None:
    """Print what the profiles lack and why to doubt their times, each kind once."""
    found = [(lack.kind, run, lack.sentence) for d in diagnoses for run, lack in d.lacks]
    found += [(doubt.kind, p.label, str(doubt)) for d in diagnoses for p, doubt in d.doubts]
    alone = len(diagnoses) == 1 and diagnoses[0].fast is None
    warned.show(found, named=not alone, full=full, see="--warnings")
