"""The verdicts of several diagnoses; what cannot be told from one run shares a line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lstmprof import numbers
from lstmprof.diagnose.diagnosis import Diagnosis
from lstmprof.diagnose.findings import lengths
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.numbers import listed, milliseconds


@dataclass(frozen=True)
class Verdict:
    """``sentence`` says what its diagnoses, one or more, come to; ``certainty`` is theirs."""

    sentence: str
    certainty: str
    diagnoses: tuple[Diagnosis, ...]


def verdicts(diagnoses: Sequence[Diagnosis]) -> list[Verdict]:
    """One a diagnosis, in their order; those without a difference from one run as one."""
    uses = Counter(profile.name for d in filter(_no_difference, diagnoses) for profile in _both(d))
    together: dict[tuple[str, str] | int, list[Diagnosis]] = {}
    for place, diagnosis in enumerate(diagnoses):
        key: tuple[str, str] | int = place
        if _no_difference(diagnosis):
            base = max(_both(diagnosis), key=lambda profile: uses[profile.name])
            key = (base.name, _time_of(diagnosis, base))
        together.setdefault(key, []).append(diagnosis)
    return [_verdict(key, members) for key, members in together.items()]


def _verdict(key: tuple[str, str] | int, members: list[Diagnosis]) -> Verdict:
    first = members[0]
    if isinstance(key, int) or len(members) == 1:
        return Verdict(first.verdict, first.certainty, (first,))
    base = next(profile for profile in _both(first) if profile.name == key[0])
    others = [next(p for p in _both(d) if p.name != base.name) for d in members]
    runs = [base, *others]
    base_name, *names = numbers.labels([p.name for p in runs], [p.label for p in runs])
    times = [_time_of(d, other) for d, other in zip(members, others, strict=True)]
    sentence = (
        f"{listed(names)} cannot be told apart from {base_name}: {listed(times)} "
        f"against {key[1]} ms"
    )
    return Verdict(sentence, first.certainty, tuple(members))


def _no_difference(diagnosis: Diagnosis) -> bool:
    """Whether its sentence says all, of two runs within noise."""
    two = diagnosis.fast is not None
    return two and diagnosis.certainty == "within noise" and not diagnosis.lacking


def _both(diagnosis: Diagnosis) -> list[StepProfile]:
    return [profile for profile in (diagnosis.fast, diagnosis.slow) if profile is not None]


def _time_of(diagnosis: Diagnosis, profile: StepProfile) -> str:
    """The milliseconds by which ``profile`` is compared."""
    both = _both(diagnosis)
    ends = dict(zip((p.name for p in both), lengths(both[0], both[-1]), strict=True))
    return milliseconds(ends[profile.name])
