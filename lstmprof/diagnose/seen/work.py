"""Find copies, fills, changing shapes, embedding tables, small kernels and slow matmuls.

Denormals (numbers close to zero) make a CPU many times slower. If values shrink over the time
steps, denormals slow the matmuls in the same part of every step.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from lstmprof.breakdown.recurrent.network import dtype_named
from lstmprof.diagnose.seen.lane import Fact, Lane, median
from lstmprof.events import DeviceFacts, launch_config
from lstmprof.events.groups import Groups
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.launch_config import recorded_inputs
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import NONE

_EMPTY_OP = re.compile(r"aten::(?:new_)?empty(?:_like|_strided)?$")
#: PyTorch's ops that copy by calling each other.
_ARRANGING = ("aten::copy_", "aten::clone", "aten::contiguous", "aten::reshape", "aten::flatten")
_WORK = ("rnn", "gemm", "conv", "attention", "embedding")
_LOOK_UP, _TABLE_GRADIENT = "aten::embedding", "aten::embedding_dense_backward"
#: Smallest share of the elements of a tensor list that the embedding table contains, at which
#: lstmprof treats an op on the list as an op on the table.
_MOST_OF_LIST = 0.9


@dataclass(frozen=True)
class DenseTable:
    """An embedding table whose gradient is as large as the table."""

    rows: int
    looked_up: float  # look-ups per step
    ns: int  # per step, of ops over the whole table


def moved(lane: Lane) -> tuple[Fact, ...]:
    """Return copies, grouped by their outermost copying op (``aten::contiguous``)."""
    rows = np.flatnonzero(lane.copies)
    within = lane.around(rows)
    arranges = lane.events.is_one_of("name", *_ARRANGING)
    for _ in _ARRANGING:
        outer = np.where(within != NONE, lane.around(within), NONE)
        within = np.where((outer != NONE) & arranges[outer], outer, within)
    return lane.by_name(rows, lane.busy, within)


def filled(lane: Lane) -> tuple[Fact, ...]:
    """Return the ops that fill new memory (``torch.zeros``)."""
    rows = np.flatnonzero(lane.events.is_one_of("name", "aten::fill_") & lane.here)
    within = lane.around(rows)
    allocates = lane.events.is_kind("op") & lane.events.where_name(_EMPTY_OP.match)
    chosen = (within != NONE) & allocates[within]
    spent_ns = lane.busy if lane.events.is_kind(*ACTIVITY_KINDS)[rows].all() else lane.spent_ns
    return lane.by_name(rows[chosen], spent_ns, within[chosen])


def shapes(lane: Lane) -> tuple[str, tuple[str, ...]] | None:
    """Return the first matmul or layer whose shapes differ between steps."""
    if not lane.marked:
        return None
    events = lane.events
    codes, texts = events.texts("shapes")
    works = lane.here & events.is_kind("op") & events.is_one_of("category", *_WORK)
    rows = np.flatnonzero(works & (codes != NONE) & (lane.step >= 0))
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    for members in sorted(Groups(lane.names[rows]).members(), key=lambda places: places[0]):
        calls = rows[members]
        steps = [sorted(codes[calls[m]].tolist()) for m in Groups(lane.step[calls]).members()]
        alike = set(steps[0]).intersection(*steps)
        if len(steps) == lane.steps and len({len(step) for step in steps}) == 1:
            others = [c for c in dict.fromkeys(codes[calls].tolist()) if c not in alike]
            if others and any(step != steps[0] for step in steps):
                return str(lane.text(int(calls[0]))), tuple(texts[code] for code in others)
    return None


def dense_tables(lane: Lane) -> tuple[DenseTable, ...]:
    """Return the embedding tables with dense gradients, the slowest first."""
    events, ops = lane.events, lane.here & lane.events.is_kind("op")
    if not (ops & events.is_one_of("name", _TABLE_GRADIENT)).any():
        return ()
    codes, texts = events.texts("shapes")
    inputs = [recorded_inputs(text) for text in texts]
    looks_up = ops & events.is_one_of("name", _LOOK_UP) & (codes != NONE)
    looked_up: dict[tuple[int, int], int] = {}
    for code, times in zip(*np.unique(codes[looks_up], return_counts=True), strict=True):
        table, ids = (*inputs[code], None, None)[:2]
        if _is_shape(table, 2) and _is_shape(ids):
            rows, width = table
            key = rows, width
            looked_up[key] = looked_up.get(key, 0) + int(times) * prod(ids)
    multiplies = ops & events.is_one_of("category", "gemm")
    sized = multiplies & (codes != NONE)
    multiplied = [entry for code in np.unique(codes[sized]) for entry in inputs[code]]
    if (multiplies & ~sized).any():
        return _table_by_time(lane, looked_up, multiplies, inputs)
    tables = []
    for (rows, width), number in looked_up.items():
        # skip a table that a matmul also reads, because the table's gradient is then always dense
        if [rows, width] in multiplied or [width, rows] in multiplied:
            continue
        whole = np.array([_is_over([rows, width], entries) for entries in inputs] + [False])
        forward = lane.inside(np.asarray(looks_up, np.bool_)) != NONE
        roots = ops & whole[codes] & ~forward
        if len(looked_up) == 1:
            roots |= ops & events.is_one_of("name", _TABLE_GRADIENT)
        ns = sum(fact.ns for fact in lane.spent_in(np.asarray(roots, np.bool_)))
        tables.append(DenseTable(rows, number / lane.steps, ns))
    return tuple(sorted(tables, key=lambda table: -table.ns))


def _table_by_time(
    lane: Lane, looked_up: Mapping[tuple[int, int], int], multiplies: Flags, inputs: list[Any]
) -> tuple[DenseTable, ...]:
    """Find the only embedding table by durations if some matmuls have no shapes."""
    events, ops = lane.events, lane.here & lane.events.is_kind("op")
    gradients = np.asarray(ops & events.is_one_of("name", _TABLE_GRADIENT), np.bool_)
    fills = ops & events.is_one_of("name", "aten::fill_") & (lane.inside(gradients) != NONE)
    if len(looked_up) != 1 or not fills.any():
        return ()
    (((rows, width), number),) = looked_up.items()
    # assume that an op on the whole table takes at least half as long as zeroing the gradient
    least_ns = median(lane.spent_ns[fills]) / 2
    large = [shape for shape in _shapes_in(inputs) if 2 * prod(shape) >= rows * width]
    # give up if a long matmul may read the table, or if another tensor is about as large
    if (lane.spent_ns[multiplies] >= least_ns).any() or any(s != [rows, width] for s in large):
        return ()
    updates = ops & events.is_one_of("category", "optimizer") & (lane.spent_ns >= least_ns)
    ns = sum(fact.ns for fact in lane.spent_in(np.asarray(updates | gradients, np.bool_)))
    return (DenseTable(rows, number / lane.steps, ns),)


def _shapes_in(entries: Any) -> Iterator[list[int]]:
    if _is_shape(entries):
        yield entries
    elif isinstance(entries, list):
        for entry in entries:
            yield from _shapes_in(entry)


def _is_shape(entry: Any, dimensions: int | None = None) -> bool:
    sizes = isinstance(entry, list) and all(isinstance(size, int) for size in entry)
    return sizes and (dimensions is None or len(entry) == dimensions)


def _is_over(table: list[int], entries: list[Any]) -> bool:
    """Return whether an op works on a whole table, alone or in a list of tensors."""
    first = entries[0] if entries else None
    if first == table:
        return True
    if not isinstance(first, list) or not first or not all(map(_is_shape, first)):
        return False
    return table in first and prod(table) >= _MOST_OF_LIST * sum(map(prod, first))


_Shapes = list[Any]


@dataclass(frozen=True)
class Product:
    """Matmul kernels of one name, launched by ops of one name, shape and type."""

    kernel: str
    op: str
    dtype: str
    sizes: tuple[int, ...]  # (rows, inner, columns), or (batch, inputs, hidden) of a layer
    ns: int  # per step


def half_products(lane: Lane) -> tuple[Product, ...]:
    """Return the matmul kernels with 16-bit elements, most time first."""
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
    ns = groups.sums(lane.busy[rows])
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
            )
        )
    return tuple(sorted(products, key=lambda p: (-p.ns, p.kernel, p.op, p.sizes)))


def _half(dtypes: str) -> str | None:
    """Return the first 16-bit element type among an op's inputs."""
    names = (dtype_named(str(name)) for name in recorded_inputs(dtypes))
    return next((name for name in names if name in ("float16", "bfloat16")), None)


