"""Inputs and weights of PyTorch's recurrent layers: sequences (packed or one by one) and copies.

A layer's op has the shapes of its input and of its first state: (time, batch, features), or batch
first, and (layers, batch, hidden). For packed sequences, its second input is the batch sizes.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from lstmprof.breakdown.recurrent.network import GATES
from lstmprof.breakdown.recurrent.profiles.torch_compiled import compiled_regions
from lstmprof.diagnose.seen.lane import Fact, Lane
from lstmprof.events.annotate.rules import kernel_rule
from lstmprof.events.groups import Groups
from lstmprof.events.intervals import Flags
from lstmprof.events.launch_config import recorded_inputs
from lstmprof.events.table import NONE

_LAYER = re.compile(r"aten::(?:lstm|gru|rnn_tanh|rnn_relu)$")
#: Library ops for a whole layer.
_WHOLE = re.compile(r"aten::(?:mkldnn_rnn_layer|_cudnn_rnn|miopen_rnn)$")
#: Library ops that read weights in one piece of memory, and the op that arranges them.
_READS_WEIGHTS = re.compile(r"aten::(?:_cudnn_rnn|miopen_rnn|_cudnn_rnn_flatten_weight)$")
#: Ops that read sequences in one layout.
_READS_SEQUENCES = re.compile(
    r"aten::(?:lstm|gru|rnn_tanh|rnn_relu|(?:mkldnn_rnn_layer|_cudnn_rnn|miopen_rnn)(?:_backward)?)$"
)
_FLATTENING = re.compile(r"nn/modules/rnn\.py\(\d+\): flatten_parameters$")
_MATMUL = re.compile(r"aten::(?:addmm|mm|linear)$")
#: This many calls per step for one sequence each are a loop over the batch.
_LOOPED = 8


@dataclass(frozen=True)
class Unrolled:
    """Cells of a recurrent layer that one call of compiled code runs one after the other.

    ``cell`` is ``lstm`` or ``gru``; ``cells`` is their number in the call with most of them.
    """

    cell: str
    cells: int
    dtype: str


def unrolled(lane: Lane) -> Unrolled | None:
    """Return the cells inside compiled code; None if there are too few.

    A cell's state (batch, hidden) is multiplied with weights (hidden, gates · hidden). Other
    matmuls are of all time steps at once, or of the backward pass.
    """
    events = lane.events
    products = _ops(lane, _MATMUL)
    region = compiled_regions(events)
    shapes, texts = events.texts("shapes")
    dtypes, types = events.texts("dtypes")
    rows = np.flatnonzero(products & (region != NONE) & (shapes != NONE) & (dtypes != NONE))
    if not len(rows):
        return None
    groups = Groups(region[rows], shapes[rows], dtypes[rows])
    found = []
    for first, size in zip(rows[groups.first].tolist(), groups.sizes().tolist(), strict=True):
        cell = _cell_of(texts[shapes[first]]) if size >= _LOOPED else None
        if cell is not None:
            named = (str(one) for one in recorded_inputs(types[dtypes[first]]) if one)
            found.append(Unrolled(cell, size, next(named, "")))
    return max(found, key=lambda one: one.cells, default=None)


def read_in_compiled(lane: Lane) -> int:
    """Count the values that one call of compiled code reads, in the call that reads most."""
    reads = lane.here & lane.events.is_one_of("name", "aten::_local_scalar_dense")
    region = compiled_regions(lane.events)[reads]
    region = region[region != NONE]
    return int(np.unique(region, return_counts=True)[1].max(initial=0))


def _cell_of(shapes: str) -> str | None:
    """Return the cell whose state and weights these are; None if the shapes fit no cell."""
    matrices = [s for s in recorded_inputs(shapes) if isinstance(s, list) and len(s) == 2]
    cells = {gates: cell for cell, gates in GATES.items() if gates > 1}
    fits = (
        cells.get(outer // hidden)
        for (_, hidden), (inner, outer) in pairwise(matrices)
        if inner == hidden and hidden and outer % hidden == 0
    )
    return next(fits, None)


def layers(lane: Lane) -> Flags:
    """Return which ops are whole recurrent layers."""
    return _ops(lane, _LAYER)


def packed(lane: Lane) -> tuple[Fact, ...]:
    """Return layers over packed sequences without a library's op; forward and backward."""
    return lane.spent_in(_step_by_step(lane), backward=True)


def _step_by_step(lane: Lane) -> Flags:
    every = layers(lane)
    if not every.any():
        return every
    known = every & lane.events.where("dtypes", _are_known)
    over_packed = known & lane.events.where("dtypes", _has_sizes)
    if (lane.here & lane.events.is_one_of("name", "aten::_pack_padded_sequence")).any():
        over_packed |= every & ~known
    whole = np.flatnonzero(lane.here & lane.events.where_name(_WHOLE.match))
    inside = lane.inside(every)
    over_packed[inside[whole][inside[whole] != NONE]] = False
    return over_packed


