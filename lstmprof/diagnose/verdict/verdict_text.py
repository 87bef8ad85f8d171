"""Write a verdict as at most eight lines of text: for the terminal, notebooks and ``repr``.

::

    Diagnosis ─▶ labelled texts (Line) ─▶ the most important that fit into MOST_LINES ─▶ text
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from lstmprof.base.errors import one_line
from lstmprof.base.names import FRAMEWORK_NAMES
from lstmprof.base.numbers import cropped, escaped, listed, milliseconds, percent, with_short_names
from lstmprof.breakdown.lacks import Lack
from lstmprof.breakdown.mean_step import lane_words
from lstmprof.diagnose.certainty import NOT_EXPLAINED, Level, Outcome
from lstmprof.diagnose.certainty.pair import EQUAL_SHARE, counts_in_words
from lstmprof.diagnose.findings import ADVISED_SHARE, Finding, wait_of
from lstmprof.diagnose.remedies import TABLE, Advice
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.diagnose.verdict import WAITS_FOR_HOST, Verdict

#: Largest number of lines of a verdict. Chosen by hand: two verdicts, a heading and a footer fit
#: into 25 lines.
MOST_LINES = 8
#: Characters per line if the output has no known width.
WIDTH = 100
#: Width of a label with the spaces around it.
INDENT = 9
#: Most fixes, and most kinds of time, that a verdict shows.
_FIXES, _MOST_KINDS = 2, 6
CERTAINTY_WORDS: dict[Level, str] = {
    "measured": "cause found",
    "likely": "probable cause",
    "unknown": "cause unknown",
}
#: Shortest step, or difference between two steps, in ns at which times in ms have one decimal, not
#: three.
_LONG_NS = 1_000_000
#: Pattern of the places at which a long text may be cut.
_CLAUSE_END = re.compile(r"[;:,] | and ")
#: Pattern of ``(`` with the character before, of ``)``, or of the ``…`` of a shortened name.
_BRACKET = re.compile(r"[^()…]?\(|\)|…")
#: Patterns of spaces where no line may break: within an item, and before a unit.
_WITHIN_ITEM = re.compile(r"(?<![,:]) ")
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:ns|µs|us|ms|s|B|MB)\b|%)")
_UNBROKEN = "\N{NO-BREAK SPACE}"
#: Pattern of the baseline's number after a count, `` (baseline: 61)``, which short texts omit.
_BASELINE = re.compile(r" \(baseline: [^()]*\)|; baseline: [^()]*(?=\))")


class Diagnosed(Protocol):
    """The fields of a ``Diagnosis`` that the printed text needs."""

    @property
    def verdict(self) -> Verdict: ...
    @property
    def fast(self) -> StepProfile | None: ...
    @property
    def slow(self) -> StepProfile: ...
    @property
    def outcome(self) -> Outcome: ...
    @property
    def lacks(self) -> tuple[tuple[str, Lack], ...]: ...
    @property
    def findings(self) -> Sequence[Explained]: ...
    @property
    def kernel_names(self) -> list[str]: ...


_Diagnosed = TypeVar("_Diagnosed", bound=Diagnosed)


class Explained(Protocol):
    """The fields of ``diagnosis.Explained`` that the printed text needs."""

    @property
    def finding(self) -> Finding: ...
    @property
    def remedies(self) -> Sequence[Advice]: ...


@dataclass(frozen=True)
class Line:
    """One labelled text of a verdict, wrapped to a few printed lines."""

    rank: int  # high ranks are omitted first
    label: str
    text: str
    end: str = ""  # stays if ``text`` is cut
    most: int = 2  # printed lines
    items: bool = False  # ``text`` is a list, whose items are not broken

    @property
    def head(self) -> str:
        return f"  {self.label:{INDENT - 3}} "

    def shortened(self, names: Sequence[str]) -> tuple[str, str]:
        return with_short_names(self.text, names), with_short_names(self.end, names)


def verdict_text(
    diagnosis: Diagnosed, width: int = WIDTH, spoken: Callable[[str], str] = str
) -> list[list[str]]:
    """Return the printed lines of a verdict, one list per label."""
    names = diagnosis.kernel_names
    lines = list(verdict_lines(diagnosis))
    room, printed = MOST_LINES - 1, dict[Line, list[str]]()
    for line in sorted(lines, key=lambda line: line.rank):
        # replace characters that the output cannot show (``spoken``)
        text, end = (spoken(one_line(part)) for part in line.shortened(names))
        end = f" {end}" if line.end.startswith(" ") else end
        text = _WITHIN_ITEM.sub(_UNBROKEN, text) if line.items else text
        most = min(line.most, room) if line.items else line.most
        broken = wrapped(line.head, text, end, most, width) if room else []
        if 0 < len(broken) <= room:
            room -= len(broken)
            printed[line] = broken
    first = spoken(one_line(first_line(diagnosis)))
    return [[first], *(printed[line] for line in lines if line in printed)]


def wrapped(head: str, text: str, end: str, most: int | None, width: int) -> list[str]:
    """Wrap a text behind a label into at most ``most`` lines, cut after a clause."""
    text, end = (_BEFORE_UNIT.sub(_UNBROKEN, part) for part in (text, end))
    broken = _broken(head, text, end, most, width)
    return [line.replace(_UNBROKEN, " ") for line in broken]


def _broken(head: str, text: str, end: str, most: int | None, width: int) -> list[str]:
    more = f" …{end}"
    wrapper = textwrap.TextWrapper(
        width,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_on_hyphens=False,
        break_long_words=False,
    )
    lines = wrapper.wrap(f"{text}{end}")
    if most is None or len(lines) <= most or len(head) + len(more) >= width:
        return lines
    for place in clause_ends(text):
        shorter = wrapper.wrap(f"{text[:place]}{more}")
        if len(shorter) <= most:
            return shorter
    wrapper.max_lines, wrapper.placeholder = most, more
    # append a long word, because textwrap adds the placeholder only if the text does not fit
    return wrapper.wrap(f"{text} {'x' * width}")


def clause_ends(text: str) -> list[int]:
    """Return the ends of the clauses of a text outside brackets, the last end first."""
    ends = [match.start() for match in _CLAUSE_END.finditer(text)]
    return [end for end in reversed(ends) if not _open_brackets(text[:end])]


def _open_brackets(text: str) -> list[str]:
    """Return the brackets that are open at the end of a text."""
    opened: list[str] = []
    for match in _BRACKET.finditer(text):
        if match[0].endswith("("):
            opened.append(match[0])
        elif match[0] == ")":
            del opened[-1:]
        # close the bracket of a shortened name at ``…``: ``gemm(float*, …`` has no ``)``
        else:
            while opened and opened[-1] not in (" (", "("):
                opened.pop()
    return opened


def page(diagnosis: Diagnosed) -> str:
    """Return the baseline and the verdict as text for ``repr``."""
    against = baseline_line(diagnosis)
    heading = [one_line(against)] if against else []
    return "\n".join([*heading, *(line for part in verdict_text(diagnosis) for line in part)])


def markdown_page(diagnosis: Diagnosed) -> str:
    """Return the baseline and the verdict in Markdown for a notebook."""
    against, names = baseline_line(diagnosis), diagnosis.kernel_names
    head = [escaped(against)] if against else []
    head.append(f"**{escaped(first_line(diagnosis))}**")
    shown = [(line.label, "".join(line.shortened(names))) for line in verdict_lines(diagnosis)]
    lines = [
        f"- **{label}** {escaped(text)}" if label else f"- {escaped(text)}" for label, text in shown
    ]
    return "\n".join(["  \n".join(head), "", *lines])


def baseline_line(diagnosis: Diagnosed) -> str:
    """Return text such as ``baseline: torch-nn-lstm, 22.3 ms per step``."""
    verdict, fast = diagnosis.verdict, diagnosis.fast
    if fast is None or verdict.baseline is None:
        return ""
    used = fast.info.kernels_used
    kernels = f" (recurrent layers: {used})" if used else ""
    return f"baseline: {verdict.baseline}, {verdict.baseline_ms}{kernels}"


def first_line(diagnosis: Diagnosed) -> str:
    """Return the run's name, step time, ratio, device and certainty."""
    verdict = diagnosis.verdict
    words = [verdict.subject, verdict.step_ms]
    if verdict.baseline is not None:
        words.append("ratio unknown" if verdict.rough else f"{verdict.times} as long")
    words += [lane] if (lane := lane_of(diagnosis.slow)) else []
    words += [] if verdict.state == "none" else [CERTAINTY_WORDS[verdict.certainty]]
    return "   ".join(words)


