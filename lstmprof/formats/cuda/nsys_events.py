"""Read the events of an Nsight Systems export, and find the GPU of each device number."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lstmprof.events import DeviceFacts
from lstmprof.events.annotate.calls import is_launch
from lstmprof.events.groups import Groups
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
    NSYS_MEMORY,
    OVERHEADS,
    call_name,
    copy_names,
    memset_names,
    nvtx_ranges,
    sync_names,
)

_Value = TypeVar("_Value")

_GPUS, _DEVICES = "TARGET_INFO_GPU", "TARGET_INFO_CUDA_DEVICE"
_GPU_COLUMNS = ("computeMajor", "computeMinor", "smCount", "threadsPerWarp")


@dataclass(frozen=True)
class Devices:
    """The GPUs of an export by device number."""

    names: Mapping[int, str]
    facts: Mapping[int, DeviceFacts]
    # (pid, CUDA's device number) -> device number; empty if all processes number GPUs alike
    gpus: Mapping[tuple[int, int], int]
    by_gpu: Mapping[int, int]  # Nsight's GPU number -> device number

    def renumbered(self, batch: Batch) -> Batch:
        """Give each GPU the same number in all processes."""
        if not self.gpus:
            return batch
        pid, device = batch.ints["pid"], batch.ints["device"]
        pairs, codes = np.unique(np.stack([pid, device]), axis=1, return_inverse=True)
        renamed = np.array([self.gpus.get((p, d), d) for p, d in pairs.T.tolist()], np.int64)
        return batch.with_ints(device=natural(renamed)[codes.reshape(-1)])


def devices_of(database: Database) -> Devices:
    """Return the GPUs that an Nsight Systems export lists."""
    listed = database.strings(_GPUS, "id", "name")
    gpu_names = {number: name for number, name in listed.items() if number >= 0}
    facts = device_facts(database, _GPUS, _GPU_COLUMNS)
    if _DEVICES not in database.columns:
        ordinals = _ordinals(database)
        return _placed_once(ordinals, gpu_names, facts)
    read = database.ints(_DEVICES, "gpuId", "cudaId", "pid")
    gpu, cuda, pid = (read[name].tolist() for name in ("gpuId", "cudaId", "pid"))
    gpu_of = dict(zip(cuda, gpu, strict=True))
    if all(gpu_of[c] == g for c, g in zip(cuda, gpu, strict=True)):
        return _placed_once(gpu_of, gpu_names, facts)
    gpus = dict(zip(zip(pid, cuda, strict=True), gpu, strict=True))
    return Devices(gpu_names, facts, gpus, {number: number for number in gpus.values()})


def _placed_once(
    gpus: Mapping[int, int], names: Mapping[int, str], facts: Mapping[int, DeviceFacts]
) -> Devices:
    """Make ``Devices`` for processes that all number the GPUs alike."""
    by_gpu = {gpu: number for number, gpu in gpus.items() if number >= 0}
    return Devices(_by_number(gpus, names), _by_number(gpus, facts), {}, by_gpu)


def _by_number(gpus: Mapping[int, int], by_gpu: Mapping[int, _Value]) -> dict[int, _Value]:
    return {n: by_gpu[gpu] for n, gpu in gpus.items() if gpu in by_gpu and n >= 0}


def _ordinals(database: Database) -> dict[int, int]:
    """Return {CUDA's device number: Nsight's GPU number}."""
    if _GPUS not in database.columns:
        return {}
    read = database.ints(_GPUS, "id", "cuDevice")
    numbers = np.where(read["cuDevice"] == UNKNOWN, read["id"], read["cuDevice"])
    return dict(zip(numbers.tolist(), read["id"].tolist(), strict=True))


class Contexts:
    """Finds the device of each CUDA context by its kernels and copies."""

    def __init__(self) -> None:
        self._devices: dict[int, int] = {}

    def noted(self, busy: Batch) -> Batch:
        """Store the device of each activity's CUDA context; return the batch unchanged."""
        contexts, first = np.unique(_context_key(busy.ints), return_index=True)
        devices = busy.ints["device"][first].tolist()
        for context, device in zip(contexts.tolist(), devices, strict=True):
            self._devices.setdefault(context, device)
        return busy

    def devices(self, ints: Mapping[str, Ints]) -> Ints:
        """Return the device of each event's CUDA context, or else the event's own device."""
        keys = _context_key(ints)
        learned = looked_up(keys, dict.fromkeys(self._devices, 1)) == 1
        return np.where(learned, looked_up(keys, self._devices), ints["device"])


def _context_key(ints: Mapping[str, Ints]) -> Ints:
    return np.where(ints["pid"] > 0, ints["pid"], 0) << 32 | natural(ints["context"]) & 0xFFFFFFFF


_NODES = "CUDA_GRAPH_NODE_EVENTS"


