"""The kernel table: what each kernel (on a CPU run: each computing op) took, by name.

Reads linked and categorised events. A kernel's time is its own duration; an op's is its self time,
without what is inside it; ops that only arrange work are left out: some of them wait for others.
All activities of the profile count; ``per_step`` counts those that a step issued. Percentiles
are the nearest rank, so each is the duration of a row of ``events``.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa

from lstmprof.breakdown.host_lanes import computing
from lstmprof.breakdown.intervals import Ints
from lstmprof.breakdown.threads import UNKNOWN
from lstmprof.breakdown.windows import Window, is_kind, of_rank, ranks
from lstmprof.events import ACTIVITY_KINDS, ints, texts

SCHEMA = pa.schema(
    [
        pa.field("rank", pa.int64()),
        pa.field("device", pa.int64()),
        pa.field("name", pa.string(), False),
        pa.field("category", pa.string()),
        pa.field("family", pa.string()),
        pa.field("count", pa.int64(), False),
        pa.field("total_ns", pa.int64(), False),
        pa.field("mean_ns", pa.float64(), False),
        pa.field("p50_ns", pa.int64(), False),
        pa.field("p95_ns", pa.int64(), False),
        pa.field("max_ns", pa.int64(), False),
        pa.field("share", pa.float64()),
        pa.field("per_step", pa.float64()),
    ]
)


def kernels(events: pa.Table, windows: list[Window]) -> pa.Table:
    """One row a (rank, device, name, category, family), the largest total first; ``SCHEMA``.

    ``share`` is of the total of all rows of the rank and device; null where that is 0. ``per_step``
    is null where the profile has no steps.
    """
    rows = _work(events)
    spent = _own_time(events)[rows]
    group = _groups(events, rows)
    order = np.lexsort((spent, group))
    rows, spent, group = rows[order], spent[order], group[order]
    first = np.flatnonzero(np.append(True, group[1:] != group[:-1])[: len(group)])
    count = np.diff(np.append(first, len(group)))
    total = np.add.reduceat(spent, first) if len(first) else np.empty(0, dtype=np.int64)
    heads = events.take(pa.array(rows[first]))
    table = pa.table(
        [
            heads.column("rank"),
            heads.column("device"),
            *(heads.column(c).cast(pa.string()) for c in ("name", "category", "family")),
            pa.array(count),
            pa.array(total),
            pa.array(total / np.maximum(count, 1)),
            pa.array(spent[_nearest_rank(first, count, 50)]),
            pa.array(spent[_nearest_rank(first, count, 95)]),
            pa.array(spent[first + count - 1]),
            _shares(heads, total),
            _per_step(events, rows, first, windows),
        ],
        schema=SCHEMA,
    )
    return table.sort_by([("total_ns", "descending"), ("name", "ascending")])


def _work(events: pa.Table) -> Ints:
    """Rows of the activities; of the ops that compute, in ranks that have none."""
    activity = is_kind(events, *ACTIVITY_KINDS)
    op = computing(events)
    rows = []
    for rank in ranks(events):
        mine = of_rank(events, rank)
        found = mine[activity[mine]]
        rows.append(found if len(found) else mine[op[mine]])
    return np.concatenate(rows) if rows else np.empty(0, dtype=np.int64)


def _own_time(events: pa.Table) -> Ints:
    """Duration less that of the events directly inside; a profiler's jitter is no negative time."""
    own = ints(events, "dur_ns", 0).copy()
    event_id = ints(events, "event_id", -1)
    parent = ints(events, "parent_id", -1)
    row_of = np.full(int(event_id.max(initial=-1)) + 1, -1, dtype=np.int64)
    row_of[event_id] = np.arange(len(events))
    inner = np.flatnonzero(parent >= 0)
    np.subtract.at(own, row_of[parent[inner]], ints(events, "dur_ns", 0)[inner])
    return np.asarray(np.maximum(own, 0), dtype=np.int64)


def _groups(events: pa.Table, rows: Ints) -> Ints:
    keys = [ints(events, c, UNKNOWN)[rows] for c in ("rank", "device")]
    keys += [texts(events, c)[0][rows] for c in ("name", "category", "family")]
    if not len(rows):
        return rows
    group: Ints = np.unique(np.stack(keys), axis=1, return_inverse=True)[1].reshape(-1)
    return group


def _nearest_rank(first: Ints, count: Ints, percent: int) -> Ints:
    """Position of the percentile in each sorted group: rank ⌈percent/100 · count⌉."""
    rank = np.maximum(-(-percent * count // 100), 1)
    return np.asarray(first + rank - 1, dtype=np.int64)


def _shares(heads: pa.Table, total: Ints) -> pa.Array:
    keys = np.stack([ints(heads, c, UNKNOWN) for c in ("rank", "device")])
    if not len(total):
        return pa.nulls(0, pa.float64())
    lane = np.unique(keys, axis=1, return_inverse=True)[1].reshape(-1)
    whole = np.zeros(int(lane.max()) + 1, dtype=np.int64)
    np.add.at(whole, lane, total)
    return pa.array(total / np.maximum(whole[lane], 1), mask=whole[lane] == 0)


def _per_step(events: pa.Table, rows: Ints, first: Ints, windows: list[Window]) -> pa.Array:
    steps = Counter(w.rank for w in windows if w.step is not None)
    in_step = ints(events, "step", -1)[rows] >= 0
    counted = np.add.reduceat(in_step.astype(np.int64), first) if len(first) else first
    rank = events.column("rank").take(pa.array(rows[first])).to_pylist()
    per_step = [
        n / steps[r] if steps[r] else None for n, r in zip(counted.tolist(), rank, strict=True)
    ]
    return pa.array(per_step, pa.float64())
