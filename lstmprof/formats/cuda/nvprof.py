"""nvprof: the SQLite database that ``nvprof -o`` writes, up to CUDA 12.

To know when reading the events:

- Times count from 1970. One file holds one process, so that activities need no ``pid``.
- Names of kernels are mangled, as the compiler wrote them; those of calls come from their numbers.
- A ``range`` is an NVTX range, from its start and its end marker; an ``op`` is one that
  ``emit_nvtx`` wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from lstmprof.errors import ProfileError
from lstmprof.events import Profile
from lstmprof.formats import rows
from lstmprof.formats.cuda import nvprof_tables, roles, sqlite
from lstmprof.formats.cuda.roles import CudaEvents
from lstmprof.formats.cuda.sqlite import Database
from lstmprof.formats.raw_file import RawFile

_NEXT_STEP = "profile with nvprof -o FILE python …, or with nsys profile --trace=cuda,nvtx"
_KERNELS = ("CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", "CUPTI_ACTIVITY_KIND_KERNEL")
_STRINGS = "StringTable"
_DEVICES = "CUPTI_ACTIVITY_KIND_DEVICE"
#: 2001-09-09: a later time is a date, an earlier one an uptime.
_EPOCH_FLOOR_NS = 10**18


def recognises(raw: RawFile) -> bool:
    """Whether ``raw`` is an SQLite database with nvprof's strings and a table of kernels."""
    names = sqlite.names(raw, (*_KERNELS, _STRINGS))
    return _STRINGS in names and any(name in names for name in _KERNELS)


def read(raw: RawFile) -> Profile:
    """The profile in a database of nvprof.

    Raises:
        ProfileError: it is damaged, or holds neither a CUDA call or activity nor an NVTX range.
    """
    with sqlite.opened(raw) as database:
        strings = database.strings(_STRINGS, "_id_", "value")
        found = _events(database, strings)
        device_names = _device_names(database, strings)
        versions = database.ints("Version", "version") if "Version" in database.columns else {}
    origin_ns = found.origin_ns
    if origin_ns is None:
        raise ProfileError(raw.path, "the session holds no CUDA call and no NVTX range", _NEXT_STEP)
    version = [rows.positive(v) for values in versions.values() for v in values.tolist()]
    return Profile(
        format="nvprof",
        base_ns=origin_ns if origin_ns >= _EPOCH_FLOOR_NS else None,
        events=found.table(origin_ns),
        device_names=device_names,
        notes=(*found.notes(), *_missing(found)),
        metadata={"schema_version": version[0]} if version and version[0] else {},
    )


def _events(database: Database, strings: Mapping[int, str]) -> CudaEvents:
    return roles.gathered(
        busy=list(nvprof_tables.activities(database, strings)),
        calls=list(nvprof_tables.calls(database)),
        ranges=nvprof_tables.ranges(database, strings),
        others=[*nvprof_tables.synchronizations(database), *nvprof_tables.overheads(database)],
    )


def _missing(found: CudaEvents) -> Iterator[str]:
    """What the user must be told is not there, and how to record it."""
    if not found.activities:
        calls = f"{found.launches} CUDA calls were recorded but " if found.launches else ""
        yield f"{calls}no CUDA activity was recorded: {_NEXT_STEP}"
    elif not any(map(len, found.ranges)):
        yield (
            "no NVTX range was recorded: nothing says what the kernels are for; mark the steps, or"
            " run under torch.autograd.profiler.emit_nvtx"
        )


def _device_names(database: Database, strings: Mapping[int, str]) -> dict[int, str]:
    if _DEVICES not in database.columns:
        return {}
    read = database.ints(_DEVICES, "id", "name")
    found = zip(np.maximum(read["id"], -1).tolist(), read["name"].tolist(), strict=True)
    return {number: strings[name] for number, name in found if name in strings and number >= 0}
