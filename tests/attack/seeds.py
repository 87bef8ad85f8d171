"""Small valid profiles of every format that is read, and a run: what the attack begins with.

A seed of a few events is read in milliseconds, so that many inputs are tried; beside it stands the
profile that the simulator draws in the layout of a real profiler, with every kind of event.
"""

from __future__ import annotations

import functools
import gzip
import io
import json
import pickle
import sqlite3
import tarfile
import tempfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
from formats import perfetto_traces as traces, rocpd_databases
from simulator.write_profiles import FOLDER

from lstmprof.breakdown import break_down
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.calls import coverage
from lstmprof.events.annotate.recorded import recorded
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import events_table
from lstmprof.export import perfetto as export
from lstmprof.formats.xplane import schema
from lstmprof.runs.fields import ITERATIONS
from lstmprof.runs.metadata import run_info
from lstmprof.runs.run import TIMINGS_SCHEMA, open_run, write_tables

_GPU_DEVICE = {"id": 0, "name": "GPU", "computeMajor": 9, "computeMinor": 0, "numSms": 132}
#: Chosen so that sums of them leave neither 2^53 nor int64.
_EPOCH_US = 1_795_307_814_495_283
_EPOCH_NS = _EPOCH_US * 1000


def _event(name: str, ts: Any, dur: Any, pid: Any = 1, tid: Any = 1, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "ts": ts, "dur": dur, "pid": pid, "tid": tid, **more}


def _named(kind: str, name: str, pid: int, tid: int = 0) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


def kineto() -> list[bytes]:
    """Kineto's JSON: a step with an op, its launch, its kernel, and what stands beside them."""
    op = {"External id": 3, "Input Dims": [[2, 3]], "Input type": ["float"], "Sequence number": 1}
    device = {"device": 0, "stream": 7, "correlation": 4, "External id": 3, "bytes": 12}
    backward = {"External id": 4, "Sequence number": 1, "Fwd thread id": 1}
    events = [
        _event("ProfilerStep#1", 0.5, 40, cat="user_annotation", args={"External id": 1}),
        _event("ProfilerStep#2", 41, 20.125, cat="user_annotation", args={"External id": 2}),
        _event("aten::mm", 1.5, 9.001, cat="cpu_op", args=op),
        _event("autograd::engine::x: MmBackward0", 12, 5, tid=2, cat="cpu_op", args=backward),
        _event("cudaLaunchKernel", 2, 3, cat="cuda_runtime", args={"correlation": 4, "cbid": 211}),
        _event("gemm", 7.25, 22, 0, 7, cat="kernel", args={**device, "graph node id": 1}),
        _event("Memcpy HtoD", 30, 2, 0, 7, cat="gpu_memcpy", args={**device, "correlation": 5}),
        _event("ProfilerStep#1", 7, 25, 0, 7, cat="gpu_user_annotation", args={"External id": 1}),
        _event("torch/nn.py(1): f", 1, 20, cat="python_function", args={"Python id": 1}),
        {"ph": "s", "id": 4, "pid": 1, "tid": 1, "ts": 2, "cat": "ac2g", "name": "ac2g"},
        {"ph": "f", "id": 4, "pid": 0, "tid": 7, "ts": 7.25, "cat": "ac2g", "name": "ac2g"},
        _named("process_name", "python3", 1),
    ]
    header = {"schemaVersion": 1, "deviceProperties": [_GPU_DEVICE], "distributedInfo": {"rank": 0}}
    header |= {"baseTimeNanoseconds": _EPOCH_NS, "traceName": "x.json", "displayTimeUnit": "ms"}
    return [_json({**header, "traceEvents": events}), _json(events), _simulated("kineto-2021")]


def autograd() -> list[bytes]:
    """The bare list of ``torch.autograd.profiler``."""
    host, device = {"pid": "CPU functions"}, {"pid": "CUDA functions"}
    events = [
        _event("step", 0.0, 70.5, **host, args={}),
        _event("addmm", 6.0, 8.5, **host, args={}),
        _event("AddmmBackward", 20.0, 15.25, **host, args={}),
        _event("addmm", 9.0, 30.0, **device, args={}),
        {"ph": "s", "id": 1, "ts": 6.0, "cat": "cpu_to_cuda", "name": "f", "tid": 0, **host},
    ]
    return [_json(events)]


