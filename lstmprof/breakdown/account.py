"""The ledger of one window in the order of time: who had each instant, of what kind, for what.

Reads linked and categorised events. Where the ledger says how much, this says when; the lengths of
a part's stretches sum to the ledger's number exactly. Source: docs/ledger.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lstmprof.breakdown import host
from lstmprof.breakdown.ledger import CALL, LATENCY, OTHER, TAIL, UNATTRIBUTED, Lane, device_lanes
from lstmprof.events.annotate.steps import Window
from lstmprof.events.intervals import Ints, Segments, gaps
from lstmprof.events.schema import ints, texts
from lstmprof.events.threads import HOST, STATES, innermost, state_codes, thread_ids


@dataclass(frozen=True)
class Stretch:
    """[start_ns, end_ns) of one state and part of the ledger."""

    start_ns: int
    end_ns: int
    state: str
    part: str


def accounts(events: pa.Table, window: Window) -> dict[int | None, list[Stretch]]:
    """Device → its stretches in ``window`` by time, without a hole; None → those of the host."""
    lanes = list(device_lanes(events, window.rank))
    if not lanes:
        return {None: list(_of_host(events, window))}
    threads = _Threads(events)
    return {
        lane.device: sorted(_of_device(events, lane, window, threads), key=_by_time)
        for lane in lanes
    }


def _by_time(stretch: Stretch) -> int:
    return stretch.start_ns


def _of_device(
    events: pa.Table, lane: Lane, window: Window, threads: _Threads
) -> Iterator[Stretch]:
    codes, names = texts(events, "category")
    inside = lane.busy.within(window.start_ns, window.end_ns)
    for start, end, code in _rows(inside, codes):
        yield Stretch(start, end, "busy", names[code] if code >= 0 else OTHER)
    for start, end in zip(*gaps(lane.busy, window.start_ns, window.end_ns), strict=True):
        yield from _of_gap(lane, window, threads, int(start), int(end))


def _rows(segments: Segments, label: Ints) -> Iterator[tuple[int, int, int]]:
    columns = (segments.start_ns, segments.end_ns, label[segments.owner])
    yield from zip(*(column.tolist() for column in columns), strict=True)


def _of_gap(
    lane: Lane, window: Window, threads: _Threads, start: int, end: int
) -> Iterator[Stretch]:
    if end == window.end_ns:
        yield from threads.stretches(window.thread, start, end, TAIL)
        return
    launch = int(lane.launch[np.searchsorted(lane.start_ns, end)])
    if launch < 0:
        yield Stretch(start, end, "idle", UNATTRIBUTED)
        return
    called = min(max(int(threads.start_ns[launch]), start), end)
    returned = min(max(int(threads.end_ns[launch]), start), end)
    yield from threads.stretches(int(threads.thread[launch]), start, called)
    for part, first, last in ((CALL, called, returned), (LATENCY, returned, end)):
        if last > first:
            yield Stretch(first, last, "idle", part)


class _Threads:
    """The host threads of a profile; a thread's innermost segments are made when asked for."""

    def __init__(self, events: pa.Table) -> None:
        self.events = events
        self.thread = thread_ids(events)
        self.state = state_codes(events)
        self.start_ns = ints(events, "start_ns", 0)
        self.end_ns = self.start_ns + ints(events, "dur_ns", 0)
        self._segments: dict[int, Segments] = {}

    def stretches(
        self, thread: int | None, start: int, end: int, before: str = ""
    ) -> Iterator[Stretch]:
        """What ``thread`` did in [start, end), idle time of a device; parts begin ``before``."""
        if end <= start:
            return
        if thread is None or thread < 0:
            yield Stretch(start, end, "idle", before + UNATTRIBUTED)
            return
        if thread not in self._segments:
            self._segments[thread] = innermost(self.events, np.flatnonzero(self.thread == thread))
        inside = self._segments[thread].within(start, end)
        found = [(s, e, STATES[c]) for s, e, c in _rows(inside, self.state)]
        for first, last, part in _filled(found, start, end):
            yield Stretch(first, last, "idle", before + part)


def _filled(
    found: list[tuple[int, int, str]], start: int, end: int
) -> Iterator[tuple[int, int, str]]:
    """``found`` with what it leaves free of [start, end) as ``host``, equal neighbours joined."""
    whole: list[tuple[int, int, str]] = []
    at = start
    for first, last, part in [*found, (end, end, "")]:
        for one in ((at, first, HOST), (first, last, part)):
            if one[1] <= one[0]:
                continue
            if whole and whole[-1][2] == one[2]:
                whole[-1] = (whole[-1][0], one[1], one[2])
            else:
                whole.append(one)
        at = last
    yield from whole


def _of_host(events: pa.Table, window: Window) -> Iterator[Stretch]:
    state, computes = state_codes(events), host.computing(events)
    codes, names = texts(events, "category")
    merged = host.merged_lanes(events, window.rank, computes, state)
    labels = [("busy", name) for name in names] + [("idle", cause) for cause in STATES]
    label = np.where(computes, codes, len(names) + state)
    at = window.start_ns
    for start, end, code in _rows(merged.within(window.start_ns, window.end_ns), label):
        if start > at:
            yield Stretch(at, start, "idle", HOST)
        yield Stretch(start, end, *labels[code])
        at = end
    if window.end_ns > at:
        yield Stretch(at, window.end_ns, "idle", HOST)
