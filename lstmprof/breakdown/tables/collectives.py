"""The table of collectives: how long each rank communicates, and waits for other ranks.

::

    rank 0   |==== waits ====|== communicates ==|
    rank 1                   |== communicates ==|     the last rank to arrive does not wait

Definition of the bandwidths:
https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from lstmprof.events import launch_config
from lstmprof.events.annotate.steps import Window
from lstmprof.events.groups import Groups, numbered
from lstmprof.events.intervals import Covered, Flags, Ints
from lstmprof.events.launch_config import (
    OPERATIONS,
    element_bytes,
    operation_of,
    recorded_inputs,
)
from lstmprof.events.narrow import Packed
from lstmprof.events.schema import DEVICE, RANK, STEP, Column, schema
from lstmprof.events.table import NONE, UNKNOWN, EventTable
from lstmprof.runs.metadata import RunInfo

_UNSHARED = "the kernel has no counterpart on other ranks"
COLUMNS = (
    RANK,
    DEVICE,
    STEP,
    Column.integer("stream", "number of the device's stream", "the profile does not record it"),
    Column.text("name", "name of the kernel"),
    Column.text(
        "operation",
        "kind of collective: " + ", ".join(OPERATIONS),
        "the profile does not show the kind",
    ),
    Column.integer(
        "bytes",
        "size of the message that a rank sends or receives, whichever is larger",
        "not recorded (in PyTorch, set record_shapes=True)",
    ),
    Column.integer(
        "group_size",
        "number of ranks of the process group",
        "the profile does not record it, or the job has groups of several sizes",
    ),
    Column.text(
        "process_group",
        "name and description of the process group in PyTorch",
        "not recorded (PyTorch before 2.4)",
    ),
    Column.integer(
        "collective", "number of the collective, equal in the rows of all its ranks", _UNSHARED
    ),
    Column.integer("start_ns", "start of the kernel, by the clock of its rank"),
    Column.integer("dur_ns", "duration of the kernel"),
    Column.integer(
        "overlapped_ns", "part of dur_ns in which a computing kernel also ran on the device"
    ),
    Column.integer(
        "exposed_ns",
        "part of dur_ns in which no computing kernel ran on the device",
    ),
    Column.integer(
        "waits_ns",
        "wait for the last rank: dur_ns minus the shortest dur_ns in the collective",
        _UNSHARED,
    ),
    Column.integer(
        "last_rank",
        "rank that arrived last: the rank of the shortest kernel",
        f"{_UNSHARED}, or no rank is named",
    ),
    Column.integer("last_device", "device that arrived last", _UNSHARED),
    Column.integer(
        "skew_ns",
        "time between the first and the last rank's end of the collective, on aligned clocks",
        _UNSHARED,
    ),
    Column.real(
        "algorithm_bytes_per_s",
        "bytes / (dur_ns - waits_ns), or bytes / dur_ns if waits_ns is null",
        "bytes is null, or dur_ns is 0",
    ),
    Column.real(
        "bus_bytes_per_s",
        "bus bandwidth, as nccl-tests defines it",
        "algorithm_bytes_per_s, operation or group_size is null",
    ),
)
SCHEMA = schema(COLUMNS)


@dataclass(frozen=True)
class _Calls:
    """The kernels of collectives, sorted by start."""

    row: Ints
    in_step: Flags
    device: Ints  # numbers all devices of all ranks
    devices: int
    start_ns: Ints
    end_ns: Ints


#: Columns of the events to read.
READS = (
    *("kind", "name", "start_ns", "dur_ns", "rank", "device", "stream", "step", "category"),
    *("event_id", "parent_id", "launch_id", "shapes", "dtypes", "launch_config"),
)
_PER_KERNEL = READS[:9]
#: Operation → how often each link carries (n - 1)/n of the message, for n ranks.
_BUS = {"all_reduce": 2} | dict.fromkeys(
    ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"), 1
)
#: Largest time between the ends of a collective's kernels, as a share of the longest wait.
MOST_SKEW_SHARE = 0.5
#: Rank and device: (rank or None if unknown, device or None for the host).
RankDevice = tuple[int | None, int | None]
rank_device: Callable[[Mapping[str, Any]], RankDevice] = itemgetter("rank", "device")


def collectives(packed: Packed, windows: Sequence[Window], info: RunInfo) -> pa.Table:
    """Return one row per collective and device."""
    kernels = np.flatnonzero(packed.is_kind("kernel"))
    events = packed.table(_PER_KERNEL, kernels)
    calls = _calls(events, windows)
    messages = _messages(packed, kernels[calls.row], info)
    groups = [message.process_group or "" for message in messages]
    matches = _matches(calls, *_counterparts(events, calls, groups))
    rank, device = (events.ints(c, UNKNOWN)[calls.row] for c in ("rank", "device"))
    waits, last, skew, number = _waits(calls, matches)
    unknown = number == NONE
    dur = calls.end_ns - calls.start_ns
    overlapped = _overlapped(events, calls)
    seconds = ((dur - np.where(unknown, 0, waits)) / 1e9).tolist()
    bandwidths = [
        None if m.bytes is None or not s else m.bytes / s
        for m, s in zip(messages, seconds, strict=True)
    ]
    bus = [None if b is None else m.bus(b) for m, b in zip(messages, bandwidths, strict=True)]
    columns = [
        *(
            events.column(c).take(pa.array(calls.row)).cast(SCHEMA.field(c).type)
            for c in ("rank", "device", "step", "stream", "name")
        ),
        *(
            pa.array([getattr(m, c) for m in messages], SCHEMA.field(c).type)
            for c in ("operation", "bytes", "group_size", "process_group")
        ),
        pa.array(number, mask=unknown),
        pa.array(calls.start_ns),
        pa.array(dur),
        pa.array(overlapped),
        pa.array(dur - overlapped),
        pa.array(waits, mask=unknown),
        *(pa.array(of[last], mask=unknown | (of[last] == UNKNOWN)) for of in (rank, device)),
        pa.array(skew, mask=unknown),
        pa.array(bandwidths, pa.float64()),
        pa.array(bus, pa.float64()),
    ]
    order = np.lexsort((calls.start_ns, device, rank))
    return pa.table(columns, schema=SCHEMA).take(pa.array(order))


@dataclass(frozen=True)
class _Message:
    """The data that a collective moves, and the ranks that take part."""

    operation: str | None
    bytes: int | None
    group_size: int | None
    process_group: str | None

    def bus(self, bytes_per_s: float) -> float | None:
        """Return the bus bandwidth for the algorithm bandwidth ``bytes_per_s``."""
        if self.operation is None or self.group_size is None:
            return None
        times, ranks = _BUS.get(self.operation), self.group_size
        return bytes_per_s if times is None else bytes_per_s * times * (ranks - 1) / ranks


def _messages(packed: Packed, rows: Ints, info: RunInfo) -> list[_Message]:
    """Read each collective's message from its kernel or the range around its launch."""
    if not len(rows):
        return []
    launch = packed.rows_named("launch_id")[rows]
    around = np.where(launch == NONE, NONE, packed.rows_named("parent_id")[launch])
    alone = Counter(around.tolist())
    ranges_around = np.unique(around[around != NONE])
    ranges = packed.table(("event_id", "name", "shapes", "dtypes"), ranges_around).to_pylist()
    range_of = dict(zip(ranges_around.tolist(), ranges, strict=True))
    group = group_size(info)
    messages = []
    kernels = packed.table(("event_id", "name", "launch_config"), rows).to_pylist()
    for kernel, range_ in zip(kernels, around.tolist(), strict=True):
        config = launch_config.read(kernel["launch_config"] or "") or launch_config.LaunchConfig()
        inputs = range_of.get(range_, {})
        is_recorded = str(inputs.get("name")).startswith("nccl:")
        operation = config.operation or (operation_of(inputs["name"]) if is_recorded else None)
        operation = operation or operation_of(kernel["name"])
        ranks = config.group_size or group
        moved = config.message_bytes
        # several kernels in a range would share the range's inputs in unknown parts
        if moved is None and is_recorded and alone[range_] == 1:
            moved = _input_bytes(inputs["shapes"] or "", inputs["dtypes"] or "")
            if operation == "all_gather" and moved is not None:
                moved = None if ranks is None else moved * ranks
        messages.append(_Message(operation, moved, ranks, config.process_group))
    return messages


