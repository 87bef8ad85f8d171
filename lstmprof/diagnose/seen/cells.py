"""Work of a cell besides an LSTM's equations, and work between two cells."""

from __future__ import annotations

import re

import numpy as np

from lstmprof.diagnose.seen.lane import Lane
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.launch_config import recorded_inputs
from lstmprof.events.table import NONE
from lstmprof.events.threads import ASKS, thread_ids

#: Ops that compute one time step of a cell, in any framework.
ONE_CELL = re.compile(
    r"(?:^|:)_?(?:thnn_fused_)?(?:lstm|gru|rnn_(?:tanh|relu))_cell$|\b(?:LSTM|GRU)BlockCell"
)


def peepholes(lane: Lane) -> float:
    """Return the elementwise products per step of a matrix (batch, hidden) with a vector
    (hidden,).
    """
    events = lane.events
    products = events.is_one_of("name", "aten::mul", "aten::addcmul")
    rows = np.flatnonzero(lane.here & products & events.where("shapes", _is_broadcast))
    return len(rows) / lane.steps


def asked_between(lane: Lane) -> float:
    """Return the cells per step before which their thread read a value since the last cell.

    Values read before the first cell or after the last one, as by an optimizer, do not count.
    """
    ops = lane.here & lane.events.is_kind("op")
    cells = _outermost(lane, ops & lane.events.where_name(ONE_CELL.search))
    asks = np.flatnonzero(ops & lane.events.is_one_of("name", *ASKS))
    rows = np.concatenate([cells, asks])
    rows = rows[np.lexsort((lane.events.start_ns[rows], thread_ids(lane.events)[rows]))]
    is_cell = np.isin(rows, cells)
    asked = np.concatenate([[0], np.cumsum(~is_cell)])[:-1][is_cell]
    cells = rows[is_cell]
    threads, steps = thread_ids(lane.events)[cells], lane.step[cells]
    same = (threads[1:] == threads[:-1]) & (steps[1:] == steps[:-1])
    return float((same & (np.diff(asked) > 0)).sum()) / lane.steps


def _outermost(lane: Lane, ops: Flags) -> Ints:
    rows = np.flatnonzero(ops)
    above = lane.parent[rows]
    return np.asarray(rows[~((above != NONE) & ops[above])])


def _is_broadcast(shapes: str) -> bool:
    """Return whether two of an op's inputs are a matrix and a vector as long as its rows."""
    listed = [one for one in recorded_inputs(shapes) if isinstance(one, list)]
    try:
        matrices = {one[-1] for one in listed if len(one) == 2 and one[0] != 1}
        vectors = {one[-1] for one in listed if len(one) == 1 or (len(one) == 2 and one[0] == 1)}
    except (TypeError, IndexError):
        return False
    return bool((matrices & vectors) - {1})
