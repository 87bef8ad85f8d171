"""Read PyTorch's memory snapshots, the pickles that ``torch.cuda.memory._dump_snapshot`` writes.

``device_traces`` has the allocations and frees of each device, and ``segments`` has the memory at
the end. A snapshot has no ops and kernels, so the profile has counters, but no events.
Source: torch/cuda/memory.py and torch/csrc/cuda/memory_snapshot.cpp.
"""

from __future__ import annotations

import pickletools
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import msgspec

from lstmprof.base.errors import ForeignFileError, ProfileError
from lstmprof.events import Profile
from lstmprof.events.counters import (
    ALLOCATED,
    ALLOCATED_BY,
    BYTES,
    CHANGE,
    RESERVED,
    Count,
    Counters,
    table_of,
)
from lstmprof.events.schema import SCHEMA
from lstmprof.events.table import EventTable
from lstmprof.formats import rows
from lstmprof.formats.raw_file import RawFile

#: Action of PyTorch's allocator -> (counter that the action changes, sign of the change).
_CHANGES = {
    "alloc": (ALLOCATED, 1),
    "free_requested": (ALLOCATED, -1),
    "segment_alloc": (RESERVED, 1),
    "segment_map": (RESERVED, 1),
    "segment_free": (RESERVED, -1),
    "segment_unmap": (RESERVED, -1),
}
_BEFORE, _ENGINE, _NO_PYTHON = "(before the snapshot's history)", "(backward)", "(no Python frame)"
_ENGINE_FRAME = "torch::autograd::Engine::"
_PACKAGE = re.compile(r"/(?:site|dist)-packages/|/lib/python3\.\d+/|^<frozen ")
_HISTORY = "call torch.cuda.memory._record_memory_history() before the first step"
#: Fewest bytes of memory that a dict, list or tuple takes.
_OBJECT_BYTES = 56
#: Type of a size or time that is small enough for exact sums in float64.
_Natural = Annotated[int, msgspec.Meta(ge=0, le=2**52)]


class _Frame(msgspec.Struct):
    name: str
    filename: str
    line: int


class _Entry(msgspec.Struct):
    """One action of PyTorch's allocator, such as an allocation."""

    action: str
    size: _Natural = 0  # of a block: before the allocator rounded the size up
    addr: int = 0
    time_us: _Natural | None = None  # None in files of old PyTorch versions
    frames: Any = ()  # C++ and Python, innermost first; equal stacks share one object


class _Block(msgspec.Struct):
    state: str
    size: _Natural
    requested_size: _Natural | None = None  # before the allocator rounded the size up


class _Segment(msgspec.Struct):
    total_size: _Natural
    blocks: list[_Block]
    device: _Natural = 0


class _Snapshot(msgspec.Struct):
    segments: list[_Segment]
    device_traces: list[list[_Entry]]


def recognises(raw: RawFile) -> bool:
    """Return whether the file is a pickle, even if PyTorch did not write the file."""
    return raw.part(0, 2) in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")


def read(raw: RawFile) -> Profile:
    try:
        snapshot = _snapshot(raw)
        traces = snapshot.device_traces
        if not any(traces):
            raise ProfileError(raw.path, "the memory snapshot has no history", _HISTORY)
        times = [entry.time_us for trace in traces for entry in trace]
        is_timed = None not in times
        counts = [
            count
            for device, trace in enumerate(traces)
            for count in _counts(device, snapshot.segments, trace, is_timed=is_timed)
        ]
    except (msgspec.ValidationError, LookupError, TypeError, AttributeError, ValueError) as fault:
        raise ProfileError(
            raw.path, f"the memory snapshot is damaged ({fault})", "record it again"
        ) from fault
    start_ns = min((count.time_ns for count in counts), default=0)
    notes = ["a memory snapshot has no steps, ops or kernels; see breakdown --table memory"]
    if not is_timed:
        notes.append("the memory snapshot has no times; its entries are shown 1 µs apart")
    return Profile(
        format="memory_snapshot",
        base_ns=rows.date_ns(start_ns),
        events=EventTable(SCHEMA.empty_table()),
        counters=Counters.of([table_of(counts)]).shifted(-start_ns),
        notes=tuple(notes),
    )


def _snapshot(raw: RawFile) -> _Snapshot:
    pickled = _restricted(raw)
    if not isinstance(pickled, dict) or not {"segments", "device_traces"} <= pickled.keys():
        raise _foreign(raw, "is a pickle, but no memory snapshot of PyTorch")
    # reject a pickle that repeats lists, because a small file would expand to much memory
    lists = [*pickled["device_traces"], *(segment["blocks"] for segment in pickled["segments"])]
    if sum(map(len, lists)) > raw.length:
        raise ValueError("it repeats lists")
    return msgspec.convert(pickled, _Snapshot)


def _foreign(raw: RawFile, fault: str) -> ForeignFileError:
    return ForeignFileError(
        raw.path, fault, "give a profile, or what torch.cuda.memory._dump_snapshot wrote"
    )