def _product(first: int) -> Callable[[_Shapes], tuple[int, ...]]:
    """Return a function: input shapes → (m, k, n), where input ``first`` is (…, m, k)."""
    return lambda s: (s[first][-2], s[first][-1], s[first + 1][-1])


#: Op → function that reads the op's sizes from its input shapes (native_functions.yaml). The first
#: input of cuDNN's op is (time, batch, inputs), the fifth is the state.
_SIZES: dict[str, Callable[[_Shapes], tuple[int, ...]]] = {
    **dict.fromkeys(("aten::mm", "aten::bmm", "aten::matmul"), _product(0)),
    **dict.fromkeys(("aten::addmm", "aten::baddbmm"), _product(1)),
    "aten::linear": lambda s: (prod(s[0][:-1]), s[0][-1], s[1][0]),
    "aten::_cudnn_rnn": lambda s: (s[4][-2], s[0][-1], s[4][-1]),
}


def _sizes(op: str, text: str) -> tuple[int, ...]:
    read = _SIZES.get(op)
    try:
        sizes = read(recorded_inputs(text)) if read else ()
    except (IndexError, TypeError):
        return ()
    return sizes if all(isinstance(size, int) for size in sizes) else ()


_PERSISTENT = "persistent"


@dataclass(frozen=True)
class Small:
    """Kernels with fewer thread blocks than the GPU has multiprocessors."""

    category: str
    blocks: int
    multiprocessors: int
    ns: int  # per step


