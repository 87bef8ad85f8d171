"""Run one capture: ``python -m benchmarks.gpu.capture_one REQUEST.json OUT [--at-once]``.

With ``--at-once``, the raw capture is also converted to a run if its profile is small. ``--read OUT
[NAME…]`` converts raw captures in the folder OUT to runs: all of them if none is named. Messages go
to stderr; if the process fails, the last line is the reason.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from pathlib import Path

from benchmarks.gpu import packing, raw_captures
from lstmprof.base.errors import LstmprofError
from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker.machine.host import die_with

#: Maximum size in bytes of a gzipped profile that ``--at-once`` reads, in a second or two.
AT_ONCE_BYTES = 2_000_000


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(arguments: list[str]) -> int:
    """Run the command; return the exit code: 0, 1 (failure) or 2 (wrong arguments)."""
    if len(arguments) < 2:
        _say("give REQUEST.json OUT, or --read OUT [NAME…]: docs/gpu.md")
        return 2
    die_with(os.getppid())
    try:
        if arguments[0] == "--read":
            out = Path(arguments[1])
            for name in arguments[2:] or raw_captures.waiting(out):
                _say(f"made {raw_captures.make_run(out, name)}")
        else:
            request = CaptureRequest.from_json(Path(arguments[0]).read_text(encoding="utf-8"))
            _capture(request, Path(arguments[1]), at_once="--at-once" in arguments)
    except LstmprofError as error:
        _say(str(error))
        return 1
    return 0


def _capture(request: CaptureRequest, out: Path, *, at_once: bool) -> None:
    """Capture ``request``; with ``at_once``, convert a small capture to a run.

    A thread imports the profile readers while the worker starts.
    """
    readers = threading.Thread(
        target=importlib.import_module, args=("lstmprof.capture.harness.rounds",)
    )
    if at_once:
        readers.start()
    kept = raw_captures.keep(request, out, _say)
    if at_once and packing.size_bytes(kept / raw_captures.PROFILE) <= AT_ONCE_BYTES:
        readers.join()
        raw_captures.make_run(out, kept.name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
