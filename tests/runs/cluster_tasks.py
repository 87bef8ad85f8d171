"""What workers of a test's cluster do instead of reading at once; they import it by this name."""

from __future__ import annotations

import os
import signal
import time

from lstmprof.runs.ingest import Ingested, Task


def slowly(task: Task) -> Ingested:
    """Leave time to be killed before and after the run is written, and say when it began."""
    with open(f"{task.label}.begun", "a") as told:  # noqa: PTH123
        told.write("x")
    time.sleep(0.1)
    done = task.done()
    time.sleep(0.1)
    return done


def deadly(task: Task) -> Ingested:
    """Kill whoever reads ``b``; say so in a file beside it."""
    if task.name == "b":
        with open(f"{task.label}.killed", "a") as told:  # noqa: PTH123
            told.write(f"{os.getpid()}\n")
        os.kill(os.getpid(), signal.SIGKILL)
    return task.done()
