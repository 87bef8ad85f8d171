"""Trace-viewer exports of ten events or fewer, one for each trap, and the exporter itself."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from lacking import lacks
from shared_traces import FOLDER

from lstmprof.base.errors import ProfileError
from lstmprof.events import Profile
from lstmprof.formats import read
from lstmprof.formats.xplane import trace_viewer

HOST, GPU = 701, 1


def event(name: str, ts: object, dur: object = 1, tid: int = 5, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "pid": HOST, "tid": tid, "ts": ts, "dur": dur, "name": name, **more}


def on_gpu(name: str, ts: object, dur: object = 1, tid: int = 14, **args: str) -> dict[str, Any]:
    return event(name, ts, dur, tid, pid=GPU, args=args)


def named(kind: str, name: str, pid: int, **more: int) -> dict[str, Any]:
    return {"ph": "M", "pid": pid, "name": kind, "args": {"name": name}, **more}


def line(name: str, tid: int, pid: int = GPU) -> dict[str, Any]:
    return named("thread_name", name, pid, tid=tid)


PROCESSES = (
    named("process_name", "/host:CPU", HOST),
    line("python", 5, HOST),
    named("process_name", "/device:GPU:0", GPU),
    line("Stream #14(Compute)", 14),
)


def read_events(path: Path, *events: Any, processes: Any = PROCESSES) -> Profile:
    """The profile of an export of these events, with the empty one that ends every export."""
    header = {"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}}
    file = path / "host.trace.json"
    file.write_text(json.dumps({**header, "traceEvents": [*processes, *events, {}]}), "utf-8")
    return read(file)


def column(profile: Profile, name: str) -> list[Any]:
    return list(profile.events[name].to_pylist())


def test_launch_and_kernel_meet_by_ids_that_are_texts(tmp_path: Path) -> None:
    # µs            1.0         1.1       1.15     1.25  1.3      2.0
    # python         |-step 4------------------------------------->|
    # python                     |-MatMul-------------->|
    # python                               |-cuLaunch (9)->|
    # Stream #14                                    |-gemm (9)->|
    # derived                                       |-…-------->|    left out
    kernel = {"kernel_details": "regs:38 shm:0", "tf_op": "dense/MatMul:MatMul"}
    derived = {"Steps": 20, "TensorFlow Ops": 21, "XLA Modules": 22, "Source code": 23}
    profile = read_events(
        tmp_path,
        event("train", 1.0, 1.0, args={"step_num": "4", "_r": "1"}),
        event(
            *("MatMul", 1.1, 0.2004),
            args={"long_name": "dense/MatMul:MatMul", "shape": "(half[2,3];float[])"},
        ),
        event("cuLaunchKernel", 1.15, 0.15, args={"correlation_id": "9"}),
        on_gpu("gemm", 1.2506, 0.4, correlation_id="9", **kernel),
        *(on_gpu("0", 1.25, 0.4, tid=tid, **kernel) for tid in derived.values()),
        processes=[*PROCESSES, *(line(name, tid) for name, tid in derived.items())],
    )
    assert profile.format == "trace_viewer"
    assert column(profile, "kind") == ["step", "op", "runtime", "kernel"]
    assert column(profile, "name")[1] == "dense/MatMul:MatMul"
    assert column(profile, "start_ns") == [0, 100, 150, 251]
    assert column(profile, "dur_ns") == [1000, 200, 150, 400]
    assert column(profile, "tid") == [5, 5, 5, None]
    assert column(profile, "device") == [None, None, None, 0]
    assert column(profile, "stream") == [None, None, None, 14]
    assert column(profile, "correlation_id") == [None, None, 9, 9]
    assert column(profile, "op_name")[3] == "dense/MatMul:MatMul"
    assert column(profile, "shapes")[1] == "[[2,3],[]]"
    assert column(profile, "dtypes")[1] == '["half","float"]'
    assert profile.metadata["threads"] == {"5": "python"}
    assert (profile.base_ns, profile.notes) == (None, ())


def test_times_are_whole_picoseconds_though_floats_are_not(tmp_path: Path) -> None:
    # 5353251.5935 µs end in half a ns, and the nearest float64 lies below.
    profile = read_events(
        tmp_path,
        event("a", 5353251, 0.000001),
        event("b", 5353251.59349999949, 7893173.8339999998),
    )
    assert column(profile, "start_ns") == [0, 594]
    assert column(profile, "dur_ns") == [0, 7893173834]


def test_copies_and_memory_on_a_stream(tmp_path: Path) -> None:
    profile = read_events(
        tmp_path,
        on_gpu("MemcpyH2D", 1, memcpy_details="kind_src:pageable size:112 dest:0 async:0"),
        on_gpu("Memset", 3, memset_details="size:8"),
        on_gpu("MemoryResidency", 5, memory_residency_details="x"),
        on_gpu("gemm", 7, kernel_details="", hlo_op="dot.3", cuda_graph_node_id="12"),
    )
    assert column(profile, "kind") == ["memcpy", "memset", "kernel"]
    assert column(profile, "bytes") == [112, 8, None]
    assert column(profile, "op_name") == [None, None, "dot.3"]
    assert column(profile, "graph_node_id") == [None, None, 12]
    assert (profile.notes, next(iter(lacks(profile)))) == ((), "no host")


def test_a_line_without_a_name_is_a_stream_where_its_events_say_so(tmp_path: Path) -> None:
    profile = read_events(
        tmp_path,
        on_gpu("gemm", 1, tid=0, kernel_details=""),
        on_gpu("dense", 1, tid=33, group_id="0"),
    )
    assert (column(profile, "name"), column(profile, "stream")) == (["gemm"], [0])


def test_what_begins_a_step_is_called_by_its_own_name(tmp_path: Path) -> None:
    began = event("train 3", 0, args={"step_name": "train 3", "step_num": "3"})
    profile = read_events(tmp_path, began, event("layer 3", 5, args={"group_id": "0"}))
    assert column(profile, "name") == ["train", "layer 3"]
    assert column(profile, "kind") == ["step", "op"]


def test_the_paths_of_xla_are_missed(tmp_path: Path) -> None:
    instruction = {"hlo_op": "dot.3", "hlo_module": "jit_f"}
    profile = read_events(tmp_path, event("dot.3", 0, args=instruction), processes=PROCESSES[:2])
    assert profile.notes == (
        "XLA instructions have no paths and shapes, so phases are unknown;"
        " give the .xplane.pb of the same run",
    )


def test_no_gpu_activity_is_told(tmp_path: Path) -> None:
    profile = read_events(tmp_path, event("train", 0))
    assert (profile.notes, profile.accelerators) == ((), ("GPU 0",))
    assert "libcupti" in lacks(profile)["no GPU activity"].sentence


def test_tpu_planes_are_left_out_and_told(tmp_path: Path) -> None:
    tpu = named("process_name", "/device:TPU:0", 3)
    work = event("fusion", 0, pid=3)
    profile = read_events(tmp_path, work, event("a", 1), processes=[*PROCESSES[:2], tpu])
    assert column(profile, "name") == ["a"]
    assert next(iter(lacks(profile))) == "TPU not read"
    with pytest.raises(ProfileError, match="no host or GPU event was recorded"):
        read_events(tmp_path, work, processes=[tpu])


def test_a_full_file_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert trace_viewer.MAX_EVENTS == 1_000_000
    monkeypatch.setattr(trace_viewer, "MAX_EVENTS", 3)
    events = [event("a", n) for n in range(3)]
    host = PROCESSES[:2]
    assert read_events(tmp_path, *events[:2], processes=host).notes == ()
    (note,) = read_events(tmp_path, *events, processes=host).notes
    assert "so later events are missing" in note


def test_step_stats_of_2_0_have_a_process_for_each_stream(tmp_path: Path) -> None:
    # µs              0    2    4      6
    # GPU:0 (host)    |-MatMul->|
    # stream 14            |-sgemm->|
    # stream 15                     |-DtoH->|
    names = {
        1: "/job:localhost/replica:0/task:0/device:GPU:0",
        2: "/device:GPU:0/stream:14",
        3: "/device:GPU:0/stream:15",
        4: "/device:GPU:0/stream:all",
        5: "/host:CPU",
    }
    annotated_name = "while/body:While::dense/MatMul:MatMul#id=1#@@volta_sgemm_32x32::run"
    profile = read_events(
        tmp_path,
        event("MatMul", 0, 4, 0, pid=1, args={"long name": "dense/MatMul:MatMul"}),
        event("MatMul", 2, 4, 0, pid=2, args={"long name": annotated_name}),
        event("MatMul", 2, 4, 0, pid=4, args={"long name": annotated_name}),
        event("MEMCPYDtoH", 6, 2, 0, pid=3, args={"long name": "edge_5_x:MEMCPYDtoH"}),
        event("EagerExecute", 0, 9, 77, pid=5),
        processes=[named("process_name", name, pid) for pid, name in names.items()],
    )
    assert column(profile, "kind") == ["op", "op", "kernel", "memcpy"]
    assert column(profile, "name") == [
        *("EagerExecute", "GPU:0 dense/MatMul:MatMul"),
        *("volta_sgemm_32x32::run", "MEMCPYDtoH"),
    ]
    assert column(profile, "op_name")[1:3] == ["dense/MatMul:MatMul"] * 2
    assert column(profile, "stream") == [None, None, 14, 15]
    assert "give the .xplane.pb" in lacks(profile)["no launches"].sentence


def test_profiles_of_torch_and_of_tensorflow_are_never_taken_for_each_other(
    tmp_path: Path,
) -> None:
    torch = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 9, "tid": 9, "ts": 1, "dur": 2}
    kineto = read_events(tmp_path, torch, processes=[named("process_name", "python", 9)])
    assert kineto.format == "kineto"
    assert read_events(tmp_path, event("cpu_op", 1)).format == "trace_viewer"


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ({"dur": -1}, "their duration is negative"),
        ({"dur": None}, "they have no readable duration"),
        ({"ts": None}, "they have no readable start"),
        ({"ts": float("nan")}, "they have no readable start"),
        ({"ts": "soon"}, "they have no readable start"),
        ({"ts": 10**30}, "their time is invalid"),
        ({"ts": 10**3000}, "they have no readable start"),
    ],
)
def test_what_is_no_interval_is_left_out_and_told(
    tmp_path: Path, broken: dict[str, Any], why: str
) -> None:
    good, bad = event("good", 1), {**event("bad", 2), **broken}
    profile = read_events(tmp_path, good, bad, processes=PROCESSES[:2])
    assert column(profile, "name") == ["good"]
    assert profile.notes == (f"1 events were left out because {why}",)


def test_hostile_names_args_and_places_are_no_fault(tmp_path: Path) -> None:
    profile = read_events(
        tmp_path,
        event("a\0\ud800", 1, args="none"),
        event("b", 2, args={"long_name": 7, "correlation_id": "9" * 30, "step_num": None}),
        event("c", 3, tid=10**40),
        event("d", 4, pid=[1]),
        "no event at all",
        processes=[*PROCESSES, named("process_name", "x", 3) | {"args": None}],
    )
    assert column(profile, "name") == ["a\0\ufffd", "b", "c"]
    assert column(profile, "tid") == [5, 5, None]


#: Captures three steps on the CPU, then exports the XPlanes that are named.
EXPORT = """
import pathlib, sys
import jax, jax.numpy as jnp
from jaxlib import _profiler
out, xplanes = pathlib.Path(sys.argv[1]), sys.argv[2:]
step = jax.jit(jax.grad(lambda w, x: jnp.tanh(x @ w).sum()))
w, x = jnp.ones((16, 16)), jnp.ones((4, 16))
step(w, x).block_until_ready()
with jax.profiler.trace(out / "captured", create_perfetto_trace=True):
    for number in range(3):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            with jax.profiler.TraceAnnotation("backward"):
                step(w, x).block_until_ready()
