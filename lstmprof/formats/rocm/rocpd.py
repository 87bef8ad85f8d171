"""Read AMD's rocpd: the SQLite database of rocprofv3 since ROCm 7 (``--output-format rocpd``).

Each process has its own tables, such as ``rocpd_region_00003fdc_92cb_…`` (calls and ranges).
Source: source/share/rocprofiler-sdk-rocpd and source/lib/output/generateRocpd.cpp of
ROCm/rocprofiler-sdk, schema 3.0.0 to 3.0.5. 13 published databases of schema 3 confirm kernels and
HIP calls, but not copies, ranges, graphs and merged files.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from lstmprof.base.errors import ProfileError, one_line
from lstmprof.events import DeviceFacts, Profile
from lstmprof.formats import rows
from lstmprof.formats.cuda import database_tables
from lstmprof.formats.cuda.database_tables import UNKNOWN, Database, Ints
from lstmprof.formats.cuda.events import (
    Batch,
    constant,
    gathered,
    launch_configs,
    looked_up,
    named,
    natural,
    positive,
)
from lstmprof.formats.cuda.names import nvtx_ranges
from lstmprof.formats.raw_file import RawFile, json_object
from lstmprof.formats.rocm import rocprofv3
from lstmprof.formats.rocm.rocprofv3 import COPIES

#: Columns of ``rocpd_event``. A launch and the launched activities share a stack id.
_EVENT_COLUMNS = ("category_id", "stack_id")
_CACHED_STRINGS = 4096


@dataclass(frozen=True)
class Gpu:
    """A GPU of the machine."""

    index: int  # among all CPUs and GPUs of the machine
    name: str
    facts: DeviceFacts


class Process:
    """The tables of one process; their names end with ``suffix``."""

    def __init__(self, database: Database, suffix: str) -> None:
        self._database, self._suffix = database, suffix
        self.pids = self._numbers("info_process", "pid")
        self.machines = set(self._numbers("info_process", "nid").values())
        self.tids = self._numbers("info_thread", "tid")
        self.string = functools.lru_cache(_CACHED_STRINGS)(self._string)

    def chunks(self, table: str, *columns: str) -> Iterator[Mapping[str, Ints]]:
        """Yield chunks of a table's columns, with the category and stack id of each row."""
        own, events = self._table(table), self._table("event")
        if own not in self._database.columns:
            return
        scans = self._database.int_chunks(own, *columns, "event_id")
        if not self._points_to(own, events):
            yield from (
                {**dict.fromkeys(_EVENT_COLUMNS, np.full(len(read["event_id"]), UNKNOWN)), **read}
                for read in scans
            )
            return
        pointed = self._database.pointed_ints(own, "event_id", events, "id", *_EVENT_COLUMNS)
        for read, event in zip(scans, pointed, strict=True):
            is_its = event["id"] == read["event_id"]
            event_values = {name: np.where(is_its, event[name], UNKNOWN) for name in _EVENT_COLUMNS}
            yield {**event_values, **read}

    def extdata(self, table: str) -> Iterator[list[str | None]]:
        """Yield the JSON texts ``extdata`` of a table's events, in the chunks of ``chunks``."""
        own, events = self._table(table), self._table("event")
        if self._points_to(own, events):
            chunks = self._database.pointed_texts(own, "event_id", events, "extdata")
            yield from (texts.to_pylist() for texts in chunks)

    def _points_to(self, own: str, events: str) -> bool:
        columns = self._database.columns
        has_events = {"id", "extdata"} <= columns.get(events, frozenset())
        return has_events and "event_id" in columns.get(own, ())

    def _string(self, number: int) -> str | None:
        table = self._table("string")
        if {"id", "string"} <= self._database.columns.get(table, frozenset()) and number >= 0:
            return self._database.text_at(table, "string", number)
        return None

    @cached_property
    def kernel_names(self) -> dict[int, str]:
        """Return {id of a kernel's symbol: readable name}."""
        table = self._table("info_kernel_symbol")
        names = {
            **self._database.strings(table, "id", "kernel_name"),
            **{n: name for n, name in self._texts(table, "display_name") if name},
        }
        return {number: name.removesuffix(".kd") for number, name in names.items() if name}

    @cached_property
    def gpus(self) -> dict[int, Gpu]:
        """Return {agent id: GPU}."""
        table = self._table("info_agent")
        if table not in self._database.columns:
            return {}
        indexes = self._numbers("info_agent", "absolute_index")
        names = {
            **self._database.strings(table, "id", "name"),
            **{n: name for n, name in self._texts(table, "product_name") if name},
        }
        facts = dict(self._texts(table, "extdata"))
        return {
            agent: Gpu(indexes[agent], names.get(agent) or "AMD GPU", _facts(facts.get(agent)))
            for agent, type_ in self._texts(table, "type")
            if type_ == "GPU" and agent in indexes
        }

    def _table(self, name: str) -> str:
        return f"rocpd_{name}{self._suffix}"

    def _numbers(self, table: str, column: str) -> dict[int, int]:
        """Return {row id: value} of a column, without negative values."""
        read = self.chunks(table, "id", column)
        pairs = (zip(c["id"].tolist(), c[column].tolist(), strict=True) for c in read)
        return {key: number for chunk in pairs for key, number in chunk if min(key, number) >= 0}

    def _texts(self, table: str, column: str) -> list[tuple[int, str]]:
        return list(self._database.strings(table, "id", column).items())