def lane_of(profile: StepProfile) -> str:
    """Name the diagnosed device: ``device 0 of rank 3 only (1 of 8 devices)``."""
    lane, lanes = lane_words(*profile.rank_device), profile.lanes
    return f"{lane} only (1 of {lanes} devices)" if lanes > 1 else ""


def verdict_lines(diagnosis: Diagnosed) -> Iterator[Line]:
    """Yield the lines of a verdict, such as ``Why``, in the order of printing."""
    verdict = diagnosis.verdict
    if verdict.state == "none":
        yield Line(0, "Same" if diagnosis.outcome.equal else "Unsure", f"both {verdict.words}")
        if verdict.cause:
            yield Line(1, "Differ", verdict.cause)
        return
    then = f"; next: {verdict.then}" if verdict.cause and verdict.then else ""
    yield Line(0, "Why", f"{verdict.cause or verdict.why}{then}", most=3)
    for number, (label, text, gain) in enumerate(fix_lines(diagnosis)):
        rank, most = (5, 2) if number else (1, 3)
        yield Line(rank, label, text, gain and f" ({gain})", most)
    where = ", ".join(f"{words} {amount}" for _, words, amount in largest_kinds(verdict))
    if verdict.rough and diagnosis.fast is not None:
        counts = counts_in_words(diagnosis.fast, diagnosis.slow)
        vary = "unknown, because the times of the steps vary too much"
        yield Line(3, "Where", f"{vary}{counts and '; '}{counts}")
    elif where:
        yield Line(3, "Where", f"{where_heading(verdict)}: {where}", most=3, items=True)
    if verdict.cause and verdict.evidence and not verdict.rough:
        yield Line(4, "", verdict.evidence)
    if verdict.reasons:
        yield Line(2, "Doubt", listed(verdict.reasons))
    for rare in verdict.now_and_then[:1]:
        often = f"in {rare.steps} of {diagnosis.slow.steps} steps"
        took = f"{cropped(rare.name)} takes {milliseconds(rare.each_ns)} ms"
        yield Line(6, "Rare", f"{took}, but only {often}")


