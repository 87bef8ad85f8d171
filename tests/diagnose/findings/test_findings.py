"""Findings: their evidence, the one that is named, and what has no recorded cause."""

from __future__ import annotations

import re
from typing import Any

import pytest
from diagnose.made import contributor, profile, table, tally

from lstmprof.diagnose.diagnosis import alone, compare
from lstmprof.diagnose.findings import Change, Culprit
from lstmprof.diagnose.findings.causes import KINDS

MS = 1_000_000


def ops(*rows: tuple[str, int]) -> dict[str, object]:
    return {"ops": table(*({"name": n, "count": c, "host_self_ns": 9} for n, c in rows))}


def test_the_verdict_has_the_bottleneck_its_size_and_its_counts() -> None:
    fast = profile(
        contributor("busy", "rnn", 20 * MS, "aten::lstm_layer"),
        contributor("idle", "dispatch", 2 * MS, "aten::view"),
        name="a",
        facts={"implementation": "torch-nn-lstm", "workload": {"time_steps": 20}},
        step_ns=22 * MS,
        tables=ops(("aten::view", 61)),
    )
    slow = profile(
        contributor("busy", "gemm", 28 * MS, "aten::mm"),
        contributor("idle", "dispatch", 20 * MS, "aten::view"),
        name="b",
        facts={"implementation": "torch-lstmcell-basic", "workload": {"time_steps": 20}},
        step_ns=48 * MS,
        tables=ops(("aten::view", 2400), ("aten::mm", 12)),
    )
    found = compare(slow, fast)
    assert found.slow is slow
    verdict = found.verdict
    assert (verdict.subject, verdict.baseline) == ("torch-lstmcell-basic", "torch-nn-lstm")
    assert verdict.times == "2.18×"
    assert (verdict.bottleneck, verdict.bottleneck_ns, verdict.whole_ns) == (
        *("dispatch", 18 * MS),
        26 * MS,
    )
    assert "2,412 ops per step" in verdict.evidence
    assert "baseline: 61" in verdict.evidence
    assert (verdict.where[1].kind, verdict.where[1].delta_ns) == ("matmul", 8 * MS)
    assert found.dominant is not None
    assert found.dominant.finding.largest == (Culprit("aten::view", 2 * MS, 20 * MS, 1.0, 1.0),)
    assert found.dominant.finding.changes[0] == Change("ops", 61.0, 2412.0)


def test_a_reason_is_what_adds_a_good_part_of_the_finding() -> None:
    fast = profile(contributor("idle", "python", 9 * MS, "forward"), name="a")
    frames = [contributor("idle", "python", MS, f"frame {n}") for n in range(20)]
    many = compare(
        fast, profile(contributor("idle", "python", 9 * MS, "forward"), *frames, name="b")
    )
    assert (many.verdict.bottleneck_ns, many.verdict.evidence) == (20 * MS, "")
    one = compare(fast, profile(contributor("idle", "python", 29 * MS, "forward"), name="b"))
    assert "29.0 ms are in forward" in one.verdict.evidence
    assert "baseline: 9.0 ms" in one.verdict.evidence
    assert one.verdict.certainty == "likely"  # neither was timed
    assert len(one.verdict.reasons) == 1


def test_time_won_back_elsewhere_is_negative() -> None:
    fast = profile(contributor("busy", "gemm", 50 * MS, "aten::mm"), name="a")
    slow = profile(
        contributor("busy", "gemm", 40 * MS, "aten::mm"),
        contributor("idle", "python", 30 * MS),
        name="b",
    )
    verdict = compare(fast, slow).verdict
    assert (verdict.bottleneck_ns, verdict.whole_ns) == (30 * MS, 20 * MS)
    assert [(part.kind, part.delta_ns) for part in verdict.where] == [
        ("Python", 30 * MS),
        ("matmul", -10 * MS),
    ]
    more, less = compare(fast, slow).findings
    assert more.sentence.startswith("+30.0 ms (150 % of the difference)")
    assert less.sentence.startswith("−10.0 ms (−50 % of the difference)")


def test_the_evidence_for_waits_for_the_host_is_the_pace_of_launches() -> None:
    run = profile(
        contributor("busy", "gemm", 7 * MS, "k", count=2),
        contributor("idle", "python", 60 * MS),
        contributor("idle", "launch call", 33 * MS, "cudaLaunchKernel"),
        device=0,
        name="bert",
        tally=tally(kernel=[3 * MS, 4 * MS], gap=[46 * MS], launch=[MS] * 2),
    )
    found = alone(run)
    verdict = found.verdict
    assert (verdict.kind, verdict.bottleneck) == ("Python", "waiting for the host")
    assert (verdict.bottleneck_ns, verdict.whole_ns) == (93 * MS, 100 * MS)
    for part in ("2 kernel launches per step", "20 per second", "3.500 ms", "46.000 ms"):
        assert part in verdict.evidence
    launching = next(e for e in found.findings if e.finding.kind == "launch")
    assert launching.finding.largest[0].name == "cudaLaunchKernel"


