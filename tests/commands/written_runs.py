"""Runs in folders, as a capture leaves them: their events given, and how long a step took."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from events.rows import Row, row, table

from lstmprof.events.annotate import annotated
from lstmprof.runs.metadata import run_info
from lstmprof.runs.run import TIMINGS_SCHEMA, write_tables

HOST = {"pid": 1, "tid": 1}
MS = 1_000_000
FACTS = {"source": "capture", "framework": "torch", "precision": "fp32", "mode": "train"}


def write_run(folder: Path, name: str, rows: list[Row], median_ms: float, **facts: Any) -> Path:
    """The folder of a captured run with these events, and one iteration of so many ms."""
    (folder / name).mkdir(parents=True)
    columns = {
        "round": [0],
        "iteration": [0],
        "warmup": [False],
        "wall_ns": [round(median_ms * MS)],
        "device_ns": [None],
        "loss": [None],
    }
    unread = {name: [None] for name in TIMINGS_SCHEMA.names}
    timings = pa.table({**unread, **columns}).cast(TIMINGS_SCHEMA)
    given = {**FACTS, "name": name, "implementation": name, **facts}
    write_tables(folder / name, run_info(given), annotated(table(rows), captured=True), timings)
    return folder / name


def step(*ops: tuple[str, int]) -> list[Row]:
    """One step of ops that last so many ms each, with 1 ms of Python at its end."""
    rows, at = [], 0
    for name, ms in ops:
        rows.append(row("op", name, at * MS, (at + ms) * MS, **HOST))
        at += ms
    return [row("step", "step", 0, (at + 1) * MS, **HOST), *rows]