def memory_snapshot() -> list[bytes]:
    """The pickle of PyTorch's allocator, by the protocols of old and new versions of Python."""
    frames = [{"name": "f", "filename": "a.py", "line": 3}]
    shared = {"size": 512, "stream": 0, "time_us": _EPOCH_US, "frames": frames}
    history = [
        {"action": action, "addr": 4096 + n // 3, **shared}
        for n, action in enumerate(("segment_alloc", "alloc", "alloc", "free_requested"))
    ]
    block = {"size": 512, "requested_size": 512, "state": "active_allocated", "frames": frames}
    segment = {"device": 0, "total_size": 2048, "pool": (0, 0), "blocks": [block], "large": False}
    content = {"segments": [segment], "device_traces": [history, []], "settings": {"share": 0.5}}
    return [pickle.dumps(content, protocol) for protocol in (2, 4)]


def mxnet() -> list[bytes]:
    """MXNet's begins and ends, whose threads are beyond 2^53."""
    place = {"pid": 0, "tid": 10060037252116229269, "cat": "operator"}
    call = {"cat": "MXNET_C_API", "pid": 849786139768988538, "tid": 3236888163413093494}
    task = {**call, "cat": "lstmprof", "name": "step", "id": 1}
    events = [
        {"ph": "M", "args": {"name": "cpu/0"}, "pid": 0, "name": "process_name"},
        {"ph": "b", "ts": _EPOCH_US, **task},
        {"ph": "b", "ts": _EPOCH_US + 5, "name": "MXImperativeInvokeEx", "id": 2, **call},
        {"ph": "e", "ts": _EPOCH_US + 20, "name": "MXImperativeInvokeEx", "id": 2, **call},
        {"ph": "B", "ts": _EPOCH_US + 10, "name": "FullyConnected", **place},
        {"ph": "E", "ts": _EPOCH_US + 40, "name": "FullyConnected", **place},
        {"ph": "e", "ts": _EPOCH_US + 90, **task},
    ]
    return [_json({"traceEvents": events, "displayTimeUnit": "ms"})]


def onnxruntime() -> list[bytes]:
    """ONNX Runtime's nodes within a run of the model."""
    shapes = [{"float": [20, 4, 12]}, {"float": [2, 128]}]
    node = {"provider": "CPUExecutionProvider", "op_name": "LSTM", "input_type_shape": shapes}
    events = [
        _event("model_loading_array", 5, 600, cat="Session", args={}),
        _event("lstm_kernel_time", 726, 251, cat="Node", args=node),
        _event("mean_fence_before", 980, 0, cat="Node", args={"op_name": "ReduceMean"}),
        _event("SequentialExecutor::Execute", 722, 343, cat="Session", args={}),
        _event("model_run", 700, 373, cat="Session", args={}),
    ]
    return [_json(events)]


def trace_viewer() -> list[bytes]:
    """TensorFlow's trace viewer: names of processes and threads say what an event is."""
    events = [
        _named("process_name", "/device:GPU:0", 1),
        _named("thread_name", "Stream #7(Compute)", 1, 7),
        _named("thread_name", "TensorFlow Ops", 1, 8),
        _named("process_name", "/host:CPU", 2),
        _named("thread_name", "python", 2, 5),
        _event("train 1", 1.5, 12.25, 2, 5, args={"step_num": "1", "group_id": "0"}),
        _event("cuLaunchKernel", 2, 1, 2, 5, args={"correlation_id": "4"}),
        _event("gemm", 4, 3, 1, 7, args={"correlation_id": "4", "tf_op": "dense/MatMul:MatMul"}),
        _event("MemcpyH2D", 8, 3, 1, 7, args={"memcpy_details": "size:12", "correlation_id": "5"}),
        _event("dense/MatMul", 4, 3, 1, 8),
        {},
    ]
    return [_json({"displayTimeUnit": "ns", "metadata": {}, "traceEvents": events})]


def tf1_timeline() -> list[bytes]:
    """The timeline of TensorFlow 1: one process a device, ops in it by node and kind."""
    job = "/job:localhost/replica:0/task:0"
    op = {"name": "dense/MatMul", "op": "MatMul", "input0": "x"}
    events = [
        _named("process_name", f"{job}/device:CPU:0 Compute", 1),
        _named("process_name", "/gpu:0/stream:7 Compute", 2),
        _named("process_name", f"{job}/device:GPU:0 Compute", 3),
        _named("process_name", "/gpu:0/stream:all Compute", 4),
        _event("MatMul", 5, 2, 1, 0, cat="Op", args=op),
        _event("MatMul", 8, 3, 2, 0, cat="Op", args={**op, "name": "dense/MatMul:MatMul"}),
        _event("MatMul", 6, 2, 3, 0, cat="Op", args=op),
        _event("MatMul", 8, 3, 4, 0, cat="Op", args=op),
        {"ph": "s", "id": 1, "pid": 1, "tid": 0, "ts": 5, "cat": "DataFlow", "name": "MatMul"},
    ]
    return [_json({"traceEvents": events})]


def xplane() -> list[bytes]:
    """An XSpace of a host and a GPU, and the one that the simulator writes."""
    space = schema.xspace()(errors=[b"no libcupti"], hostnames=[b"trainer-0"])
    for name, line in (("/host:CPU", "python"), ("/device:GPU:0", "Stream #1(Compute)")):
        plane = space.planes.add(id=1, name=name.encode())
        plane.event_metadata.add(key=1, value={"id": 1, "name": b"gemm"})
        for number, stat in enumerate((b"memcpy_details", b"correlation_id", b"tf_op"), 1):
            plane.stat_metadata.add(key=number, value={"id": number, "name": stat})
        events = plane.lines.add(id=3, name=line.encode(), timestamp_ns=1000).events
        event = events.add(metadata_id=1, offset_ps=5000, duration_ps=7000)
        event.stats.add(metadata_id=1, str_value=b"size:12")
        event.stats.add(metadata_id=2, uint64_value=4)
        event.stats.add(metadata_id=3, ref_value=2)
    without_memory = bytes(space.SerializeToString())
    _add_memory(space.planes[0])
    return [without_memory, bytes(space.SerializeToString()), _simulated("tensorflow")]


def _add_memory(plane: Any) -> None:
    """An allocation and a free on the first line of ``plane``."""
    stats = (b"allocator_name", b"bytes_allocated", b"allocation_bytes", b"index_on_host")
    for number, stat in enumerate(stats, 4):
        plane.stat_metadata.add(key=number, value={"id": number, "name": stat})
    for number, name in enumerate((b"MemoryAllocation", b"MemoryDeallocation"), 2):
        plane.event_metadata.add(key=number, value={"id": number, "name": name})
        event = plane.lines[0].events.add(metadata_id=number, offset_ps=5000 * number)
        event.stats.add(metadata_id=4, str_value=b"GPU_0_bfc")
        event.stats.add(metadata_id=5, int64_value=512)
        event.stats.add(metadata_id=6, uint64_value=256)
        event.stats.add(metadata_id=7, int64_value=0)


def perfetto() -> list[bytes]:
    """Perfetto traces: of Kineto's builder, of rocprofv3, plain and compressed, and our export."""
    made = [traces.rocprofv3(), traces.kineto(), traces.compressed(traces.rocprofv3())]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "run"
        place.mkdir()
        for name, content in run_files().items():
            (place / name).write_bytes(content)
        exported = Path(folder) / "x.pftrace"
        export.write(break_down(open_run(place), None, ("ledger",)), exported)
        return [*(bytes(trace.SerializeToString()) for trace in made), exported.read_bytes()]


def nsys() -> list[bytes]:
    """Nsight Systems' database: a call, a kernel, a copy, ranges, a metric."""
    kind, thread = "CUPTI_ACTIVITY_KIND_", 1 << 48 | 9 << 24 | 11
    place = {"deviceId": 0, "contextId": 1, "streamId": 7, "globalPid": 1 << 48 | 9 << 24}
    strings = ["cudaLaunchKernel_v7000", "gemm", "step", "cudaMemcpyAsync_v3020"]
    call = {"start": 20, "end": 35, "globalTid": thread, "nameId": 1, "correlationId": 9}
    ranges = {"eventType": 59, "globalTid": thread, "domainId": 0, "textId": None}
    tables = {
        f"{kind}RUNTIME": [call, {**call, "start": 40, "end": 44, "nameId": 4, "correlationId": 8}],
        f"{kind}KERNEL": [
            {"start": 50, "end": 80, **place, "correlationId": 9, "shortName": 2, "graphNodeId": 5}
        ],
        f"{kind}MEMCPY": [
            {"start": 81, "end": 90, **place, "correlationId": 8, "bytes": 12, "copyKind": 1}
        ],
        "CUDA_GRAPH_NODE_EVENTS": [
            {"start": 25, "globalTid": thread, "graphNodeId": 4, "originalGraphNodeId": None},
            {"start": 41, "globalTid": thread, "graphNodeId": 5, "originalGraphNodeId": 4},
        ],
        "NVTX_EVENTS": [
            {"start": 0, "end": 100, "text": "step", **ranges},
            {"start": 10, "end": 40, "text": "aten::mm, op_id = 3", **ranges},
        ],
        "StringIds": [{"id": number, "value": text} for number, text in enumerate(strings, 1)],
        "TARGET_INFO_GPU": [{"id": 0, "name": "GPU", "smCount": 132}],
        "META_DATA_EXPORT": [{"name": "EXPORT_SCHEMA_VERSION", "value": "3.17.1"}],
        "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": _EPOCH_NS}],
        "PROFILER_OVERHEAD": [{"start": 1, "end": 3, "globalTid": thread, "nameId": 3}],
        "GPU_METRICS": [{"timestamp": 60, "typeId": 1 << 48, "metricId": 3, "value": 40}],
        "TARGET_INFO_GPU_METRICS": [{"typeId": 1 << 48, "metricId": 3, "metricName": "SMs Active"}],
    }
    return [_database(tables)]


