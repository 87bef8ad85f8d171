"""How long a device waited before each kernel, on a drawn timeline."""

from __future__ import annotations

from events.rows import row, table

from lstmprof.breakdown.tables import TABLES
from lstmprof.events.annotate.steps import Window

launch_gaps = TABLES["launch_gaps"].of


def test_the_gap_is_what_the_device_had_nothing_to_run_in() -> None:
    #  time     0    10   20   30   40   50   60   70
    #  stream 1  [long......)         [short)   [short)
    #  stream 2       [in)
    events = table(
        [
            row("kernel", "long", 0, 30, device=0, stream=1, category="gemm"),
            row("kernel", "in", 10, 15, device=0, stream=2, category="cast"),
            row("kernel", "short", 45, 50, device=0, stream=1, category="pointwise"),
            row("kernel", "short", 58, 63, device=0, stream=1, category="pointwise"),
            row("kernel", "elsewhere", 59, 60, device=1, stream=1, category="gemm"),
            row("kernel", "after", 90, 95, device=0, stream=1, category="gemm"),
        ]
    )
    found = launch_gaps(events, [Window(None, 0, 0, 80, None)]).to_pylist()
    assert [(r["name"], r["count"], r["dur_p50_ns"], r["gap_p50_ns"]) for r in found] == [
        ("short", 2, 5, 8),
        ("in", 1, 5, 0),
    ]
    assert [r["gap_total_ns"] for r in found] == [15 + 8, 0]


def test_without_activities_there_is_none() -> None:
    events = table([row("op", "aten::mm", 0, 30, pid=1, tid=1)])
    assert launch_gaps(events, [Window(None, 0, 0, 80, 0)]).num_rows == 0
