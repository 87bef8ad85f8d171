"""Perfetto traces: what lstmprof exports reads back the same, and what others write is read."""

from __future__ import annotations

import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from export.opened import opened
from export.read_back import check_read_back, counted
from formats import perfetto_traces as traces
from formats.spaces import Space, mark
from kineto_documents import document
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

import lstmprof as lp
from lstmprof import formats
from lstmprof.base.errors import ForeignFileError, ProfileError
from lstmprof.breakdown import Breakdown, break_down
from lstmprof.events import spool
from lstmprof.events.counters import ALLOCATED
from lstmprof.events.schema import COLUMNS
from lstmprof.export import perfetto
from lstmprof.formats import perfetto as reader
from lstmprof.formats.perfetto import packets, writers
from lstmprof.formats.perfetto.slices import Slice
from lstmprof.runs.cache import open_runs
from lstmprof.runs.run import Run

PROFILES = Path(__file__).parents[1] / "profiles"
NAMES = ("kineto-2021.pt.trace.json", "kineto-today.pt.trace.json", "nsys-2025.sqlite",
         "tensorflow.xplane.pb")  # fmt: skip
pytestmark = pytest.mark.usefixtures("profiles_read_once")


def broken_down(path: Path) -> Breakdown:
    (run,) = open_runs([path])
    assert isinstance(run, Run)
    return break_down(run, None, ("ledger",))


def check_round_trip(profile: Path, folder: Path) -> None:
    before = broken_down(profile)
    out = folder / "x.pftrace"
    perfetto.write(before, out)
    check_read_back(before, out)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_exported_reads_back_the_same(name: str, tmp_path: Path) -> None:
    check_round_trip(PROFILES / name, tmp_path)


@pytest.mark.parametrize("name", NAMES[1:3])
def test_on_disk_it_reads_back_the_same(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "SPOOLED_ROWS", 50)
    monkeypatch.setattr(reader, "CHUNK_ROWS", 40)
    check_round_trip(PROFILES / name, tmp_path)


def test_counters_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "CHUNK_ROWS", 2)
    step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 4, "tid": 4}
    of_memory = {"ph": "i", "s": "t", "name": "[memory]", "pid": 4, "tid": 4}
    totals = ((98, 2, 2), (103, 5, 3), (116, 3, -2))
    events = [
        {**step, "ts": 100, "dur": 30},
        {"ph": "C", "name": "power", "pid": 4, "ts": 110, "args": {"power": 70.5}},
        *(
            {**of_memory, "ts": ts}
            | {"args": {"Total Allocated": total, "Bytes": by, "Device Id": 0, "Device Type": 1}}
            for ts, total, by in totals
        ),
    ]
    path = tmp_path / "x.pt.trace.json"
    path.write_bytes(document(*events))
    check_round_trip(path, tmp_path)
    values = counted(broken_down(tmp_path / "x.pftrace").run)
    allocated = next(series for series in values if series.name == ALLOCATED)
    assert (allocated.device, allocated.unit) == (0, "bytes")
    assert values[allocated] == [(-2000, 2.0), (3000, 5.0), (16_000, 3.0)]


def test_allocators_read_back(tmp_path: Path) -> None:
    space = Space()
    host = space.plane("/host:CPU")
    marks = [mark(10, 8, 8), mark(20, 8, 8, "mklcpu"), mark(30, 8, 16), mark(40, -8, 0, "mklcpu")]
    space.line(host, "python", 0, ("step", 0, 50_000, {"step_num": 4}), *marks)
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(space.message.SerializeToString())
    check_round_trip(path, tmp_path)
    values = counted(broken_down(tmp_path / "x.pftrace").run)
    assert {(series.device, series.allocator): at for series, at in values.items()} == {
        (1, "GPU_1_bfc"): [(10, 8.0), (30, 16.0)],
        (None, "mklcpu"): [(20, 8.0), (40, 0.0)],
    }


