"""Find recurrent layers that PyTorch runs as one op, and read the sizes from the op's inputs.

Example: ``aten::lstm(input, hx, params, …)``, where ``hx`` is the initial state with the shape
(layers·directions, batch, hidden). Source: aten/src/ATen/native/RNN.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lstmprof.breakdown.recurrent.call import Call, rank_and_step
from lstmprof.breakdown.recurrent.network import (
    GATES,
    Network,
    Shape,
    by_length,
    dtype_named,
    stack,
)
from lstmprof.breakdown.recurrent.profiles.recorded import Inputs, shape_at, shapes_at
from lstmprof.events.groups import nearest, values_at
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.table import NONE, EventTable
from lstmprof.implementations import LAYER_OP

#: Names of ops in profiles of PyTorch before 1.5, where names lack ``aten::``.
_UNNAMED = frozenset(("addmm", "AddmmBackward"))
_OUTER = re.compile(r"(?:aten::)?(lstm|gru|rnn_tanh|rnn_relu)")
_CHUNK = re.compile(r"(?:aten::)?(?:unsafe_)?chunk")
#: Op → vendor's library
_VENDORS = {
    "aten::_cudnn_rnn": "cuDNN",
    "aten::miopen_rnn": "MIOpen",
    "aten::mkldnn_rnn_layer": "oneDNN",
}
#: Matmuls of layers that ATen computes itself
_MATMULS = ("aten::addmm", "aten::mm", "addmm", "mm")
_PACKED = "long int"
#: Op → index of the initial states (hx) among the op's recorded inputs:
#: ``aten::_cudnn_rnn(input, weight, stride, weight_buf, hx, …)``, ``miopen_rnn`` has no weight_buf,
#: ``aten::mkldnn_rnn_layer(input, W, U, b, b, hx, cx, …)``.
_STATE_INPUT = {"aten::_cudnn_rnn": 4, "aten::miopen_rnn": 3, "aten::mkldnn_rnn_layer": 5}


def layer_rows(events: EventTable) -> Flags:
    """Return a mask of the outermost ops that run a recurrent layer."""
    prefix = "" if _UNNAMED.intersection(events.texts("name")[1]) else "aten::"
    layer = events.is_kind("op") & events.where_name(
        lambda name: name in _VENDORS or (name.startswith(prefix) and bool(_OUTER.fullmatch(name)))
    )
    return layer & ~within(events, layer)


def within(events: EventTable, outer: Flags) -> Flags:
    """Return a mask of the events that lie inside the events of ``outer``."""
    parent = events.rows_named("parent_id")
    above = values_at(nearest(parent, outer), parent)
    return np.asarray(above != NONE, np.bool_)


@dataclass(frozen=True)
class _Op:
    """The op of a recurrent layer, with the nested ops."""

    inputs: Inputs
    row: int
    name: str
    inside: Mapping[str, list[int]]  # name → rows of the nested ops with this name
    parent: Ints

    def named(self, name: str) -> list[int]:
        return self.inside.get(name, [])


def layer_calls(events: EventTable) -> Iterator[Call]:
    """Yield a ``Call`` for each recurrent layer that is one op of PyTorch."""
    layers = layer_rows(events)
    rows = np.flatnonzero(layers)
    if not len(rows):
        return
    inputs, parent = Inputs(events), events.rows_named("parent_id")
    names, texts = events.texts("name")
    owner = nearest(parent, layers)
    inner = np.flatnonzero((owner != NONE) & events.is_kind("op"))
    inner = inner[np.lexsort((events.start_ns[inner], owner[inner]))]
    bounds = np.searchsorted(owner[inner], [rows, rows + 1])
    for row, first, last in zip(rows.tolist(), *bounds.tolist(), strict=True):
        inside: dict[str, list[int]] = {}
        for place in inner[first:last].tolist():
            inside.setdefault(texts[names[place]], []).append(place)
        for name in _VENDORS.keys() & inside.keys():
            inside[name] = _innermost(inside[name], parent)
        op = _Op(inputs, row, texts[names[row]], inside, parent)
        library = next((v for n, v in _VENDORS.items() if op.named(n)), "ATen")
        place = rank_and_step(events, row)
        yield Call(LAYER_OP, "torch", op.name, library, _network(op), *place, rows=(row,))


def _innermost(rows: list[int], parent: Ints) -> list[int]:
    """Drop each op that directly contains another op of ``rows``, as under autocast."""
    around = {int(parent[row]) for row in rows}
    return [row for row in rows if row not in around]


def _network(op: _Op) -> Network:
    """Read the sizes of the network from the recorded inputs of the layer's ops."""
    outer = _OUTER.fullmatch(op.name)
    network = _outer_network(op, outer[1]) if outer else Network()
    # read also nested ops: PyTorch before 2.1 records no lists of tensors, such as hx
    for name in _VENDORS:
        vendors = op.named(name)
        if vendors:
            inner = (
                _onednn_network(op, vendors)
                if "mkldnn" in name
                else _vendor_network(op, vendors[0], name)
            )
            network = replace(
                network,
                **{
                    name: value
                    for name, value in vars(inner).items()
                    if getattr(network, name) is None and value is not None
                },
            )
    network = replace(
        network, cell=outer[1] if outer else network.cell, dtype=_dtype(op) or network.dtype
    )
    if network.time_steps is not None and network.units is not None:
        return replace(network, cells=network.time_steps * network.units)
    if not any(op.named(name) for name in _VENDORS) and network.cell == "lstm":
        chunks = sum(len(rows) for name, rows in op.inside.items() if _CHUNK.fullmatch(name))
        return replace(network, cells=chunks or None)  # a cell runs one ``chunk`` for its gates
    return network


