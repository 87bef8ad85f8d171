"""The table of collectives by hand, and against who is known to have arrived when."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import shared_traces
from events.rows import Row, row
from hypothesis import given, strategies as st

from lstmprof.breakdown import break_down
from lstmprof.breakdown.tables import TABLES
from lstmprof.breakdown.tables.collectives import in_common
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import windows
from lstmprof.events.schema import SCHEMA
from lstmprof.events.table import events_table
from lstmprof.runs.cache import open_runs
from lstmprof.runs.metadata import run_info

REDUCE, GATHER = "ncclDevKernel_AllReduce_Sum_f32", "ncclDevKernel_AllGather_RING_LL"


def collectives(rows: list[Row], group_sizes: list[int] | None = None) -> list[dict[str, Any]]:
    read = [name for name in SCHEMA.names if name not in ("event_id", "category")]
    events = annotated(events_table({n: [r[n] for r in rows] for n in read}), captured=False)
    metadata = {"ranks": {"0": {"group_sizes": group_sizes or []}}}
    info = run_info({"name": "job", "source": "ingest", "profile_metadata": metadata})
    return TABLES["collectives"].of(events, windows(events, captured=False), info).to_pylist()


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


# all four ranks in group 0, two tensor-parallel groups beside it; each ends at once on its ranks
# rank 0   [0---)      [tp 1)             rank 2   [0---)   [tp 2---------)
# rank 1     [0-)  [tp 1----)             rank 3    [0--)           [tp 2-)
def test_ranks_of_a_process_group_wait_for_each_other_only() -> None:
    everyone, first, second = (
        json.dumps({"process_group": group}) for group in ("0 (default_pg)", "1 (tp)", "2 (tp)")
    )
    rows = [
        *(
            kernel(REDUCE, at, 50, rank, launch_config=everyone)
            for rank, at in enumerate((0, 20, 0, 5))
        ),
        kernel(REDUCE, 90, 100, 0, launch_config=first),
        kernel(REDUCE, 70, 100, 1, launch_config=first),
        kernel(REDUCE, 60, 200, 2, launch_config=second),
        kernel(REDUCE, 150, 200, 3, launch_config=second),
    ]
    found = {(r["rank"], r["process_group"]): r for r in collectives(rows)}
    assert {key: (r["waits_ns"], r["last_rank"]) for key, r in found.items()} == {
        **{(rank, "0 (default_pg)"): (ns, 1) for rank, ns in enumerate((20, 0, 20, 15))},
        **{(0, "1 (tp)"): (0, 0), (1, "1 (tp)"): (20, 0)},
        **{(2, "2 (tp)"): (90, 3), (3, "2 (tp)"): (0, 3)},
    }
    assert len({r["collective"] for r in found.values()}) == 3
    shared = in_common(list(found.values()))
    assert {r["process_group"] for r in shared} == {"0 (default_pg)"}


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


def launched(
    name: str, start: int, end: int, number: int, *, rank: int = 0, **columns: Any
) -> list[Row]:
    """A kernel of a collective, and its launch in a range of torch with these inputs."""
    host = {"rank": rank, "pid": 1, "tid": 1}
    at = 20 * number
    inside = [row("range", f"nccl:{name}", at, at + 9, **host, **columns)] if columns else []
    return [
        *inside,
        row("runtime", "cudaLaunchKernel", at + 2, at + 4, **host, correlation_id=number),
        kernel("ncclDevKernel_SendRecv", start, end, rank=rank, correlation_id=number),
    ]


FLOATS = {"shapes": "[[250,4]]", "dtypes": '["float"]'}


# Formulas: github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md. 4,000 B take 10 ns on each of 4 ranks.
@pytest.mark.parametrize(
    ("name", "operation", "moved", "bus"),
    [
        ("all_reduce", "all_reduce", 4000, 2 * 3 / 4),
        ("_all_gather_base", "all_gather", 4 * 4000, 3 / 4),
        ("_reduce_scatter_base", "reduce_scatter", 4000, 3 / 4),
        ("all_to_all", "all_to_all", 4000, 3 / 4),
        ("broadcast", "broadcast", 4000, 1),
        ("reduce", "reduce", 4000, 1),
        ("send 0->1", "send_recv", 4000, 1),
    ],
)
def test_the_bandwidth_is_that_of_nccl_tests(
    name: str, operation: str, moved: int, bus: float
) -> None:
    rows = [r for rank in (0, 1) for r in launched(name, 100, 110 + rank, 1, rank=rank, **FLOATS)]
    found = collectives(rows, [4])
    assert [(r["operation"], r["bytes"], r["group_size"]) for r in found] == [
        (operation, moved, 4)
    ] * 2
    assert [r["waits_ns"] for r in found] == [0, 1]
    for each in found:
        assert each["algorithm_bytes_per_s"] == pytest.approx(moved * 1e8)
        assert each["bus_bytes_per_s"] == pytest.approx(moved * 1e8 * bus)


@pytest.mark.parametrize("groups", [[], [2, 4]])
def test_in_a_job_of_unknown_groups_the_bus_bandwidth_is_unknown(groups: list[int]) -> None:
    (found,) = collectives(launched("all_reduce", 100, 110, 1, **FLOATS), groups)
    assert (found["bytes"], found["algorithm_bytes_per_s"]) == (4000, pytest.approx(4e11))
    assert (found["group_size"], found["bus_bytes_per_s"]) == (None, None)
    (found,) = collectives(launched("all_gather", 100, 110, 1, **FLOATS), groups)
    assert (found["bytes"], found["algorithm_bytes_per_s"]) == (None, None)


@pytest.mark.parametrize(
    ("shapes", "dtypes", "moved"),
    [
        ("[[2,3],[5]]", '["float","c10::Half"]', 2 * 3 * 4 + 5 * 2),
        ("[[]]", '["double"]', 8),
        ("[[]]", '["TensorList"]', None),
        ("[[2]]", '["float","float"]', None),
        ("[[-2]]", '["float"]', None),
        ("[[4611686018427387904,4]]", '["float"]', None),
        (None, None, None),
    ],
)
def test_a_message_of_unknown_size_has_no_bandwidth(
    shapes: str | None, dtypes: str | None, moved: int | None
) -> None:
    rows = launched("all_reduce", 100, 110, 1, shapes=shapes, dtypes=dtypes)
    (found,) = collectives(rows, [2])
    assert found["bytes"] == moved
    assert (found["algorithm_bytes_per_s"] is None) == (moved is None)


def test_a_range_of_two_collectives_does_not_say_what_each_moves() -> None:
    rows = launched("all_reduce", 100, 110, 1, **FLOATS)
    second = row("runtime", "cudaLaunchKernel", 25, 27, rank=0, pid=1, tid=1, correlation_id=2)
    rows += [second, kernel(REDUCE, 120, 130, correlation_id=2)]
    assert [r["bytes"] for r in collectives(rows, [2])] == [None, None]


def test_a_kernel_that_says_what_it_moves_is_believed_before_its_range() -> None:
    rows = launched("all_reduce", 100, 110, 1, **FLOATS)
    said = {"operation": "all_gather", "message_bytes": 800, "group_size": 8}
    rows[-1]["launch_config"] = json.dumps(said)
    (found,) = collectives(rows, [2, 8])
    assert {name: found[name] for name in ("operation", "bytes", "group_size")} == {
        "operation": "all_gather",
        "bytes": 800,
        "group_size": 8,
    }
    assert found["bus_bytes_per_s"] == pytest.approx(800 / 10e-9 * 7 / 8)


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 80)), max_size=8))
def test_what_is_exposed_and_what_is_hidden_is_the_whole(computing: list[tuple[int, int]]) -> None:
    rows = [kernel(REDUCE, 100, 200, stream=9)]
    rows += [kernel("sgemm", start, start + dur) for start, dur in computing]
    (found,) = collectives(rows)
    instants = {at for start, dur in computing for at in range(start, start + dur)}
    assert found["overlapped_ns"] == len(instants & set(range(100, 200)))
    assert found["exposed_ns"] == 100 - found["overlapped_ns"]


@shared_traces.needed
def test_ranks_of_a_real_job_move_equal_messages_at_one_bandwidth() -> None:
    (run,) = open_runs([shared_traces.FOLDER / "kineto" / "param-dlrm-8ranks.tar.gz"])
    by_number: dict[int, list[dict[str, Any]]] = {}
    for found in break_down(run).table("collectives").to_pylist():
        by_number.setdefault(found["collective"], []).append(found)
    assert {len(members) for members in by_number.values()} == {8}
    reduces = [m for m in by_number.values() if m[0]["operation"] == "all_reduce"]
    assert [{r["bytes"] for r in m} for m in reduces] == [{394241 * 4}, {448}, {907840}]
    for members in by_number.values():
        assert len({r["operation"] for r in members}) == 1
        for found in members:
            ns = found["dur_ns"] - found["waits_ns"]
            assert math.isclose(found["algorithm_bytes_per_s"], found["bytes"] / ns * 1e9)
