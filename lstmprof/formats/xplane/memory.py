"""Memory of an XPlane: what each allocator of the framework had given out, and each change of it.

An allocator of TensorFlow or JAX marks every allocation and free on the thread that made it, by an
instant ``MemoryAllocation`` or ``MemoryDeallocation`` with its name, the size of the block, and
what is allocated after it. ``GPU_<n>_bfc`` has memory of GPU n, as the framework numbers them; the
others have the host's (``gpu_host_bfc``: pinned; ``mklcpu``: blocks of 256 KiB and more, smaller
ones are not marked), or their names do not say whose. The runtime of a TPU writes the number of the
device in place of a name, and no size of a free, so that its single allocations are left out.
``bytes_reserved`` is a TPU's stack, and not what an allocator had of the device. Source:
``BFCAllocator::AddTraceMe`` in ``xla/tsl/framework/bfc_allocator.cc``,
``xla/pjrt/gpu/gpu_helpers.cc``, ``xprof/convert/xplane_to_memory_profile.cc``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lstmprof.events.counters import ALLOCATED, BYTES, CHANGE, READ, sorted_by_time
from lstmprof.events.intervals import Flags, Ints
from lstmprof.formats import rows
from lstmprof.formats.xplane import wire
from lstmprof.formats.xplane.events import (
    ALLOCATOR_NAME,
    DEVICE_NUMBERS,
    FREE,
    MEMORY_STATS,
    PlaneTables,
    text,
)
from lstmprof.formats.xplane.wire import Events, Stats

_NONE = -1
_SIZES = ("bytes_allocated", "allocation_bytes")
_ON_GPU = re.compile(r"GPU_(?:collectivememory_)?(\d{1,9})_bfc", re.ASCII)


@dataclass(frozen=True)
class _Marks:
    """Allocations and frees; a number that is not told is below 0."""

    time_ns: Ints
    is_free: Flags
    allocator: list[str | None]
    device: Ints
    allocated: Ints
    size: Ints


def of_messages(tables: PlaneTables, timed: Iterable[tuple[int, Any]]) -> pa.Table | None:
    """The counters in these events of a host thread, each with its time; None: there is none."""
    found = list(_described(tables, timed))
    if not found:
        return None
    time_ns, is_free, stats = zip(*found, strict=True)
    numbers = {
        name: np.array([_natural(of_event.get(name)) for of_event in stats], dtype=np.int64)
        for name in MEMORY_STATS
        if name != ALLOCATOR_NAME
    }
    names = [of_event.get(ALLOCATOR_NAME) for of_event in stats]
    return _counters(
        _marks(
            np.array(time_ns, dtype=np.int64),
            np.array(is_free, dtype=np.bool_),
            [name if isinstance(name, str) else None for name in names],
            numbers,
        )
    )


def _described(
    tables: PlaneTables, timed: Iterable[tuple[int, Any]]
) -> Iterator[tuple[int, bool, dict[str, Any]]]:
    for time_ns, event in timed:
        name = tables.memory_events.get(event.metadata_id)
        if name is not None:
            known = (s for s in event.stats if s.metadata_id in tables.memory_stats)
            stats = {tables.memory_stats[s.metadata_id]: tables.value(s) for s in known}
            yield time_ns, name == FREE, stats


def _natural(value: object) -> int:
    number = rows.natural(value) if isinstance(value, int) else None
    return _NONE if number is None else number


def of_columns(
    tables: PlaneTables, content: bytes, events: Events, time_ns: Ints, is_timed: Flags
) -> pa.Table | None:
    """As ``of_messages``, of the events in ``content``."""
    marked = np.isin(events.metadata_id, list(tables.memory_events))
    hits = np.flatnonzero(marked & is_timed)
    if not len(hits):
        return None
    row = np.full(len(marked), _NONE)
    row[hits] = np.arange(len(hits))
    stats = events.stats.only(row[events.stats.event] != _NONE)
    owner = row[stats.event]
    numbers: dict[str, Ints] = {}
    names: list[str | None] = []
    for name in MEMORY_STATS:
        is_it = np.isin(stats.metadata_id, [n for n, s in tables.memory_stats.items() if s == name])
        if name == ALLOCATOR_NAME:
            names = _names(tables, content, owner[is_it], stats.only(is_it), len(hits))
        else:
            numbers[name] = np.full(len(hits), _NONE)
            numbers[name][owner[is_it]] = _whole(stats.only(is_it))
    frees = [number for number, name in tables.memory_events.items() if name == FREE]
    is_free = np.isin(events.metadata_id[hits], frees)
    return _counters(_marks(time_ns[hits], is_free, names, numbers))


def _whole(stats: Stats) -> Ints:
    is_whole = (stats.field == wire.UINT64) | (stats.field == wire.INT64)
    return np.where(is_whole, stats.value, _NONE)


def _names(
    tables: PlaneTables, content: bytes, owner: Ints, stats: Stats, count: int
) -> list[str | None]:
    names: list[str | None] = [None] * count
    columns = (owner, stats.field, stats.value, stats.length)
    for place, field, value, length in zip(*(c.tolist() for c in columns), strict=True):
        if field == wire.REF:
            names[place] = tables.stat_name(value)
        else:
            is_text = field == wire.TEXT
            names[place] = text(content[value : value + length]) if is_text else None
    return names


def _marks(
    time_ns: Ints, is_free: Flags, allocator: list[str | None], numbers: dict[str, Ints]
) -> _Marks:
    device = np.full(len(time_ns), _NONE)
    for name in DEVICE_NUMBERS:
        device = np.where(numbers[name] >= 0, numbers[name], device)
    allocated, size = (numbers[name] for name in _SIZES)
    return _Marks(time_ns, is_free, allocator, device, allocated, size)


def _counters(marks: _Marks) -> pa.Table | None:
    named = pa.array(marks.allocator, pa.string()).dictionary_encode()
    codes = named.indices.fill_null(_NONE).to_numpy().astype(np.int64)
    of_name = [_device(name) for name in named.dictionary.to_pylist()]
    is_named = codes != _NONE
    device = np.where(is_named, np.array([*of_name, _NONE])[codes], marks.device)
    placed = is_named | (device >= 0)
    told = (placed & (marks.allocated >= 0), is_named & (marks.size >= 0))
    events = [np.flatnonzero(where) for where in told]
    event = np.concatenate(events)
    if not len(event):
        return None
    is_change = np.repeat([0, 1], [len(of) for of in events])
    sizes = marks.allocated, np.where(marks.is_free, -marks.size, marks.size)
    value = np.concatenate([size[of] for size, of in zip(sizes, events, strict=True)])
    order = np.argsort(event, kind="stable")
    event, is_change, value = event[order], is_change[order].astype(np.int32), value[order]
    cleaned = [rows.clean(name) for name in named.dictionary.to_pylist()]
    columns = {
        "time_ns": marks.time_ns[event],
        "pid": pa.nulls(len(event), pa.int64()),
        "device": pa.array(device[event], mask=device[event] < 0),
        "name": pa.DictionaryArray.from_arrays(is_change, pa.array([ALLOCATED, CHANGE])),
        "unit": pa.DictionaryArray.from_arrays(np.zeros(len(event), np.int32), pa.array([BYTES])),
        "value": value.astype(np.float64),
        "allocator": pa.DictionaryArray.from_arrays(
            named.indices.take(pa.array(event)), pa.array(cleaned, pa.string())
        ),
    }
    return sorted_by_time(pa.table(columns, schema=READ))


def _device(allocator: str) -> int:
    """The number of the GPU whose memory it is, ``_NONE`` where it is not of a GPU."""
    named = _ON_GPU.fullmatch(allocator)
    return int(named[1]) if named else _NONE
