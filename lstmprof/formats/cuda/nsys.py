"""Nsight Systems: the SQLite database that ``nsys export --type sqlite`` writes.

::

    tables ─ nsys_devices, nsys_events, memory, gpu_metrics ─▶ Profile

Each table may lack, or lack columns:
https://docs.nvidia.com/nsight-systems/UserGuide/index.html#sqlite-schema-reference
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lstmprof.errors import ProfileError, one_line
from lstmprof.events import Profile
from lstmprof.events.counters import Collected
from lstmprof.formats import rows
from lstmprof.formats.cuda import sqlite
from lstmprof.formats.cuda.events import CudaEvents
from lstmprof.formats.cuda.gpu_metrics import add_gpu_metrics
from lstmprof.formats.cuda.memory import add_memory
from lstmprof.formats.cuda.nsys_devices import devices_of
from lstmprof.formats.cuda.nsys_events import events_of, whole_graphs
from lstmprof.formats.cuda.tables import Tables
from lstmprof.formats.raw_file import RawFile

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
    devices = devices_of(database)
    recorded = events_of(database, devices)
    complaints = _complaints(database)
    graphs = whole_graphs(database)
    started_ns = _started_ns(database)
    counted = Collected()
    odd = add_memory(database, devices.renumbered, counted)
    unplaced = add_gpu_metrics(database, devices.of_gpus, counted)
    origin_ns = recorded.origin_ns
    if origin_ns is None or recorded.columns is None:
        why = f" ({complaints[0]})" if complaints else ""
        raise ProfileError(path, f"has no CUDA call and no NVTX range{why}", _NEXT_STEP)
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


def _missing(recorded: CudaEvents, graphs: int, complaints: list[str]) -> Iterator[str]:
    """What the profiler complained of where it recorded no activity, and graphs it did not open."""
    if not recorded.activities:
        yield from (f"the profiler logged: {line}" for line in complaints[1:])
    if graphs:
        yield (
            f"the kernels of {graphs} CUDA graphs were not recorded; add "
            "--cuda-graph-trace=node to nsys"
        )


def _without_size(allocations: int) -> Iterator[str]:
    if allocations:
        yield f"{allocations} allocations or frees without time, size or kind were left out"


def _without_place(values: int) -> Iterator[str]:
    if values:
        yield (
            f"{values} GPU metric values were left out: no name, time or number, or a GPU that the"
            " program does not use"
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
