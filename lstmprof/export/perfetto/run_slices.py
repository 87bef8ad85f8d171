"""Write the events of a run as Perfetto slices, and compute counters of its devices.

The counters are the length of a device's queue, the bandwidth of its copies and its busy share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lstmprof.events.groups import numbered
from lstmprof.events.intervals import Covered, Flags, Ints
from lstmprof.events.narrow import Packed
from lstmprof.events.schema import ACTIVITY_KINDS, PHASES
from lstmprof.events.table import NONE, UNKNOWN, EventTable
from lstmprof.events.threads import nesting_order, thread_ids
from lstmprof.export.perfetto.trace_tracks import Packets, Track, Tracks, flows
from lstmprof.formats.perfetto import writers

READS = (
    *("event_id", "kind", "name", "start_ns", "dur_ns", "rank", "pid", "tid", "launch_id"),
    *("op_id", "category", *writers.NUMBERS, *writers.TEXTS),
)
_OP = "op"
#: Word in a track's name, such as ``stream 7: waits``, by the kind of the track's events.
_OTHER_KINDS = {"range": "ranges", "device_sync": "waits"}


class Arrows:
    """Arrows from launches to later kernels and copies; ids are ``first`` + event id."""

    def __init__(self, packed: Packed, first: int = 1) -> None:
        self.first = first
        launch = packed.values("launch_id").astype(np.int64)
        launched_by, start = packed.rows_named("launch_id"), packed.values("start_ns")
        forward = (launched_by != NONE) & (start >= start[launched_by])
        rows = np.flatnonzero(packed.is_kind(*ACTIVITY_KINDS) & forward)
        order = rows[np.argsort(launch[rows], kind="stable")]
        self._launch, self._activity = launch[order], packed.values("event_id")[order]

    def of(self, event_ids: Ints) -> list[list[int]]:
        """Return the ids of the kernels and copies that each event launched."""
        first = np.searchsorted(self._launch, event_ids)
        last = np.searchsorted(self._launch, event_ids, side="right")
        pairs = zip(first.tolist(), last.tolist(), strict=True)
        return [self._activity[a:b].tolist() if b > a else [] for a, b in pairs]


class RunSlices:
    """Writes events as slices of tracks."""

    def __init__(self, packets: Packets, tracks: Tracks, arrows: Arrows, origin_ns: int) -> None:
        self._packets, self._tracks, self._arrows = packets, tracks, arrows
        self._origin_ns = origin_ns
        self._texts: dict[tuple[str, str], bytes] = {}

    def add(self, events: EventTable, rows: Ints, event_ids: Ints) -> None:
        order = nesting_order(events, rows)
        ids = event_ids[np.searchsorted(rows, order)]
        launch = events.rows_named("launch_id")[order]
        forward = (launch != NONE) & (events.start_ns[order] >= events.start_ns[launch])
        forward &= events.is_kind(*ACTIVITY_KINDS)[order]
        rests = zip(
            self._arguments(events, order),
            self._arrows.of(ids),
            np.where(forward, ids, NONE).tolist(),
            strict=True,
        )
        columns = (
            self._tracks_of(events, order),
            (events.start_ns[order] - self._origin_ns).tolist(),
            (events.end_ns[order] - self._origin_ns).tolist(),
            _texts(events, "name", order),
            _texts(events, "kind", order),
            _texts(events, "category", order),
        )
        lines = zip(rests, *columns, strict=True)
        for (rest, started, ended), track, start, end, name, kind, category in lines:
            first = self._arrows.first  # the number of an arrow must not be 0
            arrows = flows([first + n for n in started], [first + ended] if ended >= 0 else ())
            track.add(start, end, name or "?", category or kind or "?", rest + arrows)

    def _tracks_of(self, events: EventTable, rows: Ints) -> list[Track]:
        on_thread = (thread_ids(events)[rows] != NONE).tolist()
        places = zip(
            on_thread,
            *(_numbers(events, c, rows) for c in ("rank", "pid", "tid", "device", "stream")),
            _texts(events, "kind", rows),
            strict=True,
        )
        tracks = self._tracks
        return [
            tracks.thread(rank, pid, tid)
            if hosted
            else tracks.stream(rank, device, stream, _OTHER_KINDS.get(kind or "", ""))
            for hosted, rank, pid, tid, device, stream, kind in places
        ]

    def _arguments(self, events: EventTable, rows: Ints) -> list[bytes]:
        op = events.rows_named("op_id")[rows]
        codes, names = events.texts("name")
        code_of_op = np.where(op == NONE, NONE, codes[op])
        op_names = [names[code] if code >= 0 else None for code in code_of_op.tolist()]
        columns: list[list[bytes]] = []
        columns.append(self._each(writers.KIND, _texts(events, "kind", rows), self._text))
        for column, name in writers.NUMBERS.items():
            columns.append(self._each(name, _numbers(events, column, rows), self._number))
        for column in writers.TEXTS:
            columns.append(self._each(column, _texts(events, column, rows), self._text))
        hosted = (thread_ids(events)[rows] != NONE).tolist()
        pids = zip(hosted, _numbers(events, "pid", rows), strict=True)
        beside = [None if on_thread else pid for on_thread, pid in pids]
        columns.append(self._each(writers.PID, beside, self._number))
        columns.append(self._each(_OP, op_names, self._text))
        return [b"".join(parts) for parts in zip(*columns, strict=True)]

    def _each(
        self, name: str, values: list[int | None] | list[str | None], make: Callable[..., bytes]
    ) -> list[bytes]:
        return [b"" if value is None else make(name, value) for value in values]

    def _number(self, name: str, value: int) -> bytes:
        return self._packets.argument(name, value)

    def _text(self, name: str, value: str) -> bytes:
        key = name, value
        if key not in self._texts:
            self._texts[key] = self._packets.argument(name, value)
        return self._texts[key]


def _numbers(events: EventTable, column: str, rows: Ints) -> list[int | None]:
    values = events.ints(column, UNKNOWN)[rows].tolist()
    return [None if value == UNKNOWN else value for value in values]


def _texts(events: EventTable, column: str, rows: Ints) -> list[str | None]:
    codes, values = events.texts(column)
    return [values[code] if code >= 0 else None for code in codes[rows].tolist()]


class Phases:
    """Joins successive host events of one phase, such as forward, to one interval."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[int, int, int, int]] = {}  # rank → step, phase, start, end

    def add(self, events: EventTable, rows: Ints) -> list[tuple[int | None, int, str, int, int]]:
        """Add events. Return the phases that ended: (rank, step, phase, start, end)."""
        phase = events.mapped("phase", lambda p: PHASES.index(p) if p in PHASES else NONE, NONE)
        step, rank = events.ints("step", UNKNOWN), events.ints("rank", UNKNOWN)
        in_phase: Flags = (phase[rows] != NONE) & (thread_ids(events)[rows] != NONE)
        rows = rows[in_phase & (step[rows] != UNKNOWN)]
        ended = []
        columns = (rank, step, phase, events.start_ns, events.end_ns)
        for of_rank, number, place, start, end in zip(
            *(c[rows].tolist() for c in columns), strict=True
        ):
            before = self._open.get(of_rank)
            if before and before[:2] == (number, place):
                self._open[of_rank] = (*before[:3], max(before[3], end))
                continue
            if before:
                ended.append(_phase(of_rank, before, min(before[3], start)))
            self._open[of_rank] = (number, place, start, end)
        return ended

    def rest(self) -> list[tuple[int | None, int, str, int, int]]:
        """Return the phases that are still open at the end."""
        return [_phase(of_rank, last, last[3]) for of_rank, last in self._open.items()]


