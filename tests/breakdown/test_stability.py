"""Series that can be trusted and series that cannot, each with its remedy."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lstmprof.breakdown.doubts import (
    CPU_TAKEN,
    DRIFT,
    MACHINE,
    MODES,
    STATE,
    Warning,
    between_processes,
    profile_warnings,
    warnings,
)
from lstmprof.breakdown.iterations import Iterations
from lstmprof.breakdown.rounds import (
    BUSY_BETWEEN_PROCESSES,
    QUIET_BETWEEN_PROCESSES,
    round_of,
)
from lstmprof.breakdown.timings import compared_ns, interval_of
from lstmprof.breakdown.yardsticks import SORTS
from lstmprof.runs.metadata import run_info

GENERATOR = np.random.default_rng(7)
QUIET = (1e6 + GENERATOR.normal(0, 5e3, 60)).astype(int).tolist()


def rounds_of(*rounds: list[int]) -> Iterations:
    """So many rounds, the latter half of each timed after its profile."""
    numbers = [number for number, walls in enumerate(rounds) for _ in walls]
    late = [2 * place >= len(walls) for walls in rounds for place in range(len(walls))]
    return Iterations(np.array(numbers), np.array(late), np.concatenate(rounds))


def only_round(walls: list[int]) -> Iterations:
    return Iterations(np.zeros(len(walls), int), np.zeros(len(walls), bool), np.array(walls))


def faults(walls: list[int], **facts: Any) -> list[str]:
    found = warnings(only_round(walls), run_info(facts))
    assert all(w.remedy for w in found)
    return [w.fault for w in found]


def test_a_quiet_series_on_a_quiet_machine_has_no_warning() -> None:
    quiet = {"cores": 4, "cpu_governor": "performance"}
    facts = {"device": "cpu", "threads": 1, "hardware": quiet, "load_average_before": [0.3, 0, 0]}
    assert faults(QUIET, **facts, timing_cpu_ns=99, timing_wall_ns=100, loss_fell=True) == []


def test_a_drift_is_named_with_its_size() -> None:
    drifting = [w + 2_000 * i for i, w in enumerate(QUIET)]
    (said,) = faults(drifting)
    assert said.startswith("the series drifts: its last third is +8%")


def test_noise_alone_drifts_in_one_of_a_hundred_runs_at_most() -> None:
    generator = np.random.default_rng(11)
    noise = (generator.lognormal(13.8, 0.2, 60).astype(int).tolist() for _ in range(200))
    assert sum(bool(of_kind(DRIFT, walls)) for walls in noise) <= 2


def test_two_modes_are_named_and_one_outlier_is_not() -> None:
    (said,) = faults([w + 300_000 * (i % 3 == 0) for i, w in enumerate(QUIET)])
    assert said.startswith("the series has two modes")
    assert faults([*QUIET, 1_500_000]) == []


def test_what_was_left_out_is_no_mode_of_what_counts() -> None:
    # a third of them lost their CPU, and took twice as long for it
    lost = np.array([place % 3 == 0 for place in range(len(QUIET))])
    walls = np.array(QUIET) * np.where(lost, 2, 1)
    at = np.zeros(len(QUIET), int)
    found = Iterations(at, at.astype(bool), walls, np.array(QUIET), disturbed=lost)
    assert found.measure == "wall time"
    assert [w.kind for w in warnings(found, run_info({}))] == [CPU_TAKEN]


def test_a_pass_whose_cpu_time_nobody_read_has_no_share_of_it() -> None:
    assert faults(QUIET, device="cpu", threads=1, timing_wall_ns=100) == []
    assert faults(QUIET, device="cpu", threads=1, timing_cpu_ns=100) == []


def test_noise_is_named() -> None:
    noisy = np.random.default_rng(1).lognormal(13.8, 0.3, 60).astype(int).tolist()
    (said,) = faults(noisy)
    assert said.startswith("the series is noisy")


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"hardware": {"cores": 2}, "load_average_before": [1.6, 1, 1], "threads": 1}, "load 1.6"),
        ({"hardware": {"cores": 4}, "load_average_before": [2.6, 1, 1], "threads": 2}, "load 2.6"),
        (
            {"device": "cpu", "threads": 1, "timing_cpu_ns": 80, "timing_wall_ns": 100},
            "for 80 % of the time",
        ),
        ({"device": "cpu", "hardware": {"cpu_governor": "powersave"}}, "'powersave'"),
        ({"loss_fell": False}, "did not fall"),
        ({"gpu_throttle_reasons": ["hardware thermal slowdown"]}, "hardware thermal slowdown"),
    ],
)
def test_what_the_machine_did_is_named(facts: dict[str, Any], said: str) -> None:
    (fault,) = faults(QUIET, **facts)
    assert said in fault


def of_kind(kind: str, walls: list[int], **facts: Any) -> list[Warning]:
    return [w for w in warnings(only_round(walls), run_info(facts)) if w.kind == kind]


def kinds(*rounds: list[int], **facts: Any) -> dict[str, Warning]:
    return {w.kind: w for w in warnings(rounds_of(*rounds), run_info(facts))}


def drawn(seed: int, factor: float = 1.0, after: float = 1.0, number: int = 10) -> list[int]:
    """A round: about 1 ms times ``factor``, its latter half times ``after`` as well."""
    walls = 1e6 * factor * np.random.default_rng(seed).normal(1, 0.005, number)
    walls[number // 2 :] *= after
    return walls.astype(int).tolist()


def test_rounds_at_different_speeds_are_no_drift_and_no_two_modes() -> None:
    # a process is faster or slower than the next: that is in the interval, and no series
    assert kinds(drawn(1), drawn(2, 1.2), drawn(3, 1.45)) == {}


def test_a_drift_within_each_round_is_one() -> None:
    def creeping(number: int) -> list[int]:  # one timing; each round begins afresh
        return [round(1.2**number * 1e6 * (1 + 0.01 * place)) for place in range(12)]

    alone = rounds_of(*map(creeping, range(3)))
    none = np.zeros(len(alone), bool)
    (drift,) = warnings(Iterations(alone.round, none, alone.wall_ns), run_info({}))
    assert drift.kind == DRIFT
    assert drift.size == pytest.approx(0.08, abs=0.005)


def test_a_step_that_is_slower_after_the_profile_in_each_round_depends_on_its_state() -> None:
    found = kinds(*(drawn(seed, 1 + seed / 10, after=1.12) for seed in range(3)))
    assert found[STATE].size == pytest.approx(0.12, abs=0.02)
    assert "+12%" in found[STATE].fault or "+11%" in found[STATE].fault
    assert "--warmup" in found[STATE].remedy
    assert STATE in kinds(drawn(1, after=1.12, number=20))


def test_a_step_that_is_slower_after_one_profile_and_faster_after_another_has_no_state() -> None:
    assert STATE not in kinds(drawn(1, after=1.12), drawn(2, after=1.12), drawn(3, after=0.9))
    assert STATE not in kinds(*(drawn(seed) for seed in range(3)))


def sticks(*readings_ms: tuple[float, float]) -> dict[str, Any]:
    """Facts: (before, after) of each round's product, loop and copy in CPU time."""
    sides = [
        [
            {f"{sort}{by}_ns": round(ms * 1e6) for sort in SORTS for by in ("", "_cpu")}
            for ms in pair
        ]
        for pair in readings_ms
    ]
    pairs = [{"before": before, "after": after} for before, after in sides]
    return {"yardsticks": pairs, "device": "cpu", "threads": 1}


