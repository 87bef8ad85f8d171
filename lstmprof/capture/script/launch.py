"""Start the user's script for ``lstmprof run``.

``exec`` replaces lstmprof by the script, so that the script gets all signals and gives the exit
status. With Nsight Systems, lstmprof keeps running, to forward signals and to export the recording.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from lstmprof.base.errors import CaptureError, LstmprofError, UsageError
from lstmprof.base.scratch import made_temporary_folder, remove, temporary_folder
from lstmprof.capture import nsys
from lstmprof.capture.request import LIFELINE, NSYS, RESULT, ScriptRequest
from lstmprof.capture.script import main

Report = Callable[[str], None]

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM")
#: Signals that lstmprof forwards to the script, which may stop or save its state.
_FORWARDED = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))


def run_script(request: ScriptRequest, report: Report) -> int:
    """Replace this process by the script.

    With Nsight Systems, run nsys as a child process and return the exit status of nsys.
    """
    if not request.module and not Path(request.target).is_file():
        raise UsageError(f"{request.target}: no such file", "give a script, or -m MODULE")
    if request.profiler == NSYS:
        return _run_under_nsys(request, report)
    folder = made_temporary_folder()  # the script removes it
    try:
        _become(_command(request, folder))
    except OSError as fault:
        raise _no_interpreter(request.python, fault) from fault
    finally:
        remove(folder)


def _command(request: ScriptRequest, folder: Path) -> list[str]:
    path = folder / "request.json"
    path.write_text(request.to_json(), encoding="utf-8")
    return [request.python, str(Path(main.__file__)), str(path)]


def _no_interpreter(python: str, fault: OSError) -> CaptureError:
    return CaptureError(f"{python}: {fault.strerror}", "give an executable Python interpreter")


def _become(command: list[str]) -> NoReturn:
    """Replace this process by another command, without losing a pending signal."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if signal.getitimer(signal.ITIMER_REAL)[0]:  # ``__main__`` delays a signal by this timer
        time.sleep(1)
    handlers = {number: signal.getsignal(number) for number in _FORWARDED}
    signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)  # also handles a pending signal
    for number, handler in handlers.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
    try:
        os.execvp(command[0], command)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _run_under_nsys(request: ScriptRequest, report: Report) -> int:
    """Run the script under Nsight Systems and write the run; return the exit status."""
    nsys.nsys_path()
    with temporary_folder() as folder:
        lifeline = nsys.Lifeline(folder / LIFELINE)
        command = nsys.around(_command(replace(request, folder=str(folder)), folder), folder)
        code = _forwarding(command, folder / main.PID)
        lifeline.close()
        try:
            _write_run(request, folder, report)
        except LstmprofError as error:
            report(f"did not write {request.place}: {error}")
        return 128 - code if code < 0 else code


def _forwarding(command: Sequence[str], pid: Path) -> int:
    """Run a command, and forward signals to the script."""
    try:
        child = subprocess.Popen(command, process_group=0)  # signals reach the script only once
    except OSError as fault:
        raise _no_interpreter(command[0], fault) from fault

    def forward(number: int, frame: object) -> None:
        try:
            os.kill(int(pid.read_text("ascii")), number)
        except ProcessLookupError:
            pass  # the script has ended
        except (OSError, ValueError):  # the script has not begun
            child.send_signal(number)

    caught = [n for n in _FORWARDED if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, forward) for number in caught}
    try:
        return child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _write_run(request: ScriptRequest, folder: Path, report: Report) -> None:
    """Write the run from the recording of Nsight Systems."""
    from lstmprof.capture.captured_run import written
    from lstmprof.capture.own.session import show_verdict

    if not (folder / RESULT).exists():
        return  # the script's process has said why
    report("exporting the nsys recording")
    nsys.export(folder)
    written(folder)
    report(f"wrote {request.place}; next: lstmprof diagnose {shlex.quote(request.place)}")
    if not request.quiet:
        show_verdict(request.place, request.writer, request.compare_with)
