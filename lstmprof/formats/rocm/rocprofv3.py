"""Read the JSON of AMD's rocprofv3 (kernels, copies, HIP calls, ranges), and its CSV of kernels.

A record has numbers instead of names, such as a ``kernel_id`` from ``kernel_symbols``.
Source: source/docs/rocprofv3-schema.json, source/docs/how-to/using-rocprofv3.rst and
tests/rocprofv3 of ROCm/rocprofiler-sdk. lstmprof's authors have recorded no such JSON themselves.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lstmprof.base.errors import ProfileError
from lstmprof.events import Profile, launch_config
from lstmprof.formats import rows
from lstmprof.formats.cuda.names import nvtx_range
from lstmprof.formats.raw_file import RawFile, as_list, as_object, objects
from lstmprof.formats.rows import Row

ROOT = "rocprofiler-sdk-tool"
#: Type of an agent that is a GPU. A CPU has the type 1.
_GPU = 2
#: rocprofv3's direction of a copy -> direction in lstmprof's event names (``Memcpy HtoD``).
COPIES = {
    "HOST_TO_DEVICE": "HtoD",
    "DEVICE_TO_HOST": "DtoH",
    "DEVICE_TO_DEVICE": "DtoD",
    "HOST_TO_HOST": "HtoH",
}
#: Error message for a profile that has no events.
NOTHING = "has no kernel, copy, HIP call or ROCTx range"
NEXT_STEP = (
    "record with rocprofv3 --runtime-trace -- python … (before ROCm 7, add --output-format json), "
    "or give a torch.profiler JSON"
)


#: Pattern of the beginning of a CSV file of kernels; columns that every kernel must fill.
_BEGINS = re.compile(rb'"?Kind"?,"?Agent_Id"?,"?Queue_Id"?,')
_COLUMNS = ("Agent_Id", "Kernel_Name", "Start_Timestamp", "End_Timestamp")


def recognises(raw: RawFile) -> bool:
    if _BEGINS.match(raw.head.content):
        return True
    return raw.looks_like_json and isinstance(raw.json, dict) and ROOT in raw.json


def read(raw: RawFile) -> Profile:
    if _BEGINS.match(raw.head.content):
        return _read_csv(raw)
    processes = [_Process(given) for given in _objects(raw.json[ROOT])]
    events = [row for process in processes for row in process.rows()]
    if not events:
        raise ProfileError(raw.path, NOTHING, NEXT_STEP)
    origin_ns = min(event.start_ns for event in events)
    names = {number: name for process in processes for number, name in process.names.items()}
    facts = {number: of for process in processes for number, of in process.facts.items()}
    return Profile(
        format="rocprofv3",
        base_ns=None,  # times are ns since the machine started
        events=rows.table(events, origin_ns),
        device_names=names,
        device_facts={number: of_device for number, of_device in facts.items() if of_device},
        accelerators=tuple(dict.fromkeys(names.values())),
        notes=tuple(notes(sum(process.left_out for process in processes))),
    )


def notes(left_out: int) -> Iterator[str]:
    """Yield notes about the missing date and about omitted records."""
    yield rows.NO_DATE
    if left_out:
        yield f"{left_out} records without a valid time, name or device were left out"


class _Process:
    """One process, with the names and devices to which records refer."""

    def __init__(self, process: Mapping[str, Any]) -> None:
        strings = as_object(process.get("strings"))
        # a record's ``kind`` -> name of the kind, and names of the kind's operations
        self._operations = [as_object(kind) for kind in as_list(strings.get("buffer_records"))]
        # correlation id -> text of a ROCTx range
        self._texts = {
            rows.int64(text.get("key")): text.get("value")
            for text in _objects(strings.get("marker_api"))
        }
        self._kernels = {
            rows.int64(symbol.get("kernel_id")): symbol
            for symbol in _objects(process.get("kernel_symbols"))
        }
        self._records = as_object(process.get("buffer_records"))
        self.pid = rows.positive(as_object(process.get("metadata")).get("pid"))
        gpus = [a for a in _objects(process.get("agents")) if a.get("type") == _GPU]
        gpus.sort(key=lambda agent: rows.natural(agent.get("node_id")) or 0)
        self._devices = {_handle(agent.get("id")): n for n, agent in enumerate(gpus)}
        self.names = {
            n: _text(agent.get("product_name")) or _text(agent.get("name")) or "AMD GPU"
            for n, agent in enumerate(gpus)
        }
        self.facts = {
            number: rows.device_facts(
                None, None, agent.get("cu_count"), agent.get("wave_front_size")
            )
            for number, agent in enumerate(gpus)
        }
        for known in (self._texts, self._kernels, self._devices):
            known.pop(None, None)  # no record can refer to an object without a number
        self.left_out = 0

    def rows(self) -> Iterator[Row]:
        """Convert kernels, copies, HIP calls and ROCTx ranges to rows."""
        # omit ``hsa_api``, because HIP makes these calls
        readers = {
            "kernel_dispatch": self._kernel,
            "memory_copy": self._copy,
            "hip_api": self._call,
            "marker_api": self._range,
        }
        for name, reader in readers.items():
            for record in _objects(self._records.get(name)):
                timed = _timed(record)
                row = reader(record, *timed) if timed else None
                if row is not None:
                    yield row
                elif not self._is_unread(record):
                    self.left_out += 1

    def _kernel(self, record: Mapping[str, Any], start_ns: int, dur_ns: int) -> Row | None:
        info = as_object(record.get("dispatch_info"))
        symbol = self._kernels.get(rows.int64(info.get("kernel_id")), {})
        name = _text(symbol.get("formatted_kernel_name")) or _text(symbol.get("kernel_name"))
        device = self._devices.get(_handle(info.get("agent_id")))
        if not name or device is None:
            return None
        # use the hardware queue, because some versions record no HIP stream
        queue = _stream(record) if "stream_id" in record else _handle(info.get("queue_id"))
        return Row(
            "kernel",
            name.removesuffix(".kd"),
            start_ns,
            dur_ns,
            pid=self.pid,
            device=device,
            stream=queue,
            correlation_id=_correlation(record),
            launch_config=launched_with(
                _three(info.get("grid_size")),
                _three(info.get("workgroup_size")),
                rows.natural(info.get("group_segment_size")),
            ),
        )

    def _copy(self, record: Mapping[str, Any], start_ns: int, dur_ns: int) -> Row | None:
        direction = self._operation(record).removeprefix("MEMORY_COPY_")
        ends = (_handle(record.get(f"{end}_agent_id")) for end in ("dst", "src"))
        devices = [self._devices[end] for end in ends if end in self._devices]
        if direction not in COPIES or not devices:
            return None
        return Row(
            "memcpy",
            f"Memcpy {COPIES[direction]}",
            start_ns,
            dur_ns,
            pid=self.pid,
            device=devices[0],
            stream=_stream(record),
            correlation_id=_correlation(record),
            bytes=rows.natural(record.get("bytes")),
        )

    def _call(self, record: Mapping[str, Any], start_ns: int, dur_ns: int) -> Row | None:
        name, tid = self._operation(record), rows.natural(record.get("thread_id"))
        if not name or self._is_unread(record):
            return None
        correlation = _correlation(record)
        return Row("runtime", name, start_ns, dur_ns, self.pid, tid, correlation_id=correlation)

    def _range(self, record: Mapping[str, Any], start_ns: int, dur_ns: int) -> Row | None:
        text = _text(self._texts.get(_correlation(record)))
        if not text or self._is_unread(record):
            return None
        range_ = nvtx_range(text)
        tid = rows.natural(record.get("thread_id"))
        row = Row(range_.kind, range_.name, start_ns, dur_ns, self.pid, tid)
        return row._replace(external_id=range_.external_id, shapes=range_.shapes)

    def _kind(self, record: Mapping[str, Any]) -> Mapping[str, Any]:
        number = rows.natural(record.get("kind"))
        has_kind = number is not None and number < len(self._operations)
        return self._operations[number] if has_kind and number is not None else {}

    def _operation(self, record: Mapping[str, Any]) -> str:
        """Return the name of a record's operation, or an empty text."""
        names = as_list(self._kind(record).get("operations"))
        number = rows.natural(record.get("operation"))
        return _text(names[number]) if number is not None and number < len(names) else ""

    def _is_unread(self, record: Mapping[str, Any]) -> bool:
        """Return whether to skip a record: a compiler's call, or a marker that is no range."""
        kind, operation = _text(self._kind(record).get("kind")), self._operation(record)
        if kind.startswith("MARKER"):
            return "RANGE" not in kind and "Range" not in operation
        return kind.startswith("HIP_COMPILER_API")


