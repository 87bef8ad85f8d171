"""Read the SQLite database that ``nvprof -o`` writes, up to CUDA 12.

The tables are CUPTI's records, field by field (``cupti_activity.h``). A table may be empty. Times
are ns since 1970. Kernels have mangled names, and calls have numbers instead of names.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from lstmprof.base.errors import ProfileError
from lstmprof.events import Profile
from lstmprof.formats import rows
from lstmprof.formats.cuda import database_tables
from lstmprof.formats.cuda.database_tables import UNKNOWN, Database, Ints
from lstmprof.formats.cuda.events import (
    LAUNCH_COLUMNS,
    Batch,
    CudaEvents,
    constant,
    cupti_launch_config,
    device_facts,
    gathered,
    launch_configs,
    looked_up,
    named,
    natural,
    positive,
)
from lstmprof.formats.cuda.names import (
    DRIVER_CALLS,
    MEMORY,
    OVERHEADS,
    RUNTIME_CALLS,
    copy_names,
    memset_names,
    nvtx_ranges,
    sync_names,
)
from lstmprof.formats.raw_file import RawFile

_NEXT_STEP = "profile with nvprof -o FILE python …, or with nsys profile --trace=cuda,nvtx"
_KERNELS = ("CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", "CUPTI_ACTIVITY_KIND_KERNEL")
_STRINGS = "StringTable"
_DEVICES = "CUPTI_ACTIVITY_KIND_DEVICE"
_DEVICE_COLUMNS = (
    *("computeCapabilityMajor", "computeCapabilityMinor"),
    *("numMultiprocessors", "numThreadsPerWarp"),
)
_KIND = "CUPTI_ACTIVITY_KIND_"
_ACTIVITIES = {
    "CONCURRENT_KERNEL": "kernel",
    "KERNEL": "kernel",
    "CDP_KERNEL": "kernel",
    "MEMCPY": "memcpy",
    "MEMCPY2": "memcpy",
    "MEMSET": "memset",
}
_CALLS = {"RUNTIME": RUNTIME_CALLS, "DRIVER": DRIVER_CALLS}
_EVENT_COLUMNS = ("start", "end", "deviceId", "streamId", "correlationId")
#: Bits of CUpti_ActivityFlag in markers that start or end a range.
_STARTS, _ENDS = 2, 4
_UNNAMED = "unnamed"
_UINT32 = 0xFFFFFFFF


def recognises(raw: RawFile) -> bool:
    """Return whether the database has nvprof's strings and a table of kernels."""
    tables = database_tables.names(raw, (*_KERNELS, _STRINGS))
    return _STRINGS in tables and any(name in tables for name in _KERNELS)


def read(raw: RawFile) -> Profile:
    with database_tables.opened(raw) as database:
        strings = database.strings(_STRINGS, "_id_", "value")
        recorded = _events(database, strings)
        device_names = _device_names(database, strings)
        facts = device_facts(database, _DEVICES, _DEVICE_COLUMNS)
        versions = database.ints("Version", "version") if "Version" in database.columns else {}
    origin_ns = recorded.origin_ns
    if origin_ns is None or recorded.columns is None:
        raise ProfileError(raw.path, "has no CUDA call and no NVTX range", _NEXT_STEP)
    version = [rows.positive(v) for values in versions.values() for v in values.tolist()]
    return Profile(
        format="nvprof",
        base_ns=rows.date_ns(origin_ns),
        events=rows.moved(recorded.columns, origin_ns),
        device_names=device_names,
        device_facts=facts,
        accelerators=tuple(dict.fromkeys(device_names.values())),
        notes=tuple(recorded.notes()),
        metadata={"schema_version": version[0]} if version and version[0] else {},
    )


def _events(database: Database, strings: Mapping[int, str]) -> CudaEvents:
    ranges = _ranges(database, strings)
    others = [*_synchronizations(database), *_overheads(database)]
    return gathered(
        busy=_activities(database, strings),
        calls=_calls(database),
        ranges=ranges,
        others=others,
        last_times=lambda: [*ranges, *others],
    )


def _device_names(database: Database, strings: Mapping[int, str]) -> dict[int, str]:
    if _DEVICES not in database.columns:
        return {}
    read = database.ints(_DEVICES, "id", "name")
    pairs = zip(np.maximum(read["id"], -1).tolist(), read["name"].tolist(), strict=True)
    return {number: strings[name] for number, name in pairs if name in strings and number >= 0}


def _activities(database: Database, strings: Mapping[int, str]) -> Iterator[Batch]:
    for table, kind in _ACTIVITIES.items():
        if _KIND + table in database.columns:
            yield _activity(database, _KIND + table, kind, strings)


