"""Find the category of each activity and op, such as ``gemm``, by rules (docs/ledger.md).

The op that launched a kernel usually decides the kernel's category, else the kernel's name. For
example, the kernels of ``aten::_cudnn_rnn`` are ``rnn``. Elementwise work, reductions and copies of
the optimizer's phase become ``optimizer``.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa

from lstmprof.events.annotate.calls import direction
from lstmprof.events.annotate.links import scope_phases, small
from lstmprof.events.annotate.rules import (
    COPY_ON_DEVICE,
    COPY_THAT_CASTS,
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
from lstmprof.events.annotate.rules.kernels import ATEN_COPIES, DECIDED_BY_NAME
from lstmprof.events.annotate.rules.rule import CATEGORIES
from lstmprof.events.annotate.rules.torch import LIBRARY_OP
from lstmprof.events.groups import Codes, inherited
from lstmprof.events.intervals import Flags
from lstmprof.events.launch_config import recorded_inputs
from lstmprof.events.schema import PHASES
from lstmprof.events.table import NONE, EventTable

_COPY_OP = "aten::copy_"
_CONVERTING = ("aten::_to_copy", "aten::to")
#: Categories that become ``optimizer`` in the optimizer's phase.
_OPTIMIZER_WORK = ("pointwise", "reduction", "other", "layout")
#: Categories for which a kernel's name overrides an ``op_name`` that is a layout op.
_SAYS_MORE = ("gemm", "conv", "attention", "reduction")
_COPIES_ON_DEVICE = ("DtoD", "PtoP")

#: Type for numbers of rules; small, because a table has millions of such numbers.
_RULE = np.int16
_NUMBER = {rule: number for number, rule in enumerate(RULES)}
#: Rule number -> index into CATEGORIES; the last entry belongs to ``NONE``.
_CATEGORY = np.array(
    [NONE if r.category is None else CATEGORIES.index(r.category) for r in RULES] + [NONE],
    dtype=_RULE,
)
_DECIDED = [_NUMBER[rule] for rule in DECIDED_BY_NAME]
_COPIES = [_NUMBER[rule] for rule in ATEN_COPIES]
_FAMILIES = tuple(family for family, _ in RNN_FAMILIES)
#: Texts of the rules. Stored runs contain texts, because numbers of rules may change.
_TEXTS = tuple(rule_text(number) for number in range(len(RULES)))


def categorised(events: EventTable, *, captured: bool = False) -> EventTable:
    """Find the category of each event by rules."""
    # only lstmprof's captures (``captured``) use the name scope ``optimizer`` reliably
    rule = _rules(events, captured)
    category = _CATEGORY[rule]
    rnn = events.is_kind("kernel") & (category == CATEGORIES.index("rnn"))
    derived = {
        "category": _dictionary(CATEGORIES, category),
        "family": _dictionary(_FAMILIES, events.mapped("name", _family, NONE, _RULE, rnn)),
        "rule": _dictionary(_TEXTS, rule),
    }
    return events.with_columns(derived)


def _dictionary(values: tuple[str, ...], codes: Codes) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), pa.array(values))


def _rules(events: EventTable, captured: bool) -> Codes:
    """Return the number of the rule that decides each event's category, or ``NONE``."""
    links = _Links(events)
    op_rules = _op_rules(events, links)
    in_library = op_rules == _NUMBER[LIBRARY_OP]
    within = events.mapped("name", _rule_of_library_op, _NUMBER[UNNAMED], _RULE, in_library)
    rule = np.where(in_library, within, op_rules)
    kernels = np.flatnonzero(events.is_kind("kernel"))
    rule[kernels] = _kernel_rules(events, links, op_rules, kernels)
    copies, on_device = (
        events.is_kind("memcpy"),
        events.where_name(lambda name: direction(name) in _COPIES_ON_DEVICE),
    )
    rule[copies] = _NUMBER[TRANSFER]
    rule[copies & on_device] = _NUMBER[COPY_ON_DEVICE]
    rule[events.is_kind("memset")] = _NUMBER[MEMSET]
    optimizing = events.is_one_of("phase", "optimizer") & _is(rule, *_OPTIMIZER_WORK)
    if not captured:
        optimizing &= ~_in_scope_of_optimizer(events, links)
    rule[optimizing] = _NUMBER[OPTIMIZER_WORK]
    return rule


class _Links:
    """The parent and the op of each event, as row numbers."""

    def __init__(self, events: EventTable) -> None:
        self.parent = small(events.rows_named("parent_id"))
        self.op = small(events.rows_named("op_id"))