def _restricted(raw: RawFile) -> Any:
    """Unpickle only plain Python types, because unpickling other objects may run code."""
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[Any, Any] = {}
    made_bytes = 0

    def marked() -> list[Any]:
        begin = marks.pop()
        values = stack[begin:]
        del stack[begin:]
        return values

    def add(pairs: Sequence[Any]) -> None:
        if not all(type(key) is str for key in pairs[::2]):
            raise TypeError("a key is not a text")
        stack[-1].update(zip(pairs[::2], pairs[1::2], strict=True))

    for opcode, argument, _ in pickletools.genops(raw.content):
        match opcode.name:
            case "BINGET" | "LONG_BINGET":
                stack.append(memo[argument])
            case (
                "BININT" | "BININT1" | "BININT2" | "LONG1" | "BINFLOAT" | "SHORT_BINUNICODE"
                | "BINUNICODE"
            ):  # fmt: skip
                stack.append(argument)
            case "MEMOIZE":
                memo[len(memo)] = stack[-1]
            case "BINPUT" | "LONG_BINPUT":
                memo[argument] = stack[-1]
            case "MARK":
                marks.append(len(stack))
            case "EMPTY_DICT" | "EMPTY_LIST" | "EMPTY_TUPLE":
                stack.append({"D": dict, "L": list, "T": tuple}[opcode.name[6]]())
                made_bytes += _OBJECT_BYTES
            case "SETITEMS":
                add(marked())
            case "SETITEM":
                value, key = stack.pop(), stack.pop()
                add((key, value))
            case "APPENDS":
                values = marked()
                stack[-1].extend(values)
            case "APPEND":
                value = stack.pop()
                stack[-1].append(value)
            case "TUPLE":
                stack.append(tuple(marked()))
                made_bytes += _OBJECT_BYTES
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                size = int(opcode.name[-1])
                stack[-size:] = [tuple(stack[-size:])]
                made_bytes += _OBJECT_BYTES
            case "NONE" | "NEWTRUE" | "NEWFALSE":
                stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[opcode.name])
            case "PROTO" | "FRAME":
                pass
            case "STOP":
                return stack.pop()
            case _:
                raise _foreign(
                    raw,
                    "is a pickle with objects that a memory snapshot does not have "
                    f"({opcode.name}), which could run code",
                )
        if made_bytes > raw.most_object_bytes:
            raise ValueError("its objects would take too much memory")
    raise ValueError("it has no end")


def _counts(
    device: int, segments: Sequence[_Segment], trace: Sequence[_Entry], *, is_timed: bool
) -> Iterator[Count]:
    """Yield a device's counters: memory in use, its changes, and memory per code line."""
    own = [segment for segment in segments if segment.device == device]
    blocks = [block for each in own for block in each.blocks if block.state == "active_allocated"]
    sizes = (b.size if b.requested_size is None else b.requested_size for b in blocks)
    total = {ALLOCATED: sum(sizes), RESERVED: sum(segment.total_size for segment in own)}
    steps = [
        (1000 * ((entry.time_us or 0) if is_timed else place), entry, *_CHANGES[entry.action])
        for place, entry in enumerate(trace)
        if entry.action in _CHANGES
    ]
    # compute the memory before the first action: ``segments`` has the memory after the last
    for _, entry, name, sign in steps:
        total[name] -= sign * entry.size
    if min(total.values()) < 0:
        raise ValueError(f"device {device} freed memory that it never had")
    by_line = defaultdict(int, {_BEFORE: total[ALLOCATED]})
    allocated: dict[int, tuple[str, int]] = {}
    lines: dict[int, str] = {}

    def count(time_ns: int, name: str, value: int) -> Count:
        return Count(time_ns, None, device, name, BYTES, value)

    for time_ns, *_ in steps[:1]:
        yield count(time_ns, RESERVED, total[RESERVED])
        yield count(time_ns, ALLOCATED_BY + _BEFORE, total[ALLOCATED])
    for time_ns, entry, name, sign in steps:
        total[name] += sign * entry.size
        yield count(time_ns, name, total[name])
        if name == RESERVED:
            continue
        yield count(time_ns, CHANGE, sign * entry.size)
        if sign > 0:
            shared = id(entry.frames)
            line = lines[shared] = lines.get(shared) or _line(entry.frames)
            allocated[entry.addr] = line, entry.size
        else:
            line, _ = allocated.pop(entry.addr, (_BEFORE, 0))
        by_line[line] += sign * entry.size
        yield count(time_ns, ALLOCATED_BY + line, by_line[line])


def _line(frames: Any) -> str:
    """Return ``function (file:line)`` of the user's innermost frame, else of a package's."""
    stack = msgspec.convert(frames, list[_Frame])
    python = [
        frame for frame in stack if frame.filename.endswith(".py") or frame.filename[:1] == "<"
    ]
    own = [frame for frame in python if not _PACKAGE.search(frame.filename)]
    for frame in (own or python)[:1]:
        return rows.clean(f"{frame.name} ({frame.filename}:{frame.line})")
    in_engine = any(frame.name.startswith(_ENGINE_FRAME) for frame in stack)
    return _ENGINE if in_engine else _NO_PYTHON
