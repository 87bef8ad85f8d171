"""The tracks of a trace: ranks as processes, in them threads, devices, streams and the ledger.

A slice of a track lies within the one that is open there, or after it. Where a profile has
some that do neither (kernels of one stream that overlap, a profiler's jitter), the later one goes
to another track of the same name beside it: no slice is shortened.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import msgspec

from lstmprof.events.counters import Series
from lstmprof.export.perfetto.packets import Packets, description
from lstmprof.formats.perfetto.own import FACTS_TRACK, LEDGER, PHASES, STEPS, Facts, Where
from lstmprof.numbers import shown_name
from lstmprof.runs.metadata import RunInfo

#: Numbers of processes and threads that a system gives; others are replaced, and stand in names.
_FIRST_FREE_ID = 2**30
#: The order of the tracks of a process; those of device n follow at ``_DEVICES * (n + 1)``.
_STEPS, _PHASES, _LEDGER, _DEVICES = 0, 1, 2, 16
#: The most devices whose order is kept.
_MOST_DEVICES = 10_000


class Track:
    """One track, and those of its name beside it; slices come by start, the longer first."""

    def __init__(self, packets: Packets, new: Callable[[int], int]) -> None:
        self._packets, self._new = packets, new
        self._lanes: list[tuple[int, list[int]]] = []  # number, ends of the slices open on it

    def add(self, start_ns: int, end_ns: int, name: str, category: str, rest: bytes) -> None:
        """A slice [start, end); ``rest``: its arguments and flows."""
        lane = self._lane(start_ns, end_ns)
        self._packets.begin(lane, start_ns, name, category, rest)

    def _lane(self, start_ns: int, end_ns: int) -> int:
        for lane, ends in self._lanes:
            while ends and ends[-1] <= start_ns:
                self._packets.end(lane, ends.pop())
            if not ends or ends[-1] >= end_ns:
                ends.append(end_ns)
                return lane
        lane = self._new(len(self._lanes))
        self._lanes.append((lane, [end_ns]))
        return lane

    def close(self) -> None:
        """End what is open."""
        for lane, ends in self._lanes:
            while ends:
                self._packets.end(lane, ends.pop())


class Tracks:
    """The tracks of a run, made when they are asked for; ``main_pids`` are by rank."""

    def __init__(
        self, packets: Packets, info: RunInfo, name: str, main_pids: Mapping[int | None, int | None]
    ) -> None:
        self._packets, self._info, self._name, self._main = packets, info, name, main_pids
        self._processes: dict[tuple[int | None, int | None], tuple[int, int]] = {}
        self._devices: dict[tuple[int | None, int | None], int] = {}
        self._tracks: dict[tuple[object, ...], Track] = {}
        self._ids: set[tuple[int, int]] = set()
        self._free_ids = itertools.count(_FIRST_FREE_ID)

    def close(self) -> None:
        """End every slice that is open."""
        for track in self._tracks.values():
            track.close()

    def thread(self, rank: int | None, pid: int | None, tid: int | None) -> Track:
        """That of a host thread."""
        return self._kept(("thread", rank, pid, tid), lambda n: self._thread(rank, pid, tid, n))

    def _thread(self, rank: int | None, pid: int | None, tid: int | None, place: int) -> int:
        number, process = self._process(rank, pid)
        of_thread = "thread" if tid is None else f"thread {tid}"
        name = shown_name(self._info.thread_names(rank).get(str(tid), "")) or of_thread
        more = _whose(Where(rank, pid, tid, thread=True))
        if place:
            return self._packets.track(f"{name}: what overlaps", process, more=more)
        return self._packets.thread(number, self._id(tid, number), name, more)

    def stream(self, rank: int | None, device: int | None, stream: int | None, of: str) -> Track:
        """That of a stream of a device; ``of``: what it shows beside activities, or nothing."""

        def new(place: int) -> int:
            name = "stream ?" if stream is None else f"stream {stream}"
            group = self._device(rank, device)
            rank_ = 2 if stream is None else 2 + min(max(stream, 0), _FIRST_FREE_ID)
            whose = b"" if rank is None else _whose(Where(rank))
            of_all = f"{name}: {of}" if of else name
            return self._packets.track(of_all, group, rank=rank_, more=whose)

        return self._kept(("stream", rank, device, stream, of), new)

    def facts(self, origin_ns: int) -> None:
        """A track that says what the profile said as a whole."""
        info = self._info
        said = Facts(
            info.profile_format or "perfetto",
            origin_ns,
            dict(info.device_names or {}),
            dict(info.device_facts or {}),
            list(info.accelerators or ()),
            info.gpu_complaint,
            list(info.notes or ()),
            dict(info.profile_metadata or {}),
        )
        text = msgspec.json.encode(said).decode()
        self._packets.track(FACTS_TRACK, more=description(text))

    def ledger(self, rank: int | None, device: int | None) -> Track:
        """That of the ledger of a device, or of the host's threads."""
        name = f"{LEDGER}CPU" if device is None else f"{LEDGER}device {device}"
        return self._of_rank(rank, name, _LEDGER)

    def steps(self, rank: int | None) -> Track:
        """That of the steps of a rank."""
        return self._of_rank(rank, STEPS, _STEPS)

    def phases(self, rank: int | None) -> Track:
        """That of the phases of its steps."""
        return self._of_rank(rank, PHASES, _PHASES)

    def counter(self, rank: int | None, device: int, name: str, unit: str) -> int:
        """A new counter of a device."""
        return self._packets.counter(name, unit, self._device(rank, device), 0)

    def recorded(self, series: Series) -> int:
        """A new counter that the profile itself has, of a device or of a process."""
        of = f" of {series.allocator}" if series.allocator else ""
        name, unit = shown_name(f"{series.name}{of}"), shown_name(series.unit or "")
        place = Where(
            series.rank,
            series.pid,
            device=series.device,
            counter=series.name,
            unit=series.unit,
            allocator=series.allocator,
        )
        if series.device is not None:
            group = self._device(series.rank, series.device)
            return self._packets.counter(name, unit, group, 1, _whose(place))
        pid = self._main.get(series.rank) if series.pid is None else series.pid
        process = self._process(series.rank, pid)[1]
        return self._packets.counter(name, unit, process, _STEPS, _whose(place))

    def _of_rank(self, rank: int | None, name: str, order: int) -> Track:
        def new(place: int) -> int:
            return self._packets.track(name, self._main_process(rank), rank=order)

        return self._kept((name, rank), new)

    def _kept(self, key: tuple[object, ...], new: Callable[[int], int]) -> Track:
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
        """The number of a process in the trace, and its track."""
        key = rank, pid
        if key not in self._processes:
            named = self._name if rank is None else f"rank {rank}"
            is_main = pid == self._main.get(rank)
            name = shown_name(named) if is_main else f"{shown_name(named)}, process {pid}"
            number = self._id(pid)
            order = len(self._processes)
            self._processes[key] = number, self._packets.process(number, name, order)
        return self._processes[key]

    def _id(self, given: int | None, process: int = 0) -> int:
        """``given``, or a new number where that is none of a system or has been used."""
        is_one = given is not None and 0 < given < _FIRST_FREE_ID
        if given is None or not is_one or (process, given) in self._ids:
            return next(self._free_ids)
        self._ids.add((process, given))
        return given


def _whose(where: Where) -> bytes:
    """What a track says of itself, for who reads it again."""
    return description(msgspec.json.encode(where).decode())
