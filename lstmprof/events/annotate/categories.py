"""Classify each activity and op: ``category``, ``family``, and the ``rule`` that decided.

The table of rules is in ``rules``. Events store the text of the deciding rule instead of its
number, so that it stays valid if a later version has other rules.

Reads linked events. The category of an activity is decided in this order: a copy or memset by its
kind; a kernel that copies or sets memory by its name; ``rnn`` inside a recurrent op; ``optimizer``
for the small work of that phase; a copy between tensors by its name; the nearest enclosing op with
a rule; the op that the activity names; its own name; the name of a library's op around it; else
``other``. The category of an op is decided by its own rule; it is null if the op only arranges
work.
Names of scopes never decide. Source: docs/ledger.md.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa

from lstmprof.events.annotate.calls import direction
from lstmprof.events.annotate.links import scope_phases, small
from lstmprof.events.annotate.rules import (
    ATEN_COPIES,
    CATEGORIES,
    COPY_ON_DEVICE,
    COPY_THAT_CASTS,
    DECIDED_BY_NAME,
    LIBRARY_OP,
    MEMSET,
    OPTIMIZER_WORK,
    RNN_FAMILIES,
    RULES,
    TRANSFER,
    UNNAMED,
    kernel_rule,
    op_rule,
    path_rule,
    rnn_family,
    rule_text,
)
from lstmprof.events.groups import Codes, inherited
from lstmprof.events.intervals import Flags
from lstmprof.events.launch_config import recorded_inputs
from lstmprof.events.schema import PHASES
from lstmprof.events.table import NONE, EventTable

_COPY_OP = "aten::copy_"
_CONVERTING = ("aten::_to_copy", "aten::to")
#: Small work of the optimizer's phase is the optimizer; a GEMM or a collective in it is not.
_OPTIMIZER_WORK = ("pointwise", "reduction", "other", "layout")
#: If a kernel's path ends in a layout op but its own name says one of these, the own name decides.
_SAYS_MORE = ("gemm", "conv", "attention", "reduction")
_COPIES_ON_DEVICE = ("DtoD", "PtoP")

#: Type of rule numbers: one per row, and profiles have millions of rows.
_RULE = np.int16
_NUMBER = {rule: number for number, rule in enumerate(RULES)}
#: The category of each rule by its number, as an index into CATEGORIES; the last entry is for
#: ``NONE``.
_CATEGORY = np.array(
    [NONE if r.category is None else CATEGORIES.index(r.category) for r in RULES] + [NONE],
    dtype=_RULE,
)
_DECIDED = [_NUMBER[rule] for rule in DECIDED_BY_NAME]
_COPIES = [_NUMBER[rule] for rule in ATEN_COPIES]
_FAMILIES = tuple(family for family, _ in RNN_FAMILIES)
_TEXTS = tuple(rule_text(number) for number in range(len(RULES)))


def categorised(events: EventTable, *, captured: bool = False) -> EventTable:
    """Return ``events`` with ``category``, ``family`` and ``rule`` filled.

    ``captured`` is True if lstmprof's own worker ran the step; its scopes are the phases.
    """
    rule = _rules(events, captured)
    category = _CATEGORY[rule]
    derived = {
        "category": _dictionary(CATEGORIES, category),
        "family": _families(events, category),
        "rule": _dictionary(_TEXTS, rule),
    }
    return events.with_columns(derived)


def _dictionary(values: tuple[str, ...], codes: Codes) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), pa.array(values))


def _rules(events: EventTable, captured: bool) -> Codes:
    """Return for each row the number of the rule that decides its category, or ``NONE``."""
    links = _Links(events)
    op_rules = _op_rules(events, links)
    of_library = op_rules == _NUMBER[LIBRARY_OP]
    within = events.mapped("name", _rule_of_library_op, _NUMBER[UNNAMED], _RULE, of_library)
    rule = np.where(of_library, within, op_rules)
    kernels = np.flatnonzero(events.is_kind("kernel"))
    rule[kernels] = _kernel_rules(events, links, op_rules, kernels)
    copies, on_device = events.is_kind("memcpy"), events.where_name(_is_on_device)
    rule[copies] = _NUMBER[TRANSFER]
    rule[copies & on_device] = _NUMBER[COPY_ON_DEVICE]
    rule[events.is_kind("memset")] = _NUMBER[MEMSET]
    optimizing = events.is_one_of("phase", "optimizer") & _is(rule, *_OPTIMIZER_WORK)
    if not captured:
        optimizing &= ~_in_scope_of_optimizer(events, links)
    rule[optimizing] = _NUMBER[OPTIMIZER_WORK]
    return rule


class _Links:
    """Row numbers instead of ids."""

    def __init__(self, events: EventTable) -> None:
        self.parent = small(events.rows_named("parent_id"))
        self.op = small(events.rows_named("op_id"))


def _op_rules(events: EventTable, links: _Links) -> Codes:
    """Return each op's own rule, ``NONE`` if the op only arranges work."""
    is_op = events.is_kind("op")
    rule = events.mapped("name", _op_rule, NONE, _RULE, is_op)
    named = np.where(_is(rule, "other"), _named_rules(events), NONE)
    rule = np.where(named != NONE, named, rule)
    copies = np.flatnonzero(is_op & events.is_one_of("name", _COPY_OP))
    rule[copies[_converts(events, links, copies)]] = _NUMBER[COPY_THAT_CASTS]
    return rule


def _is(rule: Codes, *categories: str) -> Flags:
    return np.isin(_CATEGORY[rule], [CATEGORIES.index(c) for c in categories])


