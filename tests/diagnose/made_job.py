"""Jobs of several ranks built in code: who arrives when at a collective is given, not guessed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from events.rows import Row, row, table

from lstmprof.breakdown import Breakdown, break_down
from lstmprof.events.annotate import annotated
from lstmprof.runs.metadata import run_info
from lstmprof.runs.run import open_run, write_tables

REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
STEP_NS, TRANSFER_NS = 1_000_000, 10_000

# clocks[0] = 0
# rank 0   step ├───────────────────────────────────────┤   launches at the step's start
#          [compute)   [wait      |transfer)
# rank 1   [compute              ) [transfer)               each collective ends on all at once


def rank_rows(
    rank: int | None,
    arrivals: Sequence[Sequence[int]],
    ends: Sequence[Sequence[int]],
    clock_ns: int = 0,
    device: int = 0,
    first_step: int = 0,
) -> list[Row]:
    """One device: kernels of collectives from ``arrivals`` to ``ends``, of each step of a host."""
    tid = device + 1
    rows, call = [], 1000 * device
    for number, (starts, stops) in enumerate(zip(arrivals, ends, strict=True)):
        at = clock_ns + number * STEP_NS
        host = {"rank": rank, "pid": 1, "tid": tid}
        if device == 0:
            name = f"ProfilerStep#{first_step + number}"
            rows.append(row("step", name, at, at + STEP_NS, **host))
        for place, (start, stop) in enumerate(zip(starts, stops, strict=True)):
            call += 1
            launched = at + place * 10
            rows.append(
                row(
                    "runtime",
                    "cudaLaunchKernel",
                    launched,
                    launched + 5,
                    **host,
                    correlation_id=call,
                )
            )
            on = {"rank": rank, "device": device, "stream": 20, "correlation_id": call}
            rows.append(row("kernel", REDUCE, at + start, at + stop, **on))
    return rows


def job(
    arrivals: Mapping[int, Sequence[Sequence[int]]],
    clocks: Mapping[int, int] | None = None,
    steps: Mapping[int, int] | None = None,
) -> list[Row]:
    """Ranks whose ``arrivals`` at each collective of each step are given, in ns of the step.

    A collective ends on all ranks ``TRANSFER_NS`` after the last of them arrived. ``clocks`` are
    the offsets of their clocks, ``steps`` the numbers of their first steps.
    """
    ends = [
        [max(times) + TRANSFER_NS for times in zip(*of_step, strict=True)]
        for of_step in zip(*arrivals.values(), strict=True)
    ]
    return [
        made
        for rank, times in arrivals.items()
        for made in rank_rows(
            rank, times, ends, (clocks or {}).get(rank, 0), first_step=(steps or {}).get(rank, 0)
        )
    ]


def breakdown_of(folder: Path, rows: list[Row], **facts: Any) -> Breakdown:
    """The breakdown of a run of these rows, written to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    events = annotated(table(rows), captured=False)
    write_tables(folder, run_info({"name": folder.name, "source": "ingest", **facts}), events)
    return break_down(open_run(folder))
