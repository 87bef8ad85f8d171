"""Find TensorFlow's recurrent layers and loops of cells by names of nodes, ``<node>:<OpType>``.

::

    ``CudnnRNN…`` runs all layers, ``BlockLSTM`` one direction of one layer
    loop in TensorFlow 2: <loop>/body/_<n>/<loop>/<node>, <loop>/cond/…, gradient_tape/<loop>/…
    loop in TensorFlow 1: while/<node>, gradients/while/…
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lstmprof.breakdown.attribution.host import computing
from lstmprof.breakdown.recurrent.call import (
    Call,
    Loop,
    calls_of,
    in_words,
    layer_loop,
    rank_and_step,
)
from lstmprof.breakdown.recurrent.cells import (
    CELL,
    PRODUCT,
    SIGMOID,
    TANH,
    Op,
    cells_of,
    layer_named,
    unit_beside_tanh,
    unit_of,
)
from lstmprof.breakdown.recurrent.network import Network, by_length, dtype_named
from lstmprof.breakdown.recurrent.profiles.recorded import Inputs, by_step, shape_at
from lstmprof.breakdown.recurrent.profiles.torch_compiled import gated_units
from lstmprof.events.groups import Groups
from lstmprof.events.intervals import Ints
from lstmprof.events.table import UNKNOWN, EventTable
from lstmprof.implementations import CELL_OP, LAYER_OP, LOOP

#: Pattern of the name of a node's event: path and op type, such as ``lstm/MatMul:MatMul``, or
#: ``GPU:0 lstm/MatMul:MatMul`` on a GPU.
_NODE = re.compile(r"(?:[A-Z]+:\d+ )?([^:\s]+):(_?[A-Z]\w*)")
_GRADIENT = re.compile(r"(?:^|/)gradient(?:s|_tape)(?:_\d+)?/")
_BODY = re.compile(r"(.*)/(body|cond)/_\d+/")
_FRAME = re.compile(r"(.*?(?:^|/)while(?:_\d+)?)/")
_CUDNN = re.compile(r"CudnnRNN(V[23])?")
_CUDNN_GRADIENT = re.compile(r"CudnnRNNBackprop(?:V[23])?")
_BLOCK = re.compile(r"BlockLSTM(?:V2)?")
_BLOCK_GRADIENT = re.compile(r"BlockLSTMGrad(?:V2)?")
_CELLS = {"LSTMBlockCell": "lstm", "GRUBlockCell": "gru", "GRUBlockCellV2": "gru"}
_CONDITION = "LoopCond"
#: Pattern of layer names in Keras's Bidirectional: ``forward_lstm``, ``backward_lstm``.
_DIRECTION = re.compile(r"(bidirectional[^/]*/)(?:forward|backward)_")
#: Smallest number of nodes outside of loops that run equally often at which lstmprof assumes that
#: the program ran as often. Chosen by hand.
LEAST_NODES = 4


@dataclass(frozen=True)
class _Node:
    """The facts in a node's name, such as the loop that ran the node."""

    op_type: str
    loop: str | None
    part: str | None  # ``body`` or ``cond``
    gradient: bool
    role: int | None
    scope: str | None  # path up to the innermost recurrent layer or cell


def _node(name: str) -> _Node | None:
    match = _NODE.fullmatch(name)
    if match is None:
        return None
    path, op_type = match[1], match[2]
    placed, frame = _BODY.match(path), _FRAME.match(path)
    loop, part = (placed[1], placed[2]) if placed else (frame[1] if frame else None, None)
    if not placed and op_type == _CONDITION:
        part = "cond"
    gradient = bool(_GRADIENT.search((loop or path) + "/"))
    scope = _named_scope(path) if loop else None
    return _Node(op_type, loop, part, gradient, _role(op_type), scope)


def _named_scope(path: str) -> str | None:
    parts = path.split("/")
    last = next((n for n in range(len(parts) - 1, 0, -1) if layer_named(parts[n - 1])), None)
    return "/".join(parts[:last]) if last else None


def _role(op_type: str) -> int | None:
    if op_type in _CELLS:
        return CELL
    if "MatMul" in op_type:
        return PRODUCT
    return {"Sigmoid": SIGMOID, "Tanh": TANH}.get(op_type)


