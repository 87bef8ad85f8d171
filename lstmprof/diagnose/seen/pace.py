"""Matmuls of one shape that are much slower at one place of every step, because of denormals.

If values shrink from time step to time step, they become denormal and then zero. A CPU computes
with denormal numbers many times slower than with others, including zero. So matmuls of one shape
are slow where the values are denormal, at the same place of every step. Other processes, clocks and
caches do not slow one place of every step so much. If a library computes a whole layer in one op,
only its backward pass is visibly slow.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from lstmprof.diagnose.seen.lane import Lane
from lstmprof.events.groups import Groups
from lstmprof.events.intervals import Ints
from lstmprof.events.table import NONE

#: Number of equal groups into which a step's matmuls of one shape are divided.
_RUNS = 10
#: Least number of matmuls per group, so that one disturbed matmul does not change its median.
_EACH = 5
#: The slowest group must have this many times the median of the fastest; the authors measured up to
#: 100.
SLOWER = 8
#: A backward pass does twice the work of the forward pass; with denormals it took 15 to 27 times as
#: long in tests. Forward passes must have this length, because shorter ones may have had the CPU
#: while the backward pass did not.
_BACKWARD, _LONG_NS = 8, 10_000_000
_FORWARD_OP = re.compile(r"aten::mkldnn_rnn_layer$")
_BACKWARD_OP = re.compile(r"aten::mkldnn_rnn_layer_backward$")


@dataclass(frozen=True)
class Slow:
    """Calls of one name that take ``fast_ns`` each at some places and ``slow_ns`` at others.

    ``ns`` is the time per mean step that these and similar calls take above the fast ones.
    ``whole``: backward passes of whole layers, compared with forward passes.
    """

    name: str
    ns: int
    fast_ns: int
    slow_ns: int
    whole: bool = False


def slowing(lane: Lane) -> Slow | None:
    """Return the matmuls, or the layer, that lose most time in this way; only on a host."""
    if lane.device is not None or not lane.marked or lane.steps < 2:
        return None
    slow = [*_products(lane), *_layers(lane)]
    most = max(slow, key=lambda one: one.ns, default=None)
    return most and replace(most, ns=sum(one.ns for one in slow))


def _products(lane: Lane) -> list[Slow]:
    events = lane.events
    shapes = events.texts("shapes")[0]
    works = lane.here & events.is_kind("op") & events.is_one_of("category", "gemm")
    rows = np.flatnonzero(works & (shapes != NONE) & (lane.step >= 0) & (lane.busy > 0))
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    groups = [rows[places] for places in Groups(lane.names[rows], shapes[rows]).members()]
    return [slow for group in groups if (slow := _slow_at_one_place(lane, group)) is not None]


def _slow_at_one_place(lane: Lane, rows: Ints) -> Slow | None:
    """Return the matmuls of one shape if they are slow at one place of every step, else None."""
    steps = [rows[places] for places in Groups(lane.step[rows]).members()]
    if len(steps) < lane.steps or min(map(len, steps)) < _RUNS * _EACH:
        return None
    dur = lane.events.dur_ns
    medians = np.array(
        [[np.median(dur[run]) for run in np.array_split(step, _RUNS)] for step in steps]
    )
    fast, slow = medians.min(axis=1), medians.max(axis=1)
    place = medians.argmax(axis=1)
    if (slow < SLOWER * fast).any() or place.max() - place.min() > 1:
        return None
    lost = sum(int(np.maximum(dur[s] - f, 0).sum()) for s, f in zip(steps, fast, strict=True))
    middle = (round(float(np.median(fast))), round(float(np.median(slow))))
    return Slow(str(lane.text(int(rows[0]))), round(lost / lane.steps), *middle)


def _layers(lane: Lane) -> list[Slow]:
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
