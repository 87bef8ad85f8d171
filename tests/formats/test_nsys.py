"""Nsight Systems exports of ten events or fewer, one for each trap, under drawn timelines."""

from __future__ import annotations

import gzip
import itertools
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from formats.databases import Rows, by_name, column, read_tables, write
from hypothesis import given, settings, strategies as st
from lacking import lacks

from lstmprof.base.errors import ProfileError
from lstmprof.breakdown.tables import TABLES
from lstmprof.events import DeviceFacts, Profile, counters
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import windows
from lstmprof.formats import read
from lstmprof.formats.cuda import database_tables
from lstmprof.formats.cuda.database_tables import UNKNOWN, _check_length
from lstmprof.formats.cuda.names import nvtx_range, nvtx_ranges
from lstmprof.formats.raw_file import raw_of_bytes


@pytest.fixture(autouse=True, scope="module")
def _two_rows_at_once() -> Iterator[None]:
    """Tables are read two rows at a time, so that those of three rows are read in parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database_tables, "_CHUNK_ROWS", 2)
        yield


MACHINE = 1 << 48
STRINGS = {1: "cudaLaunchKernel_v7000", 2: "gemm", 3: "void gemm<float>(float*)", 4: "step"}


def process(pid: int) -> int:
    return MACHINE | pid << 24


def thread(pid: int, tid: int | None = None) -> int:
    return process(pid) | (tid or pid)


def strings(**more: str) -> Rows:
    texts = STRINGS | {int(key.removeprefix("n")): text for key, text in more.items()}
    return [{"id": number, "value": text} for number, text in texts.items()]


def kernel(start: int, end: int, correlation: int, pid: int = 7, **more: Any) -> dict[str, Any]:
    return {
        **{"start": start, "end": end, "deviceId": 0, "contextId": 1, "streamId": 7},
        **{"correlationId": correlation, "globalPid": process(pid)},
        **{"demangledName": 3, "shortName": 2, **more},
    }


def call(start: int, end: int, correlation: int, pid: int = 7, **more: Any) -> dict[str, Any]:
    return {
        **{"start": start, "end": end, "globalTid": thread(pid), "nameId": 1},
        **{"correlationId": correlation, **more},
    }


def nvtx(start: int, end: int | None, text: str | None, **more: Any) -> dict[str, Any]:
    common = {"start": start, "end": end, "eventType": 59, "text": text, "globalTid": thread(7)}
    return {**common, **more}


KERNELS, CALLS = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
SYNCS = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"


def test_a_step_an_op_its_launch_and_its_kernel(tmp_path: Path) -> None:
    # ns      100   110  120    135   150   180   200
    # host     |-step----------------------------->|
    # host           |-aten::mm, op_id = 5->|
    # host               |-launch-->|
    # device                           |-gemm->|
    profile = read_tables(
        tmp_path,
        **{
            "StringIds": strings(),
            KERNELS: [kernel(150, 180, 9, graphNodeId=12)],
            CALLS: [call(120, 135, 9)],
            "NVTX_EVENTS": [
                nvtx(100, 200, None, textId=4),
                nvtx(110, 160, "aten::mm, op_id = 5, sizes = [[2, 3], []]"),
            ],
            "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": 1_700_000_000_000_000_000}],
            "TARGET_INFO_GPU": [
                {
                    **{"id": 0, "name": "NVIDIA H100", "smCount": 132, "threadsPerWarp": 32},
                    **{"computeMajor": 9, "computeMinor": 0},
                }
            ],
            "META_DATA_EXPORT": [
                {"name": "EXPORT_PRODUCT_VERSION", "value": "2026.1"},
                {"name": "EXPORT_SCHEMA_VERSION", "value": "3.24.14"},
            ],
        },
    )
    assert column(profile, "kind") == ["step", "op", "runtime", "kernel"]
    names = ["step", "aten::mm", "cudaLaunchKernel", "void gemm<float>(float*)"]
    assert column(profile, "name") == names
    assert column(profile, "start_ns") == [0, 10, 20, 50]
    assert column(profile, "dur_ns") == [100, 50, 15, 30]
    assert column(profile, "pid") == [7, 7, 7, 7]
    assert column(profile, "tid") == [7, 7, 7, None]
    assert column(profile, "device") == [None, None, None, 0]
    assert column(profile, "stream") == [None, None, None, 7]
    assert column(profile, "correlation_id") == [None, None, 9, 9]
    assert column(profile, "external_id") == [None, 5, None, None]
    assert column(profile, "graph_node_id") == [None, None, None, 12]
    assert column(profile, "shapes") == [None, "[[2,3],[]]", None, None]
    assert profile.base_ns == 1_700_000_000_000_000_100
    assert profile.device_names == {0: "NVIDIA H100"}
    assert profile.device_facts == {0: DeviceFacts("9.0", 132, 32)}
    assert profile.metadata == {"product_version": "2026.1", "schema_version": "3.24.14"}
    assert profile.notes == ()


def graph(folder: Path, created: tuple[int, int], pid: int = 7) -> Profile:
    """Two kernels of one graph, which is captured, instantiated and launched twice.

    ``created``: when the captured nodes 11 and 12 are created. ``pid`` is the replays' process.
    """
    # ns     0    10 12    18 25  32    38 40    44 45     50    60 110 120 130 142
    # host   |-Net------------------------------------->|
    # host        |-LSTM------->|
    # host           |-launch->|  |-launch->||-End->|      |-Graph->|
    # device                                                         |-k0->| |-k1->|
    replays = [
        (node, start + again, start + again + dur)
        for again in (0, 100)
        for node, start, dur in ((21, 110, 10), (22, 130, 12))
    ]
    launches = [(12, 18, 1, 1), (32, 38, 2, 1), (40, 44, 3, 5), (50, 60, 4, 6), (150, 160, 5, 6)]
    lines = [(11, None, created[0]), (12, None, created[1]), (21, 11, 46), (22, 12, 47)]
    return read_tables(
        folder,
        **{
            "StringIds": strings(n5="cudaStreamEndCapture_v10000", n6="cudaGraphLaunch_v10000"),
            "NVTX_EVENTS": [nvtx(0, 45, "Net"), nvtx(10, 25, "LSTM"), nvtx(11, 20, "aten::mm")],
            CALLS: [
                call(start, end, correlation, nameId=name)
                for start, end, correlation, name in launches
            ],
            KERNELS: [
                kernel(start, end, 4 + (start > 200), graphNodeId=node, pid=pid)
                for node, start, end in replays
            ],
            "CUDA_GRAPH_NODE_EVENTS": [
                {
                    **{"start": at, "end": at, "globalTid": thread(7)},
                    **{"graphNodeId": node, "originalGraphNodeId": original},
                }
                for node, original, at in lines
            ],
        },
    )


def launched_by_module(profile: Profile) -> dict[str, int]:
    """Device time in ns of the activities that were launched or captured in each range or op."""
    events = annotated(profile.events, captured=False)
    steps = windows(events, captured=False)
    made = [
        row for name in ("modules", "ops") for row in TABLES[name].of(events, steps).to_pylist()
    ]
    return {row["name"]: row["device_total_ns"] for row in made}


def test_kernels_of_a_graph_belong_to_the_module_in_which_they_were_captured(
    tmp_path: Path,
) -> None:
    profile = graph(tmp_path, created=(14, 35))
    assert by_name(profile, "graph_node_id")["cudaGraphLaunch"] is None
    # k0 takes 10 ns, k1 12 ns, and each is replayed twice
    assert launched_by_module(profile) == {"Net": 44, "LSTM": 20, "aten::mm": 20}


@pytest.mark.parametrize(
    ("created", "pid"),
    [((41, 42), 7), ((46, 47), 7), ((14, 35), 8)],
    ids=["as the capture ends", "after the capture", "replays of another process"],
)
def test_without_the_captured_calls_kernels_belong_to_the_graphs_launch(
    tmp_path: Path, created: tuple[int, int], pid: int
) -> None:
    launched = launched_by_module(graph(tmp_path, created, pid))
    assert launched == {"Net": 0, "LSTM": 0, "aten::mm": 0}


def test_nodes_that_are_clones_of_each_other_end_the_search(tmp_path: Path) -> None:
    node = {"start": 3, "end": 3, "globalTid": thread(7)}
    profile = read_tables(
        tmp_path,
        **{
            "StringIds": strings(),
            KERNELS: [kernel(10, 20, 1, graphNodeId=5)],
            "CUDA_GRAPH_NODE_EVENTS": [
                {**node, "graphNodeId": 5, "originalGraphNodeId": 6},
                {**node, "graphNodeId": 6, "originalGraphNodeId": 5},
            ],
        },
    )
    assert column(profile, "graph_node_id") == [6]


def test_activities_have_the_process_that_their_correlation_is_of(tmp_path: Path) -> None:
    # process 7  |-launch->|  |-k0->|                 GPU 0
    # process 8        |-launch-->|        |-k1->|    GPU 1
    profile = read_tables(
        tmp_path,
        **{
            "StringIds": strings(n5="k0", n6="k1"),
            KERNELS: [
                kernel(12, 20, 4, pid=7, demangledName=5),
                kernel(30, 40, 4, pid=8, demangledName=6, deviceId=1),
            ],
            CALLS: [call(0, 10, 4, pid=7), call(5, 15, 4, pid=8)],
        },
    )
    assert column(profile, "pid") == [7, 8, 7, 8]
    assert column(profile, "correlation_id") == [4, 4, 4, 4]
    assert column(profile, "device") == [None, None, 0, 1]


def test_device_0_of_two_processes_may_be_two_gpus(tmp_path: Path) -> None:
    # CUDA_VISIBLE_DEVICES=2 in process 7 and =3 in process 8: both call their GPU 0
    profile = read_tables(
        tmp_path,
        **{
            "StringIds": strings(n5="k2", n6="k3"),
            KERNELS: [
                kernel(0, 9, 1, pid=7, demangledName=5),
                kernel(0, 9, 1, pid=8, demangledName=6),
            ],
            "TARGET_INFO_GPU": [{"id": 2, "name": "A"}, {"id": 3, "name": "B"}],
            "TARGET_INFO_CUDA_DEVICE": [
                {"gpuId": 2, "cudaId": 0, "pid": 7},
                {"gpuId": 3, "cudaId": 0, "pid": 8},
            ],
        },
    )
    assert by_name(profile, "device") == {"k2": 2, "k3": 3}
    assert profile.device_names == {2: "A", 3: "B"}


def test_a_process_keeps_its_own_device_numbers_where_they_say_which_gpu(tmp_path: Path) -> None:
    tables = {
        "StringIds": strings(),
        KERNELS: [kernel(0, 9, 1)],
        "TARGET_INFO_GPU": [
            {"id": 1, "name": "B", "cuDevice": 0},
            {"id": 0, "name": "A", "cuDevice": 1},
        ],
    }
    assert read_tables(tmp_path, **tables).device_names == {0: "B", 1: "A"}
    tables["TARGET_INFO_CUDA_DEVICE"] = [{"gpuId": 1, "cudaId": 0, "pid": 7}]
    profile = read_tables(tmp_path, **tables)
    assert (profile.device_names, column(profile, "device")) == ({0: "B"}, [0])


def test_thirteen_columns_are_enough(tmp_path: Path) -> None:
    # no globalPid, no graphNodeId, no contextId: joined by correlation id alone
    kept = ("start", "end", "deviceId", "streamId", "correlationId", "demangledName")
    profile = read_tables(
        tmp_path,
        **{
            "StringIds": strings(),
            KERNELS: [{key: kernel(20, 30, 9)[key] for key in kept}],
            CALLS: [call(0, 10, 9)],
        },
    )
    assert column(profile, "pid") == [7, None]
    assert (profile.base_ns, profile.device_names, profile.metadata) == (None, {}, {})
    assert (profile.notes, next(iter(lacks(profile)))) == ((), "no framework ops")


def test_launches_lost_by_trimming_are_counted(tmp_path: Path) -> None:
    # process 7 |-launch 1->|      process 8 has correlation 2, process 7 has lost its own
    profile = read_tables(
        tmp_path,
        **{
            "StringIds": strings(),
            KERNELS: [kernel(20, 30, 1), kernel(40, 50, 2)],
            CALLS: [call(0, 10, 1), call(0, 10, 2, pid=8)],
            "NVTX_EVENTS": [nvtx(0, 50, "forward")],
        },
    )
    assert lacks(profile)["kernels without a launch call"].sentence.startswith("1 of 2 GPU act")


def test_copies_memsets_and_waits(tmp_path: Path) -> None:
    place = {
        key: kernel(0, 9, 3)[key] for key in ("deviceId", "contextId", "streamId", "globalPid")
    }
    profile = read_tables(
        tmp_path,
        **{
            "CUPTI_ACTIVITY_KIND_MEMCPY": [
                {
                    "start": 0,
                    "end": 4,
                    **place,
                    "bytes": 64,
                    "copyKind": 1,
                    "srcKind": 1,
                    "dstKind": 2,
                },
                {
                    "start": 4,
                    "end": 5,
                    **place,
                    "bytes": 0,
                    "copyKind": 8,
                    "srcKind": 2,
                    "dstKind": 2,
                },
                {"start": 5, "end": 6, **place, "copyKind": 12},
            ],
            "CUPTI_ACTIVITY_KIND_MEMSET": [
                {"start": 6, "end": 7, **place, "bytes": 8, "memKind": 2, "graphNodeId": 5}
            ],
            SYNCS: [{"start": 1, "end": 9, **place, "streamId": 2**32 - 1, "syncType": 4}],
        },
    )
    assert by_name(profile, "kind") == {
        "Memcpy HtoD (Pinned -> Device)": "memcpy",
        "Memcpy DtoD (Device -> Device)": "memcpy",
        "Memcpy UVM DtoH": "memcpy",
        "Memset (Device)": "memset",
        "Context Synchronize": "device_sync",
    }
    assert list(by_name(profile, "bytes").values()) == [64, None, 0, None, 8]
    assert by_name(profile, "graph_node_id")["Memset (Device)"] == 5
    assert by_name(profile, "stream")["Context Synchronize"] is None


def test_a_wait_is_on_the_device_of_its_context(tmp_path: Path) -> None:
    # process 8 runs on GPU 1, in context 2; its waits are written with device 0
    profile = read_tables(
        tmp_path,
        **{
            "StringIds": strings(),
            KERNELS: [kernel(0, 9, 1, pid=8, deviceId=1, contextId=2)],
            SYNCS: [kernel(5, 9, 2, pid=8, contextId=2, syncType=2), kernel(6, 9, 3, syncType=3)],
        },
    )
    devices = by_name(profile, "device")
    assert (devices["Stream Wait Event"], devices["Stream Synchronize"]) == (1, 0)


def test_a_cuda_graph_traced_whole_is_one_activity(tmp_path: Path) -> None:
    profile = read_tables(
        tmp_path,
        **{
            "StringIds": strings(),
            "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": [{**kernel(10, 90, 1), "graphId": 3}],
            CALLS: [call(0, 8, 1)],
            "NVTX_EVENTS": [nvtx(0, 90, "forward")],
        },
    )
    assert by_name(profile, "kind")["CUDA graph 3"] == "kernel"
    assert profile.notes == (
        "the kernels of 1 CUDA graphs were not recorded; add --cuda-graph-trace=node to nsys",
    )


def test_overheads_are_the_profilers_while_the_program_ran(tmp_path: Path) -> None:
    # ns             0      50      100     120 130    150     200    250
    # profiler       |-start->|               |-flush->|          |-end->|
    # host                           |-launch----------->|
    # host                              |-full queue->|  (CUDA's own)
    host = {"globalTid": thread(7)}
    profile = read_tables(
        tmp_path,
        **{
            "StringIds": strings(n5="start", n6="Buffer Flush", n7="Command Buffer Full", n8="end"),
            CALLS: [call(100, 160, 1)],
            "PROFILER_OVERHEAD": [
                {"start": 0, "end": 50, "nameId": 5, **host},
                {"start": 130, "end": 150, "nameId": 6, **host},
                {"start": 200, "end": 250, "nameId": 8, **host},
            ],
            "CUPTI_ACTIVITY_KIND_OVERHEAD": [{"start": 110, "end": 140, "nameId": 7, **host}],
        },
    )
    assert by_name(profile, "kind") == {
        "cudaLaunchKernel": "runtime",
        "Command Buffer Full": "runtime",
        "Buffer Flush": "overhead",
    }
    assert column(profile, "start_ns") == [0, 10, 30]


def test_ranges_by_type_and_those_left_open(tmp_path: Path) -> None:
    # 0         10        20        30
    # |-a (60)------------|
    #      |-b, never popped--------:
    #           |-c (59)--|    x mark (34)
    rows = [
        nvtx(0, 20, "a", eventType=60),
        nvtx(5, None, "b"),
        nvtx(10, 20, "c"),
        nvtx(30, None, "mark", eventType=34),
    ]
    listed = [{"id": 59, "name": "NvtxPushPopRange"}, {"id": 60, "name": "NvtxStartEndRange"}]
    for types in ({}, {"ENUM_NSYS_EVENT_TYPE": listed}):
        profile = read_tables(tmp_path, NVTX_EVENTS=rows, **types)
        assert by_name(profile, "dur_ns") == {"a": 20, "b": 15, "c": 10}
        assert profile.notes[0].startswith("1 NVTX ranges were still open")
    untyped = [{key: row[key] for key in ("start", "end", "text", "globalTid")} for row in rows]
    assert by_name(read_tables(tmp_path, NVTX_EVENTS=untyped), "dur_ns") == {"a": 20, "c": 10}


def test_what_is_missing_is_said_with_how_to_record_it(tmp_path: Path) -> None:
    only_ranges = read_tables(tmp_path, NVTX_EVENTS=[nvtx(0, 9, "reader")])
    record = "profile with nsys profile --trace=cuda,nvtx"
    assert lacks(only_ranges)["ranges without ops"].sentence.endswith(record)
    warning = "CUDA profiling might have not been started correctly."
    no_activity = read_tables(
        tmp_path,
        **{CALLS: [call(0, 9, 1)], "StringIds": strings()},
        DIAGNOSTIC_EVENT=[
            {"severity": 2, "text": warning},
            {"severity": 1, "text": "CUDA injection initialized successfully."},
            {"severity": 3, "text": "No OpenGL events collected."},
        ],
    )
    assert no_activity.gpu_complaint == warning
    sentence = lacks(no_activity)["no GPU activity"].sentence
    assert f"the profiler logged: {warning}" in sentence
    assert sentence.endswith(record)


def test_a_session_without_events_is_refused(tmp_path: Path) -> None:
    overhead = [{"start": 0, "end": 9, "nameId": 1, "globalTid": thread(7)}]
    for tables in ({}, {KERNELS: [{"start": None}]}, {"PROFILER_OVERHEAD": overhead}):
        with pytest.raises(ProfileError, match="has no CUDA call and no NVTX range; profile with"):
            read_tables(tmp_path, StringIds=strings(), **tables)


@pytest.mark.parametrize(
    ("text", "kind", "name", "external_id", "shapes"),
    [
        ("step", "step", "step", None, None),
        ("ProfilerStep#7, op_id = 3", "step", "ProfilerStep#7", None, None),
        ("forward, op_id = 3", "range", "forward", None, None),
        ("Optimizer.step#Adam.step, op_id = 3", "range", "Optimizer.step#Adam.step", None, None),
        ("aten::mm, seq = 7, op_id = 9", "op", "aten::mm", 9, None),
        ("aten::mm, op_id = 9, input_op_ids = [(1,0)]", "op", "aten::mm", 9, None),
        ("aten::mm, seq = 7, sizes = [[1, 2], [[3]]]", "op", "aten::mm", None, "[[1,2],[[3]]]"),
        ("aten::mm, sizes = [[1, 2]", "op", "aten::mm", None, None),
        ("mm, seq = 7", "op", "aten::mm", None, None),
        ("MmBackward, seq = 7", "op", "MmBackward", None, None),
        ("torch::autograd::AccumulateGrad", "op", "torch::autograd::AccumulateGrad", None, None),
        ("flash_attn::forward, op_id = 9", "op", "flash_attn::forward", 9, None),
        ("executor_utils::bind", "range", "executor_utils::bind", None, None),
        ("FusionCache::get", "range", "FusionCache::get", None, None),
        ("batch 3, seq = 7, later", "range", "batch 3, seq = 7, later", None, None),
        ("{'mod': 'torch', 'op': 'cat', 'args': []}", "range", "torch.cat", None, None),
        (
            "{'traceMarker': ['/home/model.py:33', '/opt/pyprof/nvtx/nvmarker.py:115']}",
            *("range", "model.py:33", None, None),
        ),
        ("{'traceMarker': ['x.py']}", "range", "{'traceMarker': ['x.py']}", None, None),
        ("{'other': 1}", "range", "{'other': 1}", None, None),
    ],
)  # fmt: skip
def test_what_a_range_says(
    text: str, kind: str, name: str, external_id: int | None, shapes: str | None
) -> None:
    assert nvtx_range(text) == (kind, name, external_id, shapes)


def test_kernels_are_named_by_the_best_name_there_is(tmp_path: Path) -> None:
    rows = [
        kernel(0, 1, 1),
        kernel(1, 2, 2, demangledName=99),
        kernel(2, 3, 3, demangledName=99, shortName=None, mangledName=4),
        kernel(3, 4, 4, demangledName=99, shortName=99),
    ]
    profile = read_tables(tmp_path, **{"StringIds": strings(), KERNELS: rows})
    assert column(profile, "name") == ["void gemm<float>(float*)", "gemm", "step", "unnamed"]


def test_impossible_rows_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [
        kernel(0, 9, 1),
        kernel(9, 3, 2),
        kernel(0, 2**62, 3),
        kernel(-(2**63), 5, 4),
        {**kernel(0, 9, 5), "start": "0"},
        {**kernel(0, 9, 6), "end": 9.5},
        {**kernel(0, 9, 7), "end": b"\x09"},
        {**kernel(1, 9, -(2**63)), "deviceId": "x", "streamId": -1, "globalPid": "?"},
    ]
    profile = read_tables(tmp_path, **{"StringIds": strings(), KERNELS: rows})
    assert profile.notes[0] == "6 events were left out because their time is invalid"
    assert column(profile, "start_ns") == [0, 1]
    for name, known in (("device", 0), ("stream", 7), ("pid", 7), ("correlation_id", 1)):
        assert column(profile, name) == [known, None]


def test_names_that_are_no_utf8_are_mended(tmp_path: Path) -> None:
    profile = read_tables(
        tmp_path,
        "UPDATE StringIds SET value = CAST(x'67ff6d' AS TEXT) WHERE id = 3",
        **{"StringIds": strings(), KERNELS: [kernel(0, 9, 1)]},
    )
    assert column(profile, "name") == ["g\ufffdm"]


def test_views_virtual_and_generated_columns_are_not_read(tmp_path: Path) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
    profile = read_tables(
        tmp_path,
        f"CREATE VIEW {CALLS} AS {endless} SELECT i AS start, i AS end FROM n",
        "ALTER TABLE NVTX_EVENTS ADD COLUMN globalTid AS (abs(-9223372036854775808))",
        "CREATE VIRTUAL TABLE CUPTI_ACTIVITY_KIND_MEMCPY USING fts5(start, end)",
        **{"StringIds": strings(), KERNELS: [kernel(0, 9, 1)]},
        NVTX_EVENTS=[{"start": 0, "end": 9, "text": "a"}],
    )
    assert by_name(profile, "tid") == {"void gemm<float>(float*)": None, "a": None}


def two_events(folder: Path) -> Path:
    tables = {"StringIds": strings(), KERNELS: [kernel(20, 30, 1)], CALLS: [call(0, 10, 1)]}
    return write(folder / "a %41?mode=rwc#.db", **tables)


def test_a_gzipped_export_and_one_with_a_write_ahead_log(tmp_path: Path) -> None:
    file = two_events(tmp_path)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode = wal")
    plain = file.read_bytes()
    packed = tmp_path / "renamed"
    packed.write_bytes(gzip.compress(plain))
    assert read(packed).events.equals(read(file).events)
    assert (file.read_bytes(), len(list(tmp_path.iterdir()))) == (plain, 2)


def test_a_cut_export_is_refused_with_the_bytes(tmp_path: Path) -> None:
    file = two_events(tmp_path)
    content = file.read_bytes()
    for cut in (len(content) - 1, len(content) // 2):
        file.write_bytes(content[:cut])
        with pytest.raises(ProfileError, match=f"truncated: {cut} of {len(content)} bytes"):
            read(file)


def test_a_scan_without_end_is_damage(tmp_path: Path) -> None:
    # Pages of a table's tree: every cell of the root leads to the same inner page A, every cell of
    # A to B, every one of B to C: 55³ times C's leaves, in a file of 400 pages of 512 bytes.
    file = tmp_path / "loop.db"
    write(file, **{"StringIds": strings(), KERNELS: [kernel(i, i + 9, i) for i in range(2500)]})
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA page_size = 512")
        connection.execute("VACUUM")
        (root,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = ?", (KERNELS,)
        ).fetchone()
    content = bytearray(file.read_bytes())
    inner = [page for page in range(512, len(content), 512) if content[page] == 5]
    chain = [512 * (root - 1), *(page for page in inner if page != 512 * (root - 1))][:4]
    assert len(chain) == 4
    for page, child in itertools.pairwise(chain):
        cells = int.from_bytes(content[page + 3 : page + 5], "big")
        for place in range(page + 12, page + 12 + 2 * cells, 2):
            cell = page + int.from_bytes(content[place : place + 2], "big")
            content[cell : cell + 4] = (child // 512 + 1).to_bytes(4, "big")
    file.write_bytes(content)
    with pytest.raises(ProfileError, match="more rows than fit into the file"):
        read(file)


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False))
def test_a_damaged_export_is_read_or_refused(draw: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = two_events(Path(folder))
        content = bytearray(file.read_bytes())
        for _ in range(draw.randint(1, 8)):
            page = draw.randrange(0, len(content), 4096)
            place = page + draw.choice((draw.randrange(120), draw.randrange(4096)))
            content[place] = draw.randrange(256)
        file.write_bytes(content)
        try:
            read(file).events.validate(full=True)
        except ProfileError as error:
            assert str(error).isprintable()  # noqa: PT017 — most mutants are still profiles


_HEADS = ("aten::mm", "mm", "step", "{'x", "{a", "f (a.b)", "", "a\nb", "MulBackward0", "a, b")
_SEQS = ("", ", seq = 7", ", seq = x", ", seq = \u0663")
_IDS = ("", *(f", op_id = {n}" for n in (0, 5, 10**17, 10**18, -3, "\u0663", "5, op_id = 6")))
_SIZES = ("", ", sizes = [[2, 3], []]", ", sizes = [[2", ", sizes = [a]")
_INPUTS = ("", ", input_op_ids = [(1,0)]", ", input_op_ids = [\n]", ", other")


def test_texts_of_nvtx_read_together_say_what_each_says_alone() -> None:
    texts = ["".join(t) for t in itertools.product(_HEADS, _SEQS, _IDS, _SIZES, _INPUTS)]
    batch = nvtx_ranges({}, pa.array(texts))
    ids = pa.array(batch.ints["external_id"], mask=batch.ints["external_id"] == UNKNOWN)
    kind, name, shapes = (batch.texts[column] for column in ("kind", "name", "shapes"))
    found = zip(*(column.to_pylist() for column in (kind, name, ids, shapes)), strict=True)
    assert list(found) == [nvtx_range(text) for text in texts]


def test_a_database_of_the_largest_pages_is_as_long_as_these(tmp_path: Path) -> None:
    file = tmp_path / "large.sqlite"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("PRAGMA page_size = 65536")
        connection.execute("CREATE TABLE a (b)")
    content = file.read_bytes()
    assert content[16:18] == b"\x00\x01"  # so SQLite writes it
    _check_length(raw_of_bytes(file, content))
    with pytest.raises(ProfileError, match=f"truncated: {len(content) - 1} of {len(content)} by"):
        _check_length(raw_of_bytes(file, content[:-1]))


MEMORY = "CUDA_GPU_MEMORY_USAGE_EVENTS"
DEVICE, PINNED = 2, 1


def allocation(start: int, size: int | None, operation: int = 0, **more: Any) -> dict[str, Any]:
    return {
        **{"start": start, "globalPid": process(7), "deviceId": 0, "contextId": 1, "address": 64},
        **{"bytes": size, "memKind": DEVICE, "memoryOperationType": operation, **more},
    }


def test_allocations_and_frees_are_changes_of_memory(tmp_path: Path) -> None:
    profile = read_tables(
        tmp_path,
        **{
            "StringIds": strings(),
            KERNELS: [kernel(100, 120, 1)],
            MEMORY: [
                allocation(90, 512),
                allocation(130, 512, 1),
                allocation(110, 4096, memKind=PINNED),
                allocation(120, 64, deviceId=1, globalPid=None),
                allocation(125, None),
                allocation(126, 8, 5),
            ],
        },
    )
    rows = profile.counters.table().to_pylist()
    assert [(r["time_ns"], r["pid"], r["device"], r["value"]) for r in rows] == [
        (-10, 7, 0, 512.0),
        (10, 7, None, 4096.0),
        (20, None, 1, 64.0),
        (30, 7, 0, -512.0),
    ]
    assert {(r["name"], r["unit"]) for r in rows} == {("memory change", "bytes")}
    assert "2 allocations or frees without time, size or kind were left out" in profile.notes


def test_many_of_them_go_through_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = {
        "StringIds": strings(),
        KERNELS: [kernel(100, 120, 1)],
        MEMORY: [allocation(200 - 7 * n % 50, n) for n in range(40)],
    }
    whole = read_tables(tmp_path, **tables).counters.table()
    monkeypatch.setattr(counters, "BATCH_ROWS", 8)
    (tmp_path / "again").mkdir()
    parts = read_tables(tmp_path / "again", **tables).counters
    assert len(list(parts.batches())) > 2
    assert parts.table().to_pylist() == whole.to_pylist()


OF_SIZES = {"gridX": 80, "gridY": 2, "gridZ": 1, "blockX": 128, "blockY": 1, "blockZ": 1}
WITH_MEMORY = {"registersPerThread": 32, "staticSharedMemory": 1024, "dynamicSharedMemory": 3072}


def test_a_kernel_says_what_it_was_launched_with(tmp_path: Path) -> None:
    kernels = [
        kernel(0, 5, 1, **OF_SIZES, **WITH_MEMORY),
        kernel(10, 15, 2, **OF_SIZES, **{**WITH_MEMORY, "dynamicSharedMemory": 0}),
        kernel(20, 25, 3, **OF_SIZES, **{**WITH_MEMORY, "staticSharedMemory": None}),
        kernel(30, 35, 4, **{**OF_SIZES, "gridX": 0}, **WITH_MEMORY),
        kernel(40, 45, 5, **OF_SIZES, **WITH_MEMORY),
    ]
    profile = read_tables(tmp_path, StringIds=strings(), **{KERNELS: kernels})
    sizes = '{"grid":[80,2,1],"block":[128,1,1],"registers":32'
    whole = sizes + ',"shared_bytes":4096,"dynamic_shared_bytes":3072}'
    static = sizes + ',"shared_bytes":1024,"dynamic_shared_bytes":0}'
    assert column(profile, "launch_config") == [whole, static, sizes + "}", None, whole]
