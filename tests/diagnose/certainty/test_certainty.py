"""How far a diagnosis can be trusted: simulated pairs, and each doubt where it tells or does not.

A simulated run is some processes, each faster or slower than usual by a draw, with iterations of
which each is like the one before. Its profile explains all of its step. ::

    A:  process ─ 20 iterations ─▶ median ┐
        process ─ 20 iterations ─▶ median ├▶ interval ─┐
        process ─ 20 iterations ─▶ median ┘            ├▶ found · none · unknown
    B:  likewise, perhaps with a cause in each step ───┘
"""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from diagnose.made import contributor, profile
from msgspec.structs import replace as replace_info

from lstmprof.breakdown.doubts import (
    BUSY,
    CPU_TAKEN,
    DRIFT,
    INFLATION,
    LOSS,
    MACHINE,
    MODES,
    STATE,
    THROTTLED,
    Warning,
)
from lstmprof.breakdown.lacks import Lack
from lstmprof.breakdown.rounds import Round, error_of_pairs, round_of
from lstmprof.breakdown.timings import CpuTime, interval_of
from lstmprof.diagnose.certainty import Certainty, of_finding, of_prediction, of_run, outcome
from lstmprof.diagnose.certainty.noise import sameness
from lstmprof.diagnose.diagnosis import compare
from lstmprof.diagnose.findings import findings
from lstmprof.diagnose.pairs import held_against
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.replay import Prediction

STEP_NS, MS = 10_000_000, 1_000_000


def simulated(
    generator: np.random.Generator, rounds: int, spread: float, cause_ns: int = 0
) -> StepProfile:
    """A run in so many processes that differ by ``spread``; its profile is of the usual step."""
    walls = []
    for _ in range(rounds):
        usual = (STEP_NS + cause_ns) * math.exp(generator.normal(0, spread))
        drawn = generator.normal(0, 0.01, 20)
        for i in range(1, 20):
            drawn[i] = 0.5 * drawn[i - 1] + math.sqrt(0.75) * drawn[i]
        walls.append((usual * np.exp(drawn)).astype(int).tolist())
    middle = statistics.median(wall for some in walls for wall in some)
    processes = [round_of(some) for some in walls]
    return ran(
        cause_ns,
        step_ns=round(middle),
        interval_ns=interval_of(middle, processes),
        rounds=tuple(processes),
    )


def ran(cause_ns: int = 0, **fields: Any) -> StepProfile:
    """A run of 10 ms and so much Python; ``profiled_ns`` more is of what profiling does."""
    excess = contributor("idle", "unattributed", fields.pop("excess_ns", 0))
    parts = [contributor("busy", "gemm", STEP_NS, "mm"), contributor("idle", "python", cause_ns)]
    given: dict[str, Any] = {"step_ns": STEP_NS + cause_ns, **fields}
    if given["step_ns"] is not None:
        given.setdefault("interval_ns", (0.99 * given["step_ns"], 1.01 * given["step_ns"]))
    return profile(*parts, *([excess] if excess.ns else []), **given)


def state(fast: StepProfile, slow: StepProfile) -> str:
    first, second = sorted((fast, slow), key=lambda run: run.length_ns)
    return outcome(first, second, findings(first, second)).state


def share_found(rounds: int, spread: float, cause_ns: int, pairs: int = 100) -> float:
    generator = np.random.default_rng(rounds)
    states = [
        state(simulated(generator, rounds, spread), simulated(generator, rounds, spread, cause_ns))
        for _ in range(pairs)
    ]
    return states.count("found") / pairs


@pytest.mark.parametrize("spread", [0.0, 0.01, 0.02])
@pytest.mark.parametrize("rounds", [1, 3])
def test_identical_code_gets_no_cause(rounds: int, spread: float) -> None:
    # The profiles show a cause by chance: what is tested is the difference of the medians.
    generator = np.random.default_rng(rounds)
    found = 0
    for _ in range(150):
        runs = [simulated(generator, rounds, spread) for _ in range(2)]
        fast, slow = sorted(runs, key=lambda run: run.length_ns)
        chance = ran(
            slow.length_ns - fast.length_ns,
            step_ns=slow.step_ns,
            interval_ns=slow.interval_ns,
            rounds=slow.rounds,
        )
        found += outcome(fast, chance, findings(fast, chance)).state == "found"
    assert found / 150 <= 0.02