def test_a_machine_that_changed_with_the_step_is_no_state_of_it() -> None:
    slower = [drawn(seed, after=1.2) for seed in range(3)]
    same = kinds(*slower, **sticks((4, 4.8), (4, 4.8), (4, 4.8)))
    assert STATE not in same
    assert 0.05 < (same[MACHINE].size or 0) < 0.2
    assert "4.0 to 4.8 ms" in same[MACHINE].fault
    assert STATE in kinds(*slower, **sticks((4, 4.05), (4, 4), (4.05, 4)))
    assert STATE in kinds(*slower, **sticks((4, 4), (5, 5), (4, 4)))  # between rounds alone
    assert STATE not in kinds(*slower[:2], **sticks((4, 4), (5, 5)))  # two may have met it so
    once = drawn(1, after=1.2, number=20)
    assert STATE in kinds(once, **sticks((4, 4.05)))
    assert STATE not in kinds(once, **sticks((4.8, 4)))


def test_noise_alone_is_a_state_in_two_of_a_hundred_runs_at_most() -> None:
    generator = np.random.default_rng(5)
    found = 0
    for _ in range(300):
        rounds = []
        for _ in range(3):
            noise = generator.normal(0, 0.05, 10)
            for i in range(1, 10):
                noise[i] = 0.5 * noise[i - 1] + 0.87 * noise[i]
            rounds.append((1e6 * np.exp(noise)).astype(int).tolist())
        found += STATE in kinds(*rounds)
    assert found <= 6


