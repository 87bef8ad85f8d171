"""Workers that take turns: who runs when, and what of a turn counts."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc
import pytest

from lstmprof.base.errors import CaptureError, LstmprofError
from lstmprof.capture.captured_run import write_captured
from lstmprof.capture.harness.rounds import MOST_IN_TURNS, _can_take_turns, captured_runs
from lstmprof.capture.harness.supervisor import Turns, capture
from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker.timing import TURN_NS, Loop, Quota, shared
from lstmprof.workloads import with_overrides
from lstmprof.workloads.studies import named

TINY = with_overrides(named("1x320-ce-short"), hidden=4, batch=2, time_steps=5)


def run(turns: Turns, shares: dict[str, int]) -> list[str]:
    """Who had each turn, where each takes so many and leaves."""
    order: list[str] = []

    def member(name: str) -> None:
        try:
            for _ in range(shares[name]):
                turns.take(name)
                order.append(name)
        finally:
            turns.leave(name)

    with ThreadPoolExecutor(len(shares)) as pool:
        for future in [pool.submit(member, name) for name in shares]:
            future.result(timeout=300)
    return order


def test_each_has_its_turn_in_the_same_order_until_it_leaves() -> None:
    """a|b|c|a|b|c|a|c|a|c: b has left."""
    shares = {"a": 4, "b": 2, "c": 4}
    assert run(Turns(shares), shares) == [*"abcabcacac"]


def test_one_that_never_came_keeps_nobody_waiting_once_it_left() -> None:
    turns = Turns(["a", "gone", "b"])
    turns.leave("gone")
    assert run(turns, {"a": 2, "b": 2}) == [*"abab"]


def test_all_are_stopped_who_run_or_wait_or_come_later() -> None:
    turns, stopped = Turns(["a", "b"]), threading.Event()
    turns.started("a", stopped.set)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(turns.take, "a")
        turns.stop()
        with pytest.raises(CaptureError, match="stopped"):
            waiting.result(timeout=300)
    assert stopped.is_set()
    late = threading.Event()
    turns.started("b", late.set)
    assert late.is_set()
    with pytest.raises(CaptureError, match="stopped"):
        turns.take("b")


class Clock:
    """A clock that others move."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


@pytest.mark.parametrize(
    ("step_ns", "warm"),
    [
        (2 * TURN_NS, [False] * 3),  # |-------| |-------| |-------|
        (TURN_NS // 2, [True, False] * 3),  # |cold|--| |cold|--| |cold|--|
        (TURN_NS // 4, [True, False, False, False] * 3),
    ],
)
def test_the_first_of_several_iterations_of_a_turn_does_not_count(
    step_ns: int, warm: list[bool]
) -> None:
    clock, turns = Clock(), list[int]()

    def step() -> float:
        clock.now_ns += step_ns
        return 1.0

    def turn() -> None:
        turns.append(clock.now_ns)
        clock.now_ns += 10 * TURN_NS  # the others run

    loop = Loop(step, float, lambda: None, lambda whose: None)
    rows = shared(loop, Quota(3), turn, lambda line: None, clock, 7)
    assert [row.warmup for row in rows] == warm
    assert [row.turn for row in rows] == [n for n in (7, 8, 9) for _ in range(len(warm) // 3)]
    assert [row.iteration for row in rows] == list(range(len(warm)))
    assert {row.wall_ns for row in rows} == {step_ns}
    assert len(turns) == 3


def test_a_share_of_time_is_its_own_and_not_that_of_others() -> None:
    clock = Clock()

    def step() -> float:
        clock.now_ns += TURN_NS
        return 1.0

    def turn() -> None:
        clock.now_ns += 100 * TURN_NS

    loop = Loop(step, float, lambda: None, lambda whose: None)
    rows = shared(loop, Quota(9, 4 * TURN_NS, least=1), turn, lambda line: None, clock)
    assert len(rows) == 4


@pytest.mark.measured
def test_real_workers_take_turns_on_one_cpu_and_one_that_fails_holds_up_no_other(
    tmp_path: Path,
) -> None:
    pytest.importorskip("jax")
    common = CaptureRequest(
        *("jax-scan", TINY, "cpu"), mode="forward", iterations=4, profile_steps=1, peaks=False
    )
    requests = {
        "one": common,
        "fails": CaptureRequest(**{**vars(common), "python": "/nonexistent/python"}),
        "two": CaptureRequest(**{**vars(common), "seed": 1}),
    }
    runs = dict(captured_runs([requests], tmp_path, rounds=1))
    assert isinstance(runs["fails"], LstmprofError)
    one, two = runs["one"], runs["two"]
    assert not isinstance(one, LstmprofError)
    assert not isinstance(two, LstmprofError)
    assert one.info.affinity == two.info.affinity
    assert one.info.turn_with == ("one", "fails", "two")
    assert (one.info.ended_at or "") > (two.info.started_at or "")  # both lived at once
    timings = one.timings()
    assert timings is not None
    counted = timings.filter(pc.invert(timings["warmup"]))
    assert set(counted["after_profile"].to_pylist()) == {False, True}
    assert set(counted["turn"].to_pylist()) == {0, 1, 2, 3}
    early = counted.filter(pc.invert(counted["after_profile"]))
    assert set(early["turn"].to_pylist()) == {0, 1}  # the same turns as the other's


def test_a_run_took_turns_only_with_those_that_did_in_every_round(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    asked = CaptureRequest(
        *("jax-scan", TINY, "cpu"), mode="forward", iterations=2, profile_steps=1, peaks=False
    )
    result = capture(asked, tmp_path / "capture", lambda line: None)
    together = replace(result, metadata={**result.metadata, "turn_with": ["a", "b"]})
    other = replace(result, metadata={**result.metadata, "turn_with": ["b", "c"]})
    assert write_captured("b", [together, other], tmp_path).info.turn_with == ("b",)
    assert write_captured("alone", [together, result], tmp_path).info.turn_with is None


def test_those_on_a_gpu_of_several_threads_or_sampled_take_none() -> None:
    own = CaptureRequest("torch-nn-lstm", TINY, device="cpu")
    assert _can_take_turns([own, own])
    assert not _can_take_turns([own])
    assert not _can_take_turns([own] * (MOST_IN_TURNS + 1))
    for fields in ({"device": "cuda:0"}, {"threads": 2}, {"sampler": "perf"}):
        assert not _can_take_turns([own, CaptureRequest(**{**vars(own), **fields})])