def nvprof() -> list[bytes]:
    """nvprof's database: a call, a kernel, a marker's two ends, overhead."""
    kind = "CUPTI_ACTIVITY_KIND_"
    thread = (9).to_bytes(4, "little") + (11).to_bytes(4, "little") + bytes(4)
    place = {"deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": 9}
    marker = {"id": 1, "name": 2, "objectKind": 2, "objectId": thread}
    tables = {
        "StringTable": [
            {"_id_": 0, "value": "-- null --"},
            {"_id_": 1, "value": "_Z4gemmPf"},
            {"_id_": 2, "value": "step"},
        ],
        f"{kind}CONCURRENT_KERNEL": [
            {"start": _EPOCH_NS + 50, "end": _EPOCH_NS + 80, **place, "name": 1}
        ],
        f"{kind}RUNTIME": [
            {"start": _EPOCH_NS + 20, "end": _EPOCH_NS + 35, "correlationId": 9, "cbid": 211}
            | {"processId": 9, "threadId": 11}
        ],
        f"{kind}MEMCPY": [
            {"start": _EPOCH_NS + 82, "end": _EPOCH_NS + 90, **place, "bytes": 12, "copyKind": 1}
        ],
        f"{kind}MARKER": [
            {"flags": 2, "timestamp": _EPOCH_NS, **marker},
            {"flags": 4, "timestamp": _EPOCH_NS + 100, **marker},
        ],
        f"{kind}OVERHEAD": [
            {"start": _EPOCH_NS + 1, "end": _EPOCH_NS + 3, "overheadKind": 1}
            | {"objectKind": 2, "objectId": thread}
        ],
        f"{kind}DEVICE": [{"id": 0, "name": 1, "numMultiprocessors": 80}],
    }
    return [_database(tables)]


