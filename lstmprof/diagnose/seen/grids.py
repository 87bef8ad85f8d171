"""Kernels with fewer thread blocks than their device has multiprocessors.

A block runs on one multiprocessor, so such a kernel leaves the other multiprocessors to other
kernels, or idle. Persistent kernels of recurrent layers do not count, because their number of
blocks depends on the device, not on the work.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lstmprof.diagnose.seen.lane import Lane
from lstmprof.events import DeviceFacts, launch_config
from lstmprof.events.groups import Groups
from lstmprof.events.table import NONE

_PERSISTENT = "persistent"


@dataclass(frozen=True)
class Small:
    """Kernels of one category with ``blocks`` blocks, fewer than ``multiprocessors``.

    ``ns`` is their time in the mean step.
    """

    category: str
    blocks: int
    multiprocessors: int
    ns: int


def small(lane: Lane, facts: Mapping[str, DeviceFacts]) -> tuple[Small, ...]:
    """Return small kernels by category, fewest blocks first; empty if blocks or device are unknown.

    A kernel counts for the time in which the lane is busy with it.
    """
    multiprocessors = (facts.get(str(lane.device)) or DeviceFacts()).multiprocessors
    if not multiprocessors:
        return ()
    events = lane.events
    configs, written = events.texts("launch_config")
    categories, names = events.texts("category")
    blocks = np.array([*map(_blocks, written), 0])[configs]
    fewer = (blocks > 0) & (blocks < multiprocessors) & (categories != NONE) & (lane.busy > 0)
    chosen = lane.activity & events.is_kind("kernel") & ~events.is_one_of("family", _PERSISTENT)
    rows = np.flatnonzero(chosen & fewer)
    groups = Groups(blocks[rows], categories[rows])
    first, ns = rows[groups.first], groups.sums(lane.busy[rows])
    found = [
        Small(names[categories[row]], int(blocks[row]), multiprocessors, round(spent / lane.steps))
        for row, spent in zip(first.tolist(), ns.tolist(), strict=True)
    ]
    return tuple(sorted(found, key=lambda s: (s.blocks, s.category)))


def _blocks(written: str) -> int:
    """Return the number of thread blocks of a kernel, limited to the integer's range; 0 if
    unknown.
    """
    config = launch_config.read(written)
    blocks = math.prod(config.grid) if config and config.grid else 0
    return min(blocks, np.iinfo(np.int64).max)
