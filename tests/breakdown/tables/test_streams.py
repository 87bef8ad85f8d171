"""The stream table and the step table by hand, and unions against a count of instants."""

from __future__ import annotations

import numpy as np
from events.rows import row, table
from hypothesis import given, strategies as st

from lstmprof.breakdown.tables.steps import steps, streams
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import windows
from lstmprof.events.intervals import Covered, running_time

HOST = {"pid": 1, "tid": 1}

# step 1 ├──────────────┤           0…20
# step 2                 ├────────┤ 20…40
# s7        [a----)[b--)               4…10, 10…14
# s8           [c--------------)       7…23, launched in step 1
# s8                          [d)      36…38
# s7                             [e---)  39…45, launched in step 2
ROWS = [
    row("step", "step", 0, 20, **HOST),
    row("step", "step", 20, 40, **HOST),
    row("op", "aten::mm", 1, 3, **HOST),
    row("op", "aten::add", 21, 39, **HOST),
    *(
        row("runtime", "cudaLaunchKernel", at, at + 1, **HOST, correlation_id=c)
        for c, at in enumerate((1, 2, 3, 22, 24), start=1)
    ),
    row("kernel", "a", 4, 10, device=0, stream=7, correlation_id=1),
    row("kernel", "b", 10, 14, device=0, stream=7, correlation_id=2),
    row("kernel", "c", 7, 23, device=0, stream=8, correlation_id=3),
    row("memset", "d", 36, 38, device=0, stream=8, correlation_id=4),
    row("kernel", "e", 39, 45, device=0, stream=7, correlation_id=5),
]


def test_a_stream_is_busy_for_the_union_of_its_activities() -> None:
    events = annotated(table(ROWS), captured=True)
    found = streams(events, windows(events, captured=True)).to_pylist()
    assert [tuple(r.values()) for r in found] == [
        (None, 0, 7, 3, 3, 16, 16, 11 / 40, 4, 45),
        (None, 0, 8, 2, 1, 18, 18, 18 / 40, 7, 38),
    ]


def test_a_step_on_a_device_is_busy_idle_overlapped_and_spills() -> None:
    events = annotated(table(ROWS), captured=True)
    found = steps(events, windows(events, captured=True)).to_pylist()
    # busy 4…20 and 20…23, 36…38, 39…40; a and b lie over c for 7 ns of step 1
    assert [tuple(r.values()) for r in found] == [
        (None, 0, 0, 0, 20, 16, 4, 7, 3, 3, 3, 1),
        (None, 1, 0, 20, 20, 6, 14, 0, 5, 2, 2, 1),
    ]


def test_a_step_on_the_host_is_busy_with_computing_ops() -> None:
    rows = [row("step", "step", 0, 10, **HOST), row("op", "aten::mm", 2, 6, **HOST)]
    rows += [row("op", "aten::view", 6, 7, **HOST)]
    events = annotated(table(rows), captured=True)
    assert [
        tuple(r.values()) for r in steps(events, windows(events, captured=True)).to_pylist()
    ] == [(None, 0, None, 0, 10, 4, 6, None, None, None, 0, 2)]


def test_an_empty_profile_has_neither() -> None:
    events = annotated(table([]), captured=False)
    assert (streams(events, []).num_rows, steps(events, []).num_rows) == (0, 0)


intervals = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), max_size=12)


@given(intervals, st.integers(0, 40), st.integers(0, 20))
def test_covered_and_running_time_are_counts_of_instants(
    drawn: list[tuple[int, int]], opens: int, length: int
) -> None:
    start = np.array([s for s, _ in drawn], dtype=np.int64)
    end = np.array([s + n for s, n in drawn], dtype=np.int64)
    at, to = np.array([opens]), np.array([opens + length])
    running = [sum(s <= t < s + n for s, n in drawn) for t in range(opens, opens + length)]
    assert Covered(start, end).within(at, to)[0] == sum(n > 0 for n in running)
    assert running_time(start, end, at, to)[0] == sum(running)
