"""Measure and rank implementations of a network, and return code of the fastest.

::

    request ─▶ candidates ─▶ one round of each ─▶ several rounds of the fastest ─▶ ranking

A round is one process that times steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lstmprof import implementations
from lstmprof.base.errors import RunError
from lstmprof.base.numbers import cut_text, listed, milliseconds
from lstmprof.breakdown import Breakdown
from lstmprof.diagnose.certainty.pair import no_difference, span_of
from lstmprof.diagnose.diagnosis import Diagnosis, compare
from lstmprof.diagnose.recommend.code import code_of
from lstmprof.diagnose.step_profile import StepProfile, step_profile_of
from lstmprof.implementations import Implementation
from lstmprof.workloads import Workload

if TYPE_CHECKING:
    import pandas

#: Characters per line of the ranking.
_LINE = 100
#: Values of ``Ranked.certainty``: how an implementation compares with the fastest.
FIRST, TIE, MEASURED, UNSURE = "first", "tie", "measured", "unknown"


@dataclass(frozen=True)
class LeftOut:
    implementation: str
    reason: str


@dataclass(frozen=True)
class Ranked:
    """A measured implementation and its rank."""

    rank: int  # tied implementations share it
    profile: StepProfile
    certainty: str  # first, tie, measured (surely slower) or unknown
    slowdown: float
    reason: str
    first_look: bool  # timed in one round only

    def __repr__(self) -> str:
        return f"<Ranked {self.rank}: {self.implementation} ({self.certainty})>"

    @property
    def implementation(self) -> str:
        return self.profile.implementation or self.profile.name

    @property
    def row(self) -> Implementation | None:
        """Return a built-in implementation; None if the user's own file was measured."""
        return implementations.ROWS.get(self.implementation)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of the JSON output."""
        span, info = span_of(self.profile), self.profile.info
        device = (info.device or "cpu").partition(":")[0]
        return {
            "rank": self.rank,
            "implementation": self.implementation,
            "framework": info.framework,
            "form": None if self.row is None else self.row.form_on(device),
            "step_ns": self.profile.step_ns,
            "step_low_ns": span.low_ns,
            "step_high_ns": span.high_ns,
            "slowdown": self.slowdown,
            "certainty": self.certainty,
            "reason": self.reason or None,
            "first_look": self.first_look,
            "run": self.profile.name,
        }


@dataclass(frozen=True)
class Recommendation:
    """The result of ``lp.recommend``: the measured implementations, fastest first.

    ``framework`` is the framework of the run that the user gave as ``like``, if any.
    """

    workload: Workload
    ranking: tuple[Ranked, ...]
    left_out: tuple[LeftOut, ...]
    framework: str | None = None

    @property
    def winner(self) -> Ranked:
        return self.ranking[0]

    @property
    def ties(self) -> tuple[Ranked, ...]:
        """Return the implementations that may be as fast as the fastest."""
        return tuple(r for r in self.ranking[1:] if r.certainty == TIE)

    @property
    def code(self) -> str:
        """Return Python code that builds the network with the fastest implementation."""
        return code_of(self.winner.implementation, self.workload)

    @property
    def sentence(self) -> str:
        """Return the fastest implementation, its ties, and how much slower the next one is."""
        first = self.winner
        text = f"{first.implementation}, {milliseconds(first.profile.length_ns)} ms per step"
        if len(self.ranking) == 1:
            return f"{text}: no other implementation ran here."
        if self.ties:
            names = listed(tie.implementation for tie in self.ties)
            text += f", tied with {names}"
        unsure = [r.implementation for r in self.ranking[1:] if r.certainty == UNSURE]
        if unsure:
            text += f"; perhaps as fast: {listed(unsure)}"
        slower = next((r for r in self.ranking[1:] if r.certainty == MEASURED), None)
        if slower is not None:
            text += f"; next is {slower.implementation}, {slower.slowdown:.2f}× as long"
        return f"{text}.{self._framework_sentence()}"

    def _framework_sentence(self) -> str:
        """Return a sentence on the fastest implementation of the user's framework."""
        own = self.framework
        if own is None or self.winner.profile.info.framework == own:
            return ""
        best = next((r for r in self.ranking if r.profile.info.framework == own), None)
        if best is None or best.certainty != MEASURED:
            return ""
        return f" Fastest in {own}: {best.implementation}, {best.slowdown:.2f}× as long."

    def __repr__(self) -> str:
        lines = [self.sentence]
        for r in self.ranking:
            step = f"{milliseconds(r.profile.length_ns):>9} ms  {r.slowdown:.2f}×"
            line = f"{r.rank:>3}  {r.implementation:<28} {step}  {r.reason}".rstrip()
            lines.append(cut_text(line, _LINE))
        return "\n".join(lines)

    def to_pandas(self) -> pandas.DataFrame:
        """Return one row per implementation."""
        import pandas

        return pandas.DataFrame.from_records([ranked.to_dict() for ranked in self.ranking])

    def to_dict(self) -> dict[str, Any]:
        """Return the document that ``lstmprof recommend --format json`` writes."""
        info = self.winner.profile.info
        return {
            "workload": vars(self.workload),
            "precision": info.precision,
            "mode": info.mode,
            "device": info.device,
            "device_name": info.device_name,
            "threads": info.threads,
            "sentence": self.sentence,
            "ranking": [ranked.to_dict() for ranked in self.ranking],
            "left_out": [vars(left) for left in self.left_out],
            "code": self.code,
        }


def ranked(
    finals: Sequence[Breakdown], first_looks: Sequence[Breakdown] = ()
) -> tuple[Ranked, ...]:
    """Rank the runs, shortest step first."""
    looked = {breakdown.run.name for breakdown in first_looks}
    profiles = [step_profile_of(breakdown) for breakdown in (*finals, *first_looks)]
    if not profiles:
        raise RunError("no implementation could be measured", "see the errors above")
    profiles = sorted(profiles, key=lambda profile: profile.length_ns)
    first, *others = profiles
    rows = [Ranked(1, first, FIRST, 1.0, "", first.name in looked)]
    head, rank = first, 1
    for position, profile in enumerate(others, 2):
        if not no_difference(head, profile):
            head, rank = profile, position
        diagnosis = compare(first, profile)
        same = UNSURE if diagnosis.outcome.state == "unknown" else TIE
        certainty = MEASURED if diagnosis.outcome.differs else same
        slowdown = profile.length_ns / first.length_ns
        look = profile.name in looked
        rows.append(Ranked(rank, profile, certainty, slowdown, reason_of(diagnosis), look))
    return tuple(rows)


def reason_of(diagnosis: Diagnosis) -> str:
    """Say in one line why the slower run is slower."""
    if diagnosis.dominant is None:
        return diagnosis.outcome.reason
    return f"{diagnosis.dominant.finding.words} {diagnosis.dominant.sentence.rstrip('.')}"
