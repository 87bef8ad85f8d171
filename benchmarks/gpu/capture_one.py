"""One capture in a process of its own: ``python -m benchmarks.gpu.capture_one REQUEST.json OUT``.

With ``--at-once`` it is made a run too, where its profile is read in a second or two. ``--read OUT
[NAME…]`` makes captures of the folder OUT runs, all of them if none is named. What it says goes to
stderr, the last line being the reason where it fails.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from pathlib import Path

from benchmarks.gpu import packing, raw_captures
from lstmprof.capture.request import CaptureRequest
from lstmprof.capture.worker.host import die_with
from lstmprof.errors import LstmprofError

#: The largest profile that is read at once, gzipped.
AT_ONCE_BYTES = 2_000_000


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(arguments: list[str]) -> int:
    """Exit code: 2 where the words are not as above."""
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
    """What reads profiles is imported meanwhile: the worker's start takes longer."""
    readers = threading.Thread(target=importlib.import_module, args=("lstmprof.capture.rounds",))
    if at_once:
        readers.start()
    kept = raw_captures.keep(request, out, _say)
    if at_once and packing.size_bytes(kept / raw_captures.PROFILE) <= AT_ONCE_BYTES:
        readers.join()
        raw_captures.make_run(out, kept.name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