def _op_rules(events: EventTable, links: _Links) -> Codes:
    """Find the rule that matches each op's name."""
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
    """Return which copies are casts to another element type."""
    recorded = events.mapped("dtypes", _types_differ, -1, _RULE)[copies]
    if (recorded >= 0).all():
        return np.asarray(recorded == 1, dtype=np.bool_)
    # count a copy inside ``aten::to`` (autocast) as a cast if no element types were recorded
    converting = events.is_kind("op") & events.is_one_of("name", *_CONVERTING)
    marks = np.where(converting, _RULE(1), _RULE(NONE))
    beneath = inherited(links.parent, marks)[copies] == 1
    return np.asarray(np.where(recorded >= 0, recorded == 1, beneath), dtype=np.bool_)


@lru_cache(maxsize=4096)
def _types_differ(dtypes: str) -> int:
    """Return 1 for ``["float","half"]``, 0 for equal types, −1 if a type is unknown."""
    types = [str(entry) for entry in recorded_inputs(dtypes)]
    if len(types) < 2:
        return -1
    first, second = types[:2]
    return int(first != second) if first and second else -1


def _kernel_rules(events: EventTable, links: _Links, op_rules: Codes, rows: Codes) -> Codes:
    """Choose each kernel's rule from its op or its name."""
    known_rules = np.where(_is(op_rules, "other"), NONE, op_rules)
    recurrent = np.where(_is(op_rules, "rnn"), op_rules, NONE)
    in_layer = _around(links, recurrent, rows)
    by_op = _around(links, known_rules, rows)
    is_kernel = events.is_kind("kernel")
    by_kernel = events.mapped("name", _kernel_rule, _NUMBER[UNNAMED], _RULE, is_kernel)[rows]
    named = _named_rules(events)[rows]
    says_more = _is(by_kernel, *_SAYS_MORE) & (named != NONE) & _is(named, "layout")
    # such a kernel's name tells more than a layout op: JAX names a fusion after its last op
    rules = np.where((by_op != NONE) | says_more, by_op, named)
    rules = np.where((rules == NONE) | _copies_itself(by_kernel, rules), by_kernel, rules)
    rules = np.where(in_layer != NONE, in_layer, rules)
    rules = np.where(np.isin(by_kernel, _DECIDED), by_kernel, rules)
    in_library = op_rules == _NUMBER[LIBRARY_OP]
    within = events.mapped("name", _rule_of_library_op, NONE, _RULE, in_library)
    library = _around(links, np.where(within == _NUMBER[UNNAMED], NONE, within), rows)
    return np.where((rules == _NUMBER[UNNAMED]) & (library != NONE), library, rules)


def _around(links: _Links, candidates: Codes, rows: Codes) -> Codes:
    """Return the first candidate rule among each kernel's op and the ops around."""
    around = inherited(links.parent, candidates)
    return np.where(links.op[rows] != NONE, around[links.op[rows]], NONE)


def _copies_itself(by_kernel: Codes, rules: Codes) -> Flags:
    """Return which kernels only copy a tensor before or after their op's real work."""
    # exclude kernels with the old name, which may be the real work of a cast or layout op
    unsure = (by_kernel == _NUMBER[ATEN_COPIES[-1]]) & _is(rules, "cast", "layout")
    return np.asarray(np.isin(by_kernel, _COPIES) & ~unsure, dtype=np.bool_)


def _named_rules(events: EventTable) -> Codes:
    return events.mapped("op_name", _named_rule, NONE, _RULE)


def _named_rule(op_name: str) -> int:
    rule = path_rule(op_name) if "/" in op_name else op_rule(op_name)
    return NONE if rule is None or rule.category in (None, "other") else _NUMBER[rule]


def _rule_of_library_op(name: str) -> int:
    return _kernel_rule(name.rpartition("::")[2])


def _kernel_rule(name: str) -> int:
    return _NUMBER[kernel_rule(name) or UNNAMED]


def _in_scope_of_optimizer(events: EventTable, links: _Links) -> Flags:
    """Mark events that ran or were launched in a name scope ``optimizer``."""
    optimizer = PHASES.index("optimizer")
    scoped = scope_phases(events)
    if not np.any(scoped == optimizer):
        return np.zeros(len(events), dtype=np.bool_)
    around = inherited(links.parent, scoped)
    launch = small(events.rows_named("launch_id"))
    launched = np.where(launch != NONE, around[launch], NONE)
    return np.asarray(np.where(around != NONE, around, launched) == optimizer, dtype=np.bool_)


def _family(kernel: str) -> int:
    family = rnn_family(kernel)
    return NONE if family is None else _FAMILIES.index(family)
