"""A signal at any instant is one line and the exit code of that signal.

Instants are counted in calls of functions, not in time: a process sends the signal to itself.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lstmprof.runs.run import runs_in

#: Runs the command, and sends itself a signal at a call of some number.
AT_A_CALL = """
import itertools, os, signal, sys
number, how = int(sys.argv.pop(1)), int(sys.argv.pop(1))
if "ignored" not in os.environ.get("SIGNALS", ""):  # as a shell ignores them in its background
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
count = itertools.count()
def look(frame, event, argument):
    if event == "call" and next(count) == number:
        sys.setprofile(None)
        signal.raise_signal(how)
from lstmprof.__main__ import main
sys.setprofile(look)
try:
    main()
finally:
    if number < 0:
        os.write(2, b"calls: %d" % next(count))
"""
PROFILE = {
    "schemaVersion": 1,
    "traceEvents": [
        {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur}
        for step in range(3)
        for cat, name, ts, dur in (
            ("user_annotation", f"ProfilerStep#{step}", 100.0 * step, 90.0),
            ("cpu_op", "aten::mm", 100.0 * step + 10, 50.0),
        )
    ],
}


def at_a_call(
    number: int, how: int, arguments: list[str], folder: Path
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", AT_A_CALL, str(number), str(how), *arguments]
    own = {**os.environ, "LSTMPROF_CACHE": str(folder / "cache"), "TMPDIR": str(folder / "tmp")}
    own["PYTHONHASHSEED"] = "0"  # the calls of one run are those of the next
    return subprocess.run(command, capture_output=True, text=True, env=own, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "a.json").write_text(json.dumps(PROFILE))
    return tmp_path


@pytest.mark.parametrize(("verb", "times"), [("list", 1), ("ingest", 3), ("breakdown", 2)])
def test_a_signal_at_any_call_is_one_line(verb: str, times: int, folder: Path) -> None:
    out = str(folder / "out")
    arguments = {
        "list": ["workloads"],
        "ingest": [str(folder / "a.json"), "--out", out, "--force"],
        "breakdown": [str(folder / "a.json")],
    }[verb]
    calls = int(at_a_call(-1, 0, [verb, *arguments], folder).stderr.rpartition("calls: ")[2])
    drawn = random.Random(verb)
    for number in sorted(drawn.sample(range(calls), times)):
        how = drawn.choice([signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
        ran = at_a_call(number, how, [verb, *arguments], folder)
        where = f"call {number} of {calls}: {ran.stderr}"
        assert "Traceback" not in ran.stderr, where
        assert "ignored in" not in ran.stderr, where
        if ran.returncode == 0:  # it had done all
            assert number > 0.9 * calls, where
            continue
        assert ran.returncode == 128 + how, where
        assert [line for line in ran.stderr.splitlines() if "interrupted" in line], where
        assert list((folder / "tmp").iterdir()) == [], where
        left = [*folder.glob("out/.*"), *folder.glob("cache/*/.*"), *folder.glob(".lstmprof*")]
        assert left == [], where
        for place in (folder / "out", *folder.glob("cache/*/")):
            assert all(len(run.events()) == 6 for run in (runs_in(place) if place.is_dir() else ()))


@pytest.mark.parametrize(
    ("number", "how"),
    [(30, signal.SIGINT), (3000, signal.SIGINT), (3000, signal.SIGTERM), (3000, signal.SIGHUP)],
)
def test_a_signal_before_anything_is_begun_is_one_line(
    number: int, how: signal.Signals, folder: Path
) -> None:
    ran = at_a_call(number, how, ["list"], folder)
    assert ran.returncode == 128 + how
    assert ran.stderr == "lstmprof: error: interrupted; nothing half-written was left\n"


def test_what_is_ignored_stays_ignored(folder: Path) -> None:
    """As nohup and a shell's background do."""
    code = "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN);"
    code += "signal.signal(signal.SIGINT, signal.SIG_IGN); os.execv(sys.executable, sys.argv[1:])"
    for how in (signal.SIGINT, signal.SIGHUP):
        tail = [sys.executable, "-c", AT_A_CALL, "5000", str(int(how)), "list", "workloads"]
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
    time.sleep(3600)
    return 0
def within(arguments):
    try:
        return run(arguments)
    except KeyboardInterrupt as stop:
        return cli._told(stop)
cli.run = within
main()
"""


def test_a_signal_that_comes_in_a_finalizer_is_not_lost() -> None:
    command = [sys.executable, "-c", LOST_IN_A_FINALIZER]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert ran.returncode == 130
    assert ran.stderr == "lstmprof: error: interrupted; nothing half-written was left\n"


def test_ctrl_c_that_passes_an_exec_ends_with_the_same_code(tmp_path: Path) -> None:
    within = LOST_IN_A_FINALIZER.replace("    Lost()\n", "    exec('signal.raise_signal(2)')\n")
    (tmp_path / "interrupted.py").write_text(within)
    command = [sys.executable, "-m", "interrupted"]
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    own = {**os.environ, "PYTHONPATH": path}
    ran = subprocess.run(command, capture_output=True, text=True, env=own, check=False, timeout=300)
    assert ran.returncode == 130
    assert ran.stderr == "lstmprof: error: interrupted; nothing half-written was left\n"
