"""Write the packets and the tracks of a Perfetto trace.

Example: process ``rank 0`` has tracks for threads, devices, streams and the breakdown.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import BinaryIO

import msgspec

from lstmprof.base.numbers import shown_name
from lstmprof.events.counters import Series
from lstmprof.formats.perfetto.writers import (
    CRITICAL_PATH,
    FACTS_TRACK,
    LEDGER,
    PHASES,
    STEPS,
    Facts,
    Where,
)
from lstmprof.runs.metadata import RunInfo

_VARINT, _FIXED64, _LENGTH = 0, 1, 2
_MASK = 2**64 - 1
_ONE_BYTE = [bytes([value]) for value in range(128)]
#: Values of TrackEvent.Type.
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
#: Values of TracePacket.SequenceFlags.
_CLEARED, _NEEDS_STATE = 1, 2
#: Values of BuiltinClock.
_REALTIME, _BOOTTIME = 1, 6
#: Value of TrackDescriptor.ChildTracksOrdering: child tracks are sorted by ``sibling_order_rank``.
_EXPLICIT = 3


def varint(value: int) -> bytes:
    """Encode an integer as a protobuf varint; a negative integer takes 64 bits."""
    if 0 <= value < 128:
        return _ONE_BYTE[value]
    value &= _MASK
    groups = bytearray()
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def _tag(field: int, wire: int) -> bytes:
    return varint(field << 3 | wire)


def number(field: int, value: int) -> bytes:
    """Encode a protobuf field with an integer."""
    return _tag(field, _VARINT) + varint(value)


def message(field: int, content: bytes) -> bytes:
    """Encode a protobuf field with a message or bytes."""
    return _tag(field, _LENGTH) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    """Encode a protobuf field with a text."""
    return message(field, value.encode("utf-8", "replace"))


class _Interned:
    """Numbers that replace repeated texts in the trace (Perfetto's interning)."""

    def __init__(self, field: int, fresh: list[bytes]) -> None:
        # collect definitions of new texts in ``fresh``, which the next packet contains
        self._field, self._fresh = field, fresh
        self._numbers: dict[str, int] = {}

    def __getitem__(self, value: str) -> int:
        code = self._numbers.get(value)
        if code is None:
            code = self._numbers[value] = len(self._numbers) + 1
            self._fresh.append(message(self._field, number(1, code) + text(2, value)))
        return code


class Packets:
    """Writes the packets of a trace, in which each track has a number."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._fresh: list[bytes] = []
        self._categories = _Interned(1, self._fresh)
        self._names = _Interned(2, self._fresh)
        self._keys = _Interned(3, self._fresh)
        self._values = _Interned(29, self._fresh)
        self._heads: dict[tuple[int, str, str], bytes] = {}
        self._tracks = 0
        self._ids: set[tuple[int, int]] = set()
        self._free_ids = itertools.count(_FIRST_FREE_ID)
        self._packet(number(13, _CLEARED) + number(87, 1))

    def id(self, given: int | None, process: int = 0) -> int:
        """Return a unique process or thread id, if possible ``given``."""
        is_one = given is not None and 0 < given < _FIRST_FREE_ID
        if given is None or not is_one or (process, given) in self._ids:
            return next(self._free_ids)
        self._ids.add((process, given))
        return given

    def clocks(self, at_ns: int, epoch_ns: int) -> None:
        """Write that the time ``at_ns`` of the trace is ``epoch_ns`` since 1970."""
        pairs = ((_BOOTTIME, at_ns), (_REALTIME, epoch_ns))
        clocks = [message(1, number(1, clock) + number(2, ns)) for clock, ns in pairs]
        self._packet(number(8, at_ns) + message(6, b"".join(clocks)))

    def track(
        self, name: str = "", parent: int = 0, *, rank: int | None = None, more: bytes = b""
    ) -> int:
        """Create a track at position ``rank`` among its siblings."""
        self._tracks += 1
        content = number(1, self._tracks) + (text(2, name) if name else b"")
        content += number(5, parent) if parent else b""
        content += b"" if rank is None else number(12, rank)
        self._packet(message(60, content + more))
        return self._tracks

    def process(self, pid: int, name: str, rank: int) -> int:
        """Create a track for a process, at position ``rank``."""
        process = number(1, pid) + text(6, name) + number(3, rank)
        return self.track(more=message(3, process) + number(11, _EXPLICIT))

    def thread(self, pid: int, tid: int, name: str, more: bytes = b"") -> int:
        thread = number(1, pid) + number(2, tid) + text(5, name)
        return self.track(more=message(4, thread) + more)

    def group(self, name: str, parent: int, rank: int) -> int:
        """Create a track that contains other tracks."""
        return self.track(name, parent, rank=rank, more=number(11, _EXPLICIT))

    def counter(self, name: str, unit: str, parent: int, rank: int, more: bytes = b"") -> int:
        return self.track(name, parent, rank=rank, more=message(8, text(6, unit)) + more)

    def argument(self, name: str, value: int | float | str) -> bytes:
        """Encode an argument of a slice."""
        key = number(1, self._keys[name])
        if isinstance(value, str):
            return message(4, key + number(17, self._values[value]))
        if isinstance(value, float):
            return message(4, key + _tag(5, _FIXED64) + struct.pack("<d", value))
        return message(4, key + number(4, value))

    def begin(self, track: int, at_ns: int, name: str, category: str, rest: bytes = b"") -> None:
        """Begin a slice; ``rest`` contains its encoded arguments and arrows."""
        key = (track, name, category)
        head = self._heads.get(key)
        if head is None:
            head = number(9, _BEGIN) + number(3, self._categories[category])
            head += number(10, self._names[name]) + number(11, track)
            self._heads[key] = head
        self._event(at_ns, head + rest)

    def end(self, track: int, at_ns: int) -> None:
        """End the innermost open slice of a track."""
        self._event(at_ns, _END_HEAD + varint(track))

    def count(self, track: int, at_ns: int, value: int | float) -> None:
        """Set the value of a counter from ``at_ns`` on."""
        head = number(9, _COUNTER) + number(11, track)
        if isinstance(value, float):
            self._event(at_ns, head + _tag(44, _FIXED64) + struct.pack("<d", value))
        else:
            self._event(at_ns, head + number(30, value))

    def _event(self, at_ns: int, event: bytes) -> None:
        packet = _TIME + varint(at_ns) + _STATE + varint(len(event)) + event
        if self._fresh:
            packet += message(12, b"".join(self._fresh))
            self._fresh.clear()
        self._packet(packet)

    def _packet(self, content: bytes) -> None:
        packet = content + _SEQUENCE
        self._file.write(_PACKET + varint(len(packet)) + packet)


def description(value: str) -> bytes:
    """Encode the description of a track."""
    return text(14, value)


def flows(started: Sequence[int] = (), ended: Sequence[int] = ()) -> bytes:
    """Encode which arrows start and end at a slice."""
    return b"".join(
        [_FLOW + struct.pack("<Q", arrow) for arrow in started]
        + [_FLOW_END + struct.pack("<Q", arrow) for arrow in ended]
    )


_PACKET, _SEQUENCE = _tag(1, _LENGTH), number(10, 1)
_TIME, _STATE = _tag(8, _VARINT), number(13, _NEEDS_STATE) + _tag(11, _LENGTH)
_END_HEAD = number(9, _END) + _tag(11, _VARINT)
_FLOW, _FLOW_END = _tag(47, _FIXED64), _tag(48, _FIXED64)


#: First new id of a process or thread. An id of this size or larger is replaced.
_FIRST_FREE_ID = 2**30
#: Positions of a process's tracks; device n has the position ``_DEVICES * (n + 1)``.
_STEPS, _PHASES, _LEDGER, _CRITICAL_PATH, _DEVICES = 0, 1, 2, 3, 16
#: Highest device number that is sorted.
_MOST_DEVICES = 10_000


class Track:
    """A track of slices; overlapping slices that do not nest get more tracks."""

    def __init__(self, packets: Packets, new: Callable[[int], int]) -> None:
        self._packets, self._new = packets, new
        self._tracks_with_ends: list[tuple[int, list[int]]] = []  # (track, ends of its open slices)

    def add(self, start_ns: int, end_ns: int, name: str, category: str, rest: bytes) -> None:
        """Add a slice; slices must come in order of start, outer before inner slices."""
        track = self._free_track(start_ns, end_ns)
        self._packets.begin(track, start_ns, name, category, rest)

    def _free_track(self, start_ns: int, end_ns: int) -> int:
        for track, ends in self._tracks_with_ends:
            while ends and ends[-1] <= start_ns:
                self._packets.end(track, ends.pop())
            if not ends or ends[-1] >= end_ns:
                ends.append(end_ns)
                return track
        track = self._new(len(self._tracks_with_ends))
        self._tracks_with_ends.append((track, [end_ns]))
        return track

    def close(self) -> None:
        """End all open slices."""
        for track, ends in self._tracks_with_ends:
            while ends:
                self._packets.end(track, ends.pop())


class Tracks:
    """The tracks of a run, each created at its first use."""

    def __init__(
        self,
        packets: Packets,
        info: RunInfo,
        name: str,
        main_pids: Mapping[int | None, int | None],
        *,
        alone: bool = True,
    ) -> None:
        # prefix ranks with the run, because another run may have equal ranks
        self._run_prefix = "" if alone else f"{name}, "
        self._packets, self._info, self._name, self._main = packets, info, name, main_pids
        self._processes: dict[tuple[int | None, int | None], tuple[int, int]] = {}
        self._devices: dict[tuple[int | None, int | None], int] = {}
        self._tracks: dict[tuple[object, ...], Track] = {}

    def close(self) -> None:
        """End all open slices."""
        for track in self._tracks.values():
            track.close()

    def thread(self, rank: int | None, pid: int | None, tid: int | None) -> Track:
        return self._track(("thread", rank, pid, tid), lambda n: self._thread(rank, pid, tid, n))

    def _thread(self, rank: int | None, pid: int | None, tid: int | None, repeat: int) -> int:
        number, process = self._process(rank, pid)
        numbered = "thread" if tid is None else f"thread {tid}"
        name = shown_name(self._info.thread_names(rank).get(str(tid), "")) or numbered
        more = _description(Where(rank, pid, tid, thread=True))
        if repeat:
            return self._packets.track(f"{name}: what overlaps", process, more=more)
        return self._packets.thread(number, self._packets.id(tid, number), name, more)

    def stream(self, rank: int | None, device: int | None, stream: int | None, kind: str) -> Track:
        """Return a stream's track of kernels and copies, or its track of waits or ranges."""

        def new(repeat: int) -> int:
            name = "stream ?" if stream is None else f"stream {stream}"
            group = self._device(rank, device)
            rank_ = 2 if stream is None else 2 + min(max(stream, 0), _FIRST_FREE_ID)
            whose = b"" if rank is None else _description(Where(rank))
            title = f"{name}: {kind}" if kind else name
            return self._packets.track(title, group, rank=rank_, more=whose)

        return self._track(("stream", rank, device, stream, kind), new)

    def facts(self, origin_ns: int) -> None:
        """Write a track with facts about the whole profile, such as device names."""
        info = self._info
        values = Facts(
            info.profile_format or "perfetto",
            origin_ns,
            dict(info.device_names or {}),
            dict(info.device_facts or {}),
            list(info.accelerators or ()),
            info.gpu_complaint,
            list(info.notes or ()),
            dict(info.profile_metadata or {}),
        )
        text = msgspec.json.encode(values).decode()
        self._packets.track(FACTS_TRACK, more=description(text))

    def ledger(self, rank: int | None, device: int | None) -> Track:
        """Return the track with the breakdown of a device, or of the host threads."""
        name = f"{LEDGER}CPU" if device is None else f"{LEDGER}device {device}"
        return self._rank_track(rank, name, _LEDGER)

    def steps(self, rank: int | None) -> Track:
        return self._rank_track(rank, STEPS, _STEPS)

    def phases(self, rank: int | None) -> Track:
        return self._rank_track(rank, PHASES, _PHASES)

    def critical_path(self, rank: int | None) -> Track:
        """Return the track of the critical path (longest chain of work and waits) of a step."""
        return self._rank_track(rank, CRITICAL_PATH, _CRITICAL_PATH)

    def counter(self, rank: int | None, device: int, name: str, unit: str) -> int:
        """Create a track for a counter that lstmprof computed for a device."""
        return self._packets.counter(name, unit, self._device(rank, device), 0)

    def recorded(self, series: Series) -> int:
        """Create a track for a recorded counter of a device or a process."""
        whose = f" of {series.allocator}" if series.allocator else ""
        name, unit = shown_name(f"{series.name}{whose}"), shown_name(series.unit or "")
        owner = Where(
            series.rank,
            series.pid,
            device=series.device,
            counter=series.name,
            unit=series.unit,
            allocator=series.allocator,
        )
        if series.device is not None:
            group = self._device(series.rank, series.device)
            return self._packets.counter(name, unit, group, 1, _description(owner))
        pid = self._main.get(series.rank) if series.pid is None else series.pid
        process = self._process(series.rank, pid)[1]
        return self._packets.counter(name, unit, process, _STEPS, _description(owner))

    def _rank_track(self, rank: int | None, name: str, order: int) -> Track:
        def new(repeat: int) -> int:
            return self._packets.track(name, self._main_process(rank), rank=order)

        return self._track((name, rank), new)

    def _track(self, key: tuple[object, ...], new: Callable[[int], int]) -> Track:
        if key not in self._tracks:
            self._tracks[key] = Track(self._packets, new)
        return self._tracks[key]

    def _main_process(self, rank: int | None) -> int:
        return self._process(rank, self._main.get(rank))[1]

    def _device(self, rank: int | None, device: int | None) -> int:
        key = rank, device
        if key not in self._devices:
            order = _DEVICES * (1 + min(max(device or 0, 0), _MOST_DEVICES))
            name = "device ?" if device is None else f"device {device}"
            self._devices[key] = self._packets.group(name, self._main_process(rank), order)
        return self._devices[key]

    def _process(self, rank: int | None, pid: int | None) -> tuple[int, int]:
        """Return the number of a process in the trace, and the number of its track."""
        key = rank, pid
        if key not in self._processes:
            named = self._name if rank is None else f"{self._run_prefix}rank {rank}"
            is_main = pid == self._main.get(rank)
            name = shown_name(named) if is_main else f"{shown_name(named)}, process {pid}"
            number = self._packets.id(pid)
            order = len(self._processes)
            self._processes[key] = number, self._packets.process(number, name, order)
        return self._processes[key]


def _description(where: Where) -> bytes:
    """Encode what a track shows, so that ``formats.perfetto`` can read the file again."""
    return description(msgspec.json.encode(where).decode())
