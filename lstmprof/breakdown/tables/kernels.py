"""The table of kernels: number and times of the runs of each kernel, copy and memset.

In a CPU run, the table has the self times of the ops that compute. Percentiles use the nearest-rank
method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from lstmprof.events.annotate.steps import Window, steps_of
from lstmprof.events.event_types import dense_numbers, event_types
from lstmprof.events.groups import Groups, SortedValues, ratio, texts_at, where_known
from lstmprof.events.intervals import Ints
from lstmprof.events.narrow import Packed
from lstmprof.events.schema import ACTIVITY_KINDS, DEVICE, PER_STEP, RANK, Column, schema
from lstmprof.events.table import NONE, UNKNOWN
from lstmprof.runs.invariants import check_sums

_NOT_RECORDED = "the row is not a kernel, or the profile does not record it"
COLUMNS = (
    RANK,
    DEVICE,
    Column.text("name", "name of the kernel, copy or memset; on a host, name of the op"),
    Column.text("category", "category of work, such as gemm", "the op computes nothing itself"),
    Column.text(
        "family",
        "kind of work within category rnn: gemm, pointwise or persistent",
        "category is not rnn",
    ),
    Column.integer("count", "number of times that the kernel, copy or op ran"),
    Column.integer("total_ns", "sum of the durations (of the self times for ops)"),
    Column.real("mean_ns", "mean duration"),
    Column.integer("p50_ns", "median duration, nearest rank"),
    Column.integer("p95_ns", "95th percentile of the durations, nearest rank"),
    Column.integer("max_ns", "longest duration"),
    Column.real(
        "share",
        "total_ns divided by the total_ns of all rows of this rank and device",
        "the sum is 0",
    ),
    PER_STEP,
    Column.text(
        "rule",
        "rule that most often decided the category of the kernel, copy or op",
        "an older lstmprof wrote the run",
    ),
    Column.integer(
        "launch_configs",
        "number of different launch configurations (grid, block …)",
        _NOT_RECORDED,
    ),
    Column.text(
        "launch_config",
        "launch configuration with the most time, as JSON",
        _NOT_RECORDED,
    ),
)

#: Columns of the events to read; ``parent_id`` is used only for self times of ops.
READS = (
    *("event_id", "kind", "name", "dur_ns", "rank", "pid", "tid", "device", "start_ns"),
    *("parent_id", "step", "category", "family", "rule", "launch_config"),
)
#: Text columns that identify a table row, and text columns that may vary in a row.
_KEYS, _OTHERS = ("name", "category", "family"), ("rule", "launch_config")
_ALL_TEXTS = (*_KEYS, *_OTHERS)
_ACTIVITY, _OP = 1, 2
_ROLES = {**dict.fromkeys(ACTIVITY_KINDS, _ACTIVITY), "op": _OP}


def kernels(events: Packed, windows: Sequence[Window]) -> pa.Table:
    """Return one row per rank, device, name, category and family."""
    work = _work(events)
    keys, (rule, launch_config) = work.texts[: len(_KEYS)], work.texts[len(_KEYS) :]
    group = Groups(work.rank, work.device, *(text.index for text in keys))
    check_sums("kernels", work.ns)
    total_ns = group.sums(work.bucket_ns)
    times = SortedValues(group.of[work.bucket], work.ns, group.count)
    rank, device = work.rank[group.first], work.device[group.first]
    lane = Groups(rank, device)
    count = group.sums(work.count)
    columns = [
        *(where_known(number, number != UNKNOWN) for number in (rank, device)),
        *(texts_at(text.values, text.index[group.first]) for text in keys),
        pa.array(count),
        pa.array(total_ns),
        ratio(total_ns, count),
        *(pa.array(times.percentile(share)) for share in (50, 95, 100)),
        ratio(total_ns, lane.sums(total_ns)[lane.of]),
        ratio(group.sums(work.in_steps), steps_of(rank, list(windows))),
        _rules(group, rule, work.count),
        *_launch_configs(group, launch_config, work.bucket_ns),
    ]
    return pa.Table.from_arrays(columns, schema=schema(COLUMNS))


@dataclass(frozen=True)
class SortedTexts:
    """A text column: sorted distinct values, and the index of each event's value."""

    values: list[str]
    index: Ints  # in ``values``, or ``NONE``

    @staticmethod
    def of(texts: Sequence[str], codes: Ints) -> SortedTexts:
        """Make a text column from ``codes``, which index ``texts`` (``NONE``: null)."""
        used = np.unique(codes[codes != NONE])
        values = sorted({texts[code] for code in used.tolist()})
        index_of = {text: index for index, text in enumerate(values)}
        indices = np.full(len(texts) + 1, NONE, dtype=np.int64)
        indices[used] = [index_of[texts[code]] for code in used.tolist()]
        return SortedTexts(values, indices[codes])


