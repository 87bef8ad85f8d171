"""The processes of a capture, and waiting for what they do."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

#: Against a hang: a busy machine takes many times what an idle one does.
LIMIT_S = 300.0


def processes_of(out: Path) -> list[int]:
    """Processes whose working directory lies in ``out``: a capture's worker and its children."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            cwd = (place / "cwd").readlink()
        except OSError:
            continue
        if cwd.is_relative_to(out):
            found.append(int(place.name))
    return found


def running(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def wait_until(condition: Callable[[], object]) -> bool:
    """Whether ``condition()`` came true in time."""
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.02)
    return False