def one_by_one(lane: Lane) -> tuple[Fact, ...]:
    """Return layers that are called for one sequence of several time steps after the other."""
    codes, texts = lane.events.texts("shapes")
    rows = np.flatnonzero(layers(lane) & (codes != NONE))
    known = {code: texts[code] for code in np.unique(codes[rows]).tolist()}
    single = [code for code, text in known.items() if _is_one_sequence(text)]
    rows = rows[np.isin(codes[rows], single)]
    if not len(rows):
        return ()
    weights = {code: _weights(known[code]) for code in single}
    kinds = sorted(set(weights.values()))
    of_weights = np.array([kinds.index(weights[code]) for code in codes[rows].tolist()])
    steps = Groups(lane.names[rows], of_weights, lane.step[rows])
    calls = np.zeros(len(codes), dtype=np.bool_)
    calls[rows[steps.sizes()[steps.of] >= _LOOPED]] = True
    return lane.spent_in(calls, backward=True)


def weights(lane: Lane) -> tuple[Fact, ...]:
    """Return copies inside the op of a cuDNN or MIOpen layer, except those for contiguous input."""
    roots = lane.inside(_ops(lane, _READS_WEIGHTS))
    for_layout = lane.inside(_asks_for_layout(lane) & (roots != NONE)) != NONE
    rows = np.flatnonzero(lane.copies & (roots != NONE) & ~for_layout)
    return lane.by_name(rows, roots[rows], lane.busy)


def recast(lane: Lane) -> tuple[Fact, ...]:
    """Return casts inside the op of a cuDNN or MIOpen layer: autocast's, of its weights."""
    roots = lane.inside(_ops(lane, _READS_WEIGHTS))
    issuer = lane.events.rows_named("op_id")
    by_op = lane.events.is_one_of("category", "cast")[issuer] & (issuer != NONE)
    casts = lane.activity & (by_op | lane.events.where_name(_is_cast))
    rows = np.flatnonzero(casts & (roots != NONE))
    return lane.by_name(rows, roots[rows], lane.busy)


def _is_cast(kernel: str) -> bool:
    rule = kernel_rule(kernel)
    return rule is not None and rule.category == "cast"


def relaid(lane: Lane) -> tuple[Fact, ...]:
    """Return copies into another layout that ops of recurrent layers request, in both passes."""
    reads = _ops(lane, _READS_SEQUENCES) & ~_step_by_step(lane)
    asked = _asks_for_layout(lane) & (lane.parent != NONE)
    asked &= reads[lane.parent]
    rows = np.flatnonzero(lane.copies & (lane.inside(asked) != NONE))
    return lane.by_name(rows, lane.inside(reads)[rows], lane.busy)


def _asks_for_layout(lane: Lane) -> Flags:
    return lane.events.is_one_of("name", "aten::contiguous", "aten::reshape")


def flattens(lane: Lane) -> bool:
    """Return whether frames of flatten_parameters were recorded and it flattened nothing."""
    frames = lane.here & lane.events.is_kind("python") & lane.events.where_name(_FLATTENING.search)
    flattened = lane.here & lane.events.is_one_of("name", "aten::_cudnn_rnn_flatten_weight")
    return bool(frames.any() and not flattened.any())


def _ops(lane: Lane, pattern: re.Pattern[str]) -> Flags:
    ops = lane.here & lane.events.is_kind("op") & lane.events.where_name(pattern.match)
    return np.asarray(ops, np.bool_)


def _are_known(dtypes: str) -> bool:
    return len(recorded_inputs(dtypes)) > 1


def _has_sizes(dtypes: str) -> bool:
    return [str(one) for one in recorded_inputs(dtypes)][1:2] == ["long int"]


def _is_one_sequence(shapes: str) -> bool:
    """Return whether the batch is one sequence, by the first state, with several time steps."""
    inputs, state = [*recorded_inputs(shapes), None, None][:2]
    while isinstance(state, list) and state and isinstance(state[0], list):
        state = state[0]
    if not isinstance(inputs, list) or not isinstance(state, list):
        return False
    if (len(inputs), len(state)) != (3, 3) or state[1] != 1:
        return False
    return 1 in inputs[:2] and max(inputs[:2]) > 1


def _weights(shapes: str) -> str:
    """Return the shapes of a layer's weights; those of the first layer of a stack differ."""
    return json.dumps(recorded_inputs(shapes)[2:3])
