"""Own code on a busy machine: what it lost where that is known, and a doubt where it is not.

One thread; the op A is long, B are many. Another process has the CPU while B runs, ms::

    quiet    |---- A 6 ----|B|B|B|B|                     10, of A most
    loaded   |---- A 6 ----|B|B|B · · · · 20 · · · · |B| 30, of B most, for who does not know better
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from events.rows import Row, row, table

import lstmprof as lp
from lstmprof.breakdown import break_down
from lstmprof.breakdown.disturbed import kept_steps
from lstmprof.breakdown.iterations import iterations_of
from lstmprof.breakdown.off_cpu import lost_of_steps, without
from lstmprof.breakdown.undisturbed import _longer_ns
from lstmprof.diagnose.diagnosis import diagnose_all
from lstmprof.diagnose.step_profile import step_profile_of
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import windows
from lstmprof.runs.metadata import run_info
from lstmprof.runs.run import TIMINGS_SCHEMA, open_run, write_tables

MS = 1_000_000
#: Of a step: an op, its length in ms; and for how long its third B is interrupted.
OPS, TAKEN_MS = (("aten::mm", 6), *(("aten::add", 1),) * 4), 20
BEGIN_NS = 8_500_000  # in the third B


def step_rows(number: int, taken_ms: int) -> list[Row]:
    """The events of a step that begins at 100 ms times its number."""
    lengths = [length + (taken_ms if place == 3 else 0) for place, (_, length) in enumerate(OPS)]
    at = [number * 100 * MS + ms * MS for ms in accumulate([0, *lengths])]
    ops = [
        row("op", name, begin, end, pid=1, tid=1)
        for (name, _), begin, end in zip(OPS, at, at[1:], strict=False)
    ]
    return [row("step", f"step#{number}", at[0], at[-1], pid=1, tid=1), *ops]


def written(folder: Path, taken_ms: int = TAKEN_MS, **facts: Any) -> lp.Run:
    """A run of own code of three profiled steps, and four timed ones that lost as much."""
    own = {"profiled_off_cpu": [{"own_ns": [[BEGIN_NS, BEGIN_NS + taken_ms * MS]]}] * 3}
    per_step = {
        "wall_ns": (10 + taken_ms) * MS,
        **{"cpu_ns": 10 * MS, "thread_cpu_ns": 10 * MS, "waited_ns": taken_ms * MS},
        **{"others_waited_ns": 0, "children_waited_ns": 0},
        **facts.pop("per_step", {}),
    }
    given = {
        **{"name": "mine", "source": "own code", "device": "cpu", "threads": 1},
        **{"framework": "torch", **(own if taken_ms else {})},
        **{f"profiled_{name}": ns if ns is None else [ns] * 3 for name, ns in per_step.items()},
        **facts,
    }
    events = annotated(table([r for n in range(3) for r in step_rows(n, taken_ms)]), captured=False)
    rows = [
        {**dict.fromkeys(TIMINGS_SCHEMA.names), **per_step, "round": 0, "iteration": number}
        | {"warmup": False, "after_profile": number > 1, "preemptions": 2, "minor_faults": 0}
        for number in range(4)
    ]
    folder.mkdir(parents=True)
    timings = pa.Table.from_pylist(rows, schema=TIMINGS_SCHEMA)
    write_tables(folder, run_info(given), events, timings)
    return lp.read(folder)


def diagnosed(run: lp.Run) -> dict[str, Any]:
    return diagnose_all([break_down(run.stored)])[0].to_dict()


def test_what_is_known_to_have_been_taken_is_cut_out_before_a_cause_is_sought(
    tmp_path: Path,
) -> None:
    quiet, loaded = (written(tmp_path / str(ms), ms) for ms in (0, TAKEN_MS))
    expected, found = diagnosed(quiet), diagnosed(loaded)
    assert (expected["state"], expected["cause"]) == ("found", "GEMM-bound")
    assert (found["state"], found["cause"]) == ("found", "GEMM-bound")
    assert (expected["slow_ns"], found["slow_ns"]) == (10 * MS, 10 * MS)
    assert (expected["compared_by"], found["compared_by"]) == ("wall time", "CPU time")
    assert found["sentence"].startswith("without its waits for a CPU: ")
    times = [{f["kind"]: f["slow_ns"] for f in d["findings"]} for d in (expected, found)]
    assert times[0] == times[1]
    parts = [
        {(state, part): ns for state, part, ns in step.mean_parts}
        for run in (quiet, loaded)
        for step in break_down(run.stored).steps()
    ]
    assert parts[0] == parts[1]


@pytest.mark.parametrize("off_cpu", [None, []])
def test_what_was_taken_nobody_knows_when_makes_no_cause(tmp_path: Path, off_cpu: Any) -> None:
    run = written(tmp_path / "r", profiled_off_cpu=off_cpu)
    assert step_profile_of(break_down(run.stored)).unsure_ns == TAKEN_MS * MS
    found = diagnosed(run)
    assert (found["state"], found["cause"]) == ("unknown", None)
    assert "20.0 ms" in found["reason"]
    assert {f["certainty"]["level"] for f in found["findings"]} == {"cannot be told"}


def test_a_cause_that_leads_by_less_than_interruptions_cost_is_not_named(tmp_path: Path) -> None:
    """Each leaves caches cold, here forty: as much as all B, which are 2 ms behind A."""
    turns = [[BEGIN_NS + n * MS // 2, BEGIN_NS + n * MS // 2 + MS // 4] for n in range(40)]
    half = {"wall_ns": 30 * MS, "waited_ns": 10 * MS}
    run = written(tmp_path / "r", per_step=half, profiled_off_cpu=[{"own_ns": turns}] * 3)
    assert step_profile_of(break_down(run.stored)).unsure_ns == 4 * MS
    few = written(tmp_path / "few")
    assert step_profile_of(break_down(few.stored)).unsure_ns == MS // 10


def test_waiting_for_no_cpu_is_the_step_s_own(tmp_path: Path) -> None:
    """It sleeps for 20 of 30 ms: nothing is cut out, and nothing doubted."""
    slept = {"waited_ns": 0}
    run = written(tmp_path / "r", per_step=slept, profiled_off_cpu=[{"own_ns": []}] * 3)
    found = diagnosed(run)
    assert (found["state"], found["slow_ns"], found["compared_by"]) == (
        *("found", 30 * MS),
        "wall time",
    )
    assert step_profile_of(break_down(run.stored)).unsure_ns == 0


@pytest.mark.parametrize(
    ("counts", "lost_ms", "unsure_ms"),
    [
        # another thread works while this one sleeps, and waits for its CPU: the step does
        ({"thread_cpu_ns": 1, "cpu_ns": 10, "waited_ns": 0, "others_waited_ns": 19}, 19, 0),
        # two work at once: this one may wait for the other, or not
        ({"thread_cpu_ns": 20, "cpu_ns": 38, "waited_ns": 5, "others_waited_ns": 12}, 5, 12),
        # a thread that has no part in the work wakes up while this one computes
        ({"thread_cpu_ns": 10, "cpu_ns": 10, "waited_ns": 20, "others_waited_ns": 9}, 20, 0),
        # a process that loads data waits, and this one sleeps for 15 ms of the step
        ({"thread_cpu_ns": 10, "cpu_ns": 10, "waited_ns": 5, "children_waited_ns": 90}, 5, 15),
        # and here it has none to wait for
        ({"thread_cpu_ns": 10, "cpu_ns": 10, "waited_ns": 20, "children_waited_ns": 90}, 20, 0),
    ],
)
def test_what_others_waited_counts_as_far_as_a_step_may_have_waited_for_them(
    counts: dict[str, int], lost_ms: int, unsure_ms: int
) -> None:
    of_step = {"wall_ns": 30, "others_waited_ns": 0, "children_waited_ns": 0, **counts}
    columns = {f"profiled_{name}": [value * MS] for name, value in of_step.items()}
    info = run_info({"source": "own code", "device": "cpu", **columns})
    (lost,) = lost_of_steps(info, None) or ()
    assert (lost.ns, lost.unsure_ns) == (lost_ms * MS, unsure_ms * MS)


def test_threads_that_wait_for_each_other_on_an_idle_machine_lose_nothing(tmp_path: Path) -> None:
    side = {"python_ns": 4 * MS, "python_cpu_ns": 4 * MS}
    run = written(tmp_path / "r", yardsticks=[{"before": side, "after": side}])
    (lost, *_) = lost_of_steps(run.info, run.stored.timings()) or ()
    assert (lost.ns, lost.taken) == (0, ())
    timings = run.stored.timings()
    assert timings is not None
    assert iterations_of(timings, run.info).measure == "wall time"


def test_of_a_gpu_nobody_knows_what_its_host_s_waiting_cost(tmp_path: Path) -> None:
    run = written(tmp_path / "r", device="cuda:0")
    broken_down = break_down(run.stored)
    assert step_profile_of(broken_down).unsure_ns == TAKEN_MS * MS
    assert broken_down.on_cpu(None)[0].windows[0].end_ns == (10 + TAKEN_MS) * MS
    assert broken_down.timings is not None
    assert broken_down.timings.compared_by is None


def test_events_keep_their_order_and_their_lengths_outside_what_is_cut_out(tmp_path: Path) -> None:
    run = written(tmp_path / "r")
    events, info = run.stored.events(), run.info
    of_steps = windows(events, captured=True)
    cut, moved = without(events, of_steps, lost_of_steps(info, None) or ())
    assert [(w.end_ns - w.start_ns) // MS for w in moved] == [10] * 3
    lengths = (cut.dur_ns // MS).tolist()
    assert lengths == [10, 6, 1, 1, 1, 1] * 3
    gaps = [later.start_ns - earlier.end_ns for earlier, later in pairwise(moved)]
    assert gaps == [later.start_ns - w.end_ns for w, later in pairwise(of_steps)]
    assert kept_steps(of_steps, info, run.stored.timings()).notes == ()


def test_a_run_of_before_waiting_was_counted_is_read_as_ever(tmp_path: Path) -> None:
    run = written(tmp_path / "r", per_step={"waited_ns": None, "thread_cpu_ns": None})
    assert lost_of_steps(run.info, run.stored.timings()) is None
    assert open_run(tmp_path / "r").info.profiled_waited_ns is None
    assert diagnosed(run)["slow_ns"] == (10 + TAKEN_MS) * MS


def test_what_was_taken_of_timed_and_of_profiled_steps_made_neither_longer(tmp_path: Path) -> None:
    run = written(tmp_path / "r").stored
    timings = run.timings()
    assert timings is not None
    kept = kept_steps(windows(run.events(), captured=False), run.info, timings)
    assert _longer_ns(kept, run.info, timings) == 0
