"""A run is there whole or not at all, wherever its writing is killed or finds the disk full.

Twenty of the kills, and some full disks; more of them: ``make faults``.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from attack import faults
from attack.seeds import kineto

from lstmprof.cli import run
from lstmprof.runs.run import runs_in

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc for the fault points")
SMALL_DISK = "256k"


@needs_gcc
@pytest.mark.parametrize(
    ("scenario", "fault"),
    [
        ("a run replaced", faults.KILL),
        ("a new run", faults.KILL),
        ("a run replaced", faults.ENOSPC),
    ],
)
def test_a_fault_at_any_change_of_files_leaves_whole_runs(scenario: str, fault: str) -> None:
    results = faults.outcomes(scenario, fault, most=10)
    assert len(results) >= 7
    assert [outcome for outcome in results if outcome.problems] == []


@needs_gcc
def test_a_disk_that_is_full_for_a_captures_worker_leaves_whole_runs_and_it_goes_on() -> None:
    pytest.importorskip("onnxruntime")
    results = faults.outcomes("a capture's worker", faults.ENOSPC, most=1)
    assert [outcome.problems for outcome in results] == [()]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "tmpfs", os.fspath(place)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        pytest.skip(f"nothing can be mounted: {error}")
    if mounted.returncode:
        pytest.skip(f"nothing can be mounted: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", os.fspath(place)], check=True)


def profile(folder: Path) -> Path:
    file = folder / "a.json"
    file.write_bytes(kineto()[0])
    return file


@pytest.mark.parametrize("left_bytes", [0, 4096, 8192, 12_288])
def test_a_full_disk_is_one_line_and_costs_no_run(
    left_bytes: int, small_disk: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file, out = profile(tmp_path), small_disk / "out"
    assert run(["ingest", str(file), "--out", str(out), "--name", "old"]) == 0
    before = (out / "old" / "events.parquet").read_bytes()
    room = shutil.disk_usage(small_disk).free
    (small_disk / "other").write_bytes(bytes(room - left_bytes))
    capfd.readouterr()
    assert run(["ingest", str(file), "--out", str(out)]) == 1
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith("lstmprof: error: ")
    assert str(out) in said
    assert sorted(path.name for path in out.iterdir()) == ["old"]
    assert (out / "old" / "events.parquet").read_bytes() == before
    (small_disk / "other").unlink()
    assert run(["ingest", str(file), "--out", str(out)]) == 0
    assert [each.name for each in runs_in(out)] == ["a", "old"]


def test_a_limit_on_files_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    file, out = profile(tmp_path), tmp_path / "out"
    command = [sys.executable, "-m", "lstmprof", "ingest", str(file), "--out", str(out)]
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
    )
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "too large" in ended.stderr
    assert [*out.iterdir()] == []
