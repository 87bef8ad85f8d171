"""Recurrent layers that ONNX Runtime and OpenVINO run as nodes. The inputs show the sizes:

- ONNX: X (time, batch, inputs), W (directions, gates·hidden, inputs), R (directions, gates·hidden,
  hidden), B (directions, 2·gates·hidden), sequence_lens (batch), states (directions, batch,
  hidden). ONNX Runtime records no absent inputs, and no prepacked W and R.
- OpenVINO, one node per direction: X (batch, time, inputs), states (batch, directions, hidden),
  lengths, W, R and B.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lstmprof.breakdown.recurrent.call import Call, Loop, calls_of, layer_loop
from lstmprof.breakdown.recurrent.network import Network, Shape, dtype_named
from lstmprof.breakdown.recurrent.profiles.recorded import Inputs, by_step, in_order, shape_at
from lstmprof.events.table import UNKNOWN, EventTable

#: Pattern of the names of layers. OpenVINO runs sequences of several lengths as ``TensorIterator``,
#: which the pattern omits, because any loop may be a ``TensorIterator``.
_LAYER = re.compile(
    r"onnxruntime::(?:DynamicQuantize)?(LSTM|GRU|RNN)|openvino::(LSTM|GRU|RNN)Sequence"
)
_PRODUCT = re.compile(r"(?:onnxruntime|openvino)::\w*(?:MatMul|Gemm|FullyConnected)\w*")
_QUANTIZED = "DynamicQuantize"
#: Type of a node → (cell, number of gates); the activation of an ``RNN`` is unknown.
_CELLS = {"LSTM": ("lstm", 4), "GRU": ("gru", 3), "RNN": (None, 1)}
_LENGTHS = "int32"


@dataclass(frozen=True)
class _Node:
    """A node of an ONNX graph that computes a recurrent layer."""

    row: int
    name: str
    network: Network
    packed: bool  # sequences have different lengths

    @property
    def engine(self) -> str:
        return self.name.partition("::")[0]

    @property
    def library(self) -> str | None:
        return "oneDNN" if self.engine == "openvino" else None


def onnx_calls(events: EventTable) -> Iterator[Call]:
    """Yield one call per stack of recurrent layers in ONNX graphs."""
    is_layer = events.is_kind("op") & events.where_name(_LAYER.fullmatch)
    layers = np.flatnonzero(is_layer)
    if not len(layers):
        return
    inputs = Inputs(events)
    codes, texts = events.texts("name")
    steps: list[list[_Node]] = []
    for rows in by_step(events, layers):
        nodes = [_node(inputs, row, texts[codes[row]]) for row in rows.tolist()]
        for engine in sorted({node.engine for node in nodes}):
            steps.append([node for node in nodes if node.engine == engine])
    widths = [list(_widths_after(events, inputs, nodes)) for nodes in steps]
    for nodes, own in zip(steps, widths, strict=True):
        alike = [w for step, w in zip(steps, widths, strict=True) if len(step) == len(nodes)]
        yield from _calls(events, nodes, [*map(_width_in_any_step, own, zip(*alike, strict=True))])


def _width_in_any_step(width: int | None, step_widths: Sequence[int | None]) -> int | None:
    """Return ``width``, or the only width in other steps if ``width`` is None."""
    # use another step's width: nodes that take less than 1 µs have no event
    others = set(step_widths) - {None}
    return others.pop() if width is None and len(others) == 1 else width


def _calls(
    events: EventTable, nodes: Sequence[_Node], widths: Sequence[int | None]
) -> Iterator[Call]:
    """Yield the recurrent calls that ONNX Runtime or OpenVINO ran in one step."""
    loops = [_loop(node, width) for node, width in zip(nodes, widths, strict=True)]
    node_of = {node.row: node for node in nodes}
    for call in calls_of(events, nodes[0].engine, loops):
        yield _as_recorded(call, [node_of[row] for row in call.rows])


def _as_recorded(call: Call, nodes: Sequence[_Node]) -> Call:
    """Mark directions as unknown, or sequences as packed, if the nodes show this."""
    network = call.network
    if nodes[0].network.directions is None:
        network = replace(network, directions=None, cells=None)
    if any(node.packed for node in nodes):
        network = replace(network, packed=True, rows=None)
    return replace(call, network=network)


def _loop(node: _Node, next_matmul_inputs: int | None) -> Loop:
    network = node.network
    directions = network.directions or 1
    if directions == 2 and network.hidden is not None:
        # one node computes both directions, so the next matmul reads the outputs of both
        next_matmul_inputs = 2 * network.hidden
    return layer_loop(
        replace(network, directions=None),
        node.name,
        node.row,
        units=directions,
        next_matmul_inputs=next_matmul_inputs,
        library=node.library,
    )


def _widths_after(
    events: EventTable, inputs: Inputs, nodes: Sequence[_Node]
) -> Iterator[int | None]:
    """Yield the input width of the first matmul after each node (None: unknown)."""
    rank, step = (events.ints(name, UNKNOWN) for name in ("rank", "step"))
    first = nodes[0].row
    in_step = (rank == rank[first]) & (step == step[first])
    in_step &= events.where_name(_PRODUCT.fullmatch)
    products = in_order(events, np.flatnonzero(in_step))
    for node in nodes:
        later = products[events.start_ns[products] >= events.end_ns[node.row]]
        data = next(iter(inputs.shapes(int(later[0]))), None) if len(later) else None
        yield data[-1] if isinstance(data, tuple) else None


def _node(inputs: Inputs, row: int, name: str) -> _Node:
    match = _LAYER.fullmatch(name)
    assert match is not None
    shapes, dtypes = inputs.shapes(row), inputs.dtypes(row)
    cell, gates = _CELLS[match[1] or match[2]]
    network = Network(cell, dtype=dtype_named(dtypes[0] if dtypes else None))
    data = shape_at(shapes, 0, 3)
    if data is None:
        return _Node(row, name, network, packed=False)
    if match[2]:
        return _Node(row, name, _openvino_network(network, shapes, data), packed=False)
    lengths = any(
        isinstance(shape, tuple) and len(shape) == 1 and dtype == _LENGTHS
        for shape, dtype in zip(shapes[1:], dtypes[1:], strict=False)
    )
    quantized = _QUANTIZED in name
    return _Node(row, name, _onnx_network(network, shapes, data, gates, quantized), packed=lengths)


def _openvino_network(network: Network, shapes: Sequence[object], data: Shape) -> Network:
    """Read the sizes from the shapes of X (batch, time, inputs) and of the state."""
    state = shape_at(list(shapes), 1, 3)
    return replace(
        network,
        time_steps=data[1],
        batch=data[0],
        inputs=data[2],
        directions=state[1] if state else None,
        hidden=state[2] if state else None,
    )


def _onnx_network(
    network: Network, shapes: Sequence[object], data: Shape, gates: int, quantized: bool
) -> Network:
    """Read the sizes from the shapes of X, and of R, B and the states if these agree."""
    units: set[tuple[int, int]] = set()
    matrices = [shape for shape in shapes[1:] if isinstance(shape, tuple) and len(shape) in (2, 3)]
    for shape in matrices:
        if len(shape) == 3 and shape[1] in (gates * shape[2], data[1]):
            units.add((shape[0], shape[2]))  # R or a state; also W, if x is as wide as h
    biases = [shape for shape in matrices if len(shape) == 2][: 0 if quantized else 1]
    units |= {(each[0], each[1] // (2 * gates)) for each in biases if each[1] % (2 * gates) == 0}
    network = replace(network, time_steps=data[0], batch=data[1], inputs=data[2])
    if len(units) != 1:
        return network
    ((directions, hidden),) = units
    return replace(network, directions=directions, hidden=hidden) if directions < 3 else network
