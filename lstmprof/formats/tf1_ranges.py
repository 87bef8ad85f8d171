"""The steps and ranges that a capture of lstmprof writes among the events of TensorFlow 1.

They name the process of the worker; TensorFlow's events name devices, and lanes of devices, in the
place of processes and threads. Here every row of the host is of the worker's process, and a lane is
a thread of a number that no thread has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from lstmprof.events.processes import MOST_PID
from lstmprof.formats import rows
from lstmprof.formats.kineto.events import interval
from lstmprof.formats.rows import Row

#: Their category; the worker (``capture.worker.profilers.tensorflow1``) writes the same.
CATEGORY = "lstmprof"
_STEP = "step"

#: Process and thread as a row has them -> the thread.
Lanes = dict[tuple[int | None, int | None], int]


def ranges(events: Iterable[Any]) -> list[Row]:
    """The steps and ranges, on the main thread of the worker; empty in other timelines."""
    return [
        row
        for event in events
        if isinstance(event, dict) and event.get("ph") == "X" and event.get("cat") == CATEGORY
        for row in _range(event)
    ]


def _range(event: Mapping[str, Any]) -> Iterator[Row]:
    timed = interval(dict(event))
    args = event.get("args")
    pid = rows.natural(args.get("pid")) if isinstance(args, dict) else None
    if not isinstance(timed, str) and pid is not None:
        name = rows.clean(str(event.get("name", "")))
        yield Row("step" if name == _STEP else "range", name, *timed, pid=pid, tid=pid)


def of_one_process(ops: Sequence[Row], pid: int | None) -> tuple[list[Row], Lanes]:
    """``ops`` with the host's in process ``pid``, and of each lane the thread that it became."""
    lanes: Lanes = {}
    moved = []
    for row in ops:
        if row.device is None:
            thread = lanes.setdefault((row.pid, row.tid), MOST_PID + 1 + len(lanes))
            row = row._replace(pid=pid, tid=thread)
        moved.append(row)
    return moved, lanes


def lane_names(lanes: Lanes, processes: Mapping[int | None, str]) -> dict[str, str]:
    """``CPU:0, lane 1`` by the number of the thread."""
    return {
        str(thread): f"{processes.get(pid, 'host').rpartition('device:')[2]}, lane {tid}"
        for (pid, tid), thread in lanes.items()
    }
