"""Count the kernels, matmuls, launches and so on of a device or host, with their durations.

All kernels of one matmul, convolution or attention op count as one, but dgrad and wgrad kernels of
a convolution as two. An op around an op of an equal type does not count, such as ``aten::relu_``
around ``aten::clamp_min_``. A gap is an interval in which the device runs nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from lstmprof.breakdown.attribution.host import computing
from lstmprof.diagnose.seen.lane import in_steps
from lstmprof.events.annotate.calls import is_copy, is_kernel_launch, launch_calls
from lstmprof.events.annotate.rules.kernels import is_product
from lstmprof.events.annotate.steps import Window
from lstmprof.events.groups import Groups, inherited, own_time
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import NONE, UNKNOWN, EventTable

#: Category of work → noun.
_NOUN_OF_CATEGORY = {
    "gemm": "product",
    "conv": "convolution",
    "attention": "attention",
    **dict.fromkeys(("pointwise", "reduction", "softmax_loss", "normalization"), "pointwise"),
    **dict.fromkeys(("rng", "optimizer"), "pointwise"),
    "embedding": "embedding",
    **dict.fromkeys(("layout", "transfer"), "copy"),
    "memset": "memset",
}
#: Nouns for work. A ``layer`` is an op or kernel for a whole recurrent layer. A ``cell`` is an op
#: for one time step of a layer.
WORK = (*dict.fromkeys(_NOUN_OF_CATEGORY.values()), "layer", "cell")
_PRODUCTS = ("gemm", "conv", "attention")
#: cuDNN's names for the gradients of a convolution: ``dgrad`` of its input, ``wgrad`` of weights.
_PASSES = ("", "dgrad", "wgrad")
#: Pattern of ops for one time step in TensorFlow and Chainer.
_CELL_OP = re.compile(r"(?:LSTM|GRU)BlockCell|chainer::S?LSTM(?:Grad|Backward)?$")
_COPY_CALL = re.compile(r"Memcpy|Memset")

#: Ratio of mean to median above which a few long durations distort the mean.
_FAR_FROM_MEDIAN = 5


@dataclass(frozen=True)
class Spread:
    """The number and durations of the events of one type, such as launches."""

    count: int
    total_ns: int  # of ops, the self time
    median_ns: int
    longest_ns: int

    @property
    def mean_ns(self) -> float:
        return self.total_ns / self.count

    @property
    def uneven(self) -> bool:
        """Return whether a few long events distort the mean."""
        outlier = 2 * self.longest_ns > self.total_ns and self.longest_ns > 2 * self.median_ns
        return outlier or self.mean_ns > _FAR_FROM_MEDIAN * self.median_ns


def tally(
    events: EventTable, windows: list[Window], rank: int | None, device: int | None
) -> dict[str, Spread]:
    """Count kernels, launches, matmuls and so on in the steps, with their durations."""
    inside = in_steps(events, windows)
    lengths = _work_of_host(events, inside) if device is None else _work_of(events, inside, device)
    if device is not None:
        lengths["gap"] = _gaps(events, windows, rank, device)
    if (inside & events.is_kind("runtime")).any():
        lengths["launch"] = events.dur_ns[_launches(events, inside, device)]
    return {noun: _spread(np.sort(lengths_ns)) for noun, lengths_ns in lengths.items()}


def _spread(lengths_ns: Ints) -> Spread:
    count = len(lengths_ns)
    # take the lower of two middle values, so that the median is the duration of an event
    median_ns, longest_ns = lengths_ns[[(count - 1) // 2, -1]].tolist() if count else (0, 0)
    return Spread(count, int(lengths_ns.sum()), median_ns, longest_ns)


def _work_of_host(events: EventTable, inside: Flags) -> dict[str, Ints]:
    rows = np.flatnonzero(inside & computing(events) & ~_dispatched_again(events))
    own_ns = own_time(events)
    nouns = _nouns(events, rows, False)
    innermost = ~_calls_its_like(events, rows, nouns)
    return {"op": own_ns[rows], **_by_noun(nouns[innermost], own_ns[rows[innermost]])}


def _calls_its_like(events: EventTable, rows: Ints, nouns: Ints) -> Flags:
    """Mark ops around an op with an equal noun: ``relu_`` around ``clamp_min_``."""
    parent = events.rows_named("parent_id")
    noun_of_row = np.full(len(events), NONE, dtype=np.int64)
    noun_of_row[rows] = nouns
    calls = np.zeros(len(events), dtype=np.bool_)
    below, above = rows[nouns != NONE], parent[rows[nouns != NONE]]
    while len(below):
        on_op = (above != NONE) & events.is_kind("op")[above]
        below, above = below[on_op], above[on_op]
        calls[above[noun_of_row[above] == noun_of_row[below]]] = True
        above = parent[above]
    return calls[rows]


def _dispatched_again(events: EventTable) -> Flags:
    """Mark ops around an op with an equal name: autocast dispatches ops twice."""
    parent, names = events.rows_named("parent_id"), events.texts("name")[0]
    inner = np.flatnonzero((parent != NONE) & events.is_kind("op"))
    again = parent[inner[names[parent[inner]] == names[inner]]]
    outer = np.zeros(len(events), dtype=np.bool_)
    outer[again] = True
    return outer


def _work_of(events: EventTable, inside: Flags, device: int) -> dict[str, Ints]:
    on_device = inside & (events.ints("device", UNKNOWN) == device)
    kernels = events.dur_ns[on_device & events.is_kind("kernel")]
    rows = np.flatnonzero(on_device & events.is_kind(*ACTIVITY_KINDS))
    nouns = _nouns(events, rows, True)
    call = _calls_of_ops(events, rows)
    issuer = _ops_of_products(events, rows, nouns)
    call = np.where(call == NONE, issuer, call + len(_PASSES) * len(events))
    if (call == NONE).all():
        return {"kernel": kernels, **_by_noun(nouns, events.dur_ns[rows])}
    same = Groups(np.where(call == NONE, -1 - rows, call), nouns)
    return {"kernel": kernels, **_by_noun(nouns[same.first], same.sums(events.dur_ns[rows]))}


def _ops_of_products(events: EventTable, rows: Ints, nouns: Ints) -> Ints:
    """Return an id of each kernel's matmul, so that a matmul counts only once."""
    parent, issuer = events.rows_named("parent_id"), events.rows_named("op_id")[rows]
    codes, names = events.texts("category")
    name_codes, texts = events.texts("name")
    # distinguish dgrad from wgrad, which are two matmuls of one op
    named = (next((p for p in _PASSES[1:] if p in text), "") for text in (*texts, ""))
    passes = np.array([_PASSES.index(name) for name in named])
    ops = np.full(len(rows), NONE, dtype=np.int64)
    for category in _PRODUCTS:
        code = names.index(category) if category in names else UNKNOWN
        computes = events.is_kind("op") & (codes == code)
        nearest = inherited(parent, np.where(computes, np.arange(len(events)), NONE))
        products = (nouns == WORK.index(_NOUN_OF_CATEGORY[category])) & (codes[rows] == code)
        products &= issuer != NONE
        ops[products] = nearest[issuer[products]]
    return np.where(ops == NONE, NONE, len(_PASSES) * ops + passes[name_codes[rows]])