class _Step:
    """The nodes of one step, in execution order."""

    def __init__(
        self,
        events: EventTable,
        inputs: Inputs,
        rows: Ints,
        codes: Ints,
        nodes: Mapping[int, _Node],
    ) -> None:
        self.events, self.inputs = events, inputs
        self.rows = rows
        self.codes, self.nodes = codes, nodes
        self.computes = computing(events) | events.is_kind("kernel")
        self.placed = any(nodes[code].part == "body" for code in set(self.codes[rows].tolist()))

    def node(self, row: int) -> _Node:
        return self.nodes[int(self.codes[row])]

    def loop_of(self, row: int) -> str | None:
        """Return the loop's name if the node is in the body of a loop."""
        node = self.node(row)
        if self.placed:
            return node.loop if node.part == "body" else None
        return node.loop if node.part is None else None

    def next_matmul_inputs(self, end_ns: int) -> int | None:
        """Return the input width of the first matmul outside of loops after ``end_ns``."""
        for row in self.rows[self.events.start_ns[self.rows] >= end_ns].tolist():
            node = self.node(row)
            if node.role == PRODUCT and node.loop is None and not node.gradient:
                weight = self.op(row).weight
                return weight[0] if weight else None
        return None

    def runs(self, repetitions: int) -> int | None:
        """Return how often the program ran in the step, or None if this is uncertain."""
        outside = Counter(
            int(self.codes[row]) for row in self.rows.tolist() if self.node(row).loop is None
        )
        usual = Counter(outside.values()).most_common(1)
        if not usual or usual[0][1] < LEAST_NODES or repetitions % usual[0][0]:
            return None
        return usual[0][0]

    def op(self, row: int) -> Op:
        """Return the node's role, such as matmul, and its recorded shapes."""
        shapes, dtypes = self.inputs.shapes(row), self.inputs.dtypes(row)
        role = self.node(row).role
        assert role is not None
        data, weight = shape_at(shapes, 0, 2), shape_at(shapes, 1, 2)
        dtype = dtype_named(dtypes[0] if dtypes else None)
        return Op(role, data, weight if role == PRODUCT else None, dtype)


def tensorflow_calls(events: EventTable) -> Iterator[Call]:
    """Find recurrent calls by names of ops, or else by op names of kernels."""
    calls = list(_calls(events, "op", "name"))
    yield from calls or _calls(events, "kernel", "op_name")


def _calls(events: EventTable, kind: str, column: str) -> Iterator[Call]:
    """Yield the layers and loops of cells that the names of nodes in ``column`` show."""
    codes, texts = events.texts(column)
    nodes = {code: node for code, text in enumerate(texts) if (node := _node(text))}
    rows = np.flatnonzero(events.is_kind(kind) & np.isin(codes, list(nodes)))
    if not len(rows) or not any(_matters(node) for node in nodes.values()):
        return
    rows = _once(events, rows, codes) if kind == "kernel" else rows
    inputs = Inputs(events)
    for members in by_step(events, rows):
        step = _Step(events, inputs, members, codes, nodes)
        yield from _cudnn_calls(step)
        yield from calls_of(events, "tensorflow", _layers(step))
        for loops in _runs(step):
            yield from calls_of(events, "tensorflow", loops)


def _once(events: EventTable, rows: Ints, codes: Ints) -> Ints:
    """Keep each node's kernels of the most frequent name, to count each run once."""
    names = events.texts("name")[0]
    kernels = Groups(codes[rows], names[rows])
    kernels_of: dict[int, Ints] = {}
    for places in kernels.members():
        members = rows[places]
        code = int(codes[members[0]])
        if len(members) > len(kernels_of.get(code, ())):
            kernels_of[code] = members
    return np.sort(np.concatenate(list(kernels_of.values())))


def _matters(node: _Node) -> bool:
    """Return whether the node can belong to a recurrent layer."""
    layer = _CUDNN.fullmatch(node.op_type) or _BLOCK.fullmatch(node.op_type)
    in_loop = node.loop is not None and node.role in (PRODUCT, TANH)
    return bool(layer) or node.role == CELL or in_loop


