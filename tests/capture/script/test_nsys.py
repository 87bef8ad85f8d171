"""Nsight Systems around a script: by a stand-in that is called as nsys is, and by its lack."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import lstmprof as lp
from lstmprof.capture.script import nsys
from lstmprof.errors import CaptureError

STAND_IN = Path(__file__).parent / "nsys_stand_in.py"
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


@pytest.fixture
def path_with_nsys(tmp_path: Path) -> str:
    folder = tmp_path / "bin"
    folder.mkdir()
    tool = folder / "nsys"
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} {STAND_IN} "$@"\n', encoding="utf-8")
    tool.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


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
    assert "lstmprof: wrote traces/train; next: lstmprof breakdown traces/train" in ended.stderr
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
    lines = [line for line in ended.stderr.splitlines() if "is not written" in line]
    assert len(lines) == 1, ended.stderr


def test_without_nsys_one_line_says_so_and_nothing_runs(tmp_path: Path) -> None:
    ended = ran(tmp_path, str(tmp_path))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("lstmprof: error: nsys is not on the PATH; install Nsight")
    assert len(ended.stderr.splitlines()) == 1


def test_a_recording_that_nothing_reached_is_told(
    tmp_path: Path, path_with_nsys: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", path_with_nsys)
    with pytest.raises(CaptureError, match="no NVTX range of the steps reached it"):
        nsys.export(tmp_path)
    (tmp_path / "report.qdstrm").write_text("")
    with pytest.raises(CaptureError, match="this nsys has no QdstrmImporter"):
        nsys.export(tmp_path)


def test_debian_s_importer_is_found_where_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lib = tmp_path / "usr" / "lib"
    target = lib / "x86_64-linux-gnu" / "nsight-systems" / "target-linux-x64"
    importer = lib / "nsight-systems" / "host-linux-x64" / "QdstrmImporter"
    for folder in (target, importer.parent, tmp_path / "usr" / "bin"):
        folder.mkdir(parents=True)
    importer.write_text("#!/bin/sh\ntouch $(dirname $2)/report.nsys-rep\n", encoding="utf-8")
    (target / "nsys").write_text("#!/bin/sh\nexit 9\n", encoding="utf-8")
    for tool in (importer, target / "nsys"):
        tool.chmod(0o755)
    (tmp_path / "usr" / "bin" / "nsys").symlink_to(target / "nsys")
    monkeypatch.setenv("PATH", f"{tmp_path / 'usr' / 'bin'}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "report.qdstrm").write_text("")
    with pytest.raises(CaptureError, match="nsys failed: without a word"):
        nsys.export(tmp_path)
    assert (tmp_path / "report.nsys-rep").exists()
