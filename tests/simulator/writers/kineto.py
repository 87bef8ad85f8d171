"""Kineto's JSON as ``torch.profiler`` exported it in 2021 (torch 1.8.1), and as it does today.

As in real files: in 2021 whole microseconds since 1970, ``Operator`` ``Runtime`` ``Kernel``, flows
``async``; today microseconds with three decimals since ``baseTimeNanoseconds``, ``cpu_op``
``cuda_runtime`` ``kernel``, flows ``ac2g``, nodes of CUDA graphs, waits of streams, Python frames.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from events.rows import Row
from simulator.recording import ACTIVITIES, Recording

Event = dict[str, Any]

_PID = 25738
_START_2021_US = 1_623_142_623_460_016
_BASE_NS = 1_751_410_836_000_000_000
_START_NS = 8_433_299_504
_CALLBACKS = {"cudaLaunchKernel": 211, "cudaMemcpyAsync": 41, "cudaGraphLaunch": 311}
_DEVICE = {
    **{"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 84_929_347_584},
    **{"computeMajor": 9, "computeMinor": 0, "maxThreadsPerBlock": 1024, "warpSize": 32},
    **{"sharedMemPerBlock": 49152, "numSms": 132},
}
_V100 = {**_DEVICE, "name": "Tesla V100-DGXS-32GB", "computeMajor": 7, "numSms": 80}
_CATEGORIES_2021 = {
    **{"op": "Operator", "step": "Operator", "range": "Operator", "runtime": "Runtime"},
    **{"kernel": "Kernel", "memcpy": "Memcpy", "memset": "Memset"},
}
_CATEGORIES = {
    **{"op": "cpu_op", "step": "user_annotation", "range": "user_annotation"},
    **{"python": "python_function", "runtime": "cuda_runtime", "kernel": "kernel"},
    **{"memcpy": "gpu_memcpy", "memset": "gpu_memset", "device_sync": "cuda_sync"},
}


def of_2021(recording: Recording) -> bytes:
    """The export of torch 1.8.1; the recording's ticks are whole microseconds."""
    header = {"schemaVersion": 1, "deviceProperties": [_V100]}
    events = _joined(recording, _event_2021)
    end_us = max(event["ts"] + event.get("dur", 0) for event in events)
    names = [
        _named("process_name", _START_2021_US, _PID, 0, {"name": "python"}),
        _named("process_labels", _START_2021_US, _PID, 0, {"labels": "CPU"}),
        _named("process_labels", _START_2021_US, 0, 0, {"labels": "GPU 0"}),
    ]
    span = {
        **{"ph": "X", "cat": "Trace", "ts": _START_2021_US, "dur": end_us - _START_2021_US},
        **{"pid": "Traces", "tid": "PyTorch Profiler", "name": "PyTorch Profiler (0)"},
        "args": {"Op count": 0},
    }
    return _document(header, [*events, *names, span], {})


def of_today(recording: Recording) -> bytes:
    """The export of torch 2.7."""
    header = {
        **{"schemaVersion": 1, "deviceProperties": [_DEVICE], "cuda_runtime_version": 12040},
        **{"cupti_version": 22, "cuda_driver_version": 12090, "with_stack": 1},
        "trace_id": "B4826447790147448E9C459AADE9641D",
        **{"displayTimeUnit": "ms", "baseTimeNanoseconds": _BASE_NS},
    }
    events = _joined(recording, _event)
    end_us = max(event["ts"] + event.get("dur", 0) for event in events)
    start_us = _us(_START_NS)
    names = [
        _named("process_name", start_us, _PID, 0, {"name": "python3"}),
        _named("process_labels", start_us, _PID, 0, {"labels": "CPU"}),
        _named("process_labels", start_us, 0, 0, {"labels": "GPU 0"}),
        _named("thread_name", start_us, 0, 7, {"name": "stream 7 "}),
    ]
    span = {
        **{"ph": "X", "cat": "Trace", "ts": start_us, "dur": round(end_us - start_us, 3)},
        **{"pid": "Spans", "tid": "PyTorch Profiler", "name": "PyTorch Profiler (0)"},
        "args": {"Op count": 0},
    }
    return _document(header, [*events, *names, span], {"traceName": "/tmp/trace.json"})


