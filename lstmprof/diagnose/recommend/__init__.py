"""Which implementation to use for a network on this machine: measured, ranked, with its code.

::

    request ─ candidates ─ first look, one round each ─ the fastest, rounds in turns ─ ranking

A first look at every row that runs here sorts out those that are far behind; the others are timed
against each other, their processes taking turns, so that what differs by less than the machine's
changes is told all the same. Each but the first is held against the first by ``diagnose``: the
reason of its gap is that of the diagnosis, and where nothing can be told the two are a tie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lstmprof import implementations
from lstmprof.breakdown import Breakdown
from lstmprof.diagnose.certainty.pair import no_difference, span_of
from lstmprof.diagnose.diagnosis import Diagnosis, compare
from lstmprof.diagnose.recommend.code import code_of
from lstmprof.diagnose.step_profile import StepProfile, step_profile_of
from lstmprof.errors import RunError
from lstmprof.implementations import Implementation
from lstmprof.numbers import listed, milliseconds
from lstmprof.runs.metadata import RunInfo
from lstmprof.workloads import Workload

if TYPE_CHECKING:
    import pandas

#: Characters of a line of the ranking.
_LINE = 100
#: How sure the distance to the first is.
FIRST, TIE, MEASURED, UNSURE = "first", "tie", "measured", "unknown"


@dataclass(frozen=True)
class LeftOut:
    """An implementation that was not measured, and why."""

    implementation: str
    reason: str


@dataclass(frozen=True)
class Ranked:
    """One measured implementation; implementations that cannot be told apart share a ``rank``.

    ``slowdown`` is its step over that of the first. ``reason`` says why it is slower; it is empty
    for the first. ``first_look`` is whether it was timed in one round only.
    """

    rank: int
    profile: StepProfile
    certainty: str
    slowdown: float
    reason: str
    first_look: bool

    def __repr__(self) -> str:
        return f"<Ranked {self.rank}: {self.implementation} ({self.certainty})>"

    @property
    def implementation(self) -> str:
        """Name of the implementation."""
        return self.profile.implementation or self.profile.name

    @property
    def row(self) -> Implementation | None:
        """Its row in the table of implementations; None for a file of the user's."""
        return implementations.ROWS.get(self.implementation)

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON has it; None is unknown."""
        span, info = span_of(self.profile), self.profile.info
        return {
            "rank": self.rank,
            "implementation": self.implementation,
            "framework": info.framework,
            "form": None if self.row is None else self.row.form_on(_kind(info)),
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
    """Measured implementations, fastest first; ``lp.recommend`` returns it."""

    workload: Workload
    ranking: tuple[Ranked, ...]
    left_out: tuple[LeftOut, ...]
    framework: str | None = None  # of the run that it is like

    @property
    def winner(self) -> Ranked:
        """The fastest implementation."""
        return self.ranking[0]

    @property
    def ties(self) -> tuple[Ranked, ...]:
        """Implementations that are tied with the fastest."""
        return tuple(r for r in self.ranking[1:] if r.certainty == TIE)

    @property
    def code(self) -> str:
        """Python code that builds the network with the fastest implementation."""
        return code_of(self.winner.implementation, self.workload)

    @property
    def sentence(self) -> str:
        """The fastest implementation, its ties, and how much slower the next one is."""
        first = self.winner
        text = f"{first.implementation}, {milliseconds(first.profile.length_ns)} ms per step"
        if len(self.ranking) == 1:
            return f"{text}: no other implementation ran here."
        if self.ties:
            names = listed([tie.implementation for tie in self.ties])
            text += f", tied with {names}"
        untold = [r.implementation for r in self.ranking[1:] if r.certainty == UNSURE]
        if untold:
            text += f"; not known to be slower: {listed(untold)}"
        slower = next((r for r in self.ranking[1:] if r.certainty == MEASURED), None)
        if slower is not None:
            text += f"; next is {slower.implementation}, {slower.slowdown:.2f}× as long"
        return f"{text}.{self._of_framework()}"

    def _of_framework(self) -> str:
        """The best of the framework that the user has, where the winner is of another."""
        own = self.framework
        if own is None or self.winner.profile.info.framework == own:
            return ""
        best = next((r for r in self.ranking if r.profile.info.framework == own), None)
        if best is None or best.certainty != MEASURED:
            return ""
        return f" Fastest in {own}: {best.implementation}, {best.slowdown:.2f}× as long."

    def __repr__(self) -> str:
        return "\n".join([self.sentence, *map(_in_a_line, self.ranking)])

    def to_pandas(self) -> pandas.DataFrame:
        """Return the ranking as a DataFrame, one row per implementation."""
        import pandas

        return pandas.DataFrame.from_records([ranked.to_dict() for ranked in self.ranking])

    def to_dict(self) -> dict[str, Any]:
        """Return the document of ``lstmprof recommend --format json``."""
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


def _in_a_line(ranked: Ranked) -> str:
    """``  2  torch-lstmcell-basic   56.4 ms  1.19×  elementwise: +7.4 ms …``."""
    step = f"{milliseconds(ranked.profile.length_ns):>9} ms  {ranked.slowdown:.2f}×"
    line = f"{ranked.rank:>3}  {ranked.implementation:<28} {step}  {ranked.reason}".rstrip()
    return line if len(line) <= _LINE else f"{line[: _LINE - 1]}…"


def _kind(info: RunInfo) -> str:
    return (info.device or "cpu").partition(":")[0]


def ranked(
    finals: Sequence[Breakdown], first_looks: Sequence[Breakdown] = ()
) -> tuple[Ranked, ...]:
    """Return the runs sorted by their steps; ``first_looks`` were timed in one round only.

    Raises:
        RunError: no run was timed, or a file of a run is missing or damaged.
    """
    looked = {breakdown.run.name for breakdown in first_looks}
    profiles = [step_profile_of(breakdown) for breakdown in (*finals, *first_looks)]
    if not profiles:
        raise RunError("no implementation could be measured", "see the errors above")
    profiles = sorted(profiles, key=lambda profile: profile.length_ns)
    first, *others = profiles
    rows = [Ranked(1, first, FIRST, 1.0, "", first.name in looked)]
    head, rank = first, 1
    for place, profile in enumerate(others, 2):
        if not no_difference(head, profile):
            head, rank = profile, place
        rows.append(_held(first, profile, rank, profile.name in looked))
    return tuple(rows)


def _held(first: StepProfile, profile: StepProfile, rank: int, look: bool) -> Ranked:
    diagnosis = compare(first, profile)
    certainty = _certainty(diagnosis)
    slowdown = profile.length_ns / first.length_ns
    return Ranked(rank, profile, certainty, slowdown, reason_of(diagnosis), look)


def _certainty(diagnosis: Diagnosis) -> str:
    state, differs = diagnosis.outcome.state, diagnosis.outcome.differs
    if differs:
        return MEASURED
    return UNSURE if state == "unknown" else TIE


def reason_of(diagnosis: Diagnosis) -> str:
    """Why the slower of two is slower, in one line; why that is not told where it is not."""
    if diagnosis.dominant is None:
        return diagnosis.outcome.reason
    return f"{diagnosis.dominant.finding.kind}: {diagnosis.dominant.sentence.rstrip('.')}"