def _phase(
    rank: int, phase: tuple[int, int, int, int], end_ns: int
) -> tuple[int | None, int, str, int, int]:
    step, place, start_ns, _ = phase
    return None if rank == UNKNOWN else rank, step, PHASES[place], start_ns, end_ns


#: Largest number of parts of a run, each with one busy share, and shortest part in ns.
PARTS, LEAST_PART_NS = 1000, 10_000


@dataclass(frozen=True)
class CounterSamples:
    """The values of a counter; each value is valid until the next."""

    name: str
    unit: str
    at_ns: Ints
    values: NDArray[np.int64] | NDArray[np.float64]


@dataclass(frozen=True)
class DeviceRows:
    """The kernels and copies of one device, as arrays with a value per activity."""

    rank: int | None
    device: int
    start_ns: Ints
    end_ns: Ints
    launched: Flags  # the launch call is known
    returned_ns: Ints  # when the launch call returned
    copied_bytes: Ints  # ``NONE``: no copy, or unknown size

    def counters(self) -> Iterator[CounterSamples]:
        """Yield the counters for which the profile has the data."""
        if self.launched.any():
            yield CounterSamples("queue length", "activities", *_queue(self))
        if (self.copied_bytes > 0).any():
            yield CounterSamples("bandwidth of copies", "GB/s", *_bandwidth(self))
        if (self.end_ns > self.start_ns).any():
            yield CounterSamples("busy share", "%", *_busy_share(self))


