"""Convert one event of a Kineto trace to a row or to counter values."""

from __future__ import annotations

import contextlib
import json
import math
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from operator import attrgetter
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa

from lstmprof.events import launch_config
from lstmprof.events.counters import ALLOCATED, BYTES, CHANGE, RESERVED, Count, values_table
from lstmprof.events.intervals import Ints
from lstmprof.events.launch_config import element_bytes
from lstmprof.events.schema import ACTIVITY_KINDS, PHASES, PROGRAM
from lstmprof.formats import rows
from lstmprof.formats.raw_file import as_object
from lstmprof.formats.rows import Row

#: Kineto's lower-case category -> kind of event. Kineto invents times of ``cuda_profiler_range``.
KINDS = {
    "cpu_op": "op",
    "operator": "op",
    "user_annotation": "range",
    "gpu_user_annotation": "range",  # the device's copy of a host range
    "cuda_profiler_range": "range",
    "cuda_event": "range",
    "python_function": "python",
    "runtime": "runtime",
    "cuda_runtime": "runtime",
    "cuda_driver": "runtime",
    "kernel": "kernel",
    "memcpy": "memcpy",
    "gpu_memcpy": "memcpy",
    "memset": "memset",
    "gpu_memset": "memset",
    "cuda_sync": "device_sync",
    "overhead": "overhead",
}
ON_DEVICE = frozenset(
    (
        *("kernel", "memcpy", "gpu_memcpy", "memset", "gpu_memset", "cuda_sync"),
        *("gpu_user_annotation", "cuda_profiler_range", "cuda_event"),
    )
)
#: Kinds of events with a correlation id. ROCm traces of 2022 to 2024 store the correlation id
#: only as ``External id``.
CORRELATED = frozenset(("runtime", *ACTIVITY_KINDS))
#: Names of a kernel event's arguments, in the order of ``launched_with``'s parameters.
LAUNCHED_WITH = (
    *("block", "grid", "registers per thread", "shared memory"),
    *("est. achieved occupancy %", "Collective name", "In msg nelems", "Out msg nelems"),
    *("dtype", "Group size", "Process Group Name", "Process Group Description"),
)
#: Category of the profiler's own spans, which show no work of the program.
PROFILER_SPAN = "trace"

_STEP = re.compile(r"ProfilerStep#\d+|step")
#: Pattern of names of torch's ranges. In 2021, such ranges had the category of ops.
_TORCH_RANGE = re.compile(r"Optimizer\.\w+#|enumerate\(DataLoader\)#")
_OWN_RANGES = frozenset(("step", *PHASES, PROGRAM))
_STREAM = re.compile(r"(?:stream )?(\d{1,18})")

_FS_PER_US = 10**9
_FS_PER_NS = 10**6


@lru_cache(maxsize=16384)
def kind(category: str, name: str) -> str | None:
    """Return the kind of an event, such as ``op``, from its category and name."""
    usual = KINDS.get(category)
    if usual is None and category.endswith(("_runtime", "_driver")):  # of xpu, mtia …
        return "runtime"
    if usual in ("op", "range") and category not in ON_DEVICE:
        if name.startswith("ProfilerStep#") or usual == "range":
            return "step" if _STEP.fullmatch(name) else "range"
        if category == "operator" and (name in _OWN_RANGES or _TORCH_RANGE.match(name)):
            return "step" if _STEP.fullmatch(name) else "range"
    return usual


def femtoseconds(microseconds: object) -> int | None:
    """Convert Kineto's microseconds, such as 3 or ``"1.5"``, to femtoseconds."""
    if isinstance(microseconds, int) and not isinstance(microseconds, bool):
        return microseconds * _FS_PER_US
    if not isinstance(microseconds, str) or len(microseconds) > 64:
        return None
    whole, _, fraction = microseconds.partition(".")
    if (whole + fraction).isdecimal() and whole and microseconds.isascii():
        return int(whole) * _FS_PER_US + int(fraction[:9].ljust(9, "0"))
    try:
        exact = Decimal(microseconds)
    except InvalidOperation:
        return None
    if not exact.is_finite() or exact.adjusted() > 30:
        return None
    return int(exact.scaleb(9)) if exact.adjusted() > -30 else 0


