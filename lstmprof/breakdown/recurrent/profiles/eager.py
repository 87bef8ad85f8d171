"""Cells and layers that JAX and Keras run op by op.

Without ``jax.jit``, JAX runs each op as a program, such as ``jit(dot)/dot_general``. Programs
overtake each other, so the number of tanhs shows the number of cells. ``lstmprof run`` marks the
layers of Keras on TensorFlow by ranges, such as ``keras.layers.LSTM lstm_1``, with the shapes of
the input, kernel and recurrent kernel.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lstmprof.breakdown.recurrent.call import Call, Loop, calls_of, in_words, rank_and_step
from lstmprof.breakdown.recurrent.cells import PRODUCT, SIGMOID, TANH
from lstmprof.breakdown.recurrent.network import GATES, Network, Shape, dtype_named
from lstmprof.breakdown.recurrent.profiles.recorded import Inputs, by_step, shape_at
from lstmprof.events.schema import ACTIVITY_KINDS, KERAS_LAYER
from lstmprof.events.table import NONE, UNKNOWN, EventTable
from lstmprof.implementations import LOOP

#: Smallest number of cells per step at which lstmprof assumes a recurrent network.
LEAST_CELLS = 3
_PRODUCT = re.compile(r"jit\(_?(?:dot|dot_general|matmul|einsum|tensordot|inner)\)/dot_general")
_TANH = re.compile(r"jit\(tanh\)/tanh")
_SIGMOID = re.compile(r"jit\((?:sigmoid|logistic)\)/\w+")
#: Cell → number of its tanh ops.
_TANHS = {"lstm": 2, "gru": 1}


@dataclass(frozen=True)
class _Program:
    """A matmul, σ or tanh that JAX ran as a program, with its operands' shapes."""

    row: int
    role: int
    data: Shape | None
    weight: Shape | None


def jax_calls(events: EventTable) -> Iterator[Call]:
    """Yield the recurrent calls that JAX ran op by op: one per step and state shape."""
    kinds = events.is_kind("op", *ACTIVITY_KINDS)
    roles = np.where(kinds, events.mapped("op_name", _role, NONE), NONE)
    rows = np.flatnonzero(roles != NONE)
    if not {PRODUCT, SIGMOID, TANH} <= set(roles[rows].tolist()):
        return
    inputs = Inputs(events)
    for step_rows in by_step(events, rows):
        programs = []
        for row in step_rows.tolist():
            shapes, role = inputs.shapes(row), int(roles[row])
            programs.append(_Program(row, role, shape_at(shapes, 0, 2), shape_at(shapes, 1, 2)))
        for loop in _loops(events, inputs, programs):
            yield from calls_of(events, "jax", [loop])


def _role(path: str) -> int:
    roles = ((PRODUCT, _PRODUCT), (SIGMOID, _SIGMOID), (TANH, _TANH))
    return next((role for role, pattern in roles if pattern.fullmatch(path)), NONE)


