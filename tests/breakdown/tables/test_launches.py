"""The launch table by hand on a few rows."""

from __future__ import annotations

import pytest
from events.rows import row, table

from lstmprof.breakdown.tables import TABLES
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import windows
from lstmprof.runs.fields import WorkloadInfo
from lstmprof.runs.metadata import RunInfo

launches = TABLES["launches"].of

HOST = {"pid": 1, "tid": 1}
GPU = {"device": 0, "stream": 7}


def call(name: str, at: int, to: int, correlation_id: int) -> dict[str, object]:
    return row("runtime", name, at, to, **HOST, correlation_id=correlation_id)


def test_calls_latencies_and_queue_depth() -> None:
    # host  [step 0 -------------------------------------)[step 1…100
    #        [L1)[L2-)   [L3)      [L4----)      [sync----)
    # GPU           [1-------------)[2--)[3)[4)
    rows = [
        row("step", "step", 0, 50, **HOST),
        row("step", "step", 50, 100, **HOST),
        *(call("cudaLaunchKernel", *at) for at in ((1, 3, 1), (4, 8, 2), (10, 12, 3), (30, 40, 4))),
        call("cudaStreamSynchronize", 45, 60, 9),
        row("kernel", "k", 6, 26, **GPU, correlation_id=1),
        row("kernel", "k", 26, 33, **GPU, correlation_id=2),
        row("kernel", "k", 33, 35, **GPU, correlation_id=3),
        row("kernel", "k", 36, 38, **GPU, correlation_id=4),
    ]
    events = annotated(table(rows), captured=True)
    info = RunInfo(workload=WorkloadInfo(time_steps=4))
    (found,) = launches(events, windows(events, captured=True), info).to_pylist()
    assert (found["name"], found["kind"]) == ("cudaLaunchKernel", "kernel")
    assert (found["count"], found["linked"], found["activities"]) == (4, 4, 4)
    assert (found["per_step"], found["per_time_step"]) == (2.0, 0.5)
    assert found["per_second"] == pytest.approx(4 / 100e-9)
    # calls of 2, 4, 2, 10 ns
    assert (found["call_total_ns"], found["call_mean_ns"]) == (18, 4.5)
    assert (found["call_p50_ns"], found["call_p95_ns"]) == (2, 10)
    # latencies 6−3, 26−8, 33−12, 36−40
    assert (found["latency_mean_ns"], found["latency_p50_ns"]) == (9.5, 3)
    assert (found["latency_p95_ns"], found["latency_negative"]) == (21, 1)
    assert found["started_before_call"] == 0
    # when they return 1, 2 and 3 of them are queued or running; the fourth has ended
    assert (found["queue_mean"], found["queue_max"]) == (1.5, 3)


def test_a_call_without_an_activity_has_no_latency_and_counts() -> None:
    rows = [call("cudaLaunchKernel", 1, 3, 1), call("cudaMalloc", 4, 5, 2)]
    events = annotated(table(rows), captured=False)
    (found,) = launches(events, windows(events, captured=False)).to_pylist()
    assert (found["name"], found["count"], found["linked"], found["kind"]) == (
        *("cudaLaunchKernel", 1, 0),
        None,
    )
    unknown = ("latency_mean_ns", "latency_p50_ns", "queue_mean", "per_time_step", "per_step")
    assert [found[name] for name in unknown] == [None] * 5
    assert found["per_second"] == pytest.approx(1 / 4e-9)


def test_a_graph_launch_enqueues_many_and_a_driver_call_inside_is_part_of_it() -> None:
    rows = [
        call("cudaGraphLaunch", 10, 20, 1),
        call("cuGraphLaunch", 12, 18, 1),
        row("kernel", "k", 5, 8, **GPU, correlation_id=1),
        row("memset", "Memset (Device)", 30, 34, **GPU, correlation_id=1),
    ]
    events = annotated(table(rows), captured=False)
    (found,) = launches(events, windows(events, captured=False)).to_pylist()
    assert (found["name"], found["kind"]) == ("cudaGraphLaunch", "mixed")
    assert (found["count"], found["activities"]) == (1, 2)
    # the first one ran before the call began: the clocks disagree, and that is said
    assert (found["latency_p50_ns"], found["started_before_call"]) == (-15, 1)
    assert found["queue_max"] == 1


def test_an_empty_profile_has_no_launches() -> None:
    events = annotated(table([]), captured=False)
    assert launches(events, []).num_rows == 0
