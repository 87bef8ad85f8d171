"""The tables of an Nsight Systems export, as batches of events; each may lack, or lack columns.

https://docs.nvidia.com/nsight-systems/UserGuide/index.html#sqlite-schema-reference
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lstmprof.formats.cuda import cupti
from lstmprof.formats.cuda.columns import Batch, constant, described, named, natural, positive
from lstmprof.formats.cuda.sqlite import UNKNOWN, Database, Ints

GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_ACTIVITIES = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "kernel",
    GRAPHS: "kernel",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "memcpy",
    "CUPTI_ACTIVITY_KIND_MEMSET": "memset",
}
_SYNCS = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
_CALLS = ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER")
_OVERHEADS = ("CUPTI_ACTIVITY_KIND_OVERHEAD", "PROFILER_OVERHEAD")
#: In order of preference: the whole signature, the bare name, the linker's.
_KERNEL_NAMES = ("demangledName", "shortName", "mangledName")
_PLACE = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid")
#: Overheads that CUDA has without a profiler too (``(CUDA)`` in ENUM_CUPTI_OVERHEAD_TYPE).
_OF_CUDA = frozenset(name for name, is_profilers in cupti.OVERHEADS.values() if not is_profilers)
_RANGE_TYPES = frozenset(
    ("NvtxPushPopRange", "NvtxStartEndRange", "NvtxtPushPopRange", "NvtxtStartEndRange")
)
_USUAL_RANGE_TYPES = (59, 60, 70, 71)
_UNNAMED = "unnamed"


def activities(database: Database, strings: Mapping[int, str]) -> list[Batch]:
    """Kernels, whole CUDA graphs, copies and memsets."""
    found = [name for name in _ACTIVITIES if name in database.columns]
    return [_activity(database, table, strings) for table in found]


def _activity(database: Database, table: str, strings: Mapping[int, str]) -> Batch:
    kind = _ACTIVITIES[table]
    more = {
        "kernel": ("graphNodeId", "graphId", *_KERNEL_NAMES),
        "memcpy": ("graphNodeId", "bytes", "copyKind", "srcKind", "dstKind"),
        "memset": ("graphNodeId", "bytes", "memKind"),
    }[kind]
    read = database.ints(table, *_PLACE, *more)
    if table == GRAPHS:
        name = named(read["graphId"], lambda n: f"CUDA graph {n}" if n >= 0 else "CUDA graph")
    elif kind == "kernel":
        name = _first_known([read[column] for column in _KERNEL_NAMES], strings)
    elif kind == "memcpy":
        kinds = read["copyKind"], read["srcKind"], read["dstKind"]
        name = cupti.copy_names(*kinds, cupti.NSYS_MEMORY)
    else:
        name = cupti.memset_names(read["memKind"], cupti.NSYS_MEMORY)
    node = {} if table == GRAPHS else {"graph_node_id": positive(read["graphNodeId"])}
    moved = {"bytes": natural(read["bytes"])} if "bytes" in read else {}
    ints = {**_placed(read), **node, **moved}
    return Batch(ints, {"kind": constant(kind, len(read["start"])), "name": name})


def _placed(read: Mapping[str, Ints]) -> dict[str, Ints]:
    pid = read["globalPid"]
    return {
        "start_ns": read["start"],
        "end_ns": read["end"],
        "device": natural(read["deviceId"]),
        "stream": natural(read["streamId"]),
        "correlation_id": positive(read["correlationId"]),
        "pid": np.where(pid == UNKNOWN, UNKNOWN, positive(pid >> 24 & 0xFFFFFF)),
        "context": read["contextId"],
    }


def _first_known(columns: list[Ints], strings: Mapping[int, str]) -> pa.DictionaryArray:
    """The text of each row's first column that has one."""
    chosen = columns[-1]
    for column in reversed(columns[:-1]):
        chosen = np.where(np.isin(column, np.array(list(strings), np.int64)), column, chosen)
    return named(chosen, lambda key: strings.get(key, _UNNAMED))