def rocprofv3() -> list[bytes]:
    """rocprofv3's JSON: a kernel, a copy, their calls, a range, on two GPUs' agents."""
    clock = 7_000_000_000
    ids = {number: {"internal": number, "external": 0} for number in (1, 2, 3)}

    def record(kind: int, number: int, start: int, end: int, **more: Any) -> dict[str, Any]:
        times = {"start_timestamp": clock + start, "end_timestamp": clock + end}
        place = {"thread_id": 12, "correlation_id": ids[number]}
        return {"size": 56, "kind": kind, "operation": 1, **place, **times, **more}

    kinds = {
        "NONE": ["NONE"],
        "HIP_RUNTIME_API": ["NONE", "hipLaunchKernel"],
        "MARKER_CORE_API": ["roctxMarkA", "roctxThreadRangeA"],
        "KERNEL_DISPATCH": ["NONE", "KERNEL_DISPATCH_COMPLETE"],
        "MEMORY_COPY": ["MEMORY_COPY_NONE", "MEMORY_COPY_HOST_TO_DEVICE"],
    }
    ends = {"dst_agent_id": {"handle": 91}, "src_agent_id": {"handle": 90}, "bytes": 64}
    info = {"agent_id": {"handle": 91}, "queue_id": {"handle": 2}, "kernel_id": 5}
    process = {
        "metadata": {"pid": 9, "init_time": clock, "fini_time": clock + 999},
        "agents": [
            {"id": {"handle": 92}, "type": 2, "node_id": 2, "name": "gfx942", "cu_count": 304},
            {"id": {"handle": 90}, "type": 1, "node_id": 0, "name": "CPU"},
            {"id": {"handle": 91}, "type": 2, "node_id": 1, "product_name": "AMD Instinct MI300X"},
        ],
        "strings": {
            "buffer_records": [{"kind": k, "operations": ops} for k, ops in kinds.items()],
            "marker_api": [{"key": 1, "value": "step 0"}],
        },
        "kernel_symbols": [{"kernel_id": 5, "formatted_kernel_name": "Cijk_Ailk_MT64(float*)"}],
        "buffer_records": {
            "kernel_dispatch": [record(3, 2, 50, 80, dispatch_info=info)],
            "memory_copy": [record(4, 3, 30, 45, **ends)],
            "hip_api": [record(1, 2, 20, 28), record(1, 3, 10, 18)],
            "marker_api": [record(2, 1, 0, 100)],
        },
    }
    return [_json({"rocprofiler-sdk-tool": [process]})]


