"""Recognise recurrent layers in a profile from its events alone, without run.json.

So profiles from other tools show as much as lstmprof's own captures.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from lstmprof.breakdown.recurrent.call import Call, rank_and_step
from lstmprof.breakdown.recurrent.network import Network
from lstmprof.breakdown.recurrent.profiles.eager import jax_calls, keras_calls
from lstmprof.breakdown.recurrent.profiles.onnx import onnx_calls
from lstmprof.breakdown.recurrent.profiles.pytensor import pytensor_calls
from lstmprof.breakdown.recurrent.profiles.tensorflow import tensorflow_calls
from lstmprof.breakdown.recurrent.profiles.torch_compiled import exported_calls
from lstmprof.breakdown.recurrent.profiles.torch_layers import layer_calls
from lstmprof.breakdown.recurrent.profiles.torch_loops import loop_calls
from lstmprof.breakdown.recurrent.profiles.xla import xla_calls
from lstmprof.events.groups import Groups
from lstmprof.events.intervals import Ints
from lstmprof.events.table import CACHED_ROWS, NONE, UNKNOWN, EventTable
from lstmprof.implementations import CELL_OP, LAYER_OP


@dataclass(frozen=True)
class _Family:
    """One library's recurrent kernels or ops, and the pattern of their names."""

    form: str
    framework: str
    library: str | None
    pattern: re.Pattern[str]
    kind: str = "kernel"
    a_cell: bool = False  # each kernel or op computes one cell


_FAMILIES = (
    _Family(
        LAYER_OP,
        "cudnn",
        "cuDNN",
        re.compile(
            r"\b(?:(?:LSTM|GRU|RNN)_elementWise|elemWiseRNNcell|RNN_(?:block)?[pP]ersist)\w*"
        ),
    ),
    _Family(
        CELL_OP,
        "torch",
        None,
        re.compile(r"\b(?:lstm|gru)_cell_(?:forward|backward)"),
        a_cell=True,
    ),
    _Family(LAYER_OP, "mxnet", None, re.compile(r"^mxnet::(?:_backward_)?RNN$"), "op"),
    _Family(LAYER_OP, "chainer", None, re.compile(r"^chainer::NStep\w+"), "op"),
    _Family(CELL_OP, "chainer", None, re.compile(r"^chainer::S?LSTM(?:Backward)?$"), "op", True),
)
_CELL = re.compile(r"(?i)lstm|gru")
_BACKWARD = re.compile(r"(?i)_bp|backward")


def named_calls(events: EventTable) -> Iterator[Call]:
    """Yield calls that only the names of kernels or ops show to be recurrent."""
    unlaunched = events.rows_named("op_id") == NONE  # else the op shows the layer
    for family in _FAMILIES:
        named = events.where_name(family.pattern.search)
        rows = np.flatnonzero(events.is_kind(family.kind) & unlaunched & named)
        keys = (events.ints(name, UNKNOWN)[rows] for name in ("rank", "device", "step"))
        for members in Groups(*keys).members() if len(rows) else ():
            yield from _call(events, family, rows[members])


def _call(events: EventTable, family: _Family, rows: Ints) -> Iterator[Call]:
    """Yield one call of all ``rows``; yield nothing if all rows are backward work."""
    codes, texts = events.texts("name")
    names = [texts[code] for code in codes[rows].tolist()]
    back = np.array([bool(_BACKWARD.search(name)) for name in names])
    if back.all():
        return
    first = names[int(np.flatnonzero(~back)[0])]
    cells = {cell[0].lower() for name in names if (cell := _CELL.search(name))}
    short = family.pattern.search(first)
    rank, step = rank_and_step(events, int(rows[0]))
    yield Call(
        form=family.form,
        framework=family.framework,
        op=short[0] if short else first,
        library=family.library,
        network=Network(
            cell=cells.pop() if len(cells) == 1 else None,
            cells=int((~back).sum()) if family.a_cell else None,
        ),
        rank=rank,
        step=step,
        rows=tuple(rows[~back].tolist()),
        backward=tuple(rows[back].tolist()),
        counted=False,
    )


#: Functions that find recurrent layers. At most one function finds a given layer.
RECOGNISERS: tuple[Callable[[EventTable], Iterator[Call]], ...] = (
    layer_calls,
    loop_calls,
    exported_calls,
    tensorflow_calls,
    xla_calls,
    jax_calls,
    keras_calls,
    pytensor_calls,
    onnx_calls,
    named_calls,
)
#: Pattern of names in profiles with a recurrent layer; other profiles are not searched.
_HINT = re.compile(r"lstm|gru|rnn|sigmoid|logistic|while|scan\{|theano|compiled", re.IGNORECASE)


def recurrent_calls(events: EventTable) -> list[Call]:
    """Return the calls of recurrent layers and loops of cells."""
    texts = (events.column(name).unique().to_pylist() for name in ("name", "op_name"))
    if not any(_HINT.search(text) for listed in texts for text in listed if text):
        return []
    return [call for part in _parts(events) for call in _calls_in(events, part)]


def _calls_in(events: EventTable, rows: Ints | None) -> Iterator[Call]:
    part = events if rows is None else events.take(rows)
    for calls in RECOGNISERS:
        for call in calls(part):
            yield call if rows is None else _placed(call, rows)


def _placed(call: Call, rows: Ints) -> Call:
    """Convert the row numbers of ``call`` from a batch to the whole table."""
    forward, backward = (
        tuple(rows[list(places)].tolist()) for places in (call.rows, call.backward)
    )
    return replace(call, rows=forward, backward=backward)


def _parts(events: EventTable) -> Iterator[Ints | None]:
    """Divide a large table into batches of whole steps (None: a batch of all rows)."""
    if len(events) <= CACHED_ROWS:
        yield None
        return
    rank, step = (events.ints(name, UNKNOWN) for name in ("rank", "step"))
    order = np.lexsort((step, rank))
    changes = np.flatnonzero((np.diff(rank[order]) != 0) | (np.diff(step[order]) != 0)) + 1
    ends = [*changes.tolist(), len(order)]
    first = 0
    for end, following in zip(ends, [*ends[1:], None], strict=True):
        if following is None or following - first > CACHED_ROWS:
            yield np.sort(order[first:end])
            first = end
