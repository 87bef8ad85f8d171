"""nvprof databases of ten events or fewer, one for each trap."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from formats.databases import Rows, by_name, column, read_tables
from lacking import lacks

from lstmprof.base.errors import ProfileError
from lstmprof.events import DeviceFacts
from lstmprof.formats import raw_file
from lstmprof.formats.cuda import nsys, nvprof
from lstmprof.formats.cuda.names import OVERHEADS

KIND = "CUPTI_ACTIVITY_KIND_"
KERNELS, CALLS, MARKERS = KIND + "CONCURRENT_KERNEL", KIND + "RUNTIME", KIND + "MARKER"
STRINGS = [
    {"_id_": 0, "value": "-- null --"},
    {"_id_": 1, "value": "_Z4gemmPf"},
    {"_id_": 2, "value": "Tesla V100"},
    {"_id_": 3, "value": "mm, seq = 65"},
    {"_id_": 4, "value": "step"},
]
EPOCH_NS = 1_583_978_808_645_000_000
#: The lower half of a pthread_t: calls have it signed, markers in the bytes of an object's id.
TID = 0xEADC3740
PLACE = {"deviceId": 0, "contextId": 1, "streamId": 7}


def kernel(start: int, end: int, correlation: int) -> dict[str, Any]:
    times = {"start": EPOCH_NS + start, "end": EPOCH_NS + end}
    return {**times, **PLACE, "correlationId": correlation, "name": 1}


def call(start: int, end: int, correlation: int, cbid: int = 211) -> dict[str, Any]:
    times = {"start": EPOCH_NS + start, "end": EPOCH_NS + end, "correlationId": correlation}
    return {**times, "processId": 9, "threadId": TID - 2**32, "cbid": cbid}


def marker(flags: int, at: int, number: int, name: int = 0) -> dict[str, Any]:
    thread = struct.pack("<III", 9, TID, 0)
    return {
        **{"flags": flags, "timestamp": EPOCH_NS + at, "id": number, "name": name},
        **{"objectKind": 2, "objectId": thread},
    }


def read_nvprof(folder: Path, **tables: Rows) -> Any:
    return read_tables(folder, **{"StringTable": STRINGS, KERNELS: [{"start": None}], **tables})


def test_a_step_an_op_its_launch_and_its_kernel(tmp_path: Path) -> None:
    # ns     0    10   20    35     50   60  80    100
    # host   |-step------------------------------->|
    # host        |-mm, seq = 65-------->|
    # host             |-launch->|
    # device                        |-_Z4gemmPf->|
    profile = read_nvprof(
        tmp_path,
        **{
            KERNELS: [kernel(50, 80, 9)],
            CALLS: [call(20, 35, 9)],
            MARKERS: [
                marker(2, 0, 1, 4),
                marker(2, 10, 2, 3),
                marker(4, 60, 2),
                marker(4, 100, 1),
                marker(1, 70, 3, 1),  # an instant
            ],
            KIND + "DEVICE": [
                {
                    **{"id": 0, "name": 2, "numMultiprocessors": 80, "numThreadsPerWarp": 32},
                    **{"computeCapabilityMajor": 7, "computeCapabilityMinor": 0},
                }
            ],
            "Version": [{"version": 12}],
        },
    )
    assert column(profile, "kind") == ["step", "op", "runtime", "kernel"]
    assert column(profile, "name") == ["step", "aten::mm", "cudaLaunchKernel", "_Z4gemmPf"]
    assert column(profile, "start_ns") == [0, 10, 20, 50]
    assert column(profile, "dur_ns") == [100, 50, 15, 30]
    assert column(profile, "pid") == [9, 9, 9, None]
    assert column(profile, "tid") == [TID, TID, TID, None]
    assert column(profile, "correlation_id") == [None, None, 9, 9]
    assert (column(profile, "device")[3], column(profile, "stream")[3]) == (0, 7)
    assert profile.base_ns == EPOCH_NS
    assert profile.device_names == {0: "Tesla V100"}
    assert profile.device_facts == {0: DeviceFacts("7.0", 80, 32)}
    assert profile.metadata == {"schema_version": 12}
    assert profile.notes == ()


def test_the_two_profilers_are_told_apart_by_their_tables(tmp_path: Path) -> None:
    read_nvprof(tmp_path, **{CALLS: [call(0, 9, 1)]})
    raw = raw_file.load(tmp_path / "profile.sqlite")
    assert (nvprof.recognises(raw), nsys.recognises(raw)) == (True, False)
    read_tables(tmp_path, StringIds=[{"id": 1, "value": "x"}], **{CALLS: [call(0, 9, 1)]})
    raw = raw_file.load(tmp_path / "profile.sqlite")
    assert (nvprof.recognises(raw), nsys.recognises(raw)) == (False, True)


def test_copies_count_memory_otherwise_than_nsight(tmp_path: Path) -> None:
    copy = {**kernel(0, 5, 1), "bytes": 8, "copyKind": 2, "srcKind": 3, "dstKind": 1}
    profile = read_nvprof(
        tmp_path,
        **{
            KIND + "MEMCPY": [copy],
            KIND + "MEMSET": [{**kernel(5, 9, 2), "bytes": 64, "memoryKind": 3}],
        },
    )
    assert by_name(profile, "bytes") == {
        "Memcpy DtoH (Device -> Pageable)": 8,
        "Memset (Device)": 64,
    }


def test_waits_have_the_device_of_their_context(tmp_path: Path) -> None:
    times = {"start": EPOCH_NS, "end": EPOCH_NS + 9, "correlationId": 1}
    profile = read_nvprof(
        tmp_path,
        **{
            CALLS: [call(0, 9, 1, cbid=131)],
            KIND + "CONTEXT": [{"contextId": 1, "deviceId": 3}],
            KIND + "SYNCHRONIZATION": [
                {**times, "contextId": 1, "streamId": 7, "type": 3},
                {**times, "contextId": 2, "streamId": -1, "type": 1},
            ],
        },
    )
    assert by_name(profile, "device") == {
        "cudaStreamSynchronize": None,
        "Stream Synchronize": 3,
        "Event Synchronize": None,
    }


def test_calls_and_overheads_have_numbers_for_names(tmp_path: Path) -> None:
    times = {"start": EPOCH_NS + 1, "end": EPOCH_NS + 2, "objectId": struct.pack("<III", 9, 0, 0)}
    profile = read_nvprof(
        tmp_path,
        **{
            CALLS: [call(0, 9, 1, cbid=41), call(1, 9, 2, cbid=9999)],
            KIND + "DRIVER": [call(2, 9, 3, cbid=307), call(3, 9, 4, cbid=-1)],
            KIND + "OVERHEAD": [
                {**times, "overheadKind": 2 << 16},
                {**times, "overheadKind": 6 << 16},
            ],
        },
    )
    assert by_name(profile, "kind") == {
        "cudaMemcpyAsync": "runtime",
        "CUDA runtime call 9999": "runtime",
        "cuLaunchKernel": "runtime",
        "CUDA driver call": "runtime",
        "Instrumentation": "overhead",
        "Command Buffer Full": "runtime",
    }
    assert by_name(profile, "tid")["Instrumentation"] is None
    assert next(iter(lacks(profile))) == "no GPU activity"


def test_a_marker_without_its_end_lasts_until_the_last_event(tmp_path: Path) -> None:
    profile = read_nvprof(
        tmp_path, **{MARKERS: [marker(2, 0, 1, 4), marker(4, 3, 7)], KERNELS: [kernel(20, 30, 1)]}
    )
    assert by_name(profile, "dur_ns") == {"step": 30, "_Z4gemmPf": 10}
    assert profile.notes[0].startswith("1 NVTX ranges were still open")
    assert next(iter(lacks(profile))) == "no launches"


def test_objects_that_are_no_bytes_are_unknown(tmp_path: Path) -> None:
    rows = [{**marker(2, 0, 1, 4), "objectId": "x"}, marker(4, 9, 1)]
    profile = read_nvprof(tmp_path, **{MARKERS: rows})
    assert (column(profile, "pid"), column(profile, "tid")) == ([None], [None])


def test_overheads_and_ranges_of_no_object_are_of_no_thread(tmp_path: Path) -> None:
    overhead = {"start": EPOCH_NS + 1, "end": EPOCH_NS + 2, "overheadKind": 2 << 16}
    ends = [marker(2, 0, 1, 4), marker(4, 9, 1)]
    for end in ends:
        del end["objectId"]
    profile = read_nvprof(tmp_path, **{KIND + "OVERHEAD": [overhead], MARKERS: ends})
    assert column(profile, "name") == ["step", "Instrumentation"]
    assert (column(profile, "pid"), column(profile, "tid")) == ([None, None], [None, None])


def test_an_empty_session_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="has no CUDA call and no NVTX range; profile with"):
        read_nvprof(tmp_path)


def test_overheads_are_called_as_cupti_numbers_them() -> None:
    """Source: CUpti_ActivityOverheadKind in cupti_activity.h."""
    assert {kind: name for kind, (name, _) in OVERHEADS.items()} == {
        1: "Driver Compiler",
        0x10000: "Buffer Flush",
        0x20000: "Instrumentation",
        0x30000: "Resource",
        0x40000: "Runtime Triggered Module Loading",
        0x50000: "Lazy Function Loading",
        0x60000: "Command Buffer Full",
    }


def test_a_kernel_says_what_it_was_launched_with(tmp_path: Path) -> None:
    sizes = {"gridX": 4, "gridY": 1, "gridZ": 1, "blockX": 64, "blockY": 1, "blockZ": 1}
    memory = {"registersPerThread": 20, "staticSharedMemory": 16, "dynamicSharedMemory": 0}
    profile = read_nvprof(tmp_path, **{KERNELS: [{**kernel(0, 9, 1), **sizes, **memory}]})
    assert column(profile, "launch_config") == [
        '{"grid":[4,1,1],"block":[64,1,1],"registers":20,"shared_bytes":16,'
        '"dynamic_shared_bytes":0}'
    ]
