"""The ways in which a profile shows recurrent layers, by the events alone: never by run.json.

So a stranger's profile tells as much as a capture of lstmprof's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from lstmprof.breakdown.recurrent.call import Call
from lstmprof.breakdown.recurrent.profiles.kernels import kernel_calls
from lstmprof.breakdown.recurrent.profiles.onnx import onnx_calls
from lstmprof.breakdown.recurrent.profiles.pytensor import pytensor_calls
from lstmprof.breakdown.recurrent.profiles.tensorflow import tensorflow_calls
from lstmprof.breakdown.recurrent.profiles.torch_exported import exported_calls
from lstmprof.breakdown.recurrent.profiles.torch_layers import layer_calls
from lstmprof.breakdown.recurrent.profiles.torch_loops import loop_calls
from lstmprof.breakdown.recurrent.profiles.xla import xla_calls
from lstmprof.events.intervals import Ints
from lstmprof.events.table import KEPT_ROWS, UNKNOWN, EventTable

#: How recurrent layers are told in a profile, each by events that no other takes.
RECOGNISERS: tuple[Callable[[EventTable], Iterator[Call]], ...] = (
    layer_calls,
    loop_calls,
    exported_calls,
    tensorflow_calls,
    xla_calls,
    pytensor_calls,
    onnx_calls,
    kernel_calls,
)
#: Of several ranks so many events are looked at at once, where they are more than are kept.
_PART_ROWS = 2**19
#: What is in a name of every layer or loop that is told: most profiles have no such name.
_HINT = re.compile(r"lstm|gru|rnn|sigmoid|while|scan\{|theano|compiled", re.IGNORECASE)


def recurrent_calls(events: EventTable) -> list[Call]:
    """Every run of a recurrent layer or loop of cells in annotated ``events``."""
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
    """``call`` of a table that holds these ``rows``, by the rows of the whole."""
    forward, backward = (
        tuple(rows[list(places)].tolist()) for places in (call.rows, call.backward)
    )
    return replace(call, rows=forward, backward=backward)


def _parts(events: EventTable) -> Iterator[Ints | None]:
    """The rows of some whole steps of a rank each, of several ranks fewer; None for all."""
    if len(events) <= KEPT_ROWS:
        yield None
        return
    most = _PART_ROWS if len(events.column("rank").unique()) > 1 else KEPT_ROWS
    rank, step = (events.ints(name, UNKNOWN) for name in ("rank", "step"))
    order = np.lexsort((step, rank))
    changes = np.flatnonzero((np.diff(rank[order]) != 0) | (np.diff(step[order]) != 0)) + 1
    ends = [*changes.tolist(), len(order)]
    first = 0
    for end, following in zip(ends, [*ends[1:], None], strict=True):
        if following is None or following - first > most:
            yield np.sort(order[first:end])
            first = end
