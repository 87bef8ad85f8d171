"""The sorts of events: kind and thread or device; with the number, first and last event of each
sort.

A profile of millions of events has a few hundred sorts. They show which ranks compute on a device,
which thread ran the steps, and which events determine the windows.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lstmprof.events.annotate.calls import is_kernel_launch
from lstmprof.events.annotate.steps import Window, windows
from lstmprof.events.groups import numbered
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.narrow import Packed
from lstmprof.events.processes import in_turn
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import NONE, UNKNOWN

#: Columns that distinguish sorts, in addition to the kind.
_PLACE = ("rank", "pid", "tid", "device")
#: Columns of the events that windows are made from.
OF_WINDOWS = ("kind", "name", "start_ns", "dur_ns", *_PLACE)
#: Up to this many events, the windows are computed from all events.
FEW = 2**17
#: Times that the busiest thread is named, so that it is the busiest among the deciding events.
_MOST = 5


@dataclass(frozen=True)
class Sorts:
    """One entry per sort; ``place`` is its rank, pid, tid and device, ``UNKNOWN`` for null.

    The kernel launches of a thread are a separate sort. ``first`` is the row that begins first,
    ``last`` a row that ends last.
    """

    kind: list[str]
    launches: Flags
    place: tuple[Ints, Ints, Ints, Ints]
    count: Ints
    first: Ints
    last: Ints

    @property
    def ranks(self) -> Ints:
        """Return the ranks, sorted."""
        return np.unique(self.place[0])

    @property
    def computing(self) -> Ints:
        """Return the ranks whose ops compute: they have no activities and no launches."""
        on_device = self._is_kind(*ACTIVITY_KINDS) | self.launches
        return np.setdiff1d(self.ranks, self.place[0][on_device])

    def of_kind(self, *kinds: str) -> Ints:
        """Return the sorts of these kinds on host threads."""
        return np.flatnonzero(self._is_kind(*kinds) & (self.place[3] == UNKNOWN))

    def _is_kind(self, *kinds: str) -> Flags:
        return np.array([kind in kinds for kind in self.kind], dtype=np.bool_)


def sorts(events: Packed) -> Sorts:
    """Return the sorts of ``events``."""
    return events.once(_sorts)


def rows_of_ranks(events: Packed, ranks: Collection[int | None]) -> Ints:
    """Return the rows of ``ranks``, and the first row of each sort of event of other ranks.

    The rows of other ranks keep the numbers of threads stable.
    """
    numbers = [NONE if rank is None else rank for rank in ranks]
    own = np.flatnonzero(np.isin(events.values("rank"), numbers))
    return np.union1d(own, sorts(events).first)


def _sorts(events: Packed) -> Sorts:
    kinds = events.texts("kind")
    launching = np.array([*map(is_kernel_launch, events.texts("name")), False])
    runtime = [*kinds, "runtime"].index("runtime")
    parts = [_of_piece(events, rows, launching, runtime) for rows in events.pieces()]
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)] or [_nothing()] * 11
    keys, (count, first, begins, last, ends) = columns[:6], columns[6:]
    of = numbered(*keys)
    by_begin, by_end = np.lexsort((first, begins, of)), np.lexsort((last, -ends, of))
    heads = np.flatnonzero(np.append(True, np.diff(of[by_begin]) > 0)[: len(of)])
    some = by_begin[heads]
    counts = np.add.reduceat(count[by_begin], heads) if len(heads) else count
    return Sorts(
        kind=[kinds[code] for code in keys[0][some].tolist()],
        launches=keys[1][some] > 0,
        place=(keys[2][some], keys[3][some], keys[4][some], keys[5][some]),
        count=counts,
        first=first[some],
        last=last[by_end[heads]],
    )


def _nothing() -> Ints:
    return np.empty(0, dtype=np.int64)


def _of_piece(events: Packed, rows: slice, launching: Flags, runtime: int) -> list[Ints]:
    """Return keys, counts, first (with its begin) and last (with its end) event of each sort."""
    kind = events.codes("kind", rows)
    keys = [kind, launching[events.codes("name", rows)] & (kind == runtime)]
    keys += [events.known(name, rows) for name in _PLACE]
    keys += [events.values(name, rows) for name in _PLACE]
    of = numbered_few(keys)
    start = events.values("start_ns", rows).astype(np.int64)
    end = start + events.values("dur_ns", rows)
    count = np.bincount(of)
    begins = np.full(len(count), np.iinfo(np.int64).max)
    ends = np.full(len(count), UNKNOWN)
    np.minimum.at(begins, of, start)
    np.maximum.at(ends, of, end)
    first, last = np.empty_like(begins), np.empty_like(ends)
    for row, at, bound in ((first, start, begins), (last, end, ends)):
        hits = np.flatnonzero(at == bound[of])[::-1]
        row[of[hits]] = hits
    sort, launches, *places = (key[first].astype(np.int64) for key in keys)
    known, values = places[: len(_PLACE)], places[len(_PLACE) :]
    place = [np.where(k > 0, v, UNKNOWN) for k, v in zip(known, values, strict=True)]
    return [sort, launches, *place, count, first + rows.start, begins, last + rows.start, ends]


def numbered_few(keys: list[np.ndarray]) -> Ints:
    """Number each position's combination of ``keys``, in any order."""
    code = np.zeros(len(keys[0]), dtype=np.int64)
    room = 1
    for key in keys:
        low, high = int(key.min()), int(key.max())
        if high == low:
            continue
        if room * (high - low + 1) >= 2**62:
            code = numbered(code)
            room = int(code.max()) + 1
            key = numbered(key.astype(np.int64))
            low, high = 0, int(key.max())
        code = code * (high - low + 1) + (key.astype(np.int64) - low)
        room *= high - low + 1
    return np.asarray(pa.array(code).dictionary_encode().indices.to_numpy(), dtype=np.int64)