session = _profiler.ProfilerSession()
session.stop()
for number, xplane in enumerate(xplanes):
    session.export(pathlib.Path(xplane).read_bytes(), str(out / str(number)))
"""
#: What the exporter leaves out: the marks that join the threads of tf.data's iterators.
NOT_EXPORTED = re.compile(r"(Prefetch|ParallelMap|ParallelInterleave|MapAndBatch)(Produce|Consume)")
XPLANES = [
    FOLDER / "tf" / name
    for name in (
        *("bert-8xv100-multiworker.xplane.pb", "cpu-macos-mit.xplane.pb"),
        *("jax-mi300-conv.xplane.pb", "tpu-inference.xplane.pb"),
    )
    if FOLDER.is_dir()
]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs, each with its XPlane and its export: ``captured``, ``0``, ``1`` …"""
    pytest.importorskip("jax")
    out = tmp_path_factory.mktemp("exported")
    script = [sys.executable, "-c", EXPORT, str(out), *map(str, XPLANES)]
    subprocess.run(script, check=True, capture_output=True)
    return out


def both(run: Path) -> tuple[Profile, Profile]:
    """The profile as XPlane and as export."""
    (xplane,), (export,) = run.rglob("*.xplane.pb"), run.rglob("*.trace.json.gz")
    return read(xplane), read(export)


