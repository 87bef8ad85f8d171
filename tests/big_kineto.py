"""Kineto files of many steps, in blocks as the profiler writes them, big enough to be sampled."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

STEP_US, OPS = 4000, 12
_HEAD = '{"schemaVersion": 1, "deviceProperties": [%s], "traceEvents": [\n'
_DEVICE = '{"id": 0, "name": "NVIDIA A100"}'


def event(category: str, name: str, start_us: float, dur_us: float, **more: object) -> str:
    """One event, made long by an argument that nobody reads."""
    where = {"pid": 0, "tid": 7} if category == "kernel" else {"pid": 40, "tid": 41}
    place = more.pop("tid", where["tid"])
    args = "".join(f'"{key.replace("_", " ")}": {value}, ' for key, value in more.items())
    return (
        f'{{"ph": "X", "cat": "{category}", "name": "{name}", "ts": {start_us}, "dur": {dur_us}, '
        f'"pid": {where["pid"]}, "tid": {place}, "args": {{{args}"long": "{"x" * 700}"}}}}'
    )


def blocks(steps: int, *, kernels_from: int = 0, queued_us: float = 0.0) -> list[list[str]]:
    """What ran on the host, the launches, and, from a step on, the kernels: each by time.

    Each kernel is ``queued_us`` longer on its way than its launch takes.
    """
    host, calls, kernels = [], [], []
    for step in range(steps):
        begin = 1000.5 + step * STEP_US
        host.append(event("user_annotation", f"ProfilerStep#{step + 3}", begin, STEP_US - 10))
        for number in range(OPS):
            start = begin + 20 + number * 300
            ids = {"correlation": 1 + step * OPS + number}
            length = 100 + (step * 7 + number * 13) % 60
            name = ("aten::mm", "aten::add", "aten::sum")[number % 3]
            host.append(event("cpu_op", name, start, 90.25))
            calls.append(event("cuda_runtime", "cudaLaunchKernel", start + 10, 5.5, **ids))
            ids |= {"device": 0, "stream": 7}
            late = start + 20 + queued_us
            if step >= kernels_from:
                kernels.append(event("kernel", f"k{number % 3}", late, length, **ids))
    return [host, calls, kernels]


def write(path: Path, events: Sequence[Sequence[str]], *, device: bool = True) -> Path:
    """The file at ``path`` of these blocks of events."""
    lines = ",\n".join(line for block in events for line in block)
    path.write_text(_HEAD % (_DEVICE if device else "") + lines + "\n]}\n")
    return path


def shuffled(events: Sequence[Sequence[str]]) -> list[list[str]]:
    """The same events in no order."""
    lines = [line for block in events for line in block]
    random.Random(1).shuffle(lines)
    return [lines]