def interval(event: dict[str, Any]) -> tuple[int, int] | str:
    """Return (start, length) in ns, or an error message if a time is unusable."""
    start = femtoseconds(event.get("ts"))
    if start is None:
        return "they have no readable start"
    length = femtoseconds(event.get("dur"))
    if length is None:
        return "they have no readable duration"
    if length < 0:
        return "their duration is negative"
    start_ns = (start + _FS_PER_NS // 2) // _FS_PER_NS
    end_ns = (start + length + _FS_PER_NS // 2) // _FS_PER_NS
    if max(abs(start_ns), abs(end_ns)) > rows.MAX_NS:
        return "their time is invalid"
    return start_ns, end_ns - start_ns


def timed_events(
    events: Iterable[Any], dropped: Counter[str], is_read: Callable[[dict[str, Any]], bool]
) -> Iterator[tuple[dict[str, Any], tuple[int, int]]]:
    """Yield (event, (start, length) in ns); count events without usable times in ``dropped``."""
    for event in events:
        if isinstance(event, dict) and event.get("ph") == "X" and is_read(event):
            times = interval(event)
            if isinstance(times, str):
                dropped[times] += 1
            else:
                yield event, times


def left_out(dropped: Mapping[str, int]) -> Iterator[str]:
    """Yield notes: "3 events were left out because their duration is negative"."""
    return (f"{n} events were left out because {why}" for why, n in dropped.items())


def row(event: dict[str, Any], start_ns: int, dur_ns: int) -> Row:
    """Convert an event with a duration to a row."""
    category = str(event.get("cat")).lower()
    name = rows.clean(str(event.get("name", "")))
    args = as_object(event.get("args"))
    row_kind = kind(category, name)
    # ``External id`` is the id of the op, or of the op that issued the call or activity
    # (from 2022 to early 2024, calls and activities repeat the correlation id instead)
    external = args.get("External id", args.get("external id"))
    plain = Row(
        row_kind or "range",
        name,
        start_ns,
        dur_ns,
        correlation_id=rows.positive(
            args.get("correlation", external if row_kind in CORRELATED else None)
        ),
        external_id=rows.positive(external),
    )
    on_gpu = row_kind == "kernel"
    if category in ON_DEVICE or (row_kind is None and "device" in args and "stream" in args):
        return plain._replace(
            device=rows.natural(args.get("device", event.get("pid"))),
            stream=stream(args.get("stream", event.get("tid"))),
            graph_node_id=rows.positive(args.get("graph node id")),
            bytes=rows.natural(args.get("bytes", args.get("Bytes"))),
            launch_config=launched_with(*map(args.get, LAUNCHED_WITH)) if on_gpu else None,
        )
    pid, tid = _thread(event)
    return plain._replace(
        pid=pid,
        tid=tid,
        shapes=json_list(args.get("Input Dims", args.get("Input dims"))),
        dtypes=json_list(args.get("Input type", args.get("Input Type"))),
        sequence_number=rows.natural(args.get("Sequence number")),
        forward_thread=rows.positive(args.get("Fwd thread id")),
    )


def launched_with(
    block: object,
    grid: object,
    registers: object,
    shared: object,
    occupancy_percent: object,
    collective: object = None,
    *message: object,
) -> str | None:
    """Encode a kernel's launch configuration as JSON: grid, block, registers …"""
    if block is None:
        return None
    estimated = None
    if isinstance(occupancy_percent, (int, float, str)):
        with contextlib.suppress(ValueError, OverflowError):  # "inf" is written for some
            estimated = float(occupancy_percent) / 100
    return launch_config.text(
        {
            # omit ROCm's grid, because the unit is blocks or threads
            # (only ROCm records no registers)
            "grid": None if rows.int64(registers) is None else grid,
            "block": block,
            "registers": rows.int64(registers),
            "shared_bytes": rows.int64(shared),
            "estimated_occupancy": estimated,
            **(_message(collective, *message) if isinstance(collective, str) else {}),
        }
    )


def _message(
    collective: str,
    inputs: object,
    outputs: object,
    dtype: object,
    ranks: object,
    group: object,
    about: object,
) -> dict[str, object]:
    """Describe a collective: operation, message size, process group."""
    elements = [rows.natural(inputs), rows.natural(outputs)]
    element_size = element_bytes(dtype)
    complete = element_size is not None and None not in elements
    return {
        "operation": collective,
        "message_bytes": max(n or 0 for n in elements) * (element_size or 0) if complete else None,
        "group_size": rows.int64(ranks),
        "process_group": _group(group, about),
    }


def _group(name: object, about: object) -> str | None:
    """Return a process group's name and description: ``1 (mesh_tp)``."""
    if not isinstance(name, (str, int)) or name == "":
        return None
    described = isinstance(about, str) and about not in ("", "undefined")
    return rows.clean(f"{name} ({about})" if described else str(name))


def _thread(event: dict[str, Any]) -> tuple[int | None, int | None]:
    """Return (pid, tid)."""
    pid, tid = rows.positive(event.get("pid")), rows.int64(event.get("tid"))
    # Kineto writes thread 0 of process 0 or −1 if the thread is unknown
    return pid, tid if pid or tid else None


def stream(value: object) -> int | None:
    named = _STREAM.fullmatch(value) if isinstance(value, str) else None
    return int(named[1]) if named else rows.natural(value)


def json_list(value: object) -> str | None:
    if not isinstance(value, list):
        return None
    try:
        return json.dumps(value, separators=(",", ":"))
    except RecursionError:
        return None


MEMORY = "[memory]"
INSTANT, COUNTER = "i", "C"
#: PyTorch's number of the device type CPU.
_HOST = 0
_TYPE, _DEVICE = "Device Type", "Device Id"
_SIZES = {"Total Allocated": ALLOCATED, "Total Reserved": RESERVED, "Bytes": CHANGE}
_NUMBER = re.compile(r"-?\d{1,300}(\.\d*)?([eE][+-]?\d{1,3})?", re.ASCII)
#: Names of counter series that mean nothing; the counter's name is used instead.
_PLAIN = ("", "value")


def counts(event: dict[str, Any]) -> list[Count] | str:
    """Return the counter values of an event, or an error message if the event is unusable."""
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
    device_type, device = rows.int64(args.get(_TYPE)), rows.natural(args.get(_DEVICE))
    on_host = device_type == _HOST or (device_type is None and device is None)
    if not on_host and device is None:
        return "they name no device"
    values = []
    for key, name in _SIZES.items():
        size = rows.int64(args.get(key))
        if size is None or (name != CHANGE and size < 0) or (name == RESERVED and on_host):
            continue
        values.append(Count(time_ns, pid, None if on_host else device, name, BYTES, float(size)))
    return values


def _series(time_ns: int, pid: int | None, name: str, args: dict[str, Any]) -> list[Count]:
    return [
        Count(time_ns, pid, None, rows.clean(_named(name, series)), None, _number(value))
        for series, value in args.items()
    ]


def _named(name: str, series: str) -> str:
    return name if series in (name, *_PLAIN) else f"{name}: {series}" if name else series


def _number(value: object) -> float | None:
    """Convert a number or its text, ``"1.5"``, to a finite float."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return None
    if not _NUMBER.fullmatch(str(value)):
        return None
    number = float(value)
    return number if math.isfinite(number) else None


_NONE = -(2**63)
#: Type of any integer except ``_NONE``, which marks a missing field.
_Integer = Annotated[int, msgspec.Meta(ge=_NONE + 1)]


class _Memory(msgspec.Struct, gc=False, frozen=True):
    """The arguments of a ``[memory]`` event: one allocation or free."""

    device_type: _Integer = msgspec.field(name="Device Type", default=_NONE)
    device: _Integer = msgspec.field(name="Device Id", default=_NONE)
    allocated: _Integer = msgspec.field(name="Total Allocated", default=_NONE)
    reserved: _Integer = msgspec.field(name="Total Reserved", default=_NONE)
    change: _Integer = msgspec.field(name="Bytes", default=_NONE)


_decode = msgspec.json.Decoder(list[_Memory]).decode


def memory_table(time_ns: Ints, pid: Ints, args: Iterable[msgspec.Raw]) -> pa.Table | None:
    """Convert ``[memory]`` events to counter values; return None if a field is invalid."""
    try:
        decoded = _decode(b"[" + b",".join(args) + b"]")
        fields = [attrgetter(name) for name in _Memory.__struct_fields__]
        device_type, device, *sizes = (_packed(list(map(field, decoded))) for field in fields)
    except (msgspec.DecodeError, struct.error, RecursionError):
        return None
    on_host = (device_type == _HOST) | ((device_type == _NONE) & (device < 0))
    if (~on_host & (device < 0)).any():
        return None
    allocated, reserved, change = sizes
    recorded = (allocated >= 0, (reserved >= 0) & ~on_host, change != _NONE)
    events = [np.flatnonzero(where) for where in recorded]
    event, name = (
        np.concatenate(events),
        np.repeat(np.arange(3, dtype=np.int32), list(map(len, events))),
    )
    value = np.concatenate([size[where] for size, where in zip(sizes, recorded, strict=True)])
    order = np.argsort(event, kind="stable")
    event, name, value = event[order], name[order], value[order]
    return values_table(
        time_ns=time_ns[event],
        pid=pa.array(pid[event], mask=pid[event] <= 0),
        device=pa.array(device[event], mask=on_host[event]),
        name=pa.DictionaryArray.from_arrays(name, pa.array(_SIZES.values())),
        unit=BYTES,
        value=value.astype(np.float64),
    )


def _packed(values: list[int]) -> Ints:
    """Convert integers to int64; raise struct.error if an integer does not fit."""
    return np.frombuffer(struct.pack(f"{len(values)}q", *values), dtype=np.int64)
