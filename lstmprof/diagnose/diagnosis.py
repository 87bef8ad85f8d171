"""The diagnosis: of one run against a faster one, or of a run alone against its own step."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from lstmprof.diagnose import causes, sentences
from lstmprof.diagnose.comparable import disagreements, refuse_unless_comparable
from lstmprof.diagnose.findings import Finding, findings
from lstmprof.diagnose.remedies import Advice, remedies
from lstmprof.diagnose.remedies.situation import Situation
from lstmprof.diagnose.roofline import Roofline
from lstmprof.diagnose.step_profile import StepProfile, labels
from lstmprof.diagnose.waterfall import Difference, lengths, timed, waterfall
from lstmprof.numbers import milliseconds
from lstmprof.replay.prediction import Prediction

#: Less of the difference is not worth a remedy.
ADVISED_SHARE = 0.05
#: A first step that takes so many steps longer than the other run's has compiled something.
LONG_FIRST_STEP = 10


@dataclass(frozen=True)
class Explained:
    """A finding with its sentence and what to do about it."""

    finding: Finding
    sentence: str
    remedies: tuple[Advice, ...]


@dataclass(frozen=True)
class WhatIf:
    """The slow step without one cause, or with one change, by its name."""

    name: str
    prediction: Prediction


@dataclass(frozen=True)
class Diagnosis:
    """Why ``slow`` takes as long as it does; ``fast`` is None where it is diagnosed alone.

    The differences of ``waterfall`` sum to that of the steps, those of ``findings`` too; of a run
    alone there is no waterfall, and the findings sum to its profiled step. ``warnings`` are reasons
    to doubt the times, ``notes`` what else must be known. ``roofline`` is of ``slow``, None where
    its work or its device's peaks are not known; ``what_ifs`` are what was asked for.
    """

    fast: StepProfile | None
    slow: StepProfile
    sentence: str
    waterfall: tuple[Difference, ...]
    findings: tuple[Explained, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    roofline: Roofline | None = None
    what_ifs: tuple[WhatIf, ...] = ()

    @property
    def dominant(self) -> Explained | None:
        """The cause that adds most, or takes most; None where there is no difference, or none."""
        if self.fast is not None and sentences.no_difference(self.fast, self.slow):
            return None
        cause = sentences.dominant([e.finding for e in self.findings])
        return next((e for e in self.findings if e.finding is cause), None)


def compare(one: StepProfile, other: StepProfile, across: Collection[str] = ()) -> Diagnosis:
    """Why the slower of two runs is slower.

    Raises:
        UsageError: they differ in a condition that ``across`` does not name.
    """
    refuse_unless_comparable(one, other, across)
    ends = lengths(one, other)
    fast, slow = (one, other) if ends[0] <= ends[1] else (other, one)
    found = findings(fast, slow)
    return Diagnosis(
        fast=fast,
        slow=slow,
        sentence=sentences.of_difference(fast, slow, found),
        waterfall=tuple(waterfall(fast, slow)),
        findings=_explained(found, fast, slow),
        warnings=(*_doubts(found), *_warnings(fast, slow)),
        notes=tuple(_notes(fast, slow)),
    )


def alone(profile: StepProfile) -> Diagnosis:
    """What a run's step is bound by."""
    found = findings(None, profile)
    return Diagnosis(
        fast=None,
        slow=profile,
        sentence=sentences.of_run(profile, found),
        waterfall=(),
        findings=_explained(found, None, profile),
        warnings=profile.warnings,
        notes=(*profile.notes, *_unmarked(profile)),
    )


def _explained(
    found: list[Finding], fast: StepProfile | None, slow: StepProfile
) -> tuple[Explained, ...]:
    contributors = causes.by_kind(slow, causes.comparison_of(slow, fast))
    made, told = [], set[str]()
    same = fast is not None and sentences.no_difference(fast, slow)
    for finding in found:
        advice: tuple[Advice, ...] = ()
        if not same and (finding.share or 0) >= ADVISED_SHARE and finding.delta_ns > 0:
            known = remedies(Situation(finding, tuple(contributors[finding.kind]), slow, fast))
            advice = tuple(a for a in known if a.sentence not in told)
            told |= {a.sentence for a in advice}
        made.append(Explained(finding, sentences.of_finding(finding, fast, slow), advice))
    return tuple(made)


def _warnings(fast: StepProfile, slow: StepProfile) -> list[str]:
    return [
        f"{label}: {text}"
        for label, profile in zip(labels(fast, slow), (fast, slow), strict=True)
        for text in profile.warnings
    ]


def _doubts(found: list[Finding]) -> list[str]:
    """Whether the profiled steps can explain the undisturbed ones at all."""
    cause = sentences.dominant(found)
    changed = sum(f.delta_ns for f in found if f.kind == causes.PROFILER)
    if cause is None or abs(changed) <= cause.delta_ns:
        return []
    return [
        f"what profiling changed ({milliseconds(changed)} ms) is more than the largest cause; "
        "capture again with more --profile-steps on a quieter machine"
    ]


def _notes(fast: StepProfile, slow: StepProfile) -> list[str]:
    found = [f"they differ in {d}" for d in disagreements(fast, slow)]
    if not timed(fast, slow):
        found.append("not both were timed undisturbed: this explains the profiled steps")
    if (fast.device is None) != (slow.device is None):
        found.append("one ran on a GPU and the other on a CPU: their parts are of different kinds")
    for profile in (fast, slow):
        found += [f"{profile.name}: {note}" for note in (*profile.notes, *_unmarked(profile))]
    first_steps = _first_steps(fast, slow)
    return [*found, first_steps] if first_steps else found


def _unmarked(profile: StepProfile) -> list[str]:
    """What to do about a profile in which no step is marked."""
    if profile.marked:
        return []
    return ["no step is marked, so the whole profile is taken as one: --step-range names them"]


def _first_steps(fast: StepProfile, slow: StepProfile) -> str | None:
    """When the faster run has made good for its longer first step."""
    first, other = (profile.facts.get("compile_ns") for profile in (fast, slow))
    gain = slow.length_ns - fast.length_ns
    if first is None or other is None or gain <= 0 or not timed(fast, slow):
        return None
    price = first - other
    if price < LONG_FIRST_STEP * slow.length_ns:
        return None
    name, took = labels(fast, slow)[0], milliseconds(first)
    return f"{name} has made good for its first step ({took} ms) after {-(-price // gain):,} steps"
