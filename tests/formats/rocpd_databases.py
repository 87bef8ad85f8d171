"""Databases of rocprofv3 (rocpd, schema 3) that hold what its JSON holds.

The tables and columns are those that are filled of rocprofiler-sdk's ``rocpd_tables.sql``; each
process's end with its guid, and views without it show all of them, as in ``rocpd_views.sql``.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

Tables = dict[str, list[dict[str, Any]]]

_ID = '"id" INTEGER PRIMARY KEY AUTOINCREMENT'
_OF_ALL = ("guid TEXT", "nid INTEGER", "pid INTEGER", "extdata JSONB")
_TIMED = (*_OF_ALL, "tid INTEGER", "start BIGINT", '"end" BIGINT', "event_id INTEGER")
_LAUNCHED = ("stream_id INTEGER", "queue_id INTEGER", "region_name_id INTEGER")
SCHEMA = {
    "metadata": ("tag TEXT", "value TEXT"),
    "string": ("guid TEXT", "string TEXT UNIQUE"),
    "info_node": ("guid TEXT", "hash BIGINT", "machine_id TEXT", "hostname TEXT"),
    "info_process": (*_OF_ALL, "ppid INTEGER", "init BIGINT", "fini BIGINT", "command TEXT"),
    "info_thread": (*_OF_ALL, "tid INTEGER", "name TEXT"),
    "info_agent": (
        *_OF_ALL,
        *("type TEXT CHECK (\"type\" IN ('CPU', 'GPU', 'NIC'))", "absolute_index INTEGER"),
        *("name TEXT", "product_name TEXT"),
    ),
    "info_kernel_symbol": (*_OF_ALL, "kernel_name TEXT", "display_name TEXT"),
    "event": (
        *("guid TEXT", "category_id INTEGER", "stack_id INTEGER", "parent_stack_id INTEGER"),
        *("correlation_id INTEGER", "extdata JSONB"),
    ),
    "region": (*_TIMED, "name_id INTEGER"),
    "kernel_dispatch": (
        *(*_TIMED, *_LAUNCHED, "agent_id INTEGER", "kernel_id INTEGER", "dispatch_id INTEGER"),
        *(f"{of}_size_{axis} INTEGER" for of in ("workgroup", "grid") for axis in "xyz"),
        *("private_segment_size INTEGER", "group_segment_size INTEGER"),
        *("graph_exec_id INTEGER", "graph_node_id INTEGER"),
    ),
    "memory_copy": (
        *(*_TIMED, *_LAUNCHED, "name_id INTEGER", "size INTEGER"),
        *("dst_agent_id INTEGER", "src_agent_id INTEGER"),
    ),
}
#: Of the first process; the last digit is the number of each.
GUID = "00003fdc-92cb-72cb-9169-c7e541b1fcd0"


def tables(process: Mapping[str, Any]) -> Tables:
    """The rows of the tables of one ``process`` of rocprofv3's JSON."""
    return _Process(process).tables()