class GraphNodes:
    """Finds the launch that created each node of a CUDA graph."""

    def __init__(self, database: Database) -> None:
        self._originals: dict[tuple[int, int], int] = {}
        self._made: dict[tuple[int, int], tuple[Ints, Ints]] = {}
        if _NODES not in database.columns:
            return
        read = database.ints(
            _NODES, "start", "end", "globalTid", "graphNodeId", "originalGraphNodeId"
        )
        node, original = positive(read["graphNodeId"]), positive(read["originalGraphNodeId"])
        placed = _threaded(read)
        # find cloned graph nodes, because kernels have the ids of clones
        # Source: TensorRT-LLM, layer_wise_benchmarks/parse.py
        is_clone = (node != UNKNOWN) & (original != UNKNOWN)
        clones = zip(placed["pid"][is_clone].tolist(), node[is_clone].tolist(), strict=True)
        self._originals = dict(zip(clones, original[is_clone].tolist(), strict=True))
        made = np.flatnonzero((node != UNKNOWN) & ~is_clone & (read["globalTid"] != UNKNOWN))
        made = made[np.argsort(read["start"][made], kind="stable")]
        for thread, own in _by_thread(placed, made):
            self._made[thread] = read["start"][own], node[own]

    def captured(self, calls: Batch) -> Batch:
        """Add ``graph_node_id`` to each launch that created exactly one CUDA graph node."""
        if not self._made:
            return calls
        name = calls.texts["name"]
        launching = pa.array([is_launch(text) for text in name.dictionary.to_pylist()])
        launches = np.asarray(launching.take(name.indices).fill_null(False))
        captured = np.full(len(calls), UNKNOWN, np.int64)
        for thread, own in _by_thread(calls.ints, np.flatnonzero(launches)):
            if thread in self._made:
                starts, nodes = self._made[thread]
                first = np.searchsorted(starts, calls.ints["start_ns"][own], "left")
                last = np.searchsorted(starts, calls.ints["end_ns"][own], "right")
                single = last - first == 1
                captured[own[single]] = nodes[first[single]]
        return calls.with_ints(graph_node_id=captured)

    def originals(self, busy: Batch) -> Batch:
        """Replace the ids of cloned graph nodes by the ids of the captured nodes."""
        if not self._originals or "graph_node_id" not in busy.ints:
            return busy
        pair = np.stack([busy.ints["pid"], busy.ints["graph_node_id"]])
        pairs, codes = np.unique(pair, axis=1, return_inverse=True)
        originals = np.array(
            [self._original(pid, node) for pid, node in pairs.T.tolist()], np.int64
        )
        return busy.with_ints(graph_node_id=originals[codes.reshape(-1)])

    def _original(self, pid: int, node: int) -> int:
        seen = {node}
        while (following := self._originals.get((pid, node), node)) not in seen:
            node = following
            seen.add(node)
        self._originals |= {(pid, clone): node for clone in seen}  # later searches are short
        return node


def _by_thread(ints: Mapping[str, Ints], rows: Ints) -> Iterator[tuple[tuple[int, int], Ints]]:
    """Split row numbers by thread: yield ((pid, tid), row numbers)."""
    for members in Groups(ints["pid"][rows], ints["tid"][rows]).members() if len(rows) else ():
        own = rows[members]
        yield (int(ints["pid"][own[0]]), int(ints["tid"][own[0]])), own


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
_RANGES, _RANGE_COLUMNS = "NVTX_EVENTS", ("start", "end", "eventType")
#: Columns with a kernel's name, the most readable name first.
_KERNEL_NAMES = ("demangledName", "shortName", "mangledName")
_COLUMNS_OF_KIND = {
    "kernel": ("graphNodeId", "graphId", *_KERNEL_NAMES, *LAUNCH_COLUMNS),
    "memcpy": ("graphNodeId", "bytes", "copyKind", "srcKind", "dstKind"),
    "memset": ("graphNodeId", "bytes", "memKind"),
}
_EVENT_COLUMNS = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid")
#: Names of overheads that CUDA, not the profiler, causes (ENUM_CUPTI_OVERHEAD_TYPE).
_CUDA_OVERHEADS = frozenset(name for name, is_profilers in OVERHEADS.values() if not is_profilers)
_RANGE_TYPES = frozenset(
    ("NvtxPushPopRange", "NvtxStartEndRange", "NvtxtPushPopRange", "NvtxtStartEndRange")
)
_USUAL_RANGE_TYPES = (59, 60, 70, 71)
_UNNAMED = "unnamed"