def synchronizations(database: Database, busy: list[Batch]) -> list[Batch]:
    """Waits on a device, of the device on which their context has its activities in ``busy``.

    The second process of a report writes its own device 1 as 0 here (seen in 2026.2).
    """
    if _SYNCS not in database.columns:
        return []
    read = database.ints(_SYNCS, *_PLACE, "syncType")
    ints = _placed(read)
    keys = [np.empty(0, np.int64), *(_context_key(batch.ints) for batch in busy)]
    contexts, first = np.unique(np.concatenate(keys), return_index=True)
    if len(contexts):
        devices = np.concatenate([batch.ints["device"] for batch in busy])[first]
        found = np.minimum(np.searchsorted(contexts, _context_key(ints)), len(contexts) - 1)
        known = contexts[found] == _context_key(ints)
        ints["device"] = np.where(known, devices[found], ints["device"])
    kind = constant("device_sync", len(read["start"]))
    return [Batch(ints, {"kind": kind, "name": cupti.sync_names(read["syncType"])})]


def _context_key(ints: Mapping[str, Ints]) -> Ints:
    return np.where(ints["pid"] > 0, ints["pid"], 0) << 32 | natural(ints["context"]) & 0xFFFFFFFF


def calls(database: Database, strings: Mapping[int, str]) -> Iterator[Batch]:
    """Calls of the CUDA runtime and driver."""
    for table in _CALLS:
        if table in database.columns:
            read = database.ints(table, "start", "end", "globalTid", "correlationId", "nameId")
            name = named(
                read["nameId"], lambda key: cupti.call_name(strings.get(key, "unnamed CUDA call"))
            )
            ints = {**_threaded(read), "correlation_id": positive(read["correlationId"])}
            yield Batch(ints, {"kind": constant("runtime", len(name)), "name": name})


def overheads(database: Database, strings: Mapping[int, str]) -> Iterator[Batch]:
    """The profiler's own work; what CUDA does by itself (a full command buffer) is a call's."""
    for table in _OVERHEADS:
        if table in database.columns:
            read = database.ints(table, "start", "end", "globalTid", "nameId")
            kind = named(
                read["nameId"],
                lambda key: "runtime" if strings.get(key) in _OF_CUDA else "overhead",
            )
            name = named(read["nameId"], lambda key: strings.get(key, _UNNAMED))
            yield Batch(_threaded(read), {"kind": kind, "name": name})


def ranges(database: Database, strings: Mapping[int, str]) -> list[Batch]:
    """NVTX ranges; one that was open when the capture ended has ``UNKNOWN`` for its end."""
    if "NVTX_EVENTS" not in database.columns:
        return []
    read = database.ints("NVTX_EVENTS", "start", "end", "globalTid", "eventType", "textId")
    text = named(read["textId"], strings.get).cast(pa.string())
    if "text" in database.columns["NVTX_EVENTS"]:
        text = pc.coalesce(database.text_array("NVTX_EVENTS", "text"), text)
    text = text.fill_null(_UNNAMED)
    has_end = read["end"] != UNKNOWN
    type_ = read["eventType"]
    wanted = np.where(type_ == UNKNOWN, has_end, np.isin(type_, _range_types(database)))
    return [described(_threaded(read), text).only(wanted & (read["start"] != UNKNOWN))]


def _range_types(database: Database) -> list[int]:
    listed = database.strings("ENUM_NSYS_EVENT_TYPE", "id", "name")
    found = [number for number, name in listed.items() if name in _RANGE_TYPES]
    return found or list(_USUAL_RANGE_TYPES)


def _threaded(read: Mapping[str, Ints]) -> dict[str, Ints]:
    """Times, pid and tid; ``globalTid`` holds machine, process and thread in 16, 24 and 24 bits."""
    thread = read["globalTid"]
    known = thread != UNKNOWN
    return {
        "start_ns": read["start"],
        "end_ns": read["end"],
        "pid": np.where(known, positive(thread >> 24 & 0xFFFFFF), UNKNOWN),
        "tid": np.where(known, thread & 0xFFFFFF, UNKNOWN),
    }


def whole_graphs(database: Database) -> int:
    """How many runs of a CUDA graph were recorded as one activity each."""
    return len(database.ints(GRAPHS, "start")["start"]) if GRAPHS in database.columns else 0
