"""Make the timelines of the HTML report, one per chosen step.

A timeline has rows for each device's breakdown, each device's streams, and each host thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lstmprof.base.numbers import shown_name
from lstmprof.breakdown.attribution import Intervals, attributed, host
from lstmprof.events.annotate.calls import launch_calls
from lstmprof.events.annotate.steps import Window, median_step
from lstmprof.events.intervals import Ints
from lstmprof.events.launch_config import read
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import UNKNOWN, EventTable
from lstmprof.events.threads import STATES, state_codes, thread_ids
from lstmprof.report.counters import lanes
from lstmprof.report.model import Timeline, Track
from lstmprof.report.palette import PARTS, label_of, part_of
from lstmprof.report.runs import RunReport

#: Largest number of events per timeline and per page; more would make the page too large (MB).
MOST_EVENTS, ALL_EVENTS = 60_000, 240_000
#: Largest number of host threads per timeline, and of nested call levels per thread.
MOST_THREADS, MOST_DEPTH = 12, 64
#: Most ranks of a run that have a timeline.
MOST_RANKS = 8
#: Columns of the events table that the page shows after a click on an event.
FACTS = (
    *("op_name", "phase", "shapes", "dtypes", "bytes", "correlation_id", "external_id"),
    *("graph_node_id", "sequence_number", "launch_config"),
)
#: Column ``launch_config``, and the name of this column on the page.
_LAUNCH, _LAUNCHED = "launch_config", "launched_with"
_NAME, _FACT = 160, 400
#: Limit of the thread ids on the page. Larger ids are hashes: the page numbers these threads.
_MOST_TID = 2**32
#: Pattern of the number at the end of TensorFlow's thread names.
_NUMBERED = re.compile(r"/-?\d+$")
_NEITHER = -1
_COLUMNS = ("track", "start_ns", "dur_ns", "name", "part", "row")


def timelines(reports: Sequence[RunReport]) -> tuple[Timeline, ...]:
    """Draw the chosen steps of all runs, with at most ``ALL_EVENTS`` events in total."""
    drawing = _Page()
    # choose each run's steps: median, longest and shortest, then median steps of other ranks
    wanted = [_wanted(report) for report in reports]
    drawing.awaited = sum(steps[0].least for steps in wanted)
    for report, steps in zip(reports, wanted, strict=True):
        drawing.add(report, steps)
    return tuple(drawing.fitting())


@dataclass
class _Page:
    """Chooses which timelines fit on the page."""

    awaited: int = 0  # events to reserve for the first timelines of later runs
    growth: float = 1.0  # drawn events per event; the breakdown is drawn, too

    def __post_init__(self) -> None:
        self.drawn: list[tuple[int, Timeline]] = []
        self.size = 0

    def add(self, report: RunReport, steps: Sequence[_Wanted]) -> None:
        """Draw the steps of a run that fit within the limit ``ALL_EVENTS``."""
        self.awaited -= steps[0].least
        loaded, run = None, report.facts.run
        tables: dict[int | None, EventTable] = {}
        ranks = {step.window.rank for step in steps}
        lanes_of = lanes(report.breakdown.run.counters, [step.window for step in steps])
        for turn, (step, counted) in enumerate(zip(steps, lanes_of, strict=True)):
            if self.size + self.growth * (step.least + (self.awaited if turn else 0)) > ALL_EVENTS:
                continue
            rank = step.window.rank
            if rank not in tables:
                if len(ranks) > 1:
                    loaded = loaded or report.breakdown.events_of_ranks(ranks)
                tables = {rank: report.breakdown.events_of_rank(rank, loaded)}
            names = report.profile.info.thread_names(step.window.rank)
            made = timeline(run, tables[rank], step.window, MOST_EVENTS, names, step.which)
            made = replace(made, lanes=counted)
            size = len(made.columns["track"])
            self.drawn.append((turn, made))
            self.size += _size(made)
            self.growth = max(self.growth, size / max(step.least, 1))

    def fitting(self) -> Iterator[Timeline]:
        """Yield timelines that fit; begin the choice with the first timeline of each run."""
        room, chosen = ALL_EVENTS, set()
        for position in sorted(
            range(len(self.drawn)), key=lambda position: self.drawn[position][0] > 0
        ):
            size = _size(self.drawn[position][1])
            if size <= room:
                room -= size
                chosen.add(position)
        return (made for position, (_, made) in enumerate(self.drawn) if position in chosen)


def _size(drawn: Timeline) -> int:
    return len(drawn.columns["track"]) + sum(len(lane.values) for lane in drawn.lanes)


@dataclass(frozen=True)
class _Wanted:
    """A step to draw."""

    window: Window
    which: str  # why
    least: int  # number of its events to draw


def _wanted(report: RunReport) -> list[_Wanted]:
    loaded = report.breakdown.packed(("rank", "start_ns", "dur_ns"))
    rank, start = loaded.values("rank"), loaded.values("start_ns").astype(np.int64)
    end = start + loaded.values("dur_ns")
    wanted = []
    for window, which in _steps(report):
        seen = (start < window.end_ns) & (end > window.start_ns)
        seen &= rank == (_NEITHER if window.rank is None else window.rank)
        least = min(int(np.count_nonzero(seen)), MOST_EVENTS)
        wanted.append(_Wanted(window, which, least))
    return wanted


def _steps(report: RunReport) -> Iterator[tuple[Window, str]]:
    """Yield the steps to draw with a reason, such as ``longest other step``."""
    windows = report.breakdown.windows
    own = [w for w in windows if w.rank == report.profile.rank]
    median = median_step(own)
    yield median, "median length"
    by_length = sorted((w for w in own if w is not median), key=lambda w: w.length_ns)
    yield from ((window, "longest other step") for window in by_length[-1:])
    yield from ((window, "shortest other step") for window in by_length[:-1][:1])
    others: dict[int | None, list[Window]] = {}
    for window in windows:
        if window.rank != report.profile.rank:
            others.setdefault(window.rank, []).append(window)
    for step in spread([median_step(of_rank) for of_rank in others.values()], MOST_RANKS - 1):
        yield step, "median length"


def spread(steps: Sequence[Window], most: int) -> list[Window]:
    """Choose up to ``most`` steps, spread evenly from the shortest to the longest."""
    if len(steps) <= most:
        return list(steps)
    by_length = sorted(range(len(steps)), key=lambda n: steps[n].length_ns)
    places = np.linspace(0, len(steps) - 1, most).round().astype(np.int64)
    return [steps[number] for number in sorted(by_length[position] for position in places.tolist())]


def timeline(
    run: str,
    events: EventTable,
    window: Window,
    most: int,
    thread_names: Mapping[str, str] = MappingProxyType({}),
    which: str = "",
) -> Timeline:
    """Draw the ``most`` longest events of a step."""
    drawn = _Drawing(events, window, thread_names)
    drawn.add_ledgers()
    drawn.add_streams()
    drawn.add_threads()
    columns = {name: np.concatenate(pieces) for name, pieces in drawn.columns.items()}
    drawn_rows = np.sort(np.argsort(-columns["dur_ns"], kind="stable")[:most])
    drawn_rows = drawn_rows[
        np.lexsort((columns["start_ns"][drawn_rows], columns["track"][drawn_rows]))
    ]
    names, columns["name"] = np.unique(columns["name"][drawn_rows], return_inverse=True)
    rows = columns.pop("row")[drawn_rows]
    columns["launch"] = _positions(rows, events.rows_named("launch_id"))
    return Timeline(
        run=run,
        step=window.step,
        rank=window.rank,
        which=which,
        dur_ns=window.length_ns,
        tracks=tuple(drawn.tracks),
        names=tuple(drawn.names[code] for code in names.tolist()),
        parts=tuple(PARTS),
        columns={
            name: (column if name in ("name", "launch") else column[drawn_rows]).tolist()
            for name, column in columns.items()
        },
        facts={
            _LAUNCHED if name == _LAUNCH else name: fact
            for name in FACTS
            if (fact := _fact(events, name, rows)) is not None
        },
        left_out=drawn.left_out + len(columns["dur_ns"]) - len(drawn_rows),
    )


def _positions(rows: Ints, linked: Ints) -> Ints:
    """Return the index of each drawn event's launch among the drawn events, or −1."""
    position_of = np.full(len(linked) + 1, _NEITHER)
    real = np.flatnonzero(rows >= 0)
    position_of[rows[real]] = real
    target = np.where(rows >= 0, linked[rows], _NEITHER)
    return np.where(target >= 0, position_of[target], _NEITHER)