def _joined(
    recording: Recording, written: Callable[[Row, int | None], Iterator[Event]]
) -> list[Event]:
    """The events as ``written``; a flow begins only where an activity ends it."""
    numbered = zip(recording.rows, recording.op_ids, strict=True)
    events = [event for row, op_id in numbered for event in written(row, op_id)]
    ended = {event["id"] for event in events if event["ph"] == "f"}
    return [event for event in events if event["ph"] != "s" or event["id"] in ended]


def _named(name: str, ts: float, pid: int, tid: int, args: Event) -> Event:
    return {"name": name, "ph": "M", "ts": ts, "pid": pid, "tid": tid, "args": args}


def _document(header: Event, events: list[Event], footer: Event) -> bytes:
    lines = ",\n  ".join(json.dumps(event) for event in events)
    fields = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in header.items())
    after = "".join(f",\n  {json.dumps(k)}: {json.dumps(v)}" for k, v in footer.items())
    return f'{{\n{fields},\n  "traceEvents": [\n  {lines}\n  ]{after}\n}}\n'.encode()


def _event_2021(row: Row, op_id: int | None) -> Iterator[Event]:
    if row["kind"] not in _CATEGORIES_2021:
        return
    ts = _START_2021_US + row["start_ns"] // 1000
    event = {
        **{"ph": "X", "cat": _CATEGORIES_2021[row["kind"]], "name": row["name"]},
        **{"pid": _PID, "tid": str(row["tid"]), "ts": ts, "dur": row["dur_ns"] // 1000},
    }
    flow = {"id": row["correlation_id"], "cat": "async", "name": "launch", "ts": ts}
    if row["kind"] == "runtime":
        cbid = _CALLBACKS.get(row["name"], 131)
        ids = {"cbid": cbid, "correlation": row["correlation_id"], "external id": op_id or 0}
        yield {**event, "args": {**ids, "external ts": ts}}
        yield {"ph": "s", "pid": _PID, "tid": row["tid"], **flow}
    elif row["kind"] in ACTIVITIES:
        stream = {"pid": row["device"], "tid": f"stream {row['stream']}"}
        yield {**event, **stream, "args": _placed(row, {"external id": op_id or 0})}
        yield {"ph": "f", **stream, **flow, "bp": "e"}
    else:
        ids = {"Device": _PID, "External id": op_id, "Trace name": "PyTorch Profiler"}
        yield {**event, "args": {**ids, "Trace iteration": 0}}


def _event(row: Row, op_id: int | None) -> Iterator[Event]:
    ts = _us(_START_NS + row["start_ns"])
    event = {
        **{"ph": "X", "cat": _CATEGORIES[row["kind"]], "name": row["name"]},
        **{"pid": _PID, "tid": row["tid"], "ts": ts, "dur": _us(row["dur_ns"])},
    }
    flow = {"id": row["correlation_id"], "ts": ts, "cat": "ac2g", "name": "ac2g"}
    external = {} if op_id is None else {"External id": op_id}
    if row["kind"] == "runtime":
        ids = {"cbid": _CALLBACKS.get(row["name"], 131), "correlation": row["correlation_id"]}
        yield {**event, "args": {**external, **ids}}
        yield {"ph": "s", "pid": _PID, "tid": row["tid"], **flow}
    elif row["tid"] is None:
        stream = {"pid": row["device"], "tid": row["stream"]}
        yield {**event, **stream, "args": _placed(row, external)}
        yield {"ph": "f", **stream, **flow, "bp": "e"}
    elif row["kind"] == "python":
        yield {**event, "args": {"Python parent id": None, "Python id": 1}}
    else:
        yield {**event, "args": {**external, "Record function id": 0}}


def _placed(row: Row, external: Event) -> Event:
    """The arguments of what runs on a device."""
    place = {"device": row["device"], "context": 1, "stream": row["stream"]}
    node = row["graph_node_id"]
    graph = {} if node is None else {"graph id": 1, "graph node id": node}
    queued = {"queued": 0} if row["kind"] == "kernel" else {}
    moved = {"bytes": 163_840} if row["kind"] in ("memcpy", "memset") else {}
    return {**external, **queued, **place, "correlation": row["correlation_id"], **graph, **moved}


def _us(ns: int) -> float:
    return ns / 1000
