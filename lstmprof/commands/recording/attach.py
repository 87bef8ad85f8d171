"""``lstmprof attach``: profile a few steps of a running training that lstmprof watches."""

from __future__ import annotations

import json
import os
import shlex
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from lstmprof.base.errors import RunError, UsageError
from lstmprof.commands import options

_POLL_S = 0.2


@click.command(name="attach")
@click.argument("pid", type=click.IntRange(min=1), metavar="PID")
def command(pid: int) -> int:
    """Profile a few steps of a training that is being watched.

    PID is the number of a process that called lp.watch(), or that runs under lstmprof run --watch.
    attach sends it SIGUSR1, waits until the process has written the run, and prints the verdict.

    \b
    Example:
      lstmprof attach 4711
    """
    log = _log_of(pid)
    seen = log.stat().st_size
    os.kill(pid, signal.SIGUSR1)
    options.say(f"asked process {pid} for a profile; waiting for its run")
    row = next(_rows(pid, log, seen), None)
    if row is None:
        raise RunError(f"process {pid} ended before it wrote a run", "train longer")
    if row["run"] is None:
        raise RunError(row["reason"], f"see {log}")
    if row["verdict"]:
        print(row["verdict"], end="")
    run = log.parent / Path(row["run"]).name
    options.result(f"wrote {run}; next: lstmprof report {shlex.quote(str(run))} --open")
    return 0


def _log_of(pid: int) -> Path:
    """Return the log file of a watched process; refuse a process that is not watched."""
    from lstmprof.capture.own.watch import registered

    fault = f"process {pid} is not watched"
    try:
        log = Path(registered(pid).read_text(encoding="utf-8"))
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        raise UsageError(fault, "call lp.watch() in it, or use lstmprof run --watch") from None
    caught = next((line.split()[1] for line in status.splitlines() if "SigCgt" in line), "0")
    if not int(caught, 16) >> (signal.SIGUSR1 - 1) & 1 or not log.is_file():
        raise UsageError(fault, "its log file is gone, or the program handles SIGUSR1 itself")
    return log


def _rows(pid: int, log: Path, seen: int) -> Iterator[dict[str, Any]]:
    """Yield the log's entries about requested profiles, until the process ends."""
    with log.open(encoding="utf-8") as lines:
        lines.seek(seen)
        while True:
            runs = Path(f"/proc/{pid}").exists()
            for line in lines.read().splitlines():  # all lines are complete
                row = json.loads(line)
                if row["kind"] == "profile" and row["occasion"] == "asked":
                    yield row
            if not runs:
                return
            time.sleep(_POLL_S)
