"""Kineto traces of ten events or fewer, one for each trap."""

from __future__ import annotations

import gzip
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from lacking import lacks

from lstmprof.base.errors import ProfileError
from lstmprof.events import DeviceFacts, Profile
from lstmprof.formats import read
from lstmprof.formats.kineto.event_fields import femtoseconds, interval, json_list

HOST = {"pid": 10, "tid": 11}


def event(cat: str, name: str, ts: object, dur: object = 1, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, **HOST, **more}


def kernel(ts: object, dur: object = 1, **args: Any) -> dict[str, Any]:
    return event("kernel", "gemm", ts, dur, pid=0, tid=7, args={"device": 0, "stream": 7, **args})


def read_text(path: Path, text: str | bytes) -> Profile:
    file = path / "trace.json"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return read(file)


def read_events(path: Path, *events: Any, **header: Any) -> Profile:
    return read_text(path, json.dumps({"schemaVersion": 1, "traceEvents": events, **header}))


def column(profile: Profile, name: str) -> list[Any]:
    return list(profile.events[name].to_pylist())


def kinds_by_name(profile: Profile) -> dict[str, str]:
    return dict(zip(column(profile, "name"), column(profile, "kind"), strict=True))


def test_today_joins_an_op_its_launch_and_its_kernel(tmp_path: Path) -> None:
    # µs      100        110   115   120        135        160
    # host     |-ProfilerStep#3---------------------------->|
    # host     |  |-aten::mm (id 5)-------->|
    # host     |      |-cudaLaunchKernel->|
    # device                        |-gemm------>|
    profile = read_events(
        tmp_path,
        event("user_annotation", "ProfilerStep#3", 100.0, 60.0, args={"External id": 1}),
        event(
            *("cpu_op", "aten::mm", 105.25, 20.5),
            args={
                "External id": 5,
                "Input Dims": [[2, 3], [3, 4]],
                "Input type": ["float", "half"],
            },
        ),
        event(
            *("cuda_runtime", "cudaLaunchKernel", 110.0, 9.0),
            args={"External id": 5, "correlation": 77, "cbid": 211},
        ),
        kernel(115.125, 20.0, correlation=77, **{"External id": 5}),
        baseTimeNanoseconds=1_700_000_000_000_000_000,
        deviceProperties=[{"id": 0, "name": "NVIDIA H100"}],
        distributedInfo={"rank": 3, "world_size": 8},
    )
    assert column(profile, "kind") == ["step", "op", "runtime", "kernel"]
    assert column(profile, "start_ns") == [0, 5_250, 10_000, 15_125]
    assert column(profile, "dur_ns") == [60_000, 20_500, 9_000, 20_000]
    assert profile.base_ns == 1_700_000_000_000_100_000
    assert column(profile, "tid") == [11, 11, 11, None]
    assert column(profile, "pid") == [10, 10, 10, None]
    assert column(profile, "device") == [None, None, None, 0]
    assert column(profile, "stream") == [None, None, None, 7]
    assert column(profile, "correlation_id") == [None, None, 77, 77]
    assert column(profile, "external_id") == [1, 5, 5, 5]
    assert column(profile, "rank") == [3, 3, 3, 3]
    assert column(profile, "shapes")[1] == "[[2,3],[3,4]]"
    assert column(profile, "dtypes")[1] == '["float","half"]'
    assert profile.device_names == {0: "NVIDIA H100"}
    assert profile.notes == ()


def test_rocm_profiles_without_correlation_ids_are_linked_by_their_external_ids(
    tmp_path: Path,
) -> None:
    profile = read_events(
        tmp_path,
        event("cpu_op", "aten::fill_", 100, 60, args={"External id": 513}),
        event("cuda_runtime", "hipInit", 105, 5, args={"External id": 4}),
        event("cuda_runtime", "hipLaunchKernel", 110, 9, args={"External id": 1}),
        event("kernel", "fill", 115, 3, pid=2, tid=0, args={"External id": 1}),
        event("cuda_runtime", "hipMemcpy", 130, 9, args={"External id": 7, "correlation": 0}),
    )
    assert column(profile, "kind") == ["op", "runtime", "runtime", "kernel", "runtime"]
    assert column(profile, "correlation_id") == [None, 4, 1, 1, None]


