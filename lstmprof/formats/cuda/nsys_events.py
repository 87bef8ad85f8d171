"""The events in the tables of an export of Nsight Systems.

To know when reading the events:

- ``correlation_id`` is unique within a process only: activities have their ``pid``, and a launch is
  the call of the same pid and correlation id.
- A ``range`` is an NVTX range, an ``op`` one that ``emit_nvtx`` wrote, with its id as
  ``external_id``; a ``step`` is a range called ``step`` or ``ProfilerStep#N``.
- A CUDA graph that was traced whole (``--cuda-graph-trace=graph``, the default) is one ``kernel``.
- Overheads are the profiler's only. What CUDA does without it too (a full command buffer, lazy
  loading) is a ``runtime`` event inside the call that waited for it.
- Calls of operating system libraries (``OSRT_API``) are left out: inside a CUDA call they are
  how it waits, and would hide from the ledger that the thread was in that call; elsewhere a
  blocked thread is ``host`` or ``python`` without them too.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lstmprof.formats.cuda.events import (
    OF_LAUNCH,
    Batch,
    CudaEvents,
    constant,
    gathered,
    launch_configs,
    named,
    natural,
    positive,
)
from lstmprof.formats.cuda.names import (
    NSYS_MEMORY,
    OVERHEADS,
    call_name,
    copy_names,
    memset_names,
    nvtx_ranges,
    sync_names,
)
from lstmprof.formats.cuda.nsys_devices import Contexts, Devices
from lstmprof.formats.cuda.tables import UNKNOWN, Ints, Tables

_KERNELS, _GRAPHS = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_ACTIVITIES = {
    _KERNELS: "kernel",
    _GRAPHS: "kernel",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "memcpy",
    "CUPTI_ACTIVITY_KIND_MEMSET": "memset",
}
_SYNCS = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
_CALLS = ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER")
_OVERHEADS = ("CUPTI_ACTIVITY_KIND_OVERHEAD", "PROFILER_OVERHEAD")
_RANGES, _OF_RANGE = "NVTX_EVENTS", ("start", "end", "eventType")
#: In order of preference: the whole signature, the bare name, the linker's.
_KERNEL_NAMES = ("demangledName", "shortName", "mangledName")
_OF_KIND = {
    "kernel": ("graphNodeId", "graphId", *_KERNEL_NAMES, *OF_LAUNCH),
    "memcpy": ("graphNodeId", "bytes", "copyKind", "srcKind", "dstKind"),
    "memset": ("graphNodeId", "bytes", "memKind"),
}
_PLACE = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid")
#: Overheads that CUDA has without a profiler too (``(CUDA)`` in ENUM_CUPTI_OVERHEAD_TYPE).
_OF_CUDA = frozenset(name for name, is_profilers in OVERHEADS.values() if not is_profilers)
_RANGE_TYPES = frozenset(
    ("NvtxPushPopRange", "NvtxStartEndRange", "NvtxtPushPopRange", "NvtxtStartEndRange")
)
_USUAL_RANGE_TYPES = (59, 60, 70, 71)
_UNNAMED = "unnamed"


def events_of(database: Tables, devices: Devices) -> CudaEvents:
    """Every event of an export, on the devices that its numbers mean."""
    strings = database.strings("StringIds", "id", "value")
    contexts = Contexts()
    busy = map(contexts.noted, _activities(database, strings))
    return gathered(
        busy=map(devices.renumbered, busy),
        calls=_calls(database, strings),
        ranges=_ranges(database, strings),
        others=itertools.chain(
            map(devices.renumbered, _synchronizations(database, contexts)),
            _overheads(database, strings),
        ),
        last_times=lambda: itertools.chain(
            _range_times(database),
            _synchronizations(database, contexts),
            _overheads(database, strings),
        ),
    )


def _activities(database: Tables, strings: Mapping[int, str]) -> Iterator[Batch]:
    """Kernels, whole CUDA graphs, copies and memsets."""
    known = np.array(list(strings), np.int64)
    for table, kind in _ACTIVITIES.items():
        if table in database.columns:
            for read in database.int_chunks(table, *_PLACE, *_OF_KIND[kind]):
                yield _activity(read, table, _first_present(read, known), strings)


def _activity(
    read: Mapping[str, Ints], table: str, name_ids: Ints, strings: Mapping[int, str]
) -> Batch:
    kind = _ACTIVITIES[table]
    if table == _GRAPHS:
        name = named(read["graphId"], lambda n: f"CUDA graph {n}" if n >= 0 else "CUDA graph")
    elif kind == "kernel":
        name = named(name_ids, lambda key: strings.get(key, _UNNAMED))
    elif kind == "memcpy":
        kinds = read["copyKind"], read["srcKind"], read["dstKind"]
        name = copy_names(*kinds, NSYS_MEMORY)
    else:
        name = memset_names(read["memKind"], NSYS_MEMORY)
    node = {} if table == _GRAPHS else {"graph_node_id": positive(read["graphNodeId"])}
    moved = {"bytes": natural(read["bytes"])} if "bytes" in read else {}
    ints = {**_placed(read), **node, **moved}
    texts = {"kind": constant(kind, len(read["start"])), "name": name}
    if table == _KERNELS:
        texts["launch_config"] = launch_configs(read)
    return Batch(ints, texts)


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


def _first_present(read: Mapping[str, Ints], known: Ints) -> Ints:
    """The number of each kernel's first name that is among the ``known`` texts."""
    columns = [read[column] for column in _KERNEL_NAMES if column in read]
    chosen = columns.pop() if columns else read["start"]
    for column in reversed(columns):
        chosen = np.where(np.isin(column, known), column, chosen)
    return chosen


