"""Which implementations this interpreter and machine can run."""

from __future__ import annotations

import contextlib
import importlib.util

from lstmprof.capture.environments import environment_for
from lstmprof.capture.worker.host import cuda_devices
from lstmprof.errors import CaptureError, LstmprofError
from lstmprof.implementations import Implementation

APART = "needs its own environment, which lstmprof capture installs"


def here(row: Implementation) -> str:
    """``yes`` where this machine can run ``row``, if apart from this interpreter; else why not."""
    lacking = lacks(row)
    if row.era and lacking == APART:
        return in_era(row.era)
    return lacking or "yes"


def lacks(row: Implementation) -> str | None:
    """Why ``row`` does not run in this interpreter; None where it does."""
    if "cpu" in row.refusals() and not cuda_devices():
        return "needs a GPU"
    needed = [row.framework, *([row.library] if row.library else [])]
    missing = [name for name in needed if not _installed(name)]
    if missing and row.era:
        return APART
    return f"{missing[0]} is not installed" if missing else None


def in_era(name: str) -> str:
    """Whether the environment that the row names is there, or can be made."""
    try:
        environment = environment_for((), name)
    except LstmprofError as fault:
        return str(fault.fault)
    return "yes, in its own environment" if environment.is_made else "yes, after installation"


def _installed(name: str) -> bool:
    if name != "cudnn":
        return importlib.util.find_spec(name) is not None
    from lstmprof.implementations.cudnn._runtime import CUDNN, loaded

    with contextlib.suppress(CaptureError):
        return bool(loaded(*CUDNN))
    return False
