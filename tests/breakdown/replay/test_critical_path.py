"""The critical path by hand, on drawn programs, and against every path of small graphs."""

from __future__ import annotations

from pathlib import Path

import pytest
import shared_traces
from breakdown.replay.test_simulate import TWO_GEMMS, step
from events.rows import table
from hypothesis import assume, given, settings, strategies as st
from simulator import drawn_programs as drawn
from simulator.drawn_programs import Body
from simulator.gpu_programs import Machine, Within
from simulator.gpu_simulator import simulated as run

from lstmprof.breakdown.replay.critical_path import CriticalPath, critical_path_of
from lstmprof.breakdown.replay.dependencies import Dependencies, dependencies
from lstmprof.breakdown.replay.graph import StepGraph, step_graph
from lstmprof.breakdown.tables import TABLES
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import windows
from lstmprof.events.table import NONE

MAIN, WORKER, LOADER = 1, 2, 3
#: Halves are rounded to whole nanoseconds, each part of a path on its own.
ROUNDED = 1


def test_the_path_goes_from_the_host_to_the_device_and_back() -> None:
    # ns      0    2    4    6    8    10   12   14   16   18   20   22   24
    # host    [step-[op[L1)[L2-----)-)------[sync--------------------)---)
    # device              ~[gemm----------------)[gemm-------------)
    path = critical_path_of(*step(TWO_GEMMS))
    assert [(s.start_ns, s.end_ns, s.state, s.part) for s in path.intervals] == [
        (0, 2, "idle", "python"),
        (2, 3, "idle", "dispatch"),
        (3, 4, "idle", "launch call"),
        (4, 6, "idle", "launch latency"),
        (6, 14, "busy", "gemm"),
        (14, 22, "busy", "gemm"),
        (22, 23, "idle", "sync"),
        (23, 25, "idle", "python"),
    ]
    # at half their length the matmuls take 6 … 10 and, once launched at 9, 11 … 15
    assert {part: path.saved_ns(part) for part in ("gemm", "python", "dispatch", "copy")} == {
        "gemm": 7,
        "python": 2,
        "dispatch": 0,  # half of 1 ns is none
        "copy": 0,
    }


def test_the_table_sums_to_the_step_and_names_the_longest_event() -> None:
    events, window = step(TWO_GEMMS)
    rows = TABLES["critical_path"].of(events, [window]).to_pylist()
    assert [(r["part"], r["path_ns"], r["halved_saves_ns"], r["stretches"]) for r in rows] == [
        ("gemm", 16, 7, 2),
        ("python", 4, 2, 2),
        ("launch latency", 2, 1, 1),
        ("dispatch", 1, 0, 1),
        ("launch call", 1, 0, 1),
        ("sync", 1, 0, 1),
    ]
    assert (rows[0]["longest_name"], rows[0]["longest_ns"]) == ("ampere_sgemm", 8)
    assert (rows[2]["longest_name"], rows[2]["longest_ns"]) == (None, None)
    assert sum(r["path_share"] for r in rows) == pytest.approx(1)


def check(path: CriticalPath) -> None:
    """The intervals follow each other through the replayed step; halving is bounded."""
    at_ns = path.graph.window.start_ns
    on_path: dict[str, int] = {}
    for interval in path.intervals:
        assert interval.start_ns == at_ns < interval.end_ns
        at_ns = interval.end_ns
        on_path[interval.part] = on_path.get(interval.part, 0) + interval.end_ns - interval.start_ns
    assert at_ns == path.graph.window.start_ns + path.length_ns
    for part, ns in on_path.items():
        assert 0 <= path.saved_ns(part) <= ns
    assert len(path.intervals) <= 2 * (len(path.graph.segments) + len(path.graph.activities)) + 1


body = drawn.bodies(drawn.STREAMS)
parts = st.lists(st.one_of(body, drawn.handed_over(body, WORKER)), min_size=1, max_size=4)


