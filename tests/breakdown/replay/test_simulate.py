"""What a change does to a step of ten events or fewer, under drawn timelines."""

from __future__ import annotations

import pytest
from events.rows import Row, row, table

from lstmprof.base import names
from lstmprof.base.errors import UsageError
from lstmprof.breakdown.replay.changes import CHANGES, Change, faster_gemms, unchanged_times
from lstmprof.breakdown.replay.what_if import Prediction, predictions
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import Window, windows
from lstmprof.events.table import EventTable

HOST = {"pid": 1, "tid": 1}
GPU = {"device": 0, "stream": 7}


def step(rows: list[Row]) -> tuple[EventTable, Window]:
    events = annotated(table(rows), captured=True)
    (window,) = windows(events, captured=True)
    return events, window


def predicted(rows: list[Row], change: Change) -> Prediction:
    return what_if(*step(rows), change)


def what_if(events: EventTable, window: Window, change: Change) -> Prediction:
    return predictions(events, window, [change])[0]


# ns      0    2    4    6    8    10   12   14   16   18   20   22   24
# host    [step-[op[L1)[L2-----)-)------[sync--------------------)---)
# device              ~[gemm----------------)[gemm-------------)
TWO_GEMMS = [
    row("step", "step", 0, 25, **HOST),
    row("op", "aten::mm", 2, 10, **HOST),
    row("runtime", "cudaLaunchKernel", 3, 4, **HOST, correlation_id=1),
    row("runtime", "cudaLaunchKernel", 5, 9, **HOST, correlation_id=2),
    row("kernel", "ampere_sgemm", 6, 14, **GPU, correlation_id=1),
    row("kernel", "ampere_sgemm", 14, 22, **GPU, correlation_id=2),
    row("runtime", "cudaDeviceSynchronize", 12, 23, **HOST, correlation_id=3),
]


@pytest.mark.parametrize(
    ("change", "length_ns"),
    [
        (unchanged_times, 25),
        # L1 takes 0 and its kernel starts at once: 3 … 11, 11 … 19, sync until 20, 2 more
        (CHANGES["launch"], 22),
        # the op begins at 0, its first kernel at 4: 12, 20, the sync until 21, nothing after it
        (CHANGES["python"], 21),
        # the ops' calls follow each other: from 2 on, the first kernel at 5: 13, 21, 22, 2 more
        (CHANGES["dispatch"], 24),
        # 6 … 8, then L2 + latency: 11 … 13; the sync still begins at 12 and ends at 14
        (faster_gemms(4), 16),
        # no cast, no copy, and the only sync is the one at the step's end
        (CHANGES["casts"], 25),
        (CHANGES["copies"], 25),
        (CHANGES["syncs"], 25),
    ],
)
def test_time_hidden_behind_what_vanishes_comes_to_light(change: Change, length_ns: int) -> None:
    found = predicted(TWO_GEMMS, change)
    assert (found.observed_ns, found.replayed_ns) == (25, 25)
    assert found.predicted_ns == length_ns
    assert sum(r["ns"] for r in found.ledger.to_pylist()) == length_ns


def test_the_next_bottleneck_is_a_part_of_the_ledger() -> None:
    assert predicted(TWO_GEMMS, unchanged_times).bottleneck == ("busy", "gemm", 16)
    # of 1 ns each at 6 and 11: both gaps before them end with a latency of 2
    assert predicted(TWO_GEMMS, faster_gemms(8)).bottleneck == ("idle", "launch latency", 4)


@pytest.mark.parametrize("factor", [0, -1, float("nan"), float("inf")])
def test_a_factor_that_is_no_speed_is_refused(factor: float) -> None:
    with pytest.raises(UsageError, match="times as fast; use a factor above 0"):
        faster_gemms(factor)


def test_a_cast_vanishes_with_the_ops_that_issued_it_and_the_way_into_them() -> None:
    # host    [step[aten::to[_to_copy[empty)[copy_[L1))))[mm[L2)-)--[sync--)-)
    # device                                       [cast)    [gemm------)
    rows = [
        row("step", "step", 0, 30, **HOST),
        row("op", "aten::to", 2, 12, **HOST),
        row("op", "aten::empty_strided", 3, 6, **HOST),
        row("op", "aten::copy_", 7, 11, **HOST),
        row("runtime", "cudaLaunchKernel", 8, 10, **HOST, correlation_id=1),
        row("kernel", "vectorized_elementwise_kernel", 11, 13, **GPU, correlation_id=1),
        row("op", "aten::mm", 13, 17, **HOST),
        row("runtime", "cudaLaunchKernel", 14, 16, **HOST, correlation_id=2),
        row("kernel", "ampere_sgemm", 17, 27, **GPU, correlation_id=2),
        row("runtime", "cudaDeviceSynchronize", 19, 28, **HOST, correlation_id=3),
    ]
    assert predicted(rows, CHANGES["casts"]).predicted_ns == 18