def rocprofv3_csv() -> list[bytes]:
    """rocprofv3's CSV of kernels: two kernels of one agent and one of another."""
    columns = "Kind,Agent_Id,Queue_Id,Stream_Id,Thread_Id,Dispatch_Id,Kernel_Id,Kernel_Name"
    columns += ",Correlation_Id,Start_Timestamp,End_Timestamp"
    columns += "".join(f",{of}_Size_{axis}" for of in ("Workgroup", "Grid") for axis in "XYZ")
    lines = [",".join(f'"{column}"' for column in columns.split(","))]
    for number, (agent, name, start, end) in enumerate(
        (
            ("Agent 10", "void mul_mat_q<(ggml_type)12, 64>(char const*, float*)", 50, 80),
            ("Agent 2", "rms_norm_f32(float const*, float*)", 30, 45),
            ("Agent 2", "rms_norm_f32(float const*, float*)", 90, 95),
        ),
        start=1,
    ):
        values = ["KERNEL_DISPATCH", agent, 3, 4, 12, number, 5, name, number]
        values += [7_000_000_000 + start, 7_000_000_000 + end, 256, 2, 1, 1000, 4, 1]
        lines.append(",".join(f'"{value}"' for value in values))
    return ["\n".join([*lines, ""]).encode()]


def rocpd() -> list[bytes]:
    """rocprofv3's database of the same process, and of two."""
    (content,) = rocprofv3()
    (process,) = json.loads(content)["rocprofiler-sdk-tool"]
    other = {**process, "metadata": {"pid": 10}}
    tables = [rocpd_databases.tables(of) for of in (process, other)]
    return [rocpd_databases.database(tables[0]), rocpd_databases.database(*tables)]


def packed() -> list[bytes]:
    """Profiles in gzip, and archives of some."""
    plain = [*kineto()[:1], *xplane()[:1], *onnxruntime()]
    archive = tar({f"rank{n}.pt.trace.json": content for n, content in enumerate(plain[:1] * 2)})
    mixed = tar({"a.json": plain[0], "b/host.xplane.pb": plain[1], "notes.txt": b"hello"})
    return [*(gzip.compress(content, mtime=0) for content in plain), archive, mixed]


