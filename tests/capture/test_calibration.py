"""What recording an event costs: the difference of two loops, and where in an op it lies."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from lstmprof.capture.worker.profilers import calibration
from lstmprof.capture.worker.profilers.calibration import (
    EventParts,
    LoopTimes,
    facts,
    page_fault_ns,
)


def test_an_event_costs_what_a_profiled_call_takes_longer() -> None:
    found = facts(
        LoopTimes([2_450.0, 2_500.0, 9_000.0], [21_000.0]), LoopTimes([500.0], [1_000.0]), 2
    )
    assert (found["event_ns"], found["range_ns"]) == (1_000.0, 20_000.0)
    assert (found["event_before_ns"], found["event_inside_ns"]) == (None, None)


def test_its_places_are_the_shares_of_what_nested_calls_took() -> None:
    places = EventParts(before_ns=600.0, inside_ns=200.0, after_ns=200.0, range_ns=7_000.0)
    found = facts(LoopTimes([2_100.0], [9_000.0]), LoopTimes([100.0], [1_000.0]), 2, places)
    assert (found["event_ns"], found["event_before_ns"]) == (1_000.0, 600.0)
    assert (found["event_inside_ns"], found["range_inside_ns"]) == (200.0, 7_000.0)


def test_what_is_no_longer_profiled_than_not_is_unknown() -> None:
    found = facts(LoopTimes([90.0], [90.0]), LoopTimes([100.0], [100.0]), 1)
    assert (found["event_ns"], found["event_error_ns"], found["range_ns"]) == (None, None, None)


def test_the_error_grows_with_what_the_repeats_differ_by() -> None:
    steady = facts(LoopTimes([2.0] * 9, [2.0] * 9), LoopTimes([1.0] * 9, [1.0] * 9), 1)
    wild = facts(LoopTimes([float(n) for n in range(20)], [2.0]), LoopTimes([1.0] * 9, [1.0]), 1)
    assert steady["event_error_ns"] == 0.0
    assert wild["event_error_ns"] > 4.0


def test_a_loop_enters_a_range_and_never_a_step() -> None:
    entered: list[str] = []

    @dataclass
    class Range:
        name: str

        def __enter__(self) -> None:
            entered.append(self.name)

        def __exit__(self, *_: object) -> None: ...

    calibration.readings(lambda: None, Range)
    assert set(entered) == {calibration.RANGE}
    assert len(entered) == calibration.REPEATS * calibration.RANGES


@pytest.mark.measured
def test_a_page_fault_takes_time() -> None:
    cost = page_fault_ns()
    if cost is None:
        pytest.skip("the kernel counted no page faults")
    assert 10 < cost < 1e6
