"""Nsight Systems: the SQLite database that ``nsys export --type sqlite`` writes.

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
- Each table may lack, or lack columns:
  https://docs.nvidia.com/nsight-systems/UserGuide/index.html#sqlite-schema-reference
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lstmprof.errors import ProfileError, one_line
from lstmprof.events import DeviceFacts, Profile
from lstmprof.events.counters import Collected
from lstmprof.formats import rows
from lstmprof.formats.cuda import sqlite
from lstmprof.formats.cuda.events import (
    OF_LAUNCH,
    Batch,
    CudaEvents,
    constant,
    device_facts,
    gathered,
    launch_configs,
    named,
    natural,
    positive,
)
from lstmprof.formats.cuda.gpu_metrics import add_gpu_metrics
from lstmprof.formats.cuda.memory import add_memory
from lstmprof.formats.cuda.names import (
    NSYS_MEMORY,
    OVERHEADS,
    call_name,
    copy_names,
    memset_names,
    nvtx_ranges,
    sync_names,
)
from lstmprof.formats.cuda.tables import UNKNOWN, Ints, Tables
from lstmprof.formats.raw_file import RawFile

_Of = TypeVar("_Of")

_NEXT_STEP = "profile with nsys profile --trace=cuda,nvtx"
_META_DATA = ("META_DATA_EXPORT", "EXPORT_META_DATA")
_OWN = (*_META_DATA, "StringIds", "NVTX_EVENTS")
_CUPTI = "CUPTI_ACTIVITY_KIND_"
_KNOWN = (*_OWN, f"{_CUPTI}KERNEL", f"{_CUPTI}RUNTIME", "StringTable")
_VERSIONS = {
    "EXPORT_PRODUCT_NAME": "product",
    "EXPORT_PRODUCT_VERSION": "product_version",
    "EXPORT_SCHEMA_VERSION": "schema_version",
}
#: ENUM_DIAGNOSTIC_SEVERITY_LEVEL: warnings and errors.
_SERIOUS = (2, 3)
_ABOUT_CUDA = ("CUDA", "CUPTI", "NVTX")
_MAX_COMPLAINTS = 3
_GPUS, _DEVICES = "TARGET_INFO_GPU", "TARGET_INFO_CUDA_DEVICE"
_OF_GPU = ("computeMajor", "computeMinor", "smCount", "threadsPerWarp")
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


def is_own_table(name: str) -> bool:
    """Whether Nsight Systems calls a table so; nvprof may, too."""
    return name in _OWN or name.startswith(_CUPTI)


def recognises(raw: RawFile) -> bool:
    """Whether ``raw`` is an SQLite database with tables of Nsight Systems, not of nvprof."""
    tables = sqlite.names(raw, _KNOWN)
    return any(map(is_own_table, tables)) and "StringTable" not in tables


def read(raw: RawFile) -> Profile:
    """The profile in an export of Nsight Systems.

    Raises:
        ProfileError: it is damaged, or holds neither a CUDA call or activity nor an NVTX range.
    """
    with sqlite.opened(raw) as database:
        return profile(raw.path, database)


def profile(path: Path | str, database: Tables) -> Profile:
    """The profile in the tables of an export at ``path``.

    Raises:
        ProfileError: they hold neither a CUDA call or activity nor an NVTX range.
    """
    devices = _devices(database)
    recorded = _events(database, devices)
    complaints = _complaints(database)
    graphs = _whole_graphs(database)
    started_ns = _started_ns(database)
    counted = Collected()
    odd = add_memory(database, devices.renumbered, counted)
    unplaced = add_gpu_metrics(database, devices.of_gpus, counted)
    origin_ns = recorded.origin_ns
    if origin_ns is None or recorded.columns is None:
        why = f" ({complaints[0]})" if complaints else ""
        raise ProfileError(
            path, f"the capture holds no CUDA call and no NVTX range{why}", _NEXT_STEP
        )
    return Profile(
        format="nsys",
        base_ns=None if started_ns is None else rows.positive(started_ns + origin_ns),
        events=rows.moved(recorded.columns, origin_ns),
        device_names=devices.names,
        device_facts=devices.facts,
        accelerators=tuple(dict.fromkeys(devices.names.values())),
        gpu_complaint=next(iter(complaints), None) if not recorded.activities else None,
        notes=(
            *recorded.notes(),
            *_missing(recorded, graphs, complaints),
            *_without_size(odd),
            *_without_place(unplaced),
        ),
        metadata=_metadata(database),
        counters=counted.counters().shifted(-origin_ns),
    )


def _events(database: Tables, devices: _Devices) -> CudaEvents:
    strings = database.strings("StringIds", "id", "value")
    contexts = _Contexts()
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


def _missing(recorded: CudaEvents, graphs: int, complaints: list[str]) -> Iterator[str]:
    """What the profiler complained of where it recorded no activity, and graphs it did not open."""
    if not recorded.activities:
        yield from (f"the profiler logged: {line}" for line in complaints[1:])
    if graphs:
        yield (
            f"{graphs} CUDA graphs were recorded whole, not kernel by kernel: add"
            " --cuda-graph-trace=node"
        )


def _without_size(allocations: int) -> Iterator[str]:
    if allocations:
        yield f"{allocations} allocations or frees were left out: they have no time, size or kind"


def _without_place(values: int) -> Iterator[str]:
    if values:
        yield (
            f"{values} values of GPU metrics were left out: they have no name, time or number, or"
            " are of a GPU that the program does not use"
        )


def _started_ns(database: Tables) -> int | None:
    """When the session began, since 1970: what times are counted from."""
    table = "TARGET_INFO_SESSION_START_TIME"
    if table not in database.columns:
        return None
    started = database.ints(table, "utcEpochNs")["utcEpochNs"].tolist()
    return rows.positive(started[0]) if started else None


def _complaints(database: Tables) -> list[str]:
    """The first of the profiler's warnings and errors about CUDA and NVTX."""
    table = "DIAGNOSTIC_EVENT"
    if table not in database.columns:
        return []
    severity = database.ints(table, "severity")["severity"].tolist()
    texts = [one_line(text or "")[:200] for text in database.texts(table, "text")]
    messages = [text for level, text in zip(severity, texts, strict=False) if level in _SERIOUS]
    about = [text for text in messages if any(word in text for word in _ABOUT_CUDA)]
    return list(dict.fromkeys(about))[:_MAX_COMPLAINTS]