def test_a_sync_in_the_middle_goes_and_the_one_at_the_end_stays() -> None:
    # host    [step[L1)[sync------------)[L2)[sync-----)--)
    # device           [gemm-----------)     [gemm---)
    rows = [
        row("step", "step", 0, 24, **HOST),
        row("runtime", "cudaLaunchKernel", 1, 2, **HOST, correlation_id=1),
        row("runtime", "cudaStreamSynchronize", 3, 12, **HOST, correlation_id=2),
        row("runtime", "cudaLaunchKernel", 13, 15, **HOST, correlation_id=3),
        row("runtime", "cudaStreamSynchronize", 16, 22, **HOST, correlation_id=4),
        row("kernel", "ampere_sgemm", 3, 11, **GPU, correlation_id=1),
        row("kernel", "ampere_sgemm", 16, 21, **GPU, correlation_id=3),
    ]
    # L2 at 4 … 6, its kernel behind the other: 11 … 16, the sync until 17, 2 more
    assert predicted(rows, CHANGES["syncs"]).predicted_ns == 19


def test_the_backward_thread_takes_the_waiting_one_along() -> None:
    # main    [step-[backward----------------------)--)
    # worker        ~~[node-[L)--)[node-[L)--)
    # device                    [add)      [add)
    rows = [
        row("step", "step", 0, 30, **HOST),
        row("range", "backward", 2, 26, **HOST),
        row("op", "autograd::engine::evaluate_function: A", 4, 14, pid=1, tid=2),
        row("runtime", "cudaLaunchKernel", 8, 12, pid=1, tid=2, correlation_id=1),
        row("op", "autograd::engine::evaluate_function: B", 14, 24, pid=1, tid=2),
        row("runtime", "cudaLaunchKernel", 18, 22, pid=1, tid=2, correlation_id=2),
        row("kernel", "vectorized_elementwise_kernel", 13, 14, **GPU, correlation_id=1),
        row("kernel", "vectorized_elementwise_kernel", 23, 24, **GPU, correlation_id=2),
    ]
    assert predicted(rows, CHANGES["launch"]).predicted_ns == 30 - 8
    # what is left of each node is its launch; the last one ends 2 before the step's 6 of Python
    assert predicted(rows, CHANGES["dispatch"]).predicted_ns == 4 + 8 + 6
    # the step and the range vanish but for the wait; the last kernel ends with the second node
    assert predicted(rows, CHANGES["python"]).predicted_ns == 20


def test_a_run_without_a_device_is_replayed_on_its_threads() -> None:
    # host    [step-[linear[addmm------------)-)[add---)--)
    rows = [
        row("step", "step", 0, 30, **HOST),
        row("op", "aten::linear", 2, 18, **HOST),
        row("op", "aten::addmm", 4, 16, **HOST),
        row("op", "aten::add", 20, 26, **HOST),
    ]
    assert predicted(rows, faster_gemms(3)).predicted_ns == 30 - 8
    assert predicted(rows, CHANGES["python"]).predicted_ns == 16 + 6
    assert predicted(rows, CHANGES["dispatch"]).predicted_ns == 30 - 4
    assert predicted(rows, CHANGES["dispatch"]).bottleneck == ("busy", "gemm", 12)


def test_asking_for_a_value_takes_no_time_on_a_host_either() -> None:
    # host    [step-[item[local)-)--[add---)--[to-[copy_--))-)
    rows = [
        row("step", "step", 0, 30, **HOST),
        row("op", "aten::item", 2, 8, **HOST),
        row("op", "aten::_local_scalar_dense", 4, 7, **HOST),
        row("op", "aten::add", 10, 16, **HOST),
        row("op", "aten::to", 18, 28, **HOST),
        row("op", "aten::copy_", 20, 27, **HOST, category="cast"),
    ]
    assert predicted(rows, CHANGES["syncs"]).predicted_ns == 30 - 8
    # the way into an op goes with it
    assert predicted(rows, CHANGES["casts"]).predicted_ns == 30 - 12


def test_an_activity_of_unknown_launch_keeps_its_distance() -> None:
    # device  [gemm------)~~~~[gemm------)       neither was linked
    rows = [
        row("step", "step", 0, 22, **HOST),
        row("kernel", "ampere_sgemm", 1, 9, **GPU),
        row("kernel", "ampere_sgemm", 12, 20, **GPU),
    ]
    events, window = step(rows)
    kernels = what_if(events, window, faster_gemms(4)).ledger.to_pylist()
    assert {r["part"]: r["ns"] for r in kernels if r["state"] == "busy"} == {"gemm": 4}
    assert {r["part"]: r["ns"] for r in kernels if r["state"] == "idle"}["unattributed"] == 1 + 3


def test_each_change_that_help_names_is_the_one_of_that_name() -> None:
    assert [change.__name__ for change in CHANGES.values()] == [
        f"without_{name.replace('-', '_')}" for name in names.CHANGES
    ]
