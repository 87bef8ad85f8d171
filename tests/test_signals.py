"""A signal at any instant is one line and the exit code of that signal.

Instants are counted in calls of functions, not in time (``attack.signals``, which tries more).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from attack import signals


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    signals.prepared(tmp_path)
    return tmp_path


HOWS = [signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.mark.parametrize(
    ("name", "times"), [("list", 1), ("ingest", 3), ("breakdown", 2), ("report", 1), ("query", 1)]
)
def test_a_signal_at_any_call_is_one_line(name: str, times: int, folder: Path) -> None:
    ends = [*signals.endings(name, times, "suite", folder, HOWS)]
    assert len(ends) == times
    assert [end.problem for end in ends if end.problem] == []


def test_a_signal_at_any_call_of_a_capture_is_one_line(folder: Path) -> None:
    pytest.importorskip("onnxruntime")
    ends = [*signals.endings("capture", 1, "suite", folder, [signal.SIGINT])]
    assert [end.problem for end in ends] == [""]


@pytest.mark.parametrize(
    ("number", "how"),
    [(30, signal.SIGINT), (3000, signal.SIGINT), (3000, signal.SIGTERM), (3000, signal.SIGHUP)],
)
def test_a_signal_before_anything_is_begun_is_one_line(
    number: int, how: signal.Signals, folder: Path
) -> None:
    ran = signals.at_a_call(number, how, ["list"], folder)
    assert ran.returncode == 128 + how
    assert ran.stderr == "lstmprof: error: interrupted; no partial output was left\n"


def test_what_is_ignored_stays_ignored(folder: Path) -> None:
    """As nohup and a shell's background do."""
    code = "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN);"
    code += "signal.signal(signal.SIGINT, signal.SIG_IGN); os.execv(sys.executable, sys.argv[1:])"
    for how in (signal.SIGINT, signal.SIGHUP):
        tail = [sys.executable, "-c", signals.AT_A_CALL, "5000", str(int(how)), "list", "workloads"]
        command = [sys.executable, "-c", code, *tail]
        own = {**os.environ, "SIGNALS": "ignored"}
        ran = subprocess.run(command, capture_output=True, text=True, env=own, check=False)
        assert (ran.returncode, "1x320-ce-short" in ran.stdout) == (0, True), ran.stderr


LOST_IN_A_FINALIZER = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from lstmprof import cli
from lstmprof.__main__ import main
class Lost:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
        time.sleep(0)
def run(arguments):
    Lost()
    while True:
        time.sleep(0.01)  # a signal just before one long sleep would not end it
    return 0
def within(arguments):
    try:
        return run(arguments)
    except KeyboardInterrupt as stop:
        return cli._exit_code_of(stop)
cli.run = within
main()
"""


def test_a_signal_that_comes_in_a_finalizer_is_not_lost() -> None:
    command = [sys.executable, "-c", LOST_IN_A_FINALIZER]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert ran.returncode == 130
    assert ran.stderr == "lstmprof: error: interrupted; no partial output was left\n"


def test_ctrl_c_that_passes_an_exec_ends_with_the_same_code(tmp_path: Path) -> None:
    within = LOST_IN_A_FINALIZER.replace("    Lost()\n", "    exec('signal.raise_signal(2)')\n")
    (tmp_path / "interrupted.py").write_text(within)
    command = [sys.executable, "-m", "interrupted"]
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    own = {**os.environ, "PYTHONPATH": path}
    ran = subprocess.run(command, capture_output=True, text=True, env=own, check=False, timeout=300)
    assert ran.returncode == 130
    assert ran.stderr == "lstmprof: error: interrupted; no partial output was left\n"
