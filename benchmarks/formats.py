"""Measure ``ingest`` of big Nsight Systems and XPlane files: CPU time, wall time and memory.

Each file is grown from a real one by repeating its events at later times, with new correlation ids
and ids of ops. Every tool reads the file in its own process. xprof (docs/peers.md), which reads
XPlane, runs in the interpreter that ``--peers`` names.

Example: ``python benchmarks/formats.py real.sqlite real.xplane.pb --peers /venv/bin/python``
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from lstmprof import formats
from lstmprof.formats.xplane import schema
from lstmprof.runs.run import runs_in

_INGEST = (
    "import sys; from pathlib import Path; from lstmprof.runs.ingest import ingest_profiles;"
    "done = ingest_profiles(Path(sys.argv[1]), Path(sys.argv[2]), force=True);"
    "sys.exit(not done.runs)"
)
_XPROF = (
    "import sys; from xprof.convert import raw_to_tool_data as convert;"
    "convert.xspace_to_tool_data([sys.argv[1]], '{tool}', {{}})"
)
#: Name of a tool -> its Python code. ``kernel_stats`` reads only events of GPUs, ``trace_viewer``
#: all events.
_PEERS = {f"xprof {tool}": _XPROF.format(tool=tool) for tool in ("kernel_stats", "trace_viewer")}
_TIMES = ("start", "end", "timestamp")
_OP_ID = re.compile(r"\b(op_id|seq) = (\d+)")
_PAUSE_NS, _PS_PER_NS = 1000, 1000
#: Added to ids per copy. No real file has more ids of ops, or XPlane correlation ids.
_IDS_A_COPY = 1_000_000
_CORRELATIONS = (b"correlation_id",)


def grown_database(real: Path, copies: int, path: Path) -> None:
    """Write the SQLite export ``real`` to ``path``, with its events repeated ``copies`` times."""
    shutil.copyfile(real, path)
    path.chmod(0o644)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = OFF")
    connection.create_function("renumbered", 2, _renumbered, deterministic=True)
    tables = dict(_timed_tables(connection))
    spans = [
        connection.execute(f'SELECT min(start), max("end") FROM "{t}"').fetchone() for t in tables
    ]
    first = min(span[0] for span in spans if span[0] is not None)
    period = max(span[1] for span in spans if span[1] is not None) - first + _PAUSE_NS
    most = max(
        connection.execute(f'SELECT max(correlationId) FROM "{table}"').fetchone()[0] or 0
        for table, columns in tables.items()
        if "correlationId" in columns
    )
    counted = {t: connection.execute(f'SELECT max(rowid) FROM "{t}"').fetchone()[0] for t in tables}
    for copy in range(1, copies):
        for table, columns in tables.items():
            moved = ", ".join(_moved(column, copy, period, most + 1) for column in columns)
            connection.execute(
                f'INSERT INTO "{table}" SELECT {moved} FROM "{table}" WHERE rowid <= ?',
                (counted[table],),
            )
    connection.commit()
    connection.close()


def _timed_tables(connection: sqlite3.Connection) -> Iterator[tuple[str, list[str]]]:
    for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'"):
        columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
        filled = connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0]
        if {"start", "end"} <= set(columns) and filled:
            yield table, columns


def _moved(column: str, copy: int, period_ns: int, ids: int) -> str:
    """Return the SQL expression for a column in copy number ``copy`` of the events.

    Times move by ``period_ns`` per copy, correlation ids by ``ids``.
    """
    if column in _TIMES:
        return f'"{column}" + {copy * period_ns}'
    if column == "correlationId":
        return f'"{column}" + {copy * ids} * ("{column}" > 0)'
    return f'renumbered("{column}", {copy})' if column == "text" else f'"{column}"'


def _renumbered(text: object, copy: int) -> object:
    """Return the text of a PyTorch NVTX range with the op ids of copy number ``copy``."""
    if not isinstance(text, str):
        return text
    return _OP_ID.sub(lambda one: f"{one[1]} = {int(one[2]) + copy * _IDS_A_COPY}", text)


def grown_space(real: Path, copies: int, path: Path) -> None:
    """Write the XSpace file ``real`` to ``path``, with its events repeated ``copies`` times."""
    space = schema.xspace().FromString(real.read_bytes())
    lines = [line for plane in space.planes for line in plane.lines if line.events]
    starts = [line.timestamp_ns + min(e.offset_ps for e in line.events) // 1000 for line in lines]
    ends = [
        line.timestamp_ns + max(e.offset_ps + e.duration_ps for e in line.events) // 1000
        for line in lines
    ]
    period_ps = (max(ends) - min(starts) + _PAUSE_NS) * _PS_PER_NS
    with path.open("wb") as file:
        for plane in space.planes:
            parts = [_grown_line(plane, line, copies, period_ps) for line in plane.lines]
            del plane.lines[:]
            rest = plane.SerializeToString()
            whole = b"".join(b"\x1a" + _varint(len(part)) + part for part in parts)
            file.write(b"\x0a" + _varint(len(rest) + len(whole)) + rest + whole)
        del space.planes[:]
        file.write(space.SerializeToString())


def _grown_line(plane: Any, line: Any, copies: int, period_ps: int) -> bytes:
    """Return the serialised line (thread or stream) with its events repeated ``copies`` times.

    Serialised protobuf messages of one type can be concatenated.
    """
    correlation = {e.key for e in plane.stat_metadata if e.value.name in _CORRELATIONS}
    parts = [line.SerializeToString()]
    moved = type(line)(events=line.events)
    for _ in range(1, copies):
        for event in moved.events:
            event.offset_ps += period_ps
            for stat in event.stats:
                if stat.metadata_id in correlation:
                    field = stat.WhichOneof("value")
                    setattr(stat, field, getattr(stat, field) + _IDS_A_COPY)
        parts.append(moved.SerializeToString())
    return b"".join(parts)


def _varint(value: int) -> bytes:
    content = bytearray()
    while value >= 0x80:
        content.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*content, value])


@dataclass(frozen=True)
class Cost:
    """CPU time, wall time and peak memory (MiB) of one process; ``ok`` if it succeeded."""

    cpu_s: float
    wall_s: float
    memory_mb: float
    ok: bool


def cost(python: str, code: str, *words: str) -> Cost:
    """Run ``code`` with the arguments ``words`` in a new ``python`` process; return its cost."""
    start = time.perf_counter()
    child = subprocess.Popen(
        [python, "-c", code, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    wall_s = time.perf_counter() - start
    cpu_s = usage.ru_utime + usage.ru_stime
    return Cost(cpu_s, wall_s, usage.ru_maxrss / 1024, child.returncode == 0)


def grown(real: Path, events: int, folder: Path) -> Path:
    """Write a file of at least ``events`` events, grown from ``real``, to ``folder``."""
    here = len(formats.read(real).events)
    copies = -(-events // here)
    path = folder / f"big-{copies}-{real.name}"
    grow = grown_database if real.suffix == ".sqlite" else grown_space
    grow(real, copies, path)
    return path


def main() -> None:
    """Print one row per file, size and tool."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("profiles", type=Path, nargs="+", help="real files to grow")
    parser.add_argument("--events", type=float, nargs="+", default=[1e6], help="sizes to grow to")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", help="the Python that has xprof")
    given = parser.parse_args()
    print(f"{'':44}{'events':>10}{'MB':>7}{'CPU s':>8}{'wall s':>8}{'peak MiB':>9}")
    for real in given.profiles:
        for events in given.events:
            with tempfile.TemporaryDirectory() as folder:
                _report(real, int(events), Path(folder), given)


