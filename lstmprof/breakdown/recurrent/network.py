"""The sizes of recurrent networks, and the number of layers and directions.

A *unit* is one direction of one layer. The widths of the units' inputs show the stack: above a
bidirectional layer, inputs are twice as wide as the state of one direction.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

Shape = tuple[int, ...]

#: Cell (as named in the layer table and in ``cudnn_algorithm``) → number of gates.
GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
_DTYPES = {
    "float": "float32",
    "f32": "float32",
    "double": "float64",
    "f64": "float64",
    "half": "float16",
    "c10::half": "float16",
    "f16": "float16",
    "c10::bfloat16": "bfloat16",
    "bf16": "bfloat16",
}
_KNOWN_DTYPES = re.compile(r"(?:b?float|u?int)\d+")


@dataclass(frozen=True)
class Network:
    """The sizes of one recurrent layer, or of a stack of layers (None: unknown)."""

    cell: str | None = None
    time_steps: int | None = None
    batch: int | None = None
    inputs: int | None = None  # width of the first layer's input
    hidden: int | None = None  # per layer and direction
    layers: int | None = None
    directions: int | None = None
    dtype: str | None = None
    packed: bool | None = None
    projection: int | None = None
    rows: int | None = None  # time steps of all sequences
    cells: int | None = None  # time steps × layers × directions

    @property
    def units(self) -> int | None:
        if self.layers is None or self.directions is None:
            return None
        return self.layers * self.directions

    def flops(self, *, backward: bool) -> int | None:
        """Count the floating-point operations of the matmuls of one or both passes."""
        gates, width = GATES.get(self.cell or ""), self.projection or self.hidden
        if None in (gates, self.rows, self.hidden, self.inputs, self.units) or not gates:
            return None
        rows, hidden, inputs = self.rows or 0, self.hidden or 0, self.inputs or 0
        layers, directions, width = self.layers or 0, self.directions or 0, width or 0
        per_row = 2 * gates * hidden * directions
        first, above = per_row * rows * inputs, per_row * rows * width * directions
        back = per_row * rows * width
        into = first + (layers - 1) * above
        forward = into + layers * back
        count = forward
        if backward:
            # omit gradients of the inputs and of the initial state, which not every program needs
            to_inputs = (layers - 1) * above
            to_states = layers * per_row * max(rows - (self.batch or 0), 0) * width
            count += into + layers * back + to_inputs + to_states
        return count if count < 2**63 else None


def stack(
    units: Sequence[Network], *, side_by_side: bool = False, one_op: bool = False
) -> Network | None:
    """Join directions of layers into one network (None: no stack, or uncertain)."""
    first = units[0]
    alike = {(u.cell, u.time_steps, u.batch, u.hidden, u.dtype, u.projection) for u in units}
    if len(units) == 1:
        return first if first.units else replace(first, layers=1, directions=1)
    widths, output = [u.inputs for u in units], first.projection or first.hidden
    if len(alike) > 1 or output is None or None in widths:
        return None
    directions = _directions(widths, output, side_by_side, one_op)
    if directions is None:
        return None
    counts = [u.cells for u in units]
    return replace(
        first,
        layers=len(units) // directions,
        directions=directions,
        cells=None if None in counts else sum(c for c in counts if c is not None),
    )


def _directions(
    widths: Sequence[int | None], output: int, side_by_side: bool, one_op: bool
) -> int | None:
    """Return 1 or 2 if only this number of directions explains the input ``widths``."""
    pairs = list(zip(widths[::2], widths[1::2], strict=False))
    single = all(width == output for width in widths[1:]) and (one_op or widths[0] != output)
    double = len(widths) % 2 == 0 and all(a == b for a, b in pairs)
    double = double and all(a == 2 * output for a, _ in pairs[1:])
    if double and len(pairs) == 1:  # perhaps two calls of one layer
        if one_op:
            return None if single else 2
        return 2 if side_by_side else None
    return 1 if single else 2 if double else None


def dtype_named(name: str | None) -> str | None:
    """Return the dtype in NumPy's spelling: ``float16`` for ``c10::Half``."""
    if not name:
        return None
    lower = name.lower()
    return _DTYPES.get(lower) or (lower if _KNOWN_DTYPES.fullmatch(lower) else None)


def by_length(network: Network, units: int, length: int | None) -> Network:
    """Derive the cell, layers and directions from ``length``, the number of weights."""
    hidden, inputs = network.hidden, network.inputs
    if units == 1:
        network = replace(network, layers=1, directions=1)
    if hidden is None or inputs is None or length is None:
        return network
    # count a layer's weights as cuDNN does: two matrices and two biases per gate
    fitting = set()
    for cell, gates in ((c, g) for c, g in GATES.items() if network.cell in (None, c)):
        for directions in (1, 2):
            layers, rest = divmod(units, directions)
            width = inputs + (layers - 1) * directions * hidden
            if not rest and gates * hidden * directions * (width + layers * (hidden + 2)) == length:
                fitting.add((cell, layers, directions))
    kinds = {(layers, directions) for _, layers, directions in fitting}
    cells = {cell for cell, _, _ in fitting}
    if len(kinds) != 1:
        return network
    ((layers, directions),) = kinds
    kind = cells.pop() if len(cells) == 1 else network.cell
    return replace(network, cell=kind, layers=layers, directions=directions)
