"""Read Nsight Systems' SQLite exports, and reports that ``nsys export`` converts.

Any table or column may be missing. The lowest byte of a metric's ``typeId`` is the GPU's number in
``TARGET_INFO_GPU``. Pinned and pageable memory is host memory. Allocations before the first event
are not recorded. Source: https://docs.nvidia.com/nsight-systems/UserGuide/index.html, "SQLite
Schema Reference".
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lstmprof.base.errors import ForeignFileError, ProfileError, one_line
from lstmprof.base.scratch import temporary_folder
from lstmprof.events import Profile
from lstmprof.events.counters import BYTES, CHANGE, Collected, values_table
from lstmprof.formats import rows
from lstmprof.formats.cuda import database_tables
from lstmprof.formats.cuda.database_tables import UNKNOWN, Database, Ints
from lstmprof.formats.cuda.events import Batch, CudaEvents, natural, positive
from lstmprof.formats.cuda.nsys_events import devices_of, events_of, whole_graphs
from lstmprof.formats.raw_file import OpenFile, RawFile

_METRICS, _METRIC_NAMES = "GPU_METRICS", "TARGET_INFO_GPU_METRICS"
_METRIC_COLUMNS = ("timestamp", "typeId", "metricId", "value")
_GPU_BITS = 0xFF
#: Id of one metric of one GPU: (typeId, metricId).
_Metric = tuple[int, int]


def add_gpu_metrics(database: Database, devices: Mapping[int, int], collected: Collected) -> int:
    """Collect GPU metrics; return how many values were omitted."""
    if _METRICS not in database.columns:
        return 0
    names, left_out = _metric_names(database), 0
    for read in database.int_chunks(_METRICS, *_METRIC_COLUMNS):
        pairs, codes = np.unique(
            np.stack([read["typeId"], read["metricId"]]), axis=1, return_inverse=True
        )
        metrics: list[_Metric] = [(type_id, metric) for type_id, metric in pairs.T.tolist()]
        device = np.array([devices.get(of & _GPU_BITS, UNKNOWN) for of, _ in metrics], np.int64)
        named = np.array([metric in names for metric in metrics], np.bool_)
        codes, time_ns, value = codes.reshape(-1), read["timestamp"], read["value"]
        complete = (named & (device != UNKNOWN))[codes] & (value != UNKNOWN)
        complete &= (np.abs(time_ns) <= rows.MAX_NS) & (time_ns != UNKNOWN)
        left_out += int((~complete).sum())
        if complete.any():
            texts = pa.array([names.get(metric) for metric in metrics], pa.string())
            collected.add(
                values_table(
                    time_ns=time_ns[complete],
                    device=device[codes[complete]],
                    name=texts.take(pa.array(codes[complete])).dictionary_encode(),
                    value=value[complete].astype(np.float64),
                )
            )
    return left_out


def _metric_names(database: Database) -> dict[_Metric, str]:
    if not {"typeId", "metricId", "metricName"} <= database.columns.get(_METRIC_NAMES, frozenset()):
        return {}
    read = database.ints(_METRIC_NAMES, "typeId", "metricId")
    numbers = zip(read["typeId"].tolist(), read["metricId"].tolist(), strict=True)
    names = zip(numbers, database.texts(_METRIC_NAMES, "metricName"), strict=True)
    return {number: rows.clean(name) for number, name in names if name}


_MEMORY = "CUDA_GPU_MEMORY_USAGE_EVENTS"
_MEMORY_COLUMNS = ("start", "globalPid", "deviceId", "bytes", "memKind", "memoryOperationType")
_ALLOCATION, _FREE = 0, 1
_HOST_KINDS = (0, 1)  # pageable, pinned


def add_memory(
    database: Database, renumbered: Callable[[Batch], Batch], collected: Collected
) -> int:
    """Collect allocations and frees; return how many incomplete events were omitted."""
    if _MEMORY not in database.columns:
        return 0
    incomplete = 0
    for read in database.int_chunks(_MEMORY, *_MEMORY_COLUMNS):
        start, size, operation = read["start"], read["bytes"], read["memoryOperationType"]
        complete = (np.abs(start) <= rows.MAX_NS) & (start != UNKNOWN) & (size >= 0)
        complete &= np.isin(operation, (_ALLOCATION, _FREE))
        incomplete += int((~complete).sum())
        if complete.any():
            complete_rows = {name: values[complete] for name, values in read.items()}
            collected.add(_changes(complete_rows, renumbered))
    return incomplete


def _changes(read: Mapping[str, Ints], renumbered: Callable[[Batch], Batch]) -> pa.Table:
    pid = np.where(read["globalPid"] == UNKNOWN, 0, positive(read["globalPid"] >> 24 & 0xFFFFFF))
    placed = renumbered(Batch({"pid": pid, "device": natural(read["deviceId"])}, {})).ints
    on_host = np.isin(read["memKind"], _HOST_KINDS)
    sign = np.where(read["memoryOperationType"] == _FREE, -1.0, 1.0)
    return values_table(
        time_ns=read["start"],
        pid=pa.array(pid, mask=pid <= 0),
        device=pa.array(placed["device"], mask=on_host | (placed["device"] < 0)),
        name=CHANGE,
        unit=BYTES,
        value=sign * read["bytes"],
    )


#: Endings of Nsight Systems' report files, which only an installed ``nsys`` can read.
REPORTS = (".nsys-rep", ".qdrep")
_BY_HAND = "run nsys export --type sqlite on a machine that has nsys, and give the .sqlite file"
_NEWER = "run nsys export --type sqlite with the nsys that recorded the report, or a newer nsys"
_NEXT_STEP = "profile with nsys profile --trace=cuda,nvtx"
_META_DATA = ("META_DATA_EXPORT", "EXPORT_META_DATA")
_NSYS_TABLES = (*_META_DATA, "StringIds", "NVTX_EVENTS")
_CUPTI = "CUPTI_ACTIVITY_KIND_"
_ANY_OF = (*_NSYS_TABLES, f"{_CUPTI}KERNEL", f"{_CUPTI}RUNTIME", "StringTable")
_VERSIONS = {
    "EXPORT_PRODUCT_NAME": "product",
    "EXPORT_PRODUCT_VERSION": "product_version",
    "EXPORT_SCHEMA_VERSION": "schema_version",
}
#: Values of ENUM_DIAGNOSTIC_SEVERITY_LEVEL that mean a warning or an error.
_SERIOUS = (2, 3)
_ABOUT_CUDA = ("CUDA", "CUPTI", "NVTX")
_MAX_COMPLAINTS = 3


def recognises(raw: RawFile) -> bool:
    """Return whether the file is a report or an SQLite export of Nsight Systems."""
    tables = database_tables.names(raw, _ANY_OF)
    if any(name in _NSYS_TABLES or name.startswith(_CUPTI) for name in tables):
        return "StringTable" not in tables  # which a database of nvprof has
    return str(raw.path).removesuffix(".gz").endswith(REPORTS) and not raw.looks_like_json


def read(raw: RawFile) -> Profile:
    return _read_export(raw) if database_tables.is_sqlite(raw) else _read_report(raw)


def _read_report(raw: RawFile) -> Profile:
    tool = shutil.which("nsys")
    if tool is None:
        fault = (
            "is an Nsight Systems report, which only nsys can export, and nsys is not on the PATH"
        )
        raise ForeignFileError(raw.path, fault, _BY_HAND)
    with raw.on_disk() as original, temporary_folder() as folder:
        report, database = folder / "report.nsys-rep", folder / "report.sqlite"
        report.symlink_to(original.resolve())  # nsys recognises reports by their ending
        done = subprocess.run(
            export_command(tool, report, database),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if done.returncode or not database.is_file():
            printed = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()
            why = f" ({printed[-1]})" if printed else ""
            raise ProfileError(raw.path, f"nsys could not export the report{why}", _NEWER)
        return _read_export(RawFile(raw.path, OpenFile(database)))


def export_command(tool: str, report: Path, database: Path) -> list[str]:
    switches = ["--type=sqlite", "--force-overwrite=true", f"--output={database}"]
    return [tool, "export", *switches, str(report)]


def _read_export(raw: RawFile) -> Profile:
    with database_tables.opened(raw) as database:
        devices = devices_of(database)
        recorded = events_of(database, devices)
        complaints = _complaints(database)
        graphs = whole_graphs(database)
        started_ns = _started_ns(database)
        counted = Collected()
        odd = add_memory(database, devices.renumbered, counted)
        unplaced = add_gpu_metrics(database, devices.by_gpu, counted)
        origin_ns = recorded.origin_ns
        if origin_ns is None or recorded.columns is None:
            why = f" ({complaints[0]})" if complaints else ""
            raise ProfileError(raw.path, f"has no CUDA call and no NVTX range{why}", _NEXT_STEP)
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
                *_more_notes(recorded, graphs, complaints, odd, unplaced),
            ),
            metadata=_metadata(database),
            counters=counted.counters().shifted(-origin_ns),
        )


def _more_notes(
    recorded: CudaEvents, graphs: int, complaints: list[str], allocations: int, values: int
) -> Iterator[str]:
    """Yield notes about missing kernels, allocations and GPU metrics."""
    if not recorded.activities:
        yield from (f"the profiler logged: {line}" for line in complaints[1:])
    if graphs:
        yield (
            f"the kernels of {graphs} CUDA graphs were not recorded; add "
            "--cuda-graph-trace=node to nsys"
        )
    if allocations:
        yield f"{allocations} allocations or frees without time, size or kind were left out"
    if values:
        yield (
            f"{values} GPU metric values were left out, because they lack a name, time or number,"
            " or belong to a GPU that the program does not use"
        )


def _started_ns(database: Database) -> int | None:
    """Return the session's start in ns since 1970; other times count from this start."""
    table = "TARGET_INFO_SESSION_START_TIME"
    if table not in database.columns:
        return None
    started = database.ints(table, "utcEpochNs")["utcEpochNs"].tolist()
    return rows.positive(started[0]) if started else None


def _complaints(database: Database) -> list[str]:
    table = "DIAGNOSTIC_EVENT"
    if table not in database.columns:
        return []
    severity = database.ints(table, "severity")["severity"].tolist()
    texts = [one_line(text or "")[:200] for text in database.texts(table, "text")]
    messages = [text for level, text in zip(severity, texts, strict=False) if level in _SERIOUS]
    about = [text for text in messages if any(word in text for word in _ABOUT_CUDA)]
    return list(dict.fromkeys(about))[:_MAX_COMPLAINTS]


def _metadata(database: Database) -> dict[str, Any]:
    """Return the versions of Nsight Systems and of the export's schema."""
    for table in _META_DATA:
        if {"name", "value"} <= database.columns.get(table, frozenset()):
            names, values = database.texts(table, "name"), database.texts(table, "value")
            written = dict(zip(names, values, strict=True))
            return {key: written[name] for name, key in _VERSIONS.items() if written.get(name)}
    return {}
