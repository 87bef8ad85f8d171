"""TensorFlow 1 timelines of ten events or fewer, one for each trap."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lacking import lacks

from lstmprof.base.errors import ProfileError
from lstmprof.breakdown.attribution.ledger import ledger
from lstmprof.events import Profile
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import windows
from lstmprof.formats import read

CPU = "/job:localhost/replica:0/task:0/cpu:0"
GPU = "/job:localhost/replica:0/task:0/device:GPU:0"
STREAM, ALL, COPIES = "/gpu:0/stream:12", "/gpu:0/stream:all", "/gpu:0/memcpy"


def op(process: str, node: str, op_type: str, ts: object, dur: object = 1, **more: Any) -> dict:
    args = {"name": node, "op": op_type, "input0": "x"}
    event = {"ph": "X", "cat": "Op", "name": op_type, "tid": 0, "ts": ts, "dur": dur, "args": args}
    return {**event, "process": process, **more}


def read_ops(path: Path, *ops: dict) -> Profile:
    """The profile of these events, each in the process that it names."""
    pids = {name: pid for pid, name in enumerate(dict.fromkeys(o["process"] for o in ops), 1)}
    events: list[dict] = [process_name(0, "Allocators")]
    for name, pid in pids.items():
        events.append(process_name(pid, f"{name} Compute"))
        events.append(process_name(pid + 100, f"{name} Tensors"))
    events += [{"pid": pids[o["process"]], **o} for o in ops]
    file = path / "timeline.json"
    file.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    return read(file)


def process_name(pid: int, name: str) -> dict:
    return {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}


def column(profile: Profile, name: str) -> list[Any]:
    return list(profile.events[name].to_pylist())


def parts(profile: Profile) -> list[tuple[object, ...]]:
    events = annotated(profile.events, captured=False)
    found = ledger(events, windows(events, captured=False)).to_pylist()
    return [(row["device"], row["state"], row["part"], row["ns"]) for row in found]


def test_streams_are_the_gpu_and_executors_the_host(tmp_path: Path) -> None:
    # µs         100   103   105        110    112   114
    # cpu:0       |-Arg->|
    # GPU:0            |-MatMul->|                          the executor: on the host
    # stream 12                         |-MatMul-----|
    # stream 13              |-HtoD->|
    # all, memcpy                                           both once more
    profile = read_ops(
        tmp_path,
        op(CPU, "_arg_x", "_Arg", 100, 4),
        op(GPU, "dense/MatMul", "MatMul", 103, 5),
        op(ALL, "dense/MatMul", "MatMul", 110, 4),
        op(STREAM, "dense/MatMul", "MatMul", 110, 4),
        op("/gpu:0/stream:13", "edge_5_x", "MEMCPYHtoD", 105, 3),
        op(COPIES, "edge_5_x", "MEMCPYHtoD", 105, 3),
    )
    assert profile.format == "tf1_timeline"
    assert column(profile, "kind") == ["op", "op", "memcpy", "kernel"]
    assert column(profile, "start_ns") == [0, 3_000, 5_000, 10_000]
    assert column(profile, "dur_ns") == [4_000, 5_000, 3_000, 4_000]
    names = ["_arg_x:_Arg", "GPU:0 dense/MatMul:MatMul", "MEMCPYHtoD", "MatMul"]
    assert column(profile, "name") == names
    assert column(profile, "op_name")[1::2] == ["dense/MatMul:MatMul"] * 2
    assert column(profile, "device") == [None, None, 0, 0]
    assert column(profile, "stream") == [None, None, 13, 12]
    assert column(profile, "tid") == [0, 0, None, None]
    assert profile.base_ns == 100_000
    assert "TensorFlow 1 timeline has no launches" in lacks(profile)["no launches"].sentence
    assert parts(profile) == [
        (0, "busy", "gemm", 4_000),
        (0, "busy", "transfer", 3_000),
        (0, "idle", "unattributed", 7_000),
    ]


def test_a_copy_that_an_op_makes_itself_is_known_by_the_process_memcpy(tmp_path: Path) -> None:
    profile = read_ops(
        tmp_path,
        op(STREAM, "concat", "ConcatV2", 1, 2),
        op(STREAM, "concat", "ConcatV2", 5, 2),
        op(COPIES, "concat", "ConcatV2", 1, 2),
    )
    assert column(profile, "kind") == ["memcpy", "kernel"]


def test_without_numbered_streams_the_summary_is_all_there_is(tmp_path: Path) -> None:
    profile = read_ops(
        tmp_path,
        op(ALL, "dense/MatMul", "MatMul", 1, 2),
        op(COPIES, "edge_5_x", "MEMCPYDtoH", 3, 2),
    )
    assert column(profile, "kind") == ["kernel", "memcpy"]
    assert column(profile, "stream") == [None, None]


def test_streams_of_1_14_name_their_context_and_what_they_hold(tmp_path: Path) -> None:
    profile = read_ops(
        tmp_path,
        op("/host:CPU", "cuStreamSynchronize", "unknown", 0, 9),
        op("/gpu:1/context#0/stream#3:Kernel", "volta_sgemm", "unknown", 1, 2),
        op("/gpu:1/context#0/stream#4:MemcpyHtoD", "x", "unknown", 1, 2),
        op("/device:GPU:1/sync", "cuStreamSynchronize", "unknown", 4, 2),
    )
    assert column(profile, "kind") == ["runtime", "kernel", "memcpy", "runtime"]
    waits = "cuStreamSynchronize"
    assert column(profile, "name") == [waits, "volta_sgemm", "x", waits]
    assert column(profile, "stream") == [None, 3, 4, None]
    assert column(profile, "device") == [None, 1, 1, None]


def test_rocm_names_the_kernel(tmp_path: Path) -> None:
    event = op(STREAM, "dense/MatMul", "MatMul", 1)
    event["args"]["kernel"] = "Cijk_Ailk_Bljk_SB"
    profile = read_ops(tmp_path, event)
    assert column(profile, "name") == ["Cijk_Ailk_Bljk_SB"]
    assert column(profile, "op_name") == ["dense/MatMul:MatMul"]


def test_overlapping_ops_lie_on_lanes_and_do_not_enclose_each_other(tmp_path: Path) -> None:
    # µs       0          10
    # lane 0   |-MatMul----|
    # lane 1     |-Add->|
    profile = read_ops(
        tmp_path,
        op(CPU, "a", "MatMul", 1_000, 10),
        op(CPU, "b", "Add", 1_002, 4, tid=1),
    )
    assert column(profile, "tid") == [0, 1]
    assert profile.notes == ()
    assert annotated(profile.events, captured=False)["parent_id"].to_pylist() == [None, None]
    assert parts(profile) == [(None, "busy", "gemm", 10_000)]


def test_the_executor_of_a_gpu_computes_nothing(tmp_path: Path) -> None:
    profile = read_ops(tmp_path, op(GPU, "dense/MatMul", "MatMul", 1, 5), op(CPU, "a", "Add", 6, 2))
    assert profile.accelerators == ("GPU 0",)
    assert "libcupti" in lacks(profile)["no GPU activity"].sentence
    assert parts(profile) == [
        (None, "busy", "pointwise", 2_000),
        (None, "idle", "dispatch", 5_000),
    ]


def test_gradients_are_the_backward_phase_of_both(tmp_path: Path) -> None:
    node = "gradients/dense/MatMul_grad/MatMul"
    profile = read_ops(tmp_path, op(GPU, node, "MatMul", 1), op(STREAM, node, "MatMul", 3))
    assert annotated(profile.events, captured=False)["phase"].to_pylist() == ["backward"] * 2


def test_merged_runs_are_one_window_and_told(tmp_path: Path) -> None:
    runs = [op(CPU, "_SOURCE", "NoOp", 10), op(CPU, "a", "MatMul", 12, 3)]
    runs += [op(CPU, "_SOURCE", "NoOp", 50), op(CPU, "a", "MatMul", 52, 3)]
    profile = read_ops(tmp_path, *runs)
    assert profile.notes[0].startswith("2 calls of session.run count as one step")
    assert sum(ns for *_, ns in parts(profile) if isinstance(ns, int)) == 45_000


def test_gpus_of_two_tasks_are_two_devices(tmp_path: Path) -> None:
    profile = read_ops(
        tmp_path,
        op("/job:worker/replica:0/task:0/gpu:0/stream:7", "a", "MatMul", 1),
        op("/job:worker/replica:0/task:1/gpu:0/stream:7", "a", "MatMul", 1),
    )
    assert sorted(column(profile, "device")) == [0, 1]


def test_flows_counters_and_tensors_are_no_events(tmp_path: Path) -> None:
    flow = {"ph": "s", "cat": "DataFlow", "name": "x", "tid": 0, "ts": 1, "id": 0, "process": CPU}
    memory = {"ph": "C", "cat": "Memory", "name": "cpu", "ts": 1, "process": CPU}
    tensor = {"ph": "O", "cat": "Tensor", "name": "x", "tid": 0, "ts": 1, "process": CPU}
    profile = read_ops(tmp_path, op(CPU, "a", "MatMul", 1), flow, memory, tensor)
    assert column(profile, "name") == ["a:MatMul"]


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ({"dur": -1}, "their duration is negative"),
        ({"dur": None}, "they have no readable duration"),
        ({"ts": float("nan")}, "they have no readable start"),
        ({"ts": "soon"}, "they have no readable start"),
        ({"ts": 10**30}, "their time is invalid"),
        ({"pid": 77}, "their process has no name"),
        ({"pid": [1]}, "their process has no name"),
    ],
)
def test_what_has_no_place_or_time_is_left_out_and_told(
    tmp_path: Path, broken: dict[str, Any], why: str
) -> None:
    profile = read_ops(tmp_path, op(CPU, "a", "Add", 1), {**op(CPU, "b", "Add", 3), **broken})
    assert column(profile, "name") == ["a:Add"]
    assert profile.notes == (f"1 events were left out because {why}",)


def test_hostile_names_and_args_are_cleaned(tmp_path: Path) -> None:
    profile = read_ops(
        tmp_path,
        op(CPU, "a\0\ud800", "Add", 1),
        op(CPU, "b", "Add", 3, args=["no", "dict"]),
        op(CPU, "c", "Add", 5, args={"name": 7, "op": None}, tid="x"),
    )
    assert column(profile, "name") == ["a\0\ufffd:Add", "Add", "Add"]
    assert column(profile, "tid") == [0, 0, None]


def test_a_timeline_without_a_time_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="has no op with a time"):
        read_ops(tmp_path, op(CPU, "a", "Add", None))


#: Runs a loop of a graph, then writes its timeline and, as TensorFlow recorded them, its ops.
TIMELINE = """
import json, pathlib, sys
import tensorflow.compat.v1 as tf
from tensorflow.python.client import timeline
tf.disable_eager_execution()
step = lambda t, h: (t + 1, tf.tanh(tf.matmul(h, tf.ones([4, 4]))))
_, h = tf.while_loop(lambda t, h: t < 5, step, [0, tf.placeholder(tf.float32, [2, 4])])
with tf.Session() as session:
    metadata = tf.RunMetadata()
    full = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
    feed = {"Placeholder:0": [[1.0] * 4] * 2}
    session.run(tf.reduce_sum(h), feed, options=full, run_metadata=metadata)