def _dtype(op: _Op) -> str | None:
    """Return the element type of the computation inside ``op``."""
    rows = [op.named(name)[0] for name in (*_VENDORS, *_MATMULS) if op.named(name)]
    named = (dtype_named(next(iter(op.inputs.dtypes(row)), None)) for row in rows)
    return next((dtype for dtype in named if dtype), None)


def _outer_network(op: _Op, cell: str) -> Network:
    shapes, dtypes = op.inputs.shapes(op.row), op.inputs.dtypes(op.row)
    if not shapes:
        return Network()
    packed = dtypes[1:2] == [_PACKED]
    states = _states(shapes, 2 if packed else 1)
    network = replace(
        _input_network(shapes, states, packed), dtype=dtype_named(dtypes[0] if dtypes else None)
    )
    matrices = [s for s in shapes_at(shapes, 3 if packed else 2) if len(s) == 2]
    network = _with_weights(network, matrices, states, GATES[cell])
    counts = shape_at(shapes, 4 if packed else 3, 2)  # ``lstmprof run`` adds (layers, directions)
    return replace(network, layers=counts[0], directions=counts[1]) if counts else network


def _states(shapes: list[Any], number: int) -> Shape | None:
    """Return the initial state's shape (layers·directions, batch, hidden or projection)."""
    first = next(iter(shapes_at(shapes, number)), None) or shape_at(shapes, number, 3)
    return first if first and len(first) == 3 else None


def _input_network(shapes: list[Any], states: Shape | None, packed: bool) -> Network:
    if packed:
        # data: a row per sequence and time step, batch_sizes: an entry per time step
        rows, sizes = shape_at(shapes, 0, 2), shape_at(shapes, 1, 1)
        return Network(
            time_steps=sizes[0] if sizes else None,
            batch=states[1] if states else None,
            inputs=rows[1] if rows else None,
            rows=rows[0] if rows else None,
            packed=True,
        )
    data = shape_at(shapes, 0, 3)
    if data is None:
        return Network(batch=states[1] if states else None)
    time_major = states is None or data[1] == states[1]
    steps, batch = (data[0], data[1]) if time_major else (data[1], data[0])
    certain = states is not None or data[0] == data[1]
    return Network(
        time_steps=steps if certain else None,
        batch=batch if certain else None,
        inputs=data[2],
        rows=data[0] * data[1],
        packed=False,
    )


def _with_weights(
    network: Network, matrices: Sequence[Shape], states: Shape | None, gates: int
) -> Network:
    """Add the sizes that the shapes of the weights show, in order of the layers."""
    if states is None or not matrices or len(matrices) % states[0]:
        return network
    # W, U and perhaps a projection (projection, hidden) per layer and direction
    per_unit = len(matrices) // states[0]
    output, hidden = states[2], matrices[1][0] // gates
    projection = output if per_unit == 3 else None
    units = [
        Network(inputs=into[1], hidden=hidden, projection=projection)
        for into in matrices[::per_unit]
    ]
    single = replace(network, hidden=hidden, projection=projection)
    whole = stack(units, one_op=True)
    if whole is None:
        return single
    return replace(single, layers=whole.layers, directions=whole.directions)


def _vendor_network(op: _Op, row: int, name: str) -> Network:
    """Return the sizes of the network, from the inputs of cuDNN's or MIOpen's op."""
    shapes, dtypes = op.inputs.shapes(row), op.inputs.dtypes(row)
    states = _states(shapes, _STATE_INPUT[name])
    network = replace(
        _input_network(shapes, states, False) if shape_at(shapes, 0, 3) else Network(),
        dtype=dtype_named(dtypes[0] if dtypes else None),
    )
    if states is None:
        return network
    network = replace(network, hidden=states[2], batch=states[1])
    outer, length = _OUTER.fullmatch(op.name), shape_at(shapes, 3, 1)
    network = replace(network, cell=outer[1] if outer else None)
    return by_length(network, states[0], length[0] if length else None)


def _onednn_network(op: _Op, rows: Sequence[int]) -> Network:
    """Return the network of oneDNN's ops, one per layer and direction."""
    units = []
    for row in rows:
        shapes, dtypes = op.inputs.shapes(row), op.inputs.dtypes(row)
        data, recurrent = shape_at(shapes, 0, 3), shape_at(shapes, 2, 2)
        units.append(
            Network(
                time_steps=data[0] if data else None,
                batch=data[1] if data else None,
                inputs=data[2] if data else None,
                rows=data[0] * data[1] if data else None,
                hidden=recurrent[1] if recurrent else None,
                dtype=dtype_named(dtypes[0] if dtypes else None),
                packed=False if data else None,
            )
        )
    first = units[0]
    joins = sum(op.parent[row] == op.row for row in op.named("aten::cat"))  # of two directions
    if joins == 0:
        return replace(first, layers=len(rows), directions=1)
    if 2 * joins == len(rows):
        return replace(first, layers=joins, directions=2)
    return first
