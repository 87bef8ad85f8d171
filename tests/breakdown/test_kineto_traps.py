"""Kineto's traps of linking, from the file to the account, each under a drawn timeline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lstmprof import formats
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.calls import coverage

Row = dict[str, Any]


def event(cat: str, name: str, ts: float, dur: float, **more: Any) -> Row:
    host = {"pid": 10, "tid": 11}
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, **host, **more}


def on_stream(name: str, ts: float, dur: float, stream: int, device: int = 0, **args: Any) -> Row:
    args = {"device": device, "stream": stream, **args}
    return event("kernel", name, ts, dur, pid=device, tid=stream, args=args)


def rows(tmp_path: Path, *events: Row) -> list[Row]:
    file = tmp_path / "trace.json"
    file.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    found: list[Row] = annotated(formats.read(file).events, captured=False).to_pylist()
    return found


def named(found: list[Row], column: str) -> dict[str, str | None]:
    """Name of each activity -> name of the event that ``column`` points to."""
    names = {row["event_id"]: row["name"] for row in found}
    return {row["name"]: names.get(row[column]) for row in found if row["kind"] == "kernel"}


def test_cudnns_lstm_runs_on_streams_of_its_own_launched_through_the_driver(tmp_path: Path) -> None:
    # host       |-aten::lstm---------------------------------->|
    #              |-aten::_cudnn_rnn--------------------------->|
    #                |-cudaLaunchKernel->|  |-cuLaunchKernel->|
    # stream 7                        |-elementWise->|
    # stream 20                                        |-gemm->|
    found = rows(
        tmp_path,
        event("cpu_op", "aten::lstm", 0, 60, args={"External id": 1}),
        event("cpu_op", "aten::_cudnn_rnn", 2, 56, args={"External id": 2}),
        event("cuda_runtime", "cudaLaunchKernel", 5, 10, args={"correlation": 4}),
        event("cuda_driver", "cuLaunchKernel", 20, 10, args={"correlation": 5}),
        on_stream("elementWise_sgemm", 17, 8, 7, correlation=4),
        on_stream("ampere_sgemm_32x32_tn", 32, 9, 20, correlation=5),
    )
    assert named(found, "launch_id") == {
        "elementWise_sgemm": "cudaLaunchKernel",
        "ampere_sgemm_32x32_tn": "cuLaunchKernel",
    }
    assert set(named(found, "op_id").values()) == {"aten::_cudnn_rnn"}
    assert {row["category"] for row in found if row["kind"] == "kernel"} == {"rnn"}


def test_the_kernels_of_a_cuda_graph_have_its_launch(tmp_path: Path) -> None:
    # host     |-replay (range)------->|
    #            |-cudaGraphLaunch->|
    # device              |-k1->||-k2->||-k3->|
    found = rows(
        tmp_path,
        event("user_annotation", "replay", 0, 20),
        event("cuda_runtime", "cudaGraphLaunch", 2, 10, args={"correlation": 9}),
        *(
            on_stream(f"k{i}", 10 + 5 * i, 4, 7, correlation=9, **{"graph node id": i})
            for i in (1, 2, 3)
        ),
    )
    assert named(found, "launch_id") == dict.fromkeys(("k1", "k2", "k3"), "cudaGraphLaunch")
    assert [row["graph_node_id"] for row in found if row["kind"] == "kernel"] == [1, 2, 3]


def test_rocm_has_other_names_and_devices_and_fewer_ids(tmp_path: Path) -> None:
    # host      |-aten::mm-------------->|
    #             |-hipLaunchKernel->|
    # device 2               |-Cijk…->|  |-lost->|
    found = rows(
        tmp_path,
        event("cpu_op", "aten::mm", 0, 30, args={"External id": 5}),
        event("cuda_runtime", "hipLaunchKernel", 3, 10, args={"cid": 20, "correlation": 6}),
        on_stream("Cijk_Ailk_Bljk_SB_MT64x64x16", 10, 9, 0, device=2, correlation=6),
        on_stream("lost", 20, 4, 0, device=2, correlation=7),
    )
    assert named(found, "launch_id") == {
        "Cijk_Ailk_Bljk_SB_MT64x64x16": "hipLaunchKernel",
        "lost": None,
    }
    assert named(found, "op_id")["Cijk_Ailk_Bljk_SB_MT64x64x16"] == "aten::mm"
    assert {row["device"] for row in found if row["kind"] == "kernel"} == {2}


def test_middle_years_repeat_the_correlation_as_external_id(tmp_path: Path) -> None:
    # host     |-aten::add (id 7)->|   |-aten::mm (id 9)---------->|
    #                                    |-cudaLaunchKernel 7->|        external id 7 too
    # device                                        |-gemm 7->|
    found = rows(
        tmp_path,
        event("cpu_op", "aten::add", 0, 10, args={"External id": 7}),
        event("cpu_op", "aten::mm", 20, 30, args={"External id": 9}),
        event("Runtime", "cudaLaunchKernel", 22, 9, args={"correlation": 7, "external id": 7}),
        on_stream("gemm", 30, 9, 7, correlation=7, **{"external id": 7}),
    )
    assert named(found, "op_id") == {"gemm": "aten::mm"}


def test_a_backward_op_of_another_thread_has_its_forward_op(tmp_path: Path) -> None:
    # thread 11  |-aten::mm (node 3)->|
    # thread 12                            |-autograd::engine::evaluate…->|
    #                                        |-MmBackward0 (node 3)---->|
    engine = {"pid": 10, "tid": 12, "args": {"Sequence number": 3, "Fwd thread id": 1}}
    found = rows(
        tmp_path,
        event("cpu_op", "aten::mm", 0, 20, args={"Sequence number": 3, "Fwd thread id": 0}),
        event("cpu_op", "autograd::engine::evaluate_function: MmBackward0", 30, 20, **engine),
        event("cpu_op", "MmBackward0", 32, 16, **engine),
    )
    assert [row["forward_id"] for row in found] == [None, 0, 0]
    assert [row["phase"] for row in found][1:] == ["backward", "backward"]


def test_launches_without_activities_and_activities_without_launches_are_counted(
    tmp_path: Path,
) -> None:
    # host     |-cudaLaunchKernel 1->|  |-cudaMemsetAsync 2->|
    # device                                   |-k 3->|
    found = rows(
        tmp_path,
        event("cuda_runtime", "cudaLaunchKernel", 0, 5, args={"correlation": 1}),
        event("cuda_runtime", "cudaMemsetAsync", 6, 5, args={"correlation": 2}),
        on_stream("k", 9, 4, 7, correlation=3),
    )
    assert named(found, "launch_id") == {"k": None}
    events = annotated(formats.read(tmp_path / "trace.json").events, captured=False)
    counted = coverage(events)
    assert (counted.activities, counted.launched, counted.unanswered) == (1, 0, 1)


def test_a_kernel_before_its_launch_keeps_it(tmp_path: Path) -> None:
    # host           |-cudaLaunchKernel->|     the device's clock is 3 µs behind
    # device      |-k->|
    found = rows(
        tmp_path,
        event("cuda_runtime", "cudaLaunchKernel", 5, 5, args={"correlation": 1}),
        on_stream("k", 2, 2, 7, correlation=1),
    )
    assert named(found, "launch_id") == {"k": "cudaLaunchKernel"}
