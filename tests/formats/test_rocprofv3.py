"""rocprofv3's JSON of a few records, as its schema describes them.

In ns, after 7 s::

    range      0 ............................................. 100   step 0
    calls        10-18  20-28
    GPU 0                 30–45   50–80      copy, kernel
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from attack import seeds

import lstmprof as lp
from lstmprof import formats
from lstmprof.base.errors import ProfileError
from lstmprof.formats.rocm.rocprofv3 import ROOT


@pytest.fixture
def process() -> dict[str, Any]:
    """The only process of a trace."""
    (content,) = seeds.rocprofv3()
    (process,) = json.loads(content)[ROOT]
    made: dict[str, Any] = process
    return made


def written(folder: Path, *processes: Any) -> Path:
    path = folder / "results.json"
    path.write_text(json.dumps({ROOT: list(processes)}), encoding="utf-8")
    return path


def events(path: Path) -> list[dict[str, Any]]:
    columns = ["kind", "name", "start_ns", "dur_ns", "pid", "tid", "device", "stream"]
    columns += ["correlation_id", "bytes"]
    rows: list[dict[str, Any]] = formats.read(path).events.select(columns).to_pylist()
    return sorted(rows, key=lambda row: row["start_ns"])


def test_kernels_copies_calls_and_ranges_are_read(tmp_path: Path, process: dict[str, Any]) -> None:
    profile = formats.read(written(tmp_path, process))
    assert (profile.format, profile.base_ns) == ("rocprofv3", None)
    assert profile.device_names == {0: "AMD Instinct MI300X", 1: "gfx942"}
    assert profile.device_facts[1].multiprocessors == 304
    assert not any("left out" in note for note in profile.notes)
    host, gpu = {"pid": 9, "tid": 12, "device": None}, {"pid": 9, "tid": None, "device": 0}
    assert events(tmp_path / "results.json") == [
        {**row, **place, "start_ns": start, "dur_ns": end - start, "stream": stream}
        | {"correlation_id": correlation, "bytes": size}
        for row, place, start, end, stream, correlation, size in (
            ({"kind": "range", "name": "step 0"}, host, 0, 100, None, None, None),
            ({"kind": "runtime", "name": "hipLaunchKernel"}, host, 10, 18, None, 3, None),
            ({"kind": "runtime", "name": "hipLaunchKernel"}, host, 20, 28, None, 2, None),
            ({"kind": "memcpy", "name": "Memcpy HtoD"}, gpu, 30, 45, None, 3, 64),
            ({"kind": "kernel", "name": "Cijk_Ailk_MT64(float*)"}, gpu, 50, 80, 2, 2, None),
        )
    ]


def test_every_nanosecond_of_it_is_accounted_for(tmp_path: Path, process: dict[str, Any]) -> None:
    run = lp.read(written(tmp_path, process))
    rows = run.ledger().rows()
    assert sum(row["ns"] for row in rows) == 100
    busy = {row["part"]: row["ns"] for row in rows if row["state"] == "busy"}
    assert busy == {"gemm": 30, "transfer": 15}
    assert {row["kind"] for row in run.table("launches").rows()} == {"memcpy", "kernel"}


def test_a_stream_is_hip_s_where_the_version_tells_it(
    tmp_path: Path, process: dict[str, Any]
) -> None:
    records = process["buffer_records"]
    for name, stream in (("kernel_dispatch", 4), ("memory_copy", 5)):
        records[name][0]["stream_id"] = {"handle": stream}
    read = events(written(tmp_path, process))
    assert [row["stream"] for row in read if row["device"] == 0] == [5, 4]


def test_calls_of_the_compiler_and_marks_are_not_read(
    tmp_path: Path, process: dict[str, Any]
) -> None:
    process["strings"]["buffer_records"].append(
        {"kind": "HIP_COMPILER_API", "operations": ["__hipPushCallConfiguration"]}
    )
    records = process["buffer_records"]
    records["hip_api"].append({**records["hip_api"][0], "kind": 5, "operation": 0})
    records["marker_api"].append({**records["marker_api"][0], "operation": 0})
    profile = formats.read(written(tmp_path, process))
    assert len(profile.events) == 5
    assert not any("left out" in note for note in profile.notes)


def test_records_without_time_name_or_device_are_counted(
    tmp_path: Path, process: dict[str, Any]
) -> None:
    records = process["buffer_records"]
    (kernel,), (copy,) = records["kernel_dispatch"], records["memory_copy"]
    ended = kernel["end_timestamp"]
    records["kernel_dispatch"] += [
        {**kernel, "start_timestamp": ended + 1},
        {**kernel, "dispatch_info": {**kernel["dispatch_info"], "kernel_id": 6}},
        {**kernel, "dispatch_info": {**kernel["dispatch_info"], "agent_id": {"handle": 90}}},
    ]
    records["memory_copy"].append({**copy, "operation": 0})
    profile = formats.read(written(tmp_path, process))
    assert len(profile.events) == 5
    assert any(note.startswith("4 records without") for note in profile.notes)


def test_two_processes_are_told_apart(tmp_path: Path, process: dict[str, Any]) -> None:
    other = {**process, "metadata": {"pid": 10}}
    read = events(written(tmp_path, process, other))
    assert [row["pid"] for row in read].count(10) == 5


@pytest.mark.parametrize("processes", [[], [{}], [{"buffer_records": {"kernel_dispatch": [{}]}}]])
def test_a_trace_of_nothing_says_how_to_record_one(processes: list[Any], tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"has no kernel.*rocprofv3 --runtime-trace"):
        formats.read(written(tmp_path, *processes))


def test_a_kernel_says_what_it_was_launched_with(tmp_path: Path, process: dict[str, Any]) -> None:
    (kernel,) = process["buffer_records"]["kernel_dispatch"]
    threads, block = {"x": 1000, "y": 4, "z": 1}, {"x": 256, "y": 2, "z": 1}
    sizes = {"grid_size": threads, "workgroup_size": block, "group_segment_size": 512}
    kernel["dispatch_info"] |= sizes
    profile = formats.read(written(tmp_path, process))
    assert [c for c in profile.events["launch_config"].to_pylist() if c] == [
        '{"grid":[4,2,1],"block":[256,2,1],"shared_bytes":512}'
    ]


def test_the_csv_of_kernels_is_read(tmp_path: Path) -> None:
    (content,) = seeds.rocprofv3_csv()
    path = tmp_path / "out_kernel_trace.csv"
    path.write_bytes(content)
    profile = formats.read(path)
    assert (profile.format, profile.base_ns) == ("rocprofv3", None)
    place = {"kind": "kernel", "pid": None, "tid": None, "stream": 4, "bytes": None}
    assert events(path) == [
        {**place, "name": name, "start_ns": start, "dur_ns": ns, "device": device}
        | {"correlation_id": number}
        for name, start, ns, device, number in (
            ("rms_norm_f32(float const*, float*)", 0, 15, 0, 2),
            ("void mul_mat_q<(ggml_type)12, 64>(char const*, float*)", 20, 30, 1, 1),
            ("rms_norm_f32(float const*, float*)", 60, 5, 0, 3),
        )
    ]
    assert set(profile.events["launch_config"].to_pylist()) == {
        '{"grid":[4,2,1],"block":[256,2,1]}'
    }


def test_the_csv_of_the_first_versions_has_no_stream_and_rows_may_be_damaged(
    tmp_path: Path,
) -> None:
    (content,) = seeds.rocprofv3_csv()
    path = tmp_path / "out_kernel_trace.csv"
    first = content.replace(b'"Stream_Id"', b'"Private"').replace(b"7000000090", b"7000000096")
    path.write_bytes(first + b'"KERNEL_DISPATCH","Agent 2"\n')
    assert [row["stream"] for row in events(path)] == [3, 3]
    path.write_bytes(content.splitlines()[0])
    with pytest.raises(ProfileError, match=r"has no kernel.*rocprofv3 --runtime-trace"):
        formats.read(path)