def windows_of(events: Packed, *, captured: bool) -> list[Window]:
    """Return the windows of ``events``; for many events, from those that decide the windows."""
    rows = None if len(events) <= FEW else _deciding(events)
    table = events.table(OF_WINDOWS, rows)
    if rows is not None and any(len(in_turn(table, table.of_rank(r))) > 1 for r in table.ranks()):
        activities = np.flatnonzero(events.is_kind(*ACTIVITY_KINDS))
        table = events.table(OF_WINDOWS, np.union1d(rows, activities))
    return windows(table, captured=captured)


def _deciding(events: Packed) -> Ints:
    """Return the ids of the events that decide the windows, with repeats.

    These are all step markers, the first and a last-ending event of each sort, and events of the
    thread with most ops (without ops, most runtime calls), repeated so that it has most here too:
    it ran the step if there are no markers.
    """
    of = sorts(events)
    return np.sort(
        np.concatenate([np.union1d(_steps(events), [*of.first, *of.last]), _of_busiest(of)])
    ).astype(np.int64)


def _steps(events: Packed) -> Ints:
    """Return the host's step marker rows."""
    step = [*events.texts("kind"), "step"].index("step")
    parts = [
        rows.start + np.flatnonzero(events.codes("kind", rows) == step) for rows in events.pieces()
    ]
    rows = np.concatenate([_nothing(), *parts])
    return np.asarray(rows[~events.known("device", rows)], dtype=np.int64)


def _of_busiest(of: Sorts) -> Ints:
    """Return the first event of each rank's busiest thread, by ops and runtime calls, repeated."""
    busiest = []
    for kind in ("op", "runtime"):
        places = of.of_kind(kind)
        rank, pid, tid, _ = (key[places] for key in of.place)
        thread = numbered(rank, pid, tid)
        count = np.bincount(thread, of.count[places]).astype(np.int64)
        order = np.lexsort((thread, -count[thread], rank))
        first = np.append(True, np.diff(rank[order]) > 0)[: len(order)]
        busiest.append(of.first[places[order[first]]])
    return np.tile(np.concatenate(busiest), _MOST)
