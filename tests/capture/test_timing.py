"""The timing loop under a clock that the test moves."""

import gc

import pytest

from lstmprof.capture.worker import profiling
from lstmprof.capture.worker.timing import (
    LEAST_ITERATIONS,
    REPORT_EVERY_NS,
    Iteration,
    Loop,
    collector_frozen,
    columns,
    numbered_on,
    timed,
)
from lstmprof.errors import CaptureError


class Clock:
    """Stands still but for ``pass_ns``."""

    def __init__(self) -> None:
        self.now_ns = 1_000

    def __call__(self) -> int:
        return self.now_ns

    def pass_ns(self, dur_ns: int) -> None:
        self.now_ns += dur_ns


def loop_of(clock: Clock, step_ns: int, read_ns: int, losses: list[float]) -> Loop:
    """A step of ``step_ns``; reading its loss afterwards takes ``read_ns``."""
    left = iter(losses)

    def read(outcome: float) -> float:
        clock.pass_ns(read_ns)
        return outcome

    def step() -> float:
        clock.pass_ns(step_ns)
        return next(left)

    return Loop(step, read, lambda: step_ns - 1)


def test_only_the_step_is_timed() -> None:
    # 1000    1007      1107    1114      1214
    #   [step 7][read 100][step 7][read 100]
    clock = Clock()
    rows = timed(loop_of(clock, 7, 100, [3.0, 2.0]), 1, 1, pytest.fail, clock)
    assert rows == [Iteration(0, True, 7, 6, 3.0), Iteration(1, False, 7, 6, 2.0)]
    assert columns(rows) == {
        "iteration": [0, 1],
        "warmup": [True, False],
        "wall_ns": [7, 7],
        "device_ns": [6, 6],
        "loss": [3.0, 2.0],
    }


def test_progress_comes_once_a_second_and_not_once_a_step() -> None:
    clock, lines = Clock(), list[str]()
    timed(loop_of(clock, REPORT_EVERY_NS // 4, 0, [1.0] * 9), 1, 8, lines.append, clock)
    assert lines == ["timed 4 of 9 iterations", "timed 8 of 9 iterations"]


@pytest.mark.parametrize(
    ("most_ns", "counted"), [(None, 9), (10_000, 9), (70, 7), (71, 8), (1, LEAST_ITERATIONS)]
)
def test_when_time_is_up_no_further_iteration_is_begun(most_ns: int | None, counted: int) -> None:
    clock = Clock()
    loop = loop_of(clock, 10, 0, [1.0] * 9)
    assert len(timed(loop, 0, 9, pytest.fail, clock, most_ns=most_ns)) == counted


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_ends_the_capture(loss: float) -> None:
    clock = Clock()
    with pytest.raises(CaptureError, match="the loss of iteration 1 is"):
        timed(loop_of(clock, 1, 1, [1.0, loss, 1.0]), 1, 2, pytest.fail, clock)


def test_the_collector_is_off_within_and_on_after() -> None:
    with collector_frozen():
        assert not gc.isenabled()
        assert gc.get_freeze_count() > 0
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_the_session_thrown_away_lasts_long_enough_and_not_too_long() -> None:
    def numbers(steps: int, step_ns: int) -> int:
        clock = iter(range(0, 10**12, step_ns))
        return len(list(profiling.throwaway_steps(steps, lambda: next(clock))))

    half_a_second = profiling.THROWAWAY_NS
    assert numbers(3, half_a_second // 10) == 3 + 9
    assert numbers(3, half_a_second) == 3
    assert numbers(3, 1) == 3 + profiling.THROWAWAY_STEPS


def test_counted_iterations_are_numbered_on_from_the_warm_up() -> None:
    clock = Clock()
    warm = timed(loop_of(clock, 1, 0, [3.0, 2.0]), 2, 0, pytest.fail, clock)
    counted = numbered_on(timed(loop_of(clock, 1, 0, [1.0]), 0, 1, pytest.fail, clock), len(warm))
    found = [(row.iteration, row.warmup) for row in warm + counted]
    assert found == [(0, True), (1, True), (2, False)]
