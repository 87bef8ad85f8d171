"""What workers of a test's cluster do instead of reading at once; they import it by this name."""

from __future__ import annotations

import os
import signal
import time

from lstmprof.runs.ingest import Ingested, Task


def slowly(task: Task) -> Ingested:
    """Leave time to be stopped before and after the run is written."""
    time.sleep(0.1)
    done = task.done()
    time.sleep(0.1)
    return done


def killed_half_way(task: Task) -> Ingested:
    """Say when it began; of ``gx`` kill whoever wrote its run first, before that is told."""
    with open(f"{task.label}.begun", "a+") as told:  # noqa: PTH123
        told.write("x")
        told.seek(0)
        first = told.read() == "x"
    killed = first and task.name == "gx"
    time.sleep(1.0 if killed else 0.1)  # what was done before is told by then
    done = task.done()
    if killed:
        os.kill(os.getpid(), signal.SIGKILL)
    return done


def deadly(task: Task) -> Ingested:
    """Kill whoever reads ``b``; say so in a file beside it."""
    if task.name == "b":
        with open(f"{task.label}.killed", "a") as told:  # noqa: PTH123
            told.write(f"{os.getpid()}\n")
        os.kill(os.getpid(), signal.SIGKILL)
    return task.done()