def message(extdata: str | None) -> str | None:
    """Return the text of a ROCTx range from ``extdata`` (JSON)."""
    text = json_object(extdata or "").get("message")
    return rows.clean(text) if isinstance(text, str) and text else None


def _facts(extdata: str | None) -> DeviceFacts:
    texts = json_object(extdata or "")
    return rows.device_facts(None, None, texts.get("cu_count"), texts.get("wave_front_size"))


_TIMES = ("start", "end", "pid")
_GRID = ("grid_size_x", "grid_size_y", "grid_size_z")
_BLOCK = ("workgroup_size_x", "workgroup_size_y", "workgroup_size_z")
_LAUNCH_COLUMNS = (*_GRID, *_BLOCK, "group_segment_size")


class Events:
    """Reads the events of a process."""

    def __init__(self, process: Process, devices: Mapping[int, int]) -> None:
        self._process = process
        self._devices = {agent: devices[gpu.index] for agent, gpu in process.gpus.items()}
        # number of events without a name or device
        self.left_out = 0

    def activities(self) -> Iterator[Batch]:
        """Yield kernels and copies."""
        yield from self._kernels()
        yield from self._copies()

    def regions(self) -> Iterator[Batch]:
        """Yield HIP calls and ROCTx ranges."""
        extdata = self._process.extdata("region")
        for read in self._process.chunks("region", *_TIMES, "tid", "name_id"):
            self.left_out += int((read["category_id"] == UNKNOWN).sum())
            tid = looked_up(read["tid"], self._process.tids)
            yield self._calls({**self._launched(read), "tid": tid}, read)
            yield self._ranges({**self._timed(read), "tid": tid}, read, next(extdata, []))

    def _calls(self, ints: Mapping[str, Ints], read: Mapping[str, Ints]) -> Batch:
        is_call = self._matches(
            read["category_id"],
            lambda text: "HIP_" in text and "_API" in text and "COMPILER" not in text,
        )
        name = named(read["name_id"][is_call], self._process.string)
        texts = {"kind": constant("runtime", len(name)), "name": name}
        return self._with_name_and_device(
            Batch({n: values[is_call] for n, values in ints.items()}, texts)
        )

    def _ranges(
        self, ints: Mapping[str, Ints], read: Mapping[str, Ints], extdata: Sequence[str | None]
    ) -> Batch:
        """Return the ROCTx ranges, except ranges without a text."""
        is_marker = self._matches(read["category_id"], lambda text: "MARKER" in text)
        is_range = is_marker & self._matches(read["category_id"], lambda text: "RANGE" in text)
        others = np.flatnonzero(is_marker & ~is_range)
        is_range[others] = self._matches(read["name_id"][others], lambda text: "Range" in text)
        places = np.flatnonzero(is_range)
        messages = [message(extdata[i]) if extdata else None for i in places.tolist()]
        names = read["name_id"][places].tolist()
        messages = [
            text or self._region_text(name) for text, name in zip(messages, names, strict=True)
        ]
        has_text = np.array([text is not None for text in messages], np.bool_)
        self.left_out += int((~has_text).sum())
        texts = pa.array([text for text in messages if text is not None], pa.string())
        chosen = places[has_text]
        return nvtx_ranges({name: values[chosen] for name, values in ints.items()}, texts)

    def _region_text(self, name_id: int) -> str | None:
        """Return the name of a region, or None if the region is a call of ROCTx's functions."""
        name = self._process.string(name_id)
        return None if name is None or name.startswith("roctx") else name or None

    def _matches(self, numbers: Ints, is_meant: Callable[[str], bool]) -> np.ndarray:
        distinct, codes = np.unique(numbers, return_inverse=True)
        texts = [self._process.string(number) or "" for number in distinct.tolist()]
        return np.array([is_meant(text) for text in texts], np.bool_)[codes]

    def _kernels(self) -> Iterator[Batch]:
        columns = (*_TIMES, "agent_id", "kernel_id", "stream_id", "queue_id", "graph_node_id")
        for read in self._process.chunks("kernel_dispatch", *columns, *_LAUNCH_COLUMNS):
            has_stream = read["stream_id"] != UNKNOWN
            ints = {
                **self._launched(read),
                "device": looked_up(read["agent_id"], self._devices),
                "stream": natural(np.where(has_stream, read["stream_id"], read["queue_id"])),
                "graph_node_id": positive(read["graph_node_id"]),
            }
            name = named(read["kernel_id"], self._process.kernel_names.get)
            texts = {"kind": constant("kernel", len(name)), "name": name}
            yield self._with_name_and_device(
                Batch(
                    ints,
                    {
                        **texts,
                        "launch_config": launch_configs(read, _LAUNCH_COLUMNS, _launch_config),
                    },
                )
            )

    def _copies(self) -> Iterator[Batch]:
        columns = (*_TIMES, "name_id", "dst_agent_id", "src_agent_id", "size", "stream_id")
        for read in self._process.chunks("memory_copy", *columns, "graph_node_id"):
            target = looked_up(read["dst_agent_id"], self._devices)
            source = looked_up(read["src_agent_id"], self._devices)
            ints = {
                **self._launched(read),
                "device": np.where(target == UNKNOWN, source, target),
                "stream": natural(read["stream_id"]),
                "graph_node_id": positive(read["graph_node_id"]),
                "bytes": np.where(read["size"] >= 0, read["size"], UNKNOWN),
            }
            name = named(read["name_id"], self._copy_name)
            yield self._with_name_and_device(
                Batch(ints, {"kind": constant("memcpy", len(name)), "name": name})
            )

    def _copy_name(self, number: int) -> str | None:
        direction = (self._process.string(number) or "").removeprefix("MEMORY_COPY_")
        return f"Memcpy {COPIES[direction]}" if direction in COPIES else None

    def _timed(self, read: Mapping[str, Ints]) -> dict[str, Ints]:
        pid = positive(looked_up(read["pid"], self._process.pids))
        return {"start_ns": read["start"], "end_ns": read["end"], "pid": pid}

    def _launched(self, read: Mapping[str, Ints]) -> dict[str, Ints]:
        return {**self._timed(read), "correlation_id": positive(read["stack_id"])}

    def _with_name_and_device(self, batch: Batch) -> Batch:
        """Drop and count events without a name, and activities without a device."""
        is_known = batch.texts["name"].is_valid().to_numpy(zero_copy_only=False)
        if "device" in batch.ints:
            is_known = is_known & (batch.ints["device"] != UNKNOWN)
        self.left_out += int((~is_known).sum())
        return batch.only(is_known)