def _fact(events: EventTable, column: str, rows: Ints) -> tuple[tuple[str, ...], list[int]] | None:
    """Return a column's distinct texts, and the index of each event's text, or −1."""
    texts_of_rows = events.column(column).take(pa.array(np.maximum(rows, 0)))
    is_known = (rows >= 0) & np.asarray(pc.is_valid(texts_of_rows))
    if not is_known.any():
        return None
    texts = texts_of_rows.filter(pa.array(is_known)).cast(pa.string())
    encoded = texts.combine_chunks().dictionary_encode()
    codes = np.full(len(rows), _NEITHER)
    codes[is_known] = np.asarray(encoded.indices)
    values = encoded.dictionary.to_pylist()
    if column == _LAUNCH:
        values = [config.words if (config := read(text)) else text for text in values]
    return tuple(shown_name(text, _FACT) for text in values), codes.tolist()


@dataclass
class _Drawing:
    """Collects the tracks and events of a timeline."""

    events: EventTable
    window: Window
    thread_names: Mapping[str, str]

    def __post_init__(self) -> None:
        self.tracks: list[Track] = []
        self.left_out = 0
        none = np.empty(0, dtype=np.int64)
        self.columns = {name: [none] for name in _COLUMNS}
        self.code, names = self.events.texts("name")
        self.names = [shown_name(name, _NAME) for name in names]
        self.start = self.events.start_ns
        self.end = self.start + self.events.dur_ns
        rows = self.events.rows_of_rank(self.window.rank)
        seen = (self.start[rows] < self.window.end_ns) & (self.end[rows] > self.window.start_ns)
        self.rows = rows[seen]
        self.part = part_codes(self.events)

    def _add(
        self, track: Ints, start: Ints, end: Ints, name: Ints, part: Ints, row: Ints | None = None
    ) -> None:
        first = np.clip(start, self.window.start_ns, self.window.end_ns)
        last = np.clip(end, self.window.start_ns, self.window.end_ns)
        row = np.full(len(track), _NEITHER) if row is None else row
        added = (track, first - self.window.start_ns, last - first, name, part, row)
        for column, values in zip(self.columns.values(), added, strict=True):
            column.append(np.asarray(values, dtype=np.int64))

    def _add_rows(self, rows: Ints, track: Ints) -> None:
        self._add(track, self.start[rows], self.end[rows], self.code[rows], self.part[rows], rows)

    def add_ledgers(self) -> None:
        """Add a breakdown track for each device, or for the CPU if there is no device."""
        places = {name: position for position, name in enumerate(PARTS)}
        lanes = attributed(self.events, [self.window], self.window.rank)
        for device, intervals in lanes.items():
            where = "CPU" if device is None else f"device {device}"
            self.tracks.append(Track(f"{where}: the ledger", "account", 0))
            drawn = _joined(intervals)
            used, label = np.unique(drawn.label, return_inverse=True)
            parts = [drawn.labels[position] for position in used.tolist()]
            first = len(self.names)
            self.names += [label_of(state, part) for state, part in parts]
            colours = np.array([places[part_of(*part).name] for part in parts], dtype=np.int64)
            track = np.full(len(label), len(self.tracks) - 1)
            self._add(track, drawn.start_ns, drawn.end_ns, first + label, colours[label])

    def add_streams(self) -> None:
        activities = self.rows[self.events.is_kind(*ACTIVITY_KINDS)[self.rows]]
        device, stream = (self.events.ints(c, UNKNOWN)[activities] for c in ("device", "stream"))
        for pair in np.unique(np.stack([device, stream]), axis=1).T.tolist():
            rows = activities[(device == pair[0]) & (stream == pair[1])]
            ids = ["?" if n == UNKNOWN else str(n) for n in pair]
            self.tracks.append(Track(f"device {ids[0]}, stream {ids[1]}", "stream", 0))
            self._add_rows(rows, np.full(len(rows), len(self.tracks) - 1))

    def add_threads(self) -> None:
        """Add a track per host thread and call depth; the step's own thread comes first."""
        thread = thread_ids(self.events)
        on_host = self.rows[thread[self.rows] >= 0]
        numbers, counts = np.unique(thread[on_host], return_counts=True)
        busiest = sorted(zip((-counts).tolist(), numbers.tolist(), strict=True))
        order = sorted((n for _, n in busiest), key=lambda n: n != self.window.thread)
        depth = depths(self.events)
        tids = self.events.ints("tid", UNKNOWN)
        for position, number in enumerate(order[:MOST_THREADS], 1):
            rows = on_host[thread[on_host] == number]
            shallow = rows[depth[rows] < MOST_DEPTH]
            self.left_out += len(rows) - len(shallow)
            least = int(depth[shallow].min())
            deepest = int(depth[shallow].max()) - least
            first = len(self.tracks)
            named = self._thread(int(tids[rows[0]]), position)
            self.tracks += [Track(named if d == 0 else "", "host", d) for d in range(deepest + 1)]
            self._add_rows(shallow, first + depth[shallow] - least)
        drawn = set(order[:MOST_THREADS])
        self.left_out += sum(-count for count, number in busiest if number not in drawn)

    def _thread(self, tid: int, position: int) -> str:
        """Return the label of a thread: ``thread 12, pt_autograd_0``."""
        name = shown_name(_NUMBERED.sub("", self.thread_names.get(str(tid), "")), _NAME)
        number = tid if 0 <= tid < _MOST_TID else position
        return f"thread {number}" + (f", {name}" if name else "")


