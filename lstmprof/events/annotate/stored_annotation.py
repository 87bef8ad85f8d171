"""Compute the derived columns of an events table on disk, one batch at a time.

The columns of an event depend on other events. So each batch also gets the host events that still
run when the batch begins, and *guests*: activities whose launch or op is in the batch. To find
guests, lstmprof first joins events by id (a Grace hash join). The result is the same as in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from lstmprof.base.scratch import room_in
from lstmprof.events.annotate.categories import categorised
from lstmprof.events.annotate.links import forwards, launches, linked, ops_by_external_id
from lstmprof.events.annotate.steps import windows, with_steps
from lstmprof.events.groups import numbered
from lstmprof.events.intervals import Ints
from lstmprof.events.narrow import LINKS
from lstmprof.events.schema import ACTIVITY_KINDS, KINDS
from lstmprof.events.stored import StoredEvents, read_columns
from lstmprof.events.table import NONE, UNKNOWN, EventTable
from lstmprof.events.threads import thread_ids

_WINDOW_COLUMNS = ("event_id", "kind", "name", "start_ns", "dur_ns", "rank", "pid", "tid", "device")


def deciding_events(events: StoredEvents) -> EventTable:
    """Return the few events that suffice to compute the step windows."""
    chosen: list[pa.Table] = []
    began: dict[int, dict[int, int]] = {}
    for part in events.parts(_WINDOW_COLUMNS):
        on_host = np.flatnonzero(thread_ids(part) >= 0)
        rank, pid = (part.ints(name, UNKNOWN)[on_host] for name in ("rank", "pid"))
        process = numbered(rank, pid)
        first, last = _first_of_each(process), _last_of_each(process, part.end_ns[on_host])
        starts = part.start_ns[on_host[first]]
        for place, start_ns in zip(first.tolist(), starts.tolist(), strict=True):
            began.setdefault(int(rank[place]), {}).setdefault(int(pid[place]), start_ns)
        # take the step markers, and each process's first and last host event in the batch
        markers = on_host[part.is_kind("step")[on_host]]
        rows = np.unique(np.concatenate([markers, on_host[first], on_host[last]]))
        chosen.append(part.take(rows).arrow)
    begins = {rank: np.sort([*of.values()]) for rank, of in began.items()}
    for part in events.parts(_WINDOW_COLUMNS):
        activities = np.flatnonzero(part.is_kind(*ACTIVITY_KINDS))
        rank = part.ints("rank", UNKNOWN)[activities]
        turn = np.zeros(len(activities), dtype=np.int64)
        for number in np.unique(rank).tolist():
            in_rank = rank == number
            starts = part.start_ns[activities[in_rank]]
            turn[in_rank] = np.searchsorted(begins.get(number, starts[:0]), starts, side="right")
        # of the activities that start before a rank's next process, take the last to end
        rows = activities[_last_of_each(numbered(rank, turn), part.end_ns[activities])]
        chosen.append(part.take(np.sort(rows)).arrow)
    table = pa.concat_tables(chosen).unify_dictionaries()
    return EventTable(table.sort_by("event_id").combine_chunks())


def _first_of_each(keys: Ints) -> Ints:
    """Return the first position of each key: keys [0, 1, 0] -> [0, 1]."""
    first = np.empty(int(keys.max(initial=-1)) + 1, dtype=np.int64)
    # write in reverse order, so that the first position of each key is written last and stays
    first[keys[::-1]] = np.arange(len(keys))[::-1]
    return first


def _last_of_each(keys: Ints, end_ns: Ints) -> Ints:
    """Return, for each key, the first position with the key's latest ``end_ns``."""
    latest = np.full(int(keys.max(initial=-1)) + 1, UNKNOWN)
    np.maximum.at(latest, keys, end_ns)
    last = np.flatnonzero(end_ns == latest[keys])
    return last[_first_of_each(keys[last])]