@settings(max_examples=70, deadline=None)
@given(parts, body, drawn.throttled, st.booleans())
def test_the_path_of_every_program_is_as_long_as_its_step(
    inner: list[Body], other: Body, machine: Machine, captured: bool
) -> None:
    whole = Within("step", "step", 1, sum(inner, ()), 0)
    simulation = run([(MAIN, (whole, *inner[0], whole)), (LOADER, other)], machine)
    events = annotated(table(simulation.rows), captured=captured)
    for window in windows(events, captured=captured):
        path = critical_path_of(events, window)
        assert path.length_ns == window.end_ns - window.start_ns
        check(path)
        on_path = {interval.part for interval in path.intervals}
        for part in {"gemm", "pointwise", "python", "dispatch", "alloc"} - on_path:
            assert path.saved_ns(part) == 0


def all_lengths(graph: StepGraph, causes: Dependencies) -> list[int]:
    """The length of every way through the graph from the start of the step to its end."""
    spent, waits, rows = graph.spent_ns, causes.waits_for, causes.activities
    begins, ends = (graph.segments.column(n).to_numpy() for n in ("start_ns", "end_ns"))
    lasts = (graph.activities.column("end_ns").to_numpy()) - (
        graph.activities.column("start_ns").to_numpy()
    )

    def segment(number: int) -> list[int]:
        begun = [0] if causes.previous[number] == NONE else segment(int(causes.previous[number]))
        if waits.segment[number] != NONE:
            return begun + instant(int(waits.segment[number]), int(waits.offset_ns[number]))
        if number not in causes.syncs:
            return [ns + int(spent[number]) for ns in begun]
        sync = causes.syncs[number]
        back = [ns + sync.return_ns for place in sync.awaited for ns in activity(place)]
        return [ns + sync.cost_ns for ns in begun] + back

    def instant(number: int, offset_ns: int) -> list[int]:
        if offset_ns >= ends[number] - begins[number]:
            return segment(number)
        previous = int(causes.previous[number])
        return [ns + offset_ns for ns in ([0] if previous == NONE else segment(previous))]

    def activity(place: int) -> list[int]:
        met = []
        if rows.launched.segment[place] != NONE:
            launched = int(rows.launched.segment[place]), int(rows.launched.offset_ns[place])
            met += [ns + int(rows.latency_ns[place]) for ns in instant(*launched)]
        if rows.same_stream[place] != NONE:
            met += [ns + int(rows.gap_ns[place]) for ns in activity(int(rows.same_stream[place]))]
        held = place
        while held != NONE:
            if rows.other_stream[held] != NONE:
                delay = int(rows.delay_ns[held])
                met += [ns + delay for ns in activity(int(rows.other_stream[held]))]
            held = int(rows.same_stream[held])
        return [ns + int(lasts[place]) for ns in met]

    thread = graph.segments.column("thread").to_pylist()
    last = max(n for n in range(len(thread)) if thread[n] == graph.window.thread)
    return segment(last) + [ns for place in range(len(lasts)) for ns in activity(place)]


@settings(max_examples=150, deadline=None)
@given(
    drawn.joined(
        st.one_of(
            drawn.launches(drawn.STREAMS),
            drawn.events(drawn.STREAMS),
            drawn.syncs(drawn.STREAMS),
            drawn.blocking_copies(drawn.STREAMS),
        ),
        3,
    ),
    drawn.machines,
)
def test_no_way_through_a_small_graph_is_longer(inner: Body, machine: Machine) -> None:
    simulation = run([(MAIN, (Within("step", "step", 1, inner, 1),))], machine)
    events = annotated(table(simulation.rows), captured=True)
    (window,) = windows(events, captured=True)
    graph = step_graph(events, window)
    assume(len(graph.segments) + len(graph.activities) <= 16)
    path = CriticalPath(graph)
    assert path.length_ns == max(all_lengths(graph, dependencies(graph)))
    check(path)


@shared_traces.needed
@pytest.mark.parametrize("file", shared_traces.profiles(), ids=shared_traces.name)
def test_the_path_of_a_real_step_is_as_long_as_its_replay(file: Path) -> None:
    events = shared_traces.annotated_events(file)
    for window in windows(events, captured=False)[:1]:
        check(critical_path_of(events, window))
