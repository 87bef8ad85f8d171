"""Find events that the clean step may hide, such as a wait for input in every third step.

These events occur, or take long, in some steps only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lstmprof.breakdown.clean.slots import names_without_numbers
from lstmprof.events.annotate.steps import Window
from lstmprof.events.groups import Forest, Groups, distinct, nearest, own_time, values_at
from lstmprof.events.intervals import Flags, Ints
from lstmprof.events.table import NONE, UNKNOWN, EventTable
from lstmprof.events.threads import STATES, state_codes

#: Share of the steps below which an event is rare.
RARE_SHARE = 0.5
#: Smallest time of a rare event, as a share of the clean step, at which lstmprof lists the event.
LEAST_RARE_SHARE = 0.02
#: Multiple of an event's usual time above which the event is long.
LONG = 3
#: Smallest share of the steps' time beyond the clean step at which lstmprof lists a long event:
#: ``LEAST_EXTRA_SHARE``, or ``LEAST_TIMES_USUAL`` times the event's usual share of a step if
#: larger.
LEAST_EXTRA_SHARE, LEAST_TIMES_USUAL = 0.5, 4
#: Path in the names of Python frames inside PyTorch's own profiler.
_PROFILER = "torch/profiler/"
#: Name of a step's time without ops.
BETWEEN = "Python between the ops"


@dataclass(frozen=True)
class Rare:
    """An event that occurs, or takes long, in few steps, with its median time."""

    name: str
    steps: int
    each_ns: int


def now_and_then(
    events: EventTable,
    windows: Sequence[Window],
    slot: Ints,  # equal for matching events of different steps
    *,
    step_ns: float,
    quantile: float,  # of an event's times: its usual time
    on_device: bool,  # ignore calls that wait for the device
    foreign: bool,  # another tool's profile: one long event is not just noise
) -> tuple[Rare, ...]:
    if not len(events):
        return ()
    # ignore a device's copies of host ranges: their kernels may run in a later step
    copied = events.is_kind("range") & (events.ints("device", UNKNOWN) != UNKNOWN)
    frames = events.is_kind("python") & events.where_name(lambda name: _PROFILER in name)
    own = events.is_kind("overhead") | (nearest(events.rows_named("parent_id"), frames) != NONE)
    slot = np.where(own | copied, NONE, slot)
    if on_device:
        waits = events.is_kind("runtime") & (state_codes(events) == STATES.index("sync"))
        slot = np.where(waits, NONE, slot)
    # assign each activity to the step of its launch, because the host may run steps ahead
    launch = events.rows_named("launch_id")
    at_ns = np.where(launch != NONE, events.start_ns[launch], events.start_ns)
    step = np.searchsorted(np.sort([w.start_ns for w in windows]), at_ns, side="right")
    least_ns = LEAST_RARE_SHARE * step_ns
    rare_events = _in_few_steps(events, len(windows), slot, step, least_ns)
    fewest = 1 if foreign else 2
    calls = np.where(events.is_kind("runtime") & (slot != NONE), events.texts("name")[0], NONE)
    named: dict[str, Rare] = {}
    for key in (calls, slot):
        for rare in _long_in_some(events, windows, key, step, step_ns, quantile):
            if fewest <= rare.steps <= RARE_SHARE * len(windows):
                longest = named.get(rare.name, rare)
                named[rare.name] = max(longest, rare, key=lambda r: r.each_ns * r.steps)
    rare_events += named.values()
    return tuple(sorted(rare_events, key=lambda r: (-r.each_ns * r.steps, r.name)))


def _in_few_steps(
    events: EventTable, windows: int, slot: Ints, step: Ints, least_ns: float
) -> list[Rare]:
    """Find the outermost events that occur in few steps and take long."""
    names, texts = names_without_numbers(events), events.texts("name")[1]
    rows = np.flatnonzero((slot != NONE) & (names != NONE))
    pairs = distinct(names[rows].astype(np.int64) * (windows + 1) + step[rows])
    steps_of = np.bincount(pairs // (windows + 1), minlength=len(texts) + 1)
    rare: Flags = np.zeros(len(events), dtype=np.bool_)
    rare[rows] = steps_of[names[rows]] < RARE_SHARE * windows
    if not rare.any():
        return []
    launch = events.rows_named("launch_id")
    around = np.where(launch != NONE, launch, events.rows_named("parent_id"))
    launched_ns = Forest(around).beneath(np.where(launch != NONE, events.dur_ns, 0))
    outer = np.flatnonzero(rare & (values_at(nearest(around, rare), around) == NONE))
    groups = Groups(names[outer], step[outer])
    # use the time of the launched activities if longer than the host event
    cell_ns = groups.sums(np.maximum(events.dur_ns, launched_ns)[outer])
    name_of = names[outer][groups.first]
    long = cell_ns >= least_ns
    return [
        Rare(texts[name], int(steps_of[name]), int(np.median(cell_ns[long & (name_of == name)])))
        for name in np.unique(name_of[long]).tolist()
    ]


def _long_in_some(
    events: EventTable,
    windows: Sequence[Window],
    key: Ints,  # equal for events that count together, such as all ``cudaMalloc``
    step: Ints,
    step_ns: float,
    quantile: float,
) -> list[Rare]:
    """Find events that make some steps long."""
    differ_ns = sum(max(w.end_ns - w.start_ns - step_ns, 0.0) for w in windows)
    rows = np.flatnonzero(key != NONE)
    by_step = Groups(key[rows], step[rows])
    own_ns = by_step.sums(own_time(events)[rows])
    groups = Groups(key[rows][by_step.first])
    index = np.floor(quantile * (groups.sizes() - 1)).astype(np.int64)
    usual_ns = groups.sorted(own_ns).at(index)
    long = own_ns > np.maximum(LONG * usual_ns, LEAST_RARE_SHARE * step_ns)[groups.of]
    often = groups.sizes() >= max(2, RARE_SHARE * len(windows))
    excess_ns = groups.sums(own_ns - usual_ns[groups.of], long)
    least = np.maximum(LEAST_EXTRA_SHARE, LEAST_TIMES_USUAL * usual_ns / max(step_ns, 1.0))
    listed = often & (excess_ns >= least * differ_ns) & (excess_ns > 0)
    texts, kinds = events.texts("name"), events.is_kind("step")
    result = []
    for group in np.flatnonzero(listed).tolist():
        long_steps = np.flatnonzero((groups.of == group) & long)
        row = rows[by_step.first[long_steps[0]]]
        name = BETWEEN if kinds[row] else texts[1][texts[0][row]]
        result.append(Rare(name, len(long_steps), int(np.median(own_ns[long_steps]))))
    return result
