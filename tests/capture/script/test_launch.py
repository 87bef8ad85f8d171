"""``lstmprof run`` is invisible to signals: each reaches the script exactly once."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

SCRIPT = """
import os, pathlib, signal, sys, time
how, folder = sys.argv[1], pathlib.Path(sys.argv[2])
numbers = [getattr(signal, "SIG" + n) for n in "INT TERM HUP QUIT USR1 USR2 ALRM".split()]
came = []
def saves(number, frame):
    signal.signal(number, signal.SIG_DFL)  # a second signal ends the script
    came.append(number)
    time.sleep(0.3)
    (folder / "checkpoint").write_text("saved")
    sys.exit(9)
def counts(number, frame):
    came.append(number)
handler = {"default": None, "ignores": signal.SIG_IGN, "saves": saves, "counts": counts}[how]
for number in numbers if handler is not None else ():
    signal.signal(number, handler)
(folder / "pid.partial").write_text(str(os.getpid()))
(folder / "pid.partial").rename(folder / "pid")
until = time.monotonic() + 60
while time.monotonic() < until and not came and not (folder / "sent").exists():
    time.sleep(0.02)
time.sleep(0.5)
print("came", came)
sys.exit(5)
"""
HOWS = ("default", "ignores", "saves", "counts")
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM")
PLAIN = [sys.executable, "train.py"]
WATCHED = [sys.executable, "-m", "lstmprof", "run", "train.py", "--"]


def started(
    command: list[str], how: str, folder: Path, *, start_new_session: bool = True
) -> subprocess.Popen[str]:
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
    return subprocess.Popen(
        [*command, how, "."],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=start_new_session,
        process_group=None if start_new_session else 0,
    )


def pid_of_script(folder: Path) -> int:
    until = time.monotonic() + 60
    while not (folder / "pid").exists():
        assert time.monotonic() < until, "the script did not start"
        time.sleep(0.02)
    return int((folder / "pid").read_text())


def ended(process: subprocess.Popen[str], folder: Path) -> tuple[int, str, bool]:
    """Return exit status, output, and whether there is a checkpoint."""
    (folder / "sent").touch()
    output, _ = process.communicate(timeout=60)
    return process.returncode, output, (folder / "checkpoint").exists()


def to_first_process(unshare: int, number: int) -> None:
    """Send a signal to the process that has number 1 in its own namespace."""
    children = Path(f"/proc/{unshare}/task/{unshare}/children").read_text()
    os.kill(int(children), number)


@dataclass(frozen=True)
class Target:
    """A program around the script's command, and how a signal is sent, given its number."""

    around: Sequence[str]
    send: Callable[[int, int], None]
    hows: Sequence[str] = HOWS


