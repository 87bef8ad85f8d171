"""From a backward op to the forward op whose gradient it computes.

PyTorch's autograd numbers the nodes of its graph: an op that makes a node has the node's number,
and so has, on a thread of the autograd engine, what later runs the node. Ops inside the one that
made the node have the number too; the one that started last made it. Source:
torch/csrc/profiler/kineto_shim and the ``fwdbwd`` flows of torch/csrc/autograd/profiler_kineto.cpp.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lstmprof.events.annotate.steps import is_kind
from lstmprof.events.intervals import Ints
from lstmprof.events.schema import ints
from lstmprof.events.threads import UNKNOWN


def with_forwards(events: pa.Table) -> pa.Table:
    """``events`` with ``forward_id`` filled."""
    forward = forwards(events)
    event_id = ints(events, "event_id", UNKNOWN)
    found = event_id[np.maximum(forward, 0)] if len(event_id) else forward
    return events.with_columns({"forward_id": pa.array(found, mask=forward < 0)})


def forwards(events: pa.Table) -> Ints:
    """For each backward op the row of its forward op, −1 where there is none.

    The forward op is the last of its rank that has the same number and began before.
    """
    number = ints(events, "sequence_number", UNKNOWN)
    numbered = is_kind(events, "op") & (number >= 0)
    is_backward = numbered & (ints(events, "forward_thread", 0) > 0)
    forward = np.full(len(events), -1, dtype=np.int64)
    rows = np.flatnonzero(numbered)
    rank, start = ints(events, "rank", UNKNOWN), ints(events, "start_ns", 0)
    # Of those that start together the backward ones come first: a forward op begins before.
    rows = rows[np.lexsort((~is_backward[rows], start[rows], number[rows], rank[rows]))]
    place = np.where(is_backward[rows], -1, np.arange(len(rows)))
    latest = np.maximum.accumulate(place) if len(rows) else place
    made = rows[np.maximum(latest, 0)]
    same = (latest >= 0) & (number[made] == number[rows]) & (rank[made] == rank[rows])
    linked = same & is_backward[rows]
    forward[rows[linked]] = made[linked]
    return forward
