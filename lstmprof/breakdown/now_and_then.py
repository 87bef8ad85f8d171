"""Events that happen, or take long, in some of the steps: the clean step may hide them.

An event of less than half of the steps is one. So is an event of every step that takes much longer
in some of them, if that is most of what steps differ by: a wait for input in every third step.
What other processes take of a CPU lies in other events in each step, and is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lstmprof.breakdown.slots import names_without_numbers
from lstmprof.events.annotate.steps import Window
from lstmprof.events.groups import Groups, own_time
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.table import NONE, EventTable
from lstmprof.events.threads import STATES, state_codes

#: An event of fewer steps is one that happens now and then.
RARE_SHARE = 0.5
#: Such events are listed if one takes so much of a clean step.
LEAST_RARE_SHARE = 0.02
#: An event takes long in a step if it takes so many times what it usually does.
LONG = 3
#: An event that takes long in some steps is listed if it holds so much of what steps differ by, and
#: so many times what it usually holds of a step: what others do hits the longest op most.
MOST, BEYOND = 0.5, 4
#: What the time between the ops of a step is called.
BETWEEN = "Python between the ops"


@dataclass(frozen=True)
class Rare:
    """An event that occurs, or takes long, in some of the steps only.

    ``steps`` is the number of such steps. ``each_ns`` is the median time of the event in them, in
    ns.
    """

    name: str
    steps: int
    each_ns: int


def now_and_then(
    events: EventTable,
    windows: Sequence[Window],
    slot: Ints,
    *,
    step_ns: float,
    quantile: float,
    on_device: bool,
    foreign: bool,
) -> tuple[Rare, ...]:
    """Return what some steps spend on events that others do not, the longest first.

    ``slot`` is of each event (``slots``), ``step_ns`` the clean step with what recording takes.
    ``quantile`` of an event's times is what it usually takes. A host that waits for its device
    takes none of that device's time. If lstmprof made the profile, a single long event is noise.
    """
    if not len(events):
        return ()
    slot = np.where(events.is_kind("overhead"), NONE, slot)  # the profiler's own
    if on_device:
        waits = events.is_kind("runtime") & (state_codes(events) == STATES.index("sync"))
        slot = np.where(waits, NONE, slot)
    step = np.searchsorted(np.sort([w.start_ns for w in windows]), events.start_ns, side="right")
    least_ns = LEAST_RARE_SHARE * step_ns
    found = _of_few_steps(events, len(windows), slot, step, least_ns)
    fewest = 1 if foreign else 2
    for rare in _long_in_some(events, windows, slot, step, step_ns, quantile):
        found += [rare] if fewest <= rare.steps <= RARE_SHARE * len(windows) else []
    return tuple(sorted(found, key=lambda r: (-r.each_ns * r.steps, r.name)))


def _of_few_steps(
    events: EventTable, windows: int, slot: Ints, step: Ints, least_ns: float
) -> list[Rare]:
    """Return the events whose name less than half of the steps have, wherever in the step."""
    names, texts = names_without_numbers(events), events.texts("name")[1]
    rows = np.flatnonzero((slot != NONE) & (names != NONE))
    pairs = np.unique(np.stack([names[rows], step[rows]]), axis=1)
    steps_of = np.bincount(pairs[0], minlength=len(texts) + 1)
    rare: Flags = np.zeros(len(events), dtype=np.bool_)
    rare[rows] = steps_of[names[rows]] < RARE_SHARE * windows
    parent = events.rows_named("parent_id")
    outer = rare & ~((parent != NONE) & rare[parent])
    long = np.flatnonzero(outer & (events.dur_ns >= least_ns))
    return [
        Rare(
            texts[name],
            int(steps_of[name]),
            int(np.median(events.dur_ns[long[names[long] == name]])),
        )
        for name in np.unique(names[long]).tolist()
    ]


def _long_in_some(
    events: EventTable,
    windows: Sequence[Window],
    slot: Ints,
    step: Ints,
    step_ns: float,
    quantile: float,
) -> list[Rare]:
    """Return the events whose own time is long in some steps, and most of what steps differ by."""
    differ_ns = sum(max(w.end_ns - w.start_ns - step_ns, 0.0) for w in windows)
    rows = np.flatnonzero(slot != NONE)
    own_ns = own_time(events)[rows]
    groups = Groups(slot[rows])
    usual_ns = _quantiles(groups, own_ns, quantile)
    long = own_ns > np.maximum(LONG * usual_ns, LEAST_RARE_SHARE * step_ns)[groups.of]
    often = groups.sizes() >= max(2, RARE_SHARE * len(windows))
    excess_ns = groups.sums(own_ns - np.rint(usual_ns[groups.of]).astype(np.int64), long)
    least = np.maximum(MOST, BEYOND * usual_ns / max(step_ns, 1.0))
    found = often & (excess_ns >= least * differ_ns) & (excess_ns > 0)
    texts, kinds = events.texts("name"), events.is_kind("step")
    result = []
    for group in np.flatnonzero(found).tolist():
        some = np.flatnonzero((groups.of == group) & long)
        row = rows[some[0]]
        name = BETWEEN if kinds[row] else texts[1][texts[0][row]]
        steps = len(np.unique(step[rows[some]]))
        result.append(Rare(name, steps, int(np.median(own_ns[some]))))
    return result


def _quantiles(groups: Groups, values: Ints, quantile: float) -> np.ndarray:
    """Return this quantile of ``values`` in each group, the nearest one."""
    order = np.lexsort((values, groups.of))
    sizes = groups.sizes()
    first = np.cumsum(sizes) - sizes
    place = first + np.floor(quantile * (sizes - 1)).astype(np.int64)
    return np.asarray(values[order][place], dtype=np.float64) if groups.count else np.empty(0)