def _input_bytes(shapes: str, dtypes: str) -> int | None:
    """Return the total number of bytes of the recorded inputs (None: unknown)."""
    element_sizes = [element_bytes(dtype) for dtype in recorded_inputs(dtypes)]
    sizes = [s for s in recorded_inputs(shapes) if isinstance(s, list)]
    whole = all(isinstance(n, int) and n >= 0 for size in sizes for n in size)
    if not element_sizes or len(element_sizes) != len(sizes) or not whole or None in element_sizes:
        return None
    moved = sum(math.prod(size) * (n or 0) for size, n in zip(sizes, element_sizes, strict=True))
    return moved if moved < 2**63 else None


def rank_records(info: RunInfo) -> list[dict[str, Any]]:
    """Return the profile's metadata of each rank, such as the sizes of its groups."""
    metadata = info.profile_metadata or {}
    by_rank = metadata.get("ranks")
    records = list(by_rank.values()) if isinstance(by_rank, dict) else [metadata]
    return [record for record in records if isinstance(record, dict)]


def group_sizes(info: RunInfo) -> set[int]:
    sizes = {size for record in rank_records(info) for size in record.get("group_sizes") or ()}
    return {size for size in sizes if size > 1}


def group_size(info: RunInfo) -> int | None:
    """Return the size of the process groups if all known sizes are equal."""
    sizes = group_sizes(info)
    return sizes.pop() if len(sizes) == 1 else None


