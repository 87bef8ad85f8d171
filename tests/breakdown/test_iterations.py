"""Which iterations lost their CPU, and by what a run is compared; tables built in code.

Of one thread on a CPU, ms::

    wall  ████████████████  10 (ran 10)      ████████·············  22 (ran 10, waited 12)
                kept its CPU                    another process had it meanwhile
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from lstmprof.breakdown.iterations import Iterations, iterations_of
from lstmprof.breakdown.timings import Timings, timings
from lstmprof.runs.metadata import RunInfo, run_info

MS = 1_000_000
ONE_THREAD = {"device": "cpu", "threads": 1}
#: (ms of CPU time, ms of waiting, voluntary switches, preemptions)
KEPT, LOST = (10.0, 0.01, 0, 0), (10.2, 12.0, 0, 3)
SLEPT, HANDED_OVER = (10.0, 5.0, 10, 0), (10.0, 2.0, 4, 3)


def table(rounds: Sequence[Sequence[tuple[float, float, int, int]]]) -> pa.Table:
    """timings.parquet of these iterations, with one of warm-up that lost its CPU in each round."""
    rows = [
        {
            "round": number,
            "warmup": place == 0,
            "after_profile": 2 * place > len(some),
            "wall_ns": round((cpu + waited) * MS),
            "cpu_ns": round(cpu * MS),
            "voluntary_switches": waits,
            "preemptions": preempted,
        }
        for number, some in enumerate(rounds)
        for place, (cpu, waited, waits, preempted) in enumerate([LOST, *some])
    ]
    return pa.Table.from_pylist(rows)


def of(*rounds: Sequence[tuple[float, float, int, int]], **facts: Any) -> Iterations:
    return iterations_of(table(rounds), run_info({**ONE_THREAD, **facts}))


def measured(*rounds: Sequence[tuple[float, float, int, int]], **facts: Any) -> Timings:
    found = timings(table(rounds), run_info({**ONE_THREAD, **facts}))
    assert found is not None
    return found


def stick(share: float) -> dict[str, Any]:
    """The facts of a yardstick that had its CPU for this share of the time."""
    side = {"python_ns": 4 * MS, "python_cpu_ns": round(4 * MS * share)}
    return {"yardsticks": [{"before": side, "after": side}]}


def test_iterations_that_lost_their_cpu_are_left_out_where_others_are_enough() -> None:
    found = measured(*[[KEPT, LOST, KEPT, LOST, LOST, KEPT, LOST]] * 3)
    assert (found.iterations, found.disturbed) == (9, 12)
    assert found.compared_by == "wall time"
    assert found.step_ns == 10.01 * MS
    assert found.step_high_ns is not None
    assert found.step_high_ns < 11 * MS


@pytest.mark.parametrize(("number", "place"), [(1, 1), (2, 2), (19, 19), (20, 19), (40, 38)])
def test_the_95th_percentile_is_the_nearest_rank(number: int, place: int) -> None:
    found = measured([(float(ms), 0.0, 0, 0) for ms in range(number, 0, -1)])
    assert found.p95_ns == place * MS


def test_where_too_few_kept_it_cpu_time_counts() -> None:
    found = measured([KEPT, KEPT, *[LOST] * 5], *[[LOST] * 7] * 2)
    assert (found.iterations, found.disturbed) == (21, 19)
    assert found.compared_by == "CPU time"
    assert found.cpu_step_ns == 10.2 * MS
    assert found.cpu_step_low_ns is not None
    assert found.cpu_step_low_ns > 9 * MS
    assert found.step_ns == pytest.approx(22.2 * MS)
    (taken,) = [w for w in found.warnings if w.kind == "CPU taken"]
    assert taken.size == 0
    assert "19 iterations of 21" in taken.fault


def test_a_step_that_waits_by_itself_lost_nothing() -> None:
    slept = of(*[[SLEPT] * 7] * 3)
    assert slept.disturbed is not None
    assert not slept.disturbed.any()
    assert slept.measure == "wall time"
    also = of(*[[SLEPT, SLEPT, SLEPT, (10.0, 17.0, 10, 4)] * 2] * 3)
    assert also.disturbed is not None
    assert int(also.disturbed.sum()) == 6


def test_threads_of_a_process_take_the_cpu_from_each_other() -> None:
    # alike in what the kernel counted; the yardstick, which never waits, tells them apart
    alone, beside = (of(*[[HANDED_OVER] * 7] * 3, **stick(share)) for share in (0.99, 0.5))
    assert alone.measure == "wall time"
    assert beside.measure == "CPU time"


@pytest.mark.parametrize("facts", [{"threads": 2}, {"device": "cuda:0"}])
def test_of_several_threads_or_a_device_preemptions_alone_tell(facts: dict[str, Any]) -> None:
    usual, often = (18.0, 0.0, 0, 1), (18.0, 0.0, 0, 9)
    some = of(*[[usual, usual, often, usual, often]] * 3, **facts)
    assert some.cpu_ns is None
    assert some.disturbed is not None
    assert int(some.disturbed.sum()) == 6
    assert some.measure == "wall time"
    most = of([usual] * 9, [often] * 5, [often] * 5, **facts)
    assert most.measure is None
    assert measured([usual] * 9, [often] * 5, [often] * 5, **facts).compared_by is None


def test_a_run_of_an_older_version_is_compared_as_it_was() -> None:
    old = table([[KEPT, LOST, KEPT]] * 3).select(["round", "warmup", "wall_ns"])
    nulls = old.append_column("cpu_ns", pa.nulls(old.num_rows, pa.int64()))
    for rows in (old, nulls):
        found = timings(rows, RunInfo())
        assert found is not None
        assert (found.iterations, found.disturbed) == (9, None)
        assert found.compared_by == "wall time"
        assert found.cpu_step_ns is None


def test_the_undisturbed_are_chosen_by_their_waiting_and_not_by_their_length() -> None:
    long, short = (14.0, 0.02, 0, 0), (8.0, 0.02, 0, 0)
    found = measured(*[[short, long, long, short, long, LOST]] * 3)
    assert found.disturbed == 3
    assert found.median_ns == statistics.median([8, 14, 14, 8, 14]) * MS + 0.02 * MS
    assert found.step_ns == pytest.approx((2.25 * 8 + 5.25 * 14) / 7.5 * MS + 0.02 * MS)


def test_a_turn_counts_once_whatever_it_holds() -> None:
    """Ten turns a round: a slow one of one iteration, a quick one of three, and so on."""
    slow, quick = (12.0, 0.01, 0, 0), (8.0, 0.01, 0, 0)
    one = [slow, quick, quick, quick] * 5
    turns = [2 * (place // 4) + (place % 4 > 0) for place in range(20)]
    rows = table([one] * 3)
    numbers = pa.array([None, *turns] * 3, pa.int64())
    info = run_info(ONE_THREAD)
    taken = iterations_of(rows.append_column("turn", numbers), info)
    assert taken.length_ns() == pytest.approx(10.01 * MS)
    assert [len(r.turns) for r in taken.rounds("CPU time")] == [10] * 3
    assert taken.rounds("CPU time")[0].turns[:2] == ((0, 12.0 * MS), (1, 8.0 * MS))
    alone = iterations_of(rows, info)
    assert alone.length_ns() == pytest.approx(8.01 * MS, rel=0.001)
    assert alone.rounds()[0].turns == ()


def test_waiting_of_own_code_is_no_lost_cpu() -> None:
    starved = [SLEPT, KEPT] * 5
    assert of(starved, source="capture").cpu_ns is not None
    assert of(starved, source="own code").cpu_ns is None
    found = measured(starved, source="own code", timing_cpu_ns=1, timing_wall_ns=2, iterations=10)
    assert found.compared_by == "wall time"
    assert not any("had its CPU" in warning.fault for warning in found.warnings)
