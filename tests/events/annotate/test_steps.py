"""The numbers of steps, as their markers write them."""

from __future__ import annotations

import pytest

from lstmprof.events.annotate.steps import windows, with_steps
from lstmprof.events.table import events_table


def steps(*names: str) -> list[int]:
    """The step of each of the markers ``names``, which follow on each other."""
    count = len(names)
    events = events_table(
        {
            "kind": ["step"] * count,
            "name": list(names),
            "start_ns": [10 * n for n in range(count)],
            "dur_ns": [10] * count,
            "pid": [1] * count,
            "tid": [1] * count,
        }
    )
    found = windows(events, captured=False)
    marked: list[int] = with_steps(events, found).column("step").to_pylist()
    assert marked == [window.step for window in found]
    return marked


def test_markers_have_their_own_numbers() -> None:
    assert steps("ProfilerStep#7", "ProfilerStep#9") == [7, 9]


@pytest.mark.parametrize("number", ["9" * 19, "9" * 40, "9" * 5000])
def test_numbers_that_no_column_holds_are_counted_instead(number: str) -> None:
    assert steps("ProfilerStep#7", f"ProfilerStep#{number}") == [0, 1]