def _report(real: Path, events: int, folder: Path, given: argparse.Namespace) -> None:
    # Grow the file in another process: the memory of this process counts in its children's peaks.
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawned) as pool:
        path = pool.submit(grown, real, events, folder).result()
    tools = [("lstmprof ingest", sys.executable, _INGEST)]
    if given.peers and real.suffix == ".pb":
        tools += [(name, given.peers, code) for name, code in _PEERS.items()]
    costs: dict[str, list[Cost]] = {name: [] for name, *_ in tools}
    for _ in range(given.rounds):
        for name, python, code in tools:
            with tempfile.TemporaryDirectory(dir=folder) as alone:  # xprof writes beside its input
                link = Path(alone) / path.name
                link.hardlink_to(path)
                costs[name].append(cost(python, code, str(link), str(folder / "runs")))
    (run,) = runs_in(folder / "runs")
    for name, found in costs.items():
        label = f"{real.name.partition('.')[0][:24]:26}{name:18}"
        if not all(one.ok for one in found):
            print(f"{label} failed")
            continue
        cpu_s = statistics.median(one.cpu_s for one in found)
        wall_s = statistics.median(one.wall_s for one in found)
        memory_mb = max(one.memory_mb for one in found)
        size_mb = path.stat().st_size / 1e6
        # Read only the metadata: memory of this process would count in the next child's peak.
        count = pq.ParquetFile(run.path / "events.parquet").metadata.num_rows
        print(f"{label}{count:10}{size_mb:7.0f}{cpu_s:8.2f}{wall_s:8.2f}{memory_mb:9.0f}")


if __name__ == "__main__":
    main()