def _metadata(database: Tables) -> dict[str, Any]:
    """The version of Nsight Systems and of the export's schema, where they are written."""
    for table in _META_DATA:
        if {"name", "value"} <= database.columns.get(table, frozenset()):
            names, values = database.texts(table, "name"), database.texts(table, "value")
            written = dict(zip(names, values, strict=True))
            return {key: written[name] for name, key in _VERSIONS.items() if written.get(name)}
    return {}


@dataclass(frozen=True)
class _Devices:
    """``names`` and ``facts`` by device number; ``gpus`` are numbers by (pid, deviceId), or none.

    ``of_gpus`` are device numbers by those that Nsight Systems gives the GPUs. There are ``gpus``
    where the two differ. ``deviceId`` is what CUDA calls the device in its process;
    with CUDA_VISIBLE_DEVICES two processes may call two GPUs 0. ``TARGET_INFO_CUDA_DEVICE`` (since
    2024) says which GPU is meant.
    """

    names: Mapping[int, str]
    facts: Mapping[int, DeviceFacts]
    gpus: Mapping[tuple[int, int], int]
    of_gpus: Mapping[int, int]

    def renumbered(self, batch: Batch) -> Batch:
        """``batch`` with the numbers of ``gpus``."""
        if not self.gpus:
            return batch
        pid, device = batch.ints["pid"], batch.ints["device"]
        pairs, codes = np.unique(np.stack([pid, device]), axis=1, return_inverse=True)
        renamed = np.array([self.gpus.get((p, d), d) for p, d in pairs.T.tolist()], np.int64)
        return batch.with_ints(device=natural(renamed)[codes.reshape(-1)])


