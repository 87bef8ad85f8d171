"""Nsight Systems around a worker: by a stand-in, by nsys itself where it is there, by its lack."""

from __future__ import annotations

import gzip
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from capture.processes import processes_of, running, wait_until

import lstmprof as lp
from lstmprof.base.errors import CaptureError, UsageError
from lstmprof.capture import nsys
from lstmprof.capture.harness.rounds import capture_run
from lstmprof.capture.harness.supervisor import capture
from lstmprof.capture.request import NSYS, CaptureRequest, run_name
from lstmprof.workloads import Workload

CE = Workload("tiny", 1, 4, False, 2, 5, 3, 3, "ce")
ENDLESS = 10**7
SIZES = ["--hidden=4", "--batch=2", "--time-steps=5", "--iterations=4", "--warmup=1", "--no-peaks"]


def request(name: str = "torch-nn-lstm", **fields: Any) -> CaptureRequest:
    asked = {"device": "cpu", "iterations": 2, "warmup": 1, "profile_steps": 2, "peaks": False}
    return CaptureRequest(name, CE, profiler=NSYS, **{**asked, **fields})


def command(*more: str) -> list[str]:
    return [sys.executable, "-m", "lstmprof", "capture", *SIZES, "--profiler=nsys", *more]


@pytest.fixture
def by_stand_in(path_with_nsys: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    pytest.importorskip("torch")
    pytest.importorskip("nvtx")
    monkeypatch.setenv("PATH", path_with_nsys)
    return None


def test_what_nsys_recorded_becomes_the_run(tmp_path: Path, by_stand_in: None) -> None:
    told: list[str] = []
    run = lp.read(capture_run(request(), tmp_path / "runs", rounds=2, progress=told.append).path)
    info = run.info
    assert info.name == "torch-nn-lstm--tiny--fp32--cpu--nsys"
    assert (info.profiler, info.profile_format, info.framework) == ("nsys", "nsys", "torch")
    assert (info.iterations, info.kernels_used, info.recording) == (2, None, None)
    # two steps of 800 ns in each round's export
    assert [row["dur_ns"] for row in run.table("steps").rows()] == [800] * 4
    kept = sorted(path.name for path in (run.path / "profile").iterdir())
    assert kept == [f"round-{n}-steps.{e}" for n in (0, 1) for e in ("nsys-rep.gz", "sqlite.gz")]
    assert not [line for line in told if line.startswith("lstmprof")], told
    assert sum("exporting the nsys recording" in line for line in told) == 2


def test_the_run_s_name_says_that_another_profiler_recorded_it() -> None:
    assert run_name(request(label="x")) == "torch-nn-lstm--tiny--fp32--cpu--nsys--x"
    with pytest.raises(UsageError, match="unknown profiler 'nsyss'; did you mean 'nsys'"):
        capture(CaptureRequest("torch-nn-lstm", CE, profiler="nsyss"), Path(), print)


def test_without_nsys_one_line_says_so_and_nothing_runs(tmp_path: Path) -> None:
    ended = subprocess.run(
        command("--impl=torch-*", "--out=runs"),
        env={**os.environ, "PATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("lstmprof: error: nsys is not on the PATH; install Nsight")
    assert len(ended.stderr.splitlines()) == 1
    assert not (tmp_path / "runs").exists()


class Watcher:
    """Remembers the process of the worker, and does something when it begins to time steps."""

    def __init__(self, act: Any) -> None:
        self.act, self.pid = act, 0

    def __call__(self, line: str) -> None:
        if " in process " in line:
            self.pid = int(line.rpartition(" ")[2])
        if line == "timing":
            self.act(self.pid)


def test_a_worker_that_dies_under_nsys_is_named_with_its_signal(
    tmp_path: Path, by_stand_in: None
) -> None:
    watcher = Watcher(lambda pid: os.kill(pid, signal.SIGSEGV))
    with pytest.raises(CaptureError, match=r"killed by signal 11 \(SIGSEGV\)"):
        capture(request(iterations=ENDLESS), tmp_path / "scratch", watcher)


def test_a_worker_s_own_refusal_is_told_under_nsys_too(tmp_path: Path, by_stand_in: None) -> None:
    with pytest.raises(CaptureError, match="device cuda:77 is not available"):
        capture(request(device="cuda:77"), tmp_path / "scratch", lambda line: None)


@pytest.mark.parametrize("how", ["interrupted", "too slow"])
def test_a_capture_that_is_stopped_leaves_no_worker_under_nsys(
    how: str, tmp_path: Path, by_stand_in: None
) -> None:
    def stop(pid: int) -> None:
        if how == "interrupted":
            raise KeyboardInterrupt

    watcher = Watcher(stop)
    limit_s = 3600 if how == "interrupted" else 6
    error = KeyboardInterrupt if how == "interrupted" else CaptureError
    with pytest.raises(error):
        capture(request(iterations=ENDLESS, timeout_s=limit_s), tmp_path / "scratch", watcher)
    assert wait_until(lambda: not processes_of(tmp_path)), "a worker outlived its capture"


def test_a_capture_that_is_killed_leaves_no_worker_under_nsys(
    tmp_path: Path, by_stand_in: None
) -> None:
    with subprocess.Popen(
        command("--impl=torch-nn-lstm", f"--iterations={ENDLESS}"),
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    ) as supervisor:
        assert supervisor.stderr is not None
        line = next(line for line in supervisor.stderr if " in process " in line)
        pid = int(line.rpartition(" ")[2])
        assert running(pid)
        supervisor.kill()
    assert wait_until(lambda: not running(pid))


def test_a_recording_that_nothing_reached_is_told(tmp_path: Path, by_stand_in: None) -> None:
    with pytest.raises(CaptureError, match="received no NVTX range"):
        nsys.export(tmp_path)
    (tmp_path / "report.qdstrm").write_text("")
    with pytest.raises(CaptureError, match="nsys has no QdstrmImporter"):
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
    with pytest.raises(CaptureError, match="nsys failed: no message"):
        nsys.export(tmp_path)
    assert (tmp_path / "report.nsys-rep").exists()


PHASES = ("input", "forward", "loss", "backward", "optimizer")


@pytest.mark.parametrize(
    ("name", "phases"), [("torch-lstmcell-basic", PHASES), ("tf-lstmcell", ("input", "program"))]
)
def test_nsys_itself_records_each_step_and_its_phases(
    name: str, phases: tuple[str, ...], tmp_path: Path
) -> None:
    if shutil.which("nsys") is None:
        pytest.skip("nsys is not on the PATH")
    pytest.importorskip("nvtx")
    pytest.importorskip("tensorflow" if name.startswith("tf") else "torch")
    asked = request(name, iterations=2)
    scratch = tmp_path / "scratch"
    result = capture(asked, scratch, lambda line: None)
    (tmp_path / "steps.sqlite").write_bytes(gzip.decompress(result.profiles[0].read_bytes()))
    with closing(sqlite3.connect(tmp_path / "steps.sqlite")) as database:
        ranges = database.execute(
            "SELECT coalesce(text, value) FROM NVTX_EVENTS LEFT JOIN StringIds ON textId = id "
            "WHERE end IS NOT NULL ORDER BY start"
        ).fetchall()
    assert [name for (name,) in ranges] == ["profile", *["step", *phases] * 2]
    run = lp.read(capture_run(asked, tmp_path / "runs", rounds=1).path)
    steps = run.table("steps").rows()
    walls = run.info.profiled_wall_ns or ()
    assert len(steps) == len(walls) == 2
    # the range lies within what the worker measured of the step
    assert all(0 < row["dur_ns"] <= wall for row, wall in zip(steps, walls, strict=True))