def test_ranks_read_back_as_ranks(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    content = (PROFILES / "kineto-2021.pt.trace.json").read_bytes()
    for rank in (0, 3):
        (job / f"rank{rank}.pt.trace.json").write_bytes(content)
    check_round_trip(job, tmp_path)


def recorded(breakdown: Breakdown) -> Counter[Any]:
    """Every event with what its profile says of it."""
    names = [c.name for c in COLUMNS if not c.derived and c.name not in ("event_id", "rank")]
    rows = breakdown.events().select(names).to_pylist()
    return Counter(tuple(row.values()) for row in rows)


@pytest.mark.parametrize("name", ["torch-nn-lstm", "tf-lstmcell", "lasagne-lstm"])
def test_an_exported_capture_reads_back_as_a_profile(name: str, tmp_path: Path) -> None:
    before = broken_down(PROFILES.parents[1] / "traces" / name)
    out = tmp_path / "x.pftrace.gz"
    perfetto.write(before, out)
    after = broken_down(out)
    assert recorded(after) == recorded(before)
    assert [w.start_ns for w in after.windows] == [w.start_ns for w in before.windows]
    assert after.run.info.source == "ingest"
    check_round_trip(out, tmp_path)


def test_a_trace_of_an_older_export_is_told_to_be_exported_again(tmp_path: Path) -> None:
    path = tmp_path / "x.pftrace"
    perfetto.write(broken_down(PROFILES / NAMES[0]), path)
    trace = Trace.FromString(path.read_bytes())
    kept = [p for p in trace.packet if p.track_descriptor.name != "lstmprof"]
    refused = refusal(written(tmp_path, Trace(packet=kept)))
    assert refused == (
        "is an export of two runs, or an export that an older lstmprof wrote; lstmprof cannot "
        "read such exports; give the runs themselves"
    )


def written(folder: Path, trace: Any, name: str = "made.pftrace") -> Path:
    path = folder / name
    path.write_bytes(trace if isinstance(trace, bytes) else trace.SerializeToString())
    return path


def refusal(path: Path) -> str:
    with pytest.raises(ProfileError) as caught:
        formats.read(path)
    message = str(caught.value)
    assert message.isprintable()
    return message.removeprefix(f"{path}: ")


def events(path: Path, *more: str) -> list[tuple[Any, ...]]:
    columns = ["start_ns", "dur_ns", "kind", "name", "pid", "tid", "device", "stream"]
    columns += ["correlation_id", *more]
    rows = formats.read(path).events.select(columns).to_pylist()
    return [tuple(row.values()) for row in rows]


OF_KINETO = [
    (0, 100, "step", "ProfilerStep#1", 9, 12, None, None, None, 1, None),
    (5, 25, "op", "aten::mm", 9, 12, None, None, None, 3, None),
    (10, 8, "runtime", "cudaMemcpyAsync", 9, 12, None, None, 8, None, None),
    (20, 8, "runtime", "cudaLaunchKernel", 9, 12, None, None, 9, None, None),
    (30, 50, "range", "ProfilerStep#1", None, None, 0, 7, 1, None, None),
    (30, 15, "memcpy", "Memcpy HtoD", None, None, 0, 7, 8, None, 12),
    (50, 30, "kernel", "sgemm", None, None, 0, 7, 9, None, None),
]


def test_a_trace_of_kineto_s_builder_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, traces.kineto())
    profile = formats.read(path)
    assert (profile.format, profile.base_ns) == ("kineto", traces.EPOCH_NS)
    assert profile.device_names == {0: "NVIDIA H100", 1: "second"}
    assert (profile.metadata["rank"], profile.metadata["world_size"]) == (3, 8)
    assert profile.metadata["profiler_spans_ns"] == [[0, 100]]
    assert profile.notes == ()
    assert events(path, "external_id", "bytes") == OF_KINETO
    run = lp.read(path)
    kernel = next(row for row in run.table("kernels").rows() if row["name"] == "sgemm")
    assert kernel["rule"] == "op: GEMM (torch)"  # by its launch's op
    assert sum(row["ns"] for row in run.ledger().rows()) == 100


OF_ROCPROF = [
    (0, 100, "step", "step", 9, 12, None, None, None, None),
    (10, 8, "runtime", "hipMemcpyAsync", 9, 12, None, None, 8, None),
    (20, 8, "runtime", "hipLaunchKernel", 9, 12, None, None, 9, None),
    (30, 15, "memcpy", "Memcpy HtoD", 9, None, 0, 2, 8, 64),
    (50, 30, "kernel", "Cijk_Ailk_MT64(float*)", 9, None, 0, 3, 9, None),
    (85, 5, "memcpy", "Memcpy DtoH", 9, None, 0, 2, 6, 64),
]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "compressed"])
def test_a_trace_of_rocprofv3_is_read(packed: bool, tmp_path: Path) -> None:
    trace = traces.compressed(traces.rocprofv3()) if packed else traces.rocprofv3()
    path = written(tmp_path, trace)
    profile = formats.read(path)
    assert (profile.format, profile.base_ns) == ("rocprofv3", traces.EPOCH_NS)
    assert profile.accelerators == ("AMD GPU 0",)
    assert profile.notes == ()
    assert events(path, "bytes") == OF_ROCPROF


