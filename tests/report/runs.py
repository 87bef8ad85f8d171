"""Runs made in code, on a GPU that was never there, under names that nobody should trust.

::

    host   [step                                        )
             [aten::mm [cudaLaunchKernel) )   … ``kernels`` times, a PERIOD apart
    device               [kernel)                [kernel)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from events.rows import Row, row, table

from lstmprof.events.annotate import annotated
from lstmprof.runs.directory import new_run
from lstmprof.runs.metadata import run_info
from lstmprof.runs.run import TIMINGS_SCHEMA, Run, open_run, write_tables

PERIOD, KERNEL, LAUNCH = 10_000, 3_000, 2_000
HOSTILE = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "void at::native::kernel<" + "std::tuple<float, " * 280 + ">",
    "\u202egnp.exe \u05d0\u05d1\u05d2",
    "nul\x00 and \x1b[31mred\x07",
    "]]> --> {{ 7*7 }} ${alert(1)} \u2028 `",
)
WORKLOAD = {
    **{"name": "1x320-ce-short", "layers": 1, "hidden": 32, "bidirectional": False, "batch": 4},
    **{"time_steps": 5, "features": 3, "classes": 10, "loss": "ce"},
}


def run(
    out: Path,
    name: str,
    *,
    implementation: str,
    kernels: int = 4,
    steps: int = 2,
    names: tuple[str, ...] = ("ampere_sgemm_128x64_nn", "vectorized_elementwise_kernel"),
    walls_ns: tuple[int, ...] = (),
    hidden: int = 32,
    step_ns: int | None = None,
    facts: dict[str, Any] | None = None,
) -> Run:
    """The run ``name`` in ``out``: ``steps`` of ``kernels`` kernels under ``names`` in turn.

    Steps last ``step_ns`` if given, else as long as their kernels.
    """
    rows: list[Row] = []
    length = step_ns or kernels * PERIOD
    for step in range(steps):
        end = (step + 1) * length
        rows.append(row("step", f"step#{step}", step * length, end, pid=1, tid=1))
        for i in range(kernels):
            rows += _launched(step * length + i * PERIOD, step * kernels + i + 1, names)
    events = annotated(table(rows), captured=True)
    metadata = {
        "source": "capture",
        "name": name,
        "implementation": implementation,
        "workload": {**WORKLOAD, "hidden": hidden},
        **{"precision": "fp32", "mode": "train", "seed": 0, "threads": 1},
        **{"device": "cuda:0", "device_name": "Test GPU"},
        "versions": {"torch": "2.13.0", "python": "3.11.7"},
        "started_at": "2026-11-21T12:00:00Z",
        "peaks": {"gemm_flops_per_s": 1e12, "copy_bytes_per_s": 1e11},
        **(facts or {}),
    }
    with new_run(out, name) as folder:
        write_tables(folder, run_info(metadata), events, _timings(walls_ns) if walls_ns else None)
    return open_run(out / name)


#: What each kernel was launched with.
LAUNCHED = '{"grid":[80,1,1],"block":[128,1,1],"registers":32,"shared_bytes":4096}'


def _launched(at: int, correlation: int, names: tuple[str, ...]) -> list[Row]:
    kernel = names[correlation % len(names)]
    host = {"pid": 1, "tid": 1}
    launch, done = at + 1_000, at + 1_000 + LAUNCH
    ran = {"device": 0, "stream": 7, "correlation_id": correlation, "launch_config": LAUNCHED}
    return [
        row("op", "aten::mm", at + 500, done + 500, **host),
        row("runtime", "cudaLaunchKernel", launch, done, correlation_id=correlation, **host),
        row("kernel", kernel, done + 1_000, done + 1_000 + KERNEL, **ran),
    ]


def _timings(walls_ns: tuple[int, ...]) -> pa.Table:
    count = len(walls_ns)
    columns = {
        "round": [0] * count,
        "iteration": list(range(count)),
        "warmup": [i < 2 for i in range(count)],
        "wall_ns": list(walls_ns),
        "device_ns": list(walls_ns),
        "loss": [1.0] * count,
    }
    unread = {name: [None] * count for name in TIMINGS_SCHEMA.names}
    return pa.table({**unread, **columns}).cast(TIMINGS_SCHEMA)


def walls(median_ns: int, count: int = 14) -> tuple[int, ...]:
    """``count`` times about ``median_ns``."""
    return tuple(median_ns + (i * 37) % 11 * median_ns // 1000 for i in range(count))


def three(out: Path) -> list[Run]:
    """Three that can be compared, one of them under hostile names."""
    return [
        run(out, "fast", implementation="torch-nn-lstm", kernels=2, walls_ns=walls(21_000)),
        run(out, "slow", implementation="torch-cell", kernels=9, walls_ns=walls(93_000)),
        run(
            out,
            "hostile",
            implementation=HOSTILE[0],
            kernels=12,
            names=HOSTILE,
            walls_ns=walls(120_000),
            facts={"label": HOSTILE[3], "versions": {"torch": HOSTILE[1]}},
        ),
    ]
