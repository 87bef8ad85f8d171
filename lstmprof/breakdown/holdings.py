"""Who has each nanosecond: the ledger down to the event, for one lane.

Reads linked and categorised events. A lane is a device of a rank, or its host where ``device`` is
None. Busy time is held by the activity or the op that the ledger gives it to; idle time by the
event that was innermost on the host then, of a device that waits for a launch by the launch call;
time without any event, or of unknown cause, by none. On a host a short stretch of Python that an op
ends at once is the price of calling that op: it is held by the op, and ``before`` it. The times of
a window sum to its length.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lstmprof.breakdown.host import computing, merged_lanes
from lstmprof.breakdown.ledger import (
    CALL,
    LATENCY,
    OTHER,
    UNATTRIBUTED,
    Lane,
    device_lanes,
)
from lstmprof.events.annotate.links import NONE
from lstmprof.events.annotate.steps import Window, is_kind
from lstmprof.events.intervals import Flags, Ints, Segments, gaps
from lstmprof.events.schema import ints, texts
from lstmprof.events.threads import HOST, STATES, innermost, state_codes, thread_ids

#: Longest stretch of Python that is called the price of the op after it. Measured by profiling
#: torch-lstmcell-basic with 4 units under torch.profiler on an EPYC: 95 % of the stretches between
#: its ops take under 3.4 µs, 9.6 µs beside other processes.
CALL_GAP_NS = 10_000

#: (state, part) of the ledger
Label = tuple[str, str]
#: What a device waits for; first the states of a thread, by their codes.
_CAUSES = (*STATES, HOST, CALL, LATENCY, UNATTRIBUTED)


@dataclass(frozen=True)
class Holdings:
    """Stretches of time of one lane, one entry each.

    ``window`` is a place in the list of windows, ``row`` a row of events or ``NONE``, ``label`` a
    place in ``labels``; ``before`` where the time is the price of calling ``row``.
    """

    window: Ints
    row: Ints
    label: Ints
    before: Flags
    ns: Ints
    labels: tuple[Label, ...]


def holdings(
    events: pa.Table, windows: list[Window], rank: int | None, device: int | None
) -> Holdings:
    """Every nanosecond of ``windows``, all of ``rank``, on one lane."""
    if device is None:
        return _of_host(events, windows, rank)
    return _of_device(events, windows, rank, device)


def _of_host(events: pa.Table, windows: list[Window], rank: int | None) -> Holdings:
    state, computes = state_codes(events), computing(events)
    codes, categories = texts(events, "category")
    labels = [("busy", c) for c in categories] + [("idle", s) for s in (*STATES, HOST)]
    none = len(categories) + len(STATES)
    label = np.where(computes, codes, np.where(state < 0, none, len(categories) + state))
    merged = merged_lanes(events, rank, computes, state)
    called = _called_at(events, merged.end_ns, thread_ids(events)[merged.owner])
    python = label[merged.owner] == len(categories) + STATES.index("python")
    before = python & (merged.end_ns - merged.start_ns <= CALL_GAP_NS) & (called != NONE)
    row = np.where(before, called, merged.owner)
    # Segments keep their place, so that what a window clips is found again.
    placed = replace(merged, owner=np.arange(len(row)))
    found = [_empty()]
    for number, window in enumerate(windows):
        inside = placed.within(window.start_ns, window.end_ns)
        at = inside.owner
        found.append(_part(number, row[at], label[merged.owner[at]], _lengths(inside), before[at]))
        rest = window.end_ns - window.start_ns - int(_lengths(inside).sum())
        found.append(_part(number, _ints(NONE), _ints(none), _ints(rest)))
    return _joined(found, labels)


def _of_device(events: pa.Table, windows: list[Window], rank: int | None, device: int) -> Holdings:
    codes, categories = texts(events, "category")
    category = np.where(codes < 0, len(categories), codes)
    labels = [("busy", c) for c in (*categories, OTHER)] + [("idle", c) for c in _CAUSES]
    lane = next(one for one in device_lanes(events, rank) if one.device == device)
    hosts = _Hosts(events)
    found = [_empty()]
    for number, window in enumerate(windows):
        inside = lane.busy.within(window.start_ns, window.end_ns)
        found.append(_part(number, inside.owner, category[inside.owner], _lengths(inside)))
        for row, cause, ns in _idle(lane, window, hosts):
            found.append(_part(number, row, len(categories) + 1 + cause, ns))
    return _joined(found, labels)


#: (row or ``NONE``, place in ``_CAUSES``, ns), an entry a stretch
Stretches = tuple[Ints, Ints, Ints]


def _idle(lane: Lane, window: Window, hosts: _Hosts) -> Iterator[Stretches]:
    """Who is waited for in each gap of ``lane``: the rules of the ledger, event by event."""
    starts, ends = gaps(lane.busy, window.start_ns, window.end_ns)
    tail = ends == window.end_ns
    yield from hosts.held(window.thread, starts[tail], ends[tail])
    starts, ends = starts[~tail], ends[~tail]
    launch = lane.launch[np.searchsorted(lane.start_ns, ends)]
    known = launch >= 0
    yield _stretches(NONE, UNATTRIBUTED, (ends - starts)[~known])
    starts, ends, launch = starts[known], ends[known], launch[known]
    called = np.clip(hosts.start_ns[launch], starts, ends)
    returned = np.clip(hosts.end_ns[launch], starts, ends)
    yield _stretches(launch, CALL, returned - called)
    yield _stretches(launch, LATENCY, ends - returned)
    for thread in np.unique(hosts.thread[launch]):
        mine = hosts.thread[launch] == thread
        yield from hosts.held(int(thread), starts[mine], called[mine])


class _Hosts:
    """The host threads of a profile; a thread's innermost segments are made when asked for."""

    def __init__(self, events: pa.Table) -> None:
        self.events = events
        self.thread, self.state = thread_ids(events), state_codes(events)
        self.start_ns = ints(events, "start_ns", 0)
        self.end_ns = self.start_ns + ints(events, "dur_ns", 0)
        self._segments: dict[int, Segments] = {}

    def held(self, thread: int | None, starts: Ints, ends: Ints) -> Iterator[Stretches]:
        """Who was innermost on ``thread`` in the intervals [starts, ends), and of which state."""
        if thread is None or thread < 0:
            yield _stretches(NONE, UNATTRIBUTED, ends - starts)
            return
        if thread not in self._segments:
            self._segments[thread] = innermost(self.events, np.flatnonzero(self.thread == thread))
        row, interval, ns = _overlaps(self._segments[thread], starts, ends)
        yield row, self.state[row], ns
        left = ends - starts
        np.subtract.at(left, interval, ns)
        yield _stretches(NONE, HOST, left)


