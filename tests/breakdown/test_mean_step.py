"""The mean step of a lane: its shares, and the order in which its parts are read."""

from __future__ import annotations

import pytest

from lstmprof.breakdown.mean_step import MeanStep, in_reading_order, lane_words, mean_of


def lane(
    parts: dict[tuple[str, str], int], device: int | None = 0, rank: int | None = None
) -> MeanStep:
    return MeanStep(rank, device, 2, sum(parts.values()), in_reading_order(parts))


def test_the_busy_share_is_of_what_is_busy() -> None:
    parts = {("busy", "gemm"): 30, ("busy", "pointwise"): 10, ("idle", "python"): 160}
    assert lane(parts).busy_share == 0.2
    assert lane({("idle", "python"): 8}).busy_share == 0
    assert lane({("busy", "gemm"): 8}).busy_share == 1


def test_a_device_waits_for_its_host_where_the_host_is_what_it_waits_for() -> None:
    parts = {("busy", "gemm"): 30, ("idle", "python"): 20, ("idle", "sync"): 50}
    assert lane(parts).waits_for_host_share == 0.2
    assert lane(parts, device=None).waits_for_host_share is None
    assert lane({("busy", "gemm"): 30}).waits_for_host_share == 0


@pytest.mark.parametrize("idle", ["unattributed", "tail:unattributed"])
def test_of_idle_time_that_nothing_tells_of_it_is_unknown_what_it_waits_for(idle: str) -> None:
    parts = {("busy", "gemm"): 30, ("idle", idle): 20}
    assert lane(parts).waits_for_host_share is None
    assert lane({**parts, ("idle", "python"): 50}).waits_for_host_share == 0.5


def test_parts_are_read_busy_first_the_largest_first() -> None:
    parts = {
        ("idle", "python"): 500,
        ("busy", "gemm"): 3,
        ("idle", "dispatch"): 700,
        ("busy", "pointwise"): 5,
    }
    order = [part for _, part, _ in in_reading_order(parts)]
    assert order == ["pointwise", "gemm", "dispatch", "python"]


def test_the_parts_of_a_mean_step_are_whole_and_sum_to_it() -> None:
    found = lane({("busy", "gemm"): 5, ("busy", "copy"): 3, ("idle", "python"): 2})
    assert found.mean_ns == 5
    assert [ns for _, _, ns in found.mean_parts] == [3, 1, 1]
    assert mean_of([2, 2, 2], 4) == [1, 1, 0]  # 6 / 4 of a nanosecond are 2


@pytest.mark.parametrize(
    ("rank", "device", "words"),
    [
        (None, None, "CPU"),
        (None, 0, "device 0"),
        (3, 0, "device 0 of rank 3"),
        (0, None, "CPU of rank 0"),
    ],
)
def test_a_lane_is_called_as_people_call_it(
    rank: int | None, device: int | None, words: str
) -> None:
    assert lane_words(rank, device) == words
