"""Nsight Systems' SQLite export, with the tables and columns of version 2025.1 that say something.

The program ran under ``torch.autograd.profiler.emit_nvtx``, with ``--cuda-graph-trace=node``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from events.rows import Row
from simulator.recording import Recording

Values = dict[str, Any]

_PID = 25738
_PROCESS = 1 << 48 | _PID << 24
_START_NS = 5_844_617_581
_CUPTI = "CUPTI_ACTIVITY_KIND_"
_PUSH_POP = 59
#: CUpti_ActivityMemcpyKind, then Nsight's own ENUM_CUDA_MEM_KIND of source and target.
_COPIES = {"HtoD": (1, 0, 2), "DtoH": (2, 2, 0)}
_SYNCS = {"Event Sync": 1, "Stream Wait Event": 2, "Stream Sync": 3, "Context Sync": 4}
_NOT_NULL = frozenset(("start", "id", "value", "name", "nameId", "deviceId", "streamId"))
#: Where the version of the library that wrote a database stands in it.
_WRITTEN_BY = slice(92, 100)


def of_2025(recording: Recording) -> bytes:
    """The database."""
    strings: dict[str, int] = {}
    tables: dict[str, list[Values]] = {}
    for row, op_id in zip(recording.rows, recording.op_ids, strict=True):
        for table, values in _recorded(row, op_id, strings):
            tables.setdefault(table, []).append(values)
    tables["ThreadNames"] = [
        {"nameId": _number(strings, "pt_main_thread"), "priority": 20, "globalTid": _thread(_PID)}
    ]
    tables |= _ABOUT
    tables["StringIds"] = [{"id": number, "value": text} for text, number in strings.items()]
    return _database(dict(sorted(tables.items())))


_ABOUT: dict[str, list[Values]] = {
    "TARGET_INFO_GPU": [{"vmId": 1 << 48, "id": 0, "name": "NVIDIA H200", "cuDevice": 0}],
    "TARGET_INFO_CUDA_DEVICE": [{"gpuId": 0, "cudaId": 0, "pid": _PID}],
    "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": 1_741_793_819_042_497_997}],
    "PROCESSES": [{"globalPid": _PROCESS, "pid": _PID, "name": "python3"}],
    "META_DATA_EXPORT": [
        {"name": "EXPORT_PRODUCT_NAME", "value": "NVIDIA Nsight Systems"},
        {"name": "EXPORT_PRODUCT_VERSION", "value": "2025.1.1.110"},
        {"name": "EXPORT_SCHEMA_VERSION", "value": "3.17.1"},
    ],
    "ENUM_NSYS_EVENT_TYPE": [
        {"id": _PUSH_POP, "name": "NvtxPushPopRange", "label": "NvtxPushPopRange"},
        {"id": 60, "name": "NvtxStartEndRange", "label": "NvtxStartEndRange"},
    ],
}


def _number(strings: dict[str, int], text: str) -> int:
    return strings.setdefault(text, len(strings) + 1)


def _thread(tid: int) -> int:
    return _PROCESS | tid


def _recorded(row: Row, op_id: int | None, strings: dict[str, int]) -> Iterator[tuple[str, Values]]:
    """(table, values) of one event."""
    kind, name = row["kind"], row["name"]
    start = _START_NS + row["start_ns"]
    values: Values = {"start": start, "end": start + row["dur_ns"]}
    if row["tid"] is not None:
        values["globalTid"] = _thread(row["tid"])
    else:
        values |= {"deviceId": row["device"], "contextId": 1, "streamId": row["stream"]}
        values |= {"correlationId": row["correlation_id"], "globalPid": _PROCESS}
        node = row["graph_node_id"]
        values["graphNodeId"] = None if node is None else (1 << 32) + node
    if kind in ("step", "range", "op"):
        text = f"{name}, op_id = {op_id}" if kind == "op" else name
        yield "NVTX_EVENTS", {**values, "eventType": _PUSH_POP, "text": text, "domainId": 0}
    elif kind == "runtime":
        called = {"correlationId": row["correlation_id"], "returnValue": 0}
        number = _number(strings, f"{name}_v7000")
        yield f"{_CUPTI}RUNTIME", {**values, "eventClass": 0, "nameId": number, **called}
    elif kind == "overhead":
        yield "PROFILER_OVERHEAD", {**values, "nameId": _number(strings, name), "returnValue": 0}
    elif kind == "kernel":
        names = {"demangledName": name, "shortName": name.partition("<")[0].rpartition(" ")[2]}
        numbers = {column: _number(strings, text) for column, text in names.items()}
        yield f"{_CUPTI}KERNEL", {**values, **numbers, "gridX": 44, "blockX": 256}
    elif kind == "memcpy":
        way = next(numbers for word, numbers in _COPIES.items() if word in name)
        kinds = dict(zip(("copyKind", "srcKind", "dstKind"), way, strict=True))
        yield f"{_CUPTI}MEMCPY", {**values, "bytes": 163_840, **kinds}
    elif kind == "memset":
        yield f"{_CUPTI}MEMSET", {**values, "value": 0, "bytes": 163_840, "memKind": 2}
    elif kind == "device_sync":
        del values["graphNodeId"]
        yield f"{_CUPTI}SYNCHRONIZATION", {**values, "syncType": _SYNCS[name], "eventId": 2**32 - 1}


def _database(tables: dict[str, list[Values]]) -> bytes:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("PRAGMA page_size = 1024")
        for table, rows in tables.items():
            columns = list(dict.fromkeys(column for row in rows for column in row))
            described = ", ".join(_column(column, rows) for column in columns)
            connection.execute(f"CREATE TABLE {table} ({described})")
            marks = ", ".join("?" * len(columns))
            values = [[row.get(column) for column in columns] for row in rows]
            connection.executemany(f"INSERT INTO {table} VALUES ({marks})", values)
        connection.commit()
        content = bytearray(connection.serialize())
    content[_WRITTEN_BY] = bytes(8)
    return bytes(content)


def _column(name: str, rows: list[Values]) -> str:
    is_text = any(isinstance(row.get(name), str) for row in rows)
    key = " PRIMARY KEY" if name == "id" and "value" in rows[0] else ""
    null = " NOT NULL" if name in _NOT_NULL else ""
    return f'"{name}" {"TEXT" if is_text else "INTEGER"}{null}{key}'
