"""The kernel table: what each kernel (on a CPU run: each computing op) took, by name.

Reads linked and categorised events. A kernel's time is its own duration; an op's is its self time,
without what is inside it; ops that only arrange work are left out: some of them wait for others.
All activities of the profile count; ``per_step`` counts those that a step issued. Percentiles
are the nearest rank, so each is the duration of a row of ``events``.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lstmprof.breakdown.host import computing
from lstmprof.events.annotate.steps import Window, is_kind, of_rank, ranks
from lstmprof.events.batches import BATCH_EVENTS, Batch
from lstmprof.events.call_tree import own_time
from lstmprof.events.columns import DEVICE, PER_STEP, RANK, Column, schema
from lstmprof.events.groups import Groups, heads, per_step, ratio
from lstmprof.events.intervals import Ints
from lstmprof.events.packed import Packed
from lstmprof.events.schema import ACTIVITY_KINDS, ints, texts
from lstmprof.events.threads import UNKNOWN

COLUMNS = (
    RANK,
    DEVICE,
    Column("name", pa.string(), "", "of the kernel, copy or memset; on a host thread of the op"),
    Column("category", pa.string(), "", "what the time is for", "an op that only arranges work"),
    Column("family", pa.string(), "", "gemm, pointwise or persistent", "the category is not rnn"),
    Column("count", pa.int64(), "", "times it ran"),
    Column("total_ns", pa.int64(), "ns", "sum of durations; of ops, of self time"),
    Column("mean_ns", pa.float64(), "ns", "mean of them"),
    Column("p50_ns", pa.int64(), "ns", "median of them, nearest rank"),
    Column("p95_ns", pa.int64(), "ns", "95th percentile of them, nearest rank"),
    Column("max_ns", pa.int64(), "ns", "longest of them"),
    Column(
        "share",
        pa.float64(),
        "share",
        "total_ns divided by that of all rows of the rank and device",
        "that is 0",
    ),
    PER_STEP,
    Column(
        "rule",
        pa.string(),
        "",
        "the rule that decided the category of most of them",
        "the run was written before rules were: ingest it again",
    ),
)
SCHEMA = schema(COLUMNS)


#: What is said of a row of the table by its events.
_TOLD = ("rank", "device", "name", "category", "family", "rule", "step")


def kernels(events: pa.Table, windows: list[Window]) -> pa.Table:
    """One row a (rank, device, name, category, family), the largest total first; ``SCHEMA``."""
    rows = work(events)
    told = events.select(list(_TOLD)).take(pa.array(rows))
    return _by_name(told, own_time(events)[rows], windows)


class GatheredKernels:
    """The kernel table of ``packed`` events, gathered from their batches."""

    def __init__(self, packed: Packed, windows: list[Window]) -> None:
        self._packed, self._windows = packed, windows
        self._rows: list[Ints] = []

    def add(self, batch: Batch) -> None:
        """Take in the work that begins in ``batch``."""
        rows = work(batch.events)
        rows = rows[(rows >= batch.own.start) & (rows < batch.own.stop)]
        self._rows.append(batch.rows[rows])

    def table(self) -> pa.Table:
        """The table of all batches so far, ``SCHEMA``."""
        rows = np.concatenate(self._rows)
        told = self._packed.table(_TOLD, rows)
        return _by_name(told, _own_time(self._packed)[rows], self._windows)


def _own_time(packed: Packed) -> Ints:
    """``forest.own_time`` of packed events, whose ids are their row numbers."""
    dur, parent = packed.values("dur_ns"), packed.values("parent_id")
    own = dur.astype(np.int64)
    for first in range(0, len(own), BATCH_EVENTS):
        of = parent[first : first + BATCH_EVENTS]
        inner = np.flatnonzero(of >= 0)
        np.subtract.at(own, of[inner], dur[first + inner].astype(np.int64))
    return np.maximum(own, 0, out=own)


def _by_name(told: pa.Table, spent: Ints, windows: list[Window]) -> pa.Table:
    """The table of the events ``told`` of, which took ``spent``."""
    rank, device = (ints(told, c, UNKNOWN) for c in ("rank", "device"))
    groups = Groups(rank, device, *(texts(told, c)[0] for c in ("name", "category", "family")))
    first = groups.first
    total = groups.sums(spent)
    lane = Groups(rank[first], device[first])
    table = pa.table(
        [
            *heads(
                told,
                np.arange(len(told)),
                groups,
                ("rank", "device", "name", "category", "family"),
            ),
            pa.array(groups.sizes()),
            pa.array(total),
            groups.mean(spent),
            groups.percentile(spent, 50),
            groups.percentile(spent, 95),
            groups.largest(spent),
            ratio(total, lane.sums(total)[lane.of]),
            per_step(groups.sizes(ints(told, "step", -1) >= 0), rank[first], windows),
            _rules(told, groups),
        ],
        schema=SCHEMA,
    )
    return table.sort_by([("total_ns", "descending"), ("name", "ascending")])


def _rules(told: pa.Table, groups: Groups) -> pa.Array:
    """The rule that decided for most of each group's rows."""
    codes, values = texts(told, "rule")
    most = groups.most_frequent(codes)
    return pa.array(values, pa.string()).take(pa.array(most, mask=most < 0))


def work(events: pa.Table) -> Ints:
    """Rows of the activities; of the ops that compute, in ranks that have none."""
    activity = is_kind(events, *ACTIVITY_KINDS)
    op = computing(events)
    rows = []
    for rank in ranks(events):
        mine = of_rank(events, rank)
        found = mine[activity[mine]]
        rows.append(found if len(found) else mine[op[mine]])
    return np.concatenate(rows) if rows else np.empty(0, dtype=np.int64)
