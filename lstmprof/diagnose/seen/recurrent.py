"""Find what recurrent layers do with their sequences, weights, cells, loops and slices.

The inputs of ``aten::lstm`` are the sequences [time, batch, features] (or batch first) and the
first state [layers, batch, hidden]. With packed sequences, the second input is the batch sizes.
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
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import NONE
from lstmprof.events.threads import VALUE_READS, thread_ids

_LAYER = re.compile(r"aten::(?:lstm|gru|rnn_tanh|rnn_relu)$")
#: Pattern of library ops for a whole layer.
_WHOLE = re.compile(r"aten::(?:mkldnn_rnn_layer|_cudnn_rnn|miopen_rnn)$")
#: Pattern of library ops that read all weights from one piece of memory, or copy weights there.
_READS_WEIGHTS = re.compile(r"aten::(?:_cudnn_rnn|miopen_rnn|_cudnn_rnn_flatten_weight)$")
#: Pattern of forward and backward ops of layers, which need sequences in a fixed memory layout.
_READS_SEQUENCES = re.compile(
    r"aten::(?:lstm|gru|rnn_tanh|rnn_relu|(?:mkldnn_rnn_layer|_cudnn_rnn|miopen_rnn)(?:_backward)?)$"
)
#: Ops that may copy a tensor into another memory layout.
_RELAYS = ("aten::contiguous", "aten::reshape")
_FLATTENING = re.compile(r"nn/modules/rnn\.py\(\d+\): flatten_parameters$")
_MATMUL = re.compile(r"aten::(?:addmm|mm|linear)$")
#: Smallest number of equal calls per step at which lstmprof assumes a loop, such as a loop over the
#: sequences of a batch.
_LOOPED = 8


@dataclass(frozen=True)
class Unrolled:
    """Cells (one per time step) that one call of compiled code runs in sequence."""

    cell: str
    cells: int
    dtype: str


def unrolled(lane: Lane) -> Unrolled | None:
    """Find the largest loop over time steps that a compiler unrolled."""
    events = lane.events
    products = lane.events_named(_MATMUL.match)
    region = compiled_regions(events)
    shapes, texts = events.texts("shapes")
    dtypes, types = events.texts("dtypes")
    rows = np.flatnonzero(products & (region != NONE) & (shapes != NONE) & (dtypes != NONE))
    if not len(rows):
        return None
    widths = {code: _widths(texts[code]) for code in np.unique(shapes[rows]).tolist()}
    known = {code: pair for code, pair in widths.items() if pair is not None}
    rows = rows[np.isin(shapes[rows], list(known))]
    rows = rows[np.lexsort((events.start_ns[rows], region[rows]))]
    groups = Groups(region[rows], shapes[rows], dtypes[rows])
    output = np.array([known[code][1] for code in shapes[rows].tolist()], dtype=np.int64)
    calls = []
    for members in groups.members():
        first = rows[members[0]]
        cell = _cell_of(*known[shapes[first]]) if len(members) >= _LOOPED else None
        # skip matmuls with narrower matmuls between, as in a transformer's MLP
        between = output[members[0] : members[-1] + 1]
        if cell is not None and (between == between[0]).all():
            named = (str(one) for one in recorded_inputs(types[dtypes[first]]) if one)
            calls.append(Unrolled(cell, len(members), next(named, "")))
    return max(calls, key=lambda one: one.cells, default=None)


def read_in_compiled(lane: Lane) -> int:
    """Return the largest number of values that the host reads in one call of compiled code."""
    reads = lane.here & lane.events.is_one_of("name", "aten::_local_scalar_dense")
    region = compiled_regions(lane.events)[reads]
    region = region[region != NONE]
    return int(np.unique(region, return_counts=True)[1].max(initial=0))


def _widths(shapes: str) -> tuple[int, int] | None:
    """Return the columns of a matmul's first input and of its output: ``(32, 128)``."""
    matrices = [s for s in recorded_inputs(shapes) if isinstance(s, list) and len(s) == 2]
    fits = ((width, outer) for (_, width), (inner, outer) in pairwise(matrices) if inner == width)
    return next(fits, None)


