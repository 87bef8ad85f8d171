"""Write a run as a Perfetto trace, for ui.perfetto.dev and trace_processor.

An event becomes a slice, and a launch becomes an arrow to the kernel. The breakdown of a device
becomes the track *ledger*, which shows what the device did, or why the device was idle. Counters
show the device's activities and the profile's own counters, such as memory.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from lstmprof.base.errors import RunError
from lstmprof.base.scratch import check_file, writing
from lstmprof.breakdown import Breakdown
from lstmprof.breakdown.attribution import Attribution, Intervals, Label
from lstmprof.breakdown.attribution.ledger import READS as OF_LEDGER
from lstmprof.breakdown.attribution.waits import Waits, all_waits
from lstmprof.breakdown.replay.critical_path import critical_path_of
from lstmprof.events.annotate.steps import Window, median_step
from lstmprof.events.batches import Batch, Batches
from lstmprof.events.counters import Series, levels
from lstmprof.events.groups import Groups
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.narrow import Packed, packed
from lstmprof.events.table import NONE, UNKNOWN
from lstmprof.export.perfetto import run_slices
from lstmprof.export.perfetto.run_slices import Arrows, Phases, RunSlices, activities
from lstmprof.export.perfetto.trace_tracks import Packets, Tracks
from lstmprof.runs.run import Run

#: Largest number of events of a run for which the file has critical paths, which take seconds
#: and memory. Chosen by hand.
_MOST_ON_PATH = 300_000
#: Times to export: (start, end) in ns; the end is not included.
Span = tuple[int, int]


def write(
    breakdown: Breakdown,
    path: Path,
    *,
    force: bool = False,
    steps: Sequence[Window] | None = None,  # for the tracks of the breakdown
    span: Span | None = None,  # omit events outside
) -> int:
    """Write a run (all or nothing), gzipped for ``.gz``; return the file size in bytes."""
    refuse(path, force=force)
    names = dict.fromkeys((*run_slices.READS, *OF_LEDGER))
    events = breakdown.packed(list(names))
    try:
        with _opened(path) as file:
            _write(
                breakdown,
                events,
                Packets(file),
                breakdown.windows if steps is None else steps,
                span,
            )
    except OSError as fault:
        raise RunError(f"{path}: {fault.strerror}", "choose a writable file") from fault
    return path.stat().st_size


def write_pair(
    lanes: Sequence[tuple[Breakdown, int | None, int | None]], path: Path, *, force: bool = False
) -> int:
    """Write median steps side by side, all from time 0; return the file size in bytes."""
    refuse(path, force=force)
    try:
        with _opened(path) as file:
            packets, first = Packets(file), 1
            for breakdown, rank, device in lanes:
                first = _write_step(packets, breakdown, rank, device, first)
    except OSError as fault:
        raise RunError(f"{path}: {fault.strerror}", "choose a writable file") from fault
    return path.stat().st_size


def _write_step(
    packets: Packets, breakdown: Breakdown, rank: int | None, device: int | None, first: int
) -> int:
    """Write a step with arrow numbers from ``first`` on; return the next free number."""
    events, windows, intervals = breakdown.attributed_steps(rank, device)
    window = median_step(windows)
    rows = events.rows_of_rank(rank)
    rows = rows[(events.start_ns[rows] < window.end_ns) & (events.end_ns[rows] > window.start_ns)]
    begin, end = (
        np.clip(ns[rows], window.start_ns, window.end_ns) - window.start_ns
        for ns in (events.start_ns, events.end_ns)
    )
    shown = events.take(rows).with_columns({"start_ns": begin, "dur_ns": end - begin})
    shown_events, ids = packed(shown.select(run_slices.READS)), events.ints("event_id", UNKNOWN)
    name = breakdown.run.name
    tracks = Tracks(packets, breakdown.run.info, name, _main_pids(shown_events), alone=False)
    every = np.arange(len(rows))
    RunSlices(packets, tracks, Arrows(shown_events, first), 0).add(shown, every, ids[rows])
    phases = Phases()
    _add_phases(packets, tracks, [*phases.add(shown, every), *phases.rest()], 0)
    account = _Ledgers(packets, tracks, shown_events, [window], window.start_ns)
    account.add_steps()
    whole = Batch(events, ids, slice(0, len(events)), window.start_ns, window.end_ns)
    for interval in _part_intervals(whole, windows, intervals):
        if interval.window == window:
            account.add_interval((rank, device), interval)
    account.close()
    _add_counters(packets, tracks, shown_events, 0, None)
    tracks.close()
    return first + int(ids.max(initial=0)) + 1


def refuse(path: Path, *, force: bool) -> None:
    """Raise RunError if the file exists and must not be overwritten."""
    check_file(path, force=force, next_step="add --force to overwrite it, or choose another file")


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    with writing(path) as file:
        if path.suffix != ".gz":
            yield file
            return
        with gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
            yield cast(BinaryIO, packed)


def _write(
    breakdown: Breakdown,
    packed: Packed,
    packets: Packets,
    windows: Sequence[Window],
    span: Span | None,
) -> None:
    start = packed.values("start_ns")
    counted = (rows["time_ns"][0].as_py() for rows in breakdown.run.counters(["time_ns"]))
    origin_ns = min(int(start.min(initial=0)), *counted, 0)  # times of a trace are not negative
    info = breakdown.run.info
    if info.base_ns is not None and 0 < info.base_ns + origin_ns < 2**63:
        packets.clocks(0, info.base_ns + origin_ns)
    tracks = Tracks(packets, info, breakdown.run.name, _main_pids(packed))
    tracks.facts(origin_ns)
    written = RunSlices(packets, tracks, Arrows(packed), origin_ns)
    phases, account = Phases(), _Ledgers(packets, tracks, packed, list(windows), origin_ns)
    account.add_steps()
    for batch in _batches(packed):
        rows = np.arange(len(batch.events))[batch.own]
        if span is not None:
            rows = rows[_overlaps(batch, rows, span)]
        written.add(batch.events, rows, batch.rows[rows])
        account.add(batch)
        _add_phases(packets, tracks, phases.add(batch.events, rows), origin_ns)
    _add_phases(packets, tracks, phases.rest(), origin_ns)
    account.close()
    _add_critical_paths(breakdown, packets, tracks, windows, origin_ns)
    _add_counters(packets, tracks, packed, origin_ns, span)
    _add_recorded(packets, tracks, breakdown.run, origin_ns, span)
    tracks.close()


def _batches(packed: Packed) -> Iterator[Batch]:
    batches = Batches(packed)
    if batches.divisible:
        yield from batches
        return
    events = packed.table(packed.names)
    ids = events.ints("event_id", UNKNOWN)
    whole = slice(0, len(events))
    yield Batch(events, ids, whole, np.iinfo(np.int64).min, np.iinfo(np.int64).max)


def _overlaps(batch: Batch, rows: Ints, span: Span) -> Flags:
    start, end = batch.events.start_ns[rows], batch.events.end_ns[rows]
    at_all = (end > span[0]) | ((start == end) & (start >= span[0]))
    return np.asarray((start < span[1]) & at_all, dtype=np.bool_)


def _main_pids(packed: Packed) -> Mapping[int | None, int | None]:
    """Return {rank: id of the rank's process with the most host events}."""
    hosted = np.flatnonzero(packed.has_value("pid") & ~packed.has_value("device"))
    ranked = packed.has_value("rank")[hosted]
    rank, pid = (packed.values(name)[hosted].astype(np.int64) for name in ("rank", "pid"))
    groups = Groups(np.where(ranked, rank, UNKNOWN), pid)
    most: dict[int | None, int | None] = {}
    for place in np.argsort(groups.sizes(), kind="stable").tolist():
        first = groups.first[place]
        most[int(rank[first]) if ranked[first] else None] = int(pid[first])
    return most


def _add_phases(
    packets: Packets,
    tracks: Tracks,
    phases: Sequence[tuple[int | None, int, str, int, int]],
    origin_ns: int,
) -> None:
    for rank, step, phase, start, end in phases:
        rest = packets.argument("step", step)
        tracks.phases(rank).add(start - origin_ns, end - origin_ns, phase, "phase", rest)


def _add_critical_paths(
    breakdown: Breakdown,
    packets: Packets,
    tracks: Tracks,
    windows: Sequence[Window],
    origin_ns: int,
) -> None:
    """Add the critical path of each rank's median step, unless the run is too large."""
    if breakdown.run.event_count > _MOST_ON_PATH:
        return
    for rank in dict.fromkeys(window.rank for window in windows):
        window = median_step([w for w in windows if w.rank == rank])
        events = breakdown.events_of_rank(rank)
        codes, names = events.texts("name")
        intervals = critical_path_of(events, window).intervals
        ids = [NONE if s.event_id is None else s.event_id for s in intervals]
        rows = events.rows_of(np.array(ids, dtype=np.int64))
        for interval, row in zip(intervals, rows.tolist(), strict=True):
            rest = packets.argument("part", interval.part)
            if window.step is not None:
                rest += packets.argument("step", window.step)
            if interval.event_id is not None and codes[row] != NONE:
                rest += packets.argument("event", names[codes[row]])
            start, end = interval.start_ns - origin_ns, interval.end_ns - origin_ns
            name = interval.part if interval.state == "busy" else f"idle: {interval.part}"
            tracks.critical_path(rank).add(start, end, name, interval.state, rest)


def _add_counters(
    packets: Packets, tracks: Tracks, packed: Packed, origin_ns: int, span: Span | None
) -> None:
    for device in activities(packed):
        for counter in device.counters():
            track = tracks.counter(device.rank, device.device, counter.name, counter.unit)
            at_ns, values = counter.at_ns, counter.values
            if span is not None:  # begin with the last value before the span
                first = max(int(np.searchsorted(at_ns, span[0], side="right")) - 1, 0)
                until = int(np.searchsorted(at_ns, span[1], side="right"))
                at_ns = np.clip(at_ns[first:until], *span)
                values = values[first:until]
            for instant, value in zip((at_ns - origin_ns).tolist(), values.tolist(), strict=True):
                packets.count(track, instant, value)


def _add_recorded(
    packets: Packets, tracks: Tracks, run: Run, origin_ns: int, span: Span | None
) -> None:
    """Add the counters that the profile recorded, such as memory."""
    track_of: dict[Series, int] = {}
    before: dict[Series, float] = {}

    def add(series: Series, at_ns: Sequence[int], values: Sequence[float]) -> None:
        if series not in track_of:
            track_of[series] = tracks.recorded(series)
            # begin the counter with its last value before the span
            if span is not None and series in before:
                packets.count(track_of[series], span[0] - origin_ns, before[series])
        for instant, value in zip(at_ns, values, strict=True):
            packets.count(track_of[series], instant - origin_ns, value)

    for series, at_ns, values in levels(run.counters):
        first, until = (0, len(at_ns)) if span is None else np.searchsorted(at_ns, span).tolist()
        if first:
            before[series] = float(values[first - 1])
        if first < until:
            add(series, at_ns[first:until].tolist(), values[first:until].tolist())
    for series in before:
        add(series, (), ())


@dataclass
class _PartInterval:
    """A time interval that the breakdown assigns to one part."""

    window: Window
    label: Label
    event: tuple[int, str] | None  # (row in the run, name) of the activity
    start_ns: int
    end_ns: int

    def goes_on(self, next_: _PartInterval) -> bool:
        """Return whether ``next_`` continues this interval: same step, part and event."""
        return self.end_ns == next_.start_ns and (self.window, self.label, self.event) == (
            next_.window,
            next_.label,
            next_.event,
        )


class _Ledgers:
    """Writes the breakdown as one track of intervals per device, batch by batch."""

    def __init__(
        self,
        packets: Packets,
        tracks: Tracks,
        packed: Packed,
        windows: list[Window],
        origin_ns: int,
    ) -> None:
        self._packets, self._tracks, self._origin_ns = packets, tracks, origin_ns
        self._windows = windows
        self._packed = packed
        self._open: dict[tuple[int | None, int | None], _PartInterval] = {}

    @cached_property
    def _waits(self) -> dict[int | None, dict[int, Waits]]:
        return all_waits(self._packed, list(dict.fromkeys(w.rank for w in self._windows)))

    def add_steps(self) -> None:
        """Add the steps, one track per rank."""
        for window in self._windows:
            if window.step is not None:
                start, end = window.start_ns - self._origin_ns, window.end_ns - self._origin_ns
                rest = self._packets.argument("step", window.step)
                self._tracks.steps(window.rank).add(start, end, f"step {window.step}", "step", rest)

    def add(self, batch: Batch) -> None:
        attribution = Attribution(batch.events)
        for rank, waits in self._waits.items():
            windows = [
                w
                for w in self._windows
                if w.rank == rank and w.start_ns < batch.end_ns and w.end_ns > batch.start_ns
            ]
            if not windows:
                continue
            within = (batch.start_ns, batch.end_ns)
            lanes = attribution.intervals(windows, rank, waits, within)
            for device, intervals in lanes.items():
                for interval in _part_intervals(batch, windows, intervals):
                    self.add_interval((rank, device), interval)

    def add_interval(self, lane: tuple[int | None, int | None], interval: _PartInterval) -> None:
        """Add an interval of a device, or extend the device's last interval."""
        before = self._open.get(lane)
        if before and before.goes_on(interval):
            before.end_ns = interval.end_ns
            return
        if before:
            self._draw(lane, before)
        self._open[lane] = interval

    def close(self) -> None:
        """Write the intervals that are still open."""
        for lane, interval in self._open.items():
            self._draw(lane, interval)

    def _draw(self, lane: tuple[int | None, int | None], interval: _PartInterval) -> None:
        state, part = interval.label
        rest = self._packets.argument("part", part)
        if interval.window.step is not None:
            rest += self._packets.argument("step", interval.window.step)
        if interval.event is not None:
            rest += self._packets.argument("event", interval.event[1])
        name = part if state == "busy" else f"{state}: {part}"
        start, end = interval.start_ns - self._origin_ns, interval.end_ns - self._origin_ns
        self._tracks.ledger(*lane).add(start, end, name, state, rest)


def _part_intervals(
    batch: Batch, windows: Sequence[Window], intervals: Intervals
) -> Iterator[_PartInterval]:
    ordered = intervals.by_time()
    codes, names = batch.events.texts("name")
    columns = (ordered.window, ordered.row, ordered.label, ordered.start_ns, ordered.end_ns)
    for window, row, label, start, end in zip(*(c.tolist() for c in columns), strict=True):
        state, part = ordered.labels[label]
        is_told = state == "busy" and row != NONE and codes[row] != NONE
        event = (int(batch.rows[row]), names[codes[row]]) if is_told else None
        yield _PartInterval(windows[window], (state, part), event, start, end)
