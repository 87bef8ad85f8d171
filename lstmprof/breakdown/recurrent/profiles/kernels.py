"""Recurrent layers of which a profile has kernels alone: Nsight Systems, nvprof, a GPU-only trace.

Kernels of cuDNN's and of PyTorch's fused cell say by their names what they are, and which pass they
are of (``_fp``, ``_bp``; ``forward``, ``backward``). A step is one row: where one call ends and the
next begins they do not say, nor the network. PyTorch launches its fused kernel once a cell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lstmprof.breakdown.recurrent.call import Call
from lstmprof.breakdown.recurrent.network import Network
from lstmprof.events.groups import Groups
from lstmprof.events.intervals import Ints
from lstmprof.events.table import NONE, UNKNOWN, EventTable
from lstmprof.implementations import CELL_OP, LAYER_OP


@dataclass(frozen=True)
class _Family:
    """Kernels of one library, by how their names begin; ``a_cell``: one is one cell."""

    form: str
    framework: str
    library: str | None
    pattern: re.Pattern[str]
    a_cell: bool = False


_FAMILIES = (
    _Family(
        LAYER_OP,
        "cudnn",
        "cuDNN",
        re.compile(
            r"\b(?:(?:LSTM|GRU|RNN)_elementWise|elemWiseRNNcell|RNN_(?:block)?[pP]ersist)\w*"
        ),
    ),
    _Family(
        CELL_OP,
        "torch",
        None,
        re.compile(r"\b(?:lstm|gru)_cell_(?:forward|backward)"),
        a_cell=True,
    ),
)
_CELL = re.compile(r"(?i)lstm|gru")
_BACKWARD = re.compile(r"(?i)_bp|backward")


def kernel_calls(events: EventTable) -> Iterator[Call]:
    """A call of each step's recurrent kernels that no op of the profile issued."""
    kernels = events.is_kind("kernel") & (events.rows_named("op_id") == NONE)
    for family in _FAMILIES:
        named = events.where_name(family.pattern.search)
        rows = np.flatnonzero(kernels & named)
        keys = (events.ints(name, UNKNOWN)[rows] for name in ("rank", "device", "step"))
        for members in Groups(*keys).members() if len(rows) else ():
            yield from _call(events, family, rows[members])


def _call(events: EventTable, family: _Family, rows: Ints) -> Iterator[Call]:
    """Those of one step on one device; none without a forward pass."""
    codes, texts = events.texts("name")
    names = [texts[code] for code in codes[rows].tolist()]
    back = np.array([bool(_BACKWARD.search(name)) for name in names])
    if back.all():
        return
    first = names[int(np.flatnonzero(~back)[0])]
    cells = {cell[0].lower() for name in names if (cell := _CELL.search(name))}
    short = family.pattern.search(first)
    rank, step = (events.ints(name, UNKNOWN)[rows[0]] for name in ("rank", "step"))
    yield Call(
        form=family.form,
        framework=family.framework,
        op=short[0] if short else first,
        library=family.library,
        network=Network(
            cell=cells.pop() if len(cells) == 1 else None,
            cells=int((~back).sum()) if family.a_cell else None,
        ),
        rank=None if rank == UNKNOWN else int(rank),
        step=None if step == UNKNOWN else int(step),
        rows=tuple(rows[~back].tolist()),
        backward=tuple(rows[back].tolist()),
        counted=False,
    )
