"""What ``read`` refuses, and that nothing but a ProfileError ever comes out of it."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import random
import sqlite3
import tarfile
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import given, settings, strategies as st

import lstmprof.formats
from lstmprof.base.errors import ProfileError
from lstmprof.formats import FORMATS, raw_file, read
from lstmprof.formats.xplane import schema

TRACE = json.dumps(
    {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "GPU"}],
        "distributedInfo": {"rank": 0},
        "baseTimeNanoseconds": 1700000000000000000,
        "traceEvents": [
            {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1,
             "ts": 1.5, "dur": 2,
             "args": {"External id": 3, "Input Dims": [[2, 3]], "Input type": ["float"]}},
            {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 2.25, "dur": 2,
             "args": {"device": 0, "stream": 7, "correlation": 4, "graph node id": 1}},
        ],
    }
).encode()  # fmt: skip

VIEWER = json.dumps(
    {
        "displayTimeUnit": "ns",
        "traceEvents": [
            {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}},
            {"ph": "M", "pid": 1, "tid": 7, "name": "thread_name", "args": {"name": "Stream #7"}},
            {"ph": "M", "pid": 2, "name": "process_name", "args": {"name": "/host:CPU"}},
            {"ph": "X", "pid": 2, "tid": 5, "ts": 1.5, "dur": 2.25, "name": "train"},
            {"ph": "X", "pid": 1, "tid": 7, "ts": 2, "dur": 1, "name": "gemm",
             "args": {"correlation_id": "4", "memcpy_details": "size:12"}},
            {},
        ],
    }
).encode()  # fmt: skip
TIMELINE = json.dumps(
    {
        "traceEvents": [
            {"ph": "M", "pid": 1, "name": "process_name",
             "args": {"name": "/job:localhost/replica:0/task:0/gpu:0 Compute"}},
            {"ph": "M", "pid": 2, "name": "process_name",
             "args": {"name": "/gpu:0/stream:7 Compute"}},
            {"ph": "X", "cat": "Op", "pid": 1, "tid": 0, "ts": 5, "dur": 2, "name": "MatMul",
             "args": {"name": "dense/MatMul", "op": "MatMul"}},
            {"ph": "X", "cat": "Op", "pid": 2, "tid": 0, "ts": 6, "dur": 2, "name": "MatMul",
             "args": {"name": "dense/MatMul", "op": "MatMul"}},
        ]
    }
).encode()  # fmt: skip


def xspace() -> bytes:
    space = schema.xspace()(errors=[b"no libcupti"])
    for name, line in (("/host:CPU", "python"), ("/device:GPU:0", "Stream #1(Compute)")):
        plane = space.planes.add(name=name.encode())
        plane.event_metadata.add(key=1, value={"id": 1, "name": b"gemm"})
        plane.stat_metadata.add(key=1, value={"id": 1, "name": b"memcpy_details"})
        events = plane.lines.add(id=3, name=line.encode(), timestamp_ns=1000).events
        event = events.add(metadata_id=1, offset_ps=5000, duration_ps=7000)
        event.stats.add(metadata_id=1, str_value=b"size:12")
    return bytes(space.SerializeToString())


def write(path: Path, content: bytes, name: str = "profile") -> Path:
    file = path / name
    file.write_bytes(content)
    return file


#: What torch.profiler.ExecutionTraceObserver of torch 2.13 writes, shortened.
EXECUTION_TRACE = b"""{
  "schema": "1.1.1-chakra.0.0.4", "pid": 793657, "time": "2025-06-26 13:28:44", "start_ts": 1736345,
  "nodes": [
    {
      "id": 7, "name": "aten::mm", "ctrl_deps": 6,
      "inputs": {"values": [[3, 4, 0, 64, 4, "cpu"]], "shapes": [[8]], "types": ["Tensor(float)"]},
      "outputs": {"values": [], "shapes": [], "types": []},
      "attrs": [{"name": "rf_id", "type": "uint64", "value": 5}]
    }
  ],
  "finish_ts": 1736346
}"""


def refusal(path: Path) -> str:
    with pytest.raises(ProfileError) as caught:
        read(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert message.isprintable()
    return message.removeprefix(str(path))


def test_the_table_names_the_folders_formats() -> None:
    folder = Path(lstmprof.formats.__file__).parent
    files = [f for f in folder.rglob("*.py") if "def recognises(raw" in f.read_text("utf-8")]
    dotted = (".".join(f.relative_to(folder).with_suffix("").parts) for f in files)
    readers = {name.removesuffix(".__init__") for name in dotted}
    assert readers == set(FORMATS)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"hello\nworld", "is not a profile (it begins with 'hello world')"),
        ("\u00e9\n".encode() * 200, "(it begins with '\u00e9 "),
        (b"[1, 2]", "(it begins with '[1, 2]')"),
        (b"a" * 30, "(it begins with 'aaaaaaaaaaaaaaaaaaaaaaaa')"),
        (b"\x00\x01\x02binary", "has an unknown format"),
        (b'{"a": 1, "b": 2}', "is JSON but not a profile (its keys: a, b)"),
        (b"[]", "is a trace without events"),
        (b'{"traceEvents": []}', "is a trace without events"),
        (b'{"traceEvents": 5}', "is JSON but not a profile"),
        (b'[{"file": "a.json.gz", "bytes": 5}]', "is JSON but not a profile"),
        (
            b'[{"ph": "X", "name": "f", "ts": 1, "dur": 2}]',
            "a Chrome trace of a tool other than torch",
        ),
        (b'[{"ph": "B", "ts": 1}, {"ph": "E", "ts": 2}]', "with begin/end events only"),
        (b'{"segments": [], "device_traces": []}', "is a memory snapshot"),
        (EXECUTION_TRACE, "is an execution trace"),
        (b'{"workload_graph": [{"Id": 216, "Name": "aten::mm"}]}', "is an execution trace"),
        (b'{"rocprofiler-sdk-tool": [{}]}', "has no kernel, copy, HIP call or ROCTx range"),
        (b'{"rocprofv2": [{}]}', "is JSON of an older rocprof"),
        (b'{"traceEvents": [{"ph": "X", "args": {"BeginNs": "1", "EndNs": "2"}}]}', "rocprof"),
        (
            b'[{"ph": "X", "cat": "Op", "name": "MatMul"}]',
            "a Chrome trace of a tool other than torch",
        ),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n", "git lfs pull"),
        (pickle.dumps({"segments": []}), "is a pickle, but no memory snapshot"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"PK\x03\x04....", "zip"),
        (gzip.compress(gzip.compress(TRACE)), "gzipped twice"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"traceEvents": [' + b"9" * 5000 + b"]}", "thousands of digits"),
        (b'{"traceEvents": [{"name" 1}]}', "is not JSON at byte 25"),
        ('{"é": [{"name" 1}]}'.encode(), "is not JSON at byte 16"),
        (b'{"a": 1} {"b": 2}', "is not JSON at byte 9 (Extra data)"),
    ],
)
def test_refusals(tmp_path: Path, content: bytes, words: str) -> None:
    assert words in refusal(write(tmp_path, content))
    if not content.startswith(b"\x1f\x8b"):
        assert words in refusal(write(tmp_path, gzip.compress(content)))


@pytest.mark.parametrize("cut", [1, 20, 120, len(TRACE) // 2, len(TRACE) - 2, len(TRACE) - 1])
def test_a_cut_trace_is_refused_with_the_byte(tmp_path: Path, cut: int) -> None:
    assert f"truncated: its JSON is incomplete at byte {cut}" in refusal(
        write(tmp_path, TRACE[:cut])
    )


def test_gzip_faults(tmp_path: Path) -> None:
    packed = gzip.compress(TRACE)
    cut = refusal(write(tmp_path, packed[:-12]))
    assert f"the gzip stream is truncated at byte {len(packed) - 12}" in cut
    damaged = bytearray(packed)
    damaged[-6] ^= 0xFF
    assert "the gzip stream is damaged" in refusal(write(tmp_path, bytes(damaged)))


def test_a_gzip_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_file, "FREE_BYTES", 2**20)
    bomb = write(tmp_path, gzip.compress(bytes(4 * 2**20)))
    assert "a gzip bomb" in refusal(bomb)


def test_archives_and_databases(tmp_path: Path) -> None:
    trace = write(tmp_path, TRACE, "trace.json")
    archive = tmp_path / "ranks.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(trace, "trace.json")
    assert "tar xf" in refusal(archive)
    database = tmp_path / "other.db"
    connection = sqlite3.connect(database)
    connection.execute("create table other (a)")
    connection.close()
    assert "is an SQLite database without tables" in refusal(database)


def test_a_chakra_protobuf_is_refused_as_an_execution_trace(tmp_path: Path) -> None:
    metadata = b"\x0a\x05" + b"0.0.4"  # version
    node = b"\x08\x05" + b"\x12\x08aten::mm" + b"\x18\x04" + b"\x38\x0c"  # id, name, type, duration
    content = b"".join(bytes([len(message)]) + message for message in (metadata, node))
    assert "is an execution trace" in refusal(write(tmp_path, content, "chakra.0.et"))


def test_an_nsys_report_is_told_how_to_be_exported(tmp_path: Path) -> None:
    assert "nsys export --type sqlite" in refusal(write(tmp_path, b"\x00\x11", "a.nsys-rep"))


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "missing")
    assert "is a directory" in refusal(tmp_path)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "is not a regular file" in refusal(pipe)
    assert "cannot be read" in str(_error(Path("a\0b")))
    assert "cannot be read" in str(_error(Path("a" * 5000)))


def _error(path: Path) -> ProfileError:
    with pytest.raises(ProfileError) as caught:
        read(path)
    return caught.value


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(tmp_path: Path) -> None:
    file = write(tmp_path, TRACE)
    file.chmod(0)
    assert "check its permissions" in refusal(file)


def test_a_permission_error_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object, **__: object) -> NoReturn:
        raise PermissionError(13, "Permission denied")

    file = write(tmp_path, TRACE)
    monkeypatch.setattr(Path, "open", denied)
    assert "check its permissions" in refusal(file)


SEEDS = {"kineto": TRACE, "xplane": xspace(), "trace_viewer": VIEWER, "tf1_timeline": TIMELINE}
SEEDS |= {f"{name}.gz": gzip.compress(content, mtime=0) for name, content in SEEDS.items()}


@pytest.mark.parametrize("seed", SEEDS)
def test_seeds_are_profiles(tmp_path: Path, seed: str) -> None:
    assert read(write(tmp_path, SEEDS[seed])).events.num_rows == 2


def assert_read_or_refused(file: Path) -> None:
    try:
        profile = read(file)
    except ProfileError as error:
        assert str(error).isprintable()  # noqa: PT017 — most mutants are still profiles
    else:
        profile.events.validate(full=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_profile_cut_anywhere_is_read_or_refused(tmp_path: Path, seed: str) -> None:
    content = SEEDS[seed]
    for cut in range(len(content)):
        assert_read_or_refused(write(tmp_path, content[:cut]))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_profile_damaged_anywhere_is_read_or_refused(tmp_path: Path, seed: str) -> None:
    draw = random.Random(seed)
    for _ in range(1500):
        content = bytearray(SEEDS[seed])
        for _ in range(draw.randint(1, 4)):
            content[draw.randrange(len(content))] = draw.randrange(256)
        assert_read_or_refused(write(tmp_path, bytes(content)))


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
EVENT_KEYS = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "args")
TF_ARGS_KEYS = ("op", "name", "kernel", "long_name", "step_name", "tf_op", "correlation_id")
PROCESS_NAMES = ("/host:CPU", "/device:GPU:0", "/gpu:0/stream:7", "/gpu:0/memcpy", "/job:a/gpu:0")
ARGS_KEYS = ("device", "stream", "correlation", "External id", "Input Dims", "bytes")


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(st.sampled_from(EVENT_KEYS), ANY_JSON),
    st.dictionaries(st.sampled_from(ARGS_KEYS), ANY_JSON),
    st.sampled_from(("cpu_op", "kernel", "user_annotation", "unknown")),
)
def test_any_event_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, event: dict, args: dict, category: str
) -> None:
    base = {"ph": "X", "cat": category, "name": "n", "ts": 1, "dur": 1, "args": args}
    content = json.dumps({"schemaVersion": 1, "traceEvents": [{**base, **event}]})
    assert_read_or_refused(write(tmp_path_factory.getbasetemp(), content.encode()))


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(st.sampled_from(EVENT_KEYS), ANY_JSON),
    st.dictionaries(st.sampled_from(TF_ARGS_KEYS), ANY_JSON),
    st.sampled_from(PROCESS_NAMES) | st.text(),
    st.sampled_from((None, "Op")),
)
def test_any_event_of_tensorflow_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, event: dict, args: dict, process: str, cat: str | None
) -> None:
    base = {"ph": "X", "pid": 1, "tid": 2, "cat": cat, "name": "n", "ts": 1, "dur": 1, "args": args}
    named = {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": process}}
    compute = {**named, "args": {"name": f"{process} Compute"}}
    for events in ([named, {**base, **event}], [compute, {**base, **event}, base]):
        content = json.dumps({"traceEvents": events})
        assert_read_or_refused(write(tmp_path_factory.getbasetemp(), content.encode()))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    folder = tmp_path_factory.getbasetemp()
    for prefix in (b"", b"\n", b"\x1f\x8b\x08", b"\x0a\x20\x12\x09/host:CPU", b"[", b'{"'):
        assert_read_or_refused(write(folder, prefix + content))
