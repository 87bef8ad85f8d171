"""The entry of the script's process: ``python main.py request.json``.

lstmprof is imported from the installation of this file, even if the script's Python has another
lstmprof.
"""

from __future__ import annotations

import os
import sys
from typing import Any

#: Name of the file with the process id of the script.
PID = "pid"


def main() -> None:
    """Run and measure the script, and exit with its status."""
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
    """Measure this process, which multiprocessing started."""
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
    """Begin to watch the script; if that fails, the script runs unwatched."""
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
    """Let this process, which nsys started, end when lstmprof's launcher ends."""
    from lstmprof.capture.request import LIFELINE
    from lstmprof.capture.worker.machine import host

    host.end_with(os.path.join(folder, LIFELINE))
    # write the process id, to which the launcher forwards signals
    with open(os.path.join(folder, PID), "w") as file:
        file.write(str(os.getpid()))


if __name__ == "__main__":
    main()
