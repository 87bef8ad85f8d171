"""Runs are compared only where their conditions agree, or where a user says otherwise."""

from __future__ import annotations

import pytest
from diagnose.made import contributor, profile

from lstmprof.base import names
from lstmprof.base.errors import UsageError
from lstmprof.diagnose.comparable import comparable_groups, disagreements, refuse_unless_comparable
from lstmprof.diagnose.step_profile import StepProfile

FACTS = {
    "workload": {"name": "1x320", "batch": 64},
    "precision": "fp32",
    "mode": "train",
    "device_name": "EPYC",
    "threads": 1,
    "seed": 0,
}
CHANGES = {
    "workload": {"workload": {"name": "1x320-b32", "batch": 32}},
    "precision": {"precision": "amp-bf16"},
    "mode": {"mode": "forward"},
    "device": {"device_name": "H100"},
    "threads": {"threads": 2},
    "seed": {"seed": 1},
}


def run(name: str, **facts: object) -> StepProfile:
    return profile(contributor("busy", "gemm", 1), name=name, facts={**FACTS, **facts})


@pytest.mark.parametrize("condition", names.CONDITIONS)
def test_a_difference_is_refused_and_named_unless_it_is_asked_for(condition: str) -> None:
    one, other = run("a"), run("b", **CHANGES[condition])
    with pytest.raises(UsageError, match=rf"a and b differ in {condition} .*--across {condition}"):
        refuse_unless_comparable(one, other)
    refuse_unless_comparable(one, other, [condition])
    assert list(disagreements(one, other)) == [condition]


def test_what_differs_is_said_with_both_values() -> None:
    other = run("b", precision="tf32", threads=None)
    assert list(disagreements(run("a"), other).values()) == [
        "precision (fp32 and tf32)",
        "threads (1 and unknown)",
    ]


def test_runs_fall_into_groups_by_what_must_agree() -> None:
    runs = [run("a"), run("b", seed=1), run("c")]
    assert [[c.name for c in g] for g in comparable_groups(runs)] == [["a", "c"], ["b"]]
    assert [[c.name for c in g] for g in comparable_groups(runs, ["seed"])] == [["a", "b", "c"]]


def test_profiles_made_elsewhere_are_told_apart_by_their_device() -> None:
    one, other = (profile(name=n, facts={"device_names": {"0": n}}) for n in ("A100", "H100"))
    with pytest.raises(UsageError, match=r"device \(A100 and H100\)"):
        refuse_unless_comparable(one, other)


def test_an_unknown_condition_is_refused_and_help_names_the_others() -> None:
    with pytest.raises(UsageError, match="unknown condition 'batch'"):
        comparable_groups([run("a")], ["batch"])
    assert set(CHANGES) == set(names.CONDITIONS)