@pytest.mark.parametrize("spread", [0.0, 0.01, 0.02])
def test_a_true_difference_of_15_percent_is_found_in_three_rounds(spread: float) -> None:
    assert share_found(3, spread, round(0.15 * STEP_NS)) >= 0.95


def doubted(kind: str, size: float | None) -> tuple[Warning, ...]:
    return (Warning(kind, "something happened", "do something", size),)


@pytest.mark.parametrize(
    ("kind", "of_slow", "of_fast"),
    [
        (DRIFT, True, True),
        (MODES, True, True),
        (CPU_TAKEN, True, False),
        (BUSY, True, False),
        (INFLATION, False, False),
    ],
)
def test_a_doubt_tells_where_it_could_be_the_whole_difference(
    kind: str, of_slow: bool, of_fast: bool
) -> None:
    large, small = doubted(kind, 0.5), doubted(kind, 0.05)
    fast, slow = ran(), ran(4 * MS)
    assert state(fast, slow) == "found"
    for tells, pair in (
        (of_slow, (fast, ran(4 * MS, doubts=large))),
        (of_fast, (ran(doubts=large), slow)),
        (False, (fast, ran(4 * MS, doubts=small))),
        (False, (ran(doubts=small), slow)),
    ):
        assert state(*pair) == ("unknown" if tells else "found")


def test_the_outcome_says_what_happened_and_what_to_do() -> None:
    fast, slow = ran(name="a"), ran(4 * MS, name="b", doubts=doubted(CPU_TAKEN, 0.5))
    told = outcome(fast, slow, findings(fast, slow))
    assert (told.differs, told.advice) == (False, "do something")
    assert told.reason == (
        "cannot be told on this machine: b: something happened (up to 7.0 of 14.0 ms)"
    )
    assert told.words == f"{told.reason}; {told.advice}"


def test_of_a_doubt_that_tells_only_with_the_noise_both_are_told() -> None:
    # one takes 4 of its 14 ms more and the doubt is of 1.3, but the times vary by a fifth
    wide = (0.82 * 14 * MS, 1.18 * 14 * MS)
    fast = ran(name="a")
    slow = ran(4 * MS, name="b", doubts=doubted(CPU_TAKEN, 0.09), interval_ns=wide)
    told = outcome(fast, slow, findings(fast, slow))
    assert "(up to 1.3 of 14.0 ms, with the noise of both up to " in told.reason


def levels(fast: StepProfile | None, slow: StepProfile) -> dict[str, Certainty]:
    parts = findings(fast, slow)
    return {part.kind: of_finding(part, parts) for part in parts}


def test_a_drift_of_5_percent_leaves_a_finding_of_60_percent_measured() -> None:
    large = levels(ran(), ran(6 * MS, doubts=doubted(DRIFT, 0.05)))
    assert large["Python-bound"] == Certainty("measured")
    some = levels(ran(), ran(6 * MS, doubts=doubted(DRIFT, 0.4)))["Python-bound"]
    assert some.level == "likely"
    assert some.reasons == ("the machine may have made all but 4.2 ms of it",)
    alike = levels(ran(), ran(6 * MS, doubts=doubted(DRIFT, 0.6)))["Python-bound"]
    assert alike == Certainty("cannot be told", ("run: something happened",))
    between = levels(ran(), ran(6 * MS, doubts=doubted(DRIFT, 0.36)))["Python-bound"]
    assert between.level == "likely"


@pytest.mark.parametrize(("kind", "level"), [(THROTTLED, "likely"), (LOSS, "measured")])
def test_a_doubt_of_unknown_size_leaves_a_finding_likely(kind: str, level: str) -> None:
    size = None if kind == THROTTLED else 0.0
    told = levels(ran(), ran(6 * MS, doubts=doubted(kind, size)))
    assert told["Python-bound"].level == level


