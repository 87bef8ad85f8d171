"""The table of casts (changes of element types), and the table of copies and memsets.

Example of a cast in PyTorch: ``aten::to`` → ``aten::_to_copy`` → ``aten::copy_(to, from)``. The
column ``op`` shows ``aten::to``, and ``within`` shows the op that called ``aten::to``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from lstmprof.breakdown.attribution.host import computing
from lstmprof.events.annotate.calls import DIRECTIONS, MEMORIES, direction, host_memory
from lstmprof.events.annotate.steps import Window, steps_of
from lstmprof.events.groups import (
    Groups,
    heads,
    nearest,
    own_time,
    ratio,
    texts_at,
    values_at,
    where_known,
)
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.launch_config import element_bytes, recorded_inputs
from lstmprof.events.narrow import Packed
from lstmprof.events.schema import ACTIVITY_KINDS, DEVICE, PER_STEP, RANK, Column, schema
from lstmprof.events.table import NONE, UNKNOWN, EventTable
from lstmprof.runs.invariants import check_sums

_COPY = "aten::copy_"
_CONVERSIONS = (_COPY, "aten::_to_copy", "aten::to", "aten::type_as")

_UNRECORDED = "the profile does not record element types"

COLUMNS = (
    RANK,
    DEVICE,
    Column.text("op", "name of the op that casts", "no op is known"),
    Column.text("within", "name of the op that called the casting op", "no op called it"),
    Column.text("from_dtype", "element type before the cast", _UNRECORDED),
    Column.text("to_dtype", "element type after the cast", _UNRECORDED),
    Column.integer("count", "number of casts: activities on a device, ops on a host"),
    PER_STEP,
    Column.integer(
        "total_ns", "time of the casts: durations on a device, self times of ops on a host"
    ),
    Column.integer(
        "bytes",
        "number of bytes that the casts read and wrote",
        "the profile does not record a shape or element type",
    ),
)
SCHEMA = schema(COLUMNS)


def casts(events: EventTable, windows: list[Window]) -> pa.Table:
    """Return one row per rank, device, op, calling op and pair of element types."""
    rows = _work(events)
    rows = rows[events.is_one_of("category", "cast")[rows]]
    columns = [*_ops_and_callers(events, rows), *_types(events, rows)]
    moved = _moved_bytes(events, rows)
    rank = events.ints("rank", UNKNOWN)[rows]
    groups = Groups(rank, events.ints("device", UNKNOWN)[rows], *(key for key, _ in columns))
    in_step = groups.sizes(events.ints("step", -1)[rows] >= 0)
    return pa.table(
        [
            *heads(events, rows, groups, ("rank", "device")),
            *(texts_at(values, key[groups.first]) for key, values in columns),
            pa.array(groups.sizes()),
            ratio(in_step, steps_of(rank[groups.first], windows)),
            pa.array(groups.sums(own_time(events)[rows])),
            where_known(groups.sums(moved), groups.sizes(moved < 0) == 0),
        ],
        schema=SCHEMA,
    )


def _work(events: EventTable) -> Ints:
    """Return rows of activities or, in ranks without activities, of ops that compute."""
    activity, op = events.is_kind(*ACTIVITY_KINDS), computing(events)
    rows = [np.empty(0, dtype=np.int64)]
    for rank in events.ranks():
        members = events.rows_of_rank(rank)
        rows.append(members[activity[members]] if activity[members].any() else members[op[members]])
    return np.concatenate(rows)


def _issuers(events: EventTable, rows: Ints) -> Ints:
    """Return the op that issued each event, or ``NONE``; an op is its own issuer."""
    return np.where(events.is_kind("op")[rows], rows, events.rows_named("op_id")[rows])


def _ops_and_callers(events: EventTable, rows: Ints) -> list[tuple[Ints, list[str]]]:
    """Return two text columns (codes, texts): the casting ops, and their callers."""
    names, name_texts = events.texts("name")
    is_op = events.is_kind("op")
    parent = events.rows_named("parent_id")
    around = values_at(nearest(parent, is_op), parent)
    converts = is_op & events.is_one_of("name", *_CONVERSIONS)
    inner = converts & converts[around] & (around != NONE)
    op = nearest(np.where(is_op, around, NONE), is_op & ~inner)
    op = values_at(op, _issuers(events, rows))
    within = values_at(around, op)
    op_names, op_texts = events.texts("op_name")
    unlinked = np.where(op_names[rows] >= 0, op_names[rows] + len(name_texts), NONE)
    op_code = np.where(op != NONE, values_at(names, op), unlinked)
    return [(op_code, [*name_texts, *op_texts]), (values_at(names, within), name_texts)]


def _copies(events: EventTable, ops: Ints) -> Flags:
    return np.asarray((ops != NONE) & events.is_one_of("name", _COPY)[ops], dtype=np.bool_)


def _types(events: EventTable, rows: Ints) -> list[tuple[Ints, list[str]]]:
    """Return two text columns (codes, texts): element types before and after casts."""
    codes, values = events.texts("dtypes")
    issuer = _issuers(events, rows)
    copies = _copies(events, issuer)
    code = values_at(codes, issuer)
    recorded = [[str(t) if t else None for t in recorded_inputs(v)] for v in (*values, "")]
    # make two pairs (from, to) per text: one for other casting ops, one for ``aten::copy_``
    pairs = [[((r or [None])[0], None), copied(r)] for r in recorded]
    texts = sorted({text for entry in pairs for pair in entry for text in pair if text})
    code_of = {None: NONE, **{text: number for number, text in enumerate(texts)}}
    codes_of = np.array([[[code_of[t] for t in pair] for pair in entry] for entry in pairs])
    chosen = codes_of[code, copies.astype(np.int64)]  # the code ``NONE`` selects the last text: ""
    return [(chosen[:, 0], texts), (chosen[:, 1], texts)]


def copied(recorded: list[Any]) -> tuple[Any, Any]:
    """Return the recorded inputs of ``aten::copy_(to, from)`` as (from, to)."""
    to, source = [*recorded, None, None][:2]
    return source, to


def _moved_bytes(events: EventTable, rows: Ints) -> Ints:
    """Return the bytes that each event of ``rows`` reads and writes; −1 if unknown."""
    issuer = _issuers(events, rows)
    (shapes, shape_texts), (dtypes, dtype_texts) = (events.texts(c) for c in ("shapes", "dtypes"))
    shape, dtype = values_at(shapes, issuer), values_at(dtypes, issuer)
    copies = _copies(events, issuer) & (shape != NONE) & (dtype != NONE)
    pairs = Groups(shape[copies], dtype[copies])
    firsts = zip(*(c[copies][pairs.first].tolist() for c in (shape, dtype)), strict=True)
    sizes = [_copy_bytes(shape_texts[s], dtype_texts[d]) for s, d in firsts]
    moved = np.full(len(rows), -1, dtype=np.int64)
    moved[copies] = np.array(sizes, dtype=np.int64)[pairs.of]
    return moved


@lru_cache(maxsize=4096)
def _copy_bytes(shapes: str, dtypes: str) -> int:
    """Return the bytes that ``aten::copy_`` reads and writes; −1 if unknown."""
    source, to = copied(recorded_inputs(dtypes))
    shape = [*recorded_inputs(shapes), None][0]
    sizes = [element_bytes(t) for t in (source, to)]
    if not isinstance(shape, list) or None in sizes:
        return -1
    if not all(isinstance(n, int) and n >= 0 for n in shape):
        return -1
    moved = math.prod(shape) * sum(n for n in sizes if n)
    return moved if moved < 2**63 else -1


COPY_COLUMNS = (
    RANK,
    DEVICE,
    Column.text("kind", "memcpy or memset"),
    Column.text(
        "direction",
        "direction of the copy: " + ", ".join(DIRECTIONS) + " (H host, D device, P peer device)",
        "the row is a memset, or the name does not show the direction",
    ),
    Column.text(
        "host_memory", "kind of host memory: " + ", ".join(MEMORIES), "the name does not show it"
    ),
    Column.integer("count", "number of copies or memsets"),
    PER_STEP,
    Column.integer("bytes", "number of bytes that were copied or set", "a size is unknown"),
    Column.integer("total_ns", "sum of the durations"),
    Column.real("bytes_per_s", "bytes divided by total_ns", "bytes is unknown, or total_ns is 0"),
)

#: Columns of the events to read.
COPY_READS = ("kind", "name", "dur_ns", "rank", "device", "bytes", "step")
#: Values of the columns ``kind``, ``direction`` and ``host_memory``, in sort order.
_KINDS, _DIRECTIONS, _MEMORIES = ("memcpy", "memset"), sorted(DIRECTIONS), sorted(MEMORIES)


def copies(events: Packed, windows: Sequence[Window]) -> pa.Table:
    """Return one row per rank, device, kind, direction and kind of host memory."""
    copied_events = events.table(COPY_READS, np.flatnonzero(events.is_kind(*_KINDS)))
    rank, device, moved = (
        copied_events.ints(name, UNKNOWN) for name in ("rank", "device", "bytes")
    )
    is_set = copied_events.is_kind("memset")
    way = copied_events.mapped("name", lambda name: _index(_DIRECTIONS, direction(name)), NONE)
    memory = copied_events.mapped("name", lambda name: _index(_MEMORIES, host_memory(name)), NONE)
    way, is_known = np.where(is_set, NONE, way), moved != UNKNOWN
    check_sums("copies", copied_events.dur_ns, moved[is_known])
    group = Groups(rank, device, is_set.astype(np.int64), way, memory)
    head = group.first
    count, total = group.sizes(), group.sums(copied_events.dur_ns)
    whole, all_known = group.sums(moved, is_known), group.sizes(is_known) == count
    in_steps = group.sizes(copied_events.ints("step", NONE) != NONE)
    columns = [
        *(where_known(number[head], number[head] != UNKNOWN) for number in (rank, device)),
        texts_at(_KINDS, is_set[head].astype(np.int64)),
        texts_at(_DIRECTIONS, way[head]),
        texts_at(_MEMORIES, memory[head]),
        pa.array(count),
        ratio(in_steps, steps_of(rank[head], list(windows))),
        where_known(whole, all_known),
        pa.array(total),
        pa.array(whole * 1e9 / np.maximum(total, 1), mask=~all_known | (total == 0)),
    ]
    return pa.Table.from_arrays(columns, schema=schema(COPY_COLUMNS))


def _index(texts: Sequence[str], text: str | None) -> int:
    return NONE if text is None else texts.index(text)