def _launch_config(*numbers: int) -> str | None:
    """Convert the values of ``_LAUNCH_COLUMNS`` to a launch configuration."""
    threads, block = (list(n) if min(n) > 0 else None for n in (numbers[:3], numbers[3:6]))
    return rocprofv3.launched_with(threads, block, rows.natural(numbers[6]))


_ROCPD_TABLES = ("rocpd_kernel_dispatch", "rocpd_memory_copy", "rocpd_region")
#: Tables of rocmProfileData, another format whose tables begin with ``rocpd_``.
_RPD = frozenset(("rocpd_api", "rocpd_op"))
_SCHEMA = "3"
_JSON = "record with rocprofv3 --runtime-trace --output-format json"
_EACH = "give each .db file separately"


def recognises(raw: RawFile) -> bool:
    return any(name.startswith("rocpd_") for name in database_tables.names(raw, _ROCPD_TABLES))


def read(raw: RawFile) -> Profile:
    with database_tables.opened(raw) as database:
        return _profile(raw.path, database)


def _profile(path: Path | str, database: Database) -> Profile:
    _check_tables(path, database)
    # expect several processes in a file that ``rocpd merge`` wrote
    processes = [Process(database, suffix) for suffix in _suffixes(database)]
    _check_processes(path, processes)
    gpus = _numbered(processes)
    numbers = {gpu.index: number for number, gpu in enumerate(gpus)}
    parts = [Events(process, numbers) for process in processes]
    recorded = gathered(
        busy=itertools.chain.from_iterable(part.activities() for part in parts),
        calls=itertools.chain.from_iterable(part.regions() for part in parts),
        ranges=(),
        others=(),
        last_times=tuple,
    )
    left_out = recorded.untimed + sum(part.left_out for part in parts)
    notes = tuple(rocprofv3.notes(left_out))
    if recorded.origin_ns is None or recorded.columns is None:
        why = f" ({notes[-1]})" if left_out else ""
        raise ProfileError(path, rocprofv3.NOTHING + why, rocprofv3.NEXT_STEP)
    names = {number: gpu.name for number, gpu in enumerate(gpus)}
    return Profile(
        format="rocprofv3",
        base_ns=None,  # times are ns since the machine started
        events=rows.moved(recorded.columns, recorded.origin_ns),
        device_names=names,
        device_facts={number: gpu.facts for number, gpu in enumerate(gpus) if gpu.facts},
        accelerators=tuple(dict.fromkeys(names.values())),
        notes=notes,
    )


