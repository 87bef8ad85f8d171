"""Every setting of two runs is compared, and differences come first."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from diagnose.made import contributor, profile

from lstmprof.diagnose.diagnosis import compare
from lstmprof.diagnose.findings.settings import Disagreement, disagreements, listing
from lstmprof.runs.fields import Settings
from lstmprof.runs.metadata import RunInfo, run_info

#: Two values of each type that a setting has.
VALUES = {
    "framework_denormals": ("flushed", "kept"),
    "environment": ({}, {"OMP_WAIT_POLICY": "ACTIVE"}),
    "matmul_precision": ("highest", "high"),
    "blas": ("openblasp-r0-2d23e62b.3.17", "none"),
    "allocator": ("glibc", "jemalloc"),
    "transparent_huge_pages": ("madvise", "always"),
    "intra_op_threads": (1, 2),
    "inter_op_threads": (1, 2),
    "nice": (0, 19),
    "cpu_quota": (2.0, 0.5),
}


def info(**given: Any) -> RunInfo:
    return run_info({"settings": given})


@pytest.mark.parametrize("name", [field.name for field in msgspec.structs.fields(Settings)])
def test_every_setting_is_compared(name: str) -> None:
    first, second = VALUES.get(name, (False, True))
    assert disagreements(info(**{name: first}), info(**{name: first})) == ()
    (differing,) = disagreements(info(**{name: first}), info(**{name: second}))
    assert differing.slow != differing.fast


@pytest.mark.parametrize("name", [field.name for field in msgspec.structs.fields(Settings)])
def test_what_is_unknown_of_one_does_not_differ(name: str) -> None:
    value = VALUES.get(name, (False, True))[1]
    assert disagreements(info(**{name: value}), info()) == ()
    assert disagreements(info(), info(**{name: value})) == ()


def test_one_thread_s_denormals_are_listed_once() -> None:
    flushed = info(framework_denormals="flushed", flush_to_zero=True, denormals_are_zero=True)
    kept = info(framework_denormals="kept", flush_to_zero=False, denormals_are_zero=False)
    assert [(d.setting, d.slow) for d in disagreements(flushed, kept)] == [("denormals", "kept")]


def test_variables_of_the_environment_are_compared_one_by_one() -> None:
    fast = info(environment={"OMP_WAIT_POLICY": "PASSIVE", "MKL_DYNAMIC": "0"})
    slow = info(environment={"OMP_WAIT_POLICY": "ACTIVE", "KMP_BLOCKTIME": "200"})
    assert [(d.setting, d.slow, d.fast) for d in disagreements(fast, slow)] == [
        ("KMP_BLOCKTIME", "200", "unset"),
        ("MKL_DYNAMIC", "unset", "0"),
        ("OMP_WAIT_POLICY", "ACTIVE", "PASSIVE"),
    ]


@pytest.mark.parametrize(
    ("number", "end"), [(4, " and d 0 instead of 1"), (5, ", d 0 instead of 1 and 1 more")]
)
def test_of_many_the_first_four_are_listed_and_the_others_counted(number: int, end: str) -> None:
    differ = [Disagreement(name, "0", "1") for name in "abcde"[:number]]
    assert listing(differ) == f"a 0 instead of 1, b 0 instead of 1, c 0 instead of 1{end}"


@pytest.mark.parametrize(
    ("facts", "named"),
    [({"implementation": "torch-nn-lstm"}, True), ({"implementation": None}, False)],
)
def test_of_one_implementation_they_stand_beside_a_cause_of_any_kind(
    facts: dict[str, Any], named: bool
) -> None:
    fast, slow = (
        profile(
            contributor("busy", "gemm", calls * 1_000_000, "aten::mm", count=calls),
            name=name,
            facts={**facts, "settings": {"onednn": on, "deterministic": on}},
        )
        for name, calls, on in (("a", 1, True), ("b", 3, False))
    )
    found = compare(fast, slow)
    assert found.verdict.kind == "matmul"
    assert ("oneDNN off" in found.verdict.cause) is named
    assert "deterministic" not in found.verdict.cause  # which costs the fast run time


def test_they_are_the_first_note_of_two_runs_and_a_field_of_the_document() -> None:
    fast, slow = (
        profile(
            contributor("busy", "gemm", ns, "aten::mm"),
            name=name,
            facts={"seed": seed, "settings": {"onednn": on, "anomaly_mode": not on}},
        )
        for name, ns, seed, on in (("a", 1_000_000, 0, True), ("b", 1_100_000, 1, False))
    )
    found = compare(fast, slow, across=["seed"])
    for part in ("anomaly mode on instead of off", "oneDNN off instead of on"):
        assert part in found.notes[0]
    assert found.to_dict()["settings"] == [
        {"setting": "anomaly mode", "slow": "on", "fast": "off"},
        {"setting": "oneDNN", "slow": "off", "fast": "on"},
    ]
    same = compare(fast, fast)
    assert same.to_dict()["settings"] == []
    assert not any("settings" in note for note in same.notes)
