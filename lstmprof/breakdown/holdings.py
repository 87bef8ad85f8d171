"""Who has each nanosecond: the ledger down to the event, for one lane.

Reads linked and categorised events. A lane is a device of a rank, or its host where ``device`` is
None. Busy time is held by the activity or the op that the ledger gives it to; idle time on a host
by the event that was innermost then; idle time of a device, and time without any event, by none.
A short stretch of Python that an op ends at once is the price of calling that op: it is held by the
op, and ``before`` it. The times of a window sum to its length.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lstmprof.breakdown.host_lanes import computing, merged_lanes
from lstmprof.breakdown.intervals import Flags, Ints, Segments
from lstmprof.breakdown.ledger import OTHER, device_lanes, ledger
from lstmprof.breakdown.links import NONE
from lstmprof.breakdown.threads import HOST, STATES, state_codes, thread_ids
from lstmprof.breakdown.windows import Window, is_kind
from lstmprof.events import ints, texts

#: Longest stretch of Python that is called the price of the op after it. Measured by profiling
#: torch-lstmcell-basic with 4 units under torch.profiler on an EPYC: 95 % of the stretches between
#: its ops take under 3.4 µs, 9.6 µs beside other processes.
CALL_GAP_NS = 10_000

#: (state, part) of the ledger
Label = tuple[str, str]


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
    found = [_empty(windows)]
    for number, window in enumerate(windows):
        inside = placed.within(window.start_ns, window.end_ns)
        at = inside.owner
        found.append(_part(number, row[at], label[merged.owner[at]], before[at], _lengths(inside)))
        rest = window.end_ns - window.start_ns - int(_lengths(inside).sum())
        found.append(_part(number, _ints(NONE), _ints(none), np.array([False]), _ints(rest)))
    return _joined(found, labels)


def _of_device(events: pa.Table, windows: list[Window], rank: int | None, device: int) -> Holdings:
    codes, categories = texts(events, "category")
    category = np.where(codes < 0, len(categories), codes)
    labels = [("busy", c) for c in (*categories, OTHER)]
    lane = next(one for one in device_lanes(events, rank) if one.device == device)
    found = [_empty(windows)]
    for number, window in enumerate(windows):
        inside = lane.busy.within(window.start_ns, window.end_ns)
        never = np.zeros(len(inside.owner), dtype=np.bool_)
        found.append(_part(number, inside.owner, category[inside.owner], never, _lengths(inside)))
    numbered = [replace(w, step=number) for number, w in enumerate(windows)]
    for row in ledger(events, numbered).to_pylist():
        if (row["device"], row["state"]) == (device, "idle"):
            label = (row["state"], row["part"])
            labels += [] if label in labels else [label]
            place = _ints(labels.index(label))
            found.append(
                _part(row["step"], _ints(NONE), place, np.array([False]), _ints(row["ns"]))
            )
    return _joined(found, labels)


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


Part = tuple[Ints, Ints, Ints, Flags, Ints]


def _part(number: int, row: Ints, label: Ints, before: Flags, ns: Ints) -> Part:
    return np.full(len(row), number, dtype=np.int64), row, label, before, ns


def _empty(windows: list[Window]) -> Part:
    nothing = np.empty(0, dtype=np.int64)
    return nothing, nothing, nothing, np.empty(0, dtype=np.bool_), nothing


def _joined(parts: list[Part], labels: list[Label]) -> Holdings:
    window, row, label, before, ns = (np.concatenate(column) for column in zip(*parts, strict=True))
    some = ns > 0
    return Holdings(window[some], row[some], label[some], before[some], ns[some], tuple(labels))