def _suffixes(database: Database) -> list[str]:
    """Return the ending of each process's table names (``_<guid>``)."""
    named = [
        (own, table) for own in _ROCPD_TABLES for table in database.columns if table.startswith(own)
    ]
    endings = {table.removeprefix(own) for own, table in named}
    return sorted(ending for ending in endings if not ending or ending.startswith("_"))


def _check_tables(path: Path | str, database: Database) -> None:
    """Refuse databases of rocmProfileData, and of unknown versions of rocpd's schema."""
    if _RPD & database.columns.keys():
        raise ProfileError(
            path, "is a rocmProfileData database, which lstmprof does not read", _JSON
        )
    for suffix in _suffixes(database):
        table = f"rocpd_metadata{suffix}"
        if not {"tag", "value"} <= database.columns.get(table, frozenset()):
            continue
        tags, values = (database.texts(table, column) for column in ("tag", "value"))
        version = dict(zip(tags, values, strict=True)).get("schema_version")
        if version is not None and version.split(".")[0] != _SCHEMA:
            what = f"is a rocpd database of schema {one_line(version)[:24]}"
            raise ProfileError(path, f"{what}; lstmprof reads schema {_SCHEMA}", _JSON)
    for table, columns in database.columns.items():
        if table.startswith(_ROCPD_TABLES) and not {"start", "end"} <= columns:
            what = f"its table {one_line(table)[:80]} has no columns start and end"
            raise ProfileError(path, what, _JSON)


def _check_processes(path: Path | str, processes: Sequence[Process]) -> None:
    """Refuse a database of several machines, or with two equal pids."""
    machines = {nid for process in processes for nid in process.machines}
    if len(machines) > 1:
        what = f"has processes of {len(machines)} machines, whose clocks differ"
        raise ProfileError(path, what, _EACH)
    pids = Counter(pid for process in processes for pid in process.pids.values())
    twice = [pid for pid, count in pids.items() if count > 1]
    if twice:
        raise ProfileError(path, f"has two processes with the id {twice[0]}", _EACH)


def _numbered(processes: Sequence[Process]) -> list[Gpu]:
    """Return the GPUs of the machine in order of their numbers."""
    gpus = {gpu.index: gpu for process in processes for gpu in process.gpus.values()}
    return [gpus[index] for index in sorted(gpus)]
