"""What workers of a test's cluster do instead of reading at once; they import it by this name."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from lstmprof.runs.ingest import Ingested, Task

#: Against a hang: until a test has killed who waits, or has told what it waits for.
LIMIT_S = 300.0
#: What is done is told in less, however busy the machine.
_TELLING_S = 20.0
#: The names of what this worker has done of a job that is killed half way.
_DONE_HERE: list[str] = []


def only_the_first(task: Task) -> Ingested:
    """Do ``a``; at any other wait until this worker is killed."""
    if task.name != "a":
        time.sleep(LIMIT_S)
    return task.done()


def killed_half_way(task: Task) -> Ingested:
    """Say when it began; of ``gx`` kill whoever wrote its run first, before that is told."""
    with open(f"{task.label}.begun", "a+") as told:  # noqa: PTH123
        told.write("x")
        told.seek(0)
        first = told.read() == "x"
    killed = first and task.name == "gx"
    if killed:
        _until_told(Path(task.label).parent)
    done = task.done()
    if killed:
        os.kill(os.getpid(), signal.SIGKILL)
    _DONE_HERE.append(task.name)
    return done


def _until_told(folder: Path) -> None:
    """What this worker did is told; it may also be that another has to be told before."""
    until = time.monotonic() + _TELLING_S
    while time.monotonic() < until:
        if all((folder / f"{name}.told").exists() for name in _DONE_HERE):
            return
        time.sleep(0.05)


def deadly(task: Task) -> Ingested:
    """Kill whoever reads ``b``; say so in a file beside it."""
    if task.name == "b":
        with open(f"{task.label}.killed", "a") as told:  # noqa: PTH123
            told.write(f"{os.getpid()}\n")
        os.kill(os.getpid(), signal.SIGKILL)
    return task.done()
