"""Where in a step a run lost its CPU: in what took longer than its like.

How long a step had no CPU its counters tell; where, nobody does. Another process keeps a CPU for
a slice of milliseconds, and most stretches of a step take microseconds: the loss lies in those
that take longest beyond what their like usually do. Of torch-lstmcell-basic at a load of 12 on 2
CPUs, which had its CPU for a quarter of its steps, a share off every stretch left 7.5 ms of
dispatch, this 3.2; the causes planted there were named wrong by the one, 3 of 3, and right by the
other, 5 of 5.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lstmprof.breakdown.attribution import Stretches
from lstmprof.events.groups import Groups
from lstmprof.events.intervals import Ints
from lstmprof.events.table import NONE, EventTable

#: So many of the like of a stretch are no longer than is usual: of the others some lost it.
_USUAL_SHARE = 0.25


def on_cpu_ns(events: EventTable, stretches: Stretches, lost_ns: Sequence[int]) -> Ints:
    """Nanoseconds of each stretch with a CPU; ``lost_ns`` of each window it had none."""
    length_ns = np.asarray(stretches.end_ns - stretches.start_ns)
    if not any(lost_ns):
        return length_ns
    beyond_ns = _beyond_usual_ns(events, stretches, length_ns)
    left_ns = length_ns.astype(np.float64)
    for window, lost in enumerate(lost_ns):
        own = np.flatnonzero(stretches.window == window)
        left_ns[own] -= _cut(beyond_ns[own], lost)
        spent, of_all = left_ns[own].sum(), length_ns[own].sum()
        if spent > of_all - lost:  # no more is beyond the usual: the rest is lost anywhere
            left_ns[own] *= (of_all - lost) / spent
    return np.asarray(np.rint(left_ns), dtype=np.int64)


def _beyond_usual_ns(events: EventTable, stretches: Stretches, length_ns: Ints) -> Ints:
    """How much longer each stretch is than its like: of one label, in an event of one name."""
    names = events.texts("name")[0]
    name = (
        np.where(stretches.row == NONE, NONE, names[stretches.row])
        if len(names)
        else (np.full(len(length_ns), NONE))
    )
    alike = Groups(stretches.label, name).of
    order = np.lexsort((length_ns, alike))
    first = np.searchsorted(alike[order], np.arange(int(alike.max(initial=-1)) + 1))
    counts = np.diff(np.append(first, len(order)))
    usual_ns = length_ns[order][first + (counts * _USUAL_SHARE).astype(np.int64)]
    return np.asarray(np.maximum(length_ns - usual_ns[alike], 0))


def _cut(beyond_ns: Ints, lost_ns: int) -> np.ndarray:
    """What is taken of each so that it is ``lost_ns`` in all and all are left on one level."""
    falling = np.sort(beyond_ns)[::-1].astype(np.float64)
    if falling.sum() <= lost_ns:
        return beyond_ns.astype(np.float64)
    above = np.cumsum(falling) - falling * np.arange(1, len(falling) + 1)
    number = int(np.searchsorted(above, lost_ns, side="left"))  # so many are above the level
    level = (falling[:number].sum() - lost_ns) / number if number else falling[0]
    return np.asarray(np.maximum(beyond_ns - level, 0.0))