written = timeline.Timeline(metadata.step_stats).generate_chrome_trace_format(show_memory=True)
nodes = [node for device in metadata.step_stats.dev_stats for node in device.node_stats]
recorded = [[n.node_name, n.all_start_micros, n.all_end_rel_micros] for n in nodes]
out = pathlib.Path(sys.argv[1])
(out / "timeline.json").write_text(written)
(out / "recorded.json").write_text(json.dumps(recorded))
"""


def test_a_timeline_of_todays_tensorflow_holds_each_op_that_it_recorded(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    script = [sys.executable, "-c", TIMELINE, str(tmp_path)]
    subprocess.run(script, check=True, capture_output=True)
    recorded = json.loads((tmp_path / "recorded.json").read_text("utf-8"))
    profile = read(tmp_path / "timeline.json")
    assert profile.format == "tf1_timeline"
    assert set(column(profile, "kind")) == {"op"}
    origin_us = min(start for _, start, _ in recorded)
    assert profile.base_ns == origin_us * 1000
    read_ops = zip(*(column(profile, c) for c in ("name", "start_ns", "dur_ns")), strict=True)
    assert sorted((n.rpartition(":")[0], start, dur) for n, start, dur in read_ops) == sorted(
        (node, (start - origin_us) * 1000, dur * 1000) for node, start, dur in recorded
    )
    categories = annotated(profile.events, captured=False)["category"].to_pylist()
    assert (categories.count("gemm"), categories.count("other")) == (5, 0)


HOST = "/host:CPU"


def test_a_node_that_1_15_writes_twice_is_one_op(tmp_path: Path) -> None:
    # µs       100        110   114
    # CPU:0    |-BlockLSTM-|Mul-|
    # /host      |-the same|          by node and type alone, and what no executor has
    profile = read_ops(
        tmp_path,
        op(CPU, "rnn/BlockLSTM", "BlockLSTM", 100, 10),
        op(CPU, "loss/Mul", "Mul", 110, 4),
        op(HOST, "rnn/BlockLSTM:BlockLSTM", "unknown", 102, 7),
        op(HOST, "cuStreamSynchronize", "unknown", 112, 1),
    )
    names = ["rnn/BlockLSTM:BlockLSTM", "loss/Mul:Mul", "cuStreamSynchronize"]
    assert column(profile, "name") == names
    assert column(profile, "kind") == ["op", "op", "runtime"]
    assert [row[1:] for row in parts(profile)] == [
        ("busy", "rnn", 10_000),
        ("busy", "pointwise", 4_000),
    ]


def captured_range(name: str, ts: int, dur: int, pid: int = 4711) -> dict:
    event = {"ph": "X", "cat": "lstmprof", "name": name, "pid": 9, "tid": 0, "process": "lstmprof"}
    return {**event, "ts": ts, "dur": dur, "args": {"pid": pid}}


def test_a_capture_has_the_steps_of_one_process(tmp_path: Path) -> None:
    # µs       100        110  120        130
    # step     |----------|    |----------|
    # CPU:0      |-a-|           |-a-|
    # lane 1       |-b-|
    profile = read_ops(
        tmp_path,
        op(CPU, "_SOURCE", "NoOp", 101, 1),
        op(CPU, "a", "MatMul", 102, 3),
        op(CPU, "b", "Add", 103, 3, tid=1),
        op(CPU, "_SOURCE", "NoOp", 121, 1),
        op(CPU, "a", "MatMul", 122, 3),
        captured_range("step", 100, 10),
        captured_range("program", 101, 8),
        captured_range("step", 120, 10),
    )
    events = annotated(profile.events, captured=True)
    found = windows(events, captured=True)
    assert [(w.step, w.start_ns, w.end_ns) for w in found] == [
        (0, 0, 10_000),
        (1, 20_000, 30_000),
    ]
    assert set(column(profile, "pid")) == {4711}
    kinds, tids = column(profile, "kind"), column(profile, "tid")
    threads = [tid for tid, kind in zip(tids, kinds, strict=True) if kind == "op"]
    assert len(set(threads)) == 2
    assert 4711 not in threads
    assert profile.notes == ()  # several runs, but in steps
    assert sorted(profile.metadata["threads"].values()) == [f"{CPU}, lane 0", f"{CPU}, lane 1"]