def _synchronizations(database: Tables, contexts: Contexts) -> Iterator[Batch]:
    """Waits on a device, of the device on which their context has its activities.

    The second process of a report writes its own device 1 as 0 here (seen in 2026.2).
    """
    if _SYNCS not in database.columns:
        return
    for read in database.int_chunks(_SYNCS, *_PLACE, "syncType"):
        ints = _placed(read)
        ints["device"] = contexts.devices(ints)
        kind = constant("device_sync", len(read["start"]))
        yield Batch(ints, {"kind": kind, "name": sync_names(read["syncType"])})


def _calls(database: Tables, strings: Mapping[int, str]) -> Iterator[Batch]:
    """Calls of the CUDA runtime and driver."""
    columns = ("start", "end", "globalTid", "correlationId", "nameId")
    for table in _CALLS:
        for read in database.int_chunks(table, *columns) if table in database.columns else ():
            name = named(
                read["nameId"], lambda key: call_name(strings.get(key, "unnamed CUDA call"))
            )
            ints = {**_threaded(read), "correlation_id": positive(read["correlationId"])}
            yield Batch(ints, {"kind": constant("runtime", len(name)), "name": name})


def _overheads(database: Tables, strings: Mapping[int, str]) -> Iterator[Batch]:
    """The profiler's own work; what CUDA does by itself (a full command buffer) is a call's."""
    columns = ("start", "end", "globalTid", "nameId")
    for table in _OVERHEADS:
        for read in database.int_chunks(table, *columns) if table in database.columns else ():
            kind = named(
                read["nameId"],
                lambda key: "runtime" if strings.get(key) in _OF_CUDA else "overhead",
            )
            name = named(read["nameId"], lambda key: strings.get(key, _UNNAMED))
            yield Batch(_threaded(read), {"kind": kind, "name": name})


def _ranges(database: Tables, strings: Mapping[int, str]) -> Iterator[Batch]:
    """NVTX ranges; one that was open when the capture ended has ``UNKNOWN`` for its end."""
    if _RANGES not in database.columns:
        return
    types = _range_types(database)
    own_texts = database.text_chunks(_RANGES, "text")
    for read in database.int_chunks(_RANGES, *_OF_RANGE, "globalTid", "textId"):
        text = named(read["textId"], strings.get).cast(pa.string())
        if "text" in database.columns[_RANGES]:
            text = pc.coalesce(next(own_texts), text)
        text = text.fill_null(_UNNAMED)
        yield nvtx_ranges(_threaded(read), text).only(_is_range(read, types))


def _range_times(database: Tables) -> Iterator[Batch]:
    """When NVTX ranges begin and end."""
    if _RANGES in database.columns:
        types = _range_types(database)
        for read in database.int_chunks(_RANGES, *_OF_RANGE):
            times = {"start_ns": read["start"], "end_ns": read["end"]}
            yield Batch(times, {}).only(_is_range(read, types))


def _is_range(read: Mapping[str, Ints], types: list[int]) -> np.ndarray:
    """Which events are ranges, by their type where they have one, else by their end."""
    type_ = read["eventType"]
    of_type = np.where(type_ == UNKNOWN, read["end"] != UNKNOWN, np.isin(type_, types))
    return np.asarray(of_type & (read["start"] != UNKNOWN), dtype=np.bool_)


def _range_types(database: Tables) -> list[int]:
    listed = database.strings("ENUM_NSYS_EVENT_TYPE", "id", "name")
    types = [number for number, name in listed.items() if name in _RANGE_TYPES]
    return types or list(_USUAL_RANGE_TYPES)


def _threaded(read: Mapping[str, Ints]) -> dict[str, Ints]:
    """Times, pid and tid; ``globalTid`` holds machine, process and thread in 16, 24 and 24 bits."""
    thread = read["globalTid"]
    has_thread = thread != UNKNOWN
    return {
        "start_ns": read["start"],
        "end_ns": read["end"],
        "pid": np.where(has_thread, positive(thread >> 24 & 0xFFFFFF), UNKNOWN),
        "tid": np.where(has_thread, thread & 0xFFFFFF, UNKNOWN),
    }


def whole_graphs(database: Tables) -> int:
    """How many runs of a CUDA graph were recorded as one activity each."""
    return len(database.ints(_GRAPHS, "start")["start"]) if _GRAPHS in database.columns else 0