def _calls_of_ops(events: EventTable, rows: Ints) -> Ints:
    """Return an id of the op call behind each kernel with an op's name (TensorFlow 1)."""
    ops, op_texts = events.texts("op_name")
    names, texts = events.texts("name")
    calls = np.full(len(rows), NONE, dtype=np.int64)
    code_of = {text: code for code, text in enumerate(texts)}
    # a kernel may have an op's type as its name: ``MatMul`` for the op ``lstm/MatMul:MatMul``
    types = np.array([code_of.get(text.rpartition(":")[2], NONE) for text in (*op_texts, "")])
    own = np.array([code_of.get(text, NONE) for text in (*op_texts, "")])
    so_named = np.flatnonzero((ops[rows] >= 0) & (types[ops[rows]] == names[rows]))
    on_host = np.flatnonzero(events.is_kind("op"))
    begun = 0
    for members in Groups(ops[rows[so_named]]).members() if len(so_named) else ():
        kernels = rows[so_named[members]]
        called = on_host[names[on_host] == own[ops[kernels[0]]]]
        before = np.searchsorted(events.start_ns[called], events.start_ns[kernels], "right")
        calls[so_named[members]] = begun + np.maximum(before - 1, 0)
        begun += max(len(called), 1)
    return calls


def _by_noun(nouns: Ints, length_ns: Ints) -> dict[str, Ints]:
    return {noun: length_ns[nouns == code] for code, noun in enumerate(WORK)}