class Partitions:
    """Rows of integers on disk, in numbered files; the caller chooses each row's file."""

    def __init__(self, path: Path, width: int) -> None:
        with room_in(path.parent):
            path.mkdir()
        self._path, self._width = path, width
        self.numbers: set[int] = set()

    def add(self, numbers: Ints, *columns: Ints) -> None:
        """Append each row to the file that ``numbers`` gives for the row."""
        if not len(numbers):
            return
        order = np.argsort(numbers, kind="stable")
        rows = np.stack(columns, axis=1)[order].astype(np.int64)
        distinct, first = np.unique(numbers[order], return_index=True)
        with room_in(self._path):
            for number, part in zip(distinct.tolist(), np.split(rows, first[1:]), strict=True):
                with (self._path / str(number)).open("ab") as file:
                    file.write(part.tobytes())
        self.numbers.update(distinct.tolist())

    def columns(self, number: int) -> list[Ints]:
        if number not in self.numbers:
            return [np.empty(0, dtype=np.int64) for _ in range(self._width)]
        rows = np.fromfile(self._path / str(number), dtype=np.int64).reshape(-1, self._width)
        return list(np.ascontiguousarray(rows.T))


#: Number of consecutive ids whose events share a file.
_NEAR = 2**10
_TEXTS = ("phase", "category", "family", "rule")
_DERIVED = (*LINKS, "step", *_TEXTS)
#: Columns that are needed to compute the derived columns.
_SOURCE_COLUMNS = (
    *("kind", "name", "start_ns", "dur_ns", "rank", "pid", "tid", "device"),
    *("correlation_id", "external_id", "op_name", "dtypes"),
)
_KIND = {kind: number for number, kind in enumerate(KINDS)}


def annotated_in_batches(events: StoredEvents, *, captured: bool) -> StoredEvents:
    """Fill every derived column, one batch at a time."""
    deciding = deciding_events(events)
    step_windows = windows(deciding, captured=captured)
    joined = _Joined(events)
    derived = _Derived(events)
    for piece in _pieces(events, joined):
        local = categorised(linked(piece.events), captured=captured)
        derived.add(piece, with_steps(local, step_windows))
        pa.default_memory_pool().release_unused()  # Arrow keeps freed memory unless asked
    # Keep ``deciding`` in the cache, because derived columns do not change the step windows.
    return events.overlaid(derived.files(joined.forward)).keeping(deciding_events, deciding)