def test_categories_of_2021_have_the_same_kinds(tmp_path: Path) -> None:
    # µs since 1970; thread ids are texts, a stream is a thread called "stream 7"
    epoch_us = 1_623_142_623_460_000
    on_stream = {"pid": 1, "tid": "stream 7"}
    profile = read_events(
        tmp_path,
        event("Operator", "ProfilerStep#5", epoch_us, 99, tid="11", args={"External id": 2}),
        event("Operator", "Optimizer.step#SGD.step", epoch_us + 1, 98, tid="11"),
        event("Operator", "aten::add", epoch_us + 2, 9, tid="11", args={"Device": 25738}),
        event("Runtime", "cudaLaunchKernel", epoch_us + 3, 4, tid="11", args={"correlation": 8}),
        event("Kernel", "add_kernel", epoch_us + 5, args={"external id": 6}, **on_stream),
        event("Memcpy", "Memcpy HtoD", epoch_us + 6, args={"bytes": 64}, **on_stream),
        event("Memset", "Memset (Device)", epoch_us + 7, **on_stream),
    )
    kinds = ["step", "range", "op", "runtime", "kernel", "memcpy", "memset"]
    assert column(profile, "kind") == kinds
    assert column(profile, "tid") == [11, 11, 11, 11, None, None, None]
    assert column(profile, "device") == [None, None, None, None, 1, 1, 1]
    assert column(profile, "stream") == [None, None, None, None, 7, 7, 7]
    assert column(profile, "external_id")[4] == 6
    assert column(profile, "bytes")[5] == 64
    assert profile.base_ns == epoch_us * 1000


def test_ranges_of_a_step_had_the_category_of_operators_in_2021(tmp_path: Path) -> None:
    names = ["step", "forward", "aten::lstm", "backward", "AddmmBackward"]
    events = [event("Operator", name, 10 * n, 99 - 20 * n) for n, name in enumerate(names)]
    kinds = ["step", "range", "op", "range", "op"]
    assert column(read_events(tmp_path, *events), "kind") == kinds
    (program,) = column(read_events(tmp_path, event("Operator", "program", 1, 1)), "kind")
    assert program == "range"
    (today,) = column(read_events(tmp_path, event("cpu_op", "forward", 1, 1)), "kind")
    assert today == "op"


def test_derived_spans_are_no_activities_and_do_not_stretch_the_trace(tmp_path: Path) -> None:
    # µs     0      10   20         30      1000
    # Spans  |-PyTorch Profiler (0)----------->|
    # host          |-ProfilerStep#1->|
    # device             |-ProfilerStep#1-->|         its copy on the stream: 5 µs longer
    # device             |-gemm->|
    spans = {"pid": "Spans", "tid": "PyTorch Profiler"}
    profile = read_events(
        tmp_path,
        event("Trace", "PyTorch Profiler (0)", 0, 1000, **spans),
        event("user_annotation", "ProfilerStep#1", 10, 20),
        event("gpu_user_annotation", "ProfilerStep#1", 20, 15, pid=0, tid=7),
        event("cuda_profiler_range", "gemm", 20, 15, pid=0, tid=0),
        kernel(20, 5),
    )
    assert sorted(column(profile, "kind")) == ["kernel", "range", "range", "step"]
    step = column(profile, "kind").index("step")
    assert (column(profile, "start_ns")[step], column(profile, "dur_ns")[step]) == (0, 20_000)
    annotation = column(profile, "kind").index("range")
    assert column(profile, "device")[annotation] == 0
    assert column(profile, "tid")[annotation] is None
    assert profile.metadata["profiler_spans_ns"] == [[-10_000, 990_000]]