def rows(profile: Profile, *names: str) -> Counter[tuple[Any, ...]]:
    return Counter(zip(*(column(profile, name) for name in names), strict=True))


EVENT = ("kind", "name", "start_ns", "dur_ns")


@pytest.mark.parametrize(
    "run",
    ["captured", *map(str, range(len(XPLANES)))],
    ids=["captured", *(p.name for p in XPLANES)],
)
def test_the_export_of_an_xplane_tells_the_same_to_the_nanosecond(exported: Path, run: str) -> None:
    xplane, export = both(exported / run)
    more = ("device", "stream", "correlation_id", "bytes", "graph_node_id")
    missing = rows(xplane, *EVENT, *more) - rows(export, *EVENT, *more)
    assert not rows(export, *EVENT, *more) - rows(xplane, *EVENT, *more)
    shapes = (*EVENT, "shapes", "dtypes")
    for *_, found, dtypes in rows(export, *shapes) - rows(xplane, *shapes):
        assert (found, dtypes) == (None, None)
    assert all(NOT_EXPORTED.fullmatch(name) for _, name, *_ in missing)
    # Of a line's id the export keeps 32 bits.
    lines = Counter(tid % 2**32 for tid in column(xplane, "tid") if tid is not None)
    kept = Counter(tid for tid in column(export, "tid") if tid is not None)
    assert not kept - lines
    assert sum((lines - kept).values()) == missing.total()


def test_of_a_captured_run_only_the_paths_and_shapes_of_xla_are_lost(exported: Path) -> None:
    xplane, export = both(exported / "captured")
    assert column(export, "kind").count("step") == 3
    ops = rows(export, "name", "dur_ns", "op_name")
    lost = rows(xplane, "name", "dur_ns", "op_name") - ops
    assert lost
    assert all(op_name.startswith("jit(") for *_, op_name in lost)
    assert "[[4,16],[16,16]]" in column(xplane, "shapes")
    assert set(column(export, "shapes")) == {None}
    assert [note.partition(";")[0] for note in export.notes] == [
        "XLA instructions have no paths and shapes, so phases are unknown"
    ]


def test_the_copy_for_perfetto_is_the_same_export(exported: Path) -> None:
    _, export = both(exported / "captured")
    (copy,) = (exported / "captured").rglob("perfetto_trace.json.gz")
    assert read(copy).events.equals(export.events)
