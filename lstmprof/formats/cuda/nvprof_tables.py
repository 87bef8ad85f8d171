"""The tables of an nvprof database, as batches of events.

They are CUPTI's records, field by field (``cupti_activity.h``); a table without rows is there too.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from lstmprof.formats.cuda import cupti
from lstmprof.formats.cuda.columns import Batch, constant, described, named, natural, positive
from lstmprof.formats.cuda.sqlite import UNKNOWN, Database, Ints

_KIND = "CUPTI_ACTIVITY_KIND_"
_ACTIVITIES = {
    "CONCURRENT_KERNEL": "kernel",
    "KERNEL": "kernel",
    "CDP_KERNEL": "kernel",
    "MEMCPY": "memcpy",
    "MEMCPY2": "memcpy",
    "MEMSET": "memset",
}
_CALLS = {"RUNTIME": cupti.RUNTIME_CALLS, "DRIVER": cupti.DRIVER_CALLS}
_PLACE = ("start", "end", "deviceId", "streamId", "correlationId")
#: CUpti_ActivityFlag: a marker that starts and one that ends a range.
_STARTS, _ENDS = 2, 4
_UNNAMED = "unnamed"
_UINT32 = 0xFFFFFFFF


def activities(database: Database, strings: Mapping[int, str]) -> Iterator[Batch]:
    """Kernels, copies and memsets."""
    for table, kind in _ACTIVITIES.items():
        if _KIND + table in database.columns:
            yield _activity(database, _KIND + table, kind, strings)


def _activity(database: Database, table: str, kind: str, strings: Mapping[int, str]) -> Batch:
    kinds = ("copyKind", "srcKind", "dstKind", "memoryKind")
    read = database.ints(table, *_PLACE, "name", "bytes", *kinds)
    if kind == "kernel":
        name = named(read["name"], lambda key: strings.get(key, _UNNAMED))
    elif kind == "memcpy":
        copied = read["copyKind"], read["srcKind"], read["dstKind"]
        name = cupti.copy_names(*copied, cupti.MEMORY)
    else:
        name = cupti.memset_names(read["memoryKind"], cupti.MEMORY)
    ints = {**_placed(read), "bytes": natural(read["bytes"])}
    return Batch(ints, {"kind": constant(kind, len(name)), "name": name})


def _placed(read: Mapping[str, Ints]) -> dict[str, Ints]:
    return {
        "start_ns": read["start"],
        "end_ns": read["end"],
        "device": natural(read["deviceId"]),
        "stream": natural(read["streamId"]),
        "correlation_id": positive(read["correlationId"]),
    }


def synchronizations(database: Database) -> Iterator[Batch]:
    """Waits on a device, which is that of their context."""
    table = f"{_KIND}SYNCHRONIZATION"
    if table not in database.columns:
        return
    read = database.ints(table, *_PLACE, "contextId", "type")
    contexts = _devices_of_contexts(database)
    distinct, codes = np.unique(read["contextId"], return_inverse=True)
    devices = np.array([contexts.get(c, UNKNOWN) for c in distinct.tolist()], np.int64)
    ints = _placed({**read, "deviceId": devices[codes]})
    name = cupti.sync_names(read["type"])
    yield Batch(ints, {"kind": constant("device_sync", len(name)), "name": name})


def _devices_of_contexts(database: Database) -> dict[int, int]:
    if f"{_KIND}CONTEXT" not in database.columns:
        return {}
    read = database.ints(f"{_KIND}CONTEXT", "contextId", "deviceId")
    return dict(zip(read["contextId"].tolist(), read["deviceId"].tolist(), strict=True))


def calls(database: Database) -> Iterator[Batch]:
    """Calls of the CUDA runtime and driver, which are numbered, not named."""
    for table, listed in _CALLS.items():
        if _KIND + table in database.columns:
            read = database.ints(
                _KIND + table,
                *("start", "end", "processId", "threadId", "correlationId", "cbid"),
            )
            name = named(read["cbid"], functools.partial(_call_name, table, listed))
            ints = {
                **_threaded(read, read["processId"], read["threadId"]),
                "correlation_id": positive(read["correlationId"]),
            }
            yield Batch(ints, {"kind": constant("runtime", len(name)), "name": name})


def _call_name(table: str, known: Mapping[int, str], number: int) -> str:
    unknown = f"CUDA {table.lower()} call" + (f" {number}" if number >= 0 else "")
    return known.get(number, unknown)


def overheads(database: Database) -> Iterator[Batch]:
    """The profiler's own work; what CUDA does by itself is a call's."""
    table = f"{_KIND}OVERHEAD"
    if table not in database.columns:
        return
    read = database.ints(table, "start", "end", "overheadKind")
    of = {kind: name for kind, (name, _) in cupti.OVERHEADS.items()}
    kinds = {kind: "overhead" if own else "runtime" for kind, (_, own) in cupti.OVERHEADS.items()}
    yield Batch(
        _threaded(read, *_objects(database, table)),
        {
            "kind": named(read["overheadKind"], lambda key: kinds.get(key, "overhead")),
            "name": named(read["overheadKind"], lambda key: of.get(key, "Unknown")),
        },
    )


def ranges(database: Database, strings: Mapping[int, str]) -> list[Batch]:
    """NVTX ranges: a start marker and the end marker of its id, ``UNKNOWN`` for one without."""
    table = f"{_KIND}MARKER"
    if table not in database.columns:
        return []
    read = database.ints(table, "flags", "timestamp", "id", "name")
    known = (read["flags"] >= 0) & (read["timestamp"] != UNKNOWN)
    starts = np.flatnonzero(known & (read["flags"] & _STARTS > 0))
    ends = np.flatnonzero(known & (read["flags"] & _ENDS > 0))
    end_ns = np.full(len(starts), UNKNOWN)
    if len(ends):
        ends = ends[np.argsort(read["id"][ends], kind="stable")]
        ids = read["id"][ends]
        found = np.minimum(np.searchsorted(ids, read["id"][starts]), len(ids) - 1)
        hit = ids[found] == read["id"][starts]
        end_ns[hit] = read["timestamp"][ends][found[hit]]
    times = {"start": read["timestamp"][starts], "end": end_ns}
    pid, tid = (values[starts] for values in _objects(database, table))
    text = named(read["name"][starts], lambda key: strings.get(key, _UNNAMED))
    return [described(_threaded(times, pid, tid), text.cast(pa.string()))]


def _objects(database: Database, table: str) -> tuple[Ints, Ints]:
    """(process, thread) of CUpti_ActivityObjectKindId: two little-endian uint32."""
    blobs = [b if b and len(b) >= 8 else bytes(8) for b in database.blobs(table, "objectId")]
    words = np.frombuffer(b"".join(b[:8] for b in blobs), "<u4").astype(np.int64).reshape(-1, 2)
    return words[:, 0], words[:, 1]


def _threaded(read: Mapping[str, Ints], pid: Ints, tid: Ints) -> dict[str, Ints]:
    """Times, pid and tid; a thread's number is the lower half of its pthread_t, signed in calls."""
    return {
        "start_ns": read["start"],
        "end_ns": read["end"],
        "pid": positive(pid),
        "tid": np.where(tid == UNKNOWN, UNKNOWN, positive(tid & _UINT32)),
    }
