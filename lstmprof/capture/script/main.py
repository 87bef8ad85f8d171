"""The child's entry: ``python main.py request.json``, started by ``launch``.

lstmprof is imported from where this file lies, whatever the script's interpreter has installed, and
its place leaves the path before the script sees it.
"""

from __future__ import annotations

import os
import sys
from typing import Any


def main() -> None:
    """Run what the request in file ``sys.argv[1]`` names, and end as it ends."""
    here = os.path.dirname(os.path.abspath(__file__))
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # this folder
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(here))))
    from lstmprof.capture.script import program
    from lstmprof.capture.script.request import ScriptRequest

    with open(sys.argv[1], encoding="utf-8") as file:
        request = ScriptRequest.from_json(file.read())
    steps = _watched(request)
    del sys.path[0]
    program.run(request, steps)


def _watched(request: Any) -> Any:
    """Watch the script from now on; if lstmprof cannot, let the script run alone."""
    from lstmprof.capture.script.steps import Steps

    try:
        from lstmprof.capture.script.watching import Watching

        watching = Watching(request)
        watching.install()
        return watching.steps
    except Exception as error:
        sys.stderr.write("lstmprof: cannot watch the script: {!r}\n".format(error))
        return Steps(lambda source: None, lambda line: None)


if __name__ == "__main__":
    main()