#: timeout(1) passes a signal on; SIGALRM ends its time. It sends the signal to the process and to
#: the group, so whether a handler is called once or twice is a race, with plain python, too.
TARGETS = {
    "process": Target([], os.kill),
    "group": Target([], os.killpg),
    "timeout": Target(["timeout", "--foreground", "60"], os.kill),
    "timeout of a group": Target(["timeout", "60"], os.kill, ["default", "ignores"]),
    "first process": Target(["unshare", "--pid", "--fork", "--mount-proc"], to_first_process),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_has_the_effect_that_it_has_on_plain_python(
    name: str, target: str, tmp_path: Path
) -> None:
    around, send, hows = (getattr(TARGETS[target], each) for each in ("around", "send", "hows"))
    if around and subprocess.run([*around, "true"], capture_output=True, check=False).returncode:
        pytest.skip(f"{around[0]} is not installed, or not permitted")
    commands = {"plain": [*around, *PLAIN], "watched": [*around, *WATCHED]}
    folders = {(who, how): tmp_path / f"{who}-{how}" for who in commands for how in hows}
    processes = {
        (who, how): started(commands[who], how, folder) for (who, how), folder in folders.items()
    }
    for cell, folder in folders.items():
        pid_of_script(folder)
        send(processes[cell].pid, getattr(signal, name))
    ends = {cell: ended(processes[cell], folder) for cell, folder in folders.items()}
    for how in hows:
        assert ends["watched", how] == ends["plain", how], how
    if target in ("process", "group", "first process"):
        number = int(getattr(signal, name))
        assert ends["plain", "saves"] == (9, "", True)
        assert ends["plain", "counts"] == (5, f"came [{number}]\n", False)


def test_no_script_outlives_a_killed_lstmprof_run(tmp_path: Path) -> None:
    process = started(WATCHED, "ignores", tmp_path / "one")
    pid = pid_of_script(tmp_path / "one")
    process.kill()
    assert ended(process, tmp_path / "one")[0] == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def at_terminal(command: list[str], how: str, folder: Path) -> tuple[int, int]:
    """Start a command in the foreground of a terminal; return its number and the terminal."""
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
    pid, terminal = pty.fork()
    if not pid:
        for number in (signal.SIGINT, signal.SIGQUIT):  # a shell's background jobs ignore them
            signal.signal(number, signal.SIG_DFL)
        os.chdir(folder)
        os.execv(command[0], [*command, how, "."])
    return pid, terminal


def status_at_terminal(pid: int, terminal: int) -> int:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if select.select([terminal], [], [], 0.02)[0]:
            try:
                os.read(terminal, 1000)
            except OSError:  # the other side is closed
                break
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize(("key", "number"), [(b"\x03", 2), (b"\x1c", 3)], ids=["Ctrl-C", "Ctrl-\\"])
def test_a_key_of_the_terminal_reaches_the_script_once(
    key: bytes, number: int, tmp_path: Path
) -> None:
    codes = {}
    for who, command in (("plain", PLAIN), ("watched", WATCHED)):
        for how in ("saves", "default"):
            folder = tmp_path / f"{who}-{how}"
            pid, terminal = at_terminal(command, how, folder)
            pid_of_script(folder)
            os.write(terminal, key)
            codes[who, how] = status_at_terminal(pid, terminal)
            assert (folder / "checkpoint").exists() == (how == "saves")
    assert codes["watched", "saves"] == codes["plain", "saves"] == 9
    assert codes["watched", "default"] == codes["plain", "default"] == -number


def test_a_script_is_stopped_and_continued_with_its_job(tmp_path: Path) -> None:
    process = started(WATCHED, "ignores", tmp_path / "one", start_new_session=False)
    script = pid_of_script(tmp_path / "one")
    os.killpg(process.pid, signal.SIGTSTP)
    assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
    assert Path(f"/proc/{script}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    os.killpg(process.pid, signal.SIGCONT)
    assert ended(process, tmp_path / "one") == (5, "came []\n", False)


def test_a_file_that_is_no_interpreter_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("", encoding="utf-8")
    (tmp_path / "python").write_text("", encoding="utf-8")
    refused = subprocess.run(
        [*WATCHED[:-1], "--python", "./python"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("lstmprof: error: ./python: Permission denied; ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["python", "traces", "train.py"]


@pytest.mark.parametrize("send", [os.kill, os.killpg], ids=["process", "group"])
def test_a_signal_reaches_a_script_under_nsys_once(
    send: Callable[[int, int], None],
    tmp_path: Path,
    path_with_nsys: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", path_with_nsys)
    for name in ("SIGINT", "SIGTERM", "SIGUSR1"):
        folder = tmp_path / name
        process = started([*WATCHED[:-1], "--profiler", "nsys", "--"], "counts", folder)
        pid_of_script(folder)
        send(process.pid, getattr(signal, name))
        number = int(getattr(signal, name))
        assert ended(process, folder) == (5, f"came [{number}]\n", False)


def test_no_script_under_nsys_outlives_a_killed_lstmprof_run(
    tmp_path: Path, path_with_nsys: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", path_with_nsys)
    process = started([*WATCHED[:-1], "--profiler", "nsys", "--"], "ignores", tmp_path / "one")
    pid = pid_of_script(tmp_path / "one")
    process.kill()
    process.communicate(timeout=60)  # the script has the same output: it is over
    until = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < until
        time.sleep(0.02)
