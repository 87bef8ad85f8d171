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
  how it waits, and would hide from the account that the thread was in that call; elsewhere a
  blocked thread is ``host`` or ``python`` without them too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lstmprof.errors import ProfileError, one_line
from lstmprof.events import Profile
from lstmprof.formats import rows
from lstmprof.formats.cuda import nsys_devices, nsys_tables, roles, sqlite
from lstmprof.formats.cuda.roles import CudaEvents
from lstmprof.formats.cuda.sqlite import Database
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


def recognises(raw: RawFile) -> bool:
    """Whether ``raw`` is an SQLite database with tables of Nsight Systems, not of nvprof."""
    names = sqlite.names(raw, _KNOWN)
    is_own = any(name in _OWN or name.startswith(_CUPTI) for name in names)
    return is_own and "StringTable" not in names


def read(raw: RawFile) -> Profile:
    """The profile in an export of Nsight Systems.

    Raises:
        ProfileError: it is damaged, or holds neither a CUDA call or activity nor an NVTX range.
    """
    with sqlite.opened(raw) as database:
        devices = nsys_devices.devices(database)
        found = _events(database, devices)
        complaints = _complaints(database)
        graphs = nsys_tables.whole_graphs(database)
        started_ns = _started_ns(database)
        metadata = _metadata(database)
    origin_ns = found.origin_ns
    if origin_ns is None:
        why = f" ({complaints[0]})" if complaints else ""
        raise ProfileError(
            raw.path, f"the capture holds no CUDA call and no NVTX range{why}", _NEXT_STEP
        )
    return Profile(
        format="nsys",
        base_ns=None if started_ns is None else rows.positive(started_ns + origin_ns),
        events=found.table(origin_ns),
        device_names=devices.names,
        notes=(*found.notes(), *_missing(found, graphs, complaints)),
        metadata=metadata,
    )


def _events(database: Database, devices: nsys_devices.Devices) -> CudaEvents:
    strings = database.strings("StringIds", "id", "value")
    busy = nsys_tables.activities(database, strings)
    waits = nsys_tables.synchronizations(database, busy)
    return roles.gathered(
        busy=[devices.renumbered(batch) for batch in busy],
        calls=list(nsys_tables.calls(database, strings)),
        ranges=nsys_tables.ranges(database, strings),
        others=[
            *(devices.renumbered(batch) for batch in waits),
            *nsys_tables.overheads(database, strings),
        ],
    )


def _missing(found: CudaEvents, graphs: int, complaints: list[str]) -> Iterator[str]:
    """What the user must be told is not there, and how to record it."""
    if not found.activities:
        calls = f"{found.launches} CUDA calls were recorded but " if found.launches else ""
        yield f"{calls}no CUDA activity was recorded: {_NEXT_STEP}"
        yield from (f"the profiler logged: {line}" for line in complaints)
    elif not any(map(len, found.ranges)):
        yield (
            "no NVTX range was recorded: nothing says what the kernels are for; mark the steps, or"
            f" run under torch.autograd.profiler.emit_nvtx, and {_NEXT_STEP}"
        )
    if graphs:
        yield (
            f"{graphs} CUDA graphs were recorded whole, not kernel by kernel: add"
            " --cuda-graph-trace=node"
        )


def _started_ns(database: Database) -> int | None:
    """When the session began, since 1970: what times are counted from."""
    table = "TARGET_INFO_SESSION_START_TIME"
    if table not in database.columns:
        return None
    started = database.ints(table, "utcEpochNs")["utcEpochNs"].tolist()
    return rows.positive(started[0]) if started else None


def _complaints(database: Database) -> list[str]:
    """The first of the profiler's warnings and errors about CUDA and NVTX."""
    table = "DIAGNOSTIC_EVENT"
    if table not in database.columns:
        return []
    severity = database.ints(table, "severity")["severity"].tolist()
    texts = [one_line(text or "")[:200] for text in database.texts(table, "text")]
    said = [text for level, text in zip(severity, texts, strict=False) if level in _SERIOUS]
    about = [text for text in said if any(word in text for word in _ABOUT_CUDA)]
    return list(dict.fromkeys(about))[:_MAX_COMPLAINTS]


def _metadata(database: Database) -> dict[str, Any]:
    """The version of Nsight Systems and of the export's schema, where they are written."""
    for table in _META_DATA:
        if {"name", "value"} <= database.columns.get(table, frozenset()):
            names, values = database.texts(table, "name"), database.texts(table, "value")
            written = dict(zip(names, values, strict=True))
            return {key: written[name] for name, key in _VERSIONS.items() if written.get(name)}
    return {}