class _Joined:
    """Finds activities to move to other batches, and the forward ops of backward ops."""

    def __init__(self, events: StoredEvents) -> None:
        self._events = events
        # rows per batch: guests, guests of other batches, pairs of backward and forward op
        self.guests, self.leavers, self.forward = (self._new(width) for width in (1, 1, 2))
        self._correlated, self._external = self._new(6), self._new(4)
        self._numbered = self._new(5)
        self._join()

    def _new(self, width: int) -> Partitions:
        return Partitions(self._events.folder.new("parts"), width)

    def _number(self, ids: Ints) -> Ints:
        return ids // _NEAR % len(self._events.batches)

    def _join(self) -> None:
        has_backward = False
        for part in self._events.parts(_JOIN_COLUMNS):
            self._add_correlated(part)
            has_backward |= self._add_numbered(part)
        for number in sorted(self._correlated.numbers):
            self._join_launches(number)
        if self._external.numbers:
            self._join_named_ops()
        if has_backward:
            for number in sorted(self._numbered.numbers):
                self._join_forwards(number)

    def _add_correlated(self, part: EventTable) -> None:
        correlation = part.ints("correlation_id", UNKNOWN)
        activity = part.is_kind(*ACTIVITY_KINDS)
        rows = np.flatnonzero((correlation > 0) & (activity | part.is_kind("runtime")))
        kind = part.mapped("kind", _KIND.__getitem__, NONE)
        row, rank = part.ints("event_id", NONE), part.ints("rank", UNKNOWN)
        external = part.ints("external_id", UNKNOWN)
        columns = (row, kind, rank, part.ints("pid", UNKNOWN), correlation, external)
        self._correlated.add(self._number(correlation[rows]), *(column[rows] for column in columns))
        unlinked = np.flatnonzero(activity & (correlation <= 0) & (external > 0))
        self._add_external(*(column[unlinked] for column in (row, kind, rank, external)))

    def _add_external(self, rows: Ints, kinds: Ints, ranks: Ints, external: Ints) -> None:
        self._external.add(self._number(external), rows, kinds, ranks, external)

    def _add_numbered(self, part: EventTable) -> bool:
        """Store ops with an autograd number, and return whether any is a backward op."""
        number = part.ints("sequence_number", UNKNOWN)
        thread = part.ints("forward_thread", 0)
        rows = np.flatnonzero(part.is_kind("op") & (number >= 0))
        row, rank = part.ints("event_id", NONE), part.ints("rank", UNKNOWN)
        columns = (row, rank, number, thread, part.start_ns)
        self._numbered.add(self._number(number[rows]), *(column[rows] for column in columns))
        return bool((thread[rows] > 0).any())

    def _join_launches(self, number: int) -> None:
        row, kind, rank, pid, correlation, external = self._correlated.columns(number)
        ids = {"pid": pid, "correlation_id": correlation, "external_id": external}
        table = _table(row, kind, rank, **ids)
        launch = launches(table)
        launched = launch != NONE
        self._move(row[launched], row[launch[launched]])
        unlinked = (
            table.is_kind(*ACTIVITY_KINDS) & ~launched & (external > 0) & (external != correlation)
        )
        self._add_external(row[unlinked], kind[unlinked], rank[unlinked], external[unlinked])

    def _join_named_ops(self) -> None:
        for part in self._events.parts(("event_id", "kind", "rank", "external_id")):
            external, rank = (part.ints(name, UNKNOWN) for name in ("external_id", "rank"))
            rows = np.flatnonzero(part.is_kind("op") & (external > 0))
            kinds = np.full(len(rows), _KIND["op"])
            self._add_external(part.ints("event_id", NONE)[rows], kinds, rank[rows], external[rows])
        for number in sorted(self._external.numbers):
            columns = self._external.columns(number)
            order = np.argsort(columns[0])
            row, kind, rank, external = (column[order] for column in columns)
            table = _table(row, kind, rank, external_id=external)
            op = ops_by_external_id(table, table.is_kind("op"), np.full(len(row), NONE))
            self._move(row[op != NONE], row[op[op != NONE]])

    def _move(self, rows: Ints, to_rows: Ints) -> None:
        """Move each activity to the batch that contains its launch or op."""
        own, target = self._events.batch_of(rows), self._events.batch_of(to_rows)
        moves = own != target
        self.leavers.add(own[moves], rows[moves])
        self.guests.add(target[moves], rows[moves])

    def _join_forwards(self, number: int) -> None:
        row, rank, sequence, thread, start_ns = self._numbered.columns(number)
        kind = np.full(len(row), _KIND["op"])
        ids = {"sequence_number": sequence, "forward_thread": thread}
        table = _table(row, kind, rank, start_ns, **ids)
        forward = forwards(table)
        backward = np.flatnonzero(forward != NONE)
        rows = row[backward]
        self.forward.add(self._events.batch_of(rows), rows, row[forward[backward]])


_JOIN_COLUMNS = (
    *("event_id", "kind", "start_ns", "rank", "pid", "correlation_id", "external_id"),
    *("sequence_number", "forward_thread"),
)


def _table(
    row: Ints, kind: Ints, rank: Ints, start_ns: Ints | None = None, **columns: Ints
) -> EventTable:
    """Make an events table of only the columns that the functions of links.py need."""
    kinds = pa.DictionaryArray.from_arrays(pa.array(kind, pa.int32()), list(KINDS))
    nulls = pa.nulls(len(row), pa.int64())
    times = {"start_ns": row if start_ns is None else start_ns, "dur_ns": np.zeros_like(row)}
    filled = {**times, "rank": rank, **columns}
    arrays = {name: pa.array(v, mask=v == UNKNOWN) for name, v in filled.items()}
    optional = dict.fromkeys(("pid", "correlation_id"), nulls)
    return EventTable(pa.table({"event_id": row, "kind": kinds, **optional, **arrays}))


@dataclass(frozen=True)
class _Piece:
    """A batch of events with its guests, and with the host events that have not ended."""

    number: int
    events: EventTable
    rows: Ints  # row numbers in the whole table