def _overlaps(segments: Segments, starts: Ints, ends: Ints) -> tuple[Ints, Ints, Ints]:
    """(owner, number of the interval, ns) of each segment in each of [starts, ends)."""
    first = np.searchsorted(segments.end_ns, starts, side="right")
    count = np.maximum(np.searchsorted(segments.start_ns, ends, side="left") - first, 0)
    interval = np.repeat(np.arange(len(starts)), count)
    place = np.arange(len(interval)) - np.repeat(np.cumsum(count) - count - first, count)
    until = np.minimum(segments.end_ns[place], ends[interval])
    since = np.maximum(segments.start_ns[place], starts[interval])
    return segments.owner[place], interval, until - since


def _stretches(row: Ints | int, cause: str, ns: Ints) -> Stretches:
    rows = np.broadcast_to(np.asarray(row, dtype=np.int64), ns.shape)
    return rows, np.full(len(ns), _CAUSES.index(cause), dtype=np.int64), ns


def _called_at(events: pa.Table, end_ns: Ints, thread: Ints) -> Ints:
    """For each (instant, thread) the row of the op that began right then, ``NONE`` without one."""
    ops = np.flatnonzero(is_kind(events, "op"))
    start, on = ints(events, "start_ns", 0)[ops], thread_ids(events)[ops]
    shortest_first = np.argsort(ints(events, "dur_ns", 0)[ops], kind="stable")
    began = {
        (int(on[i]), int(start[i])): int(ops[i]) for i in shortest_first
    }  # the outermost of several stays
    asked = zip(thread.tolist(), end_ns.tolist(), strict=True)
    return np.array([began.get(one, NONE) for one in asked], dtype=np.int64)


def _lengths(segments: Segments) -> Ints:
    return segments.end_ns - segments.start_ns


def _ints(*values: int) -> Ints:
    return np.array(values, dtype=np.int64)


Part = tuple[Ints, Ints, Ints, Ints, Flags]


def _part(number: int, row: Ints, label: Ints, ns: Ints, before: Flags | None = None) -> Part:
    """The stretches of one window; ``before`` of None is never."""
    never = np.zeros(len(row), dtype=np.bool_)
    return (
        np.full(len(row), number, dtype=np.int64),
        row,
        label,
        ns,
        (never if before is None else before),
    )


def _empty() -> Part:
    nothing = np.empty(0, dtype=np.int64)
    return _part(0, nothing, nothing, nothing)


def _joined(parts: list[Part], labels: list[Label]) -> Holdings:
    window, row, label, ns, before = (np.concatenate(column) for column in zip(*parts, strict=True))
    some = ns > 0
    return Holdings(window[some], row[some], label[some], before[some], ns[some], tuple(labels))