def test_only_numbered_profiler_steps_and_our_own_range_are_steps(tmp_path: Path) -> None:
    profile = read_events(
        tmp_path,
        event("user_annotation", "step", 0),
        event("user_annotation", "forward", 1),
        event("user_annotation", "ProfilerStep#x", 2),
        event("cpu_op", "aten::step", 3),
        event("cpu_op", "autograd::engine::evaluate_function: AddBackward0", 4),
    )
    assert column(profile, "kind") == ["step", "range", "range", "op", "op"]


def test_other_categories(tmp_path: Path) -> None:
    profile = read_events(
        tmp_path,
        event("python_function", "nn.Module: LSTM_0", 0, pid=0, tid=0),
        event("overhead", "Activity Buffer Request", 1, pid=-1, tid=0),
        event("cuda_sync", "Event Sync", 2, pid=0, tid=-1, args={"device": 0, "stream": -1}),
        event("cuda_driver", "cuLaunchKernel", 3),
        event("xpu_runtime", "urEnqueueKernelLaunch", 4),
        event("novel", "on a device", 5, args={"device": 2, "stream": 4}),
        event("novel", "on the host", 6),
    )
    assert kinds_by_name(profile) == {
        "nn.Module: LSTM_0": "python",
        "Activity Buffer Request": "overhead",
        "Event Sync": "device_sync",
        "cuLaunchKernel": "runtime",
        "urEnqueueKernelLaunch": "runtime",
        "on a device": "range",
        "on the host": "range",
    }
    assert column(profile, "pid") == [None, None, None, 10, 10, None, 10]
    assert column(profile, "tid") == [None, None, None, 11, 11, None, 11]
    assert column(profile, "stream") == [None, None, None, None, None, 4, None]
    assert any("2 events of unknown category 'novel'" in note for note in profile.notes)


def test_ids_that_say_none_are_null(tmp_path: Path) -> None:
    profile = read_events(
        tmp_path,
        kernel(0, correlation=0, **{"External id": 0, "graph node id": 0}),
        kernel(1, correlation=-1, **{"graph node id": 12}),
        kernel(2, correlation=10159970886766084423),
        kernel(3, correlation="45"),
    )
    assert column(profile, "correlation_id") == [None, None, None, 45]
    assert column(profile, "external_id") == [None] * 4
    assert column(profile, "graph_node_id") == [None, 12, None, None]


@pytest.mark.parametrize(
    ("ts", "dur", "start_ns", "dur_ns"),
    [
        ("1712867402348256.25", "0.5", 1712867402348256250, 500),
        ("5656330066032.404", "888.873", 5656330066032404, 888873),
        ("9007199254740993", "1", 9007199254740993000, 1000),  # 2**53 + 1: no float holds it
        ("0.0004", "0.0002", 0, 1),  # 0.4 ns to 0.6 ns: each end is rounded, not the length
        ("1.5e3", "2E-1", 1500000, 200),
        ("-3.5", "1", -3500, 1000),
    ],
)
def test_times_are_exact(ts: str, dur: str, start_ns: int, dur_ns: int) -> None:
    times = {key: kineto_json(value) for key, value in (("ts", ts), ("dur", dur))}
    if abs(start_ns) > 2**61:
        assert interval(times) == "their time is invalid"
    else:
        assert interval(times) == (start_ns, dur_ns)


def kineto_json(number: str) -> object:
    return json.loads(number, parse_float=str)


@given(st.decimals(min_value=-(10**15), max_value=10**15, places=9, allow_nan=False))
def test_femtoseconds_agree_with_fractions(microseconds: Any) -> None:
    text = format(microseconds, "f")
    assert femtoseconds(text) == Fraction(text) * 10**9


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ({"dur": -1}, "their duration is negative"),
        ({"dur": None}, "they have no readable duration"),
        ({"ts": None}, "they have no readable start"),
        ({"ts": "soon"}, "they have no readable start"),
        ({"ts": 10**30}, "their time is invalid"),
        ({"ts": "1e999999999"}, "they have no readable start"),
        ({"dur": 10**17}, "their time is invalid"),
    ],
)
def test_what_is_no_interval_is_left_out_and_told(
    tmp_path: Path, broken: dict[str, Any], why: str
) -> None:
    profile = read_events(tmp_path, kernel(5), {**kernel(6), **broken}, event("cpu_op", "op", 1))
    assert profile.events.num_rows == 2
    assert profile.notes == (f"1 events were left out because {why}",)


