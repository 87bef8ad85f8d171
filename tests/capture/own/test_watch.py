"""``lp.watch``, ``lstmprof run --watch`` and ``lstmprof attach``: what they write, and when."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from capture.own.fake_profiler import FakeProfiler
from in_process import lstmprof

import lstmprof as lp
from lstmprof.base.errors import UsageError
from lstmprof.capture import captured_run
from lstmprof.capture.own import session as own_session, watch as own_watch
from lstmprof.capture.own.passes import Plan
from lstmprof.capture.own.watch import LEAST_STEPS, SLOW_WINDOWS, Watch
from lstmprof.capture.worker import profiling

PLAN = Plan(warmup=1, timed=4, steps=2, lines=0)
#: Steps of a session with this plan, and the one before its first border.
OF_SESSION = 20
THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class Clock:
    """A clock that steps alone move, in place of ``time`` in the watch."""

    def __init__(self) -> None:
        self.now_ns = 0

    def perf_counter_ns(self) -> int:
        return self.now_ns

    time = staticmethod(time.time)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Have windows end by this clock, and sessions by a profiler without a framework."""
    made = Clock()
    monkeypatch.setattr(own_watch, "time", made)
    monkeypatch.setattr(own_session, "profiler_of", lambda framework: FakeProfiler())
    monkeypatch.setattr(own_session, "framework_of", lambda asked: "torch")
    monkeypatch.setattr(own_watch, "profiler_of", lambda framework: FakeProfiler())
    monkeypatch.setattr(profiling, "THROWAWAY_NS", 0)
    monkeypatch.setattr(
        own_session, "write_in_child", lambda folder, _: captured_run.written(Path(folder))
    )
    return made


def watched(place: Path, lines: list[str], **options: Any) -> Watch:
    return Watch(place, plan=PLAN, report=lines.append, framework="torch", **options)


def train(watch: Watch, clock: Clock, steps: int, ms: float) -> None:
    for _ in range(steps):
        watch.step_begin()
        clock.now_ns += int(ms * 1e6)
        watch.step_end()
        if watch._session is None and watch._writing is not None:
            watch._writing.join()


def rows(place: Path, kind: str) -> list[dict[str, Any]]:
    log = place.with_name(place.name + ".jsonl").read_text("utf-8")
    return [row for row in map(json.loads, log.splitlines()) if row["kind"] == kind]


def test_steps_that_become_slower_are_profiled_once_and_compared(
    tmp_path: Path, clock: Clock
) -> None:
    place, lines = tmp_path / "mine", list[str]()
    with watched(place, lines) as watch:
        train(watch, clock, 400, 100)  # ten steps to a window of a second
        assert [row["run"] for row in rows(place, "profile")] == [f"{place}-typical"]
        train(watch, clock, 40, 125)  # less than 1.3×
        assert not rows(place, "slower")
        train(watch, clock, 400, 140)
    (slower,) = rows(place, "slower")
    assert slower["why"].endswith("140 ms, 1.40× the typical 100 ms")
    typical, slow = rows(place, "profile")
    assert slow["run"] == f"{place}-step-{slower['step']}"
    assert slow["why"] == slower["why"]
    written = {run.name for run in lp.read_all(tmp_path)}
    assert written == {Path(row["run"]).name for row in (typical, slow)}
    windows = rows(place, "window")
    assert sum(row["steps"] for row in windows) == watch.steps == 840
    assert (windows[0]["step_ms"], windows[0]["steps"]) == (100, 10)
    assert lines[-1] == f"watched 840 steps, typically 140 ms per step; log: {place}.jsonl"


def test_one_slow_window_is_no_slowdown(tmp_path: Path, clock: Clock) -> None:
    with watched(tmp_path / "mine", []) as watch:
        train(watch, clock, 400, 100)
        for _ in range(3):
            train(watch, clock, 8, 150)  # a window, and less than SLOW_WINDOWS of them
            train(watch, clock, 40, 100)
    assert SLOW_WINDOWS == 2
    assert not rows(tmp_path / "mine", "slower")


def test_long_steps_share_windows_so_that_one_outlier_is_not_their_median(
    tmp_path: Path, clock: Clock
) -> None:
    with watched(tmp_path / "mine", []) as watch:
        train(watch, clock, LEAST_STEPS * 4, 2000)
    assert [row["steps"] for row in rows(tmp_path / "mine", "window")] == [LEAST_STEPS] * 4


def test_a_row_holds_what_is_known_and_null_for_the_rest(tmp_path: Path, clock: Clock) -> None:
    def batches() -> Any:
        for number in range(30):
            clock.now_ns += 25_000_000
            yield number

    place = tmp_path / "mine"
    with watched(place, [], batches=batches()) as watch:
        for _ in watch:
            clock.now_ns += 75_000_000
        clock.now_ns += 10**12  # between epochs: no step
        watch.step_begin()
        clock.now_ns += 10**9
        watch.step_end()
    row, *_, last = rows(place, "window")
    assert (row["step_ms"], row["wait_ms"], row["slowest_ms"], row["doing"]) == (100, 25, 100, None)
    assert row["memory_bytes"] > 10_000_000
    assert (row["gpu_share"], row["gpu_memory_bytes"]) == (None, None)
    assert last["slowest_ms"] == 1000
    (start,) = rows(place, "start")
    assert start["pid"] == os.getpid()