def _op_rule(name: str) -> int:
    rule = op_rule(name)
    return NONE if rule is None or rule.category is None else _NUMBER[rule]


def _converts(events: EventTable, links: _Links, copies: Codes) -> Flags:
    """Return which of the copies change the element type.

    The recorded types decide, or else the ``aten::to`` around, which PyTorch's autocast calls for a
    cast.
    """
    recorded = events.mapped("dtypes", _types_differ, -1, _RULE)[copies]
    if (recorded >= 0).all():
        return np.asarray(recorded == 1, dtype=np.bool_)
    converting = events.is_kind("op") & events.is_one_of("name", *_CONVERTING)
    marks = np.where(converting, _RULE(1), _RULE(NONE))
    beneath = inherited(links.parent, marks)[copies] == 1
    return np.asarray(np.where(recorded >= 0, recorded == 1, beneath), dtype=np.bool_)


@lru_cache(maxsize=4096)
def _types_differ(dtypes: str) -> int:
    """Return 1 if the first two types of a JSON list differ, 0 if they agree, −1 if unknown."""
    types = [str(entry) for entry in recorded_inputs(dtypes)]
    if len(types) < 2:
        return -1
    first, second = types[:2]
    return int(first != second) if first and second else -1


def _kernel_rules(events: EventTable, links: _Links, op_rules: Codes, rows: Codes) -> Codes:
    """Choose a rule for each kernel: a recurrent op around, any op around, the op named, its name.

    A path of JAX ends in the last op of a fusion: if that op only moves elements, a kernel name
    that computes wins. The last resort is the name of a library's op.
    """
    known_rules = np.where(_is(op_rules, "other"), NONE, op_rules)
    recurrent = np.where(_is(op_rules, "rnn"), op_rules, NONE)
    in_layer = _around(links, recurrent, rows)
    by_op = _around(links, known_rules, rows)
    is_kernel = events.is_kind("kernel")
    by_kernel = events.mapped("name", _kernel_rule, _NUMBER[UNNAMED], _RULE, is_kernel)[rows]
    named = _named_rules(events)[rows]
    says_more = _is(by_kernel, *_SAYS_MORE) & (named != NONE) & _is(named, "layout")
    rules = np.where((by_op != NONE) | says_more, by_op, named)
    rules = np.where((rules == NONE) | _copies_itself(by_kernel, rules), by_kernel, rules)
    rules = np.where(in_layer != NONE, in_layer, rules)
    rules = np.where(np.isin(by_kernel, _DECIDED), by_kernel, rules)
    library = _around(links, _library_rules(events, op_rules), rows)
    return np.where((rules == _NUMBER[UNNAMED]) & (library != NONE), library, rules)


def _around(links: _Links, candidates: Codes, rows: Codes) -> Codes:
    """Return the candidate of the nearest enclosing op that has one."""
    around = inherited(links.parent, candidates)
    return np.where(links.op[rows] != NONE, around[links.op[rows]], NONE)


def _copies_itself(by_kernel: Codes, rules: Codes) -> Flags:
    """Return which kernels copy a tensor before or after the work of the op around them.

    An op of either kind decides if the name does not distinguish a cast from a copy.
    """
    unsure = (by_kernel == _NUMBER[ATEN_COPIES[-1]]) & _is(rules, "cast", "layout")
    return np.asarray(np.isin(by_kernel, _COPIES) & ~unsure, dtype=np.bool_)


def _library_rules(events: EventTable, op_rules: Codes) -> Codes:
    """Return the rule by name for ops of a library's own namespace, else ``NONE``."""
    of_library = op_rules == _NUMBER[LIBRARY_OP]
    within = events.mapped("name", _rule_of_library_op, NONE, _RULE, of_library)
    return np.where(within == _NUMBER[UNNAMED], NONE, within)


def _named_rules(events: EventTable) -> Codes:
    """Return the rules by ``op_name``, the op that an event itself names (XPlane)."""
    return events.mapped("op_name", _named_rule, NONE, _RULE)


def _named_rule(op_name: str) -> int:
    rule = path_rule(op_name) if "/" in op_name else op_rule(op_name)
    return NONE if rule is None or rule.category in (None, "other") else _NUMBER[rule]


def _rule_of_library_op(name: str) -> int:
    return _kernel_rule(name.rpartition("::")[2])


def _is_on_device(copy: str) -> bool:
    return direction(copy) in _COPIES_ON_DEVICE


def _kernel_rule(name: str) -> int:
    return _NUMBER[kernel_rule(name) or UNNAMED]


def _in_scope_of_optimizer(events: EventTable, links: _Links) -> Flags:
    """Return the rows in the optimizer's phase by scope name only; users choose these names."""
    optimizer = PHASES.index("optimizer")
    scoped = scope_phases(events)
    if not np.any(scoped == optimizer):
        return np.zeros(len(events), dtype=np.bool_)
    around = inherited(links.parent, scoped)
    launch = small(events.rows_named("launch_id"))
    launched = np.where(launch != NONE, around[launch], NONE)
    return np.asarray(np.where(around != NONE, around, launched) == optimizer, dtype=np.bool_)


def _families(events: EventTable, category: Codes) -> pa.Array:
    rnn = events.is_kind("kernel") & (category == CATEGORIES.index("rnn"))
    return _dictionary(_FAMILIES, events.mapped("name", _family, NONE, _RULE, rnn))


def _family(kernel: str) -> int:
    family = rnn_family(kernel)
    return NONE if family is None else _FAMILIES.index(family)