def events_of(database: Database, devices: Devices) -> CudaEvents:
    strings = database.strings("StringIds", "id", "value")
    contexts, nodes = Contexts(), GraphNodes(database)
    busy = map(nodes.originals, map(contexts.noted, _activities(database, strings)))
    return gathered(
        busy=map(devices.renumbered, busy),
        calls=map(nodes.captured, _calls(database, strings)),
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


def _activities(database: Database, strings: Mapping[int, str]) -> Iterator[Batch]:
    """Yield kernels, whole CUDA graphs, copies and memsets."""
    text_ids = np.array(list(strings), np.int64)
    for table, kind in _ACTIVITIES.items():
        if table in database.columns:
            for read in database.int_chunks(table, *_EVENT_COLUMNS, *_COLUMNS_OF_KIND[kind]):
                yield _activity(read, table, _first_present(read, text_ids), strings)


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
        texts["launch_config"] = launch_configs(read, LAUNCH_COLUMNS, cupti_launch_config)
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
    """Return the text id of each kernel's name, from the best column of ``_KERNEL_NAMES``."""
    columns = [read[column] for column in _KERNEL_NAMES if column in read]
    chosen = columns.pop() if columns else read["start"]
    for column in reversed(columns):
        chosen = np.where(np.isin(column, known), column, chosen)
    return chosen


def _synchronizations(database: Database, contexts: Contexts) -> Iterator[Batch]:
    """Yield the host's waits for a device."""
    if _SYNCS not in database.columns:
        return
    for read in database.int_chunks(_SYNCS, *_EVENT_COLUMNS, "syncType"):
        ints = _placed(read)
        # take the device of the wait's context, because the wait's own deviceId may be wrong
        ints["device"] = contexts.devices(ints)
        kind = constant("device_sync", len(read["start"]))
        yield Batch(ints, {"kind": kind, "name": sync_names(read["syncType"])})


def _calls(database: Database, strings: Mapping[int, str]) -> Iterator[Batch]:
    columns = ("start", "end", "globalTid", "correlationId", "nameId")
    for table in _CALLS:
        for read in database.int_chunks(table, *columns) if table in database.columns else ():
            name = named(
                read["nameId"], lambda key: call_name(strings.get(key, "unnamed CUDA call"))
            )
            ints = {**_threaded(read), "correlation_id": positive(read["correlationId"])}
            yield Batch(ints, {"kind": constant("runtime", len(name)), "name": name})


def _overheads(database: Database, strings: Mapping[int, str]) -> Iterator[Batch]:
    """Yield overheads of the profiler and of CUDA itself."""
    columns = ("start", "end", "globalTid", "nameId")
    for table in _OVERHEADS:
        for read in database.int_chunks(table, *columns) if table in database.columns else ():
            kind = named(
                read["nameId"],
                lambda key: "runtime" if strings.get(key) in _CUDA_OVERHEADS else "overhead",
            )
            name = named(read["nameId"], lambda key: strings.get(key, _UNNAMED))
            yield Batch(_threaded(read), {"kind": kind, "name": name})


def _ranges(database: Database, strings: Mapping[int, str]) -> Iterator[Batch]:
    """Yield NVTX ranges; the end of an open range is ``UNKNOWN``."""
    if _RANGES not in database.columns:
        return
    types = _range_types(database)
    own_texts = database.text_chunks(_RANGES, "text")
    for read in database.int_chunks(_RANGES, *_RANGE_COLUMNS, "globalTid", "textId"):
        text = named(read["textId"], strings.get).cast(pa.string())
        if "text" in database.columns[_RANGES]:
            text = pc.coalesce(next(own_texts), text)
        text = text.fill_null(_UNNAMED)
        yield nvtx_ranges(_threaded(read), text).only(_is_range(read, types))


def _range_times(database: Database) -> Iterator[Batch]:
    if _RANGES in database.columns:
        types = _range_types(database)
        for read in database.int_chunks(_RANGES, *_RANGE_COLUMNS):
            times = {"start_ns": read["start"], "end_ns": read["end"]}
            yield Batch(times, {}).only(_is_range(read, types))


def _is_range(read: Mapping[str, Ints], types: list[int]) -> np.ndarray:
    type_ = read["eventType"]
    is_range = np.where(type_ == UNKNOWN, read["end"] != UNKNOWN, np.isin(type_, types))
    return np.asarray(is_range & (read["start"] != UNKNOWN), dtype=np.bool_)


def _range_types(database: Database) -> list[int]:
    listed = database.strings("ENUM_NSYS_EVENT_TYPE", "id", "name")
    types = [number for number, name in listed.items() if name in _RANGE_TYPES]
    return types or list(_USUAL_RANGE_TYPES)


def _threaded(read: Mapping[str, Ints]) -> dict[str, Ints]:
    thread = read["globalTid"]
    has_thread = thread != UNKNOWN
    return {
        "start_ns": read["start"],
        "end_ns": read["end"],
        # unpack globalTid: 16 bits of machine, 24 of process, 24 of thread
        "pid": np.where(has_thread, positive(thread >> 24 & 0xFFFFFF), UNKNOWN),
        "tid": np.where(has_thread, thread & 0xFFFFFF, UNKNOWN),
    }


def whole_graphs(database: Database) -> int:
    """Count the CUDA graph launches for which nsys recorded no kernels."""
    return len(database.ints(_GRAPHS, "start")["start"]) if _GRAPHS in database.columns else 0