def _with_gradients(
    step: _Step, layer: re.Pattern[str], gradient: re.Pattern[str]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield each layer op with its gradient op; gradients run in reverse order."""
    rows = [r for r in step.rows.tolist() if layer.fullmatch(step.node(r).op_type)]
    back = [r for r in step.rows.tolist() if gradient.fullmatch(step.node(r).op_type)]
    paired = back[::-1] if len(back) == len(rows) else [None] * len(rows)
    for row, gradient_row in zip(rows, paired, strict=True):
        yield row, (() if gradient_row is None else (gradient_row,))


def _cudnn_calls(step: _Step) -> Iterator[Call]:
    """Yield one call per op of cuDNN, which runs all layers."""
    for row, backward in _with_gradients(step, _CUDNN, _CUDNN_GRADIENT):
        rank, number = rank_and_step(step.events, row)
        yield Call(
            form=LAYER_OP,
            framework="tensorflow",
            op=step.node(row).op_type,
            library="cuDNN",
            network=_cudnn(step, row),
            rank=rank,
            step=number,
            rows=(row,),
            backward=backward,
        )


def _layers(step: _Step) -> list[Loop]:
    """Return the layers that run as one op in execution order, with their gradients."""
    layers = list(_with_gradients(step, _BLOCK, _BLOCK_GRADIENT))
    ends = step.events.end_ns[[row for row, _ in layers]]
    reads = step.next_matmul_inputs(int(ends.max())) if layers else None
    return [
        layer_loop(
            _block(step, row),
            step.node(row).op_type,
            row,
            backward=backward,
            next_matmul_inputs=reads,
        )
        for row, backward in layers
    ]


def _block(step: _Step, row: int) -> Network:
    """Return the sizes of a ``BlockLSTM`` layer, from its op's input shapes."""
    shapes, dtypes = step.inputs.shapes(row), step.inputs.dtypes(row)
    data, state = shape_at(shapes, 1, 3), shape_at(shapes, 2, 2)
    return Network(
        "lstm",
        time_steps=data[0] if data else None,
        batch=data[1] if data else None,
        inputs=data[2] if data else None,
        hidden=state[1] if state else None,
        dtype=dtype_named(dtypes[1] if len(dtypes) > 1 else None),
    )


def _cudnn(step: _Step, row: int) -> Network:
    """Return the sizes of a ``CudnnRNN`` layer, from its op's input shapes."""
    shapes, dtypes = step.inputs.shapes(row), step.inputs.dtypes(row)
    data, states, params = (shape_at(shapes, n, d) for n, d in ((0, 3), (1, 3), (3, 1)))
    if data is None or states is None:
        return Network()
    steps = data[0] if data[1] == states[1] else data[1]
    network = Network(
        time_steps=steps,
        batch=states[1],
        inputs=data[2],
        hidden=states[2],
        rows=data[0] * data[1],
        dtype=dtype_named(dtypes[0] if dtypes else None),
    )
    network = by_length(network, states[0], params[0] if params else None)
    units = network.units
    return replace(network, cells=None if units is None else steps * units)


def _runs(step: _Step) -> Iterator[list[Loop]]:
    """Yield the list of loops of cells of each run of the program."""
    bodies: dict[str, list[int]] = {}
    conditions: Counter[str] = Counter()
    seen: dict[tuple[str, int], int] = {}
    for row in step.rows.tolist():
        node, loop = step.node(row), step.loop_of(row)
        if loop is not None:
            bodies.setdefault(loop, []).append(row)
        elif node.part == "cond" and node.loop:
            code = int(step.codes[row])
            seen[node.loop, code] = seen.get((node.loop, code), 0) + 1
            conditions[node.loop] = max(conditions[node.loop], seen[node.loop, code])
    by_run: dict[int, list[tuple[int, Loop]]] = {}
    for loop, rows in bodies.items():
        if _GRADIENT.search(loop + "/"):
            continue
        backward = [r for key, of in bodies.items() if _is_gradient(key, loop) for r in of]
        for run, each in enumerate(_loops(step, rows, backward, conditions[loop])):
            by_run.setdefault(run, []).append((_last_ns(step, each), each))
    for loops in by_run.values():
        yield [each for _, each in sorted(loops, key=lambda pair: pair[0])]


def _last_ns(step: _Step, loop: Loop) -> int:
    """Return the start of the loop's last matmul or cell op, which orders the loops."""
    work = [row for row in loop.rows.tolist() if step.node(row).role in (PRODUCT, CELL)]
    return int(step.events.start_ns[work].max())


def _is_gradient(key: str, loop: str) -> bool:
    return bool(_GRADIENT.search(key + "/")) and key.endswith(("/" + loop, "/" + loop + "_grad"))


def _loops(
    step: _Step, rows: Sequence[int], backward: Sequence[int], conditions: int
) -> Iterator[Loop]:
    """Yield one ``Loop`` per run of a loop, if the loop has cells."""
    firsts: dict[int, int] = {}
    counts: Counter[int] = Counter()
    for row in rows:
        code = int(step.codes[row])
        firsts.setdefault(code, row)
        counts[code] += 1
    loop = step.node(rows[0]).loop
    pattern = [row for code, row in firsts.items() if step.nodes[code].role is not None]
    roles = [step.node(row).role for row in pattern]
    units = tuple(_units(step, pattern))
    products = [step.op(row) for row in pattern if step.node(row).role == PRODUCT]
    if products:
        operands = [(op.data, op.weight) for op in products]
        # derive cells from matmuls alone, because TensorFlow's profile omits short ops such as tanh
        gated = gated_units(operands, products[0].dtype)
        whole = any(unit.cell and unit.hidden for unit in units)
        if gated and (len(gated) == len(units) or not whole):
            units = gated
    if not units:
        return
    repetitions = max(
        counts[int(step.codes[r])] for r in pattern if step.node(r).role in (PRODUCT, CELL)
    )
    marked = step.events.ints("step", UNKNOWN)[rows[0]] != UNKNOWN
    # count runs of the loop: each run ends with one extra check of the condition
    if conditions > repetitions and repetitions % (conditions - repetitions) == 0:
        runs: int | None = conditions - repetitions
    else:
        runs = 1 if marked or conditions else step.runs(repetitions)
    certain, runs = runs is not None, runs or 1
    cells = [s for s in roles if s == CELL]
    op = (
        step.node(pattern[roles.index(CELL)]).op_type
        if cells
        else in_words([s for s in roles if s is not None])
    )
    for run_rows, backward_rows in zip(
        _split(step, rows, runs), _split(step, backward, runs), strict=True
    ):
        last_ns = int(step.events.end_ns[run_rows].max())
        yield Loop(
            form=CELL_OP if cells else LOOP,
            op=op,
            count=repetitions // runs if certain else None,
            units=units,
            rows=run_rows,
            backward=backward_rows[step.computes[backward_rows]],
            time_steps_certain=certain,
            next_matmul_inputs=step.next_matmul_inputs(last_ns),
            layer=_DIRECTION.sub(r"\1", loop) if loop and _DIRECTION.search(loop) else None,
        )


def _split(step: _Step, rows: Sequence[int], runs: int) -> list[Ints]:
    """Divide events among ``runs`` runs; each run gets equally many events per node."""
    listed = np.array(rows, dtype=np.int64)
    if runs == 1 or not len(listed):
        return [listed] * runs
    parts = np.empty(len(listed), dtype=np.int64)
    for places in Groups(step.codes[listed]).members():
        parts[places] = np.arange(len(places)) * runs // len(places)
    return [listed[parts == run] for run in range(runs)]


def _units(step: _Step, pattern: Sequence[int]) -> Iterator[Network]:
    """Yield the cells of a time step: one per layer and direction."""
    cells = [row for row in pattern if step.node(row).role == CELL]
    if cells:
        yield from (_cell(step, row) for row in cells)
        return
    named = _named_cells(step, pattern)
    if named:
        for scope, rows in named.items():
            yield unit_of([step.op(row) for row in rows], layer_named(scope.rpartition("/")[2]))
        return
    ops = [step.op(row) for row in pattern]
    if {PRODUCT, SIGMOID, TANH} <= {op.role for op in ops}:
        single = sum(op.role == TANH for op in ops) <= 2
        for places in [list(range(len(ops)))] if single else cells_of(ops):
            of_cell = [ops[place] for place in places]
            yield _by_matmuls(unit_of(of_cell), of_cell)
    elif (unit := unit_of(ops)).hidden:
        yield _by_matmuls(unit, ops)


def _by_matmuls(unit: Network, ops: Sequence[Op]) -> Network:
    """Correct the cell and input width of ``unit`` by the weights of its matmuls."""
    weights = [op.weight for op in ops if op.role == PRODUCT]
    known = [weight for weight in weights if weight]
    if not unit.hidden or not known or len(known) < len(weights):
        return unit
    # prefer the matmuls: an LSTM looks like a GRU if TensorFlow omits a short tanh
    shown = unit_beside_tanh(known, unit.hidden)
    return replace(unit, cell=shown.cell or unit.cell, inputs=shown.inputs or unit.inputs)


def _named_cells(step: _Step, pattern: Sequence[int]) -> dict[str, list[int]]:
    """Group the nodes of cells by scope, such as ``rnn/lstm_cell``."""
    scopes: dict[str, list[int]] = {}
    for row in pattern:
        if scope := step.node(row).scope:
            scopes.setdefault(scope, []).append(row)
    with_products = {
        scope: rows
        for scope, rows in scopes.items()
        if any(step.node(row).role == PRODUCT for row in rows)
    }
    cells = {s: r for s, r in with_products.items() if "cell" in s.rpartition("/")[2].lower()}
    # use the scopes named after layers if no scope is named after a cell
    return cells or with_products


def _cell(step: _Step, row: int) -> Network:
    """Return the sizes of a cell, from the inputs (x, state, …) of its op."""
    shapes, dtypes = step.inputs.shapes(row), step.inputs.dtypes(row)
    data, state = shape_at(shapes, 0, 2), shape_at(shapes, 1, 2)
    return Network(
        _CELLS[step.node(row).op_type],
        batch=data[0] if data else None,
        inputs=data[1] if data else None,
        hidden=state[1] if state else None,
        dtype=dtype_named(dtypes[0] if dtypes else None),
    )
