"""The table of collectives by hand, and against who is known to have arrived when."""

from __future__ import annotations

from typing import Any

from events.rows import Row, row, table
from hypothesis import given, strategies as st

from lstmprof.breakdown.tables import TABLES
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import windows

REDUCE, GATHER = "ncclDevKernel_AllReduce_Sum_f32", "ncclDevKernel_AllGather_RING_LL"


def collectives(rows: list[Row]) -> list[dict[str, Any]]:
    events = annotated(table(rows), captured=False)
    return TABLES["collectives"].of(events, windows(events, captured=False)).to_pylist()


def kernel(name: str, start: int, end: int, rank: int | None = 0, **columns: Any) -> Row:
    return row("kernel", name, start, end, rank=rank, **{"device": 0, "stream": 7, **columns})


# rank 0   [reduce------------)   [gather)        0…100, 120…130
# rank 1             [reduce--)   [gather---)     + 5000:  60…102, 115…130
# rank 1         [sgemm----)                      + 5000:  40…80
def test_of_a_collective_the_shortest_came_last_and_the_others_waited_for_it() -> None:
    rows = [
        kernel(REDUCE, 0, 100),
        kernel(GATHER, 120, 130),
        kernel("sgemm", 5040, 5080, rank=1, stream=1),
        kernel(REDUCE, 5060, 5102, rank=1),
        kernel(GATHER, 5115, 5130, rank=1),
    ]
    found = collectives(rows)
    assert [(r["rank"], r["collective"], r["waits_ns"], r["last_rank"]) for r in found] == [
        (0, 0, 58, 1),
        (0, 1, 0, 0),
        (1, 0, 0, 1),
        (1, 1, 5, 0),
    ]
    assert [r["overlapped_ns"] for r in found] == [0, 0, 20, 0]
    assert {r["skew_ns"] for r in found} == {1}  # ends 5002 and 5000 apart, 5001 in the median


def test_where_ranks_have_not_as_many_of_a_name_those_are_matched_with_none() -> None:
    rows = [
        *(kernel(REDUCE, at, at + 10) for at in (0, 20, 40)),
        *(kernel(REDUCE, at, at + 10, rank=1) for at in (0, 20)),
        kernel(GATHER, 60, 90),
        kernel(GATHER, 70, 90, rank=1),
    ]
    found = collectives(rows)
    assert [r["waits_ns"] for r in found if r["name"] == REDUCE] == [None] * 5
    assert [r["waits_ns"] for r in found if r["name"] == GATHER] == [10, 0]


def test_devices_of_one_rank_wait_for_each_other_too() -> None:
    rows = [kernel(REDUCE, 0, 50, None), kernel(REDUCE, 30, 50, None, device=1)]
    (first, second) = collectives(rows)
    assert (first["waits_ns"], first["last_rank"], first["last_device"]) == (30, None, 1)
    assert (second["waits_ns"], second["rank"], second["device"]) == (0, None, 1)


def test_streams_that_are_numbered_otherwise_match_in_their_order() -> None:
    # the two streams of rank 1 run the other way round in time
    rows = [
        kernel(REDUCE, 0, 10, stream=20),
        kernel(REDUCE, 20, 60, stream=24),
        kernel(REDUCE, 0, 35, rank=1, stream=30),
        kernel(REDUCE, 0, 3, rank=1, stream=28),
    ]
    found = {(r["rank"], r["stream"]): r["waits_ns"] for r in collectives(rows)}
    assert found == {(0, 20): 7, (0, 24): 5, (1, 28): 0, (1, 30): 0}


def test_one_rank_alone_waits_unknown() -> None:
    (found,) = collectives([kernel(REDUCE, 0, 10)])
    assert (found["dur_ns"], found["waits_ns"], found["collective"]) == (10, None, None)


@given(
    st.integers(2, 4).flatmap(
        lambda ranks: st.tuples(
            st.lists(
                st.lists(st.integers(0, 500), min_size=ranks, max_size=ranks),
                min_size=1,
                max_size=6,
            ),
            st.lists(st.integers(0, 10**6), min_size=ranks, max_size=ranks),
        )
    )
)
def test_what_each_waits_is_how_long_before_the_last_it_arrived(
    drawn: tuple[list[list[int]], list[int]],
) -> None:
    """Whatever the offsets of the clocks: a collective ends on all at once."""
    arrivals, clocks = drawn
    rows, expected = [], []
    for number, times in enumerate(arrivals):
        for rank, (time, clock) in enumerate(zip(times, clocks, strict=True)):
            at = 1000 * number + clock
            rows.append(kernel(REDUCE, at + time, at + max(times) + 10, rank=rank))
            expected.append((rank, number, max(times) - time, times.index(max(times)), 0))
    found = collectives(rows)
    names = ("rank", "collective", "waits_ns", "last_rank", "skew_ns")
    assert [tuple(r[n] for n in names) for r in found] == sorted(expected)