def test_older_tracks_of_rocprofv3_name_queues_and_threads(tmp_path: Path) -> None:
    made = traces.RocProf()
    ends = {"src_agent": 1, "dst_agent": 5, "copy_bytes": 8, "tid": 9}
    places = {
        "COPY to AGENT [5] THREAD [0] (GPU)": "MEMORY_COPY_HOST_TO_DEVICE",
        "COPY to AGENT [1] THREAD [0] (CPU)": "MEMORY_COPY_DEVICE_TO_HOST",
    }
    for number, (track, name) in enumerate(places.items(), 1):
        made.slice(made.track(number, track), "memory_copy", name, (number, 5), **ends)
        ends |= {"src_agent": 5, "dst_agent": 1}
    for number, agent in enumerate((4, 5), 7):
        track = made.track(number, f"COMPUTE AGENT [{agent}] QUEUE [3] (GPU)")
        made.slice(track, "kernel_dispatch", "gemm.kd", (10 * number, 99), agent=agent)
    rows = formats.read(written(tmp_path, made.trace)).events.to_pylist()
    assert [(r["name"], r["device"], r["stream"]) for r in rows] == [
        ("Memcpy HtoD", 1, None),
        ("Memcpy DtoH", 1, None),
        ("gemm", 0, 3),
        ("gemm", 1, 3),
    ]


def test_tracks_of_rocprofv3_that_name_only_a_stream(tmp_path: Path) -> None:
    """ROCm 7 groups kernels and copies by stream; the agents are arguments."""
    made = traces.RocProf()
    for number, agent in enumerate((4, 5), 2):
        made.track(number, f"ALLOCATE BYTES on Agent [{agent}] (GPU)")
    track = made.track(1, 'STREAM [" 1 "] ')
    ends = {"src_agent": "Agent-0", "dst_agent": "Agent-5", "copy_bytes": 8}
    name = "MEMORY_COPY_HOST_TO_DEVICE"
    made.slice(track, "memory_copy", name, (1, 5), tid=9, stream_ID=1, **ends)
    name = "MEMORY_COPY_DEVICE_TO_HOST"
    ends |= {"src_agent": "Agent-5", "dst_agent": "Agent-0"}
    made.slice(track, "memory_copy", name, (6, 9), tid=9, stream_ID=1, **ends)
    for start, agent in ((10, "Agent-4"), (20, "Agent-5")):
        made.slice(
            track, "kernel_dispatch", "gemm.kd", (start, start + 5), agent=agent, stream_ID=1
        )
    rows = formats.read(written(tmp_path, made.trace)).events.to_pylist()
    assert [(r["name"], r["device"], r["stream"]) for r in rows] == [
        ("Memcpy HtoD", 1, 1),
        ("Memcpy DtoH", 1, 1),
        ("gemm", 0, 1),
        ("gemm", 1, 1),
    ]


def test_a_trace_is_known_by_its_first_packets(tmp_path: Path) -> None:
    trace = traces.rocprofv3()
    first = Trace()
    first.packet.add(trusted_uid=4).clock_snapshot.clocks.add(clock_id=6, timestamp=5)
    content = first.SerializeToString() + trace.SerializeToString()
    assert formats.read(written(tmp_path, content)).format == "rocprofv3"


def test_a_summary_of_tensorboard_is_no_perfetto_trace(tmp_path: Path) -> None:
    """One kernel of a kernel_stats.pb: its name, registers, longest and shortest time."""
    report = b"\x0a\x04gemm\x10\x20\x3a\x02ab"[:8] + b"\x38\x0a\x40\x05\x48\x06\x62\x02mm"
    content = b"\x0a" + bytes([len(report)]) + report
    path = written(tmp_path, content, "host.kernel_stats.pb")
    assert not packets.begins(content)
    assert "is a summary that TensorBoard made of a profile" in refusal(path)


