"""The account of the undisturbed step: what recording took comes off where it lay, to the ns.

A step is a tree: an event holds its own time and other events. ``laid`` writes it as a profiler
that takes nothing would, or one that takes ``Cost`` for each event::

    parent   |--own--[before)                        [after)--own--|
    event                    |[inside/2) own [inside/2)|
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from events.rows import Row, row, table
from hypothesis import HealthCheck, given, settings, strategies as st

from lstmprof.breakdown import Breakdown, account_rows, break_down, rows_of
from lstmprof.breakdown.attribution import attributed
from lstmprof.breakdown.disturbed import Kept
from lstmprof.breakdown.recording import MOST_RECORDING_NS, MOST_TIMES, Cost, recorded
from lstmprof.breakdown.undisturbed import FURTHER, PAGE_FAULTS, PROFILER, _lost_ns
from lstmprof.diagnose.diagnosis import alone
from lstmprof.diagnose.step_profile import step_profile_of
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import Window, windows
from lstmprof.events.table import EventTable
from lstmprof.runs.metadata import run_info
from lstmprof.runs.run import TIMINGS_SCHEMA, open_run, write_tables

HOST = {"pid": 1, "tid": 1}
NOTHING = Cost(0, 0, 0)
#: As torch.profiler's: most of it before the begin is noted; a range of the capture's costs more.
OP, RANGE = Cost(520, 180, 140), Cost(5_000, 10_000, 5_000)
OWN = ("step", "input", "forward", "loss", "backward", "optimizer")


@dataclass(frozen=True)
class Event:
    """An event of a step: its own time, and events, in order."""

    name: str
    holds: tuple[int | Event, ...]
    kind: str = "op"


def laid(event: Event, at: int, op: Cost, of_range: Cost) -> tuple[list[Row], int]:
    """The rows of ``event``, which is called at ``at``, and when the caller goes on."""
    cost = of_range if event.name in OWN else op
    begin = at = at + int(cost.before_ns)
    at += int(cost.inside_ns) // 2
    rows: list[Row] = []
    for part in event.holds:
        if isinstance(part, int):
            at += part
        else:
            inner, at = laid(part, at, op, of_range)
            rows += inner
    end = at + int(cost.inside_ns) - int(cost.inside_ns) // 2
    return [row(event.kind, event.name, begin, end, **HOST), *rows], end + int(cost.after_ns)


def made(
    folder: Path,
    steps: list[Event],
    *,
    op: Cost = OP,
    of_range: Cost = RANGE,
    told: dict[str, Any] | None = None,
    **facts: Any,
) -> tuple[Breakdown, Counter[tuple[str, str]]]:
    """The breakdown of a run whose profiler costs so much, and the parts of all true steps.

    ``told`` is what run.json says of recording, by default the truth.
    """
    true = written(folder / "true", steps, NOTHING, NOTHING, {"framework": "torch"})
    truth = Counter[tuple[str, str]]()
    for r in true.ledger.to_pylist():
        truth[r["state"], r["part"]] += r["ns"]
    recording = {
        **{"event_ns": op.ns, "event_before_ns": op.before_ns, "event_inside_ns": op.inside_ns},
        **{"range_ns": of_range.ns, "range_inside_ns": of_range.inside_ns},
    }
    lengths = [w.end_ns - w.start_ns for w in true.windows]
    given = {
        **{"recording": [told or recording], "device": "cpu", "threads": 1},
        **{"framework": "torch", "timings": lengths, **facts},
    }
    return written(folder / "profiled", steps, op, of_range, given), truth


def written(
    folder: Path, steps: list[Event], op: Cost, of_range: Cost, facts: dict[str, Any]
) -> Breakdown:
    """A captured run of ``steps``, one after the other."""
    rows: list[Row] = []
    at, lengths = 1_000, list[int]()
    for step in steps:
        inner, at = laid(step, at, op, of_range)
        lengths.append(inner[0]["dur_ns"])
        rows += inner
        at += 100_000
    counted = {"profiled_wall_ns": lengths, "profiled_cpu_ns": lengths}
    timed, waits = facts.pop("timings", None), facts.pop("waits", 0.0)
    preemptions = facts.pop("preemptions", None)
    given = {"name": "r", "source": "capture", **(counted if timed else {}), **facts}
    folder.mkdir(parents=True)
    events = annotated(table(rows), captured=True)
    write_tables(
        folder, run_info(given), events, timings(timed, waits, preemptions) if timed else None
    )
    return break_down(open_run(folder))


def timings(walls_ns: list[int], waits: float = 0.0, preemptions: int | None = None) -> pa.Table:
    """The rows of an undisturbed pass of these lengths, for a share of which it had no CPU."""
    number = len(walls_ns)
    given: dict[str, list[Any]] = {
        **{"iteration": list(range(number)), "round": [0] * number, "warmup": [False] * number},
        **{"after_profile": [False] * number, "wall_ns": walls_ns},
        **{"minor_faults": [0] * number, "loss": [1.0] * number},
        **{"preemptions": [preemptions] * number},
        "cpu_ns": [round(wall * (1 - waits)) for wall in walls_ns],
    }
    arrays = {n: given.get(n, [None] * number) for n in TIMINGS_SCHEMA.names}
    return pa.table(arrays, schema=TIMINGS_SCHEMA)


def profiled_lengths(folder: Path, steps: list[Event]) -> list[int]:
    """Of ``steps``, in ns, as they are profiled."""
    return [w.end_ns - w.start_ns for w in written(folder / "w", steps, OP, RANGE, {}).windows]


def account(breakdown: Breakdown, *, profiled: bool = False) -> dict[tuple[str, str], int]:
    """(state, part) → ns of its only lane."""
    rows = account_rows([breakdown], profiled=profiled)
    assert {r["steps"] for r in rows} == {"profiled" if profiled else "undisturbed"}
    return {(r["state"], r["part"]): r["ns"] for r in rows}


def product(ns: int = 9_000) -> Event:
    return Event("aten::linear", (700, Event("aten::t", (300,)), 40, Event("aten::mm", (ns,)), 60))


STEP = Event(
    "step",
    (
        2_000,
        Event("forward", (1_500, product(), product(4_000), 900), "range"),
        Event("backward", (3_000, Event("MmBackward0", (400, product(), 50)), 800), "range"),
        10,
    ),
    "step",
)
STEP_NS = 33_960


@pytest.mark.parametrize("cost", [OP, Cost(900, 0, 0), Cost(0, 800, 0), Cost(0, 0, 700)])
def test_a_known_cost_comes_off_where_it_lay(tmp_path: Path, cost: Cost) -> None:
    found, truth = made(tmp_path, [STEP], op=cost)
    assert account(found) == dict(truth)
    profiled = account(found, profiled=True)
    assert sum(profiled.values()) > sum(truth.values())
    assert profiled["busy", "gemm"] == truth["busy", "gemm"] + 3 * int(cost.inside_ns)
    (step,) = found.steps()
    assert step.recording is not None
    assert step.recording.measured
    assert step.recording.ns == sum(profiled.values()) - sum(truth.values())


def test_the_ledger_stays_that_of_the_profiled_steps(tmp_path: Path) -> None:
    found, _ = made(tmp_path, [STEP, STEP])
    for window in found.windows:
        of_step = [r["ns"] for r in found.ledger.to_pylist() if r["step"] == window.step]
        assert sum(of_step) == window.end_ns - window.start_ns


def test_what_lies_between_ops_in_backward_is_taken_off_dispatch(tmp_path: Path) -> None:
    backward = Event("backward", tuple(e for _ in range(5) for e in (50, product())), "range")
    step = Event("step", (100, backward, 100), "step")
    found, truth = made(tmp_path, [step])
    assert account(found) == dict(truth)
    assert account(found, profiled=True)["idle", "dispatch"] > truth["idle", "dispatch"] + 5 * 660


def test_a_real_step_costs_more_than_the_loop_and_the_step_tells_how_much(tmp_path: Path) -> None:
    loop = {"event_ns": OP.ns, "event_before_ns": OP.before_ns, "event_inside_ns": OP.inside_ns}
    told = {**loop, "range_ns": RANGE.ns, "range_inside_ns": RANGE.inside_ns}
    found, truth = made(tmp_path, [STEP], op=OP.times(2), told=told)
    assert account(found) == dict(truth)
    (step,) = found.steps()
    assert step.recording is not None
    assert step.recording.event_ns == pytest.approx(2 * OP.ns)


def test_no_event_costs_more_than_real_steps_showed(tmp_path: Path) -> None:
    told = {"event_ns": 100.0, "range_ns": 0.0}
    dear = Cost(20_000, 0, 20_000)
    found, _ = made(tmp_path, [STEP], op=dear, of_range=NOTHING, told=told)
    (step,) = found.steps()
    assert step.recording is not None
    assert step.recording.event_ns == max(MOST_RECORDING_NS, 100 * MOST_TIMES)
    parts = account(found)
    assert parts[PROFILER, FURTHER] < 0
    assert sum(parts.values()) == round(found.timings.step_ns)  # type: ignore[union-attr]


def test_where_no_loop_was_timed_the_step_tells_alone(tmp_path: Path) -> None:
    even = Cost(400, 0, 400)
    found, truth = made(tmp_path, [STEP], op=even, of_range=even, recording=None)
    assert account(found) == dict(truth)
    (step,) = found.steps()
    assert step.recording is not None
    assert not step.recording.measured


def test_events_of_the_thread_that_works_meanwhile_cost_as_well() -> None:
    """A graph runs on a thread of its own while its caller waits.

    ::

        caller   [step [program                                    ] ]
        worker             [MatMul   ] [MatMul] [MatMul]
    """
    worker = {"pid": 1, "tid": 2}
    events = annotated(
        table([
            row("step", "step", 0, 1_000, **HOST),
            row("op", "program", 50, 950, **HOST),
            row("op", "MatMul", 200, 500, **worker),
            row("op", "MatMul", 520, 600, **worker),
            row("op", "MatMul", 620, 700, **worker),
        ]),
        captured=True,
    )  # fmt: skip
    wrapped = EventTable(events)
    stretches = attributed(wrapped, windows(wrapped, captured=True), None)[None]
    whole = recorded(wrapped, stretches, own_ranges=True)
    assert int(whole.events.before.sum()) == int(whole.events.after.sum()) == 4


@pytest.mark.parametrize("threads", [1, 2])
def test_diagnose_and_breakdown_say_the_same(tmp_path: Path, threads: int) -> None:
    found, _ = made(
        tmp_path, [STEP, STEP], told={"event_ns": 200.0}, timings=[70_000] * 9, threads=threads
    )
    profile = step_profile_of(found)
    of_parts = Counter[tuple[str, str]]()
    for c in profile.contributors:
        of_parts[c.state, c.part] += c.ns - c.disturbed_ns
    parts = account(found)
    further = parts.pop((PROFILER, FURTHER), 0)
    assert dict(of_parts) == parts
    told = [e.finding.slow_ns for e in alone(profile).findings if e.finding.kind == "profiler"]
    assert told == ([further] if threads > 1 else [])


def test_page_faults_of_profiling_are_a_line_only_where_they_were_seen(tmp_path: Path) -> None:
    told = {"event_ns": OP.ns, "range_ns": RANGE.ns, "page_fault_ns": 500.0}
    seen, truth = made(tmp_path / "seen", [STEP], told=told, profiled_page_faults=[10], threads=2)
    none, _ = made(tmp_path / "none", [STEP], told=told, profiled_page_faults=[0], threads=2)
    assert account(seen)[PROFILER, PAGE_FAULTS] == -5_000
    assert (PROFILER, PAGE_FAULTS) not in account(none)
    assert sum(account(seen).values()) == sum(truth.values())
    one, _ = made(tmp_path / "one", [STEP], told=told, profiled_page_faults=[10])
    assert account(one).keys() == truth.keys()  # all parts share them
    assert sum(account(one).values()) == sum(truth.values())


def test_faults_take_no_more_than_profiled_steps_were_longer(tmp_path: Path) -> None:
    told = {"event_ns": OP.ns, "range_ns": RANGE.ns, "page_fault_ns": 90_000.0}
    profiled_ns = profiled_lengths(tmp_path, [STEP])[0]
    found, truth = made(
        tmp_path, [STEP], told=told, profiled_page_faults=[10], timings=[profiled_ns] * 9, threads=2
    )
    assert (PROFILER, PAGE_FAULTS) not in account(found)  # they were no longer at all
    longer_ns = profiled_ns - sum(truth.values())
    more, _ = made(tmp_path / "more", [STEP], told=told, profiled_page_faults=[10], threads=2)
    assert account(more)[PROFILER, PAGE_FAULTS] == -longer_ns


def test_a_step_that_lost_its_cpu_is_left_out_everywhere(tmp_path: Path) -> None:
    long = Event("step", (*STEP.holds, 12_000), "step")
    steps = [STEP, long, STEP]
    true_ns = 34_000
    walls = profiled_lengths(tmp_path, steps)
    cpus = [walls[0], walls[1] - 12_000, walls[2]]
    voluntary = [0, 0, 0]
    found, _ = made(
        tmp_path, steps, profiled_cpu_ns=cpus, profiled_voluntary_switches=voluntary,
        timings=[true_ns] * 9,
    )  # fmt: skip
    assert found.kept(None).places == (0, 2)
    (note,) = found.kept(None).notes
    assert note.startswith("step 1 was disturbed: it had its CPU for 8")
    assert {r["profiled_steps"] for r in account_rows([found])} == {2}
    assert step_profile_of(found).steps == 2
    assert step_profile_of(found).notes == (note,)


def test_where_all_steps_were_disturbed_the_least_disturbed_counts_and_it_is_said(
    tmp_path: Path,
) -> None:
    walls = profiled_lengths(tmp_path, [STEP] * 3)
    cpus = [wall * share // 100 for wall, share in zip(walls, (40, 70, 50), strict=True)]
    found, _ = made(
        tmp_path, [STEP] * 3, profiled_cpu_ns=cpus, profiled_voluntary_switches=[0, 0, 0]
    )
    assert found.kept(None).places == (1,)
    (note,) = found.kept(None).notes
    assert note.startswith("all 3 profiled steps were disturbed")


def longer(event: Event, times: int) -> Event:
    """``event`` with all of its time so many times as long."""
    holds = tuple(h * times if isinstance(h, int) else longer(h, times) for h in event.holds)
    return Event(event.name, holds, event.kind)


def slept(event: Event, name: str, ns: int) -> Event:
    """``event`` with an event of this name in it without a CPU for so long."""
    if event.name == name:
        return Event(name, (ns, *event.holds), event.kind)
    holds = tuple(h if isinstance(h, int) else slept(h, name, ns) for h in event.holds)
    return Event(event.name, holds, event.kind)


def test_of_steps_that_all_lost_their_cpu_what_took_longer_than_its_like_lost_it(
    tmp_path: Path,
) -> None:
    """No part is off by more than two stretches of its like may differ, 5 µs here.

    ::

      quiet  |--2--|-- mm 9 --|   loaded  |----- 8,002 -----|-- mm 9 --|, or in mm, or in linear
    """
    _, truth = made(tmp_path / "quiet", [STEP])
    step_ns, slice_ns = sum(truth.values()), 8_000_000
    names = ("forward", "aten::mm", "aten::linear")
    loaded, _ = made(
        tmp_path / "loaded", [slept(STEP, name, slice_ns) for name in names * 3], op=NOTHING,
        of_range=NOTHING, told={"event_ns": None}, timings=[4 * step_ns] * 9, waits=0.75,
        preemptions=3, profiled_cpu_ns=[step_ns] * 9, profiled_voluntary_switches=[0] * 9,
    )  # fmt: skip
    assert loaded.timings is not None
    assert loaded.timings.compared_by == "CPU time"
    (step,) = loaded.steps()
    assert step.recording is not None
    assert step.recording.in_cpu_time
    parts = account(loaded)
    assert sum(parts.values()) == step_ns
    assert {part: ns for part, ns in parts.items() if part[0] != PROFILER} == pytest.approx(
        dict(truth), abs=5_000
    )
    profile = step_profile_of(loaded)
    of_parts = Counter[tuple[str, str]]()
    for c in profile.contributors:
        of_parts[c.state, c.part] += c.ns - c.disturbed_ns
    assert dict(of_parts) == {p: ns for p, ns in parts.items() if p[0] != PROFILER}


def test_a_step_that_waits_by_itself_was_not_disturbed(tmp_path: Path) -> None:
    walls = profiled_lengths(tmp_path, [STEP] * 2)
    cpus = [wall * 60 // 100 for wall in walls]
    found, _ = made(
        tmp_path, [STEP] * 2, profiled_cpu_ns=cpus, profiled_voluntary_switches=[3, 2], waits=0.4
    )
    assert found.kept(None).places == (0, 1)


def test_the_speed_of_the_machine_while_it_profiled_changes_all_parts_alike(
    tmp_path: Path,
) -> None:
    """Timed  |--2--|-- mm 9 --|   profiled while it was slow  |---3---|---- mm 13.5 ----|."""
    _, truth = made(tmp_path / "quiet", [STEP])
    step_ns = sum(truth.values())
    for times, lasts in ((3, 2), (2, 3)):  # slower and faster than it was timed
        found, _ = made(
            tmp_path / f"{times}", [longer(STEP, times)] * 2, op=NOTHING, of_range=NOTHING,
            told={"event_ns": None}, timings=[lasts * step_ns] * 9, recording=None,
            profiled_wall_ns=[lasts * step_ns] * 2, profiled_cpu_ns=[lasts * step_ns] * 2,
        )  # fmt: skip
        parts = account(found)
        assert parts.keys() == truth.keys()  # no effect of the profiler is left over
        assert parts == pytest.approx({p: lasts * ns for p, ns in truth.items()}, rel=0.12)
        assert sum(parts.values()) == lasts * step_ns


def test_a_machine_is_taken_for_no_more_than_twice_as_fast_as_before(tmp_path: Path) -> None:
    """Timed steps of five times the length: what the speed does not explain is a line."""
    found, truth = made(
        tmp_path, [STEP], op=NOTHING, of_range=NOTHING, told={"event_ns": None}, recording=None,
        timings=[5 * STEP_NS] * 9, profiled_wall_ns=[5 * STEP_NS], profiled_cpu_ns=[5 * STEP_NS],
    )  # fmt: skip
    assert sum(truth.values()) == STEP_NS
    (step,) = found.steps()
    assert step.recording is not None
    explained_ns = 2 * (STEP_NS - step.recording.ns)
    assert account(found)[PROFILER, FURTHER] == 5 * STEP_NS - explained_ns


def test_a_step_of_unknown_length_lost_no_time(tmp_path: Path) -> None:
    lengths = profiled_lengths(tmp_path, [STEP])
    found, _ = made(
        tmp_path, [STEP], profiled_wall_ns=[0], profiled_cpu_ns=lengths, waits=0.5, preemptions=3,
        timings=[2 * STEP_NS] * 9,
    )  # fmt: skip
    assert found.timings is not None
    assert found.timings.compared_by == "CPU time"
    assert set(account(found)) >= {("busy", "gemm"), ("idle", "dispatch")}


leaves = st.builds(
    lambda name, ns: Event(name, (ns,)),
    st.sampled_from(["aten::mm", "aten::t"]),
    st.integers(0, 5000),
)
trees = st.recursive(
    leaves,
    lambda inner: st.builds(
        lambda holds: Event("aten::linear", tuple(holds)),
        st.lists(st.one_of(st.integers(0, 3000), inner), min_size=1, max_size=4),
    ),
    max_leaves=6,
)


@settings(
    max_examples=30,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.lists(trees, min_size=1, max_size=3),
    st.integers(1, 100_000),
    st.sampled_from([None, 1.0, 400.0, 9_000.0]),
    st.sampled_from([None, 300.0]),
)
def test_the_parts_sum_to_the_undisturbed_step_whatever_was_recorded(
    tmp_path_factory: pytest.TempPathFactory,
    inner: list[Event],
    step_ns: int,
    event_ns: float | None,
    page_fault_ns: float | None,
) -> None:
    step = Event("step", (5, *inner, 5), "step")
    told = {"event_ns": event_ns, "page_fault_ns": page_fault_ns}
    found, _ = made(
        tmp_path_factory.mktemp("p"), [step, step], told=told, timings=[step_ns] * 7,
        profiled_page_faults=[50, 60],
    )  # fmt: skip
    parts = account(found)
    assert sum(parts.values()) == step_ns
    for (state, _), ns in parts.items():
        assert state == PROFILER or 0 < ns <= step_ns


@pytest.mark.parametrize(
    ("changes", "lost_ns"),
    [({}, (400,)), ({"threads": 2}, ()), ({"profiled_wall_ns": None}, ()), ({"cpu": False}, ())],
)
def test_a_step_lost_the_share_of_its_time_in_which_it_had_no_cpu(
    changes: dict[str, Any], lost_ns: tuple[int, ...]
) -> None:
    told = {"device": "cpu", "threads": 1, "profiled_cpu_ns": [60], "profiled_wall_ns": [100]}
    in_cpu_time: Any = SimpleNamespace(in_cpu_time=changes.get("cpu", True))
    kept = Kept((Window(None, 0, 0, 1000, None),), (0,))
    info = run_info({**told, **{n: value for n, value in changes.items() if n != "cpu"}})
    assert _lost_ns(kept, info, timings([100]), in_cpu_time) == lost_ns


def test_a_row_of_the_timings_begins_with_what_ran_and_where(tmp_path: Path) -> None:
    found, _ = made(tmp_path, [STEP], precision="fp32")
    (row,) = rows_of([found], "timings")
    facts = {"precision": "fp32", "mode": None, "device": "cpu"}
    assert {name: row[name] for name in list(row)[3:6]} == facts
    assert list(row)[:3] == ["run", "implementation", "workload"]
