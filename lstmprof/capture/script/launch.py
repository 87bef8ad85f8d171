"""The parent's side of ``lstmprof run``: starts the script's process, and ends as it does.

Input, output and signals are the script's: the process has this one's descriptors and its group, so
that Ctrl-C reaches it, and other signals are handed on. The run is written by that process; under
Nsight Systems by this one, which has the report once the script is over.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from lstmprof.capture import nsys
from lstmprof.capture.request import NSYS
from lstmprof.capture.script import main
from lstmprof.capture.script.request import ScriptRequest
from lstmprof.capture.script.watching import LINES, TOLD
from lstmprof.errors import CaptureError, LstmprofError, UsageError
from lstmprof.scratch import temporary_folder

Report = Callable[[str], None]

#: What ends a script.
_HANDED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ENDED_EARLY = "the script ended before its steps were measured"


def run_script(
    request: ScriptRequest, report: Report, measured: Callable[[], None] = lambda: None
) -> int:
    """Run the script; the exit code is its own, 128 and the number of the signal that killed it.

    ``measured`` is called once the script is over, if its run was written.

    Raises:
        UsageError: there is no such file.
        CaptureError: its interpreter, or Nsight Systems, cannot be started.
    """
    _check(request)
    if request.profiler == NSYS:
        nsys.found()
    with temporary_folder() as folder:
        request = replace(request, folder=str(folder))
        path = folder / "request.json"
        path.write_text(request.to_json(), encoding="utf-8")
        command = [request.python, str(Path(main.__file__)), str(path)]
        if request.profiler == NSYS:
            command = nsys.around(command, folder)
        code = _ended(command)
        if (folder / LINES).exists():
            for line in (folder / LINES).read_text(encoding="utf-8").splitlines():
                report(line)
        if code < 0 and -code != signal.SIGINT:  # the user knows of that
            report(f"signal {signal.Signals(-code).name} killed the script")
        code = 128 - code if code < 0 else code
        if _has_run(request, folder, report):
            measured()
        return code


def _has_run(request: ScriptRequest, folder: Path, report: Report) -> bool:
    """Whether the run is there; under Nsight Systems it is written here. If not, it is told why."""
    told = folder / TOLD
    if request.profiler == NSYS:
        try:
            return _write_by_nsys(request, folder, report)
        except LstmprofError as error:  # the script's exit code is its own all the same
            report(f"did not write {request.place}: {error}")
            return False
    if not told.exists():
        report(f"did not write {request.place}: {_ENDED_EARLY}")
        return False
    return json.loads(told.read_bytes())["path"] is not None


def _check(request: ScriptRequest) -> None:
    if not request.module and not Path(request.target).is_file():
        raise UsageError(f"{request.target}: no such file", "give a script, or -m MODULE")


def _ended(command: Sequence[str]) -> int:
    """The exit status of ``command``, negative where a signal killed it.

    Raises:
        CaptureError: it cannot be started.
    """
    handed = _Handed()
    taken = [n for n in _HANDED_ON if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handed) for number in taken}
    try:
        child = subprocess.Popen(command)
        handed.to(child)
        return child.wait()
    except OSError as fault:
        raise CaptureError(
            f"{command[0]}: {fault.strerror}", "give an executable Python interpreter"
        ) from fault
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Handed:
    """Hands signals on to a process, those too that come before it is there.

    Ctrl-C reaches it from the terminal.
    """

    def __init__(self) -> None:
        self._early: list[int] = []
        self._child: subprocess.Popen[bytes] | None = None

    def __call__(self, number: int, frame: object) -> None:
        if self._child is None:
            self._early.append(number)
        elif number != signal.SIGINT or not _is_at_a_terminal():
            self._child.send_signal(number)

    def to(self, child: subprocess.Popen[bytes]) -> None:
        """Hand them on to ``child``."""
        self._child = child
        for number in self._early:
            child.send_signal(number)


def _is_at_a_terminal() -> bool:
    """Whether this process is of the group to which the terminal sends Ctrl-C."""
    try:
        with open("/dev/tty", "rb", buffering=0) as terminal:  # noqa: PTH123
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


def _write_by_nsys(request: ScriptRequest, folder: Path, report: Report) -> bool:
    """Write the run of what Nsight Systems recorded; False if the script had too few steps."""
    from lstmprof.capture.own.writing import written

    if not nsys.was_measured(folder):
        if not (folder / TOLD).exists():
            report(f"did not write {request.place}: {_ENDED_EARLY}")
        return False
    report("exporting the nsys recording")
    nsys.export(folder)
    written(folder)
    report(f"wrote {request.place}; next: lstmprof diagnose {shlex.quote(request.place)}")
    return True