def _nouns(events: EventTable, rows: Ints, on_device: bool) -> Ints:
    """Return the type of each event (matmul, copy …) as an index in ``WORK``."""
    columns = [events.texts(column) for column in ("category", "family", "name")]
    groups = Groups(*(codes[rows] for codes, _ in columns))
    nouns = list(WORK)
    group_nouns = np.full(groups.count, NONE, dtype=np.int64)
    for group, first in enumerate(rows[groups.first].tolist()):
        category, family, name = (
            values[codes[first]] if codes[first] != NONE else "" for codes, values in columns
        )
        noun = noun_of(category, family, name, on_device)
        group_nouns[group] = NONE if noun is None else nouns.index(noun)
    return group_nouns[groups.of]


def noun_of(category: str, family: str, name: str, on_device: bool) -> str | None:
    """Return the type of an op or kernel as a noun: ``product`` for a matmul."""
    # count a copy as a copy, even in the optimizer
    if on_device and is_copy(name):
        return "memset" if "memset" in name.lower() else "copy"
    if category == "rnn":
        if not on_device:
            return "cell" if _CELL_OP.search(name) else "layer"
        if family == "gemm":
            return "product" if is_product(name) else None
        return {"persistent": "layer", "pointwise": "pointwise"}.get(family)
    noun = _NOUN_OF_CATEGORY.get(category)
    return None if on_device and category in _PRODUCTS and not is_product(name) else noun


def is_kernel_call(name: str) -> bool:
    """Return whether a call that enqueued work launches a kernel, not a copy or memset."""
    return _COPY_CALL.search(name) is None


def _launches(events: EventTable, inside: Flags, device: int | None) -> Ints:
    """Return the calls that launched kernels or graphs on a device."""
    calls = launch_calls(events)
    calls = calls[inside[calls]]
    activity = inside & events.is_kind(*ACTIVITY_KINDS)
    launch = events.rows_named("launch_id")
    here = activity & (events.ints("device", UNKNOWN) == (UNKNOWN if device is None else device))
    # count a call without recorded work for this device if no other device is active
    linked = np.isin(calls, launch[activity])
    mine = np.isin(calls, launch[here]) | (~linked & bool((here == activity).all()))
    kernels = np.isin(calls, launch[here & events.is_kind("kernel")])
    named = mine & events.where_name(is_kernel_launch)[calls]
    return calls[named | (kernels & events.where_name(is_kernel_call)[calls])]


def _gaps(events: EventTable, windows: list[Window], rank: int | None, device: int) -> Ints:
    """Return the idle time before each activity, and before the end of each step."""
    rows = events.rows_of_rank(rank)
    is_here = events.ints("device", UNKNOWN) == device
    rows = rows[(is_here & events.is_kind(*ACTIVITY_KINDS))[rows]]
    start, end = events.start_ns[rows], events.end_ns[rows]
    order = np.lexsort((end, start))
    rows, start, end = rows[order], start[order], end[order]
    gaps = [np.empty(0, dtype=np.int64)]
    for window in windows:
        first, last = np.searchsorted(start, (window.start_ns, window.end_ns))
        reached = max(window.start_ns, int(end[:first].max(initial=window.start_ns)))
        idle_from = np.maximum.accumulate(np.append(reached, end[first:last]))
        gap = np.maximum(np.append(start[first:last], window.end_ns) - idle_from, 0)
        inner = np.arange(len(gap)) % (last - first or 1) > 0  # gaps inside the step
        gaps.append(gap[inner | (gap > 0)])
    return np.concatenate(gaps)
