"""GPU metrics of Nsight Systems, in tables as its documentation has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from formats.databases import Rows, read_tables
from formats.test_nsys import KERNELS, kernel, strings

from lstmprof.events import Profile, counters

METRICS, NAMES = "GPU_METRICS", "TARGET_INFO_GPU_METRICS"
#: A virtual machine's number above that of the GPU, as in ``typeId``.
MACHINE = 0x1_0001_0000_0000
ACTIVE, CLOCK = "SMs Active [Throughput %]", "GPC Clock Frequency [MHz]"


def sample(at_ns: int | None, gpu: int, metric: int, value: object) -> dict[str, Any]:
    of = {"typeId": MACHINE | gpu, "metricId": metric, "value": value}
    return {"rawTimestamp": 77, "timestamp": at_ns, **of}


def name(gpu: int, metric: int, text: str) -> dict[str, Any]:
    of = {"typeId": MACHINE | gpu, "sourceId": 5, "typeName": "GPU Metrics [A100]"}
    return {**of, "metricId": metric, "metricName": text}


def tables(*samples: dict[str, Any], **more: Rows) -> dict[str, Rows]:
    return {
        "StringIds": strings(),
        KERNELS: [kernel(100, 200, 1)],
        "TARGET_INFO_GPU": [{"id": 0, "name": "A", "cuDevice": 1}, {"id": 1, "cuDevice": 0}],
        METRICS: [*samples],
        NAMES: [name(0, 3, ACTIVE), name(1, 3, ACTIVE), name(1, 8, CLOCK)],
        **more,
    }


def told(profile: Profile) -> list[tuple[Any, ...]]:
    rows = profile.counters.table().to_pylist()
    assert {(row["unit"], row["pid"], row["allocator"]) for row in rows} <= {(None, None, None)}
    return [(row["time_ns"], row["device"], row["name"], row["value"]) for row in rows]


def test_they_are_counters_of_the_device_that_cuda_calls_so(tmp_path: Path) -> None:
    # GPU 0 is CUDA's device 1, and the other way round; the kernel begins at 100
    samples = (sample(120, 1, 3, 40), sample(90, 0, 3, 7), sample(120, 1, 8, 1_410_000_000))
    profile = read_tables(tmp_path, **tables(*samples))
    assert told(profile) == [
        (-10, 1, ACTIVE, 7.0),
        (20, 0, ACTIVE, 40.0),
        (20, 0, CLOCK, 1_410_000_000.0),
    ]
    assert profile.notes == ()


def test_of_a_gpu_that_no_process_uses_they_are_left_out(tmp_path: Path) -> None:
    of_process = [{"gpuId": 1, "cudaId": 0, "pid": 7}]
    samples = (sample(120, 1, 3, 40), sample(120, 0, 3, 7))
    profile = read_tables(tmp_path, **tables(*samples, TARGET_INFO_CUDA_DEVICE=of_process))
    assert told(profile) == [(20, 0, ACTIVE, 40.0)]
    (note,) = profile.notes
    assert note.startswith("1 GPU metric values were left out")


def test_two_processes_that_call_two_gpus_alike_have_nsights_numbers(tmp_path: Path) -> None:
    of_process = [{"gpuId": gpu, "cudaId": 0, "pid": 7 + gpu} for gpu in (0, 1)]
    samples = (sample(120, 1, 3, 40), sample(120, 0, 3, 7))
    profile = read_tables(tmp_path, **tables(*samples, TARGET_INFO_CUDA_DEVICE=of_process))
    assert sorted(told(profile)) == [(20, 0, ACTIVE, 7.0), (20, 1, ACTIVE, 40.0)]


@pytest.mark.parametrize(
    "odd",
    [sample(120, 0, 9, 1), sample(None, 0, 3, 1), sample(120, 0, 3, "1.5%"), sample(120, 5, 3, 1)],
)
def test_what_is_not_known_of_one_is_not_guessed(tmp_path: Path, odd: dict[str, Any]) -> None:
    profile = read_tables(tmp_path, **tables(odd))
    assert (told(profile), len(profile.notes)) == ([], 1)


def test_without_names_they_are_left_out(tmp_path: Path) -> None:
    without = tables(sample(120, 0, 3, 1))
    del without[NAMES]
    profile = read_tables(tmp_path, **without)
    assert (told(profile), len(profile.notes)) == ([], 1)


def test_many_go_through_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = tables(*(sample(100 + 7 * n % 50, n % 2, 3, n) for n in range(40)))
    whole = told(read_tables(tmp_path, **many))
    monkeypatch.setattr(counters, "BATCH_ROWS", 8)
    (tmp_path / "again").mkdir()
    parts = read_tables(tmp_path / "again", **many)
    assert len(list(parts.counters.batches())) > 1
    assert told(parts) == whole