def _devices(database: Tables) -> _Devices:
    """The devices of an export, without names where it has none."""
    listed = database.strings(_GPUS, "id", "name")
    gpu_names = {number: name for number, name in listed.items() if number >= 0}
    facts = device_facts(database, _GPUS, _OF_GPU)
    if _DEVICES not in database.columns:
        ordinals = _ordinals(database)
        return _placed_once(ordinals, gpu_names, facts)
    read = database.ints(_DEVICES, "gpuId", "cudaId", "pid")
    gpu, cuda, pid = (read[name].tolist() for name in ("gpuId", "cudaId", "pid"))
    meant = dict(zip(cuda, gpu, strict=True))
    if all(meant[c] == g for c, g in zip(cuda, gpu, strict=True)):
        return _placed_once(meant, gpu_names, facts)
    gpus = dict(zip(zip(pid, cuda, strict=True), gpu, strict=True))
    return _Devices(gpu_names, facts, gpus, {number: number for number in gpus.values()})


def _placed_once(
    gpus: Mapping[int, int], names: Mapping[int, str], facts: Mapping[int, DeviceFacts]
) -> _Devices:
    """The devices of which each number is of one of the ``gpus``."""
    of_gpus = {gpu: number for number, gpu in gpus.items() if number >= 0}
    return _Devices(_by_number(gpus, names), _by_number(gpus, facts), {}, of_gpus)


def _by_number(gpus: Mapping[int, int], of_gpus: Mapping[int, _Of]) -> dict[int, _Of]:
    return {n: of_gpus[gpu] for n, gpu in gpus.items() if gpu in of_gpus and n >= 0}


def _ordinals(database: Tables) -> dict[int, int]:
    """Nsight's number of each GPU by CUDA's, where the table has it, else by itself."""
    if _GPUS not in database.columns:
        return {}
    read = database.ints(_GPUS, "id", "cuDevice")
    numbers = np.where(read["cuDevice"] == UNKNOWN, read["id"], read["cuDevice"])
    return dict(zip(numbers.tolist(), read["id"].tolist(), strict=True))


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


class _Contexts:
    """The device on which each context has its activities."""

    def __init__(self) -> None:
        self._devices: dict[int, int] = {}

    def noted(self, busy: Batch) -> Batch:
        """``busy``, whose contexts are known from now on."""
        contexts, first = np.unique(_context_key(busy.ints), return_index=True)
        devices = busy.ints["device"][first].tolist()
        for context, device in zip(contexts.tolist(), devices, strict=True):
            self._devices.setdefault(context, device)
        return busy

    def devices(self, ints: Mapping[str, Ints]) -> Ints:
        """The device of each event's context, where it is known, else its own."""
        contexts, codes = np.unique(_context_key(ints), return_inverse=True)
        is_known = np.array([context in self._devices for context in contexts.tolist()], bool)
        devices = np.array([self._devices.get(c, UNKNOWN) for c in contexts.tolist()], np.int64)
        return np.where(is_known[codes], devices[codes], ints["device"])


def _synchronizations(database: Tables, contexts: _Contexts) -> Iterator[Batch]:
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


def _context_key(ints: Mapping[str, Ints]) -> Ints:
    return np.where(ints["pid"] > 0, ints["pid"], 0) << 32 | natural(ints["context"]) & 0xFFFFFFFF


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


def _whole_graphs(database: Tables) -> int:
    """How many runs of a CUDA graph were recorded as one activity each."""
    return len(database.ints(_GRAPHS, "start")["start"]) if _GRAPHS in database.columns else 0
