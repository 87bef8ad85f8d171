"""The copy table: time and size of copies between host and devices, and of memsets.

Reads categorised events. Direction and host memory come from the activity's name, as CUPTI,
ROCTracer, Nsight Systems and XLA write it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lstmprof.events.annotate.calls import DIRECTIONS, MEMORIES, direction, host_memory
from lstmprof.events.annotate.steps import Window, steps_of
from lstmprof.events.groups import Groups, ratio, texts_at, where_known
from lstmprof.events.narrow import Packed
from lstmprof.events.schema import DEVICE, PER_STEP, RANK, Column, schema
from lstmprof.events.table import NONE, UNKNOWN
from lstmprof.runs.invariants import check_sums

COLUMNS = (
    RANK,
    DEVICE,
    Column.text("kind", "memcpy or memset"),
    Column.text(
        "direction",
        "direction of the copy: " + ", ".join(DIRECTIONS) + " (H host, D device, P peer device)",
        "it is a memset, or the name does not show it",
    ),
    Column.text(
        "host_memory", "kind of host memory: " + ", ".join(MEMORIES), "the name does not show it"
    ),
    Column.integer("count", "number of copies or memsets"),
    PER_STEP,
    Column.integer("bytes", "bytes that were copied or set", "a size is unknown"),
    Column.integer("total_ns", "sum of the durations"),
    Column.real("bytes_per_s", "bytes divided by total_ns", "bytes is unknown, or total_ns is 0"),
)

#: Columns of the events that it is made from.
READS = ("kind", "name", "dur_ns", "rank", "device", "bytes", "step")
#: Values in the order in which rows are sorted.
_KINDS, _WAYS, _MEMORIES = ("memcpy", "memset"), sorted(DIRECTIONS), sorted(MEMORIES)


def copies(events: Packed, windows: Sequence[Window]) -> pa.Table:
    """Return one row per rank, device, kind, direction and host memory, sorted by them.

    Raises:
        RunError: the times or sizes exceed 64 bits.
    """
    of_them = events.table(READS, np.flatnonzero(events.is_kind(*_KINDS)))
    rank, device, moved = (of_them.ints(name, UNKNOWN) for name in ("rank", "device", "bytes"))
    is_set = of_them.is_kind("memset")
    way = of_them.mapped("name", lambda name: _place(_WAYS, direction(name)), NONE)
    memory = of_them.mapped("name", lambda name: _place(_MEMORIES, host_memory(name)), NONE)
    way, is_known = np.where(is_set, NONE, way), moved != UNKNOWN
    check_sums("copies", of_them.dur_ns, moved[is_known])
    group = Groups(rank, device, is_set.astype(np.int64), way, memory)
    head = group.first
    count, total = group.sizes(), group.sums(of_them.dur_ns)
    whole, all_known = group.sums(moved, is_known), group.sizes(is_known) == count
    in_steps = group.sizes(of_them.ints("step", NONE) != NONE)
    columns = [
        *(where_known(number[head], number[head] != UNKNOWN) for number in (rank, device)),
        texts_at(_KINDS, is_set[head].astype(np.int64)),
        texts_at(_WAYS, way[head]),
        texts_at(_MEMORIES, memory[head]),
        pa.array(count),
        ratio(in_steps, steps_of(rank[head], list(windows))),
        where_known(whole, all_known),
        pa.array(total),
        pa.array(whole * 1e9 / np.maximum(total, 1), mask=~all_known | (total == 0)),
    ]
    return pa.Table.from_arrays(columns, schema=schema(COLUMNS))


def _place(texts: Sequence[str], text: str | None) -> int:
    return NONE if text is None else texts.index(text)
