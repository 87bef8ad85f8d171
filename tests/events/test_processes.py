"""Processes that ran one after the other, in one table: nothing of two of them is joined.

The same profile, as a profiler writes it in each of several processes: its ids, thread numbers and
step numbers are the same in all.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, strategies as st

from lstmprof.breakdown.attribution.ledger import ledger
from lstmprof.breakdown.replay.graph import step_graph
from lstmprof.breakdown.replay.what_if import replayed
from lstmprof.events import EventTable, Profile
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.recorded import recorded
from lstmprof.events.annotate.steps import windows, with_markers, with_steps
from lstmprof.events.counters import Count, Counters, table_of
from lstmprof.events.processes import MOST_PID, Process, joined
from lstmprof.events.table import events_table
from lstmprof.report.timeline import timeline

Row = dict[str, Any]
LINKS = ("parent_id", "launch_id", "op_id", "forward_id")


def on_host(kind: str, name: str, start_ns: int, end_ns: int, **more: Any) -> Row:
    times = {"start_ns": start_ns, "dur_ns": end_ns - start_ns}
    return {"kind": kind, "name": name, **times, "pid": 7, "tid": 7, **more}


def on_device(name: str, start_ns: int, end_ns: int, correlation: int) -> Row:
    times = {"start_ns": start_ns, "dur_ns": end_ns - start_ns}
    place = {"device": 0, "stream": 3, "correlation_id": correlation}
    return {"kind": "kernel", "name": name, **times, **place}


def profile(rows: list[Row], base_ns: int | None = 1_000, **more: Any) -> Profile:
    """What a reader and ``annotated`` make of these rows, which begin at 0."""
    names = dict.fromkeys(name for row in rows for name in row)
    events = events_table({name: [row.get(name) for row in rows] for name in names})
    return Profile("kineto", base_ns, annotated(events, captured=True), **more)


#         0    5   10   15   20   25   30   35   40   45   50   55   60
# tid 7   |step ------------------|         |step ------------------|
#           |mm|  |launch|                    |add|  |launch|
# gpu                     |gemm|                             |add|
# tid 9     |backward op-|
def of_gpu(late: int = 0) -> list[Row]:
    return [
        on_host("step", "step", 0, 25),
        on_host("op", "aten::mm", 2, 14, external_id=4),
        on_host("runtime", "cudaLaunchKernel", 8, 14, correlation_id=11),
        on_device("sgemm", 16, 20 + late, 11),
        on_host("op", "autograd::engine::x", 4, 16, tid=9),
        on_host("step", "step", 35, 60),
        on_host("op", "aten::add", 37, 49, external_id=5),
        on_host("runtime", "cudaLaunchKernel", 44, 49, correlation_id=12),
        on_device("elementwise", 52, 56, 12),
    ]


def of_cpu(base_ns: int, pid: int | None) -> Profile:
    rows = [
        on_host("step", "step", 0, 40, pid=pid),
        on_host("op", "aten::mm", 5, 20, pid=pid),
        on_host("op", "aten::add", 22, 30, pid=pid, tid=8),
        on_host("step", "step", 50, 90, pid=pid),
        on_host("op", "aten::mm", 50, 80, pid=pid, tid=8),
    ]
    return profile(rows, base_ns)


def in_steps(events: EventTable) -> EventTable:
    return with_steps(events, windows(events, captured=True))


def one_run(*profiles: Profile, pids: tuple[int | None, ...] = (7, 8, 9)) -> Profile:
    whole = joined([Process(p, pid) for p, pid in zip(profiles, pids, strict=False)])
    return dataclasses.replace(whole, events=in_steps(whole.events))


def by_step(events: EventTable) -> dict[int | None, list[tuple[Any, ...]]]:
    """The ledger's rows by step."""
    spent: dict[int | None, list[tuple[Any, ...]]] = {}
    for row in ledger(events, windows(events, captured=True)).to_pylist():
        spent.setdefault(row["step"], []).append((row["device"], row["part"], row["ns"]))
    return spent


