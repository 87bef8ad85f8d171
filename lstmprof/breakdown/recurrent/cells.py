"""Cells by the names, products and activations of one time step, whatever framework ran them.

An LSTM's four gates are products of x and of h with (inputs, 4·hidden) and (hidden, 4·hidden), of
both at once with (inputs + hidden, 4·hidden), or one of each a gate; a GRU has three. σ and tanh
see the gates of one unit, tanh(c) ``hidden`` of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lstmprof.breakdown.recurrent.network import GATES, Network, Shape

PRODUCT, SIGMOID, TANH, CELL, BOUNDARY = range(5)

#: Names of scopes, layers and cells in any framework → the cell; the more precise name comes first.
#: ``rnn`` is a layer of any cell: Flax's RNN, Keras's RNN and SimpleRNN, tf.nn.dynamic_rnn.
_NAMES = (
    ("lstm", re.compile(r"(?i:lstm)")),
    ("gru", re.compile(r"(?i:(?<![a-z])gru(?![a-z]))|GRU")),
    ("rnn", re.compile(r"(?i:(?<![a-z])rnn(?![a-z]))|RNN")),
)


def layer_named(path: str) -> str | None:
    """Return ``lstm``, ``gru`` or ``rnn`` (any cell) if a name in ``path`` is of such a layer."""
    return next((cell for cell, name in _NAMES if name.search(path)), None)


@dataclass(frozen=True)
class Op:
    """What one op of a time step is to a cell, by ``sort``.

    ``data`` is what it reads, ``weight`` of a product (inner, outer).
    """

    sort: int
    data: Shape | None = None
    weight: Shape | None = None
    dtype: str | None = None


def cells_of(ops: Sequence[Op]) -> list[list[int]]:
    """Places in ``ops`` by cell: products and activations up to an LSTM's second tanh."""
    cells: list[list[int]] = []
    cell: list[int] = []
    for place, op in enumerate(ops):
        if op.sort == PRODUCT and _is_whole([ops[at].sort for at in cell]):
            cells.append(cell)
            cell = []
        cell.append(place)
    if {SIGMOID, TANH} <= {ops[at].sort for at in cell}:
        cells.append(cell)
    return cells


def _is_whole(sorts: Sequence[int]) -> bool:
    """Whether these ops are an LSTM's cell: both tanh are there, and end it."""
    return SIGMOID in sorts and sorts.count(TANH) >= 2 and sorts[-1] == TANH


def may_be_cell(ops: Sequence[Op]) -> bool:
    """Whether these ops may be an LSTM's or a GRU's cell, and no layer of a gated deep network.

    Its products make three or four gates as wide as its units, where their widths are recorded. A
    highway layer makes two; one sigmoid and one tanh alone may be either's.
    """
    sorts = [op.sort for op in ops]
    weights = [op.weight for op in ops if op.sort == PRODUCT]
    widths = [op.data[-1] for op in ops if op.sort == TANH and op.data]
    lstm = sorts.count(TANH) > 1
    hidden = min(widths, default=0)
    if None in weights or not hidden:
        return lstm or sorts.count(SIGMOID) > 1
    outers = [weight[1] for weight in weights if weight and weight[1] % hidden == 0]
    return sum(outers) >= GATES["lstm" if lstm else "gru"] * hidden


def unit_of(ops: Sequence[Op], named: str | None = None) -> Network:
    """Return one direction of a layer by the ops of one cell; ``named`` is from ``layer_named``."""
    tanhs = [op for op in ops if op.sort == TANH]
    weights = [op.weight for op in ops if op.sort == PRODUCT]
    dtype = next((op.dtype for op in ops if op.sort == PRODUCT), None)
    cell = named if named in GATES else None
    if cell is None and tanhs and any(op.sort == SIGMOID for op in ops):
        cell = "gru" if len(tanhs) == 1 else "lstm"
    widths = [op.data[-1] for op in tanhs if op.data]
    if not widths:
        known = [weight for weight in weights if weight]
        unit = unit_of_products(known, cell or named) if len(known) == len(weights) else Network()
        data = next((op.data for op in ops if op.sort == PRODUCT and op.data), None)
        batch = data[0] if data and len(data) == 2 and unit.hidden else None
        return replace(unit, cell=unit.cell or cell, batch=batch, dtype=dtype)
    hidden = min(widths)
    first = next((op.data for op in tanhs if op.data and len(op.data) == 2), None)
    return Network(
        cell,
        batch=first[0] if first else None,
        inputs=read(weights, hidden, GATES[cell]) if cell else None,
        hidden=hidden,
        dtype=dtype,
    )