def test_a_finding_below_the_noise_cannot_be_told() -> None:
    fast = profile(
        contributor("busy", "gemm", 10 * MS, "mm"),
        step_ns=10 * MS,
        interval_ns=(9.5 * MS, 10.5 * MS),
    )
    slow = profile(
        contributor("busy", "gemm", 10 * MS, "mm"),
        contributor("idle", "python", 9 * MS),
        contributor("busy", "cast", MS, "to"),
        step_ns=20 * MS,
        interval_ns=(19.0 * MS, 21.0 * MS),
    )
    told = levels(fast, slow)
    assert told["Python-bound"].level == "measured"
    assert told["cast-bound"].level == "cannot be told"


def test_a_difference_that_the_profile_does_not_show_is_not_explained() -> None:
    fast = ran()
    hidden = ran(MS, step_ns=STEP_NS + 10 * MS)
    told = outcome(fast, hidden, findings(fast, hidden))
    assert told.state == "unknown"
    assert told.reason.startswith("not explained by the profile: the profiled steps do not show ")
    assert told.differs
    shown = ran(9 * MS, step_ns=STEP_NS + 10 * MS)
    assert outcome(fast, shown, findings(fast, shown)).state == "found"


def test_what_profiling_added_hides_a_cause_that_is_smaller() -> None:
    fast = ran()
    slowed = profile(
        contributor("busy", "gemm", 2 * STEP_NS, "mm", count=2),
        contributor("idle", "python", 4 * MS),
        step_ns=STEP_NS + 4 * MS,
        interval_ns=(0.99 * (STEP_NS + 4 * MS), 1.01 * (STEP_NS + 4 * MS)),
    )
    assert state(fast, slowed) == "unknown"


