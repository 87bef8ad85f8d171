"""The timing loop under a clock that the test moves."""

import gc
import mmap
import time

import pytest

from lstmprof.base.errors import CaptureError
from lstmprof.capture.worker import profiling
from lstmprof.capture.worker.machine.usage import SELF, Counts, Waiting, difference, usage
from lstmprof.capture.worker.timing import (
    LEAST_ITERATIONS,
    MOST_WARM_UP,
    REPORT_EVERY_NS,
    Iteration,
    Loop,
    Quota,
    after_profile,
    collector_frozen,
    columns,
    joined,
    timed,
    warmed,
)


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

    return Loop(step, read, lambda: step_ns - 1, lambda whose: None)


def test_only_the_step_is_timed() -> None:
    # 1000    1007      1107    1114      1214
    #   [step 7][read 100][step 7][read 100]
    clock = Clock()
    rows = timed(loop_of(clock, 7, 100, [3.0, 2.0]), 1, 1, pytest.fail, clock)
    unread = Counts(None, None, None, None, None)
    assert rows == [
        Iteration(0, True, False, 7, 6, unread, 3.0),
        Iteration(1, False, False, 7, 6, unread, 2.0),
    ]
    assert columns(rows) == {
        "iteration": [0, 1],
        "warmup": [True, False],
        "after_profile": [False, False],
        "wall_ns": [7, 7],
        "device_ns": [6, 6],
        "turn": [None, None],
        **{name: [None, None] for name in (*Counts._fields, *Waiting._fields)},
        "loss": [3.0, 2.0],
    }


def reading(now_ns: int) -> tuple[float, ...]:
    """What getrusage(2) tells; each number is the clock's, so that differences tell the time."""
    told = [0.0] * 16
    told[:2] = now_ns / 2e9, now_ns / 2e9  # user, system
    told[14], told[15], told[6], told[7] = now_ns, 2 * now_ns, 3 * now_ns, 4 * now_ns
    return tuple(told)


def test_the_readings_enclose_the_step_alone() -> None:
    # 1000       4007      5007      5107
    #   [usage 3][step 7][usage 3][read 100]
    clock = Clock()
    bare = loop_of(clock, 7_000, 100_000, [3.0, 2.0])

    def read(whose: int) -> tuple[float, ...]:
        now_ns = clock.now_ns
        clock.pass_ns(3_000)
        return reading(now_ns)

    rows = timed(Loop(bare.step, bare.loss, bare.device_ns, read), 0, 2, pytest.fail, clock)
    met = Counts(10_000, 10_000, 20_000, 30_000, 40_000)  # one reading and one step
    assert [row.wall_ns for row in rows] == [7_000, 7_000]
    assert [row.counts for row in rows] == [met, met]


@pytest.mark.measured
def test_what_a_step_costs_is_what_the_kernel_counted() -> None:
    pages = 500

    def touch() -> float:
        until = time.process_time() + 0.02
        with mmap.mmap(-1, pages * mmap.PAGESIZE) as fresh:
            for place in range(0, len(fresh), mmap.PAGESIZE):
                fresh[place] = 1
        while time.process_time() < until:
            pass
        return 1.0

    def sleep() -> float:
        time.sleep(0.02)
        return 1.0

    began_ns = time.process_time_ns()
    busy, idle = (
        timed(Loop(step, float, lambda: None), 0, 1, pytest.fail, time.perf_counter_ns)[0].counts
        for step in (touch, sleep)
    )
    ended_ns = time.process_time_ns()
    assert busy.cpu_ns is not None
    assert idle.cpu_ns is not None
    assert busy.cpu_ns >= 20e6
    assert busy.cpu_ns + idle.cpu_ns <= ended_ns - began_ns + 1e6  # each reads whole microseconds
    assert idle.cpu_ns < 10e6
    assert busy.minor_faults is not None
    assert busy.minor_faults > pages / 20  # fewer than pages where the kernel gives huge ones
    assert (idle.voluntary_switches or 0) >= 1


def test_the_places_of_a_reading_are_those_of_its_names() -> None:
    before = usage(SELF)
    sum(range(100_000))
    after = usage(SELF)
    names = ("ru_nvcsw", "ru_nivcsw", "ru_minflt", "ru_majflt")
    told = [getattr(after, name) - getattr(before, name) for name in names]
    assert list(difference(before, after)[1:]) == told
    cpu_s = sum(getattr(after, n) - getattr(before, n) for n in ("ru_utime", "ru_stime"))
    assert difference(before, after)[0] == round(cpu_s * 1e6) * 1000


def test_what_cannot_be_read_is_none() -> None:
    assert difference(None, usage(SELF)) == Counts(None, None, None, None, None)


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


@pytest.mark.parametrize(
    ("count", "least_ns", "rows"),
    [(3, 0, 3), (3, 20, 3), (3, 21, 4), (1, 95, 10), (3, 10**9, 3 + MOST_WARM_UP)],
)
def test_a_warm_up_lasts_until_its_time_after_the_first_step_is_over(
    count: int, least_ns: int, rows: int
) -> None:
    clock = Clock()
    steps = warmed(loop_of(clock, 10, 1, [1.0] * 2000), count, least_ns, lambda line: None, clock)
    assert len(steps) == rows
    assert all(step.warmup for step in steps)
    assert [step.iteration for step in steps] == list(range(rows))


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


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with collector_frozen():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_the_session_thrown_away_lasts_long_enough_and_not_too_long() -> None:
    def numbers(steps: int, step_ns: int) -> int:
        clock = iter(range(0, 10**12, step_ns))
        return len(list(profiling.throwaway_steps(steps, lambda: next(clock))))

    half_a_second = profiling.THROWAWAY_NS
    assert numbers(3, half_a_second // 10) == 3 + 9
    assert numbers(3, half_a_second) == 3
    assert numbers(3, 1) == 3 + profiling.THROWAWAY_STEPS


def test_what_comes_after_a_profile_is_marked_and_numbered_on() -> None:
    clock = Clock()
    warm = timed(loop_of(clock, 1, 0, [3.0, 2.0]), 2, 0, pytest.fail, clock)
    first = joined(warm, timed(loop_of(clock, 1, 0, [1.0]), 0, 1, pytest.fail, clock))
    again = timed(loop_of(clock, 1, 0, [1.0, 1.0]), 1, 1, pytest.fail, clock)
    found = joined(first, after_profile(again))
    assert [(row.iteration, row.warmup, row.after_profile) for row in found] == [
        (0, True, False),
        (1, True, False),
        (2, False, False),
        (3, True, True),
        (4, False, True),
    ]


@pytest.mark.parametrize(("iterations", "halves"), [(1, (1, 0)), (2, (1, 1)), (7, (4, 3))])
def test_a_profile_comes_amid_the_counted_iterations(
    iterations: int, halves: tuple[int, int]
) -> None:
    first, rest = Quota(iterations, 101).halves()
    assert (first.iterations, rest.iterations) == halves
    assert (first.most_ns, rest.most_ns) == (50, 50)
    assert first.least + rest.least == LEAST_ITERATIONS
