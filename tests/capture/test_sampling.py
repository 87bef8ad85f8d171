"""Sampled passes: what a sampler brings, and the one line that says why it brings nothing.

py-spy and perf are run where they are; without them, or where the kernel forbids, tests skip.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from lstmprof.base.errors import UsageError
from lstmprof.capture.harness.rounds import capture_run
from lstmprof.capture.request import PERF, PY_SPY, CaptureRequest
from lstmprof.capture.worker.sampling import collapsed, generated, sampled
from lstmprof.runs.run import Run
from lstmprof.workloads import Workload

TINY = Workload(
    "tiny",
    layers=1,
    hidden=8,
    bidirectional=False,
    batch=4,
    time_steps=5,
    features=3,
    classes=2,
    loss="ce",
)


def _request(sampler: str | None, implementation: str = "torch-lstmcell-basic") -> CaptureRequest:
    return CaptureRequest(
        implementation,
        TINY,
        device="cpu",
        iterations=3,
        profile_steps=1,
        peaks=False,
        sampler=sampler,
        sampler_s=2,
    )


def _stand_in(folder: Path, name: str, script: str) -> None:
    binary = folder / name
    binary.write_text("#!/bin/sh\n" + script)
    binary.chmod(binary.stat().st_mode | stat.S_IXUSR)


def test_perf_script_is_read_innermost_first() -> None:
    lines = (
        "python 15456 \n",
        "\t  1aee1c _PyObject_Free (/lib/libpython3.11.so.1.0)\n",
        "\t  106e3a f<a; b>(int) (/lib/x.so)\n",
        "\n",
        "tf pool 7 \n",
        "\t  7fb5 [unknown] (/tmp/perf-1.map)\n",
        "\n",
    )

    frames = "f<a, b>(int) (/lib/x.so);_PyObject_Free (/lib/libpython3.11.so.1.0)"
    assert collapsed(lines) == {
        f"thread (15456): python;{frames}": 1,
        "thread (7): tf pool;0x7fb5 (/tmp/perf-1.map)": 1,
    }


def test_generated_code_is_sorted_by_its_place() -> None:
    assert generated(["20 8 jit_b kern\n", "10 4 jit_a\n"]) == [
        (0x10, 0x14, "jit_a"),
        (0x20, 0x28, "jit_b kern"),
    ]


def test_sampler_that_is_not_there_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    outcome = sampled(lambda: None, _request(PY_SPY), str(tmp_path))

    assert outcome.file is None
    assert outcome.reason is not None
    assert "lstmprof[sampler]" in outcome.reason


def test_sampler_that_may_not_attach_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stand_in(tmp_path, PY_SPY, "echo 'Error: Permission Denied: try again as root'; exit 1\n")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    outcome = sampled(lambda: None, _request(PY_SPY), str(tmp_path))

    assert outcome.file is None
    assert outcome.reason == ("py-spy: Error: Permission Denied: try again as root (exit status 1)")


def test_capture_goes_on_without_its_sampler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    _stand_in(tmp_path, PY_SPY, "echo 'Error: no such luck'; exit 3\n")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    lines: list[str] = []

    run = capture_run(
        _request(PY_SPY), tmp_path / "runs", rounds=1, progress=lambda line: lines.append(line)
    )

    assert run.samples() is None
    assert run.info.sampling is not None
    assert run.info.sampling[0].reason == "py-spy: Error: no such luck (exit status 3)"
    assert any("no samples: py-spy: Error: no such luck" in line for line in lines)


def test_unknown_sampler_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown sampler"):
        capture_run(_request("gdb"), tmp_path)


def _sampled_run(sampler: str, out: Path) -> Run:
    pytest.importorskip("torch")
    if shutil.which(sampler) is None:
        pytest.skip(f"{sampler} is not installed")
    run = capture_run(_request(sampler), out, rounds=1)
    assert run.info.sampling is not None
    if run.info.sampling[0].reason:
        pytest.skip(run.info.sampling[0].reason)
    return run


@pytest.mark.measured
@pytest.mark.parametrize("sampler", [PY_SPY, PERF])
def test_steps_are_sampled_and_sorted_into_parts(sampler: str, tmp_path: Path) -> None:
    run = _sampled_run(sampler, tmp_path)

    samples = run.samples()
    assert samples is not None
    rows = samples.to_pylist()
    counts = {part: sum(r["count"] for r in rows if r["part"] == part) for part in _parts(rows)}
    total = sum(counts.values())
    assert run.info.sampling is not None
    assert run.info.sampling[0].samples == total > 20
    assert {"pointwise", "dispatch", "python"} <= set(counts)
    assert counts.get("unknown", 0) < total / 10
    assert [path.name for path in (run.path / "profile").glob("*samples*")] == [
        "round-0-samples.txt.gz"
    ]


def _parts(rows: list[dict[str, object]]) -> set[str]:
    return {str(row["part"]) for row in rows}


@pytest.mark.measured
def test_only_steps_are_sampled_by_py_spy(tmp_path: Path) -> None:
    samples = _sampled_run(PY_SPY, tmp_path).samples()

    assert samples is not None
    first = {row["frames"][0].partition(" ")[0] for row in samples.to_pylist()}
    assert first == {"Trainer.step"} or first == {"step"}
