"""What is counted of a device over time: its queue, its copies' bandwidth, its busy share.

Each is (instants, values), a value from its instant to the next. Reads the packed columns of all
activities, as the waits of the ledger do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lstmprof.events.groups import numbered
from lstmprof.events.intervals import Covered, Flags, Ints
from lstmprof.events.narrow import Packed
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import NONE

#: The busy share is told of so many equal parts of the time, none shorter than this.
PARTS, LEAST_PART_NS = 1000, 10_000


@dataclass(frozen=True)
class Counter:
    """A counter of one device."""

    name: str
    unit: str
    at_ns: Ints
    values: NDArray[np.int64] | NDArray[np.float64]


@dataclass(frozen=True)
class Activities:
    """The activities of one device; ``returned_ns`` of the launch, where it is ``launched``."""

    rank: int | None
    device: int
    start_ns: Ints
    end_ns: Ints
    launched: Flags
    returned_ns: Ints
    copied_bytes: Ints  # ``NONE``: it is no copy, or its size unknown

    def counters(self) -> Iterator[Counter]:
        """Those of which something is known."""
        if self.launched.any():
            yield Counter("queue length", "activities", *_queue(self))
        if (self.copied_bytes > 0).any():
            yield Counter("bandwidth of copies", "GB/s", *_bandwidth(self))
        if (self.end_ns > self.start_ns).any():
            yield Counter("busy share", "%", *_busy_share(self))


def activities(packed: Packed) -> Iterator[Activities]:
    """Those of each device of each rank."""
    rows = np.flatnonzero(packed.is_kind(*ACTIVITY_KINDS) & packed.known("device"))
    ranked, rank, device = packed.known("rank"), packed.values("rank"), packed.values("device")
    start, dur = packed.values("start_ns"), packed.values("dur_ns")
    launch = packed.rows_named("launch_id")[rows]
    returned = start[launch].astype(np.int64) + dur[launch]
    is_copy, size = packed.is_kind("memcpy")[rows], packed.values("bytes")[rows].astype(np.int64)
    group = numbered(*(c[rows].astype(np.int64) for c in (ranked, rank, device)))
    for place in range(int(group.max(initial=NONE)) + 1):
        own = np.flatnonzero(group == place)
        first, begins = rows[own[0]], start[rows[own]].astype(np.int64)
        yield Activities(
            int(rank[first]) if ranked[first] else None,
            int(device[first]),
            begins,
            begins + dur[rows[own]],
            launch[own] != NONE,
            returned[own],
            np.where(is_copy, size, NONE)[own],
        )


def _queue(of: Activities) -> tuple[Ints, Ints]:
    """Activities that were enqueued and had not ended, as the table of launches counts them."""
    enqueued = of.returned_ns[of.launched]
    done = np.maximum(of.end_ns[of.launched], enqueued)
    return _summed(enqueued, done, np.ones(len(done), dtype=np.int64))


def _bandwidth(of: Activities) -> tuple[Ints, NDArray[np.float64]]:
    """Bytes over time of the copies under way, of several their sum: in GB/s."""
    told = (of.copied_bytes > 0) & (of.end_ns > of.start_ns)
    start, end = of.start_ns[told], of.end_ns[told]
    # in bytes per second, whole ones, so that the sum is 0 again when the last has ended
    rate = np.rint(of.copied_bytes[told] / (end - start) * 1e9).astype(np.int64)
    at_ns, values = _summed(start, end, rate)
    return at_ns, values / 1e9


def _busy_share(of: Activities) -> tuple[Ints, NDArray[np.float64]]:
    """Share of each part of the time in which it had work, in percent."""
    first, last = int(of.start_ns.min()), int(of.end_ns.max())
    length = max(-(-(last - first) // PARTS), LEAST_PART_NS)
    begins = np.arange(first, last, length, dtype=np.int64)
    ends = np.minimum(begins + length, last)
    busy = Covered(of.start_ns, of.end_ns).within(begins, ends)
    return np.append(begins, last), np.append(busy / (ends - begins) * 100, 0.0)


def _summed(start: Ints, end: Ints, amounts: Ints) -> tuple[Ints, Ints]:
    """The sum of the ``amounts`` of what runs, at each instant at which it changes."""
    at_ns = np.concatenate([start, end])
    change = np.concatenate([amounts, -amounts])
    order = np.argsort(at_ns, kind="stable")
    at_ns, value = at_ns[order], np.cumsum(change[order])
    last = np.append(at_ns[1:] != at_ns[:-1], True)[: len(at_ns)]
    at_ns, value = at_ns[last], value[last]
    new = np.append(True, value[1:] != value[:-1])[: len(value)]
    return at_ns[new], value[new]
