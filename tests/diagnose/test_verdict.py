"""The verdict in a line says what the sentence says, and no more."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
from diagnose.made import contributor, profile, span

from lstmprof.breakdown.doubts import GOVERNOR, Warning
from lstmprof.breakdown.lacks import Lack
from lstmprof.diagnose.diagnosis import Diagnosis, alone, compare
from lstmprof.diagnose.document import Document
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.diagnose.verdicts import verdicts

MS = 1_000_000


def ran(name: str, python_ns: int, **fields: Any) -> StepProfile:
    """A run of 10 ms of products and so much Python, timed as it was profiled."""
    step_ns = 10 * MS + python_ns
    timed = {"step_ns": step_ns, "span": span(step_ns)}
    parts = [contributor("busy", "gemm", 10 * MS, "mm"), contributor("idle", "python", python_ns)]
    return profile(*parts, name=name, **{**timed, **fields})


def told(diagnosis: Diagnosis) -> tuple[str, str]:
    return diagnosis.verdict, diagnosis.certainty


def test_of_a_cause_it_has_the_ratio_the_kind_and_its_size() -> None:
    assert told(compare(ran("a", MS), ran("b", 12 * MS))) == (
        "b takes 2.00× as long as a: Python, 11.0 of the 11.0 ms",
        "measured",
    )


def test_what_is_within_noise_does_not_take_longer() -> None:
    assert told(compare(ran("a", MS), ran("b", MS + MS // 100))) == (
        "b and a cannot be told apart: 11.0 and 11.0 ms",
        "within noise",
    )


def test_a_difference_without_a_cause_says_so() -> None:
    fast = ran("a", MS)
    doubled = tuple(replace(part, ns=2 * part.ns) for part in fast.contributors)
    slow = replace(fast, name="b", contributors=doubled, span=span(22 * MS))
    assert told(compare(fast, slow)) == (
        "b takes 2.00× as long as a; the profile does not hold why",
        "cannot be told",
    )


def test_a_run_alone_is_its_largest_cause_or_cannot_be_told() -> None:
    assert alone(ran("a", MS)).verdict == "a is matmul: 91 % of the step"
    unknown = profile(contributor("busy", "other", MS, "custom::op"), name="a")
    assert alone(unknown).verdict == "a: what it is bound by cannot be told"


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


def test_a_run_whose_profile_lacks_something_has_a_line_of_its_own() -> None:
    lacks = (Lack("note", "something is not there"),)
    lacking = [compare(ran("a", MS), ran(name, MS, lacks=lacks)) for name in "bc"]
    assert [v.sentence for v in verdicts(lacking)] == [d.verdict for d in lacking]
    assert [v.sentence for v in verdicts([alone(ran("a", MS))])] == [alone(ran("a", MS)).verdict]


def test_reasons_to_doubt_the_times_are_in_the_document_and_obey_its_schema() -> None:
    doubt = Warning(GOVERNOR, "the CPU governor is 'powersave'", "set it to 'performance'")
    written = json.dumps(compare(ran("a", MS), ran("b", 12 * MS, doubts=(doubt,))).to_dict())
    (found,) = msgspec.json.decode(written, type=Document).doubts
    assert (found.run, found.kind) == ("b", "governor")
