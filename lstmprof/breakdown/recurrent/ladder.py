"""The ladder of recurrent layers: on which rung a layer stands, and what the next one is worth.

Appleyard et al., Optimizing Performance of Recurrent Neural Networks on GPUs (arXiv:1604.01946),
made LSTMs faster by an order of magnitude, one change after the other, and persistent kernels
(Diamos et al., ICML 2016) by one more; these are the rungs, in that order. That weights are
transposed before no profile tells, so that rung is left out. Below all stands the recurrence
itself: a time step cannot begin before the one before it has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lstmprof.breakdown.host import computing
from lstmprof.breakdown.recurrent.call import Call, of_work, owners
from lstmprof.breakdown.recurrent.network import GATES, Network
from lstmprof.events.intervals import Flags, Ints
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
#: A cell with combined gates has two products, with combined inputs one; some stand outside cells.
_TWO, _ONE = 2.5, 1.5
#: Elements a unit that the work between two products reads and writes: gates and the cell's state,
#: then both states.
_MOVED = {"lstm": 4 + 1 + 2, "gru": 6 + 1 + 1, "rnn_tanh": 1 + 1, "rnn_relu": 1 + 1}
_SIZES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}


@dataclass(frozen=True)
class Work:
    """What the forward pass of a call ran: products, and work element by element, and their time.

    ``cells`` is time steps × layers × directions. ``length_ns`` is the pass from end to end,
    ``streams`` those of its kernels (1 on a host). ``persistent``: a kernel for all time steps.
    """

    cells: int
    layers: int
    products: int
    pointwise: int
    products_ns: int
    pointwise_ns: int
    length_ns: int
    streams: int = 1
    persistent: bool = False

    @property
    def gap_ns(self) -> float:
        """The part of the pass in neither, an op or kernel."""
        rest = max(self.length_ns - self.products_ns - self.pointwise_ns, 0)
        return rest / max(self.products + self.pointwise, 1)

    @property
    def climbed(self) -> dict[str, bool]:
        """Whether each rung above the lowest is climbed, of those that say something here.

        Two streams are for the two products of a cell, the wavefront for several layers.
        """
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
    """The last rung before the first that is missing, and that one; None on the highest.

    ``saves_ns`` of the pass is what the missing rung would save at least: the time of the ops or
    kernels that it leaves out and of the gaps before them, the others as they are. None unknown.
    """

    rung: str
    missing: str | None
    saves_ns: int | None


def standing(work: Work, floor_ns: float | None = None) -> Standing | None:
    """Where a pass stands; None where it is not known of what it consists.

    ``floor_ns`` is that of the same pass.
    """
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
    """The recurrence alone: time steps × (product of the state + work element by element).

    At the peaks that were measured; layers one step apart, directions side by side, the weights
    never read again. ``backward``: of both passes, each with one such product. None unknown.
    """
    gates, moved = GATES.get(network.cell or ""), _MOVED.get(network.cell or "")
    size = _SIZES.get(network.dtype or "")
    known = (network.time_steps, network.batch, network.hidden, network.layers)
    if peaks is None or not gates or not moved or not size or None in known:
        return None
    rate, copied = peaks.gemm_flops_per_s, peaks.copy_bytes_per_s
    if not rate or not copied:
        return None
    steps, batch, hidden, layers = (value or 0 for value in known)
    product = 2 * batch * gates * hidden * (network.projection or hidden) / rate
    pointwise = batch * hidden * moved * size / copied
    return (steps + layers - 1) * (product + pointwise) * 1e9 * (2 if backward else 1)


def works(
    events: EventTable, calls: Sequence[Call], persistent: Sequence[bool]
) -> list[Work | None]:
    """The forward pass of each call; None where its cells are not known."""
    owner = owners(events, calls)[0]
    devices = events.is_kind(*ACTIVITY_KINDS)
    here = devices if devices.any() else computing(events)
    owner = of_work(events, owner) if devices.any() else owner
    gemm = events.is_one_of("category", "gemm") | events.is_one_of("family", "gemm")
    other = events.is_one_of("category", "pointwise") | events.is_one_of("family", "pointwise")
    sums = [_sums(events, owner, here & which, len(calls)) for which in (gemm, other)]
    lengths = _lengths(events, owner, here, len(calls))
    streams = _streams(events, owner, len(calls))
    return [
        _work(call, i, sums, lengths, persists, int(streams[i]))
        for i, (call, persists) in enumerate(zip(calls, persistent, strict=True))
    ]


def _work(
    call: Call,
    number: int,
    sums: list[tuple[Ints, Ints]],
    lengths: Ints,
    persistent: bool,
    streams: int,
) -> Work | None:
    network = call.network
    if network.cells is None or network.layers is None or not call.counted:
        return None
    (products, products_ns), (pointwise, pointwise_ns) = sums
    return Work(
        cells=network.cells,
        layers=network.layers,
        products=int(products[number]),
        pointwise=int(pointwise[number]),
        products_ns=int(products_ns[number]),
        pointwise_ns=int(pointwise_ns[number]),
        length_ns=int(lengths[number]),
        streams=streams,
        persistent=persistent,
    )


def _sums(events: EventTable, owner: Ints, which: Flags, count: int) -> tuple[Ints, Ints]:
    """Of each call how many of ``which``, and how long they take together."""
    rows = np.flatnonzero(which & (owner != NONE))
    ns = np.zeros(count, dtype=np.int64)
    np.add.at(ns, owner[rows], events.dur_ns[rows])
    return np.bincount(owner[rows], minlength=count), ns


def _lengths(events: EventTable, owner: Ints, which: Flags, count: int) -> Ints:
    rows = np.flatnonzero(which & (owner != NONE))
    start = np.full(count, np.iinfo(np.int64).max)
    end = np.zeros(count, dtype=np.int64)
    np.minimum.at(start, owner[rows], events.start_ns[rows])
    np.maximum.at(end, owner[rows], events.end_ns[rows])
    return np.asarray(np.maximum(end - start, 0), np.int64)


def _streams(events: EventTable, owner: Ints, count: int) -> Ints:
    """Of each call how many streams it ran on; 1 on a host."""
    stream = events.ints("stream", UNKNOWN)
    rows = np.flatnonzero((owner != NONE) & (stream != UNKNOWN))
    streams, of = np.unique(stream[rows], return_inverse=True)
    pairs = np.unique(owner[rows] * max(len(streams), 1) + of) // max(len(streams), 1)
    return np.asarray(np.maximum(np.bincount(pairs, minlength=count), 1), np.int64)
