"""Number the host threads, and find the innermost event of a thread at each time.

The innermost event is the running event that started last, such as ``aten::mm`` inside
``aten::linear`` (docs/ledger.md). The innermost event gives the thread's state, such as
``dispatch``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from lstmprof.events.groups import numbered
from lstmprof.events.intervals import Flags, Ints, Segments, foremost
from lstmprof.events.table import UNKNOWN, EventTable

#: States of a host thread, in order of priority when the threads of a CPU run are merged.
STATES = ("dispatch", "runtime", "alloc", "sync", "profiler", "python")
HOST = "host"

#: Names of ops that wait for a device and read a value from the device.
VALUE_READS = (
    *("aten::item", "aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal"),
    *("mxnet::MXNDArraySyncCopyToCPU", "mxnet::MXNDArrayWaitToRead", "mxnet::MXNDArrayWaitAll"),
)

_STATE_OF_KIND = {
    "op": STATES.index("dispatch"),
    "overhead": STATES.index("profiler"),
    **dict.fromkeys(("python", "step", "range"), STATES.index("python")),
}
#: Usual nesting depth of a kind, to order events with equal start and duration.
_DEPTH = {"step": 0, "range": 1, "python": 2, "op": 3, "runtime": 4, "overhead": 5}
#: Pattern of synchronising calls of CUDA, HIP, MTIA, Ascend, Level Zero, OpenCL and SYCL.
_SYNC = re.compile(
    r"[Ss]ynchronize|EventQuery|Memcpy(?!.*Async)|^cuMemcpy(?!.*Async)"
    r"|^cl(Finish|WaitForEvents)|^(ur|pi)(QueueFinish|Events?Wait)$"
)
_ALLOC = re.compile(r"Malloc|Free|HostAlloc|^cuMem")


def runtime_state(name: str) -> str:
    """Return a thread's state during a runtime call: ``sync``, ``alloc`` or ``runtime``."""
    if _SYNC.search(name):
        return "sync"
    return "alloc" if _ALLOC.search(name) else "runtime"


def state_codes(events: EventTable, framework_ranges: Sequence[str] = ()) -> Ints:
    """Return what the thread does in each event, as an index into ``STATES``."""
    ranges = events.is_kind("step", "range")
    named = (ranges & events.is_one_of("name", name) for name in framework_ranges)
    # find ranges in which only the framework runs: the thread's state there is ``dispatch``
    framework = next((rows for rows in named if rows.any()), np.zeros(len(events), dtype=np.bool_))
    by_kind = events.mapped("kind", lambda kind: _STATE_OF_KIND.get(kind, -1), -1)
    codes = np.where(framework, STATES.index("dispatch"), by_kind)
    call_states = events.mapped(
        "name", lambda name: STATES.index(runtime_state(name)), STATES.index("runtime")
    )
    codes = np.where(events.is_kind("runtime"), call_states, codes)
    return np.where(_on_thread(events), codes, -1)


_THREAD_COLUMNS = ("rank", "pid", "tid", "device", "kind")


def thread_ids(events: EventTable) -> Ints:
    """Return the number of each event's host thread; −1 for an event of a device."""
    return events.once(_thread_ids, *_THREAD_COLUMNS)


def _thread_ids(events: EventTable) -> Ints:
    rows = np.flatnonzero(_on_thread(events))
    ids = np.full(len(events), -1, dtype=np.int64)
    if len(rows):
        ids[rows] = numbered(*(events.ints(c, UNKNOWN)[rows] for c in ("rank", "pid", "tid")))
    return ids


def _on_thread(events: EventTable) -> Flags:
    on_host = events.column("device").is_null().to_numpy()
    return np.asarray(on_host & events.is_kind(*_DEPTH), np.bool_)


def nesting_order(events: EventTable, rows: Ints) -> Ints:
    """Sort ``rows`` by start, and put enclosing events before enclosed events."""
    start = events.start_ns[rows]
    dur = events.dur_ns[rows]
    later = (start[1:] > start[:-1]) | ((start[1:] == start[:-1]) & (dur[1:] < dur[:-1]))
    alike = (start[1:] == start[:-1]) & (dur[1:] == dur[:-1])
    if not (later | alike).all():
        return rows[_nested(events, rows, start, dur)]
    tied = np.flatnonzero(np.append(alike, False) | np.append(False, alike)[: len(rows)])
    order = rows.copy()
    order[tied] = rows[tied[_nested(events, rows[tied], start[tied], dur[tied])]]
    return order


def _nested(events: EventTable, rows: Ints, start: Ints, dur: Ints) -> Ints:
    depth = events.once(_depths, "kind")[rows]
    return np.lexsort((content_order(events, rows), depth, -dur, start))


def _depths(events: EventTable) -> Ints:
    return events.mapped("kind", lambda kind: _DEPTH.get(kind, 9), 9)


def content_order(events: EventTable, rows: Ints) -> Ints:
    """Return sort keys (from name, category, stream) for events with equal times."""
    keys = [
        places[events.texts(column)[0][rows]]
        for column, places in events.once(_ordered_texts, "name", "category")
    ]
    return numbered(*keys, events.ints("stream", UNKNOWN)[rows])


def _ordered_texts(events: EventTable) -> list[tuple[str, Ints]]:
    places = []
    for column in ("name", "category"):
        texts = [*events.texts(column)[1], ""]
        place = np.empty(len(texts), dtype=np.int64)
        place[sorted(range(len(texts)), key=texts.__getitem__)] = np.arange(len(texts))
        places.append((column, place))
    return places


def innermost(events: EventTable, rows: Ints) -> Segments:
    """Split a thread's time into segments; ``owner`` is a segment's innermost row."""
    nested = nesting_order(events, rows)
    start, end = events.start_ns[nested], events.end_ns[nested]
    segments = foremost(start, end, np.arange(len(nested))[::-1])
    return Segments(segments.start_ns, segments.end_ns, nested[segments.owner])


#: Longest Python time in ns before an op that lstmprof treats as the call of the op: 95 % take
#: under 9.6 µs in torch-lstmcell-basic.
CALL_GAP_NS = 10_000


def ops_called(events: EventTable, thread: Ints, start_ns: Ints, end_ns: Ints) -> Ints:
    """Return the op that starts when each short Python interval ends, or −1."""
    ops = np.flatnonzero(events.is_kind("op"))
    shortest_first = np.argsort(events.dur_ns[ops], kind="stable")
    ops = ops[shortest_first]
    began = np.concatenate([events.start_ns[ops], end_ns])
    place = numbered(np.concatenate([thread_ids(events)[ops], thread]), began)
    outermost = np.full(int(place.max(initial=-1)) + 1, -1, dtype=np.int64)
    outermost[place[: len(ops)]] = ops
    return np.where(end_ns - start_ns <= CALL_GAP_NS, outermost[place[len(ops) :]], -1)