def test_a_drift_and_modes_have_the_size_that_they_may_move_the_median_by() -> None:
    (drift,) = of_kind(DRIFT, [w + 2_000 * i for i, w in enumerate(QUIET)])
    assert drift.size == pytest.approx(0.08, abs=0.005)
    (modes,) = of_kind(MODES, [w + 300_000 * (i % 3 == 0) for i, w in enumerate(QUIET)])
    assert modes.size == pytest.approx(0.3, abs=0.01)


@pytest.mark.parametrize(("preemptions", "size"), [(None, 0.2), (50, 0.2), (5, 0.0), (0, 0.0)])
def test_a_cpu_was_taken_only_from_who_lost_it(preemptions: int | None, size: float) -> None:
    facts = {"device": "cpu", "threads": 1, "timing_cpu_ns": 80, "timing_wall_ns": 100}
    counted = {"iterations": 60, "timing_preemptions": preemptions}
    (taken,) = of_kind(CPU_TAKEN, QUIET, **facts, **counted)
    assert taken.size == pytest.approx(size)


def test_threads_that_lose_their_cpu_are_told_of_without_a_size() -> None:
    facts = {"device": "cpu", "threads": 2, "timing_cpu_ns": 180, "timing_wall_ns": 100}
    counted = {"iterations": 60, "timing_preemptions": 120}
    (taken,) = of_kind(CPU_TAKEN, QUIET, **facts, **counted)
    assert "2.0 times an iteration" in taken.fault
    assert taken.size is None
    assert of_kind(CPU_TAKEN, QUIET, **facts, iterations=60, timing_preemptions=2) == []


@pytest.mark.parametrize(
    ("cores", "load", "busy"), [(2, 0.2, False), (2, 1.0, True), (16, 1.0, False), (16, 9.0, True)]
)
def test_processes_differ_more_where_others_leave_no_core(
    cores: int, load: float, busy: bool
) -> None:
    info = run_info({"hardware": {"cores": cores}, "threads": 1, "load_average_before": [load]})
    usual = BUSY_BETWEEN_PROCESSES if busy else QUIET_BETWEEN_PROCESSES
    assert between_processes(info) == usual
    assert between_processes(run_info({})) == QUIET_BETWEEN_PROCESSES


def test_too_few_iterations_say_nothing() -> None:
    assert faults([1, 100, 1000]) == []
    assert interval_of(2.0, [round_of([1, 2, 3])]) == (None, None)


def test_a_profile_of_much_slower_steps_is_named() -> None:
    assert profile_warnings(None, run_info({})) == profile_warnings(0.1, run_info({})) == []
    (warning,) = profile_warnings(10.9, run_info({}))
    assert "+1090%" in warning.fault


def test_an_allocator_that_the_profiler_disturbs_is_named() -> None:
    timed = {"timing_page_faults": 500, "iterations": 10}
    (warning,) = profile_warnings(
        10.9, run_info({**timed, "profiled_page_faults": [90_000, 80_000, 99_000]})
    )
    assert "90,000 page faults each where those have 50" in warning.fault
    assert "LD_PRELOAD" in warning.remedy
    (other,) = profile_warnings(10.9, run_info({**timed, "profiled_page_faults": [60, 50, 40]}))
    assert "page faults" not in other.fault


@pytest.mark.parametrize(("number", "told"), [(9, 0), (10, 1)])
def test_a_drift_of_few_iterations_is_none(number: int, told: int) -> None:
    assert len(faults([1_000_000 + 50_000 * place for place in range(number)])) == told


@pytest.mark.parametrize(
    ("measures", "cpu_ns", "compared"),
    [
        (("wall time", "wall time"), (8.0, 9.0), {0: 10.0, 1: 20.0}),
        (("wall time", "CPU time"), (8.0, 9.0), {0: 8.0, 1: 9.0}),
        (("wall time", "CPU time"), (None, 9.0), {0: 10.0}),
    ],
)
def test_runs_are_compared_in_cpu_time_where_one_lost_its_cpu_and_all_have_it(
    measures: tuple[str, str], cpu_ns: tuple[float | None, float], compared: dict[int, float]
) -> None:
    runs: list[Any] = [
        SimpleNamespace(compared_by=measure, cpu_step_ns=cpu, step_ns=wall)
        for measure, cpu, wall in zip(measures, cpu_ns, (10.0, 20.0), strict=True)
    ]
    assert compared_ns([*enumerate(runs)]) == compared
