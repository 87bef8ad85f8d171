"""Layers and cells of Keras that TensorFlow runs op by op, by the ranges of ``lstmprof run``.

The name of a range has the class and the name of the layer (``keras.layers.LSTM lstm_1``). The
range has the shapes of the input, of the kernel and of the recurrent kernel: an input (batch, time,
features) belongs to a layer, an input (batch, features) to a cell in a loop in Python.
``Bidirectional`` names its layers ``forward_lstm`` and ``backward_lstm``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from lstmprof.breakdown.recurrent.call import Call, rank_and_step
from lstmprof.breakdown.recurrent.network import Network, dtype_named
from lstmprof.breakdown.recurrent.profiles.recorded import Inputs, by_step
from lstmprof.events.schema import KERAS_LAYER
from lstmprof.events.table import EventTable
from lstmprof.implementations import LOOP

_RANGE = re.compile(re.escape(KERAS_LAYER) + r"(?P<cell>\w+) (?P<name>.+)")


def keras_calls(events: EventTable) -> Iterator[Call]:
    """Yield a call per call of a layer, and per loop of a cell in a step."""
    rows = np.flatnonzero(events.is_kind("range") & events.where_name(_RANGE.fullmatch))
    if not len(rows):
        return
    inputs, (codes, names) = Inputs(events), events.texts("name")
    for of_step in by_step(events, rows):
        layers: list[tuple[str, Network, list[int]]] = []  # name, sizes, ranges
        cells: dict[tuple[str, Network], list[int]] = {}
        for row in of_step.tolist():
            title, network = _RANGE.fullmatch(names[int(codes[row])]), _network(inputs, row)
            if title is None or network is None:
                continue
            name, network = title["name"], replace(network, cell=title["cell"].lower())
            first = name.replace("backward_", "forward_", 1)
            if network.time_steps is None:
                cells.setdefault((name, network), []).append(row)
            elif first != name and layers and layers[-1][:2] == (first, network):
                layers[-1][2].append(row)
            else:
                layers.append((name, network, [row]))
        at = rank_and_step(events, int(of_step[0]))
        for _, network, ranges in layers:
            yield _call(replace(network, directions=len(ranges)), ranges, *at)
        for (_, network), ranges in cells.items():
            yield _call(replace(network, time_steps=len(ranges)), ranges, *at)


def _network(inputs: Inputs, row: int) -> Network | None:
    """Return one direction of the layer; without ``time_steps`` for a cell."""
    shapes, dtypes = inputs.shapes(row), inputs.dtypes(row)
    if len(shapes) != 3 or not all(isinstance(shape, tuple) for shape in shapes):
        return None
    data, weight, recurrent = shapes
    return Network(
        time_steps=data[1] if len(data) == 3 else None,
        batch=data[0],
        inputs=weight[0],
        hidden=recurrent[0],
        layers=1,
        directions=1,
        dtype=dtype_named(dtypes[0]),
        packed=False,
    )


def _call(network: Network, ranges: list[int], rank: int | None, step: int | None) -> Call:
    time_steps = network.time_steps or 0
    return Call(
        form=LOOP,
        framework="tensorflow",
        op=f"{KERAS_LAYER}{(network.cell or '').upper()}",
        library=None,
        network=replace(
            network,
            rows=time_steps * (network.batch or 0),
            cells=time_steps * (network.directions or 0),
        ),
        rank=rank,
        step=step,
        rows=tuple(ranges),
    )
