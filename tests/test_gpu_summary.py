"""The table at the end of a session: a line a capture, with a GPU's account where it was read."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import raw_captures, summary
from lstmprof.capture.worker.machine.usage import Waiting

WALLS_NS = [900_000, 210_000, 200_000, 190_000]


def event(cat: str, name: str, start: float, dur: float, **args: Any) -> dict[str, Any]:
    where = {"pid": 0, "tid": 7} if cat == "kernel" else {"pid": 1, "tid": 1}
    return {"ph": "X", "cat": cat, "name": name, "ts": start, "dur": dur, **where, "args": args}


def trace() -> list[dict[str, Any]]:
    """One step on a GPU, µs.

    ::

        0        20  30           60        100
        [step                                 ]
           [op 10-30 [launch 20-30]]
                        [kernel 40-60]            busy 20 of 100
    """
    return [
        event("user_annotation", "step", 0, 100),
        event("cpu_op", "aten::mm", 10, 20),
        event("cuda_runtime", "cudaLaunchKernel", 20, 10, correlation=5),
        event("kernel", "gemm", 40, 20, correlation=5, device=0, stream=7),
        event("cuda_runtime", "cudaDeviceSynchronize", 50, 45),
    ]


KERNEL_COUNTS = ("voluntary_switches", "preemptions", "minor_faults", "major_faults")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = raw_captures.place(tmp_path, "torch-nn-lstm--made")
    (folder / raw_captures.PROFILE).mkdir(parents=True)
    content = json.dumps({"schemaVersion": 1, "traceEvents": trace()}).encode()
    profile = folder / raw_captures.PROFILE / "made.pt.trace.json.gz"
    profile.write_bytes(gzip.compress(content))
    timings = {
        "iteration": list(range(4)),
        "warmup": [True, False, False, False],
        "wall_ns": WALLS_NS,
        "after_profile": [False] * 4,
        "turn": [None] * 4,
        "device_ns": [wall // 2 for wall in WALLS_NS],
        "cpu_ns": WALLS_NS,
        **{name: [0] * 4 for name in KERNEL_COUNTS},
        **dict.fromkeys(Waiting._fields, [None] * 4),
        "loss": [1.0] * 4,
    }
    metadata = {
        **{"started_at": "2026-11-21T17:00:00Z", "ended_at": "2026-11-21T17:01:00Z"},
        **{"profiled_wall_ns": [WALLS_NS[1]], "device_name": "NVIDIA H200"},
        "versions": {"torch": "2.11.0", "nvtx": None},
    }
    captured = {"metadata": metadata, "timings": timings, "profiles": [profile.name]}
    (folder / raw_captures.FILE).write_text(json.dumps(captured))
    return tmp_path


def test_what_is_no_run_yet_has_its_times(out: Path) -> None:
    (line,) = summary.lines(out, ["torch-nn-lstm--made", "not-captured"])
    assert (line.step_ms, line.device_ms, line.iterations) == (0.2, 0.1, 3)
    assert (line.busy_share, line.waits_for_host_share, line.activities) == (None, None, None)
    assert summary.hardware(out, [line.name]) == "NVIDIA H200; torch 2.11.0"
    assert summary.text([line])[1].split() == [
        *("0.200", "0.100", "–", "–", "–", "3", "0.00*", "torch-nn-lstm--made")
    ]


def test_a_run_has_the_account_of_its_gpu_too(out: Path) -> None:
    raw_captures.make_run(out, "torch-nn-lstm--made")
    (line,) = summary.lines(out, ["torch-nn-lstm--made"])
    assert (line.step_ms, line.device_ms, line.iterations) == (0.2, 0.1, 3)
    assert (line.busy_share, line.activities) == (0.2, 1)
    # before the kernel: 10 python, 10 dispatch, 10 launch call, 10 latency; after it 5 python
    assert line.waits_for_host_share == pytest.approx(0.45)
    assert summary.hardware(out, [line.name]) == "NVIDIA H200; torch 2.11.0"


def test_nothing_captured_is_said() -> None:
    assert summary.hardware(Path("nowhere"), ["none"]) == "nothing was captured"