def test_only_complete_events_are_rows(tmp_path: Path) -> None:
    flow = {"ph": "s", "id": 4, "cat": "ac2g", "name": "ac2g", "ts": 1, **HOST}
    profile = read_events(
        tmp_path,
        event("cpu_op", "aten::mm", 1),
        flow,
        {"ph": "M", "name": "process_name", "pid": 10, "ts": 0, "args": {"name": "python"}},
        {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": 2, **HOST},
        "no event at all",
    )
    assert column(profile, "name") == ["aten::mm"]


def test_what_profilers_break_in_json_is_mended(tmp_path: Path) -> None:
    # Bare nan, a trailing comma, a line break and a stray byte in a name, a Windows path.
    profile = read_text(
        tmp_path,
        b'\xef\xbb\xbf{"traceName": "C:\\Users\\me.json", "schemaVersion": 1, "traceEvents": [\n'
        b'{"ph": "X", "cat": "cpu_op", "name": "a\n\xffb\\ud800", "pid": 1, "tid": 1, "ts": 3,'
        b' "dur": 4, "args": {"bandwidth": -nan, "more": inf, "NaN": NaN, "x": ", ]"}},\n]}',
    )
    assert column(profile, "name") == ["a\n\ufffdb\ufffd"]
    assert profile.metadata["traceName"] == "C:/Users/me.json"


def test_a_list_of_events_without_header_is_a_trace(tmp_path: Path) -> None:
    profile = read_text(tmp_path, json.dumps([event("cpu_op", "aten::mm", 7, 8)]))
    assert (column(profile, "dur_ns"), profile.base_ns) == ([8000], None)


def test_gzip_and_name_do_not_matter(tmp_path: Path) -> None:
    file = tmp_path / "anything.pb"
    file.write_bytes(gzip.compress(json.dumps([event("cpu_op", "aten::mm", 7)]).encode()))
    assert read(file).format == "kineto"


def test_missing_halves_are_told(tmp_path: Path) -> None:
    launch = event("cuda_runtime", "cudaLaunchKernel", 1, args={"correlation": 1})
    no_activity = read_events(tmp_path, event("cpu_op", "aten::mm", 0), launch)
    assert (no_activity.notes, next(iter(lacks(no_activity)))) == ((), "no GPU activity")
    assert "no framework ops" in lacks(read_events(tmp_path, launch, kernel(2)))
    logged = {"ERROR": ["CUPTI\nfailed", "of no use"]}
    silent = read_events(tmp_path, event("cpu_op", "aten::mm", 0), launch, **logged)
    assert silent.gpu_complaint == "CUPTI failed"
    assert "the profiler logged: CUPTI failed" in lacks(silent)["no GPU activity"].sentence
    assert silent.notes == ("the profiler logged: of no use",)
    loud = read_events(tmp_path, launch, kernel(2), **logged)
    assert (loud.gpu_complaint, len(loud.notes)) == (None, 2)


def test_devices_are_told_whether_or_not_they_were_used(tmp_path: Path) -> None:
    properties = [{"id": 0, "name": "A100"}, {"id": 1, "name": "A100"}, {"id": 2}]
    profile = read_events(tmp_path, event("cpu_op", "aten::mm", 0), deviceProperties=properties)
    assert profile.accelerators == ("A100", "GPU 2")


def test_what_the_driver_says_of_a_device_is_kept(tmp_path: Path) -> None:
    a100 = {"computeMajor": 8, "computeMinor": 0, "numSms": 108, "warpSize": 32}
    properties = [{"id": 0, **a100}, {"id": 1, "numSms": "14"}, {"id": 2, "numSms": -1}]
    profile = read_events(tmp_path, event("cpu_op", "aten::mm", 0), deviceProperties=properties)
    assert profile.device_facts == {
        0: DeviceFacts("8.0", 108, 32),
        1: DeviceFacts(multiprocessors=14),
    }


def test_a_trace_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="nothing was recorded"):
        read_events(tmp_path, event("Trace", "PyTorch Profiler (0)", 0, pid="Spans"))