def fix_lines(diagnosis: Diagnosed) -> list[tuple[str, str, str]]:
    """Return the fixes to print, best first, as (label, fix, gain)."""
    verdict, profile = diagnosis.verdict, diagnosis.slow
    if verdict.state == "found" and not verdict.fixes:
        framework = FRAMEWORK_NAMES.get(profile.framework or "")
        device = {"cpu": "on a CPU", "cuda": "on a GPU"}.get(profile.runs_on or "")
        where = " ".join(filter(None, (framework and f"in {framework}", device)))
        return [("Fix", f"lstmprof knows no fix for this cause {where}".rstrip(), "")]
    first_of = {fix.fix: fix for fix in reversed(verdict.fixes)}  # a fix may fit two kinds of time
    different = [fix for fix in verdict.fixes if first_of[fix.fix] is fix][:_FIXES]
    gains = ["" if verdict.rough else fix.gain for fix in different]
    return [
        (
            "Fix" if gain and verdict.state == "found" else "Try",
            _other_part(diagnosis, fix) + fix.fix,
            gain or "gain unknown",
        )
        for fix, gain in zip(different, gains, strict=True)
    ]


def _other_part(diagnosis: Diagnosed, fix: Advice) -> str:
    """Return a prefix for a fix of another kind of time: ``transfer (5 % of the step): ``."""
    verdict = diagnosis.verdict
    several = any(row.name == fix.name and row.several_kinds for row in TABLE)
    if verdict.kind is None or several or verdict.cause.startswith((fix.cause, fix.seen or "\n")):
        return ""
    about = [e.finding for e in diagnosis.findings if fix.fix in [a.fix for a in e.remedies]]
    waits = wait_of(verdict.kind) if verdict.bottleneck == WAITS_FOR_HOST else verdict.kind
    if not about or {verdict.kind, waits} & {k for f in about for k in (f.kind, wait_of(f.kind))}:
        return ""
    share = about[0].share
    of_what = "difference" if verdict.baseline is not None else verdict.whole_noun
    return f"{about[0].words}{'' if share is None else f' ({percent(share)} of the {of_what})'}: "


