"""Cells in what torch.compile compiled: products are ops, the rest is in kernels of its own.

What Dynamo compiled is an event around its call, ``Torch-Compiled Region: 0/1`` (frame and graph;
before PyTorch 2.5 without numbers), autograd's function in it ``CompiledFunction``, the graph
``## Call CompiledFxGraph …``. No sigmoid and no tanh is seen, so the widths of the products have to
tell the cell: without recorded shapes nothing does, and one product of x and h at once may be of
anything.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lstmprof.breakdown.recurrent.cells import units_of_products
from lstmprof.breakdown.recurrent.network import Network, Shape
from lstmprof.breakdown.recurrent.profiles.torch_layers import within
from lstmprof.events.groups import inherited
from lstmprof.events.intervals import Ints
from lstmprof.events.table import NONE, EventTable

_REGION = re.compile(r"Torch-Compiled Region|CompiledFunction$|## Call CompiledFxGraph")
_NUMBERS = re.compile(r": \d+/\d+.*$")


def compiled_regions(events: EventTable) -> Ints:
    """For each row the outermost compiled region that it is in, ``NONE`` outside of all."""
    regions = events.is_kind("op", "range")
    regions = regions & events.where_name(lambda name: bool(_REGION.match(name)))
    if not regions.any():
        return np.full(len(events), NONE, dtype=np.int64)
    outermost = np.where(regions & ~within(events, regions), np.arange(len(events)), NONE)
    return np.asarray(inherited(events.rows_named("parent_id"), outermost), np.int64)


def gated_units(
    operands: Sequence[tuple[Shape | None, Shape | None]], dtype: str | None
) -> tuple[Network, ...]:
    """The cells of a time step by the (data, weight) of its products; empty where none fit."""
    data = [shape for shape, _ in operands if shape and len(shape) == 2]
    weights = [shape for _, shape in operands if shape and len(shape) == 2]
    batches = {shape[0] for shape in data}
    if len(data) < len(operands) or len(weights) < len(operands) or len(batches) != 1:
        return ()
    batch = batches.pop()
    return tuple(replace(unit, batch=batch, dtype=dtype) for unit in units_of_products(weights))


def name_of(region: str, products: int) -> str:
    """What repeats, whichever graph it ran: ``Torch-Compiled Region, 2 products``."""
    called = "CompiledFxGraph" if region.startswith("## Call ") else _NUMBERS.sub("", region)
    return f"{called}, {products} product" + "s" * (products != 1)


def ran_once(regions: Sequence[str]) -> bool:
    """Whether regions of these names, in the order in which they ran, are of one loop for certain.

    The first time step may run a graph of its own, which makes the initial states; where it comes
    again a second loop may have begun.
    """
    graphs = [name for n, name in enumerate(regions) if n == 0 or name != regions[n - 1]]
    return len(graphs) <= 2 and all(_NUMBERS.search(name) for name in graphs)