def _pieces(events: StoredEvents, joined: _Joined) -> Iterator[_Piece]:
    running = events.coded(0, _SOURCE_COLUMNS).slice(0, 0)
    for number, batch in enumerate(events.batches):
        own = events.coded(number, _SOURCE_COLUMNS)
        (leavers,), (guests,) = joined.leavers.columns(number), joined.guests.columns(number)
        stays = np.ones(len(own), dtype=np.bool_)
        stays[leavers - batch.first] = False
        guests_here = events.coded_rows(np.sort(guests), _SOURCE_COLUMNS)
        staying = own.filter(pa.array(stays)) if len(leavers) else own
        parts = [running, staying, guests_here]
        coded = pa.concat_tables(parts, promote_options="default")
        if len(guests_here):
            order = np.argsort(coded.column("event_id").to_numpy(), kind="stable")
            coded = coded.take(pa.array(order))
        coded = coded.combine_chunks()
        rows = coded.column("event_id").to_numpy()
        place = coded.column_names.index("event_id")
        local = coded.set_column(place, "event_id", pa.array(np.arange(len(coded))))
        table = events.table(local, own_texts=True)
        yield _Piece(number, table, rows)
        if number + 1 < len(events.batches):
            runs = np.asarray(
                (thread_ids(table) >= 0) & (table.end_ns >= events.batches[number + 1].start_ns),
                dtype=np.bool_,
            )
            running = coded.filter(pa.array(runs))


class _Derived:
    """Stores derived columns in files, one per batch."""

    def __init__(self, events: StoredEvents) -> None:
        self._events = events
        self._guests = Partitions(events.folder.new("parts"), 1 + len(_DERIVED))
        self._own: list[Path] = []
        self._texts: dict[str, list[str]] = {}

    def add(self, piece: _Piece, derived: EventTable) -> None:
        batch = self._events.batches[piece.number]
        values = [self._values(derived, name, piece.rows) for name in _DERIVED]
        is_own = (piece.rows >= batch.first) & (piece.rows < batch.first + batch.rows)
        own = np.full((len(_DERIVED), batch.rows), NONE, dtype=np.int64)
        for place, column in enumerate(values):
            own[place, piece.rows[is_own] - batch.first] = column[is_own]
        self._own.append(self._events.stored(pa.table(dict(zip(_DERIVED, own, strict=True)))))
        guests = np.flatnonzero(~is_own & derived.is_kind(*ACTIVITY_KINDS))
        rows = piece.rows[guests]
        batches = self._events.batch_of(rows)
        self._guests.add(batches, rows, *(column[guests] for column in values))

    def _values(self, derived: EventTable, name: str, rows: Ints) -> Ints:
        """Return a derived column as integers, with links as rows of the whole table."""
        if name in _TEXTS:
            codes, texts = derived.texts(name)
            self._texts[name] = texts or self._texts.get(name, [])
            return codes
        values = derived.ints(name, NONE)
        if name in LINKS and len(rows):
            return np.where(values == NONE, NONE, rows[values])
        return values

    def files(self, forward: Partitions) -> Iterator[Path]:
        """Yield a file with the derived columns of each batch."""
        for number, (batch, path) in enumerate(zip(self._events.batches, self._own, strict=True)):
            own = read_columns(path)
            values = {name: own.column(name).to_numpy().astype(np.int64) for name in _DERIVED}
            values["forward_id"] = np.full(batch.rows, NONE, dtype=np.int64)
            rows, *guests = self._guests.columns(number)
            for name, column in zip(_DERIVED, guests, strict=True):
                values[name][rows - batch.first] = column
            rows, forward_rows = forward.columns(number)
            values["forward_id"][rows - batch.first] = forward_rows
            path.unlink()
            columns = {name: self._column(name, column) for name, column in values.items()}
            yield self._events.stored(self._events.encoded(columns))

    def _column(self, name: str, values: Ints) -> pa.Array:
        numbers = pa.array(values, mask=values == NONE)
        if name not in _TEXTS:
            return numbers
        texts = pa.array(self._texts[name], pa.string())
        return pa.DictionaryArray.from_arrays(numbers.cast(pa.int32()), texts)