def where_heading(verdict: Verdict) -> str:
    """Return the unit of the numbers in the line "Where": ``ms per step``."""
    if verdict.baseline is not None:
        return "difference from the baseline in ms"
    return f"ms {verdict.per}"


def largest_kinds(verdict: Verdict) -> list[tuple[str, str, str]]:
    """Return the largest kinds of time as (kind, words for people, ms as text)."""
    least = ADVISED_SHARE * max(abs(verdict.whole_ns), 1)
    large = [d for d in verdict.where if abs(d.delta_ns) >= least]
    large = sorted(large, key=lambda d: -abs(d.delta_ns))[:_MOST_KINDS]
    large.sort(key=lambda d: -d.delta_ns)
    rest = verdict.whole_ns - sum(d.delta_ns for d in large)
    digits = 1 if abs(verdict.whole_ns) >= _LONG_NS else 3
    shown = [(d.kind, d.words or d.kind, d.delta_ns) for d in large]
    shown += [("other", "other", rest)] if len(large) < len(verdict.where) else []
    plus = "+" if verdict.baseline is not None else ""
    amounts = [(kind, words, ns, f"{abs(ns) / 1e6:,.{digits}f}") for kind, words, ns in shown]
    return [
        (kind, words, f"{plus if ns >= 0 else '−'}{amount}")
        for kind, words, ns, amount in amounts
        if kind != "other" or amount.strip("0.,")
    ]


def worst_first(diagnoses: Iterable[_Diagnosed]) -> list[_Diagnosed]:
    """Sort diagnoses for people: large slowdowns first, then single runs with much to gain."""

    def badness(diagnosis: Diagnosed) -> tuple[bool, float, float]:
        verdict = diagnosis.verdict
        if verdict.ratio is not None:
            return True, verdict.ratio.value, 0.0
        share, best = verdict.bottleneck_ns / (verdict.whole_ns or 1), best_fix(verdict)
        saved = best.worth_ns / verdict.step.ns if best and verdict.step.ns else 0.0
        return False, saved if share else -1.0, share

    return sorted(diagnoses, key=badness, reverse=True)


def best_fix(verdict: Verdict) -> Advice | None:
    best = max(verdict.fixes, key=lambda fix: fix.worth_ns, default=None)
    return best if best is not None and best.worth_ns else None


def gained(before: Verdict, after: Verdict) -> str:
    """Compare the forecast gain of the first fix with the measured gain."""
    fix = next(iter(before.fixes), None)
    forecast = fix.gain.partition(", measured with")[0] if fix is not None else ""
    less_ns = before.step.ns - after.step.ns
    was, now = milliseconds(before.step.ns), milliseconds(after.step.ns)
    if after.step.high_ns < before.step.low_ns or before.step.high_ns < after.step.low_ns:
        word = "gain" if less_ns >= 0 else "loss"
        gain = f"real {word}: {milliseconds(abs(less_ns))} ms (from {was} to {now} ms per step)"
    else:
        gain = f"real gain unknown: {was} and {now} ms per step have overlapping 95 % intervals"
    return f"forecast of the first fix: {forecast or 'gain unknown'}; {gain}"


def in_short(diagnosis: Diagnosed) -> str:
    """Return the cause and the bottleneck in a few words."""
    verdict = diagnosis.verdict
    if diagnosis.outcome.equal:
        return f"same as the baseline, within {percent(EQUAL_SHARE)}"
    if verdict.bottleneck is None:
        blind = (lack.words for _, lack in diagnosis.lacks if lack.blinds)
        words = verdict.words.removeprefix(NOT_EXPLAINED)
        return next((f"unknown: {kind}" for kind in blind), words)
    name = verdict.bottleneck_words
    if verdict.baseline is not None:
        cause = _BASELINE.sub("", verdict.cause)
        return cause or f"{name} +{milliseconds(verdict.bottleneck_ns)} ms"
    share = percent(verdict.bottleneck_ns / (verdict.whole_ns or 1))
    kind = f"{name} {share} of the {verdict.whole_noun}"
    counts = f"{kind}: {verdict.evidence}" if verdict.evidence else kind
    text = f"{verdict.cause}; {kind}" if verdict.cause else counts
    return with_short_names(text, diagnosis.kernel_names, 32)