def test_a_run_alone_is_bound_by_nothing_that_profiling_could_have_made() -> None:
    quiet = ran(MS, step_ns=STEP_NS)
    assert of_run(quiet, findings(None, quiet)).state == "found"
    slowed = ran(MS, step_ns=MS // 2)
    told = of_run(slowed, findings(None, slowed))
    assert told.state == "unknown"
    assert "what profiling changed" in told.reason


def test_a_run_alone_whose_time_is_not_explained_is_unknown() -> None:
    little = ran(excess_ns=3 * STEP_NS, step_ns=None)
    assert of_run(little, findings(None, little)).state == "unknown"
    most = ran(excess_ns=STEP_NS // 2, step_ns=None)
    assert of_run(most, findings(None, most)).state == "found"


@pytest.mark.parametrize(
    ("blinds", "device", "busy_ns", "state"),
    [
        (True, None, STEP_NS, "unknown"),
        (True, 0, STEP_NS // 3, "unknown"),
        (True, 0, STEP_NS, "found"),  # the device had its time all the same
        (False, None, STEP_NS, "found"),
        (False, 0, STEP_NS // 3, "found"),
    ],
)
def test_what_was_not_recorded_hides_the_cause_but_of_a_busy_device(
    blinds: bool, device: int | None, busy_ns: int, state: str
) -> None:
    busy = contributor("busy", "gemm", busy_ns, "mm")
    idle = contributor("idle", "launch call", STEP_NS - busy_ns + MS, "cudaLaunchKernel")
    lack = Lack("no ops", "no op was recorded", hides="ops", blinds=blinds)
    slow = profile(busy, idle, device=device, lacks=(lack,))
    assert of_run(slow, findings(None, slow)).state == state


def at(*starts: str, **fields: Any) -> dict[str, Any]:
    return {"facts": {"rounds": [f"2026-11-22T{start}Z" for start in starts]}, **fields}


@pytest.mark.parametrize(
    ("fast", "slow", "expected"),
    [
        (("10:00:00", "10:02:00"), ("10:01:00", "10:03:00"), "found"),  # in turn
        (("10:00:00", "10:01:00"), ("10:01:30", "10:02:30"), "found"),  # back to back
        (("10:00:00", "10:01:00"), ("10:20:00", "10:21:00"), "none"),  # apart
        (("10:20:00", "10:21:00"), ("10:00:00", "10:01:00"), "none"),
    ],
)
def test_runs_captured_apart_saw_two_machines(
    fast: tuple[str, ...], slow: tuple[str, ...], expected: str
) -> None:
    assert state(ran(**at(*fast)), ran(4 * MS, **at(*slow))) == expected
    assert state(ran(**at(*fast)), ran(40 * MS, **at(*slow))) == "found"


def test_steps_timed_in_turn_by_one_process_have_no_noise_between_processes() -> None:
    walls = [STEP_NS + 10_000 * i for i in range(20)]
    rounds = (round_of(walls),)
    wide = {"interval_ns": (0.9 * STEP_NS, 1.1 * STEP_NS), "rounds": rounds}
    assert state(ran(**wide), ran(MS, **{**wide, "interval_ns": (0.99e7, 1.21e7)})) == "none"
    same = at("10:00:00", **wide)
    assert state(ran(**same), ran(MS, **{**same, "interval_ns": (0.99e7, 1.21e7)})) == "found"


def test_steps_timed_in_turn_by_one_process_saw_one_machine() -> None:
    drift = (Warning(DRIFT, "the series drifts", "more --warmup", size=0.5),)
    apart, same = at("10:00:00"), at("10:00:00")
    other = at("10:00:10")
    assert state(ran(**apart, doubts=drift), ran(4 * MS, **other, doubts=drift)) == "unknown"
    assert state(ran(**same, doubts=drift), ran(4 * MS, **same, doubts=drift)) == "found"


def in_turn(first: str, *medians_ms: float, **fields: Any) -> StepProfile:
    """A run of a round of each median, every minute from ``first`` on."""
    minute = int(first[3:5])
    starts = [f"10:{minute + place:02}:{first[6:]}" for place in range(len(medians_ms))]
    walls = [[round(ms * MS)] * 20 for ms in medians_ms]
    rounds = tuple(round_of(some) for some in walls)
    middle = statistics.median(medians_ms) * MS
    cause = round(middle) - STEP_NS
    interval = interval_of(middle, rounds)
    known = {"step_ns": round(middle), "interval_ns": interval, "rounds": rounds, **fields}
    return ran(cause, **at(*starts, **known))


def test_rounds_in_turn_are_held_against_those_that_ran_beside_them() -> None:
    # the machine slows by a third from the first round to the last, alike for both
    drift = (Warning(MACHINE, "the machine changed its speed", "close programs", size=0.5),)
    fast = in_turn("10:00:00", 10, 11.5, 13.3, doubts=drift)
    slow = in_turn("10:00:30", 14, 16.3, 18.5, doubts=drift)
    assert state(fast, slow) == "found"
    assert state(fast, in_turn("10:30:30", 14, 16.3, 18.5)) == "none"  # not beside each other
    same = in_turn("10:00:30", 10.3, 11.2, 13.9)
    assert state(fast, same) == "none"


def test_runs_are_held_against_what_took_turns_with_them() -> None:
    turns = [
        replace(in_turn(first, *(factor * ms for ms in (10, 11.5, 13.3))), name=name)
        for name, first, factor in (
            ("base", "10:00:00", 1),
            ("slow", "10:00:20", 1.5),
            ("slower", "10:00:40", 3),
        )
    ]
    apart = replace(in_turn("11:30:00", 9.9, 11.4, 13.1), name="apart")
    beside = replace(in_turn("11:30:30", 31, 35.6, 41), name="beside apart")
    pairs = held_against([*turns, beside, apart])
    assert [(fast.name, slow.name) for fast, slow in pairs] == [
        ("base", "apart"),  # the fastest, which took turns with one alone
        ("base", "slow"),
        ("base", "slower"),
        ("apart", "beside apart"),
    ]
    assert held_against(turns[:1]) == []
    assert [fast.name for fast, _ in held_against([turns[2], turns[0]])] == ["base"]


def test_what_is_the_same_within_noise_is_told_by_how_it_was_timed() -> None:
    fast, same = in_turn("10:00:00", 10, 11.5, 13.3), in_turn("10:00:30", 10.8, 11.9, 14.1)
    told = sameness(fast, same)
    assert told is not None
    assert "by chance rounds side by side may be" in told.reason
    at_once = replace(same, info=replace_info(same.info, rounds=("2026-11-22T10:00:10Z",) * 3))
    told = sameness(fast, at_once)
    assert told is not None
    assert "95 % intervals" in told.reason


@pytest.mark.parametrize(("rounds", "words"), [(1, "one process each"), (2, "2 processes each")])
def test_without_intervals_it_is_told_how_many_processes_there_were(
    rounds: int, words: str
) -> None:
    starts = [f"2026-11-22T10:00:{n}0Z" for n in range(rounds)]
    facts, timed = {"rounds": starts}, (round_of([6 * MS, 14 * MS] * 9),) * rounds
    fast, slow = (ran(ns, interval_ns=None, facts=facts, rounds=timed) for ns in (0, 250_000))
    told = sameness(fast, slow)
    assert told is not None
    assert told.why == f"{words}, and processes of the same code may differ by as much"


def test_a_run_whose_iterations_took_turns_drifts_by_itself() -> None:
    drift = (Warning(DRIFT, "the series drifts", "more --warmup", size=0.5),)
    fast, slow = in_turn("10:00:00", 10, 10, 10), in_turn("10:00:30", 14, 14, 14, doubts=drift)
    assert state(fast, slow) == "unknown"
    facts = {"turn_with": ("fast", "slow")}
    named = [
        replace(run, info=replace_info(run.info, name=name, **facts))
        for name, run in (("fast", fast), ("slow", slow))
    ]
    assert state(*named) == "found"
    others = replace(named[0], info=replace_info(fast.info, name="fast", turn_with=("fast", "b")))
    assert state(others, slow) == "unknown"


def sticks(*python_ms: float, product_ms: float = 4.0) -> dict[str, Any]:
    """Facts of a run of one thread whose Python loop took so long of CPU time, round by round."""
    rounds = []
    for ms in python_ms:
        side = {"product_cpu_ns": round(product_ms * MS), "python_cpu_ns": round(ms * MS)}
        rounds.append({"before": side, "after": side})
    return {"yardsticks": rounds, "device": "cpu", "threads": 1}


def with_sticks(minute: int, step_ms: float, *python_ms: float, **facts: Any) -> StepProfile:
    """A run of three alike rounds that begin in this minute after 10, with its yardstick."""
    starts = [f"2026-11-22T10:{minute:02}:{second:02}Z" for second in (0, 20, 40)]
    walls = [round(step_ms * MS)] * 20
    rounds = tuple(round_of(walls) for _ in range(3))
    return ran(
        round(step_ms * MS) - STEP_NS,
        step_ns=round(step_ms * MS),
        interval_ns=interval_of(step_ms * MS, rounds),
        rounds=rounds,
        facts={"rounds": starts, **sticks(*python_ms), **facts},
        name=f"{step_ms:g}",
    )


def test_runs_captured_apart_are_compared_as_far_as_their_machine_was_the_same() -> None:
    fast = with_sticks(0, 10, 4, 4, 4)
    told = [with_sticks(30, 13.9, *ms) for ms in ((4, 4, 4), (5.6, 5.6, 5.6), (2.9, 2.9, 2.9))]
    assert [state(fast, slow) for slow in told] == ["found", "none", "found"]
    slower = outcome(fast, told[1], findings(fast, told[1])).reason
    was = "the machine itself was 1.4× slower when 13.9 ran (a fixed Python loop took 5.6 against 4"
    assert was in slower
    assert slower.endswith(", and whether the rest is the code's cannot be told")


def test_what_is_more_than_the_machine_is_told_and_that_it_was_slower_is_said() -> None:
    fast, slow = with_sticks(0, 10, 4, 4, 4), with_sticks(30, 25, 5.6, 5.6, 5.6)
    told = compare(fast, slow)
    assert told.outcome.state == "found"
    assert "the machine itself was 1.4× slower when 25 ran" in told.sentence
    assert "the machine itself" not in compare(fast, with_sticks(30, 25, 4, 4, 4)).sentence


def test_a_yardstick_that_wanders_tells_less() -> None:
    steady, wandering = (with_sticks(30, 13.9, *ms) for ms in ((4, 4, 4), (3.2, 4, 5)))
    assert state(with_sticks(0, 10, 4, 4, 4), steady) == "found"
    assert state(with_sticks(0, 10, 4, 4, 4), wandering) == "none"


def test_yardsticks_of_two_pythons_tell_nothing() -> None:
    fast = with_sticks(0, 10, 4, 4, 4, versions={"python": "3.11"})
    slow = with_sticks(30, 13.9, 4, 4, 4, versions={"python": "3.9"})
    assert state(fast, slow) == "none"


def by_cpu(step_ms: float, cpu_ms: float, **fields: Any) -> StepProfile:
    """A run of one thread of which both times are known."""
    rounds = tuple(round_of([round(cpu_ms * MS)] * 10) for _ in range(3))
    cpu = CpuTime(round(cpu_ms * MS), interval_of(cpu_ms * MS, rounds), rounds)
    cause = round(cpu_ms * MS) - STEP_NS
    return ran(cause, step_ns=round(step_ms * MS), cpu=cpu, **fields)


def test_a_run_that_lost_its_cpu_is_compared_by_cpu_time() -> None:
    quiet = by_cpu(10, 10, name="quiet")
    lost = by_cpu(21, 10.1, name="lost", compared_by="CPU time")
    same = compare(quiet, lost)
    assert (same.outcome.state, same.to_dict()["compared_by"]) == ("none", "CPU time")
    assert same.sentence.startswith("by CPU time: ")
    slower = compare(quiet, by_cpu(31, 15, name="slower", compared_by="CPU time"))
    assert slower.outcome.state == "found"
    assert slower.to_dict()["slow_ns"] == 15 * MS
    assert compare(quiet, by_cpu(31, 15)).to_dict()["compared_by"] == "wall time"


def test_runs_that_lost_their_cpus_and_have_several_threads_cannot_be_told_apart() -> None:
    told = compare(ran(name="a"), ran(6 * MS, name="b", compared_by=None, cpu_share=0.23))
    assert (told.outcome.state, told.dominant) == ("unknown", None)
    assert told.to_dict()["compared_by"] is None
    assert told.outcome.reason == (
        "cannot be told apart on this machine: 16.0 and 10.0 ms a step by the clock, but b had its "
        "CPU for 23 % of the time"
    )
    mixed = compare(ran(name="a"), by_cpu(20, 15, name="b", compared_by="CPU time"))
    assert mixed.outcome.state == "unknown"


def test_each_doubt_stands_in_json_with_its_size() -> None:
    (doubt,) = compare(ran(), ran(4 * MS, name="b", doubts=doubted(STATE, 0.1))).to_dict()["doubts"]
    assert doubt == {
        "run": "b",
        "kind": STATE,
        "fault": "something happened",
        "remedy": "do something",
        "size": 0.1,
    }


@pytest.mark.parametrize("spread", [0.02, 0.05, 0.15])
def test_identical_code_in_turn_differs_by_chance_in_two_of_a_hundred(spread: float) -> None:
    generator = np.random.default_rng(0)
    exceeded = 0
    for _ in range(2_000):
        pair = np.exp(generator.normal(0, spread, (2, 3)) + generator.normal(0, 0.1, 3)) * MS
        fast, slow = (tuple(Round(float(m), None, None) for m in some) for some in pair)
        error = error_of_pairs(fast, slow)
        assert error is not None
        exceeded += abs(np.log(pair[1] / pair[0]).mean()) > max(error, math.log(1.02))
    assert exceeded <= 0.025 * 2_000


def profiled(*steps_ns: int) -> StepProfile:
    """Of a profile made elsewhere: nothing was timed."""
    middle = round(statistics.median(steps_ns))
    return ran(middle - STEP_NS, step_ns=None, steps_ns=steps_ns)


@pytest.mark.parametrize(
    ("fast", "slow", "expected"),
    [
        ([10 * MS] * 8, [14 * MS] * 8, "found"),
        ([10 * MS] * 8, [11 * MS] * 8, "none"),  # processes differ by so much
        ([10 * MS, 16 * MS] * 8, [14 * MS, 20 * MS] * 8, "none"),  # steps do
        ([10 * MS], [14 * MS], "found"),
    ],
)
def test_profiled_steps_show_their_own_noise(
    fast: list[int], slow: list[int], expected: str
) -> None:
    pair = profiled(*fast), profiled(*slow)
    assert state(*pair) == expected
    assert expected == "none" or levels(*pair)["Python-bound"].level == "likely"


def test_too_few_timed_iterations_leave_a_finding_likely() -> None:
    few = {"interval_ns": None, "rounds": (round_of([STEP_NS] * 3),)}
    assert state(ran(**few), ran(MS, **few)) == "none"
    assert state(ran(**few), ran(6 * MS, **few)) == "found"
    assert levels(ran(**few), ran(6 * MS, **few))["Python-bound"].level == "likely"


def test_that_the_profiled_steps_lost_their_cpu_is_said() -> None:
    lost = {"facts": {"profiled_preemptions": [14, 15, 16]}}
    slowed = ran(4 * MS, step_ns=2 * MS, **lost)
    assert "lost its CPU 15 times" in of_run(slowed, findings(None, slowed)).reason


@pytest.mark.parametrize(
    ("threads", "told"), [(5, "its 5 threads share 2 CPUs"), (2, "quieter"), (None, "quieter")]
)
def test_more_threads_than_cpus_are_what_to_change_where_nothing_is_told(
    threads: int | None, told: str
) -> None:
    facts = {"profiled_preemptions": [15], "affinity": [0, 1], "threads": threads}
    slowed = ran(4 * MS, step_ns=2 * MS, facts=facts)
    alone = of_run(slowed, findings(None, slowed))
    assert alone.state == "unknown"
    assert told in alone.advice


def test_more_threads_than_cpus_are_what_to_change_of_a_pair() -> None:
    facts = {"affinity": [0, 1], "threads": 5}
    lost = replace(ran(4 * MS, name="b", facts=facts), compared_by=None)
    told = outcome(ran(), lost, findings(ran(), lost))
    assert told.reason.endswith("b lost its CPU in most iterations")
    assert told.advice.startswith("its 5 threads share 2 CPUs: ")


def test_fewer_threads_are_no_advice_for_a_run_that_lost_nothing() -> None:
    many = ran(facts={"affinity": [0, 1], "threads": 5})
    lost = replace(ran(4 * MS, name="b"), compared_by=None)
    assert "threads" not in outcome(many, lost, findings(many, lost)).advice


@pytest.mark.parametrize(
    ("replayed_ns", "predicted_ns", "level", "reasons"),
    [(100, 60, "likely", 0), (110, 60, "likely", 1), (110, 105, "cannot be told", 1)],
)
def test_a_prediction_is_never_measured(
    replayed_ns: int, predicted_ns: int, level: str, reasons: int
) -> None:
    told = of_prediction(Prediction(100, replayed_ns, predicted_ns, {}, None))
    assert (told.level, len(told.reasons)) == (level, reasons)


def test_steps_alike_of_a_profile_without_markers_are_called_no_steps() -> None:
    one, other = (
        profile(contributor("busy", "gemm", 100 + n), name=f"run {n}", marked=False) for n in (0, 1)
    )
    reason = outcome(one, other, findings(one, other)).reason or ""
    assert "in the whole profile" in reason
    assert "a profiled step" not in reason


def test_a_step_is_not_called_a_whole_profile_nor_the_other_way_round() -> None:
    whole = profile(contributor("busy", "gemm", 100 * MS, "mm"), name="whole", marked=False)
    step = profile(contributor("busy", "gemm", 20 * MS, "mm"), name="step")
    assert "(100.0 ms in the whole profile against 20.0 ms a profiled step)" in (
        compare(whole, step).sentence
    )


def test_what_was_not_recorded_is_called_so_and_no_quieter_machine_is_advised() -> None:
    products = contributor("busy", "gemm", 20 * MS, "mm")
    seen = profile(products, name="seen")
    unseen = profile(products, contributor("idle", "host", 200 * MS), name="unseen")
    told = compare(seen, unseen).outcome
    assert told.reason == (
        "not explained by the profile: 200.0 ms more are host activity not recorded, which is no "
        "cause"
    )
    assert told.advice == ""
    assert compare(seen, unseen).sentence.startswith("unseen is 11.00× slower than seen")
    longer = profile(products, contributor("idle", "host", 20_000 * MS), name="longer")
    assert compare(seen, longer).sentence.startswith("longer is 1,001× slower than seen")
