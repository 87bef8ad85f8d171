"""How much of a device its kernels can use: their thread blocks against its multiprocessors.

A block runs on one multiprocessor, so a kernel with fewer blocks leaves the others to what runs
beside it, or idle. Persistent kernels of recurrent layers are left out: they choose their blocks by
the device, not by the work.
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
    """Kernels of one category with so many ``blocks``, fewer than the ``multiprocessors``.

    ``ns`` of the mean step is theirs.
    """

    category: str
    blocks: int
    multiprocessors: int
    ns: int


def small(lane: Lane, facts: Mapping[str, DeviceFacts]) -> tuple[Small, ...]:
    """Such kernels by category, the fewest blocks first; none where they or the device are unknown.

    Each is counted for the time in which the lane is busy with it, not with what runs beside it.
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
    """Thread blocks of a kernel, at most what fits; 0 unknown."""
    config = launch_config.read(written)
    blocks = math.prod(config.grid) if config and config.grid else 0
    return min(blocks, np.iinfo(np.int64).max)