def _activity(database: Database, table: str, kind: str, strings: Mapping[int, str]) -> Batch:
    kinds = ("copyKind", "srcKind", "dstKind", "memoryKind")
    launch_columns = LAUNCH_COLUMNS if kind == "kernel" else ()
    read = database.ints(table, *_EVENT_COLUMNS, "name", "bytes", *kinds, *launch_columns)
    if kind == "kernel":
        name = named(read["name"], lambda key: strings.get(key, _UNNAMED))
    elif kind == "memcpy":
        copied = read["copyKind"], read["srcKind"], read["dstKind"]
        name = copy_names(*copied, MEMORY)
    else:
        name = memset_names(read["memoryKind"], MEMORY)
    ints = {**_placed(read), "bytes": natural(read["bytes"])}
    texts = {"kind": constant(kind, len(name)), "name": name}
    if kind == "kernel":
        texts["launch_config"] = launch_configs(read, LAUNCH_COLUMNS, cupti_launch_config)
    return Batch(ints, texts)


def _placed(read: Mapping[str, Ints]) -> dict[str, Ints]:
    # omit the pid, because a file has only one process
    return {
        "start_ns": read["start"],
        "end_ns": read["end"],
        "device": natural(read["deviceId"]),
        "stream": natural(read["streamId"]),
        "correlation_id": positive(read["correlationId"]),
    }


def _synchronizations(database: Database) -> Iterator[Batch]:
    """Yield the host's waits for a device; the wait's CUDA context gives the device."""
    table = f"{_KIND}SYNCHRONIZATION"
    if table not in database.columns:
        return
    read = database.ints(table, *_EVENT_COLUMNS, "contextId", "type")
    contexts: dict[int, int] = {}
    if f"{_KIND}CONTEXT" in database.columns:
        listed = database.ints(f"{_KIND}CONTEXT", "contextId", "deviceId")
        contexts.update(zip(*(ids.tolist() for ids in listed.values()), strict=True))
    ints = _placed({**read, "deviceId": looked_up(read["contextId"], contexts)})
    name = sync_names(read["type"])
    yield Batch(ints, {"kind": constant("device_sync", len(name)), "name": name})


def _calls(database: Database) -> Iterator[Batch]:
    """Yield CUDA runtime and driver calls, named by their numbers (``cbid``)."""
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


def _call_name(table: str, names: Mapping[int, str], number: int) -> str:
    unknown = f"CUDA {table.lower()} call" + (f" {number}" if number >= 0 else "")
    return names.get(number, unknown)


def _overheads(database: Database) -> Iterator[Batch]:
    """Yield overheads of the profiler and of CUDA itself."""
    table = f"{_KIND}OVERHEAD"
    if table not in database.columns:
        return
    read = database.ints(table, "start", "end", "overheadKind")
    kind_names = {kind: name for kind, (name, _) in OVERHEADS.items()}
    kinds = {n: "overhead" if overhead else "runtime" for n, (_, overhead) in OVERHEADS.items()}
    yield Batch(
        _threaded(read, *_objects(database, table, len(read["start"]))),
        {
            "kind": named(read["overheadKind"], lambda key: kinds.get(key, "overhead")),
            "name": named(read["overheadKind"], lambda key: kind_names.get(key, "Unknown")),
        },
    )


def _ranges(database: Database, strings: Mapping[int, str]) -> list[Batch]:
    """Join start and end markers of equal id to ranges; a missing end is ``UNKNOWN``."""
    table = f"{_KIND}MARKER"
    if table not in database.columns:
        return []
    read = database.ints(table, "flags", "timestamp", "id", "name")
    timed = (read["flags"] >= 0) & (read["timestamp"] != UNKNOWN)
    starts = np.flatnonzero(timed & (read["flags"] & _STARTS > 0))
    ends = np.flatnonzero(timed & (read["flags"] & _ENDS > 0))
    end_ns = np.full(len(starts), UNKNOWN)
    if len(ends):
        ends = ends[np.argsort(read["id"][ends], kind="stable")]
        ids = read["id"][ends]
        place = np.minimum(np.searchsorted(ids, read["id"][starts]), len(ids) - 1)
        hit = ids[place] == read["id"][starts]
        end_ns[hit] = read["timestamp"][ends][place[hit]]
    times = {"start": read["timestamp"][starts], "end": end_ns}
    pid, tid = (values[starts] for values in _objects(database, table, len(read["flags"])))
    text = named(read["name"][starts], lambda key: strings.get(key, _UNNAMED))
    # make an op of a range that ``emit_nvtx`` wrote for an op, else a range or a step
    return [nvtx_ranges(_threaded(times, pid, tid), text.cast(pa.string()))]


def _objects(database: Database, table: str, length: int) -> tuple[Ints, Ints]:
    """Split each ``objectId`` (two little-endian uint32) into pid and tid."""
    if "objectId" not in database.columns[table]:
        return np.zeros(length, np.int64), np.zeros(length, np.int64)
    blobs = [b if b and len(b) >= 8 else bytes(8) for b in database.blobs(table, "objectId")]
    words = np.frombuffer(b"".join(b[:8] for b in blobs), "<u4").astype(np.int64).reshape(-1, 2)
    return words[:, 0], words[:, 1]


def _threaded(read: Mapping[str, Ints], pid: Ints, tid: Ints) -> dict[str, Ints]:
    return {
        "start_ns": read["start"],
        "end_ns": read["end"],
        "pid": positive(pid),
        # keep the lower 32 bits of a pthread_t, so that a signed id is not negative
        "tid": np.where(tid == UNKNOWN, UNKNOWN, positive(tid & _UINT32)),
    }