def test_the_first_fields_of_a_packet_have_the_types_of_perfetto() -> None:
    numbers = {f.number: f for f in Trace().packet.add().DESCRIPTOR.fields if f.number <= 13}
    expected = {n: 2 if f.type == f.TYPE_MESSAGE else 0 for n, f in numbers.items()}
    assert expected == packets.TYPES


def test_a_damaged_xplane_is_no_perfetto_trace(tmp_path: Path) -> None:
    endless = "\ufffd\ufffd".encode() + b"\x01"  # the length of what went through a text codec
    content = b"\x0a" + endless + b"\x50\x01 /device:GPU:0"
    assert "XPlane protobuf is" in refusal(written(tmp_path, content, "x.xplane.pb"))


def test_events_that_rest_on_what_was_lost_are_counted(tmp_path: Path) -> None:
    made = traces.RocProf()
    made.track(12, "THREAD 1 (12)", tid=12)
    made.slice(12, "hip_api", "hipMalloc", (10, 18), tid=12)
    made.slice(12, "hip_api", "hipFree", (20, 28), tid=12)
    made.trace.packet[-2].previous_packet_dropped = 1
    made.start()
    made.slice(12, "hip_api", "hipFree", (30, 38), tid=12)
    profile = formats.read(written(tmp_path, made.trace))
    assert [e["start_ns"] for e in profile.events.to_pylist()] == [0, 20]
    assert profile.notes == (
        "2 slices were left out because the recorder lost packets that they depend on",
    )


def test_slices_without_an_end_or_a_beginning_are_counted(tmp_path: Path) -> None:
    trace = traces.kineto()
    ends = [p for p in trace.packet if p.track_event.type == traces.END]
    trace.packet.remove(ends[1])
    begins = [p for p in trace.packet if p.track_event.type == traces.BEGIN]
    trace.packet.remove(begins[2])
    backwards = next(p for p in trace.packet if p.timestamp == traces.EPOCH_NS + 28)
    backwards.timestamp -= 9
    profile = formats.read(written(tmp_path, trace))
    assert len(profile.events) == len(OF_KINETO) - 3
    assert sorted(profile.notes) == [
        "1 events were left out because their duration is negative",
        "1 events were left out because they have no begin",
        "1 events were left out because they have no end",
    ]


def test_categories_of_kineto_s_json_say_what_a_slice_is(tmp_path: Path) -> None:
    made = traces.RocProf()
    made.track(12, "python3", tid=12)
    made.track(7, "stream 7")
    made.slice(12, "cpu_op", "aten::mm", (0, 50))
    made.slice(12, "cuda_runtime", "cudaLaunchKernel", (10, 18), correlation=4)
    made.slice(7, "kernel", "gemm", (20, 40), correlation=4, device=0, stream=7)
    assert events(written(tmp_path, made.trace)) == [
        (0, 50, "op", "aten::mm", 9, 12, None, None, None),
        (10, 8, "runtime", "cudaLaunchKernel", 9, 12, None, None, 4),
        (20, 20, "kernel", "gemm", None, None, 0, 7, 4),
    ]


def test_arrows_join_where_no_correlation_does(tmp_path: Path) -> None:
    made = traces.RocProf()
    made.track(12, "python3", tid=12)
    made.track(7, "stream 7")
    made.slice(12, "cuda_runtime", "cudaGraphLaunch", (10, 18))
    launch = made.trace.packet[-2].track_event
    launch.flow_ids[:] = [5, 6]
    for start, flow in ((20, 5), (30, 6)):
        made.slice(7, "kernel", "gemm", (start, start + 9), device=0, stream=7)
        made.trace.packet[-2].track_event.flow_ids[:] = []
        made.trace.packet[-2].track_event.terminating_flow_ids.append(flow)
    breakdown = broken_down(written(tmp_path, made.trace))
    assert [e["launch_id"] for e in breakdown.events().to_pylist()] == [None, 0, 0]


def test_a_trace_of_no_known_profiler_is_foreign(tmp_path: Path) -> None:
    made = traces.RocProf()
    made.track(12, "RenderThread", tid=12)
    made.slice(12, "gfx\x1b[31m", "DrawFrame", (0, 50))
    path = written(tmp_path, made.trace)
    with pytest.raises(ForeignFileError) as caught:
        formats.read(path)
    assert str(caught.value) == (
        f"{path}: is a Perfetto trace of an unknown profiler (categories: gfx [31m); "
        "give a trace of lstmprof export, rocprofv3 or torch.profiler"
    )