def _objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects in a list; a single object counts as a list of one."""
    return [value] if isinstance(value, dict) else objects(value)


def _text(value: Any) -> str:
    return rows.clean(value) if isinstance(value, str) else ""


def _handle(value: Any) -> int | None:
    return rows.natural(as_object(value).get("handle"))


def _stream(record: Mapping[str, Any]) -> int | None:
    return _handle(record.get("stream_id"))


def _timed(record: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return (start, length) in ns, or None if a time is invalid."""
    start_ns = rows.natural(record.get("start_timestamp"))
    end_ns = rows.natural(record.get("end_timestamp"))
    if start_ns is None or end_ns is None or not start_ns <= end_ns <= rows.MAX_NS:
        return None
    return start_ns, end_ns - start_ns


def _correlation(record: Mapping[str, Any]) -> int | None:
    """Return the id of a launch, which is unique only within the process."""
    return rows.positive(as_object(record.get("correlation_id")).get("internal"))


def launched_with(
    threads: Sequence[int] | None, block: Sequence[int] | None, shared_bytes: int | None
) -> str | None:
    """Encode a kernel's launch configuration from HSA's sizes, which count threads."""
    sizes = zip(threads or (), block or (), strict=False)
    return launch_config.text(
        {
            # convert the size to blocks, because HSA counts threads
            "grid": [-(-total // per_block) for total, per_block in sizes] or None,
            "block": block,
            "shared_bytes": shared_bytes,
        }
    )


def _three(value: Any) -> list[int] | None:
    sizes = [rows.positive(as_object(value).get(axis)) for axis in "xyz"]
    positive = [size for size in sizes if size is not None]
    return positive if len(positive) == len(sizes) else None


def _read_csv(raw: RawFile) -> Profile:
    """Read ``*_kernel_trace.csv``, the default output before ROCm 7: only kernels."""
    reader = csv.DictReader(io.StringIO(raw.content.decode("utf-8", "replace"), newline=""))
    try:
        records = [record for record in reader if all(record.get(c) for c in _COLUMNS)]
    except csv.Error as error:
        raise ProfileError(raw.path, f"is damaged ({error})", NEXT_STEP) from error
    # sort by number: the first versions write ``10``, later versions write ``Agent 10``
    in_order = sorted({record["Agent_Id"] for record in records}, key=lambda a: (len(a), a))
    agents = {agent: number for number, agent in enumerate(in_order)}
    decoded = [_csv_row(record, agents) for record in records]
    events = [row for row in decoded if row is not None]
    if not events:
        raise ProfileError(raw.path, "has no kernel", NEXT_STEP)
    return Profile(
        format="rocprofv3",
        base_ns=None,
        events=rows.table(events, min(event.start_ns for event in events)),
        notes=(rows.NO_DATE,),
    )


def _csv_row(record: Mapping[str, str], agents: Mapping[str, int]) -> Row | None:
    start_ns, end_ns = (_number(record[f"{of}_Timestamp"]) for of in ("Start", "End"))
    name = rows.clean(record["Kernel_Name"]).removesuffix(".kd")
    if start_ns is None or end_ns is None or not start_ns <= end_ns <= rows.MAX_NS or not name:
        return None
    block = [_number(record.get(f"Workgroup_Size_{axis}")) or 1 for axis in "XYZ"]
    threads = [_number(record.get(f"Grid_Size_{axis}")) or 1 for axis in "XYZ"]
    return Row(
        "kernel",
        name,
        start_ns,
        end_ns - start_ns,
        device=agents[record["Agent_Id"]],
        # use the queue, because the first versions write no ``Stream_Id``
        stream=_number(record.get("Stream_Id") or record.get("Queue_Id")),
        correlation_id=_number(record.get("Correlation_Id")),
        launch_config=launched_with(threads, block, None),
    )


def _number(text: str | None) -> int | None:
    return rows.natural(int(text)) if text and text.isdecimal() and len(text) <= 19 else None