def _cell_of(hidden: int, output: int) -> str | None:
    """Name the cell by a matmul's input and output widths: ``(64, 256) -> "lstm"``."""
    cells = {gates: cell for cell, gates in GATES.items() if gates > 1}
    return cells.get(output // hidden) if hidden and output % hidden == 0 else None


def packed(lane: Lane) -> tuple[Fact, ...]:
    """Return layers over packed sequences that run one time step at a time."""
    return lane.spent_in(_step_by_step(lane), backward=True)


def _step_by_step(lane: Lane) -> Flags:
    every = lane.events_named(_LAYER.match)
    if not every.any():
        return every
    has_dtypes = every & lane.events.where("dtypes", lambda text: len(recorded_inputs(text)) > 1)
    # mark layers over packed sequences: their second input is the batch sizes (long int)
    over_packed = has_dtypes & lane.events.where(
        "dtypes", lambda text: [str(dtype) for dtype in recorded_inputs(text)][1:2] == ["long int"]
    )
    if (lane.here & lane.events.is_one_of("name", "aten::_pack_padded_sequence")).any():
        over_packed |= every & ~has_dtypes
    whole = np.flatnonzero(lane.here & lane.events.where_name(_WHOLE.match))
    inside = lane.inside(every)
    over_packed[inside[whole][inside[whole] != NONE]] = False
    return over_packed


def one_by_one(lane: Lane) -> tuple[Fact, ...]:
    """Return layers that are called once per sequence."""
    codes, texts = lane.events.texts("shapes")
    rows = np.flatnonzero(lane.events_named(_LAYER.match) & (codes != NONE))
    shape_texts = {code: texts[code] for code in np.unique(codes[rows]).tolist()}
    single = [code for code, text in shape_texts.items() if _is_one_sequence(text)]
    rows = rows[np.isin(codes[rows], single)]
    if not len(rows):
        return ()
    # distinguish the layers of a stack by the shapes of their weights
    weights = {code: json.dumps(recorded_inputs(shape_texts[code])[2:3]) for code in single}
    kinds = sorted(set(weights.values()))
    kind_codes = np.array([kinds.index(weights[code]) for code in codes[rows].tolist()])
    steps = Groups(lane.names[rows], kind_codes, lane.step[rows])
    calls = np.zeros(len(codes), dtype=np.bool_)
    calls[rows[steps.sizes()[steps.of] >= _LOOPED]] = True
    return lane.spent_in(calls, backward=True)


def weights(lane: Lane) -> tuple[Fact, ...]:
    """Return the copies that cuDNN or MIOpen layers make of their weights."""
    roots = lane.inside(lane.events_named(_READS_WEIGHTS.match))
    for_layout = lane.inside(lane.events.is_one_of("name", *_RELAYS) & (roots != NONE)) != NONE
    rows = np.flatnonzero(lane.copies & (roots != NONE) & ~for_layout)
    return lane.by_name(rows, lane.busy, roots[rows])


def recast(lane: Lane) -> tuple[Fact, ...]:
    """Return the casts of weights that autocast makes in cuDNN or MIOpen layers."""
    roots = lane.inside(lane.events_named(_READS_WEIGHTS.match))
    issuer = lane.events.rows_named("op_id")
    by_op = lane.events.is_one_of("category", "cast")[issuer] & (issuer != NONE)
    casts = lane.activity & (by_op | lane.events.where_name(_is_cast))
    rows = np.flatnonzero(casts & (roots != NONE))
    return lane.by_name(rows, lane.busy, roots[rows])


def _is_cast(kernel: str) -> bool:
    rule = kernel_rule(kernel)
    return rule is not None and rule.category == "cast"


def relaid(lane: Lane) -> tuple[Fact, ...]:
    """Return the copies with which layers change the memory layout of sequences."""
    reads = lane.events_named(_READS_SEQUENCES.match) & ~_step_by_step(lane)
    is_relay = lane.events.is_one_of("name", *_RELAYS) & (lane.parent != NONE)
    is_relay &= reads[lane.parent]
    rows = np.flatnonzero(lane.copies & (lane.inside(is_relay) != NONE))
    return lane.by_name(rows, lane.busy, lane.inside(reads)[rows])


def flattens(lane: Lane) -> bool:
    """Return whether flatten_parameters ran but copied no weights."""
    frames = lane.events_named(_FLATTENING.search, "python")
    flattened = lane.here & lane.events.is_one_of("name", "aten::_cudnn_rnn_flatten_weight")
    return bool(frames.any() and not flattened.any())


def _is_one_sequence(shapes: str) -> bool:
    """Return whether a layer with these input shapes gets a single sequence."""
    inputs, state = [*recorded_inputs(shapes), None, None][:2]
    while isinstance(state, list) and state and isinstance(state[0], list):
        state = state[0]
    if not isinstance(inputs, list) or not isinstance(state, list):
        return False
    if (len(inputs), len(state)) != (3, 3) or state[1] != 1:
        return False
    return 1 in inputs[:2] and max(inputs[:2]) > 1


#: Pattern of autograd nodes of slices ``x[a:b]`` and of assignments to slices. Each node writes a
#: gradient as large as x (torch/csrc/autograd/functions/tensor.cpp).
_NODES = re.compile(
    r"autograd::engine::evaluate_function: (?:SliceBackward\d*|torch::autograd::CopySlices)$"
)
#: Pattern of the autograd node of ``x[t]``, and of the op that computes the gradient.
_SELECTED = re.compile(
    r"autograd::engine::evaluate_function: SelectBackward|aten::select_backward$"
)
_PACKING = ("aten::_pack_padded_sequence", "aten::_pad_packed_sequence")


def indexed(lane: Lane) -> tuple[Fact, ...]:
    """Return the ops of indexing (``x[t]``) and of its gradients."""
    events = lane.events
    roots = lane.events_named(_SELECTED.match)
    forward = events.rows_named("forward_id")[lane.inside(roots) != NONE]
    roots[forward[forward != NONE]] = True
    return lane.spent_in(roots)


def selected(lane: Lane) -> int | None:
    """Count the indexings ``x[t]`` per step for the most indexed shape of ``x``."""
    events = lane.events
    codes = events.texts("shapes")[0]
    rows = np.flatnonzero(
        lane.here & events.is_kind("op") & events.is_one_of("name", "aten::select_backward")
    )
    shaped = rows[codes[rows] != NONE]
    # the number is unknown if no shape was recorded
    if len(rows) and not len(shaped):
        return None
    rows = shaped
    sizes = Groups(codes[rows], lane.step[rows]).sizes() if len(rows) else np.zeros(1)
    return int(sizes.max())


def sliced(lane: Lane) -> tuple[Fact, ...]:
    """Return the gradients of slices (``x[a:b]``) in the user's code, if there are many."""
    nodes = lane.events_named(_NODES.match)
    forward = lane.events.rows_named("forward_id")
    own = lane.inside(
        lane.events_named(_LAYER.match) | (lane.here & lane.events.is_one_of("name", *_PACKING))
    )
    backward_rows = np.flatnonzero((forward != NONE) & (own != NONE)[forward])
    nodes[backward_rows] = False
    nodes[lane.parent[backward_rows][lane.parent[backward_rows] != NONE]] = False
    few = int(nodes.sum()) < _LOOPED * lane.steps
    return () if few else lane.spent_in(nodes)


#: Pattern of an op in a loop of a recurrent layer in TensorFlow; group 1 is the path of the loop.
_LAYERS_LOOP = re.compile(r"(.*(?i:lstm|gru|rnn).*?/while(?:_\d+)?)/")
_BESIDE_CELLS = re.compile(r":(?:AddN|TensorList\w+)$")
#: Pattern of paths into a loop or recurrent layer, such as TensorFlow's
#: ``encoder/lstm/while/body/_1/encoder/lstm/while/lstm_cell/MatMul:MatMul`` and XLA's
#: ``jit(step)/jvp(lstm)/while/body/lstm_cell/dot_general``.
_RECURRENT_PATH = re.compile(r"/.*while|while/|(?i:lstm|gru|rnn)")
_FRAMES = re.compile(r"(?:.*/)?keras/src/(?:layers/rnn|backend/\w+/rnn\.py)")

#: Pattern of modules that can compute all time steps at once, such as ``nn.Module: mLSTMCell_0``.
_PARALLEL = re.compile(
    r"(?:nn\.Module: |.*\.py\(\d+\): )?_?(?i:(?P<family>[msx]lstm|min_?gru|min_?lstm|mamba"
    r"|selective_scan))\w*(?: [\w.]+)?"
)
#: Pattern of ops and kernels that compute all time steps of a recurrent module at once.
_PARALLEL_KERNELS = re.compile(
    r"(?i)selective_scan_(?:fwd|bwd|cuda)|chunk_(?:scan|state)|mamba_\w*kernel|mlstm_(?:chunk|par|sig)"
    r"|flashrnn|forward_scan|warpscan"
)
#: Smallest number of calls of one op at which lstmprof assumes that a module loops over time steps.
#: Chosen by hand.
_LOOPED_OPS = 32


def looped_module(lane: Lane) -> tuple[str, int, int] | None:
    """Find the module that loops over time steps but could compute all at once."""
    events = lane.events
    named = lane.events_named(_PARALLEL.fullmatch, "python", "range")
    if not named.any() or (lane.here & events.where_name(_PARALLEL_KERNELS.search)).any():
        return None
    module = lane.inside(named)
    rows = np.flatnonzero(lane.here & events.is_kind("op") & (module != NONE))
    if not len(rows):
        return None
    calls = Groups(module[rows], lane.names[rows])
    most = int(np.argmax(calls.sizes()))
    number = int(calls.sizes()[most])
    name = str(lane.text(int(module[rows[calls.first[most]]])))
    # shorten ``nn.Module: mLSTMCell_0`` or ``nn.Module: mLSTMCell layers.0.cell`` to ``mLSTMCell``
    short = re.sub(r"_\d+$", "", name.rpartition(": ")[2].split()[0])
    if number < _LOOPED_OPS:
        return None
    looped = np.zeros(len(events), dtype=np.bool_)
    looped[module[rows[calls.first[calls.sizes() >= _LOOPED_OPS]]]] = True
    # return name, calls of one op, and ns per step with the backward pass
    return short, number, sum(fact.ns for fact in lane.spent_in(looped, backward=True))


def paths(lane: Lane) -> dict[str, float]:
    """Count the calls per step by path, for paths into a loop or recurrent layer."""
    times: dict[str, float] = {}
    for column in ("name", "op_name"):
        codes, texts = lane.events.texts(column)
        rows = lane.here & (codes != NONE) & lane.events.is_kind("op", *ACTIVITY_KINDS)
        counts = np.bincount(codes[rows], minlength=len(texts)).tolist()
        for text, count in zip(texts, counts, strict=True):
            if count and "/" in text and _RECURRENT_PATH.search(text):
                times[text] = max(times.get(text, 0.0), count / lane.steps)
    return times


def looping_ns(lane: Lane) -> int:
    """Return a step's time in loops of TensorFlow's layers, without the cells."""
    loops = [match and match[1] for match in map(_LAYERS_LOOP.match, lane.texts)]
    kinds = {loop: number for number, loop in enumerate(loops) if loop}
    loop_of = np.array([kinds.get(loop, NONE) for loop in loops], dtype=np.int64)[lane.names]
    rows = np.flatnonzero(lane.here & lane.events.is_kind("op") & (loop_of != NONE))
    if not len(rows):
        return 0
    runs = [rows[members] for members in Groups(loop_of[rows], lane.step[rows]).members()]
    start = np.array([lane.events.start_ns[run].min() for run in runs], dtype=np.int64)
    end = np.array([lane.events.end_ns[run].max() for run in runs], dtype=np.int64)
    order = np.argsort(start)
    until = np.maximum.accumulate(end[order])
    since = np.maximum(start[order], np.append(start[order][:1], until[:-1]))
    # add the loops' dispatch to the ops that store time steps or add up gradients
    dispatch_ns = lane.idle_within(("dispatch",), since, until).sum()
    beside = rows[lane.events.where_name(_BESIDE_CELLS.search)[rows]]
    return int(dispatch_ns + lane.busy[beside].sum()) // lane.steps


def keras_frames(lane: Lane) -> bool:
    """Return whether the profile has Python functions of Keras's recurrent layers."""
    return bool(lane.events_named(_FRAMES.match, "python").any())


#: Pattern of ops that compute one time step of a cell, in any framework.
ONE_CELL = re.compile(
    r"(?:^|:)_?(?:thnn_fused_)?(?:lstm|gru|rnn_(?:tanh|relu))_cell$|\b(?:LSTM|GRU)BlockCell"
)


def peepholes(lane: Lane) -> float:
    """Count a step's elementwise products of a matrix and a vector (peepholes)."""
    events = lane.events
    products = events.is_one_of("name", "aten::mul", "aten::addcmul")
    rows = np.flatnonzero(lane.here & products & events.where("shapes", _is_broadcast))
    return len(rows) / lane.steps


def asked_between(lane: Lane) -> float:
    """Count a step's pairs of successive cells between which the host reads a value."""
    named = lane.events_named(ONE_CELL.search)
    cells = np.flatnonzero(named)
    above = lane.parent[cells]
    cells = cells[~((above != NONE) & named[above])]
    ops = lane.here & lane.events.is_kind("op")
    asks = np.flatnonzero(ops & lane.events.is_one_of("name", *VALUE_READS))
    rows = np.concatenate([cells, asks])
    rows = rows[np.lexsort((lane.events.start_ns[rows], thread_ids(lane.events)[rows]))]
    is_cell = np.isin(rows, cells)
    before = np.concatenate([[0], np.cumsum(~is_cell)])[:-1][is_cell]
    cells = rows[is_cell]
    threads, steps = thread_ids(lane.events)[cells], lane.step[cells]
    # ignore reads before the first cell of a step, which may be the optimizer's
    same = (threads[1:] == threads[:-1]) & (steps[1:] == steps[:-1])
    return float((same & (np.diff(before) > 0)).sum()) / lane.steps


def _is_broadcast(shapes: str) -> bool:
    """Return whether an op multiplies a matrix by a vector elementwise."""
    inputs = [shape for shape in recorded_inputs(shapes) if isinstance(shape, list)]
    try:
        matrices = {shape[-1] for shape in inputs if len(shape) == 2 and shape[0] != 1}
        vectors = {
            shape[-1] for shape in inputs if len(shape) == 1 or (len(shape) == 2 and shape[0] == 1)
        }
    except (TypeError, IndexError):
        return False
    return bool((matrices & vectors) - {1})