def _joined(intervals: Intervals) -> Intervals:
    """Sort intervals by time, and join adjacent idle intervals of one cause."""
    s = intervals.by_time()
    idle = np.array([state == "idle" for state, _ in s.labels])[s.label]
    first = np.flatnonzero(np.append(True, (np.diff(s.label) != 0) | ~idle[1:])[: len(s.label)])
    last = np.append(first[1:], len(s.label))[: len(first)] - 1
    starts, ends = s.start_ns[first], s.end_ns[last]
    return Intervals(s.labels, s.window[first], s.row[first], s.label[first], starts, ends)


def depths(events: EventTable) -> Ints:
    """Return the call depth of each event within its thread, from 0."""
    above = events.rows_named("parent_id")
    depth = (above >= 0).astype(np.int64)
    while (inner := above >= 0).any():  # ``above`` is the caller 1, 2, 4, 8 … levels up
        depth[inner] += depth[above[inner]]
        above = np.where(inner, above[above], _NEITHER)
    return depth


def part_codes(events: EventTable) -> Ints:
    """Return the index in ``PARTS`` of each event's part; −1 for a step or range."""
    places = {name: position for position, name in enumerate(PARTS)}
    other = places["other"]
    category = events.mapped("category", lambda name: places.get(name, other), other)
    state = np.array([places[name] for name in STATES] + [_NEITHER])[state_codes(events)]
    calls = launch_calls(events)
    state[calls] = places["launch call"]
    computes = host.computing(events) | events.is_kind(*ACTIVITY_KINDS)
    part = np.where(computes, category, state)
    part[events.is_kind("step", "range")] = _NEITHER
    return np.asarray(part, dtype=np.int64)
