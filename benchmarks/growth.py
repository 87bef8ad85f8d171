"""Measure how the cost of a breakdown grows with the number of events: CPU time and memory.

The events of a run are repeated at later times with new ids, to several sizes. For each size a new
process computes the default tables; then each table is computed alone. The limit: CPU time per
event, without the start-up time, stays constant. Last, the repeated steps are joined into ten long
ones, to measure the clean step, which matches the events of each step with those of the others.

Example: ``python benchmarks/growth.py traces/my-run``
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lstmprof.breakdown import TABLES
from lstmprof.events.schema import SCHEMA
from lstmprof.runs.run import RUN_FILE, Run, open_run

SIZES, ROUNDS = (100_000, 1_000_000, 10_000_000), 3
_IDS = ("event_id", "parent_id", "launch_id", "op_id", "forward_id")
_PAUSE_NS = 1000
_ROW_GROUP = 2**20  # rows per group of the Parquet file, as in files that are written at once
_CODE = (
    "import sys; from pathlib import Path; from lstmprof.base.names import USUAL_TABLES;"
    "from lstmprof.breakdown import break_down; from lstmprof.runs.run import open_run;"
    "found = break_down(open_run(Path(sys.argv[1])), tables=sys.argv[2:] or USUAL_TABLES);"
)
_CLEAN = _CODE + "found.steps()"


def repeat(run: Run, least: int, folder: Path) -> int:
    """Write a run to ``folder`` with the events of ``run`` repeated to at least ``least`` events.

    Return the number of events.
    """
    events = run.events()
    copies = -(-least // len(events))
    block = -(-_ROW_GROUP // len(events))
    period_ns = pc.max(pc.add(events["start_ns"], events["dur_ns"])).as_py() + _PAUSE_NS
    moves = dict.fromkeys(_IDS, len(events))
    moves |= {
        "start_ns": period_ns,
        "correlation_id": (pc.max(events["correlation_id"]).as_py() or 0) + 1,
    }
    with pq.ParquetWriter(folder / "events.parquet", SCHEMA, compression="zstd") as file:
        for first in range(0, copies, block):
            moved = [
                _moved(events, {name: by * copy for name, by in moves.items()})
                for copy in range(first, min(first + block, copies))
            ]
            file.write_table(pa.concat_tables(moved))
    shutil.copy(run.path / RUN_FILE, folder)
    return copies * len(events)


def join_steps(folder: Path, count: int) -> None:
    """Join the steps of the run in ``folder``, one after the other, into ``count`` longer steps."""
    path = folder / "events.parquet"
    events = pq.read_table(path)
    columns = {name: events[name].to_numpy(zero_copy_only=False) for name in ("start_ns", "dur_ns")}
    steps = np.flatnonzero(pc.equal(events["kind"], "step").to_numpy(zero_copy_only=False))
    joined = np.arange(len(steps)) * count // len(steps)
    first = steps[np.searchsorted(joined, np.arange(count))]
    last = steps[np.searchsorted(joined, np.arange(count), side="right") - 1]
    columns["dur_ns"] = columns["dur_ns"].copy()
    columns["dur_ns"][first] = (columns["start_ns"] + columns["dur_ns"])[last] - columns[
        "start_ns"
    ][first]
    stays = np.ones(len(events), bool)
    stays[steps] = False
    stays[first] = True
    ids = np.cumsum(stays) - 1  # new ids; a step that is removed gets its long step's id
    ids[steps] = ids[first[joined]]
    within = np.searchsorted(columns["start_ns"][first], columns["start_ns"], side="right") - 1
    columns["step"] = pc.if_else(events["step"].is_valid(), within, None)
    for name in _IDS:
        columns[name] = pc.take(pa.array(ids), events[name])
    for name, values in columns.items():
        place = SCHEMA.get_field_index(name)
        column = values if isinstance(values, pa.ChunkedArray) else pa.array(values)
        events = events.set_column(place, SCHEMA.field(name), column.cast(SCHEMA.field(name).type))
    pq.write_table(events.filter(pa.array(stays)).cast(SCHEMA), path, compression="zstd")


def _moved(events: pa.Table, moves: dict[str, int]) -> pa.Table:
    for name, by in moves.items():
        place = SCHEMA.get_field_index(name)
        events = events.set_column(place, SCHEMA.field(name), pc.add(events[name], by))
    return events.cast(SCHEMA)


@dataclass(frozen=True)
class Cost:
    """Wall time, CPU time and peak memory (MiB) of a process."""

    wall_s: float
    cpu_s: float
    memory_mb: float


def cost(folder: Path, *tables: str, code: str = _CODE) -> Cost:
    """Return the cost of a process that computes ``tables`` of the run in ``folder``.

    Without ``tables``, it computes the default ones. Times are medians over rounds, memory is the
    maximum.
    """
    costs = [_cost(code, folder, tables) for _ in range(ROUNDS)]
    return Cost(
        statistics.median(one.wall_s for one in costs),
        statistics.median(one.cpu_s for one in costs),
        max(one.memory_mb for one in costs),
    )


def _cost(code: str, folder: Path, tables: Sequence[str]) -> Cost:
    start = time.perf_counter()
    child = subprocess.Popen([sys.executable, "-c", code, str(folder), *tables])
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"the breakdown of {folder} failed")
    cpu_s = usage.ru_utime + usage.ru_stime
    return Cost(time.perf_counter() - start, cpu_s, usage.ru_maxrss / 1024)


def of_all_sizes(run: Run) -> None:
    """Print one row per number of events, for the default tables."""
    print(f"{'events':>12}{'wall s':>9}{'CPU s':>9}{'CPU s a million':>17}{'MiB':>8}")
    for size in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            count = repeat(run, size, Path(folder))
            one = cost(Path(folder))
        rate = one.cpu_s / count * 1e6
        print(f"{count:12}{one.wall_s:9.2f}{one.cpu_s:9.2f}{rate:17.2f}{one.memory_mb:8.0f}")


def of_long_steps(run: Run) -> None:
    """Print the cost of a breakdown with a clean step, by number of events in ten steps."""
    print(f"{'events in ten steps':>20}{'wall s':>9}{'CPU s':>9}{'MiB':>8}")
    for size in SIZES[:2]:
        with tempfile.TemporaryDirectory() as folder:
            count = repeat(run, size, Path(folder))
            join_steps(Path(folder), 10)
            one = cost(Path(folder), code=_CLEAN)
        print(f"{count:20}{one.wall_s:9.2f}{one.cpu_s:9.2f}{one.memory_mb:8.0f}")


def of_each_table(run: Run) -> None:
    """Print one row per table, with its growth for ten times as many events.

    ``growth`` is the ratio of CPU times without start-up. Linear growth is 10; because the smaller
    time is short, a busy machine gives 5 to 15.
    """
    few, many = SIZES[:2]
    with tempfile.TemporaryDirectory() as place:
        small, large = Path(place) / "small", Path(place) / "large"
        for folder, size in ((small, few), (large, many)):
            folder.mkdir()
            repeat(run, size, folder)
        print(f"{'table':>12}{'CPU s':>9}{'growth':>9}{'MiB':>8}   of {many:,} events")
        for name in TABLES:
            start, less, more = (cost(f, name) for f in (run.path, small, large))
            growth = (more.cpu_s - start.cpu_s) / max(less.cpu_s - start.cpu_s, 0.01)
            print(f"{name:>12}{more.cpu_s:9.2f}{growth:9.1f}{more.memory_mb:8.0f}")


if __name__ == "__main__":
    of_all_sizes(open_run(Path(sys.argv[1])))
    of_each_table(open_run(Path(sys.argv[1])))
    of_long_steps(open_run(Path(sys.argv[1])))