def read(weights: Sequence[Shape | None], hidden: int, gates: int) -> int | None:
    """The width that a cell reads, by its products: of x and h apart, of both at once, per gate."""
    known = [weight for weight in weights if weight]
    if len(known) < len(weights):
        return None
    of_gates = [inner for inner, outer in known if outer in (hidden, gates * hidden)]
    others = [inner for inner in of_gates if inner != hidden]
    recurrent = len(of_gates) - len(others)
    if others and recurrent:
        return others[0]
    if others:
        return others[0] - hidden if min(others) > hidden else None
    alone = 1 if {outer for _, outer in known} == {gates * hidden} else gates
    return hidden if recurrent == 2 * alone else None


def unit_of_products(weights: Sequence[Shape], named: str | None = None) -> Network:
    """What the products of a loop's time step say by themselves, where no activation is seen.

    Gates in one product are wider than the units, and nothing reads all of them. Products of one
    gate each tell an LSTM from a GRU by their number; if all are alike, they may be a stack of
    equal Linear layers, and only a name tells the cell.
    """
    fitting = []
    for cell in (named,) if named in GATES else ("lstm", "gru"):
        gates = GATES[cell]
        for hidden in sorted({inner for inner, _ in weights}):
            outers = {outer for _, outer in weights}
            if outers not in ({hidden}, {gates * hidden}):
                continue
            of_h = [w for w in weights if w[0] == hidden]
            of_x = [w for w in weights if w[0] != hidden]
            each = gates if outers == {hidden} else 1
            apart = len(of_h) == each and len(of_x) == each and len({w[0] for w in of_x}) == 1
            alike = len(of_h) == 2 * each and not of_x and (each == 1 or named is not None)
            if apart or alike:
                fitting.append((cell, hidden, of_x[0][0] if apart else hidden))
    if len(fitting) != 1:
        return Network()
    cell, hidden, inputs = fitting[0]
    return Network(cell, inputs=inputs, hidden=hidden)


def unit_beside_tanh(weights: Sequence[Shape], hidden: int) -> Network:
    """A cell of ``hidden`` units, as wide as a tanh's input, by products of both x and h or of h.

    An LSTM's x and h together in one product, or in one per gate; or an LSTM's or a GRU's h in one
    product of all gates, when the inputs of all time steps were multiplied before the loop.
    """
    inner, outer = weights[0]
    gates = outer * len(weights) / hidden
    if len(weights) == 1 and inner == hidden and gates in (GATES["lstm"], GATES["gru"]):
        return Network("lstm" if gates == GATES["lstm"] else "gru", hidden=hidden)
    if len(set(weights)) > 1 or gates != GATES["lstm"] or inner <= hidden:
        return Network()
    if len(weights) > 1 and outer != hidden:
        return Network()
    return Network("lstm", inputs=inner - hidden, hidden=hidden)


def units_of_products(weights: Sequence[Shape]) -> tuple[Network, ...]:
    """The cells of a time step by two products each, of all gates; empty if they make no gates.

    One product per gate is not enough where no loop is seen: a series of Linear layers looks alike.
    """
    if len(weights) % 2:
        return ()
    units = tuple(unit_of_products(weights[at : at + 2]) for at in range(0, len(weights), 2))
    return units if all(unit.hidden for unit in units) else ()
