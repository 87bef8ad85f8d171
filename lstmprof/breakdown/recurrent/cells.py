"""Recognise LSTM and GRU cells by the names, matmuls and activations of one time step.

The weights of an LSTM have one of these shapes (GRU: 3·hidden)::

    x and h separate   (inputs, 4·hidden) and (hidden, 4·hidden)
    x and h joined     (inputs + hidden, 4·hidden)
    one per gate       (inputs, hidden) and (hidden, hidden), or (inputs + hidden, hidden)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lstmprof.breakdown.recurrent.network import GATES, Network, Shape

PRODUCT, SIGMOID, TANH, CELL, BOUNDARY = range(5)

#: Cell -> pattern of names, the most specific cell first; ``rnn`` stands for any cell.
_NAMES = (
    ("lstm", re.compile(r"(?i:lstm)")),
    ("gru", re.compile(r"(?i:(?<![a-z])gru(?![a-z]))|GRU")),
    ("rnn", re.compile(r"(?i:(?<![a-z])rnn(?![a-z]))|RNN")),
)


def layer_named(path: str) -> str | None:
    """Return ``lstm``, ``gru`` or ``rnn`` (any cell) if ``path`` names such a layer."""
    return next((cell for cell, name in _NAMES if name.search(path)), None)


@dataclass(frozen=True)
class Op:
    """One op of a time step: a matmul (PRODUCT), SIGMOID, TANH, or a whole cell (CELL)."""

    role: int  # BOUNDARY: an op before or after a loop, such as ``stack``
    data: Shape | None = None
    weight: Shape | None = None  # (inputs, outputs)
    dtype: str | None = None


def cells_of(ops: Sequence[Op]) -> list[list[int]]:
    """Group ops into LSTM cells, as indices in ``ops``."""
    cells: list[list[int]] = []
    cell: list[int] = []
    for index, op in enumerate(ops):
        # begin a new cell at a matmul after the second tanh, which is the last op of an LSTM cell
        if op.role == PRODUCT and _is_whole([ops[at].role for at in cell]):
            cells.append(cell)
            cell = []
        cell.append(index)
    if {SIGMOID, TANH} <= {ops[at].role for at in cell}:
        cells.append(cell)
    return cells


def _is_whole(roles: Sequence[int]) -> bool:
    """Return whether these ops are a whole LSTM cell."""
    return SIGMOID in roles and roles.count(TANH) >= 2 and roles[-1] == TANH


def may_be_cell(ops: Sequence[Op]) -> bool:
    """Return whether ops may be an LSTM or GRU cell, not another gated layer."""
    roles = [op.role for op in ops]
    weights = [op.weight for op in ops if op.role == PRODUCT]
    widths = [op.data[-1] for op in ops if op.role == TANH and op.data]
    lstm = roles.count(TANH) > 1
    hidden = min(widths, default=0)
    if None in weights or not hidden:
        return lstm or roles.count(SIGMOID) > 1
    # require matmuls for all gates: a highway layer's matmuls are only twice as wide as the state
    outers = [weight[1] for weight in weights if weight and weight[1] % hidden == 0]
    return sum(outers) >= GATES["lstm" if lstm else "gru"] * hidden


def unit_of(ops: Sequence[Op], named: str | None = None) -> Network:
    """Derive the type and sizes of one direction of a layer from the ops of one cell."""
    tanhs = [op for op in ops if op.role == TANH]
    weights = [op.weight for op in ops if op.role == PRODUCT]
    dtype = next((op.dtype for op in ops if op.role == PRODUCT), None)
    cell = named if named in GATES else None
    if cell is None and tanhs and any(op.role == SIGMOID for op in ops):
        cell = "gru" if len(tanhs) == 1 else "lstm"
    widths = [op.data[-1] for op in tanhs if op.data]
    if not widths:
        recorded = [weight for weight in weights if weight]
        unit = (
            unit_of_products(recorded, cell or named)
            if len(recorded) == len(weights)
            else Network()
        )
        data = next((op.data for op in ops if op.role == PRODUCT and op.data), None)
        batch = data[0] if data and len(data) == 2 and unit.hidden else None
        return replace(unit, cell=unit.cell or cell, batch=batch, dtype=dtype)
    hidden = min(widths)
    first = next((op.data for op in tanhs if op.data and len(op.data) == 2), None)
    return Network(
        cell,
        batch=first[0] if first else None,
        inputs=input_width(weights, hidden, GATES[cell]) if cell else None,
        hidden=hidden,
        dtype=dtype,
    )


def input_width(weights: Sequence[Shape | None], hidden: int, gates: int) -> int | None:
    """Derive the width of a cell's input from the weights' shapes (inputs, outputs)."""
    recorded = [weight for weight in weights if weight]
    if len(recorded) < len(weights):
        return None
    inners = [inner for inner, outer in recorded if outer in (hidden, gates * hidden)]
    others = [inner for inner in inners if inner != hidden]
    recurrent = len(inners) - len(others)
    if others and recurrent:
        return others[0]
    if others:
        return others[0] - hidden if min(others) > hidden else None
    alone = 1 if {outer for _, outer in recorded} == {gates * hidden} else gates
    return hidden if recurrent == 2 * alone else None


def unit_of_products(weights: Sequence[Shape], named: str | None = None) -> Network:
    """Return the only LSTM or GRU cell that fits the weights of a time step."""
    fitting = []
    for cell in (named,) if named in GATES else ("lstm", "gru"):
        gates = GATES[cell]
        for hidden in sorted({inner for inner, _ in weights}):
            outers = {outer for _, outer in weights}
            parts = [(hidden, hidden), (hidden, 2 * hidden)]
            x_alone = [w for w in weights if w not in parts]
            # accept Haiku's GRU: one matmul for x, one for two gates of h, one for the third gate
            if cell == "gru" and len(weights) == 3 and sorted({*weights} - {*x_alone}) == parts:
                if x_alone[0][1] == gates * hidden:
                    fitting.append((cell, hidden, x_alone[0][0]))
                continue
            if outers not in ({hidden}, {gates * hidden}):
                continue
            h_weights = [w for w in weights if w[0] == hidden]
            x_weights = [w for w in weights if w[0] != hidden]
            per_input = gates if outers == {hidden} else 1
            apart = (
                len(h_weights) == per_input
                and len(x_weights) == per_input
                and len({w[0] for w in x_weights}) == 1
            )
            # require a cell's name if all weights are square: Linear layers may have such weights
            alike = (
                len(h_weights) == 2 * per_input
                and not x_weights
                and (per_input == 1 or named is not None)
            )
            if apart or alike:
                fitting.append((cell, hidden, x_weights[0][0] if apart else hidden))
    if len(fitting) != 1:
        return Network()
    cell, hidden, inputs = fitting[0]
    return Network(cell, inputs=inputs, hidden=hidden)


def unit_beside_tanh(weights: Sequence[Shape], hidden: int) -> Network:
    """Find a cell's type and sizes from its weights and the width of its tanh."""
    inner, outer = weights[0]
    gates = outer * len(weights) / hidden
    # accept a matmul of h alone: an earlier matmul may have multiplied x for all time steps
    if len(weights) == 1 and inner == hidden and gates in (GATES["lstm"], GATES["gru"]):
        return Network("lstm" if gates == GATES["lstm"] else "gru", hidden=hidden)
    if len(set(weights)) > 1 or gates != GATES["lstm"] or inner <= hidden:
        return Network()
    if len(weights) > 1 and outer != hidden:
        return Network()
    # accept one matmul of x and h, joined
    return Network("lstm", inputs=inner - hidden, hidden=hidden)


def units_of_products(weights: Sequence[Shape]) -> tuple[Network, ...]:
    """Return one cell for each pair of consecutive matmuls, if every pair is a cell."""
    if len(weights) % 2:
        return ()
    units = tuple(unit_of_products(weights[at : at + 2]) for at in range(0, len(weights), 2))
    return units if all(unit.hidden for unit in units) else ()
