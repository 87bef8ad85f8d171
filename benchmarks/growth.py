"""How the account of a run grows with its events: seconds a million, and memory.

A run is repeated in time, ids renumbered, and ``break_down`` makes its usual tables, each size in a
process of its own. The promise is that seconds a million stay the same.

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
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lstmprof import store
from lstmprof.events import SCHEMA

SIZES, ROUNDS = (100_000, 1_000_000, 10_000_000), 3
_IDS = ("event_id", "parent_id", "launch_id", "op_id", "forward_id")
_PAUSE_NS = 1000
_ROW_GROUP = 2**20  # rows that Parquet files are written by where they are written at once
_CODE = (
    "import sys; from pathlib import Path; from lstmprof import store;"
    "from lstmprof.breakdown import break_down; break_down(store.open_run(Path(sys.argv[1])))"
)


def repeat(run: store.Run, least: int, folder: Path) -> int:
    """Write the events of ``run`` to ``folder`` as often as makes ``least``; how many they are."""
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
    shutil.copy(run.path / store.RUN_FILE, folder)
    return copies * len(events)


def _moved(events: pa.Table, moves: dict[str, int]) -> pa.Table:
    for name, by in moves.items():
        place = SCHEMA.get_field_index(name)
        events = events.set_column(place, SCHEMA.field(name), pc.add(events[name], by))
    return events.cast(SCHEMA)


def cost(folder: Path) -> tuple[float, float]:
    """(seconds, MB) of a process that accounts for the run in ``folder``."""
    start = time.perf_counter()
    child = subprocess.Popen([sys.executable, "-c", _CODE, str(folder)])
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"the breakdown of {folder} failed")
    return time.perf_counter() - start, usage.ru_maxrss / 1024


def main(run: store.Run) -> None:
    """Print a row a size."""
    print(f"{'events':>12}{'median s':>10}{'s a million':>13}{'MB':>8}")
    for size in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            count = repeat(run, size, Path(folder))
            costs = [cost(Path(folder)) for _ in range(ROUNDS)]
        seconds = statistics.median(seconds for seconds, _ in costs)
        memory_mb = max(mb for _, mb in costs)
        print(f"{count:12}{seconds:10.2f}{seconds / count * 1e6:13.2f}{memory_mb:8.0f}")


if __name__ == "__main__":
    main(store.open_run(Path(sys.argv[1])))
