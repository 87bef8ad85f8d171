"""Memory and other counters of a Kineto trace.

Memory (``profile_memory=True``) is an instant called ``[memory]`` for every allocation and free:
its ``Bytes``, below 0 of a free, and since 2022 what the allocator of the device had given out then
and what it had reserved. torch's allocator of the host reserves nothing and writes 0, which is none
here. Source: ``torch/csrc/autograd/profiler_kineto.cpp``, ``c10/core/DeviceType.h``. Other counters
are ``"ph": "C"`` of the trace event format, a value a series.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable
from operator import attrgetter
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa

from lstmprof.events.counters import (
    ALLOCATED,
    BYTES,
    CHANGE,
    READ,
    RESERVED,
    Count,
    sorted_by_time,
)
from lstmprof.events.intervals import Ints
from lstmprof.formats import rows
from lstmprof.formats.kineto.events import interval

MEMORY = "[memory]"
INSTANT, COUNTER = "i", "C"
#: The number of the CPU among torch's types of devices.
_HOST = 0
_TYPE, _DEVICE = "Device Type", "Device Id"
_SIZES = {"Total Allocated": ALLOCATED, "Total Reserved": RESERVED, "Bytes": CHANGE}
_NUMBER = re.compile(r"-?\d{1,300}(\.\d*)?([eE][+-]?\d{1,3})?", re.ASCII)
#: A series that says no more than the counter's own name.
_PLAIN = ("", "value")


def counts(event: dict[str, Any]) -> list[Count] | str:
    """The values in an event that is no interval, or what is wrong with them."""
    phase, name = event.get("ph"), event.get("name")
    is_memory = phase == INSTANT and name == MEMORY
    args = event.get("args")
    if not (is_memory or phase == COUNTER) or not isinstance(args, dict):
        return []
    timed = interval({**event, "dur": 0})
    if isinstance(timed, str):
        return timed
    if is_memory:
        return _memory(timed[0], rows.positive(event.get("pid")), args)
    return _series(timed[0], rows.positive(event.get("pid")), str(name or ""), args)


def _memory(time_ns: int, pid: int | None, args: dict[str, Any]) -> list[Count] | str:
    sort, device = rows.int64(args.get(_TYPE)), rows.natural(args.get(_DEVICE))
    on_host = sort == _HOST or (sort is None and device is None)
    if not on_host and device is None:
        return "they name no device"
    found = []
    for key, name in _SIZES.items():
        size = rows.int64(args.get(key))
        if size is None or (name != CHANGE and size < 0) or (name == RESERVED and on_host):
            continue
        found.append(Count(time_ns, pid, None if on_host else device, name, BYTES, float(size)))
    return found


def _series(time_ns: int, pid: int | None, name: str, args: dict[str, Any]) -> list[Count]:
    return [
        Count(time_ns, pid, None, rows.clean(_named(name, series)), None, _number(value))
        for series, value in args.items()
    ]


def _named(name: str, series: str) -> str:
    return name if series in (name, *_PLAIN) else f"{name}: {series}" if name else series


def _number(value: object) -> float | None:
    """A JSON number: an int, or the text of a float."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return None
    if not _NUMBER.fullmatch(str(value)):
        return None
    number = float(value)
    return number if math.isfinite(number) else None


_NONE = -(2**63)
#: An integer other than that one: where it is written the record is not decoded.
_Integer = Annotated[int, msgspec.Meta(ge=_NONE + 1)]


class _Memory(msgspec.Struct, gc=False, frozen=True):
    """What one allocation or free says; ``_NONE``: it does not."""

    sort: _Integer = msgspec.field(name="Device Type", default=_NONE)
    device: _Integer = msgspec.field(name="Device Id", default=_NONE)
    allocated: _Integer = msgspec.field(name="Total Allocated", default=_NONE)
    reserved: _Integer = msgspec.field(name="Total Reserved", default=_NONE)
    change: _Integer = msgspec.field(name="Bytes", default=_NONE)


_decode = msgspec.json.Decoder(list[_Memory]).decode


def memory_table(time_ns: Ints, pid: Ints, args: Iterable[msgspec.Raw]) -> pa.Table | None:
    """As ``counts`` of all ``[memory]`` events at once; None where one is written in an odd way.

    ``pid`` is 0 or less where there is none.
    """
    try:
        decoded = _decode(b"[" + b",".join(args) + b"]")
        fields = [attrgetter(name) for name in _Memory.__struct_fields__]
        sort, device, *sizes = (_packed(list(map(field, decoded))) for field in fields)
    except (msgspec.DecodeError, struct.error, RecursionError):
        return None
    on_host = (sort == _HOST) | ((sort == _NONE) & (device < 0))
    if (~on_host & (device < 0)).any():
        return None
    allocated, reserved, change = sizes
    told = (allocated >= 0, (reserved >= 0) & ~on_host, change != _NONE)
    event, name = (np.concatenate(c) for c in zip(*map(_places, range(3), told), strict=True))
    value = np.concatenate([size[where] for size, where in zip(sizes, told, strict=True)])
    order = np.argsort(event, kind="stable")
    event, name, value = event[order], name[order], value[order]
    units = np.zeros(len(event), dtype=np.int32)
    columns = {
        "time_ns": time_ns[event],
        "pid": pa.array(pid[event], mask=pid[event] <= 0),
        "device": pa.array(device[event], mask=on_host[event]),
        "name": pa.DictionaryArray.from_arrays(name, pa.array(_SIZES.values())),
        "unit": pa.DictionaryArray.from_arrays(units, pa.array([BYTES])),
        "value": value.astype(np.float64),
        "allocator": pa.nulls(len(event), READ.field("allocator").type),
    }
    return sorted_by_time(pa.table(columns, schema=READ))


def _places(number: int, where: np.ndarray) -> tuple[Ints, np.ndarray]:
    events = np.flatnonzero(where)
    return events, np.full(len(events), number, dtype=np.int32)


def _packed(values: list[int]) -> Ints:
    """``values`` as an array.

    Raises:
        struct.error: one is no int64.
    """
    return np.frombuffer(struct.pack(f"{len(values)}q", *values), dtype=np.int64)