def _loops(events: EventTable, inputs: Inputs, programs: Sequence[_Program]) -> Iterator[Loop]:
    """Yield one loop per state shape, with all cells of one step that have this shape."""
    tanhs = [program for program in programs if program.role == TANH and program.data]
    last_ns = max((int(events.start_ns[tanh.row]) for tanh in tanhs), default=0)
    forward = [program for program in programs if events.start_ns[program.row] <= last_ns]
    if all(program.role != SIGMOID for program in forward):
        return
    for state, number in Counter(tanh.data for tanh in tanhs).items():
        assert state is not None
        for cell, each in _TANHS.items():
            cells, rest = divmod(number, each)
            products = list(_products(forward, state, GATES[cell]))
            units, count = _units(cell, state, cells, products)
            if not units or rest or cells < LEAST_CELLS:
                continue
            dtypes = inputs.dtypes(products[0].row)
            dtype = dtype_named(dtypes[0] if dtypes else None)
            own = {*products, *(p for p in forward if p.data == state and p.role != PRODUCT)}
            outputs = {(state[0], product.weight[1]) for product in products if product.weight}
            backward = [
                program.row
                for program in programs[len(forward) :]
                if program.role == PRODUCT and outputs & {program.data, program.weight}
            ]
            yield Loop(
                form=LOOP,
                op=in_words([PRODUCT] * (len(products) // count) + [TANH] * (number // count)),
                count=count,
                units=tuple(replace(unit, dtype=dtype) for unit in units),
                rows=np.array([program.row for program in forward if program in own]),
                backward=np.array(backward, dtype=np.int64),
                # uncertain if inputs are as wide as the state: a second layer looks like time steps
                # uncertain if a matmul reads two states: there may be two directions
                time_steps_certain=units[0].inputs != units[0].hidden
                and not any(p.weight and p.weight[0] == 2 * state[1] for p in set(programs) - own)
                and events.ints("step", UNKNOWN)[programs[0].row] != UNKNOWN,
                library="XLA",
            )
            break


def _products(forward: Sequence[_Program], state: Shape, gates: int) -> Iterator[_Program]:
    """Yield the matmuls that compute gates of a cell with this state shape."""
    batch, hidden = state
    for program in forward:
        if program.role == PRODUCT and program.data and program.weight:
            (rows, width), (inner, outer) = program.data, program.weight
            if (rows, width) == (batch, inner) and outer in range(
                hidden, gates * hidden + 1, hidden
            ):
                yield program


def _units(
    cell: str, state: Shape, cells: int, products: Sequence[_Program]
) -> tuple[tuple[Network, ...], int]:
    """Return the layers, from the first to the last, and the number of time steps."""
    batch, hidden = state
    outputs: Counter[int] = Counter()  # input width → number of gates computed from it
    for product in products:
        assert product.weight is not None
        outputs[product.weight[0]] += product.weight[1] // hidden
    whole, gates = GATES[cell] * cells, outputs.total()
    unit = Network(cell, batch=batch, hidden=hidden)
    widths = [width for width in outputs if width != hidden]
    if gates == whole and len(outputs) == 1 and widths and widths[0] > hidden:  # x and h joined
        return (replace(unit, inputs=widths[0] - hidden),), cells
    if gates != 2 * whole or len(widths) > 1:
        return (), 0
    # count layers with inputs as wide as the state as time steps of one layer
    if not widths:
        return (replace(unit, inputs=hidden),), cells
    count, rest = divmod(outputs[widths[0]], GATES[cell])
    if rest or not count or cells % count:
        return (), 0
    above = (replace(unit, inputs=hidden),) * (cells // count - 1)
    return (replace(unit, inputs=widths[0]), *above), count


_KERAS_RANGE = re.compile(re.escape(KERAS_LAYER) + r"(?P<cell>\w+) (?P<name>.+)")


def keras_calls(events: EventTable) -> Iterator[Call]:
    """Yield the calls of Keras's layers, and the loops of Keras's cells."""
    rows = np.flatnonzero(events.is_kind("range") & events.where_name(_KERAS_RANGE.fullmatch))
    if not len(rows):
        return
    inputs, (codes, names) = Inputs(events), events.texts("name")
    for step_rows in by_step(events, rows):
        layers: list[tuple[str, Network, list[int]]] = []  # name, sizes, rows of ranges
        cells: dict[tuple[str, Network], list[int]] = {}
        for row in step_rows.tolist():
            title, network = (
                _KERAS_RANGE.fullmatch(names[int(codes[row])]),
                _keras_layer(inputs, row),
            )
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
        at = rank_and_step(events, int(step_rows[0]))
        for _, network, ranges in layers:
            yield _keras_call(replace(network, directions=len(ranges)), ranges, *at)
        for (_, network), ranges in cells.items():
            yield _keras_call(replace(network, time_steps=len(ranges)), ranges, *at)


def _keras_layer(inputs: Inputs, row: int) -> Network | None:
    """Return the sizes of one direction of a Keras layer or cell."""
    shapes, dtypes = inputs.shapes(row), inputs.dtypes(row)
    if len(shapes) != 3 or not all(isinstance(shape, tuple) for shape in shapes):
        return None
    data, weight, recurrent = shapes
    return Network(
        # a layer reads (batch, time, features), a cell reads (batch, features)
        time_steps=data[1] if len(data) == 3 else None,
        batch=data[0],
        inputs=weight[0],
        hidden=recurrent[0],
        layers=1,
        directions=1,
        dtype=dtype_named(dtypes[0]),
        packed=False,
    )


def _keras_call(network: Network, ranges: list[int], rank: int | None, step: int | None) -> Call:
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
