"""The verdict in a line says what the sentence says, and no more."""

from __future__ import annotations

from typing import Any

import pytest
from diagnose.made import contributor, profile

from lstmprof.breakdown.doubts import CPU_TAKEN, Warning
from lstmprof.diagnose import sentences
from lstmprof.diagnose.certainty import Outcome
from lstmprof.diagnose.diagnosis import Diagnosis, alone, compare
from lstmprof.diagnose.findings import findings
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.diagnose.verdicts import verdicts

MS = 1_000_000


def ran(name: str, python_ns: int, **fields: Any) -> StepProfile:
    """A run of 10 ms of products and so much Python, timed as it was profiled."""
    step_ns = 10 * MS + python_ns
    timed = {"step_ns": step_ns, "interval_ns": (0.99 * step_ns, 1.01 * step_ns)}
    parts = [contributor("busy", "gemm", 10 * MS, "mm"), contributor("idle", "python", python_ns)]
    return profile(*parts, name=name, **{**timed, **fields})


def told(diagnosis: Diagnosis) -> tuple[str, str]:
    return diagnosis.verdict, diagnosis.certainty


def test_of_a_cause_it_has_the_ratio_the_kind_and_its_size() -> None:
    assert told(compare(ran("a", MS), ran("b", 12 * MS))) == (
        "b is 2.00× slower than a: Python-bound, 11.0 of the 11.0 ms",
        "measured",
    )


def test_what_is_within_noise_is_not_called_slower() -> None:
    assert told(compare(ran("a", MS), ran("b", MS + MS // 100))) == (
        "b and a cannot be told apart: 11.0 and 11.0 ms",
        "within noise",
    )


def test_times_of_a_cpu_are_called_so() -> None:
    fast, slow = (ran(name, MS, compared_by="CPU time") for name in "ab")
    parts = findings(fast, slow)
    said = sentences.verdict(fast, slow, parts, Outcome("none", differs=False))
    assert said == "by CPU time: b and a cannot be told apart: 11.0 and 11.0 ms"


def test_what_a_doubt_hides_is_not_called_slower() -> None:
    doubts = (Warning(CPU_TAKEN, "something happened", "do something", 0.5),)
    assert told(compare(ran("a", 0), ran("b", 4 * MS, doubts=doubts))) == (
        "b and a cannot be told apart: 14.0 and 10.0 ms",
        "cannot be told",
    )


def test_a_difference_without_a_cause_says_so() -> None:
    slow = ran("b", MS, step_ns=21 * MS, interval_ns=(20.9 * MS, 21.1 * MS))
    assert told(compare(ran("a", MS), slow)) == (
        "b is 1.91× slower than a; why cannot be told",
        "cannot be told",
    )


@pytest.mark.parametrize(
    ("run", "verdict"),
    [
        (ran("a", MS), "a is GEMM-bound: 91 % of the step"),
        (ran("a", MS, step_ns=MS // 2), "a: what it is bound by cannot be told"),
    ],
)
def test_a_run_alone_is_held_against_its_step(run: StepProfile, verdict: str) -> None:
    assert alone(run).verdict == verdict


def test_runs_that_cannot_be_told_from_one_share_a_line() -> None:
    base, near, same, slow = (
        ran(name, python_ns)
        for name, python_ns in (("a", MS), ("b", MS + MS // 100), ("c", MS), ("d", 12 * MS))
    )
    diagnoses = [compare(base, other) for other in (near, slow, same)]
    assert [(v.sentence, v.certainty, len(v.diagnoses)) for v in verdicts(diagnoses)] == [
        ("b and c cannot be told apart from a: 11.0 and 11.0 against 11.0 ms", "within noise", 2),
        (*told(diagnoses[1]), 1),
    ]
    assert [v.sentence for v in verdicts(diagnoses[:2])] == [d.verdict for d in diagnoses[:2]]


def test_what_a_doubt_hides_has_a_line_of_its_own() -> None:
    doubts = (Warning(CPU_TAKEN, "something happened", "do something", 0.5),)
    hidden = [compare(ran("a", 0), ran(name, 4 * MS, doubts=doubts)) for name in "bc"]
    assert [v.sentence for v in verdicts(hidden)] == [d.verdict for d in hidden]
    assert [v.sentence for v in verdicts([alone(ran("a", MS))])] == [alone(ran("a", MS)).verdict]
