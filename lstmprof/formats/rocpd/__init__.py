"""AMD's rocpd: the SQLite database that rocprofv3 writes since ROCm 7 (``--output-format rocpd``).

::

    tables of each process ─ process, events ─▶ Profile, as of the same run's JSON (rocprofv3)

Each process has tables of its own, named by its guid: ``rocpd_region_00003fdc_92cb_…``. A file of
rocprofv3 holds one process, one that ``rocpd merge`` wrote several. What ``rocprofv3`` says of its
JSON holds here, too. An instant, so a call of no length, stands in a table that is not read.

Source: source/share/rocprofiler-sdk-rocpd and source/lib/output/generateRocpd.cpp of
ROCm/rocprofiler-sdk, its schema 3.0.0 to 3.0.5, and 13 published databases of schema 3, which hold
kernels and calls of HIP; copies, ranges, graphs and merged files are read by the source.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from lstmprof.errors import ProfileError, one_line
from lstmprof.events import Profile
from lstmprof.formats import rocprofv3, rows
from lstmprof.formats.cuda import sqlite
from lstmprof.formats.cuda.events import CudaEvents, gathered
from lstmprof.formats.cuda.sqlite import Database
from lstmprof.formats.raw_file import RawFile
from lstmprof.formats.rocpd.events import Events
from lstmprof.formats.rocpd.process import Gpu, Process

_OWN = ("rocpd_kernel_dispatch", "rocpd_memory_copy", "rocpd_region")
#: Of rocmProfileData (``rpd``), whose tables begin alike and are others.
_RPD = frozenset(("rocpd_api", "rocpd_op"))
_SCHEMA = "3"
_JSON = "record with rocprofv3 --runtime-trace --output-format json"
_EACH = "give each .db file separately"


def recognises(raw: RawFile) -> bool:
    """Whether ``raw`` is an SQLite database with tables that begin with ``rocpd_``."""
    return any(name.startswith("rocpd_") for name in sqlite.names(raw, _OWN))


def read(raw: RawFile) -> Profile:
    """The profile in a rocpd database.

    Raises:
        ProfileError: it is damaged, of another schema or of several machines, or holds no kernel,
            copy, call or range.
    """
    with sqlite.opened(raw) as database:
        return _profile(raw.path, database)


def _profile(path: Path | str, database: Database) -> Profile:
    _check_tables(path, database)
    processes = [Process(database, suffix) for suffix in _suffixes(database)]
    _check_processes(path, processes)
    gpus = _numbered(processes)
    numbers = {gpu.index: number for number, gpu in enumerate(gpus)}
    parts = [Events(process, numbers) for process in processes]
    recorded = _events(parts)
    left_out = recorded.untimed + sum(part.left_out for part in parts)
    notes = tuple(rocprofv3.notes(left_out))
    if recorded.origin_ns is None or recorded.columns is None:
        why = f" ({notes[-1]})" if left_out else ""
        raise ProfileError(path, rocprofv3.NOTHING + why, rocprofv3.NEXT_STEP)
    names = {number: gpu.name for number, gpu in enumerate(gpus)}
    return Profile(
        format="rocprofv3",
        base_ns=None,
        events=rows.moved(recorded.columns, recorded.origin_ns),
        device_names=names,
        device_facts={number: gpu.facts for number, gpu in enumerate(gpus) if gpu.facts},
        accelerators=tuple(dict.fromkeys(names.values())),
        notes=notes,
    )


def _events(parts: Sequence[Events]) -> CudaEvents:
    return gathered(
        busy=itertools.chain.from_iterable(part.activities() for part in parts),
        calls=itertools.chain.from_iterable(part.regions() for part in parts),
        ranges=(),
        others=(),
        last_times=tuple,
    )


def _suffixes(database: Database) -> list[str]:
    """What the names of each process's tables end with; empty of tables without a guid."""
    named = [(own, table) for own in _OWN for table in database.columns if table.startswith(own)]
    endings = {table.removeprefix(own) for own, table in named}
    return sorted(ending for ending in endings if not ending or ending.startswith("_"))


def _check_tables(path: Path | str, database: Database) -> None:
    """Refuse tables of another schema.

    Raises:
        ProfileError: they are rocmProfileData's, or of another version of the schema.
    """
    if _RPD & database.columns.keys():
        raise ProfileError(
            path, "is a rocmProfileData database, which lstmprof does not read", _JSON
        )
    for suffix in _suffixes(database):
        version = _schema_version(database, f"rocpd_metadata{suffix}")
        if version is not None and version.split(".")[0] != _SCHEMA:
            what = f"is a rocpd database of schema {one_line(version)[:24]}"
            raise ProfileError(path, f"{what}; lstmprof reads schema {_SCHEMA}", _JSON)
    for table, columns in database.columns.items():
        if table.startswith(_OWN) and not {"start", "end"} <= columns:
            what = f"its table {one_line(table)[:80]} has no columns start and end"
            raise ProfileError(path, what, _JSON)


def _schema_version(database: Database, table: str) -> str | None:
    if not {"tag", "value"} <= database.columns.get(table, frozenset()):
        return None
    pairs = zip(database.texts(table, "tag"), database.texts(table, "value"), strict=True)
    return dict(pairs).get("schema_version")


def _check_processes(path: Path | str, processes: Sequence[Process]) -> None:
    """Refuse processes whose times or numbers cannot be told apart.

    Raises:
        ProfileError: they ran on several machines, whose times count from their own starts, or two
            have the same number, as in containers.
    """
    machines = {nid for process in processes for nid in process.machines}
    if len(machines) > 1:
        what = f"has processes of {len(machines)} machines, whose clocks differ"
        raise ProfileError(path, what, _EACH)
    pids = Counter(pid for process in processes for pid in process.pids.values())
    twice = [pid for pid, count in pids.items() if count > 1]
    if twice:
        raise ProfileError(path, f"has two processes with the id {twice[0]}", _EACH)


def _numbered(processes: Sequence[Process]) -> list[Gpu]:
    """The GPUs of the machine, in the order of their nodes: each stands with every process."""
    gpus = {gpu.index: gpu for process in processes for gpu in process.gpus.values()}
    return [gpus[index] for index in sorted(gpus)]