def test_no_id_of_one_process_is_one_of_another() -> None:
    whole = one_run(profile(of_gpu(), 1_000), profile(of_gpu(), 9_000)).events
    rows = whole.to_pylist()
    assert [row["event_id"] for row in rows] == list(range(18))
    assert [row["start_ns"] for row in rows[9:]] == [row["start_ns"] + 8_000 for row in rows[:9]]
    by_id = {row["event_id"]: row for row in rows}
    for name in LINKS:
        for first, second in zip(rows[:9], rows[9:], strict=True):
            linked = None if first[name] is None else by_id[first[name]]["name"]
            assert linked == (None if second[name] is None else by_id[second[name]]["name"])
            assert second[name] is None or second[name] >= 9
    for name in ("correlation_id", "external_id"):
        ids = [{row[name] for row in part} - {None} for part in (rows[:9], rows[9:])]
        assert ids[0]
        assert not ids[0] & ids[1]
    gemms = [row for row in rows if row["name"] == "sgemm"]
    launches = [by_id[row["launch_id"]] for row in gemms]
    assert [c["correlation_id"] for c in launches] == [c["correlation_id"] for c in gemms]


def test_steps_are_numbered_on_and_each_is_of_its_own_process() -> None:
    whole = one_run(profile(of_gpu(), 1_000), profile(of_gpu(), 9_000), profile(of_gpu(), 20_000))
    assert [w.step for w in windows(whole.events, captured=True)] == [0, 1, 2, 3, 4, 5]
    steps = [row["step"] for row in whole.events.to_pylist() if row["kind"] == "kernel"]
    assert steps == [0, 1, 2, 3, 4, 5]
    threads = {w.thread for w in windows(whole.events, captured=True)}
    assert len(threads) == 3  # tid 7 of each process is a thread of its own


@pytest.mark.parametrize("pids", [(7, 8), (7, 7), (None, None)])
def test_processes_of_one_number_or_none_are_told_apart(pids: tuple[int | None, ...]) -> None:
    rounds = [of_cpu(1_000, pids[0]), of_cpu(500_000, pids[1])]
    whole = one_run(*rounds, pids=(31, 31)).events
    told = [row["pid"] for row in whole.to_pylist()]
    assert len(set(told[:5])) == len(set(told[5:])) == 1
    assert told[0] != told[5]
    if pids[0] == pids[1]:  # beyond what a system gives
        assert told[5] - told[0] == MOST_PID
    assert len(windows(whole, captured=True)) == 4


def test_a_window_is_drawn_and_replayed_as_if_its_process_were_alone() -> None:
    rounds = [of_cpu(1_000, 7), of_cpu(500_000, 8)]
    whole = one_run(*rounds).events
    for number, process in enumerate(rounds):
        for place in (0, 1):
            alone = windows(process.events, captured=True)[place]
            window = windows(whole, captured=True)[2 * number + place]
            drawn = timeline("run", whole, window, 1_000)
            expected = timeline("run", process.events, alone, 1_000)
            assert drawn.tracks == expected.tracks
            assert {**drawn.columns, "name": None} == {**expected.columns, "name": None}
            length_ns = replayed(step_graph(whole, window)).length_ns
            assert length_ns == replayed(step_graph(process.events, alone)).length_ns


def test_the_ledger_of_all_is_that_of_each_alone() -> None:
    rounds = [profile(of_gpu(), 1_000), profile(of_gpu(late=3), 9_000)]
    whole = by_step(one_run(*rounds).events)
    alone = [by_step(p.events) for p in rounds]
    assert whole == {0: alone[0][0], 1: alone[0][1], 2: alone[1][0], 3: alone[1][1]}


#: of each step: how long it waits, the op, the launch's latency, the kernel, and if there is one
SHAPES = st.lists(
    st.tuples(*(st.integers(1, 40) for _ in range(4)), st.booleans()), min_size=1, max_size=3
)