@pytest.mark.parametrize("header", ["distributedInfo", "deviceProperties", "baseTimeNanoseconds"])
@pytest.mark.parametrize("value", [None, 7, "x", [1], {"rank": []}, -1])
def test_a_hostile_header_is_ignored(tmp_path: Path, header: str, value: object) -> None:
    profile = read_events(tmp_path, event("cpu_op", "aten::mm", 0), **{header: value})
    assert profile.events.num_rows == 1
    assert profile.device_names == {}
    assert profile.device_facts == {}


def test_a_time_of_thirty_digits_is_exact_and_a_longer_one_is_none() -> None:
    assert femtoseconds("1e30") == 10**39
    assert femtoseconds("1e31") is None


def test_a_list_that_is_nested_without_end_is_no_shape() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    assert json_list([[2, 3]]) == "[[2,3]]"
    assert json_list(nested) is None


OF_CUDA = {
    **{
        "registers per thread": 32,
        "shared memory": 4096,
        "blocks per SM": 0.6,
        "warps per SM": 2.4,
    },
    **{"grid": [80, 1, 1], "block": [128, 1, 1], "est. achieved occupancy %": 31},
}


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({}, {"message_bytes": 8 * 1024 * 2, "group_size": 8}),
        ({"dtype": "Mystery"}, {"group_size": 8}),
        ({"In msg nelems": -1}, {"group_size": 8}),
        ({"Group size": "many"}, {"message_bytes": 8 * 1024 * 2}),
    ],
)
def test_a_kernel_of_a_collective_says_what_it_moves(
    tmp_path: Path, said: dict[str, Any], message: dict[str, int]
) -> None:
    sizes = {"In msg nelems": 1024, "Out msg nelems": 8 * 1024, "dtype": "BFloat16"}
    gather = {"Collective name": "_allgather_base", "Group size": 8, **sizes, **said}
    (config,) = column(read_events(tmp_path, kernel(0, **OF_CUDA, **gather)), "launch_config")
    read = json.loads(config)
    assert read["block"] == [128, 1, 1]
    assert {n: read[n] for n in read if n in ("operation", "message_bytes", "group_size")} == {
        "operation": "all_gather",
        **message,
    }


@pytest.mark.parametrize(
    ("about", "group"),
    [("mesh_tp", "3 (mesh_tp)"), ("undefined", "3"), (None, "3")],
)
def test_a_kernel_of_a_collective_names_its_process_group(
    tmp_path: Path, about: str | None, group: str
) -> None:
    said = {"Process Group Name": "3", "Process Group Description": about}
    reduce = {"Collective name": "allreduce", **{n: v for n, v in said.items() if v is not None}}
    (config,) = column(read_events(tmp_path, kernel(0, **OF_CUDA, **reduce)), "launch_config")
    assert json.loads(config)["process_group"] == group


def test_a_kernel_says_what_it_was_launched_with(tmp_path: Path) -> None:
    launch = event("cuda_runtime", "hipLaunchKernel", 9, args={"grid": [2, 1, 1], **OF_CUDA})
    profile = read_events(
        tmp_path,
        kernel(0, **OF_CUDA),
        kernel(1, **OF_CUDA | {"est. achieved occupancy %": 0}),  # not worked out
        kernel(2, grid=[61184, 1, 1], block=[256, 1, 1]),  # ROCm's: of blocks or of threads
        kernel(3, device=0),
        launch,
    )
    both = '{"grid":[80,1,1],"block":[128,1,1],"registers":32,"shared_bytes":4096'
    assert column(profile, "launch_config") == [
        both + ',"estimated_occupancy":0.31}',
        both + "}",
        '{"block":[256,1,1]}',
        None,
        None,
    ]