def foreign() -> list[bytes]:
    """What must be refused by name: files that users mistake for profiles."""
    return [
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n",
        b"PK\x03\x04\x14\0\0\0\0\0" + bytes(20) + b"a.json" + kineto()[0],
        b"\x80\x04\x95\x10\0\0\0\0\0\0\0}\x94\x8c\x08segments\x94]\x94s.",
        b"<!DOCTYPE html><html><body>Sign in</body></html>",
        b"\x1f\x8b\x08\0\0\0\0\0",
        _json({"segments": [], "device_traces": [[{"action": "alloc", "addr": 1}]]}),
        _json({"schema": "1.1.1", "nodes": [{"id": 1}]}),
        _json({"rocprofv2": [{"metadata": {}}]}),
        _json([{"ph": "B", "ts": 1, "name": "f"}, {"ph": "E", "ts": 2}]),
        b"\x0a\x20\x12\x09/host:CPU" + bytes(30),
    ]


@functools.cache
def run_files() -> Mapping[str, bytes]:
    """The files of a run of seven events: run.json and its tables, by name."""
    columns: dict[str, list[Any]] = {
        "kind": ["step", "op", "runtime", "kernel", "step", "op", "memcpy"],
        "name": [
            *("ProfilerStep#1", "aten::mm", "cudaLaunchKernel", "gemm", "ProfilerStep#2"),
            *("aten::add", "Memcpy HtoD"),
        ],
        "start_ns": [0, 100, 200, 400, 1000, 1100, 1300],
        "dur_ns": [900, 300, 100, 500, 700, 100, 200],
        "correlation_id": [None, None, 4, 4, None, None, None],
    }
    on_device = [kind in ACTIVITY_KINDS for kind in columns["kind"]]
    columns |= {name: [None if d else 1 for d in on_device] for name in ("pid", "tid")}
    columns |= {"device": [0 if d else None for d in on_device]}
    columns |= {"stream": [7 if d else None for d in on_device]}
    events = annotated(events_table(columns), captured=False)
    facts: dict[str, Any] = {"name": "run", "source": "ingest", "profile_format": "kineto"}
    facts |= {"device_names": {"0": "GPU"}, "profile_metadata": {"rank": 0}, "notes": ["a note"]}
    facts |= {"implementation": "torch-nn-lstm", "framework": "torch", "versions": {"torch": "2.7"}}
    facts |= {"recorded": [asdict(r) for r in recorded(events)], "links": asdict(coverage(events))}
    with tempfile.TemporaryDirectory() as folder:
        write_tables(Path(folder), run_info(facts), events, _timings())
        return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


def _timings() -> pa.Table:
    numbers = pa.array([0, 1, 2], pa.int64())
    columns = {column.name: numbers.cast(column.type) for column in ITERATIONS}
    return pa.table(columns).cast(TIMINGS_SCHEMA)


def runs() -> list[bytes]:
    """A run's folder as an archive."""
    return [tar(run_files())]


def tar(files: Mapping[str, bytes]) -> bytes:
    """An archive of ``files``, the same bytes every time."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue().rstrip(b"\0") + bytes(1024)


def _json(document: Any) -> bytes:
    return json.dumps(document).encode()


def _simulated(name: str) -> bytes:
    (file,) = (f for f in FOLDER.glob(f"{name}.*") if not f.name.endswith(".truth.json"))
    return file.read_bytes()


def _database(tables: Mapping[str, list[dict[str, Any]]]) -> bytes:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("PRAGMA page_size = 1024")
        for table, rows in tables.items():
            names = list(dict.fromkeys(name for row in rows for name in row))
            connection.execute(f"CREATE TABLE {table} ({', '.join(names)})")
            marks = ", ".join("?" * len(names))
            values = [[row.get(name) for name in names] for row in rows]
            connection.executemany(f"INSERT INTO {table} VALUES ({marks})", values)
        connection.commit()
        return connection.serialize()
