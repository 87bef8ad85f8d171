"""What a cell written in operators does beside an LSTM's equations."""

from __future__ import annotations

import numpy as np

from lstmprof.diagnose.seen.lane import Lane
from lstmprof.events.inputs import recorded_inputs


def peepholes(lane: Lane) -> float:
    """Products a step of a matrix (batch, hidden) with a vector (hidden,), element by element."""
    events = lane.events
    products = events.is_one_of("name", "aten::mul", "aten::addcmul")
    rows = np.flatnonzero(lane.here & products & events.where("shapes", _is_broadcast))
    return len(rows) / lane.steps


def _is_broadcast(shapes: str) -> bool:
    """Whether two of an op's inputs are a matrix and a vector as long as its rows."""
    listed = [one for one in recorded_inputs(shapes) if isinstance(one, list)]
    try:
        matrices = {one[-1] for one in listed if len(one) == 2 and one[0] != 1}
        vectors = {one[-1] for one in listed if len(one) == 1 or (len(one) == 2 and one[0] == 1)}
    except (TypeError, IndexError):
        return False
    return bool((matrices & vectors) - {1})
