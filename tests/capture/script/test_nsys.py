"""Nsight Systems around a script: by a stand-in that is called as nsys is, and by its lack."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import lstmprof as lp

SCRIPT = """
import torch
model = torch.nn.Linear(3, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range({steps}):
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
print("trained")
raise SystemExit(7)
"""


def ran(folder: Path, path: str, steps: int = 200) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(SCRIPT.format(steps=steps), encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-m", "lstmprof", "run", "train.py", "--profiler", "nsys", "--steps", "2"],
        cwd=folder,
        env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )


def test_what_nsys_recorded_becomes_the_run(tmp_path: Path, path_with_nsys: str) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("nvtx")
    ended = ran(tmp_path, path_with_nsys)
    assert (ended.returncode, ended.stdout) == (7, "trained\n"), ended.stderr
    assert "lstmprof: wrote traces/train; next: lstmprof diagnose traces/train" in ended.stderr
    run = lp.read(tmp_path / "traces" / "train")
    info = run.info
    assert (info.profiler, info.profile_format, info.source) == ("nsys", "nsys", "own code")
    assert (info.iterations, len(info.profiled_wall_ns or ())) == (20, 2)
    assert info.recording is None
    assert [row["dur_ns"] for row in run.table("steps").rows()] == [800, 800]


def test_a_script_that_ends_too_early_under_nsys_is_told_so_once(
    tmp_path: Path, path_with_nsys: str
) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("nvtx")
    ended = ran(tmp_path, path_with_nsys, steps=9)
    assert ended.returncode == 7
    lines = [line for line in ended.stderr.splitlines() if "did not write" in line]
    assert len(lines) == 1, ended.stderr


def test_without_nsys_one_line_says_so_and_nothing_runs(tmp_path: Path) -> None:
    ended = ran(tmp_path, str(tmp_path))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("lstmprof: error: nsys is not on the PATH; install Nsight")
    assert len(ended.stderr.splitlines()) == 1
