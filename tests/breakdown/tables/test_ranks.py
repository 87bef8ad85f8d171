"""The table of ranks by hand, under a drawn timeline."""

from __future__ import annotations

from typing import Any

import pytest
from events.rows import Row, row, table

from lstmprof.breakdown.tables import TABLES
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import windows

REDUCE = "ncclDevKernel_AllReduce_Sum_f32"


def ranks(rows: list[Row]) -> list[dict[str, Any]]:
    events = annotated(table(rows), captured=False)
    return TABLES["ranks"].of(events, windows(events, captured=False)).to_pylist()


def kernel(rank: int | None, name: str, start: int, end: int, **columns: Any) -> Row:
    return row("kernel", name, start, end, rank=rank, **{"device": 0, "stream": 7, **columns})


#         0        40         100   110  120
# rank 0  [sgemm---)[reduce----)    [reduce)          waits 40 + 0
# rank 1  [sgemm-------------)      [sgemm)           + 5000: 0…90, 100…130
#                  [reduce beside--)     [reduce)     + 5000: 80…100, 120…130
ROWS = [
    kernel(0, "sgemm", 0, 40),
    kernel(0, REDUCE, 40, 100),
    kernel(0, REDUCE, 110, 120),
    kernel(1, "sgemm", 5000, 5090),
    kernel(1, REDUCE, 5080, 5100, stream=20),
    kernel(1, "sgemm", 5105, 5115),
    kernel(1, REDUCE, 5110, 5120, stream=20),
]


def test_who_is_late_and_what_the_others_wait_for_it() -> None:
    first, second = ranks(ROWS)
    assert (first["rank"], second["rank"]) == (0, 1)
    assert (first["steps"], first["step_ns"], first["longest_step_ns"]) == (1, 120, 120)
    assert (first["busy_ns"], first["work_ns"]) == (110, 40)
    assert (second["busy_ns"], second["work_ns"]) == (115, 100)
    assert first["imbalance_share"] == pytest.approx(40 / 70 - 1)
    assert (first["collective_ns"], first["exposed_ns"], first["overlapped_share"]) == (70, 70, 0)
    assert (second["collective_ns"], second["exposed_ns"]) == (30, 15)
    assert second["overlapped_share"] == 0.5
    assert (first["waits_ns"], first["waits_for_rank"], first["waits_for_device"]) == (40, 1, 0)
    assert (second["waits_ns"], second["waits_for_rank"]) == (0, None)
    assert (second["last_in"], second["collectives"], second["late_ns"]) == (1, 2, 40)
    assert (first["last_in"], first["late_ns"]) == (1, 0)


def test_collectives_that_do_not_end_together_say_nothing() -> None:
    moved = kernel(1, REDUCE, 5310, 5320, stream=20)
    for made in ranks([*ROWS[:-1], moved]):
        assert [made[name] for name in ("waits_ns", "last_in", "late_ns")] == [None] * 3
        assert made["collective_ns"] > 0


def test_a_rank_alone_has_none_to_wait_for() -> None:
    (made,) = ranks([kernel(None, "sgemm", 0, 40)])
    assert (made["busy_ns"], made["collective_ns"]) == (40, 0)
    unknown = ("imbalance_share", "overlapped_share", "waits_ns", "waits_for_rank", "late_ns")
    assert [made[name] for name in unknown] == [None] * 5


def test_on_host_threads_nothing_waits_for_a_host() -> None:
    (made,) = ranks([row("op", "aten::mm", 0, 10, rank=0, pid=1, tid=1)])
    assert (made["device"], made["waits_for_host_ns"], made["busy_ns"]) == (None, None, 10)
