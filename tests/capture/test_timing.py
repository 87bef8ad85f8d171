"""The timing loop under a clock that the test moves."""

import gc
import mmap
import time
from typing import NamedTuple

import pytest

from lstmprof.capture.worker import profiling
from lstmprof.capture.worker.timing import (
    LEAST_ITERATIONS,
    REPORT_EVERY_NS,
    Iteration,
    Loop,
    Share,
    after_profile,
    collector_frozen,
    columns,
    joined,
    timed,
)
from lstmprof.capture.worker.usage import Counts, difference, usage
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

    return Loop(step, read, lambda: step_ns - 1, lambda: None)


def test_only_the_step_is_timed() -> None:
    # 1000    1007      1107    1114      1214
    #   [step 7][read 100][step 7][read 100]
    clock = Clock()
    rows = timed(loop_of(clock, 7, 100, [3.0, 2.0]), 1, 1, pytest.fail, clock)
    unread = (None,) * 5
    assert rows == [
        Iteration(0, True, False, 7, 6, *unread, 3.0),
        Iteration(1, False, False, 7, 6, *unread, 2.0),
    ]
    assert columns(rows) == {
        "iteration": [0, 1],
        "warmup": [True, False],
        "after_profile": [False, False],
        "wall_ns": [7, 7],
        "device_ns": [6, 6],
        **{name: [None, None] for name in Counts._fields},
        "loss": [3.0, 2.0],
    }


class Reading(NamedTuple):
    """What getrusage(2) tells; each number is the clock's, so that differences tell the time."""

    ru_utime: float
    ru_stime: float
    ru_nvcsw: int
    ru_nivcsw: int
    ru_minflt: int
    ru_majflt: int


def test_the_readings_enclose_the_step_alone() -> None:
    # 1000       4007      5007      5107
    #   [usage 3][step 7][usage 3][read 100]
    clock = Clock()
    bare = loop_of(clock, 7_000, 100_000, [3.0, 2.0])

    def read() -> Reading:
        now = clock.now_ns
        clock.pass_ns(3_000)
        return Reading(now / 2e9, now / 2e9, now, 2 * now, 3 * now, 4 * now)

    rows = timed(Loop(bare.step, bare.loss, bare.device_ns, read), 0, 2, pytest.fail, clock)
    met = Counts(10_000, 10_000, 20_000, 30_000, 40_000)  # one reading and one step
    assert [row.wall_ns for row in rows] == [7_000, 7_000]
    assert [Counts(*(getattr(row, name) for name in Counts._fields)) for row in rows] == [met, met]


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

    busy, idle = (
        timed(Loop(step, float, lambda: None), 0, 1, pytest.fail, time.perf_counter_ns)[0]
        for step in (touch, sleep)
    )
    assert busy.cpu_ns is not None
    assert idle.cpu_ns is not None
    assert 20e6 <= busy.cpu_ns < busy.wall_ns + 1e6
    assert idle.cpu_ns < 10e6 < idle.wall_ns
    assert busy.minor_faults is not None
    assert busy.minor_faults > pages / 20  # fewer than pages where the kernel gives huge ones
    assert idle.voluntary_switches == 1


def test_what_cannot_be_read_is_none() -> None:
    assert difference(None, usage()) == Counts(None, None, None, None, None)


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
    first, rest = Share(iterations, 101).halves()
    assert (first.iterations, rest.iterations) == halves
    assert (first.most_ns, rest.most_ns) == (50, 50)
    assert first.least + rest.least == LEAST_ITERATIONS
