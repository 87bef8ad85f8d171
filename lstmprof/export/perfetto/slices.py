"""The events of a run as slices, with their arguments, and arrows from launches to activities."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.narrow import Packed
from lstmprof.events.schema import ACTIVITY_KINDS, PHASES
from lstmprof.events.table import NONE, UNKNOWN, EventTable
from lstmprof.events.threads import nesting_order, thread_ids
from lstmprof.export.perfetto.packets import Packets, flows
from lstmprof.export.perfetto.tracks import Track, Tracks
from lstmprof.formats.perfetto import own

#: What the slices are made from.
READS = (
    *("event_id", "kind", "name", "start_ns", "dur_ns", "rank", "pid", "tid", "launch_id"),
    *("op_id", "category", *own.NUMBERS, *own.TEXTS),
)
_OP = "op"
#: What is shown of a device beside its activities.
_BESIDE = {"range": "ranges", "device_sync": "waits"}


class Arrows:
    """Which activities each launch enqueued; activities that begin before it have no arrow."""

    def __init__(self, packed: Packed) -> None:
        launch = packed.values("launch_id").astype(np.int64)
        launched_by, start = packed.rows_named("launch_id"), packed.values("start_ns")
        forward = (launched_by != NONE) & (start >= start[launched_by])
        rows = np.flatnonzero(packed.is_kind(*ACTIVITY_KINDS) & forward)
        order = rows[np.argsort(launch[rows], kind="stable")]
        self._launch, self._activity = launch[order], packed.values("event_id")[order]

    def of(self, event_ids: Ints) -> list[list[int]]:
        """The activities that each of these events launched, by ``event_id``."""
        first = np.searchsorted(self._launch, event_ids)
        last = np.searchsorted(self._launch, event_ids, side="right")
        pairs = zip(first.tolist(), last.tolist(), strict=True)
        return [self._activity[a:b].tolist() if b > a else [] for a, b in pairs]


class Slices:
    """Writes events as slices of ``tracks``; times are counted from ``origin_ns``."""

    def __init__(self, packets: Packets, tracks: Tracks, arrows: Arrows, origin_ns: int) -> None:
        self._packets, self._tracks, self._arrows = packets, tracks, arrows
        self._origin_ns = origin_ns
        self._texts: dict[tuple[str, str], bytes] = {}

    def add(self, events: EventTable, rows: Ints, event_ids: Ints) -> None:
        """The ``rows`` of ``events``, whose ``event_ids`` these are in the run."""
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
            # an arrow's number is not 0
            arrows = flows([n + 1 for n in started], [ended + 1] if ended >= 0 else ())
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
            else tracks.stream(rank, device, stream, _BESIDE.get(kind or "", ""))
            for hosted, rank, pid, tid, device, stream, kind in places
        ]

    def _arguments(self, events: EventTable, rows: Ints) -> list[bytes]:
        """The arguments of each row: those that are known."""
        op = events.rows_named("op_id")[rows]
        codes, names = events.texts("name")
        code_of_op = np.where(op == NONE, NONE, codes[op])
        of_ops = [names[code] if code >= 0 else None for code in code_of_op.tolist()]
        columns: list[list[bytes]] = []
        columns.append(self._each(own.KIND, _texts(events, "kind", rows), self._text))
        for column, name in own.NUMBERS.items():
            columns.append(self._each(name, _numbers(events, column, rows), self._number))
        for column in own.TEXTS:
            columns.append(self._each(column, _texts(events, column, rows), self._text))
        hosted = (thread_ids(events)[rows] != NONE).tolist()
        pids = zip(hosted, _numbers(events, "pid", rows), strict=True)
        beside = [None if on_thread else pid for on_thread, pid in pids]
        columns.append(self._each(own.PID, beside, self._number))
        columns.append(self._each(_OP, of_ops, self._text))
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
    """The phases of the steps: from the first host event of a phase to the first of another."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[int, int, int, int]] = {}  # rank → step, phase, start, end

    def add(self, events: EventTable, rows: Ints) -> list[tuple[int | None, int, str, int, int]]:
        """(rank, step, phase, start, end) of those that ended in ``rows``."""
        phase = events.mapped("phase", lambda p: PHASES.index(p) if p in PHASES else NONE, NONE)
        step, rank = events.ints("step", UNKNOWN), events.ints("rank", UNKNOWN)
        told: Flags = (phase[rows] != NONE) & (thread_ids(events)[rows] != NONE)
        rows = rows[told & (step[rows] != UNKNOWN)]
        ended = []
        columns = (rank, step, phase, events.start_ns, events.end_ns)
        for of, number, place, start, end in zip(*(c[rows].tolist() for c in columns), strict=True):
            before = self._open.get(of)
            if before and before[:2] == (number, place):
                self._open[of] = (*before[:3], max(before[3], end))
                continue
            if before:
                ended.append(_phase(of, before, min(before[3], start)))
            self._open[of] = (number, place, start, end)
        return ended

    def rest(self) -> list[tuple[int | None, int, str, int, int]]:
        """Those that are still under way."""
        return [_phase(of, last, last[3]) for of, last in self._open.items()]


def _phase(
    rank: int, phase: tuple[int, int, int, int], end_ns: int
) -> tuple[int | None, int, str, int, int]:
    step, place, start_ns, _ = phase
    return None if rank == UNKNOWN else rank, step, PHASES[place], start_ns, end_ns
