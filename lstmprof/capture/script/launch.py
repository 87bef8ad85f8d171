"""The parent's side of ``lstmprof run``: starts the script's process, and ends as it does.

Input, output and signals are the script's: the process has this one's descriptors and its group, so
that Ctrl-C reaches it, and a SIGTERM is handed on. The run is written by that process; under Nsight
Systems by this one, which has the report once the script is over.
"""

from __future__ import annotations

import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from lstmprof.capture import nsys
from lstmprof.capture.request import NSYS
from lstmprof.capture.script import main
from lstmprof.capture.script.request import ScriptRequest
from lstmprof.capture.script.watching import TOLD
from lstmprof.errors import CaptureError, LstmprofError, UsageError

Report = Callable[[str], None]

_ENDED_EARLY = "its process ended before its steps were measured"


def run_script(request: ScriptRequest, report: Report) -> int:
    """Run the script; the exit code is its own, 128 and the number of the signal that killed it.

    Raises:
        UsageError: there is no such file.
        CaptureError: its interpreter, or Nsight Systems, cannot be started.
    """
    _check(request)
    if request.profiler == NSYS:
        nsys.found()
    with tempfile.TemporaryDirectory(prefix="lstmprof-") as folder:
        request = replace(request, folder=folder)
        path = Path(folder) / "request.json"
        path.write_text(request.to_json(), encoding="utf-8")
        command = [request.python, str(Path(main.__file__)), str(path)]
        if request.profiler == NSYS:
            command = nsys.around(command, Path(folder))
        code = _ended(command)
        if code < 0 and -code != signal.SIGINT:  # the user knows of that
            report(f"the script was killed by {signal.Signals(-code).name}")
        code = 128 - code if code < 0 else code
        if request.profiler == NSYS:
            try:
                _write_by_nsys(request, Path(folder), report)
            except LstmprofError as error:  # the script's exit code is its own all the same
                report(f"{request.place} is not written: {error}")
        elif not (Path(folder) / TOLD).exists():
            report(f"{request.place} is not written: {_ENDED_EARLY}")
        return code


def _check(request: ScriptRequest) -> None:
    if not request.module and not Path(request.target).is_file():
        raise UsageError(f"{request.target}: no such file", "give a script, or -m and a module")


def _ended(command: Sequence[str]) -> int:
    """The exit status of ``command``, negative where a signal killed it.

    Raises:
        CaptureError: it cannot be started.
    """
    try:
        child = subprocess.Popen(command)
    except OSError as fault:
        raise CaptureError(
            f"{command[0]}: {fault.strerror}", "give a Python interpreter that can be run"
        ) from fault
    # set once the child is there, which would inherit SIG_IGN
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    terminate = signal.signal(signal.SIGTERM, lambda *_: child.send_signal(signal.SIGTERM))
    try:
        return child.wait()
    finally:
        signal.signal(signal.SIGINT, interrupt)
        signal.signal(signal.SIGTERM, terminate)


def _write_by_nsys(request: ScriptRequest, folder: Path, report: Report) -> None:
    """The run of what Nsight Systems recorded, if the script had its steps."""
    from lstmprof.capture.own.writing import written

    if not nsys.was_measured(folder):
        if not (folder / TOLD).exists():
            report(f"{request.place} is not written: {_ENDED_EARLY}")
        return
    report("exporting what nsys recorded")
    nsys.export(folder)
    written(folder)
    report(f"wrote {request.place}; next: lstmprof breakdown {request.place}")