def drawn_rows(shape: list[tuple[int, int, int, int, bool]]) -> list[Row]:
    rows, at = [], 0
    for number, (before, op, wait, runs, on_gpu) in enumerate(shape, 1):
        opens, begins, ends = at, at + before, at + before + op
        rows.append(on_host("op", "aten::mm", begins, ends, tid=7 + number % 2))
        closes = ends + wait
        if on_gpu:
            call = {"correlation_id": number}
            rows.append(on_host("runtime", "cudaLaunchKernel", begins, ends, **call))
            rows.append(on_device("sgemm", ends + wait, ends + wait + runs, number))
            closes += runs
        rows.append(on_host("step", "step", opens, closes + 1))
        at = closes + 5
    first = min(row["start_ns"] for row in rows)
    return [{**row, "start_ns": row["start_ns"] - first} for row in rows]


@given(st.lists(SHAPES, min_size=2, max_size=3), st.booleans(), st.booleans())
def test_whatever_the_processes_the_ledger_of_all_is_that_of_each(
    shapes: list[Any], dated: bool, on_gpu: bool
) -> None:
    # a GPU in all or in none: in a rank with activities the lanes are its devices
    shapes = [[(*step[:4], on_gpu) for step in shape] for shape in shapes]
    bases = [1_000 + 10_000 * n if dated else None for n in range(len(shapes))]
    rounds = [profile(drawn_rows(s), base) for s, base in zip(shapes, bases, strict=True)]
    whole = one_run(*rounds)
    assert (whole.base_ns is None) == (not dated)
    parts = [part for p in rounds for part in by_step(p.events).values()]
    assert list(by_step(whole.events).values()) == parts


def test_without_dates_the_processes_stand_one_after_the_other_and_it_is_said() -> None:
    for bases in ((None, None), (1_000, None), (9_000, 1_000)):  # the clock was set back
        whole = one_run(*(profile(of_gpu(), base) for base in bases))
        assert whole.base_ns is None
        assert "no common clock" in whole.notes[-1]
        starts = [w.start_ns for w in windows(whole.events, captured=True)]
        assert starts == sorted(starts)
        assert len(starts) == 4
    assert one_run(profile(of_gpu(), None)).notes == ()


def test_what_a_profile_holds_is_counted_in_each_process() -> None:
    (alone,) = recorded(profile(of_gpu()).events)
    (both,) = recorded(one_run(profile(of_gpu(), 1_000), profile(of_gpu(), 10**12)).events)
    assert both.length_ns == 2 * alone.length_ns == 120  # the time between is nobody's
    assert (both.steps, both.first_step, both.last_step) == (4, 0, 3)
    assert both.activities == 2 * alone.activities


def test_other_markers_are_looked_for_in_each_process_too() -> None:
    whole = one_run(profile(of_gpu(), 1_000), profile(of_gpu(late=3), 9_000)).events
    ranges = with_markers(whole, "step")
    opened = [(w.start_ns, w.end_ns) for w in windows(ranges, captured=False)]
    assert opened == [(0, 35), (35, 60), (8_000, 8_035), (8_035, 8_060)]


def test_names_of_threads_and_devices_are_those_of_all() -> None:
    named = [
        profile(of_gpu(), base, metadata={"threads": threads}, device_names={0: "H200"})
        for base, threads in ((1_000, {"7": "python", "9": "a"}), (9_000, {"8": "xla", "9": "b"}))
    ]
    whole = one_run(*named)
    assert whole.metadata["threads"] == {"7": "python", "8": "xla"}
    assert whole.device_names == {0: "H200"}


def test_ids_too_large_to_be_shifted_are_counted_anew() -> None:
    rows = [{**row, "correlation_id": 2**62} if row.get("correlation_id") == 11 else row
            for row in of_gpu()]  # fmt: skip
    whole = one_run(profile(rows, 1_000), profile(rows, 9_000)).events
    ids = [row["correlation_id"] for row in whole.to_pylist() if row["kind"] == "kernel"]
    assert sorted(ids) == [1, 2, 3, 4]


def test_counters_of_processes_follow_each_other_as_their_events_do() -> None:
    def counting(base_ns: int) -> Profile:
        counts = [Count(at_ns, 7, None, "memory allocated", "bytes", at_ns) for at_ns in (3, 20)]
        return profile(of_gpu(), base_ns, counters=Counters.of([table_of(counts)]))

    whole = joined([Process(counting(1_000), 7), Process(counting(2_000), 8)])
    assert whole.counters.table().column("time_ns").to_pylist() == [3, 20, 1_003, 1_020]