def _calls(events: EventTable, windows: Sequence[Window]) -> _Calls:
    rows = np.flatnonzero(events.is_kind("kernel") & events.is_one_of("category", "collective"))
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    marked = any(window.step is not None for window in windows)
    in_step = (events.ints("step", UNKNOWN)[rows] != UNKNOWN) | (not marked)
    device = numbered(*(events.ints(c, UNKNOWN)[rows] for c in ("rank", "device")))
    devices = int(device.max(initial=-1)) + 1
    return _Calls(rows, in_step, device, devices, events.start_ns[rows], events.end_ns[rows])


def _counterparts(events: EventTable, calls: _Calls, groups: Sequence[str]) -> tuple[Ints, Ints]:
    """Give calls an equal number if the calls may belong to one collective."""
    stream = events.ints("stream", UNKNOWN)[calls.row]
    position = np.zeros(len(stream), dtype=np.int64)
    by_device = Groups(calls.device).members()
    streams = [np.unique(stream[members]) for members in by_device]
    if len({len(of) for of in streams}) == 1:
        for members, of in zip(by_device, streams, strict=True):
            position[members] = np.searchsorted(of, stream[members])
    step = events.ints("step", UNKNOWN)[calls.row]
    codes = {group: code for code, group in enumerate(dict.fromkeys(filter(None, groups)))}
    group = np.array([codes.get(name, NONE) for name in groups], dtype=np.int64)
    # return two numbers per call: of the possible collective, and of the process group
    return numbered(step, position, group, events.texts("name")[0][calls.row]), group


def _matches(calls: _Calls, alike: Ints, group: Ints) -> list[Ints]:
    """Return arrays of matching calls: one row per collective, one column per device."""
    matches: dict[tuple[int, ...], list[Ints]] = {}
    everywhere = np.arange(calls.devices)
    devices_of = {
        number: np.unique(calls.device[group == number]) for number in np.unique(group).tolist()
    }
    for members in Groups(alike).members():
        members = members[calls.in_step[members]]
        number = int(group[members[0]]) if len(members) else NONE
        devices = everywhere if number == NONE else devices_of[number]
        counts = np.bincount(calls.device[members], minlength=calls.devices)[devices]
        if len(devices) > 1 and counts[0] and (counts == counts[0]).all():
            by_device = members[np.argsort(calls.device[members], kind="stable")]
            rows = by_device.reshape(len(devices), counts[0]).T
            matches.setdefault(tuple(devices.tolist()), []).append(rows)
    together = [np.concatenate(rows) for rows in matches.values()]
    return [rows[np.argsort(rows[:, 0])] for rows in together]


