"""The counters of a step as lanes of its timeline: what held in it, and its extremes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from kineto_documents import document
from report import opening

from lstmprof.breakdown import break_down
from lstmprof.events.annotate.steps import Window
from lstmprof.events.counters import ALLOCATED, BYTES, CHANGE, RESERVED, Count, Counters, table_of
from lstmprof.report import TABLES, counters, page, report_of
from lstmprof.report.counters import MOST_LANES, lanes
from lstmprof.report.model import Lane
from lstmprof.runs.cache import open_runs

STEP = Window(None, 1, 100, 200, -1)


def drawn(*counts: Count, window: Window = STEP, batch: int = 10**6) -> tuple[Lane, ...]:
    ordered = sorted(counts, key=lambda count: count.time_ns)
    whole = Counters.of([table_of(ordered)]).table()
    (of_step,) = lanes(
        lambda: [whole.slice(first, batch) for first in range(0, len(whole), batch)], [window]
    )
    return of_step


def allocated(at_ns: int, value: float, device: int | None = 0, pid: int = 7) -> Count:
    return Count(at_ns, pid, device, ALLOCATED, BYTES, value)


def test_a_lane_begins_with_what_was_before_the_step_and_ends_with_it() -> None:
    (lane,) = drawn(*(allocated(ns, ns * 1e4) for ns in (10, 90, 150, 199, 200, 250)))
    assert lane == Lane(
        "device 0: memory allocated, at most 1.99 MB",
        "bytes",
        (0, 50, 99),
        (900_000, 1_500_000, 1_990_000),
    )


def test_what_is_not_known_before_its_first_value_is_not_drawn() -> None:
    assert drawn(allocated(150, 3))[0].at_ns == (50,)
    assert drawn(allocated(200, 3)) == ()
    assert drawn(allocated(100, 3), allocated(20, 9))[0].values == (3,)
    assert drawn(allocated(150, 3), window=dataclasses.replace(STEP, rank=1)) == ()


def test_memory_of_devices_comes_first_and_processes_are_told_apart() -> None:
    others = [Count(120, 7, None, f"power {n:02}", "W", 0.5) for n in range(MOST_LANES)]
    memory = [
        *(allocated(120, 5, None), allocated(120, 6, 1), allocated(120, 7)),
        Count(120, 7, 0, RESERVED, BYTES, 8),
    ]
    assert [lane.label for lane in drawn(*others, *memory)] == [
        "device 0: memory allocated, at most 7 B",
        "device 0: memory reserved, at most 8 B",
        "device 1: memory allocated, at most 6 B",
        "host: memory allocated, at most 5 B",
        *(f"host: power {n:02}, at most 0.5 W" for n in range(MOST_LANES - 4)),
    ]
    assert [lane.label for lane in drawn(allocated(120, 1), allocated(130, 1, pid=8))] == [
        "device 0, process 7: memory allocated, at most 1 B",
        "device 0, process 8: memory allocated, at most 1 B",
    ]


def test_allocators_of_one_place_have_a_lane_each() -> None:
    counts = [
        Count(120, 7, device, ALLOCATED, BYTES, 1, allocator)
        for device, allocator in ((None, "mklcpu"), (0, "GPU_0_bfc"), (None, "gpu_\x1b[1mhost"))
    ]
    assert [lane.label for lane in drawn(*counts)] == [
        "device 0, GPU_0_bfc: memory allocated, at most 1 B",
        "host, gpu_ [1mhost: memory allocated, at most 1 B",
        "host, mklcpu: memory allocated, at most 1 B",
    ]


def test_allocations_alone_are_summed_from_the_beginning_on() -> None:
    (lane,) = drawn(*(Count(ns, 7, 0, CHANGE, BYTES, ns) for ns in (50, 120, 130)))
    assert (lane.values, lane.at_ns) == ((50, 170, 300), (0, 20, 30))
    assert lane.label.startswith("device 0: memory allocated since the profile began")


_VALUES = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 9)), min_size=1, max_size=80)


@given(_VALUES, st.integers(1, 30))
def test_of_many_values_the_extremes_of_each_part_stay(
    values: list[tuple[int, int]], batch: int
) -> None:
    values.sort(key=lambda value: value[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counters, "MOST_VALUES", 20)
        patch.setattr(counters, "PARTS", 5)
        (lane,) = drawn(*(allocated(100 + ns, v) for ns, v in values), batch=batch)
    kept = list(zip(lane.at_ns, lane.values, strict=True))
    assert len(kept) + lane.left_out == len(values)
    assert len(kept) <= 20
    assert set(kept) <= set(values)
    for first in range(0, 100, 20):
        of_part, of_kept = (
            [v for ns, v in some if first <= ns < first + 20] for some in (values, kept)
        )
        assert (min(of_part, default=0), max(of_part, default=0), of_part[:1], of_part[-1:]) == (
            *(min(of_kept, default=0), max(of_kept, default=0), of_kept[:1], of_kept[-1:]),
        )


def trace(**more: Any) -> bytes:
    step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 4, "tid": 4}
    args = {"Total Allocated": 25_000_000, "Bytes": 64, "Device Id": 0, "Device Type": 1, **more}
    instant = {"ph": "i", "s": "t", "name": "[memory]", "pid": 4, "tid": 4, "ts": 150}
    power = {"ph": "C", "name": "</script>", "pid": 4, "ts": 90, "args": {"value": -2.5}}
    return document({**step, "ts": 100, "dur": 100}, {**instant, "args": args}, power)


@opening.needed
def test_the_value_under_the_mouse_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, browser: Any
) -> None:
    monkeypatch.setenv("LSTMPROF_CACHE", str(tmp_path / "cache"))
    (tmp_path / "trace.pt.trace.json").write_bytes(trace())
    (run,) = open_runs([tmp_path / "trace.pt.trace.json"])
    page.write(report_of([break_down(run, None, TABLES)]), tmp_path / "page.html")
    opened = opening.Opened(browser, tmp_path / "page.html", 1100, "light")
    canvas = opened.tab.locator("#timeline-canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    # axis, ledger, the two lanes: a label above each
    first = 22 + (4 + 15 + 26) + (4 + 15) + 18
    told = []
    for x, y in ((0.9, first), (0.1, first), (0.5, first + 36 + 19)):
        opened.tab.mouse.move(box["x"] + x * box["width"], box["y"] + y)
        told.append(opened.texts("#tip")[0])
    assert told == [
        "device 0: memory allocated\n25 MB, from 50 µs on",
        "device 0: memory allocated\nnot known yet",
        "host: </script>\n-2.5, from 0 µs on",
    ]
    assert opened.complaints == []