def database(*processes: Tables) -> bytes:
    """A database of the tables of each process; one of several is as ``rocpd merge`` writes it."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("PRAGMA page_size = 1024")
        for number, process in enumerate(processes):
            _fill(connection, process, f"{GUID[:-1]}{number:x}")
        for table in SCHEMA:
            named = [f"rocpd_{table}_{_suffix(n)}" for n, of in enumerate(processes) if table in of]
            if named:
                every = " UNION ALL ".join(f"SELECT * FROM `{name}`" for name in named)
                connection.execute(f"CREATE VIEW `rocpd_{table}` AS {every}")
        connection.commit()
        content: bytes = connection.serialize()
        return content


def _suffix(number: int) -> str:
    return f"{GUID[:-1]}{number:x}".replace("-", "_")


def _fill(connection: sqlite3.Connection, process: Tables, guid: str) -> None:
    for table, listed in process.items():
        name = f"`rocpd_{table}_{guid.replace('-', '_')}`"
        connection.execute(f"CREATE TABLE {name} ({', '.join((_ID, *SCHEMA[table]))})")
        for given in listed:
            row = {**given, **({} if table == "metadata" else {"guid": guid})}
            marks = ", ".join("?" * len(row))
            columns = ", ".join(f'"{column}"' for column in row)
            connection.execute(f"INSERT INTO {name} ({columns}) VALUES ({marks})", [*row.values()])


class _Process:
    def __init__(self, process: Mapping[str, Any]) -> None:
        self._given = process
        self._kinds = process["strings"]["buffer_records"]
        self._texts = {text["key"]: text["value"] for text in process["strings"]["marker_api"]}
        self._strings: dict[str, int] = {}
        self._events: list[dict[str, Any]] = []
        self._of = {"nid": 77, "pid": process["metadata"]["pid"]}

    def tables(self) -> Tables:
        records = self._given["buffer_records"]
        agents = {agent["id"]["handle"]: agent["node_id"] for agent in self._given["agents"]}
        regions = [self._region(of) for name in ("hip_api", "marker_api") for of in records[name]]
        timed = {
            "region": regions,
            "kernel_dispatch": [self._kernel(of, agents) for of in records["kernel_dispatch"]],
            "memory_copy": [self._copy(of, agents) for of in records["memory_copy"]],
        }
        threads = {row["tid"] for listed in timed.values() for row in listed}
        symbols = self._given["kernel_symbols"]
        return {
            "metadata": [{"tag": "schema_version", "value": "3"}, {"tag": "guid", "value": GUID}],
            "string": [{"id": number, "string": text} for text, number in self._strings.items()],
            "info_node": [{"id": 77, "hash": 5, "machine_id": "m"}],
            "info_process": [{"id": self._of["pid"], **self._of}],
            "info_thread": [{"id": tid, **self._of, "tid": tid} for tid in sorted(threads)],
            "info_agent": list(self._agents()),
            "info_kernel_symbol": [
                {"id": of["kernel_id"], **self._of, "display_name": of["formatted_kernel_name"]}
                for of in symbols
            ],
            "event": self._events,
            **timed,
        }

    def _agents(self) -> Iterator[dict[str, Any]]:
        for agent in sorted(self._given["agents"], key=lambda of: int(of["node_id"])):
            named = {name: agent.get(name) for name in ("name", "product_name")}
            type_ = "GPU" if agent["type"] == 2 else "CPU"
            place = {"id": agent["node_id"], "absolute_index": agent["node_id"]}
            yield {**self._of, **place, "type": type_, **named, "extdata": json.dumps(agent)}

    def _number(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings) + 1)

    def _timed(self, record: Mapping[str, Any], message: str | None) -> dict[str, Any]:
        stack = record["correlation_id"]["internal"]
        extdata = json.dumps({"message": message} if message else {})
        category = self._number(self._kinds[record["kind"]]["kind"])
        self._events.append(
            {"id": len(self._events) + 1, "category_id": category, "stack_id": stack}
            | {"parent_stack_id": 0, "correlation_id": 0, "extdata": extdata}
        )
        times = {"start": record["start_timestamp"], "end": record["end_timestamp"]}
        return {**self._of, "tid": record["thread_id"], **times, "event_id": len(self._events)}

    def _operation(self, record: Mapping[str, Any]) -> int:
        return self._number(self._kinds[record["kind"]]["operations"][record["operation"]])

    def _region(self, record: Mapping[str, Any]) -> dict[str, Any]:
        is_marker = self._kinds[record["kind"]]["kind"].startswith("MARKER")
        message = self._texts.get(record["correlation_id"]["internal"]) if is_marker else None
        return {**self._timed(record, message), "name_id": self._operation(record)}

    def _kernel(self, record: Mapping[str, Any], agents: Mapping[int, int]) -> dict[str, Any]:
        info = record["dispatch_info"]
        stream = record.get("stream_id", info["queue_id"])["handle"]
        sizes = {
            f"{of}_{axis}": info[of][axis]
            for of in ("grid_size", "workgroup_size")
            for axis in "xyz"
            if of in info
        }
        return {
            **self._timed(record, None),
            **{"kernel_id": info["kernel_id"], "agent_id": agents[info["agent_id"]["handle"]]},
            **{"stream_id": stream, "queue_id": 16, "graph_exec_id": 0, "graph_node_id": 0},
            **{"group_segment_size": info.get("group_segment_size"), **sizes},
        }

    def _copy(self, record: Mapping[str, Any], agents: Mapping[int, int]) -> dict[str, Any]:
        ends = {f"{end}_agent_id": agents[record[f"{end}_agent_id"]["handle"]] for end in _ENDS}
        stream = record.get("stream_id", {"handle": None})["handle"]
        sized = {"size": record["bytes"], "name_id": self._operation(record), "stream_id": stream}
        return {**self._timed(record, None), **ends, **sized}


_ENDS = ("dst", "src")
