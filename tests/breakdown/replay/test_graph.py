"""A step's graph: whom a thread, a stream or a call waited for, under drawn timelines."""

from __future__ import annotations

from typing import Any

from events.rows import Row, nameless, row, table

from lstmprof.breakdown.replay.calls import StepRows
from lstmprof.breakdown.replay.graph import StepGraph, step_graph
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import windows

MAIN = {"pid": 1, "tid": 1}
WORKER = {"pid": 1, "tid": 2}


def launch(start: int, end: int, number: int, **host: Any) -> Row:
    return row("runtime", "cudaLaunchKernel", start, end, **(host or MAIN), correlation_id=number)


def kernel(start: int, end: int, number: int, stream: int = 7, **columns: Any) -> Row:
    name = columns.pop("name", "ampere_sgemm_128x64_nn")
    place = {"device": 0, "stream": stream, "correlation_id": number}
    return row("kernel", name, start, end, **place, **columns)


def call(name: str, start: int, end: int, number: int, **columns: Any) -> Row:
    return row("runtime", name, start, end, **MAIN, correlation_id=number, **columns)


def of(rows: list[Row], *, captured: bool = True) -> StepGraph:
    events = annotated(table(rows), captured=captured)
    (window,) = windows(events, captured=captured)
    return step_graph(events, window)


def segments(step: StepGraph, tid: int) -> list[tuple[int, int, str, int | None]]:
    """(start, end, state, waits for) of one thread."""
    rows = [r for r in step.segments.to_pylist() if r["thread"] == tid]
    return [(r["start_ns"], r["end_ns"], r["state"], r["waits_for"]) for r in rows]


def going(step: StepGraph, category: str) -> list[int]:
    """Starts of the segments that go with the work of this category."""
    calls = step.calls
    gone = calls.without(calls.work_of_category(category)) & calls.is_call
    ids = set(calls.event_id[gone].tolist())
    return [r["start_ns"] for r in step.segments.to_pylist() if r["call_id"] in ids]


def test_a_range_waits_for_the_thread_whose_work_it_holds() -> None:
    # ns      0    2    4    6    8    10   12   14
    # main    [step---[backward-----------------)--)
    # worker            [node---[L)--)[node)
    rows = [
        row("step", "step", 0, 15, **MAIN),
        row("range", "backward", 3, 13, **MAIN),
        row("op", "autograd::engine::evaluate_function: A", 4, 9, **WORKER),
        launch(7, 8, 1, **WORKER),
        row("op", "autograd::engine::evaluate_function: B", 9, 11, **WORKER),
        kernel(9, 12, 1),
    ]
    step = of(rows)
    assert segments(step, 0) == [
        (0, 3, "python", None),
        (3, 4, "python", None),
        (4, 11, "python", 1),
        (11, 13, "python", None),
        (13, 15, "python", None),
    ]
    # the worker did nothing until the range that waits for it had begun
    assert segments(step, 1)[:2] == [(0, 4, "host", 0), (4, 7, "dispatch", None)]


def test_threads_whose_work_overlaps_wait_for_none() -> None:
    # main    [step--------------[op-------)--)
    # loader       [frame--------------)
    rows = [
        row("step", "step", 0, 12, **MAIN),
        row("op", "aten::view", 6, 10, **MAIN),
        row("python", "load", 2, 8, **WORKER),
        launch(11, 12, 1),
        kernel(12, 13, 1),
    ]
    waiting = [s for tid in (0, 1) for s in segments(of(rows), tid) if s[3] is not None]
    assert waiting == [(8, 12, "host", 0)]


def test_a_launch_serves_what_its_op_issues_and_is_told_from_a_blocking_copy() -> None:
    # host    [step[aten::to[copy_[L1))--)[cudaMemcpy---)--)
    # device                           [cast)   [DtoH)
    rows = [
        row("step", "step", 0, 20, **MAIN),
        row("op", "aten::to", 1, 8, **MAIN),
        row("op", "aten::copy_", 2, 6, **MAIN),
        launch(3, 5, 1),
        kernel(9, 10, 1, name="vectorized_elementwise_kernel"),
        call("cudaMemcpy", 10, 17, 2),
        row("memcpy", "Memcpy DtoH", 12, 15, device=0, stream=7, correlation_id=2),
    ]
    step = of(rows)
    found = {r["start_ns"]: r for r in step.segments.to_pylist()}
    assert going(step, "cast") == [0, 1, 2, 3, 5, 6]
    assert going(step, "transfer") == [10]
    assert [at for at, r in found.items() if r["launches"]] == [3]
    cast, copy = step.activities.to_pylist()
    assert (cast["enqueued_ns"], cast["blocks"]) == (5, False)
    assert (copy["enqueued_ns"], copy["blocks"]) == (10, True)
    (sync,) = step.syncs.to_pylist()
    assert (sync["scope"], sync["awaited_ids"]) == ("copy", [copy["event_id"]])


