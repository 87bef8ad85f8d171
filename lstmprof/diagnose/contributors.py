"""The contributors of a lane's time: what is done there, by what, for what, in calls of what size.

Reads the account down to the event (``holdings``). Ops that only arrange work serve the work
beneath them where that is of one category, else what the op around them serves: ``aten::to``, and
``aten::empty_strided`` inside it, serve the cast that ``aten::copy_`` in it does.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from lstmprof.breakdown.holdings import Holdings, holdings
from lstmprof.breakdown.host import computing
from lstmprof.breakdown.ledger import LATENCY, TAIL
from lstmprof.diagnose.input_phase import pieces
from lstmprof.events.annotate.links import NONE, inherited
from lstmprof.events.annotate.steps import Window, is_kind
from lstmprof.events.call_tree import Forest, own_time, referenced
from lstmprof.events.columns import Column, schema
from lstmprof.events.groups import Groups
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.schema import ACTIVITY_KINDS, ints, texts
from lstmprof.events.threads import thread_ids

#: A computing op that takes no longer has computed next to nothing: its time is that of calling it.
#: Measured by profiling torch-lstmcell-basic with 4 units under torch.profiler on an EPYC: 95 % of
#: the ops on its tensors of 8 and 32 elements take under 2.9 µs.
TINY_OP_NS = 3_000
#: A kernel that takes no longer ends before the host can launch the next one: a launch call takes
#: 4.8 to 6.6 µs in a profile of BERT on an H100 (torch.profiler).
TINY_KERNEL_NS = 5_000

INPUT = "input"
#: The number of PyTorch's step markers, which all are one contributor.
_STEP = re.compile(r"(?<=ProfilerStep)#\d+$")

COLUMNS = (
    Column("state", pa.string(), "", "busy or idle, as in the ledger; input in its phase"),
    Column("part", pa.string(), "", "as in the ledger"),
    Column("name", pa.string(), "", "of the op or activity", "none holds the time"),
    Column("purpose", pa.string(), "", "the category that it is for", "it is for several or none"),
    Column("family", pa.string(), "", "gemm, pointwise or persistent", "the category is not rnn"),
    Column("tiny", pa.bool_(), "", "whether its calls do next to nothing"),
    Column("call_overhead", pa.bool_(), "", "whether this is the time before the call"),
    Column("count", pa.int64(), "", "calls or activities that hold some of the time"),
    Column("ns", pa.int64(), "ns", "time of all windows together"),
)
SCHEMA = schema(COLUMNS)


def contributors(
    events: pa.Table, windows: list[Window], rank: int | None, device: int | None
) -> pa.Table:
    """One row a contributor of one lane; they sum to the windows, all of ``rank``; ``SCHEMA``."""
    cut = pieces(events, windows)
    held = holdings(events, [window for window, _ in cut], rank, device)
    states, parts = _labels(held)
    states = np.where(_is_input(events, held, cut, device), INPUT, states)
    serves, short = _purposes(events)
    name_codes, names = texts(events, "name")
    names = [_STEP.sub("", name) for name in names]
    categories, families = (texts(events, c)[1] for c in ("category", "family"))
    label_codes = np.unique(np.stack([states, parts]), axis=1, return_inverse=True)[1].reshape(-1)
    columns = [
        name_codes[held.row],
        serves[held.row],
        texts(events, "family")[0][held.row],
        short[held.row].astype(np.int64),
    ]
    columns = [np.where(held.row == NONE, NONE, c) for c in columns]
    groups = Groups(label_codes, *columns, held.before.astype(np.int64))
    first = groups.first
    name, serve, family, is_short = (c[first] for c in columns)
    return pa.table(
        [
            pa.array(states[first].tolist(), pa.string()),
            pa.array(parts[first].tolist(), pa.string()),
            _texts(names, name),
            _texts(categories, serve),
            _texts(families, family),
            pa.array(is_short == 1),
            pa.array(held.before[first]),
            pa.array(_calls(groups, held)),
            pa.array(groups.sums(held.ns)),
        ],
        schema=SCHEMA,
    )


def _labels(held: Holdings) -> tuple[np.ndarray, np.ndarray]:
    """(state, part) of each stretch; a tail is what it is a tail of.

    A window is cut at its input, which makes tails where the ledger of the whole has none.
    """
    states = np.array([state for state, _ in held.labels] or [""], dtype=object)
    parts = np.array([p.removeprefix(TAIL) for _, p in held.labels] or [""], dtype=object)
    return states[held.label].astype(str), parts[held.label].astype(str)


def _is_input(
    events: pa.Table, held: Holdings, cut: list[tuple[Window, bool]], device: int | None
) -> Flags:
    """Whether a stretch is input: what the preparing thread did, what the device waited for."""
    inside = np.array([is_input for _, is_input in cut] or [False])[held.window]
    if device is not None:
        states, parts = _labels(held)
        return np.asarray(inside & ((states == "idle") | (parts == "transfer")), dtype=np.bool_)
    thread = np.array([-1 if w.thread is None else w.thread for w, _ in cut] or [-1])[held.window]
    own = (held.row == NONE) | (thread_ids(events)[held.row] == thread)
    return np.asarray(inside & own, dtype=np.bool_)


def _purposes(events: pa.Table) -> tuple[Ints, Flags]:
    """For each row (category that it serves, ``NONE`` unknown; whether its calls are short)."""
    category, names = texts(events, "category")
    parent = referenced(events, "parent_id")
    is_op, computes = is_kind(events, "op"), computing(events)
    decides = np.where(computes | ~is_op, category, NONE)
    forest = Forest(parent)
    work = forest.beneath(computes.astype(np.int64))
    for code in range(len(names)):
        of_one = forest.beneath((computes & (category == code)).astype(np.int64))
        decides[is_op & ~computes & (work > 0) & (of_one == work)] = code
    several = is_op & ~computes & (work > 0) & (decides == NONE)
    own = np.where(is_op & ((decides != NONE) | several), np.arange(len(events)), NONE)
    decider = inherited(events, parent, own)
    serves = np.where(decider != NONE, decides[decider], decides)
    dur = ints(events, "dur_ns", 0)
    spent = np.where(computes, own_time(events), dur)
    short_op = spent[decider] <= TINY_OP_NS
    short_kernel = is_kind(events, *ACTIVITY_KINDS) & (dur <= TINY_KERNEL_NS)
    return serves, np.where(is_op, short_op & (decider != NONE), short_kernel)


def _calls(groups: Groups, held: Holdings) -> Ints:
    """Distinct rows that hold some of each group's time, each counted once.

    The time before a call has none, and launch latency neither: its launches have the launch call.
    """
    pairs = np.unique(np.stack([groups.of, held.row]), axis=1)
    counted = pairs[0][pairs[1] != NONE]
    calls = np.bincount(counted, minlength=groups.count).astype(np.int64)
    again = held.before | np.isin(held.label, _places(held, ("idle", LATENCY)))
    return np.where(again[groups.first], 0, calls)


def _places(held: Holdings, *labels: tuple[str, str]) -> list[int]:
    return [place for place, label in enumerate(held.labels) if label in labels]


def _texts(values: list[str], codes: Ints) -> pa.Array:
    return pa.array(values, pa.string()).take(pa.array(codes, mask=codes < 0))