def small(lane: Lane, facts: Mapping[str, DeviceFacts]) -> tuple[Small, ...]:
    """Return small kernels by number of blocks and category, fewest blocks first."""
    multiprocessors = (facts.get(str(lane.device)) or DeviceFacts()).multiprocessors
    if not multiprocessors:
        return ()
    events = lane.events
    configs, written = events.texts("launch_config")
    categories, names = events.texts("category")
    blocks = np.array([*map(_blocks, written), 0])[configs]
    fewer = (blocks > 0) & (blocks < multiprocessors) & (categories != NONE) & (lane.busy > 0)
    # omit persistent kernels, whose number of blocks says nothing about the work
    chosen = lane.activity & events.is_kind("kernel") & ~events.is_one_of("family", _PERSISTENT)
    rows = np.flatnonzero(chosen & fewer)
    groups = Groups(blocks[rows], categories[rows])
    first, ns = rows[groups.first], groups.sums(lane.busy[rows])
    kernels = [
        Small(names[categories[row]], int(blocks[row]), multiprocessors, round(spent / lane.steps))
        for row, spent in zip(first.tolist(), ns.tolist(), strict=True)
    ]
    return tuple(sorted(kernels, key=lambda s: (s.blocks, s.category)))


def _blocks(written: str) -> int:
    """Return a kernel's number of thread blocks, 0 if unknown."""
    config = launch_config.read(written)
    blocks = math.prod(config.grid) if config and config.grid else 0
    return min(blocks, np.iinfo(np.int64).max)


#: Number of successive groups into which the matmuls of one shape in a step are divided.
_RUNS = 10
#: Smallest number of matmuls per group, so that one disturbed matmul does not change the median.
_EACH = 5
#: Smallest ratio of the slowest to the fastest group of matmuls at which lstmprof reports
#: denormals. Ratios up to 100 were measured.
SLOWER = 8
#: Smallest ratio of a layer's backward to forward time, and smallest forward time in ns, at which
#: lstmprof reports denormals. Ratios of 15 to 27 were measured.
_BACKWARD, _LONG_NS = 8, 10_000_000
_FORWARD_OP = re.compile(r"aten::mkldnn_rnn_layer$")
_BACKWARD_OP = re.compile(r"aten::mkldnn_rnn_layer_backward$")


@dataclass(frozen=True)
class Slow:
    """Calls of one op that denormals (numbers close to zero) slow down."""

    name: str
    ns: int  # lost per step
    fast_ns: int  # usual duration
    slow_ns: int  # usual duration
    whole: bool = False  # slow: backward passes of a layer, fast: its forward passes


def slowing(lane: Lane) -> Slow | None:
    """Return the op that loses most time to denormals, with the loss of all such ops."""
    if lane.device is not None or not lane.marked or lane.steps < 2:
        return None
    slow = [*_slow_products(lane), *_slow_layers(lane)]
    most = max(slow, key=lambda calls: calls.ns, default=None)
    return most and replace(most, ns=sum(calls.ns for calls in slow))


def _slow_products(lane: Lane) -> list[Slow]:
    events = lane.events
    shapes = events.texts("shapes")[0]
    works = lane.here & events.is_kind("op") & events.is_one_of("category", "gemm")
    rows = np.flatnonzero(works & (shapes != NONE) & (lane.step >= 0) & (lane.busy > 0))
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    groups = [rows[places] for places in Groups(lane.names[rows], shapes[rows]).members()]
    return [slow for group in groups if (slow := _slow_at_one_place(lane, group)) is not None]


def _slow_at_one_place(lane: Lane, rows: Ints) -> Slow | None:
    """Find matmuls that are slow in the same part of every step."""
    steps = [rows[places] for places in Groups(lane.step[rows]).members()]
    if len(steps) < lane.steps or min(map(len, steps)) < _RUNS * _EACH:
        return None
    dur = lane.events.dur_ns
    medians = np.array(
        [[np.median(dur[run]) for run in np.array_split(step, _RUNS)] for step in steps]
    )
    fast, slow = medians.min(axis=1), medians.max(axis=1)
    place = medians.argmax(axis=1)
    # other processes, clocks and caches do not slow the same part of every step
    if (slow < SLOWER * fast).any() or place.max() - place.min() > 1:
        return None
    lost = sum(int(np.maximum(dur[s] - f, 0).sum()) for s, f in zip(steps, fast, strict=True))
    middle = (round(float(np.median(fast))), round(float(np.median(slow))))
    return Slow(str(lane.text(int(rows[0]))), round(lost / lane.steps), *middle)


def _slow_layers(lane: Lane) -> list[Slow]:
    forward, backward = (
        lane.events.dur_ns[lane.here & lane.events.where_name(pattern.match)]
        for pattern in (_FORWARD_OP, _BACKWARD_OP)
    )
    if not len(forward) or not len(backward) or forward.min() < _LONG_NS:
        return []
    if len(forward) != len(backward) or backward.min() < _BACKWARD * forward.max():
        return []
    fast, slow = int(np.median(forward)), int(np.median(backward))
    lost = int(backward.sum()) - 2 * int(forward.sum())
    name = _BACKWARD_OP.pattern.rstrip("$")
    return [Slow(name, round(lost / lane.steps), fast, slow, whole=True)]