def unexplained(*contributors: Any) -> str:
    """Why nothing is named of a run of these, with 2 ms of matmuls in it."""
    run = profile(contributor("busy", "gemm", 2 * MS, "k"), *contributors, device=0)
    verdict = alone(run).verdict
    assert (verdict.state, verdict.bottleneck) == ("unknown", None)
    return verdict.words


def test_time_without_a_recorded_cause_is_named_with_the_most_of_the_rest() -> None:
    why = unexplained(contributor("idle", "unattributed", 8 * MS))
    assert "80 % of the step" in why
    assert "matmuls, 2.0 ms" in why


@pytest.mark.parametrize(
    ("more", "shares"),
    [((), ("80 %",)), ((contributor("idle", "host", MS),), ("73 %", "9 %"))],
)
def test_what_takes_most_of_unknown_work_is_named(
    more: tuple[Any, ...], shares: tuple[str, ...]
) -> None:
    unknown = (
        contributor("busy", "other", 5 * MS, "add(int)"),
        contributor("idle", "unattributed", 3 * MS),
    )
    why = unexplained(*unknown, *more)
    assert "most of it add(int)" in why
    assert re.findall(r"\d+ %", why) == list(shares)


def test_the_profiler_s_own_time_is_named_as_that() -> None:
    why = unexplained(
        contributor("idle", "dispatch", MS),
        contributor("idle", "sync", MS),
        contributor("idle", "profiler", 9 * MS, "Activity Buffer Request"),
        contributor("idle", "host", MS),
    )
    assert f"{KINDS['profiler']} takes 64 % of the step" in why
    assert f"{KINDS['unrecorded']} 7 %" in why


@pytest.mark.parametrize(("lost_ms", "told"), [(2, True), (3, False)])
def test_a_wait_that_is_mostly_the_profilers_is_no_cause(lost_ms: int, told: bool) -> None:
    run = profile(
        contributor("busy", "gemm", 2 * MS, "k"),
        contributor("idle", "dispatch", 5 * MS),
        device=0,
        lost_overhead_ns=lost_ms * MS,
    )
    found = alone(run)
    assert (found.outcome.state == "found") == told
    assert told or "3.0 of the 5.0 ms" in found.outcome.reason
    assert bool(found.outcome.advice) is not told


@pytest.mark.parametrize(
    ("start_ms", "sync_ms", "kind"), [(4, 2, "initialisation"), (2, 4, "sync"), (2, 2, None)]
)
def test_a_longer_sure_time_leads_where_the_first_wait_is_mostly_the_profilers(
    start_ms: int, sync_ms: int, kind: str | None
) -> None:
    run = profile(
        contributor("busy", "gemm", MS, "k"),
        contributor("idle", "dispatch", 5 * MS // 2),
        contributor("idle", "sync", sync_ms * MS, "cudaStreamSynchronize"),
        contributor("idle", "launch call", start_ms * MS, "cudaLaunchKernel", starting=True),
        device=0,
        lost_overhead_ns=2 * MS,
    )
    assert alone(run).verdict.kind == kind


def test_a_wait_beside_a_longer_one_that_may_be_the_profilers_is_likely() -> None:
    run = profile(
        contributor("busy", "gemm", MS, "k"),
        contributor("idle", "dispatch", 5 * MS),
        contributor("idle", "launch call", 4 * MS, "cudaLaunchKernel"),
        contributor("idle", "runtime", 2 * MS, "cudaFuncGetAttributes"),
        device=0,
        lost_overhead_ns=3 * MS,
    )
    verdict = alone(run).verdict
    assert (verdict.kind, verdict.certainty, len(verdict.reasons)) == ("launch", "likely", 1)


@pytest.mark.parametrize("one_device", [None, 0])
def test_a_gpu_against_a_cpu_is_said(one_device: int | None) -> None:
    other = 0 if one_device is None else None
    runs = [
        profile(contributor("busy", "gemm", n, "x"), device=d)
        for n, d in ((1, one_device), (9, other))
    ]
    assert any("GPU and the other a CPU" in note for note in compare(*runs).notes)


def test_a_long_first_step_is_held_against_what_it_wins() -> None:
    first = [{"compile_ns": 84_000 * MS}, {"compile_ns": 100 * MS}]
    fast, slow = (
        profile(contributor("busy", "gemm", ns), step_ns=ns, facts=facts, name=name)
        for name, ns, facts in (("a", 20 * MS, first[0]), ("b", 30 * MS, first[1]))
    )
    (note,) = (n for n in compare(fast, slow).notes if "84,000.0 ms" in n)
    assert "8,390 steps" in note
