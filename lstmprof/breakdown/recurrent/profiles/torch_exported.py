"""Recurrent layers in a library that AOTInductor made, which calls ATen through functions of C.

``aoti_torch_cpu_mkldnn_rnn_layer(input, W, U, …)`` is one direction of one layer, of oneDNN's LSTM,
as ``aten::mkldnn_rnn_layer`` is; ``aoti_torch_cuda__cudnn_rnn`` is all of a layer of cuDNN. The
library tells the profiler their names where it was compiled with ``cpp.enable_kernel_profile``, and
no inputs: of what lstmprof captured itself the exported program tells them, else nothing does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from lstmprof.breakdown.recurrent.call import Call
from lstmprof.breakdown.recurrent.loop import Loop, calls_of
from lstmprof.breakdown.recurrent.network import GATES, Network, dtype_named
from lstmprof.breakdown.recurrent.profiles.recorded import Inputs, shape_at
from lstmprof.events.groups import Groups
from lstmprof.events.intervals import Ints
from lstmprof.events.table import UNKNOWN, EventTable
from lstmprof.implementations import LAYER_OP

_LAYERS = {
    "aoti_torch_cpu_mkldnn_rnn_layer": "oneDNN",
    "aoti_torch_cuda__cudnn_rnn": "cuDNN",
}
_PRODUCT = re.compile(r"aoti_torch_\w+?_(?:add)?mm_out")


def exported_calls(events: EventTable) -> Iterator[Call]:
    """A call of each layer, or of layers that follow each other where their widths are known."""
    is_layer = events.is_kind("op") & events.is_one_of("name", *_LAYERS)
    layers = np.flatnonzero(is_layer)
    if not len(layers):
        return
    is_product = events.where_name(lambda name: bool(_PRODUCT.fullmatch(name)))
    inputs = Inputs(events)
    rank, step = (events.ints(name, UNKNOWN) for name in ("rank", "step"))
    for members in Groups(rank[layers], step[layers]).members():
        rows = _in_order(events, layers[members])
        alike = (rank == rank[rows[0]]) & (step == step[rows[0]])
        products = _in_order(events, np.flatnonzero(alike & is_product))
        loops = [_loop(events, inputs, row, products) for row in rows.tolist()]
        for call in calls_of(events, "torch", loops):
            yield _as_told(call)


def _in_order(events: EventTable, rows: Ints) -> Ints:
    return rows[np.argsort(events.start_ns[rows], kind="stable")]


def _as_told(call: Call) -> Call:
    """``call``; without shapes neither its layers nor its directions are known."""
    if call.network.time_steps is not None:
        return call
    return replace(call, network=replace(call.network, layers=None, directions=None))


def _loop(events: EventTable, inputs: Inputs, row: int, products: Ints) -> Loop:
    codes, texts = events.texts("name")
    name = texts[codes[row]]
    shapes, dtypes = inputs.shapes(row), inputs.dtypes(row)
    data, recurrent = shape_at(shapes, 0, 3), shape_at(shapes, 2, 2)
    unit = Network(dtype=dtype_named(dtypes[0] if dtypes else None))
    if data and recurrent and recurrent[1]:
        gates, hidden = recurrent[0] // recurrent[1], recurrent[1]
        cell = next((c for c in ("lstm", "gru") if GATES[c] == gates), None)
        unit = replace(unit, cell=cell, batch=data[1], inputs=data[2], hidden=hidden)
    return Loop(
        form=LAYER_OP,
        op=name,
        count=data[0] if data else None,
        units=(unit,),
        rows=np.array([row]),
        backward=np.empty(0, dtype=np.int64),
        time_steps_told=data is not None,
        reads_after=_reads(inputs, products[events.start_ns[products] >= events.end_ns[row]]),
        library=_LAYERS[name],
    )


def _reads(inputs: Inputs, products: Sequence[int] | Ints) -> int | None:
    """The width of what the first of ``products`` reads."""
    matrix = shape_at(inputs.shapes(int(products[0])), 0, 2) if len(products) else None
    return matrix[1] if matrix else None
