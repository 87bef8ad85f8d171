"""The optimizations ("rungs") of a recurrent layer, and the time that the next rung would save.

Source of the rungs and their order: Appleyard et al., Optimizing Performance of Recurrent Neural
Networks on GPUs (arXiv:1604.01946), without the transposition of weights, which no profile shows.
Source of persistent kernels: Diamos et al., ICML 2016.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lstmprof.breakdown.attribution.host import computing
from lstmprof.breakdown.recurrent.call import Call
from lstmprof.breakdown.recurrent.network import GATES, Network
from lstmprof.events.groups import Groups
from lstmprof.events.intervals import Ints
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import NONE, UNKNOWN, EventTable
from lstmprof.runs.fields import Peaks

(
    SEPARATE_PRODUCTS,
    COMBINED_GATES,
    TWO_STREAMS,
    FUSED_POINTWISE,
    COMBINED_INPUTS,
    WAVEFRONT,
    PERSISTENT,
) = RUNGS = (
    "separate products",
    "combined gates",
    "products on two streams",
    "fused pointwise",
    "combined inputs",
    "wavefront over layers",
    "persistent kernel",
)
#: Largest number of matmuls per cell if the gates are combined (2), and if x and h are combined,
#: too (1). Both constants are 0.5 larger, to allow for other matmuls.
_TWO, _ONE = 2.5, 1.5
#: Cell → elements per hidden unit that elementwise work moves: gates read + states read + states
#: written.
_MOVED = {"lstm": 4 + 1 + 2, "gru": 6 + 1 + 1, "rnn_tanh": 1 + 1, "rnn_relu": 1 + 1}
_SIZES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}


@dataclass(frozen=True)
class Work:
    """Number and time of the matmuls and elementwise ops in a call's forward pass."""

    cells: int  # time steps × layers × directions
    layers: int
    products: int
    pointwise: int
    products_ns: int
    pointwise_ns: int
    length_ns: int
    streams: int = 1
    persistent: bool = False  # one kernel computes all time steps

    @property
    def gap_ns(self) -> float:
        """Return the mean gap between ops or kernels."""
        rest = max(self.length_ns - self.products_ns - self.pointwise_ns, 0)
        return rest / max(self.products + self.pointwise, 1)

    @property
    def climbed(self) -> dict[str, bool]:
        """Return which optimizations the layer has, such as ``{"combined gates": True, …}``."""
        each = self.products / self.cells
        rungs = {COMBINED_GATES: each <= _TWO}
        if each > _ONE:
            rungs[TWO_STREAMS] = self.streams > 1
        rungs[FUSED_POINTWISE] = self.pointwise / self.cells <= _ONE
        rungs[COMBINED_INPUTS] = each <= _ONE
        if self.layers > 1:
            rungs[WAVEFRONT] = self.streams > 1
        return {**rungs, PERSISTENT: self.persistent}


@dataclass(frozen=True)
class Standing:
    """The first optimization that a forward pass lacks, and the optimization before."""

    rung: str
    missing: str | None
    saves_ns: int | None  # saving per pass by ``missing``: at most for PERSISTENT, else at least


def standing(work: Work, floor_ns: float | None = None) -> Standing | None:
    if work.persistent:
        return Standing(PERSISTENT, None, None)
    if not work.cells or not work.products or not work.pointwise:
        return None
    climbed = work.climbed
    missing = next(name for name, done in climbed.items() if not done)
    below = list(climbed)[: list(climbed).index(missing)]
    rung = below[-1] if below else SEPARATE_PRODUCTS
    return Standing(rung, missing, _saves(work, missing, floor_ns))


def _saves(work: Work, missing: str, floor_ns: float | None) -> int | None:
    fewer = {
        COMBINED_GATES: work.products - 2 * work.cells,
        FUSED_POINTWISE: work.pointwise - work.cells,
        COMBINED_INPUTS: work.products - work.cells,
    }
    if missing == PERSISTENT:
        return None if floor_ns is None else max(round(work.length_ns - floor_ns), 0)
    if missing not in fewer:
        return None
    saved = fewer[missing] * work.gap_ns
    if missing == FUSED_POINTWISE:
        saved += work.pointwise_ns * (1 - work.cells / work.pointwise)
    return round(saved)


def floor_ns(network: Network, peaks: Peaks | None, *, backward: bool = False) -> float | None:
    """Return the least time of one or both passes at the device's measured peak rates."""
    gates, moved = GATES.get(network.cell or ""), _MOVED.get(network.cell or "")
    size = _SIZES.get(network.dtype or "")
    sizes = (network.time_steps, network.batch, network.hidden, network.layers)
    if peaks is None or not gates or not moved or not size or None in sizes:
        return None
    rate, copied = peaks.gemm_flops_per_s, peaks.copy_bytes_per_s
    if not rate or not copied:
        return None
    steps, batch, hidden, layers = (value or 0 for value in sizes)
    product = 2 * batch * gates * hidden * (network.projection or hidden) / rate
    pointwise = batch * hidden * moved * size / copied
    # run directions in parallel, and each layer one time step behind the layer below
    return (steps + layers - 1) * (product + pointwise) * 1e9 * (2 if backward else 1)


def works(
    events: EventTable, calls: Sequence[Call], forward: Ints, persistent: Sequence[bool]
) -> list[Work | None]:
    """Count and time the matmuls and elementwise ops of each forward pass."""
    if not events.is_kind(*ACTIVITY_KINDS).any():
        forward = np.where(computing(events), forward, NONE)
    gemm = events.is_one_of("category", "gemm") | events.is_one_of("family", "gemm")
    elementwise = events.is_one_of("category", "pointwise") | events.is_one_of(
        "family", "pointwise"
    )
    start, end, dur, stream = (
        *(events.start_ns, events.end_ns, events.dur_ns),
        events.ints("stream", UNKNOWN),
    )
    rows = np.flatnonzero(forward != NONE)
    groups = Groups(forward[rows])
    members = {int(forward[rows[m[0]]]): rows[m] for m in (groups.members() if len(rows) else ())}
    result: list[Work | None] = []
    for number, (call, persists) in enumerate(zip(calls, persistent, strict=True)):
        network, own = call.network, members.get(number, rows[:0])
        if network.cells is None or network.layers is None or not call.counted:
            result.append(None)
            continue
        products, pointwise = own[gemm[own]], own[elementwise[own]]
        result.append(
            Work(
                cells=network.cells,
                layers=network.layers,
                products=len(products),
                pointwise=len(pointwise),
                products_ns=int(dur[products].sum()),
                pointwise_ns=int(dur[pointwise].sum()),
                length_ns=int(end[own].max() - start[own].min()) if len(own) else 0,
                streams=max(len(np.unique(stream[own][stream[own] != UNKNOWN])), 1),
                persistent=persists,
            )
        )
    return result