def test_a_stream_waits_for_what_was_recorded_last() -> None:
    # host    [L1)[record)[wait)[L2)
    # stream7     [a---------)
    # stream20                  [b---)      told to wait for a
    rows = [
        row("step", "step", 0, 30, **MAIN),
        launch(1, 2, 1),
        call("cudaEventRecord", 3, 4, 2),
        call("cudaStreamWaitEvent", 5, 6, 3),
        launch(7, 8, 4),
        kernel(3, 15, 1),
        kernel(15, 20, 4, stream=20),
    ]
    a, b = of(rows).activities.to_pylist()
    assert a["after_id"] is None
    assert b["after_id"] == a["event_id"]
    assert b["wait_call_id"] is not None


def test_a_sync_awaits_what_was_enqueued_before_it_and_had_ended() -> None:
    # host    [L1)[L2)[stream sync 7)[L3)[device sync-----)
    # stream7     [a-------)             [c--)
    # stream20          [b-----------------------)
    rows = [
        row("step", "step", 0, 40, **MAIN),
        launch(1, 2, 1),
        launch(3, 4, 2),
        call("cudaStreamSynchronize", 5, 12, 3),
        row("device_sync", "Stream Sync", 5, 12, device=0, stream=7, correlation_id=3),
        launch(13, 14, 4),
        call("cudaDeviceSynchronize", 15, 30, 5),
        kernel(4, 11, 1),
        kernel(6, 29, 2, stream=20),
        kernel(16, 19, 4),
    ]
    step = of(rows)
    a, b, c = (r["event_id"] for r in step.activities.to_pylist())
    awaited = [(r["scope"], sorted(r["awaited_ids"])) for r in step.syncs.to_pylist()]
    assert awaited == [("stream", [a]), ("device", sorted([b, c]))]


def test_a_program_without_devices_has_its_computing_ops() -> None:
    rows = [
        row("step", "step", 0, 10, **MAIN),
        row("op", "aten::linear", 1, 9, **MAIN),
        row("op", "aten::addmm", 2, 8, **MAIN),
    ]
    step = of(rows)
    found = [(r["start_ns"], r["category"]) for r in step.segments.to_pylist()]
    assert found == [(0, None), (1, None), (2, "gemm"), (8, None), (9, None)]
    assert going(step, "gemm") == [0, 1, 2, 8]  # from 0 on the way into aten::linear
    assert len(step.activities) == len(step.syncs) == 0


def test_a_short_stretch_of_python_is_the_way_into_the_op_after_it() -> None:
    # µs      0     1       3    4    5     7        25
    # host    [step-[to[copy_)---)----[item-)--------[item)--)
    rows = [
        row("step", "step", 0, 30_000, **MAIN),
        row("op", "aten::to", 1_000, 4_000, **MAIN),
        row("op", "aten::copy_", 1_000, 3_000, **MAIN),
        row("op", "aten::item", 5_000, 7_000, **MAIN),
        row("op", "aten::item", 25_000, 26_000, **MAIN),
    ]
    found = of(rows).segments.to_pylist()
    assert [(r["start_ns"], r["name"], r["call_overhead"]) for r in found] == [
        (0, "aten::to", True),
        (1_000, "aten::copy_", False),
        (3_000, "aten::to", False),
        (4_000, "aten::item", True),
        (5_000, "aten::item", False),
        (7_000, "step", False),  # too long
        (25_000, "aten::item", False),
        (26_000, "step", False),
    ]


def test_a_call_without_a_name_is_none_of_those_asked_for() -> None:
    rows = [call("cudaEventRecord", 0, 1, 1), call("cudaEventRecord", 2, 3, 2)]
    events = nameless(annotated(table(rows), captured=False), 0)
    (window,) = windows(events, captured=False)
    assert StepRows(events, window).calls("EventRecord").tolist() == [1]


def test_a_step_without_a_host_event_of_any_length_has_no_segments() -> None:
    rows = [
        row("step", "step", 5, 5, **MAIN),
        row("runtime", "cudaLaunchKernel", 5, 5, **MAIN, correlation_id=1),
        kernel(6, 9, 1),
    ]
    assert len(of(rows, captured=False).segments) == 0
