"""What each activity and op is for: ``category`` and ``family``, by the table in ``rules``.

Reads linked events. For an activity, in order: a copy or a memset by its kind; ``rnn`` beneath a
recurrent op; ``optimizer`` for the small work of that phase; the nearest enclosing op with a rule;
the op the activity names; its own name; else ``other``. For an op: its own rule; null where it only
arranges work. Source: docs/ledger.md.
"""

from __future__ import annotations

import json
from functools import lru_cache

import numpy as np
import pyarrow as pa

from lstmprof.breakdown.intervals import Flags, Ints
from lstmprof.breakdown.links import NONE, inherited
from lstmprof.breakdown.rules import CATEGORIES, kernel_rule, op_rule, rnn_family
from lstmprof.breakdown.windows import is_kind
from lstmprof.events import ints, texts, with_columns

_COPY_OP = "aten::copy_"
_CONVERTING = ("aten::_to_copy", "aten::to")
#: Small work of the optimizer's phase is the optimizer; a GEMM or a collective in it is not.
_OPTIMIZER_WORK = ("pointwise", "reduction", "other", "layout")
_COPIES_ON_DEVICE = ("DtoD", "D2D", "Device -> Device", "PtoP", "P2P")


def categorised(events: pa.Table) -> pa.Table:
    """``events`` with ``category`` and ``family`` filled in."""
    by_row = _Links(events)
    category = np.full(len(events), NONE, dtype=np.int64)
    ops = np.flatnonzero(is_kind(events, "op"))
    category[ops] = _op_categories(events, by_row)[ops]
    for kind in ("kernel", "memcpy", "memset"):
        rows = np.flatnonzero(is_kind(events, kind))
        category[rows] = _activity_categories(events, by_row, kind, rows)
    category = _with_optimizer(events, category)
    names = pa.array(CATEGORIES)
    return with_columns(
        events,
        {
            "category": pa.DictionaryArray.from_arrays(
                pa.array(category, mask=category < 0), names
            ),
            "family": _families(events, by_row, category),
        },
    )


class _Links:
    """Row numbers instead of ids, and the rule of every op name."""

    def __init__(self, events: pa.Table) -> None:
        event_id = ints(events, "event_id", NONE)
        row_of = np.full(int(event_id.max(initial=0)) + 2, NONE, dtype=np.int64)
        row_of[event_id] = np.arange(len(events))
        self.parent = row_of[ints(events, "parent_id", NONE)]
        self.op = row_of[ints(events, "op_id", NONE)]
        self.names, self.name_texts = texts(events, "name")
        self.is_op = is_kind(events, "op")


def _op_categories(events: pa.Table, links: _Links) -> Ints:
    """An index into CATEGORIES for each op by its own name, ``NONE`` where it only arranges."""
    by_name = np.array([_op_category(n) for n in links.name_texts] or [NONE], dtype=np.int64)
    category = np.where(links.is_op, by_name[links.names], NONE).astype(np.int64)
    named = np.where(category == CATEGORIES.index("other"), _named_op_categories(events), NONE)
    category = np.where(named != NONE, named, category)
    copies = links.is_op & (links.names == _code(links.name_texts, _COPY_OP))
    category[copies & _converts(events, links)] = CATEGORIES.index("cast")
    return category


def _op_category(name: str) -> int:
    rule = op_rule(name)
    return NONE if rule is None or rule.category is None else CATEGORIES.index(rule.category)


def _code(values: list[str], value: str) -> int:
    return values.index(value) if value in values else -2


def _converts(events: pa.Table, links: _Links) -> Flags:
    """A boolean a row: a copy whose element type changes.

    By the recorded types where there are any, else by the ``aten::to`` around it, which PyTorch's
    autocast calls for a cast.
    """
    codes, values = texts(events, "dtypes")
    recorded = np.array([_types_differ(v) for v in values] + [-1], dtype=np.int64)[codes]
    wanted = [_code(links.name_texts, name) for name in _CONVERTING]
    converting = np.where(links.is_op & np.isin(links.names, wanted), 1, NONE)
    beneath = inherited(events, links.parent, converting) == 1
    return np.asarray(np.where(recorded >= 0, recorded == 1, beneath), dtype=np.bool_)


@lru_cache(maxsize=4096)
def _types_differ(dtypes: str) -> int:
    """1 where the first two of a JSON list of types differ, 0 where they agree, −1 unknown."""
    try:
        first, second = [str(t) for t in json.loads(dtypes)][:2]
    except ValueError:
        return -1
    return int(first != second) if first and second else -1


def _activity_categories(events: pa.Table, links: _Links, kind: str, rows: Ints) -> Ints:
    if kind == "memset":
        return np.full(len(rows), CATEGORIES.index("memset"))
    if kind == "memcpy":
        on_device = [any(c in n for c in _COPIES_ON_DEVICE) for n in links.name_texts] or [False]
        layout, transfer = CATEGORIES.index("layout"), CATEGORIES.index("transfer")
        return np.where(np.array(on_device)[links.names[rows]], layout, transfer)
    own_op = _op_categories(events, links)
    own_op[own_op == CATEGORIES.index("other")] = NONE
    around = inherited(events, links.parent, own_op)
    by_op = np.where(links.op[rows] != NONE, around[links.op[rows]], NONE)
    by_op = np.where(_beneath_rnn(events, links)[rows], CATEGORIES.index("rnn"), by_op)
    named = _named_op_categories(events)[rows]
    by_kernel = np.array([_kernel_category(n) for n in links.name_texts] or [NONE])
    found = np.where(by_op != NONE, by_op, np.where(named != NONE, named, NONE))
    decided: Ints = np.where(found != NONE, found, by_kernel[links.names[rows]])
    return decided


def _beneath_rnn(events: pa.Table, links: _Links) -> Flags:
    """A boolean a row: its op is, or is inside, a recurrent op."""
    rnn = CATEGORIES.index("rnn")
    own = np.where(_op_categories(events, links) == rnn, rnn, NONE)
    around = inherited(events, links.parent, own)
    return np.asarray(np.where(links.op != NONE, around[links.op], around) == rnn)


def _named_op_categories(events: pa.Table) -> Ints:
    """By ``op_name``, the op that an event itself names (XPlane); of JAX's path its last part."""
    codes, values = texts(events, "op_name")
    found = []
    for value in values:
        category = _op_category(value)
        part = value[value.rfind("/") :] if value.startswith("jit(") else value
        rule = kernel_rule(part) if category == NONE and "/" in value else None
        found.append(category if rule is None else CATEGORIES.index(str(rule.category)))
    decided: Ints = np.array([*found, NONE], dtype=np.int64)[codes]
    return decided


def _kernel_category(name: str) -> int:
    rule = kernel_rule(name)
    return CATEGORIES.index("other" if rule is None else str(rule.category))


def _with_optimizer(events: pa.Table, category: Ints) -> Ints:
    phases, names = texts(events, "phase")
    in_phase = phases == _code(names, "optimizer")
    small = np.isin(category, [CATEGORIES.index(c) for c in _OPTIMIZER_WORK])
    return np.where(in_phase & small, CATEGORIES.index("optimizer"), category)


def _families(events: pa.Table, links: _Links, category: Ints) -> pa.Array:
    rnn = category == CATEGORIES.index("rnn")
    kernels = rnn & is_kind(events, "kernel")
    by_name = [rnn_family(n) for n in links.name_texts]
    return pa.array(
        [
            by_name[n] if k else None
            for n, k in zip(links.names.tolist(), kernels.tolist(), strict=True)
        ],
        pa.string(),
    )
