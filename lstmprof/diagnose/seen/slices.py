"""Work of PyTorch's autograd for slices that are taken, or assigned, one by one.

The gradient of ``x[t]`` or ``x[a:b]`` is as large as x: it is filled with zeros, and added to the
gradients of the other slices. The gradient of a value assigned to ``x[a:b]`` is a copy of x's
gradient (torch/csrc/autograd/functions/tensor.cpp, CopySlices).
"""

from __future__ import annotations

import re

import numpy as np

from lstmprof.diagnose.seen.lane import Fact, Lane
from lstmprof.diagnose.seen.recurrent import layers
from lstmprof.events.groups import Groups
from lstmprof.events.table import NONE

_NODES = re.compile(
    r"autograd::engine::evaluate_function: (?:SliceBackward\d*|torch::autograd::CopySlices)$"
)
#: The node of one such backward pass, which makes the gradient and adds it; and the op that makes
#: it.
_SELECTED = re.compile(
    r"autograd::engine::evaluate_function: SelectBackward|aten::select_backward$"
)
#: Ops that pack and unpack sequences slice by slice.
_PACKING = ("aten::_pack_padded_sequence", "aten::_pad_packed_sequence")
#: At least this many per step are a loop.
_LOOPED = 8


def indexed(lane: Lane) -> tuple[Fact, ...]:
    """Return backward passes of indexing with the sums of their results, and their forward ops."""
    events = lane.events
    roots = lane.here & events.is_kind("op") & events.where_name(_SELECTED.match)
    forward = events.rows_named("forward_id")[lane.inside(np.asarray(roots, np.bool_)) != NONE]
    roots[forward[forward != NONE]] = True
    return lane.spent_in(np.asarray(roots, np.bool_))


def selected(lane: Lane) -> int | None:
    """Return the largest number of backward passes of indexing into tensors of one shape in a step.

    Return None if no shape was recorded.
    """
    events = lane.events
    codes = events.texts("shapes")[0]
    rows = np.flatnonzero(
        lane.here & events.is_kind("op") & events.is_one_of("name", "aten::select_backward")
    )
    shaped = rows[codes[rows] != NONE]
    if len(rows) and not len(shaped):
        return None
    rows = shaped
    sizes = Groups(codes[rows], lane.step[rows]).sizes() if len(rows) else np.zeros(1)
    return int(sizes.max())


def sliced(lane: Lane) -> tuple[Fact, ...]:
    """Return backward passes of slices (eight or more per step), except PyTorch's own."""
    nodes = lane.here & lane.events.is_kind("op") & lane.events.where_name(_NODES.match)
    forward = lane.events.rows_named("forward_id")
    own = lane.inside(layers(lane) | (lane.here & lane.events.is_one_of("name", *_PACKING)))
    of_layer = np.flatnonzero((forward != NONE) & (own != NONE)[forward])
    nodes[of_layer] = False
    nodes[lane.parent[of_layer][lane.parent[of_layer] != NONE]] = False
    few = int(nodes.sum()) < _LOOPED * lane.steps
    return () if few else lane.spent_in(np.asarray(nodes, np.bool_))
