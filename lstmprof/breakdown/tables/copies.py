"""The copy table: what was moved between and within host and devices, and what was set.

Reads categorised events. Direction and host memory are what the activity's name says, as CUPTI,
ROCTracer, Nsight Systems and XLA write it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lstmprof.events.annotate.calls import DIRECTIONS, MEMORIES, direction, host_memory
from lstmprof.events.annotate.steps import Window, is_kind
from lstmprof.events.columns import DEVICE, PER_STEP, RANK, Column, schema
from lstmprof.events.groups import Groups, heads, per_second, per_step, where_known
from lstmprof.events.intervals import Ints
from lstmprof.events.schema import ints, texts
from lstmprof.events.threads import UNKNOWN

COLUMNS = (
    RANK,
    DEVICE,
    Column("kind", pa.string(), "", "memcpy or memset"),
    Column(
        "direction",
        pa.string(),
        "",
        "one of " + ", ".join(DIRECTIONS),
        "a memset, or the name does not say",
    ),
    Column(
        "host_memory",
        pa.string(),
        "",
        "of the host's side: " + ", ".join(MEMORIES),
        "the name does not say",
    ),
    Column("count", pa.int64(), "", "copies or memsets"),
    PER_STEP,
    Column("bytes", pa.int64(), "bytes", "moved or set", "the size of one of them is unknown"),
    Column("total_ns", pa.int64(), "ns", "sum of their durations"),
    Column(
        "bytes_per_s",
        pa.float64(),
        "bytes/s",
        "bytes divided by total_ns",
        "bytes is unknown, or total_ns is 0",
    ),
)
SCHEMA = schema(COLUMNS)


def copies(events: pa.Table, windows: list[Window]) -> pa.Table:
    """One row a (rank, device, kind, direction, host memory); ``SCHEMA``."""
    rows = np.flatnonzero(is_kind(events, "memcpy", "memset"))
    names, name_texts = texts(events, "name")
    way = _codes([direction(n) for n in name_texts], DIRECTIONS)[names[rows]]
    way = np.where(is_kind(events, "memset")[rows], -1, way)
    memory = _codes([host_memory(n) for n in name_texts], MEMORIES)[names[rows]]
    rank, device = (ints(events, c, UNKNOWN)[rows] for c in ("rank", "device"))
    groups = Groups(rank, device, texts(events, "kind")[0][rows], way, memory)
    size = ints(events, "bytes", -1)[rows]
    moved, known = groups.sums(size), groups.sizes(size < 0) == 0
    total = groups.sums(ints(events, "dur_ns", 0)[rows])
    first = groups.first
    in_step = ints(events, "step", -1)[rows] >= 0
    return pa.table(
        [
            *heads(events, rows, groups, ("rank", "device", "kind")),
            _texts(DIRECTIONS, way[first]),
            _texts(MEMORIES, memory[first]),
            pa.array(groups.sizes()),
            per_step(groups.sizes(in_step), rank[first], windows),
            where_known(moved, known),
            pa.array(total),
            per_second(moved, np.where(known, total, 0)),
        ],
        schema=SCHEMA,
    )


def _codes(values: list[str | None], known: tuple[str, ...]) -> Ints:
    return np.array([-1 if v is None else known.index(v) for v in values] or [-1], dtype=np.int64)


def _texts(values: tuple[str, ...], codes: Ints) -> pa.Array:
    return pa.array(values).take(pa.array(codes, mask=codes < 0))
