"""Allocations and frees that Nsight Systems records (``--cuda-memory-usage=true``).

One row each, of a process and a device, with its bytes: of pinned and pageable memory it is the
host's. What was allocated in all before the first is not told. Source:
https://docs.nvidia.com/nsight-systems/UserGuide/index.html#sqlite-schema-reference, and
``ENUM_CUDA_DEV_MEM_EVENT_OPER``, ``ENUM_CUDA_MEM_KIND`` of its exports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from lstmprof.events.counters import (
    BYTES,
    CHANGE,
    READ,
    Collected,
    sorted_by_time,
)
from lstmprof.formats import rows
from lstmprof.formats.cuda.events import Batch, constant, natural, positive
from lstmprof.formats.cuda.tables import UNKNOWN, Ints, Tables

TABLE = "CUDA_GPU_MEMORY_USAGE_EVENTS"
_COLUMNS = ("start", "globalPid", "deviceId", "bytes", "memKind", "memoryOperationType")
_ALLOCATION, _FREE = 0, 1
_OF_HOST = (0, 1)  # pageable, pinned


def add_memory(database: Tables, renumbered: Callable[[Batch], Batch], collected: Collected) -> int:
    """Add the changes of memory to ``collected``, times as they are written; how many say none.

    ``renumbered`` mends device numbers.
    """
    if TABLE not in database.columns:
        return 0
    odd = 0
    for read in database.int_chunks(TABLE, *_COLUMNS):
        start, size, operation = read["start"], read["bytes"], read["memoryOperationType"]
        told = (np.abs(start) <= rows.MAX_NS) & (start != UNKNOWN) & (size >= 0)
        told &= np.isin(operation, (_ALLOCATION, _FREE))
        odd += int(len(told) - np.count_nonzero(told))
        kept = {name: values[told] for name, values in read.items()}
        if told.any():
            collected.add(_changes(kept, renumbered))
    return odd


def _changes(read: Mapping[str, Ints], renumbered: Callable[[Batch], Batch]) -> pa.Table:
    count = len(read["start"])
    pid = np.where(read["globalPid"] == UNKNOWN, 0, positive(read["globalPid"] >> 24 & 0xFFFFFF))
    placed = renumbered(Batch({"pid": pid, "device": natural(read["deviceId"])}, {})).ints
    on_host = np.isin(read["memKind"], _OF_HOST)
    sign = np.where(read["memoryOperationType"] == _FREE, -1.0, 1.0)
    columns = {
        "time_ns": read["start"],
        "pid": pa.array(pid, mask=pid <= 0),
        "device": pa.array(placed["device"], mask=on_host | (placed["device"] < 0)),
        "name": constant(CHANGE, count),
        "unit": constant(BYTES, count),
        "value": sign * read["bytes"],
        "allocator": pa.nulls(count, READ.field("allocator").type),
    }
    return sorted_by_time(pa.table(columns, schema=READ))
