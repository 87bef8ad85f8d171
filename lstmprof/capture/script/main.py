"""The entry of the script's process: ``python main.py request.json``, started by ``launch``.

lstmprof is imported from the installation of this file, even if the script's interpreter has
another lstmprof. Its folder is removed from ``sys.path`` before the script runs.
"""

from __future__ import annotations

import os
import sys
from typing import Any

#: The file in the request's folder with the id of the process that runs the script.
PID = "pid"


def main() -> None:
    """Run and measure the script of the request ``sys.argv[1]``; exit with the script's status."""
    here = os.path.dirname(os.path.abspath(__file__))
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # this folder
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(here))))
    from lstmprof.capture.script import program

    request = _request(sys.argv[1])
    if request.folder:
        _follow_launcher(request.folder)
    steps = _watched(request)
    del sys.path[0]
    program.run(request, steps)


def watch(path: str) -> None:
    """Measure this process, which multiprocessing started, as the request at ``path`` says."""
    _watched(_request(path))


def _request(path: str) -> Any:
    from lstmprof.capture.request import ScriptRequest

    with open(path, encoding="utf-8") as file:
        request = ScriptRequest.from_json(file.read())
    os.remove(path)
    if not request.folder:
        os.rmdir(os.path.dirname(path))
    return request


def _watched(request: Any) -> Any:
    """Begin to watch the script; return the ``Steps`` object that will find its steps.

    If lstmprof fails, the object does nothing, and the script runs unwatched.
    """
    from lstmprof.capture.script.steps import Steps

    try:
        from lstmprof.capture.script.watching import Watching

        watching = Watching(request)
        watching.install()
        return watching.steps
    except Exception as error:
        sys.stderr.write("lstmprof: cannot watch the script: {!r}\n".format(error))
        return Steps(lambda source: None, lambda line: None)


def _follow_launcher(folder: str) -> None:
    """Write this process's id to ``folder`` for signals, and end if the launcher ends.

    Nsight Systems started this process, so it does not end with the launcher by itself.
    """
    from lstmprof.capture.request import LIFELINE
    from lstmprof.capture.worker.machine import host

    host.end_with(os.path.join(folder, LIFELINE))
    with open(os.path.join(folder, PID), "w") as file:
        file.write(str(os.getpid()))


if __name__ == "__main__":
    main()