@dataclass(frozen=True)
class _Work:
    """Kernels and computing ops; events of a bucket have equal rank, device and texts."""

    bucket: Ints  # per event
    ns: Ints  # per event
    rank: Ints  # per bucket, like all others
    device: Ints
    texts: list[SortedTexts]
    count: Ints
    in_steps: Ints

    @cached_property
    def bucket_ns(self) -> Ints:
        total_ns = np.zeros(len(self.count), dtype=np.int64)
        np.add.at(total_ns, self.bucket, self.ns)
        return total_ns


def _work(events: Packed) -> _Work:
    """Return the activities or, in ranks without activities, the ops that compute."""
    computing = event_types(events).computing
    own = _own_time(events) if len(computing) else events.values("dur_ns")
    roles = np.array([*(_ROLES.get(kind, 0) for kind in events.texts("kind")), 0])
    ns, indices, keys = [own[:0]], [np.empty(0, np.int32)], [[np.empty(0, np.int64)] * 9]
    bucket_count = 0
    for piece in events.pieces():
        role = roles[events.codes("kind", piece)]
        of_work = role == _ACTIVITY
        if len(computing):
            # omit ops without a category, which only call other ops or wait for other ops
            computes = np.isin(events.ints("rank", piece), computing)
            of_work |= (role == _OP) & computes & events.has_value("category", piece)
        rows = np.flatnonzero(of_work)
        if not len(rows):
            continue
        of, buckets_here = _buckets_of(events, piece, rows)
        ns.append(own[piece][rows])
        indices.append((of + bucket_count).astype(np.int32))
        keys.append(buckets_here)
        bucket_count += len(buckets_here[0])
    rank, device, *codes, count, in_steps = (np.concatenate(c) for c in zip(*keys, strict=True))
    texts = [SortedTexts.of(events.texts(n), c) for n, c in zip(_ALL_TEXTS, codes, strict=True)]
    return _Work(np.concatenate(indices), np.concatenate(ns), rank, device, texts, count, in_steps)


def _buckets_of(events: Packed, piece: slice, rows: Ints) -> tuple[Ints, list[Ints]]:
    """Group events of equal rank, device and texts (such as the name) into buckets."""
    keys = [events.ints(name, piece)[rows] for name in ("rank", "device")]
    keys += [events.codes(name, piece)[rows].astype(np.int64) for name in _ALL_TEXTS]
    of = dense_numbers(keys)
    count = np.bincount(of)
    first = np.empty(len(count), dtype=np.int64)
    first[of[::-1]] = np.arange(len(of))[::-1]
    in_steps = np.bincount(of[events.has_value("step", piece)[rows]], minlength=len(count))
    return of, [*(key[first] for key in keys), count, in_steps]


def _own_time(events: Packed) -> Ints:
    """Return each event's duration minus the durations of nested events."""
    own = events.values("dur_ns").astype(np.int64)
    parent = events.rows_named("parent_id")
    for piece in events.pieces():
        of = parent[piece]
        inner = np.flatnonzero(of != NONE)
        np.subtract.at(own, of[inner], events.values("dur_ns", piece)[inner].astype(np.int64))
    return np.maximum(own, 0, out=own)


def _rules(group: Groups, rule: SortedTexts, count: Ints) -> pa.Array:
    """Return the rule that decided the category of most events of each table row."""
    pairs = Groups(group.of, rule.index)
    of, index = group.of[pairs.first], rule.index[pairs.first]
    most_last = np.lexsort((index, pairs.sums(count), of))
    last = np.append(np.diff(of[most_last]) > 0, True)[: len(of)]
    return texts_at(rule.values, index[most_last[last]])


def _launch_configs(
    group: Groups, config: SortedTexts, bucket_ns: Ints
) -> tuple[pa.Array, pa.Array]:
    """Return each row's number of launch configurations, and the one with most time."""
    configured = np.flatnonzero(config.index != NONE)
    pairs = Groups(group.of[configured], config.index[configured])
    of, index = group.of[configured][pairs.first], config.index[configured][pairs.first]
    most_last = np.lexsort((-index, pairs.sums(bucket_ns[configured]), of))
    chosen = np.full(group.count, NONE)
    chosen[of[most_last]] = index[most_last]
    number = np.bincount(of, minlength=group.count)
    return where_known(number, number > 0), texts_at(config.values, chosen)
