"""Findings: their evidence, the sentence of the dominant cause, and what is said of a run alone."""

from __future__ import annotations

from typing import Any

import pytest
from diagnose.made import contributor, profile, table, tally

from lstmprof.diagnose.diagnosis import alone, compare
from lstmprof.diagnose.findings import Change, Culprit

MS = 1_000_000


def ops(*rows: tuple[str, int]) -> dict[str, object]:
    return {"ops": table(*({"name": n, "count": c, "host_self_ns": 9} for n, c in rows))}


def test_the_first_sentence_names_the_cause_its_size_and_its_counts() -> None:
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
    assert found.sentence == (
        "torch-lstmcell-basic takes 2.18× as long as torch-nn-lstm (48.0 against 22.0 ms per step); "
        "torch-lstmcell-basic has 2,412 ops per step against 61: "
        "dispatch; 18.0 of the 26.0 ms go to framework dispatch: it has 2,412 ops per step "
        "(121 a time step) where torch-nn-lstm has 61; then matmuls (+8.0 ms)."
    )
    assert found.dominant is not None
    assert found.dominant.finding.largest == (Culprit("aten::view", 2 * MS, 20 * MS, 1.0, 1.0),)
    assert found.dominant.finding.changes[0] == Change("ops", 61.0, 2412.0)


def test_a_reason_is_what_adds_a_good_part_of_the_finding() -> None:
    fast = profile(contributor("idle", "python", 9 * MS, "forward"), name="a")
    frames = [contributor("idle", "python", MS, f"frame {n}") for n in range(20)]
    many = compare(
        fast, profile(contributor("idle", "python", 9 * MS, "forward"), *frames, name="b")
    )
    assert "20.0 of the 20.0 ms go to Python between the ops;" in many.sentence
    one = compare(fast, profile(contributor("idle", "python", 29 * MS, "forward"), name="b"))
    assert one.sentence.endswith(
        "Python between the ops: forward takes 29.0 ms of it against 9.0 in a; likely, because "
        "neither run was timed without a profiler."
    )


def test_time_won_back_elsewhere_is_said() -> None:
    fast = profile(contributor("busy", "gemm", 50 * MS, "aten::mm"), name="a")
    slow = profile(
        contributor("busy", "gemm", 40 * MS, "aten::mm"),
        contributor("idle", "python", 30 * MS),
        name="b",
    )
    assert compare(fast, slow).sentence.startswith(
        "b takes 1.40× as long as a (70.0 against 50.0 ms per step): Python; 30.0 ms "
        "more go to Python between the ops, of which 10.0 are won back in matmuls"
    )


def test_what_the_slow_run_has_less_of_is_said_as_that() -> None:
    fast = profile(contributor("busy", "gemm", 50 * MS, "aten::mm"), name="a")
    slow = profile(
        contributor("busy", "gemm", 40 * MS, "aten::mm"),
        contributor("idle", "python", 30 * MS),
        name="b",
    )
    more, less = compare(fast, slow).findings
    assert more.sentence.startswith("+30.0 ms (150 %): Python between the ops")
    assert less.sentence == "-10.0 ms (-50 %): less time in matmuls."


def test_a_device_that_waits_most_of_the_time_waits_for_its_host() -> None:
    run = profile(
        contributor("busy", "gemm", 7 * MS, "k", count=2),
        contributor("idle", "python", 60 * MS),
        contributor("idle", "launch call", 33 * MS, "cudaLaunchKernel"),
        device=0,
        name="bert",
        tables={"tally": table(*tally(kernel=[3 * MS, 4 * MS], gap=[46 * MS], launch=[MS] * 2))},
    )
    found = alone(run)
    assert found.sentence == (
        "bert: the device waits for its host 93 % of the step (93.0 of 100.0 ms): Python between "
        "the ops 60 % and launching kernels 33 %; it is busy 7 %. It gets 2 kernel launches a "
        "step, 20 a second; a kernel takes 3.500 ms, and the gap before one 46.000 ms."
    )
    launching = next(e for e in found.findings if e.finding.kind == "launch")
    assert launching.finding.largest[0].name == "cudaLaunchKernel"