def _waits(calls: _Calls, matches: Sequence[Ints]) -> tuple[Ints, Ints, Ints, Ints]:
    """Return per call: wait, index of the last call to arrive, skew, collective."""
    waits, last, skew = (np.zeros(len(calls.row), dtype=np.int64) for _ in range(3))
    number = np.full(len(calls.row), NONE, dtype=np.int64)
    numbers = 0
    for match in matches:
        # compare lengths, not times, because the clocks of ranks differ
        dur = (calls.end_ns - calls.start_ns)[match]
        # the last rank has the shortest kernel: all ranks end a collective together
        # compare durations, not starts, because the clocks of ranks differ
        shortest = dur.argmin(axis=1)[:, None]
        waits[match] = dur - np.take_along_axis(dur, shortest, axis=1)
        last[match] = np.take_along_axis(match, shortest, axis=1)
        skew[match] = _skew(calls.end_ns[match])[:, None]
        number[match] = numbers + np.arange(len(match))[:, None]
        numbers += len(match)
    return waits, last, skew, number


def _skew(ends_ns: Ints) -> Ints:
    """Return each collective's time from its first to its last end, on aligned clocks."""
    offset = ends_ns - ends_ns[:, :1]
    rest = offset - np.median(offset, axis=0).astype(np.int64)
    return np.asarray(rest.max(axis=1) - rest.min(axis=1), dtype=np.int64)


def _overlapped(events: EventTable, calls: _Calls) -> Ints:
    """Return how long each call overlaps with computing kernels of its device."""
    computes = events.is_kind("kernel") & ~events.is_one_of("category", "collective")
    computing = np.flatnonzero(computes)
    rows = np.concatenate([calls.row, computing])  # so a device's calls come before other kernels
    by_device = Groups(*(events.ints(c, UNKNOWN)[rows] for c in ("rank", "device")))
    overlapped = np.zeros(len(calls.row), dtype=np.int64)
    for members in by_device.members():
        own = members[: np.searchsorted(members, len(calls.row))]
        if len(own):
            at = rows[members[len(own) :]]
            busy = Covered(events.start_ns[at], events.end_ns[at])
            overlapped[own] = busy.within(calls.start_ns[own], calls.end_ns[own])
    return overlapped


def in_common(calls: Sequence[dict[str, Any]], least_skew_ns: float = 0.0) -> list[dict[str, Any]]:
    """Return the calls of collectives that all devices share and that end together."""
    sizes = Counter(row["collective"] for row in calls if row["collective"] is not None)
    devices = len({rank_device(row) for row in calls})
    longest: Counter[int] = Counter()
    for row in calls:
        if sizes[number := row["collective"]] == devices:
            longest[number] = max(longest[number], row["waits_ns"])
    mean_ns = longest.total() / max(len(longest), 1)
    agree = [
        row
        for row in calls
        if (number := row["collective"]) in longest
        and row["skew_ns"] <= max(least_skew_ns, MOST_SKEW_SHARE * max(longest[number], mean_ns))
    ]
    agreed_ns = sum(longest[number] for number in {row["collective"] for row in agree})
    # return nothing if most waits are in collectives with too much skew, as with process groups
    return agree if 2 * agreed_ns >= longest.total() else []


def compared_steps(
    calls: Sequence[dict[str, Any]], compared: Sequence[dict[str, Any]], windows: Iterable[Window]
) -> int:
    """Count the steps in which the waits for other ranks are known."""
    steps: dict[int | None, set[int | None]] = defaultdict(set)
    for window in windows:
        steps[window.rank].add(window.step)
    ranks = {row["rank"] for row in calls}
    common = set.intersection(*(steps[rank] for rank in ranks)) if ranks else set()
    blind = {row["step"] for row in calls} - {row["step"] for row in compared}
    return len(common - blind)