def activities(packed: Packed) -> Iterator[DeviceRows]:
    """Yield the kernels and copies of each device of each rank."""
    rows = np.flatnonzero(packed.is_kind(*ACTIVITY_KINDS) & packed.has_value("device"))
    ranked, rank, device = packed.has_value("rank"), packed.values("rank"), packed.values("device")
    start, dur = packed.values("start_ns"), packed.values("dur_ns")
    launch = packed.rows_named("launch_id")[rows]
    returned = start[launch].astype(np.int64) + dur[launch]
    is_copy, size = packed.is_kind("memcpy")[rows], packed.values("bytes")[rows].astype(np.int64)
    group = numbered(*(c[rows].astype(np.int64) for c in (ranked, rank, device)))
    for place in range(int(group.max(initial=NONE)) + 1):
        own = np.flatnonzero(group == place)
        first, begins = rows[own[0]], start[rows[own]].astype(np.int64)
        yield DeviceRows(
            int(rank[first]) if ranked[first] else None,
            int(device[first]),
            begins,
            begins + dur[rows[own]],
            launch[own] != NONE,
            returned[own],
            np.where(is_copy, size, NONE)[own],
        )


def _queue(rows: DeviceRows) -> tuple[Ints, Ints]:
    """Return the number of launched but unfinished kernels and copies over time."""
    enqueued = rows.returned_ns[rows.launched]
    done = np.maximum(rows.end_ns[rows.launched], enqueued)
    return _summed(enqueued, done, np.ones(len(done), dtype=np.int64))


#: Highest plausible bandwidth of a copy in bytes per ns: 1 PB/s is faster than any memory.
_MOST_BYTES_PER_NS = 1e6


def _bandwidth(rows: DeviceRows) -> tuple[Ints, NDArray[np.float64]]:
    """Return the bandwidth of the running copies over time, in GB/s."""
    plausible = (rows.copied_bytes > 0) & (rows.end_ns > rows.start_ns)
    plausible &= rows.copied_bytes < _MOST_BYTES_PER_NS * (rows.end_ns - rows.start_ns).astype(
        np.float64
    )
    start, end = rows.start_ns[plausible], rows.end_ns[plausible]
    # round to whole bytes per second, so that the sum is exactly 0 after the last copy
    rate = np.rint(rows.copied_bytes[plausible] / (end - start) * 1e9).astype(np.int64)
    at_ns, values = _summed(start, end, rate)
    return at_ns, values / 1e9


def _busy_share(rows: DeviceRows) -> tuple[Ints, NDArray[np.float64]]:
    """Divide the run into equal parts; return their starts and busy shares in percent."""
    first, last = int(rows.start_ns.min()), int(rows.end_ns.max())
    length = max(-(-(last - first) // PARTS), LEAST_PART_NS)
    begins = np.arange(first, last, length, dtype=np.int64)
    ends = np.minimum(begins + length, last)
    busy = Covered(rows.start_ns, rows.end_ns).within(begins, ends)
    return np.append(begins, last), np.append(busy / (ends - begins) * 100, 0.0)


def _summed(start: Ints, end: Ints, amounts: Ints) -> tuple[Ints, Ints]:
    """Sum the ``amounts`` of the intervals that are open at each time."""
    at_ns = np.concatenate([start, end])
    change = np.concatenate([amounts, -amounts])
    order = np.argsort(at_ns, kind="stable")
    at_ns, value = at_ns[order], np.cumsum(change[order])
    last = np.append(at_ns[1:] != at_ns[:-1], True)[: len(at_ns)]
    at_ns, value = at_ns[last], value[last]
    new = np.append(True, value[1:] != value[:-1])[: len(value)]
    return at_ns[new], value[new]
