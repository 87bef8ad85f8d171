"""Cells by the products and activations of one time step, whatever framework ran them.

An LSTM's four gates are products of x and of h with (inputs, 4·hidden) and (hidden, 4·hidden), of
both at once with (inputs + hidden, 4·hidden), or one of each a gate; a GRU has three. σ and tanh
see the gates of one unit, tanh(c) ``hidden`` of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lstmprof.breakdown.recurrent.network import GATES, Network, Shape

PRODUCT, SIGMOID, TANH, CELL, BOUNDARY = range(5)


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


def unit_of(ops: Sequence[Op]) -> Network:
    """What the ops of one cell say of one direction of one layer."""
    tanhs = [op for op in ops if op.sort == TANH]
    cell = "gru" if len(tanhs) == 1 else "lstm"
    widths = [op.data[-1] for op in tanhs if op.data]
    hidden = min(widths, default=None)
    weights = [op.weight for op in ops if op.sort == PRODUCT]
    first = next((op.data for op in tanhs if op.data and len(op.data) == 2), None)
    return Network(
        cell,
        batch=first[0] if first else None,
        inputs=None if hidden is None else read(weights, hidden, GATES[cell]),
        hidden=hidden,
        dtype=next((op.dtype for op in ops if op.sort == PRODUCT), None),
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


def unit_of_products(weights: Sequence[Shape]) -> Network:
    """What the products of a loop's time step say by themselves, where no activation is seen.

    Of one product a gate their number tells an LSTM from a GRU.
    """
    fitting = []
    for cell in ("lstm", "gru"):
        gates = GATES[cell]
        for hidden in sorted({inner for inner, _ in weights}):
            of_h = [w for w in weights if w[0] == hidden and w[1] in (hidden, gates * hidden)]
            of_x = [w for w in weights if w[0] != hidden and w[1] in (hidden, gates * hidden)]
            each = 1 if all(outer != hidden for _, outer in (*of_h, *of_x)) else gates
            apart = len(of_h) == each and len(of_x) == each and len({w[0] for w in of_x}) == 1
            alike = len(of_h) == 2 * each and not of_x
            if apart or alike:
                fitting.append((cell, hidden, of_x[0][0] if apart else hidden))
    if len(fitting) != 1:
        return Network()
    cell, hidden, inputs = fitting[0]
    return Network(cell, inputs=inputs, hidden=hidden)


def unit_of_both(weights: Sequence[Shape], hidden: int) -> Network:
    """An LSTM of ``hidden`` units by products of x and h at once: one, or one a gate."""
    inner, outer = weights[0]
    gated = outer * len(weights) == GATES["lstm"] * hidden
    if len(set(weights)) > 1 or not gated or inner <= hidden:
        return Network()
    return Network("lstm", inputs=inner - hidden, hidden=hidden)


def units_of_products(weights: Sequence[Shape]) -> tuple[Network, ...]:
    """The cells of a time step by its products, as few as there may be; empty where none fits."""
    for cells in range(1, len(weights) // 2 + 1):
        size, rest = divmod(len(weights), cells)
        if not rest:
            starts = range(0, len(weights), size)
            units = tuple(unit_of_products(weights[at : at + size]) for at in starts)
            if all(unit.hidden for unit in units):
                return units
    return ()
