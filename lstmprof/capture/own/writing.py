"""The run of a session, written by a process of its own: ``python -m … folder``.

The folder is the session's: result.json in it, and the profile. What goes wrong is one line on
stderr and the exit status 1.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from lstmprof.capture.captured_run import write_captured
from lstmprof.capture.request import RESULT
from lstmprof.capture.supervisor import CaptureResult
from lstmprof.capture.worker.profiling import compressed
from lstmprof.errors import LstmprofError
from lstmprof.events.annotate import OWN_CODE
from lstmprof.runs.run import Run


def written(folder: Path) -> Run:
    """The run of the session that worked in ``folder``, or of the ranks that left parts in it.

    Raises:
        ProfileError: the profile cannot be read.
        RunError: the run is there already and is not to be replaced, or cannot be written.
    """
    folders = [path.parent for path in folder.glob(f"rank-*/{RESULT}")] or [folder]
    results = [json.loads((part / RESULT).read_text(encoding="utf-8")) for part in folders]
    measured = {
        result.get("rank"): CaptureResult(
            result["metadata"],
            result["timings"],
            tuple(_packed(part / name) for name in result["profiles"]),
            result["pid"],
            shapes=Path(result["shapes"]) if result["shapes"] else None,
        )
        for part, result in sorted(zip(folders, results, strict=True), key=_rank)
    }
    place, force = Path(results[0]["place"]), bool(results[0]["force"])
    return write_captured(
        place.name,
        list(measured.values()),
        place.parent,
        force=force,
        source=OWN_CODE,
        ranks=list(measured) if len(measured) > 1 else (),
    )


def _rank(part: tuple[Path, dict[str, Any]]) -> int:
    return int(part[1].get("rank", 0))


def _packed(path: Path) -> Path:
    """The file, gzipped, if it is not."""
    return path if path.suffix == ".gz" else Path(compressed(str(path), f"{path}.gz"))


def main(folder: str) -> int:
    """Write the run; the exit status."""
    try:
        written(Path(folder))
    except LstmprofError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
