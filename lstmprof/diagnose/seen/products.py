"""Half-precision matmuls on a device: their sizes, and their kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from lstmprof.diagnose.seen.lane import Lane
from lstmprof.events.groups import Groups
from lstmprof.events.launch_config import recorded_inputs
from lstmprof.events.table import NONE

#: Element types of 16 bits by the names of profiles.
_HALF = {
    **dict.fromkeys(("c10::Half", "half", "float16", "f16"), "float16"),
    **dict.fromkeys(("c10::BFloat16", "bfloat16", "bf16"), "bfloat16"),
}
_Shapes = list[Any]


@dataclass(frozen=True)
class Product:
    """Kernels of one name that an op launched: ``ns`` per mean step, ``count`` of them.

    ``sizes`` are rows, inner length and columns; for a recurrent layer its batch, inputs and hidden
    units. Empty if unknown.
    """

    kernel: str
    op: str
    dtype: str
    sizes: tuple[int, ...]
    ns: int
    count: float


def half_products(lane: Lane) -> tuple[Product, ...]:
    """Return matmuls with 16 bits per element, longest first; empty for a host."""
    events = lane.events
    gemm = events.is_one_of("category", "gemm") | events.is_one_of("family", "gemm")
    rows = np.flatnonzero(lane.activity & events.is_kind("kernel") & gemm)
    ops = lane.around(rows)
    rows, ops = rows[ops != NONE], ops[ops != NONE]
    dtypes, dtype_texts = events.texts("dtypes")
    shapes, shape_texts = events.texts("shapes")
    types = np.array([_half(text) is not None for text in dtype_texts] + [False], np.bool_)
    half = types[dtypes[ops]] & (dtypes[ops] != NONE)
    rows, ops = rows[half], ops[half]
    if not len(rows):
        return ()
    groups = Groups(lane.names[rows], lane.names[ops], dtypes[ops], shapes[ops])
    ns, sizes = groups.sums(lane.busy[rows]), groups.sizes()
    products = []
    for i, first in enumerate(groups.first.tolist()):
        op = str(lane.text(int(ops[first])))
        code = int(shapes[ops[first]])
        products.append(
            Product(
                kernel=str(lane.text(int(rows[first]))),
                op=op,
                dtype=str(_half(dtype_texts[int(dtypes[ops[first]])])),
                sizes=() if code == NONE else _sizes(op, shape_texts[code]),
                ns=round(int(ns[i]) / lane.steps),
                count=int(sizes[i]) / lane.steps,
            )
        )
    return tuple(sorted(products, key=lambda p: (-p.ns, p.kernel, p.op, p.sizes)))


def _half(dtypes: str) -> str | None:
    """Return the first element type of an op that has 16 bits, or None."""
    listed = recorded_inputs(dtypes)
    return next((_HALF[str(name)] for name in listed if str(name) in _HALF), None)


def _product(first: int) -> Callable[[_Shapes], tuple[int, ...]]:
    """Return the sizes of inputs (…, m, k) and (…, k, n), beginning with the input ``first``."""
    return lambda s: (s[first][-2], s[first][-1], s[first + 1][-1])


#: Sizes by op: PyTorch's matmuls with the inputs of native_functions.yaml, and cuDNN's layer, whose
#: input is (time, batch, inputs) and whose fifth argument is the state.
_SIZES: dict[str, Callable[[_Shapes], tuple[int, ...]]] = {
    **dict.fromkeys(("aten::mm", "aten::bmm", "aten::matmul"), _product(0)),
    **dict.fromkeys(("aten::addmm", "aten::baddbmm"), _product(1)),
    "aten::linear": lambda s: (prod(s[0][:-1]), s[0][-1], s[1][0]),
    "aten::_cudnn_rnn": lambda s: (s[4][-2], s[0][-1], s[4][-1]),
}


def _sizes(op: str, text: str) -> tuple[int, ...]:
    of_op = _SIZES.get(op)
    try:
        sizes = of_op(recorded_inputs(text)) if of_op else ()
    except (IndexError, TypeError):
        return ()
    return sizes if all(isinstance(size, int) for size in sizes) else ()