def test_time_of_unknown_cause_is_said_first() -> None:
    run = profile(
        contributor("busy", "gemm", 2 * MS, "k"),
        contributor("idle", "unattributed", 8 * MS),
        device=0,
    )
    assert alone(run).sentence == (
        "run: not explained by the profile: 80 % of the step has no recorded cause; most of the "
        "rest is matmuls, 2.0 ms."
    )


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ((), "80 % of the step has no recorded cause, most of it add(int); most of the rest is "),
        (
            (contributor("idle", "host", MS),),
            "82 % of the step has no recorded cause in the program: work and waiting of unknown "
            "cause 73 % (most of it add(int)) and host activity not recorded 9 %; most of the ",
        ),
    ],
)
def test_what_takes_most_of_unknown_work_is_named(more: tuple[Any, ...], told: str) -> None:
    run = profile(
        contributor("busy", "gemm", 2 * MS, "k"),
        contributor("busy", "other", 5 * MS, "add(int)"),
        contributor("idle", "unattributed", 3 * MS),
        *more,
        device=0,
    )
    assert alone(run).sentence.startswith(f"run: not explained by the profile: {told}")


def test_the_profilers_own_time_is_said_to_be_that() -> None:
    run = profile(
        contributor("busy", "gemm", MS, "k"),
        contributor("idle", "dispatch", MS),
        contributor("idle", "sync", MS),
        contributor("idle", "profiler", 6 * MS, "Activity Buffer Request"),
        contributor("idle", "host", MS),
        device=0,
    )
    assert alone(run).sentence.startswith(
        "run: not explained by the profile: 70 % of the step has no recorded cause in the program: "
        "what profiling changed 60 % and host activity not recorded 10 %; the largest part of the "
        "rest is "
    )


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
    assert told or found.sentence == (
        "run: cannot be told: 3.0 of the 5.0 ms of framework dispatch may be the profiler's own "
        "work, whose thread is not recorded; profile more steps, after some that are not profiled."
    )


def test_a_profile_without_markers_is_no_step() -> None:
    run = profile(contributor("busy", "pointwise", 9, "k"), marked=False)
    found = alone(run)
    assert "of the profile" in found.sentence
    assert "a step" not in found.sentence


def test_a_host_alone_is_bound_by_what_takes_most() -> None:
    found = alone(
        profile(contributor("busy", "gemm", 80, "aten::mm"), contributor("idle", "python", 20))
    )
    assert found.sentence.startswith("run is matmul: 80 % of the step")
    assert [e.finding.kind for e in found.findings] == ["matmul", "Python"]
    assert found.differences == ()


@pytest.mark.parametrize("one_device", [None, 0])
def test_a_gpu_against_a_cpu_is_said(one_device: int | None) -> None:
    other = 0 if one_device is None else None
    runs = [
        profile(contributor("busy", "gemm", n, "x"), device=d)
        for n, d in ((1, one_device), (9, other))
    ]
    assert any("GPU and the other on a CPU" in note for note in compare(*runs).notes)


def test_a_long_first_step_is_held_against_what_it_wins() -> None:
    first = [{"compile_ns": 84_000 * MS}, {"compile_ns": 100 * MS}]
    fast, slow = (
        profile(contributor("busy", "gemm", ns), step_ns=ns, facts=facts, name=name)
        for name, ns, facts in (("a", 20 * MS, first[0]), ("b", 30 * MS, first[1]))
    )
    assert "the long first step of a (84,000.0 ms) pays off after 8,390 steps" in (
        compare(fast, slow).notes
    )


def test_other_causes_with_a_good_share_of_the_step_are_named_behind_the_first() -> None:
    parts = [("gemm", 60, "aten::mm"), ("memory", 30, "aten::tanh"), ("layout", 10, "aten::cat")]
    one = profile(*(contributor("busy", part, ns * MS, name) for part, ns, name in parts))
    then = alone(one).sentence.partition("; then ")[2]
    assert "30 %" in then
    assert "10 %" not in then