def test_what_is_cut_damaged_or_empty_is_told_in_a_line(tmp_path: Path) -> None:
    content: bytes = traces.rocprofv3().SerializeToString()
    assert refusal(written(tmp_path, content[:-3])).startswith(
        "the Perfetto trace is truncated in the packet at byte "
    )
    again = "; copy or record the trace again"
    damaged = content + b"\x12\x00"
    fault = f"the Perfetto trace is damaged at byte {len(content)}"
    assert refusal(written(tmp_path, damaged)) == fault + again
    fault = f"the Perfetto trace is damaged in the packet at byte {len(content)}"
    assert refusal(written(tmp_path, content + b"\x0a\x02\x5a\x05")) == fault + again
    nothing = Trace(packet=traces.rocprofv3().packet[:4])
    assert refusal(written(tmp_path, nothing)) == (
        "is a Perfetto trace without slices; "
        "record a profile with slices, or give a torch.profiler JSON"
    )
    zstd = Trace()
    zstd.packet.add(trusted_packet_sequence_id=1, zstd_compressed_packets=b"\x28\xb5\x2f\xfd")
    assert refusal(written(tmp_path, zstd)) == (
        "is a Perfetto trace with zstd-compressed packets; run traceconv decompress_packets first"
    )


def test_compressed_packets_unpack_within_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packets, "FREE_BYTES", 1000)
    monkeypatch.setattr(packets, "MAX_RATIO", 1)
    path = written(tmp_path, traces.compressed(traces.rocprofv3()))
    assert refusal(path).startswith("its packets decompress to more than 1 times the file's size")


def test_a_few_bytes_that_decompress_to_many_packets_are_refused(tmp_path: Path) -> None:
    whole = traces.rocprofv3()
    content = whole.SerializeToString()
    many = content * (packets.FREE_BYTES // len(content) + 1)
    bomb = Trace()
    bomb.packet.add(compressed_packets=zlib.compress(many))
    path = written(tmp_path, bomb)
    assert path.stat().st_size < len(many) / packets.MAX_RATIO
    assert refusal(path).startswith("its packets decompress to more than 50 times the file's size")


def test_packets_are_read_across_the_borders_of_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, traces.rocprofv3())
    for window in (12, 13, 64, 101):
        monkeypatch.setattr(packets, "_WINDOW_BYTES", window)
        assert events(path, "bytes") == OF_ROCPROF


def test_the_facts_stand_on_a_track_without_slices(tmp_path: Path) -> None:
    path = tmp_path / "x.pftrace"
    perfetto.write(broken_down(PROFILES / NAMES[1]), path)
    assert "lstmprof" not in {one.track for one in opened(path).slices}


def test_what_a_kernel_was_launched_with_reads_back(tmp_path: Path) -> None:
    args = {"device": 0, "stream": 7, "registers per thread": 32, "shared memory": 64}
    sizes = {"grid": [80, 1, 1], "block": [128, 1, 1], "est. achieved occupancy %": 31}
    at = {"ph": "X", "cat": "kernel", "name": "gemm", "dur": 4, "pid": 0, "tid": 7}
    kernels = [{**at, "ts": 10, "args": args | sizes}, {**at, "ts": 20, "args": {"device": 0}}]
    profile = tmp_path / "trace.json"
    profile.write_bytes(document(*kernels))
    check_round_trip(profile, tmp_path)
    read = formats.read(tmp_path / "x.pftrace").events
    assert read["launch_config"].to_pylist() == [
        '{"grid":[80,1,1],"block":[128,1,1],"registers":32,"shared_bytes":64,'
        '"estimated_occupancy":0.31}',
        None,
    ]


@pytest.mark.parametrize(
    ("kind", "written", "config"),
    [
        ("kernel", '{"block": [64, 1, 1], "x": 1}', '{"block":[64,1,1]}'),
        ("kernel", '{"block": [0, 1, 1]}', None),
        ("kernel", "{", None),
        ("op", '{"block":[64,1,1]}', None),
    ],
)
def test_what_another_wrote_of_a_launch_is_checked(
    kind: str, written: str, config: str | None
) -> None:
    slice_ = Slice(0, 1, "x", "", {"kind": kind, "launch_config": written}, (), 0)
    read = writers.row(slice_, writers.Where())
    assert read is not None
    assert read.launch_config == config
