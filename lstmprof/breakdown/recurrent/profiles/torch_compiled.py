"""Find recurrent cells in code that torch.compile or AOTInductor compiled.

Example: two ``aten::addmm`` (one for x, one for h) inside ``Torch-Compiled Region: 0/1``. Fused
kernels hide sigmoid and tanh, so only the shapes of the matmuls show a cell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from lstmprof.breakdown.recurrent.call import Call, Loop, calls_of, layer_loop
from lstmprof.breakdown.recurrent.cells import units_of_products
from lstmprof.breakdown.recurrent.network import GATES, Network, Shape, dtype_named
from lstmprof.breakdown.recurrent.profiles.recorded import Inputs, by_step, in_order, shape_at
from lstmprof.breakdown.recurrent.profiles.torch_layers import within
from lstmprof.events.groups import nearest
from lstmprof.events.intervals import Ints
from lstmprof.events.table import NONE, UNKNOWN, EventTable

#: Pattern of compiled code: region, inside it autograd's function, inside that the graph.
_REGION = re.compile(r"Torch-Compiled Region|CompiledFunction$|## Call CompiledFxGraph")
#: Numbers of frame and graph in a region's name. PyTorch before 2.5 writes none.
_NUMBERS = re.compile(r": \d+/\d+.*$")


def compiled_regions(events: EventTable) -> Ints:
    """Return the outermost compiled region around each event."""
    regions = events.is_kind("op", "range")
    regions = regions & events.where_name(_REGION.match)
    if not regions.any():
        return np.full(len(events), NONE, dtype=np.int64)
    return nearest(events.rows_named("parent_id"), regions & ~within(events, regions))


def gated_units(
    operands: Sequence[tuple[Shape | None, Shape | None]], dtype: str | None
) -> tuple[Network, ...]:
    """Return the cells of a time step, from its matmuls' shapes (data, weight)."""
    data = [shape for shape, _ in operands if shape and len(shape) == 2]
    weights = [shape for _, shape in operands if shape and len(shape) == 2]
    batches = {shape[0] for shape in data}
    if len(data) < len(operands) or len(weights) < len(operands) or len(batches) != 1:
        return ()
    batch = batches.pop()
    # find only cells with two matmuls (for x and h): any network may have one such matmul
    return tuple(replace(unit, batch=batch, dtype=dtype) for unit in units_of_products(weights))


def name_of(region: str, products: int) -> str:
    """Return a name such as ``Torch-Compiled Region, 2 products`` (matmuls)."""
    called = "CompiledFxGraph" if region.startswith("## Call ") else _NUMBERS.sub("", region)
    return f"{called}, {products} product" + "s" * (products != 1)


def ran_once(regions: Sequence[str]) -> bool:
    """Return whether these consecutive regions certainly belong to one run of a loop."""
    graphs = [name for n, name in enumerate(regions) if n == 0 or name != regions[n - 1]]
    return len(graphs) <= 2 and all(_NUMBERS.search(name) for name in graphs)


_LAYERS = {
    "aoti_torch_cpu_mkldnn_rnn_layer": "oneDNN",
    "aoti_torch_cuda__cudnn_rnn": "cuDNN",
}
_PRODUCT = re.compile(r"aoti_torch_\w+?_(?:add)?mm_out")


def exported_calls(events: EventTable) -> Iterator[Call]:
    """Yield the layers of exported code (AOTInductor); a stack of layers is one call."""
    is_layer = events.is_kind("op") & events.is_one_of("name", *_LAYERS)
    layers = np.flatnonzero(is_layer)
    if not len(layers):
        return
    is_product = events.where_name(_PRODUCT.fullmatch)
    inputs = Inputs(events)
    rank, step = (events.ints(name, UNKNOWN) for name in ("rank", "step"))
    for rows in by_step(events, layers):
        alike = (rank == rank[rows[0]]) & (step == step[rows[0]])
        products = in_order(events, np.flatnonzero(alike & is_product))
        loops = [_loop(events, inputs, row, products) for row in rows.tolist()]
        for call in calls_of(events, "torch", loops):
            network = call.network
            if network.time_steps is None:  # no shapes, so layers and directions are unknown
                network = replace(network, layers=None, directions=None)
            yield replace(call, network=network)


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
    later = products[events.start_ns[products] >= events.end_ns[row]]
    matrix = shape_at(inputs.shapes(int(later[0])), 0, 2) if len(later) else None
    return layer_loop(
        replace(unit, time_steps=data[0] if data else None),
        name,
        row,
        next_matmul_inputs=matrix[1] if matrix else None,
        library=_LAYERS[name],
    )
