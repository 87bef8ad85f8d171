"""Which implementations this interpreter and machine can run."""

from __future__ import annotations

import contextlib
import importlib.util

from lstmprof.capture.worker.host import cuda_devices
from lstmprof.errors import CaptureError
from lstmprof.implementations import Implementation


def here(row: Implementation) -> str:
    """``yes`` where this interpreter and machine can run ``row``, else why not."""
    if "cpu" in row.refusals() and not cuda_devices():
        return "needs a GPU"
    needed = [row.framework, *([row.library] if row.library else [])]
    missing = [name for name in needed if not _installed(name)]
    return f"{missing[0]} is not installed" if missing else "yes"


def _installed(name: str) -> bool:
    if name != "cudnn":
        return importlib.util.find_spec(name) is not None
    from lstmprof.implementations.cudnn._runtime import CUDNN, loaded

    with contextlib.suppress(CaptureError):
        return bool(loaded(*CUDNN))
    return False
