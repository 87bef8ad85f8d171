"""The verdict on a run: the cause, then the bottleneck, then the fix.

The terminal, JSON, the report, notebooks and the gate show the same ``Verdict``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lstmprof.base.numbers import in_prose, listed, milliseconds, percent
from lstmprof.breakdown.clean.now_and_then import Rare
from lstmprof.breakdown.clean.script_waits import SLEEPS
from lstmprof.breakdown.clean.slot_times import Span
from lstmprof.diagnose.certainty import Level, Outcome, State, certainty_of
from lstmprof.diagnose.certainty.pair import (
    Ratio,
    counts_in_words,
    in_words,
    layer_in_words,
    layers_explain,
    span_of,
    structure_in_words,
)
from lstmprof.diagnose.findings import (
    ADVISED_SHARE,
    HOST,
    NAMED_SHARE,
    Difference,
    Finding,
    causes,
    settings,
    wait_of,
)
from lstmprof.diagnose.findings.because import because, pace
from lstmprof.diagnose.remedies import TABLE, Advice, leading_advice
from lstmprof.diagnose.remedies.work import tf32
from lstmprof.diagnose.step_profile import StepProfile, labels
from lstmprof.runs.fields import ScriptLine

#: Smallest ratio of an interval's upper to lower end at which the verdict shows the interval.
WIDE = 1.25
#: Kinds of time that do not grow with the number of ops or launches.
_NOT_BY_COUNT = (
    *(causes.INPUT, causes.SYNC, causes.COLLECTIVE, causes.ALLOCATION, causes.RUNTIME),
    *(causes.CPU_OP, causes.COMPILE, causes.START, causes.CTC, causes.QUEUE, causes.WAITING),
)
#: Smallest ratio of an interval's upper to lower end at which lstmprof does not compare parts of
#: the steps. Chosen by hand.
_ROUGH = 10.0
#: Smallest ratio of two step times that lstmprof writes without decimals.
_WITHOUT_DECIMALS = 100
#: Name of the bottleneck if several kinds of waits for the host count together.
WAITS_FOR_HOST = "waiting for the host"
#: Kind of time → words for users if its name does not explain itself.
_IN_WORDS = {
    causes.QUEUE: causes.KINDS[causes.QUEUE],
    causes.RANGE: "time inside ranges in which no op was recorded",
    causes.RUNTIME: "runtime calls",
}
#: Ratio of other waits to the named wait above which all waits are the bottleneck. Chosen by hand.
_OTHER_WAITS = 0.1
#: Waits with causes of their own. A verdict mentions such a wait from ``_THEN_SHARE`` of the step.
_OWN_WAITS = (
    *(causes.INPUT, causes.SYNC, causes.COMPILE, causes.START),
    *(causes.COLLECTIVE, causes.QUEUE, causes.WAITING),
)
_THEN_SHARE = 0.1  # chosen by hand
#: Largest relative difference of two kinds of time that lstmprof treats as equally long. Chosen by
#: hand.
_ALIKE = 0.02
_PER_STEP = "per step"
#: Pattern of kinds of time whose name is plural.
_PLURAL = re.compile(r"calls$| and ")


@dataclass(frozen=True)
class Verdict:
    """Why a run (``subject``) takes as long as it does, alone or compared with ``baseline``.

    - ``state``: ``found`` (a cause), ``none`` (no difference beyond noise), or ``unknown`` (the
      profile does not show the cause)
    - ``words``: the reason if the state is ``none`` or ``unknown``
    - ``kind``: the kind of time to blame, such as matmul
    - ``bottleneck``: ``kind``, or ``waiting for the host`` if several waits count together
    - ``whole_ns``: the difference between the two steps, or the step of a single run
    - ``per``: the unit ``per step``, or ``in the whole profile`` without step markers
    - ``lost_ns``: the median timed iteration minus an undisturbed step
    """

    subject: str
    baseline: str | None
    state: State
    step: Span
    baseline_ns: int | None
    per: str
    baseline_per: str
    ratio: Ratio | None
    kind: str | None
    bottleneck: str | None
    bottleneck_ns: int
    whole_ns: int
    cause: str
    evidence: str
    then: str
    words: str
    fixes: tuple[Advice, ...]
    where: tuple[Difference, ...]
    certainty: Level
    reasons: tuple[str, ...]
    lost_ns: float | None
    now_and_then: tuple[Rare, ...]

    def __repr__(self) -> str:
        return f"<Verdict {self.sentence} ({self.certainty})>"

    @property
    def step_ms(self) -> str:
        """Return the length of the step as text, such as ``44.8 ms per step``."""
        return f"{milliseconds(self.step.ns)} ms {self.per}"

    @property
    def baseline_ms(self) -> str:
        """Return the baseline's step time as text, such as ``22.3 ms per step``."""
        return f"{milliseconds(self.baseline_ns)} ms {self.baseline_per}"

    @property
    def times(self) -> str:
        """Return the ratio as text, such as ``2.01×``."""
        if self.ratio is None:
            return ""
        value = self.ratio.value
        return f"{value:,.0f}×" if value >= _WITHOUT_DECIMALS else f"{value:.2f}×"

    @property
    def rough(self) -> bool:
        """Return whether the ratio is too uncertain to compare parts of the steps."""
        if self.ratio is None or self.ratio.sure:
            return False
        return self.ratio.high is None or self.ratio.high >= _ROUGH * self.ratio.low

    @property
    def head(self) -> str:
        """Return the part of the sentence before the colon: the runs and their times."""
        if self.baseline is None or self.ratio is None:
            return self.subject
        alike = self.per == self.baseline_per
        here = milliseconds(self.step.ns) if alike else self.step_ms
        high = self.ratio.high
        wide = high is None or high >= WIDE * self.ratio.low
        interval = f"; ratio {in_words(self.ratio)}" if wide else ""
        long = f"takes {self.times} as long as {in_prose(self.baseline)}"
        return f"{in_prose(self.subject)} {long} ({here} against {self.baseline_ms}{interval})"

    @property
    def why(self) -> str:
        """Return the part of the sentence after the colon: the cause and the bottleneck."""
        if self.rough:
            return self.cause or "the times of the steps vary too much to compare their parts"
        if self.bottleneck is None:
            return "; ".join(part for part in (self.cause, self.words) if part)
        takes = f"{self.bottleneck_words} {self.amount}"
        takes = f"{takes}: {self.evidence}" if self.evidence else takes
        takes = f"{takes}; next: {self.then}" if self.then else takes
        return f"{self.cause}; {takes}" if self.cause else takes

    @property
    def bottleneck_words(self) -> str:
        """Return the name of the bottleneck for people."""
        name = self.bottleneck or ""
        if name == WAITS_FOR_HOST:
            least_ns = ADVISED_SHARE * self.whole_ns
            waits = [d for d in self.where if wait_of(d.kind) == HOST and d.delta_ns >= least_ns]
            waits.sort(key=lambda d: -d.delta_ns)
            return f"{name} ({', '.join(d.words for d in waits)})" if waits else name
        large = next((d.words for d in self.where if d.kind == name), "")
        return _IN_WORDS.get(name) or large or causes.shown(name)

    @property
    def amount(self) -> str:
        """Return text such as ``takes 56 % of the step (4.1 of 7.3 ms)``."""
        ns, whole = milliseconds(self.bottleneck_ns), milliseconds(self.whole_ns)
        plural = _PLURAL.search(self.bottleneck_words) is not None
        if self.baseline is not None:
            of_whole = f" of {whole}" if self.bottleneck_ns <= self.whole_ns else ""
            return f"{'add' if plural else 'adds'} {ns}{of_whole} ms"
        share = percent(self.bottleneck_ns / self.whole_ns) if self.whole_ns else "all"
        rank = self._as_long if self._is_largest else self._largest_saved
        return (
            f"{'take' if plural else 'takes'} {share} of the {self.whole_noun} "
            f"({ns} of {whole} ms{rank})"
        )

    @property
    def whole_noun(self) -> str:
        return "step" if self.per == _PER_STEP else "profile"

    @property
    def _as_long(self) -> str:
        """Return a clause on other kinds of time that take as long: ``, as much as matmul``."""
        least_ns = (1 - _ALIKE) * self.bottleneck_ns
        waits = self.bottleneck == WAITS_FOR_HOST
        others = [
            d.words or d.kind
            for d in self.where
            if d.kind != self.kind and not (waits and wait_of(d.kind) == HOST)
            if d.slow_ns >= least_ns and self.kind != causes.START
        ]
        return f", as much as {listed(others)}" if others and self.bottleneck_ns else ""

    @property
    def _largest_saved(self) -> str:
        """Return ``, the largest possible saving`` if no other fix saves more."""
        larger = {fix.name for fix in self.fixes if fix.worth_ns > self.bottleneck_ns}
        # ignore TF32, which saves time only by lowering the precision
        if larger - {tf32.name}:
            return ""
        precision = " in float32" if larger else ""
        return f", the largest possible saving{precision}"

    @property
    def _is_largest(self) -> bool:
        """Return whether no kind of time is longer than the bottleneck."""
        longest = max((d.slow_ns for d in self.where), default=0)
        return self.bottleneck_ns >= longest or self.kind == causes.START

    @property
    def sentence(self) -> str:
        """Return the verdict in one sentence, without the fixes and the certainty."""
        if self.state == "none":
            differ = f"; {self.cause}" if self.cause else ""
            runs = " and ".join(in_prose(run) for run in (self.subject, self.baseline) if run)
            return f"{runs} {self.words}{differ}."
        return f"{self.head}: {self.why}."

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of the JSON output."""
        return {
            "subject": self.subject,
            "baseline": self.baseline,
            "sentence": self.sentence,
            "step_ns": self.step.ns,
            "step_low_ns": self.step.low_ns,
            "step_high_ns": self.step.high_ns,
            "ratio": None if self.ratio is None else asdict(self.ratio),
            "cause": self.cause or None,
            "kind": self.kind,
            "bottleneck": self.bottleneck,
            "evidence": self.evidence or None,
            "fixes": [fix.to_dict() for fix in self.fixes],
            "certainty": self.certainty,
            "reasons": list(self.reasons),
            "lost_ns": self.lost_ns,
            "now_and_then": [asdict(rare) for rare in self.now_and_then],
        }


def verdict_of(
    fast: StepProfile | None,
    slow: StepProfile,
    findings: Sequence[Finding],
    outcome: Outcome,
    advice: Iterable[Advice],
) -> Verdict:
    """Choose the cause, the bottleneck and the order of the fixes."""
    given = tuple(advice)
    whole_ns = sum(f.delta_ns for f in findings)
    named = outcome.cause
    waits = [f for f in findings if named and wait_of(f.kind) == wait_of(named.kind)]
    evidence = "" if named is None else because(named)
    if not evidence and named is not None and fast is None and named.kind in causes.WAITS:
        evidence = pace(slow)
    mends_cause = leading_advice(given, whole_ns, named) if outcome.state != "none" else None
    cause = mends_cause.cause if mends_cause else _cause(fast, slow, outcome, evidence)
    has_line = named is not None and (fast is None or named.kind == causes.WAITING)
    line = line_of(named) if named is not None and has_line else ""
    if line:
        cause = f"{cause}: {line}" if mends_cause else line
    elif cause and mends_cause is None:
        mends_cause = next((fix for fix in given if fix.seen and cause.startswith(fix.seen)), None)

    kinds = {row.name: row.kinds for row in TABLE}

    # put the fix of the cause first, then large savings, unknown savings and small savings
    def order(fix: Advice) -> tuple[bool, int, bool, int]:
        unknown = fix.saves_ns is None and fix.gain_ns is None
        small = 2 if fix.worth_ns < NAMED_SHARE * whole_ns else 0
        mends = named is not None and named.kind in kinds.get(fix.name, ())
        half = named is not None and mends and 2 * fix.worth_ns >= named.delta_ns
        return fix is not mends_cause, 1 if unknown else small, not half, -fix.worth_ns

    fixes = tuple(sorted(given, key=order))
    baseline, subject = (None, slow.label) if fast is None else labels(fast, slow)
    bottleneck = None if named is None else _bottleneck(named, waits)
    several = waits if bottleneck == WAITS_FOR_HOST or named is None else [named]
    level: Level = "unknown"
    reasons: tuple[str, ...] = ()
    if named is not None:
        certainty = certainty_of(named, findings)
        level, reasons = certainty.level, certainty.reasons
    elif outcome.equal:
        level = "measured"
    elif fast is None and mends_cause is not None and mends_cause.saves_ns is not None:
        level, reasons = "likely", (outcome.reason,)
    return Verdict(
        subject=subject,
        baseline=baseline,
        state=outcome.state,
        step=span_of(slow),
        baseline_ns=None if fast is None else fast.length_ns,
        per=_per(slow),
        baseline_per="" if fast is None else _per(fast),
        ratio=outcome.ratio,
        kind=None if named is None else named.kind,
        bottleneck=bottleneck,
        bottleneck_ns=sum(f.delta_ns for f in several),
        whole_ns=whole_ns,
        cause=cause,
        evidence=evidence,
        then="" if named is None or fast is not None else _then(findings, waits, whole_ns, slow),
        words=outcome.words,
        fixes=fixes,
        where=tuple(f.difference for f in findings),
        certainty=level,
        reasons=reasons,
        lost_ns=slow.lost_ns,
        now_and_then=slow.rare,
    )


def _per(profile: StepProfile) -> str:
    return _PER_STEP if profile.marked else "in the whole profile"


def _bottleneck(named: Finding, waits: Sequence[Finding]) -> str:
    """Return the kind of time, or ``waiting for the host`` if several waits are long."""
    if named.slow.device is None:
        return named.kind
    others = sum(f.delta_ns for f in waits) - named.delta_ns
    return WAITS_FOR_HOST if others > _OTHER_WAITS * named.delta_ns else named.kind


def _then(
    findings: Sequence[Finding], named: Sequence[Finding], whole_ns: int, slow: StepProfile
) -> str:
    """Return the clause after ``next:``, which names other long waits and their times."""
    of_whole = "of the step" if slow.marked else "of the profile"
    waits: dict[str, list[Finding]] = {}
    for finding in findings:
        on_host = finding.group == HOST and wait_of(finding.kind) == HOST
        if finding not in named and (on_host or finding.kind in _OWN_WAITS):
            waits.setdefault(wait_of(finding.kind), []).append(finding)
    times = sorted(
        ((sum(f.slow_ns for f in some), _bottleneck(some[0], some)) for some in waits.values()),
        reverse=True,
    )
    texts = [
        f"{_IN_WORDS.get(name, causes.shown(name))} takes {percent(ns / whole_ns)} {of_whole} "
        f"({milliseconds(ns)} ms)"
        for ns, name in times
        if whole_ns and ns >= _THEN_SHARE * whole_ns
    ]
    return listed(texts)


def _cause(fast: StepProfile | None, slow: StepProfile, outcome: Outcome, evidence: str) -> str:
    """Return what in the code takes the time, such as ``50 LSTMCell calls per step``."""
    if fast is None:
        calls = layer_in_words(slow)
        return calls if "cell" in calls.lower() and layers_explain(outcome.cause) else ""
    differ = structure_in_words(fast, slow)
    counts = counts_in_words(fast, slow)
    beside = outcome.cause is not None and outcome.cause.kind in _NOT_BY_COUNT
    if differ == counts and (beside or evidence.startswith(counts.partition(" (")[0])):
        # omit counts that do not matter to this kind of time, or that the evidence already names
        differ = ""
    same = fast.implementation is not None and fast.implementation == slow.implementation
    if differ or not same or outcome.state == "none":
        return differ
    unlike = [d for d in settings.disagreements(fast.info, slow.info) if d.fits]
    is_slower = outcome.cause is not None and outcome.cause.kind == causes.SLOWER
    return f"settings differ: {settings.listing(unlike)}" if unlike and not is_slower else ""


#: Smallest share of a bottleneck's time at which lstmprof names a line of the script as the cause.
#: Chosen by hand.
EXPLAINED_SHARE = 0.5
#: Kinds of time that a script's line may explain. Reads of values (``_ASKS``) explain only sync.
_HIDDEN_KINDS = (causes.PYTHON, causes.WAITING, causes.UNRECORDED, causes.INPUT)
_ASKS = re.compile(r"\.(item|tolist|numpy|cpu)|float|int|bool")
#: (pattern for the name of a call, what the call does); the first pattern that matches counts.
_ACTIVITIES = (
    (SLEEPS, "sleeps"),
    (re.compile(r"gc\.collect"), "runs the garbage collector"),
    (re.compile(r"\.(debug|info|warning|error)|logging\..*|(builtins\.)?print"), "logs"),
    (re.compile(r"(os|posix|nt)\.(fsync|fdatasync|sync|write)|.*\.(write|flush)"), "writes a file"),
    (re.compile(r"(io\.)?open|os\.(open|read)|.*\.(read|readline)"), "reads a file"),
    (re.compile(r".*\.(get|put|wait|acquire|join|recv|select)"), "waits"),
    (re.compile(r"subprocess\..*|os\.(system|popen)"), "runs another program"),
    (_ASKS, "reads values"),
)


def line_of(finding: Finding) -> str:
    """Find the script's line that takes the time: ``train.py:31 sleeps (time.sleep)``."""
    profile = finding.slow
    for line in profile.info.script_lines or ():
        ns = (line.share or 0.0) * profile.length_ns
        if line.call is not None and SLEEPS.fullmatch(line.call):
            ns = line.ns or ns  # on a busy machine, all lines but sleeps take longer
        if finding.kind == causes.WAITING:
            ns = line.waits_ns or 0
        if ns >= EXPLAINED_SHARE * finding.delta_ns and _fits(line, finding.kind):
            return _activity(line)
    return ""


def _fits(line: ScriptLine, kind: str) -> bool:
    if line.beside:
        return kind == causes.INPUT
    if kind == causes.WAITING:
        return bool(line.waits_ns)
    asks = line.call is not None and bool(_ASKS.fullmatch(line.call))
    return kind == causes.SYNC if asks else kind in _HIDDEN_KINDS


def _activity(line: ScriptLine) -> str:
    """Return a line's place and activity: ``train.py:31 sleeps (time.sleep)``."""
    if line.file is None:
        return "Python's garbage collector runs"
    place = f"{line.file}:{line.line}"
    if line.call is None:
        return f"{place} waits" if line.waits_ns else f"{place} runs Python ({line.function})"
    activities = (words for pattern, words in _ACTIVITIES if pattern.fullmatch(line.call))
    activity = next(activities, None)
    return f"{place} {activity} ({line.call})" if activity else f"{place} calls {line.call}"
