"""One capture in a process of its own: ``python -m benchmarks.gpu.capture_one REQUEST.json OUT``.

``--read OUT [NAME…]`` makes captures of the folder OUT runs instead, all of them if none is named.
What it says goes to stderr, the last line being the reason where it fails.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from benchmarks.gpu import raw_captures
from lstmprof.capture.worker_host import die_with
from lstmprof.capture.worker_request import CaptureRequest
from lstmprof.errors import LstmprofError


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(arguments: list[str]) -> int:
    """Exit code."""
    die_with(os.getppid())
    try:
        if arguments[0] == "--read":
            out = Path(arguments[1])
            for name in arguments[2:] or raw_captures.waiting(out):
                _say(f"made {raw_captures.make_run(out, name)}")
        else:
            text = Path(arguments[0]).read_text(encoding="utf-8")
            raw_captures.keep(CaptureRequest.from_json(text), Path(arguments[1]), _say)
    except LstmprofError as error:
        _say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