def test_a_signal_profiles_at_once_and_is_free_again_at_the_end(
    tmp_path: Path, clock: Clock
) -> None:
    place = tmp_path / "mine"
    assert signal.getsignal(signal.SIGUSR1) in (signal.SIG_DFL, own_watch._come_too_late)
    with watched(place, []) as watch:
        train(watch, clock, 3, 100)
        assert own_watch.registered(os.getpid()).read_text() == f"{place}.jsonl"
        os.kill(os.getpid(), signal.SIGUSR1)
        train(watch, clock, OF_SESSION, 100)
    os.kill(os.getpid(), signal.SIGUSR1)  # too late: ignored
    assert not own_watch.registered(os.getpid()).exists()
    assert [row["why"] for row in rows(place, "profile")] == ["profiled on demand at step 4"]
    assert [row["occasion"] for row in rows(place, "profile")] == ["asked"]
    assert lp.read(f"{place}-step-4").name == "mine-step-4"


def test_without_a_framework_there_is_a_log_and_no_run(tmp_path: Path) -> None:
    code = (
        "import os, signal, time, lstmprof as lp\n"
        "with lp.watch(range(9), 'mine', every=0.01) as watch:\n"
        "    for number in watch:\n"
        "        time.sleep(0.01)\n"
        "        if number == 3: os.kill(os.getpid(), signal.SIGUSR1)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert b"lstmprof: cannot profile: no framework is imported yet" in done.stderr
    (row,) = rows(tmp_path / "mine", "profile")
    assert row["run"] is None


@pytest.mark.measured
def test_a_watch_takes_at_most_one_percent_of_a_step_of_a_millisecond(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from benchmarks.own_code import MOST_SHARE, row_ns, watch_ns

    with Watch(tmp_path / "mine", framework="torch", quiet=True) as watch:
        watch._cannot_profile = True  # profiles are no part of this cost
        each_ns = watch_ns(watch) + row_ns(watch, 1000) / 1000
    assert each_ns <= MOST_SHARE * 1e6


def test_what_cannot_be_is_refused() -> None:
    for options, argument in (({"ratio": 1}, "ratio"), ({"every": 0}, "every")):
        with pytest.raises(UsageError, match=argument):
            lp.watch(**options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no batches"):
        next(iter(lp.watch()))


def test_a_process_that_does_not_watch_gets_no_signal() -> None:
    with subprocess.Popen(["sleep", "60"]) as sleeps:
        done = lstmprof("attach", sleeps.pid)
        assert (done.returncode, sleeps.poll()) == (2, None)
        assert f"process {sleeps.pid} is not watched" in done.stderr
        sleeps.kill()


TRAINS = """
import sys, time, pathlib, torch
loader = torch.utils.data.DataLoader(torch.ones(100_000, 16), batch_size=4)
model = torch.nn.LSTM(16, 32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in loader:
    optimizer.zero_grad()
    model(batch.expand(20, 4, 16))[0].sum().backward()
    optimizer.step()
    if pathlib.Path("stop").exists():
        break
print("trained")
"""


@pytest.mark.measured
def test_attach_profiles_a_running_script(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(TRAINS)
    environment = {**os.environ, **THREADS, "LSTMPROF_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "lstmprof"]
    options: dict[str, Any] = {"cwd": tmp_path, "env": environment, "text": True}
    with subprocess.Popen(
        [*command, "run", "--watch", "train.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    ) as training:
        until = time.monotonic() + 120
        while not (tmp_path / "cache" / "watching" / str(training.pid)).exists():
            assert training.poll() is None
            assert time.monotonic() < until
            time.sleep(0.1)
        attached = subprocess.run(
            [*command, "attach", str(training.pid)], capture_output=True, **options
        )
        (tmp_path / "stop").touch()
        output, errors = training.communicate(timeout=120)
    assert attached.returncode == 0, attached.stderr + errors
    assert (training.returncode, output) == (0, "trained\n")
    place = tmp_path / "traces" / "train"
    (row,) = (row for row in rows(place, "profile") if row["why"])
    assert row["verdict"]
    assert attached.stdout.startswith(row["verdict"])
    assert attached.stdout.splitlines()[-1].startswith(f"wrote {tmp_path / row['run']}; next: ")
    assert lp.read(tmp_path / row["run"]).info.framework == "torch"
    assert all(0 < each["wait_ms"] < each["step_ms"] for each in rows(place, "window"))
    assert "lstmprof: watched " in errors
