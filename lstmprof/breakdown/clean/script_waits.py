"""Find the time in which the user's script sleeps or waits for a lock.

``capture.worker.lines`` samples how long each line of the script waits, because a profile does not
show these waits. This file assigns the sampled waits to the longest times between ops.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from lstmprof.breakdown.attribution import BETWEEN_OPS, Intervals
from lstmprof.events.annotate.calls import prepares
from lstmprof.events.groups import nearest, values_at
from lstmprof.events.intervals import Covered
from lstmprof.events.table import NONE, EventTable
from lstmprof.events.threads import CALL_GAP_NS
from lstmprof.runs.fields import ScriptLine

#: Name of the idle time in which the script waits.
SCRIPT_WAITS = "waiting"
#: Pattern of calls that sleep: unlike other waits, a sleep takes no longer on a busy machine.
SLEEPS = re.compile(r"time\.sleep")
#: Share of the script's waits below which a gap between ops is filled last. Chosen by hand.
LEAST_SHARE = 0.05


def slept_ns(lines: Iterable[ScriptLine]) -> int:
    """Return how long the steps' thread sleeps per step."""
    sleeping = (line for line in lines if not line.beside and SLEEPS.fullmatch(line.call or ""))
    return sum(line.waits_ns or 0 for line in sleeping)


def with_waits(events: EventTable, intervals: Intervals, lines: Iterable[ScriptLine]) -> Intervals:
    """Label the times between ops in which the script waited as ``waiting``."""
    waits_ns = sum(line.waits_ns or 0 for line in lines if not line.beside)
    is_between = np.array([label in BETWEEN_OPS for label in intervals.labels], dtype=np.bool_)
    length_ns = intervals.end_ns - intervals.start_ns
    gaps = np.flatnonzero(is_between[intervals.label] & (length_ns > CALL_GAP_NS))
    if not waits_ns or not len(gaps):
        return intervals
    around = nearest(events.rows_named("parent_id"), prepares(events))
    is_input = values_at(around, intervals.row[gaps]) != NONE
    is_short = length_ns[gaps] < LEAST_SHARE * waits_ns
    # sort the gaps of a step: long before short, then input before other code, then by length
    gaps = gaps[np.lexsort((-length_ns[gaps], ~is_input, is_short, intervals.window[gaps]))]
    window, length_ns = intervals.window[gaps], length_ns[gaps]
    before_ns = np.cumsum(length_ns) - length_ns
    first = np.searchsorted(window, window)  # the first interval of the same step
    waited_ns = np.clip(waits_ns - (before_ns - before_ns[first]), 0, length_ns)
    start_ns = intervals.start_ns[gaps]
    waited = Covered(start_ns[waited_ns > 0], (start_ns + waited_ns)[waited_ns > 0])
    cut = intervals.cut_at(np.concatenate(waited.bounds))
    label = np.where(waited.within(cut.start_ns, cut.end_ns) > 0, len(cut.labels), cut.label)
    labels = (*cut.labels, ("idle", SCRIPT_WAITS))
    return Intervals(labels, cut.window, cut.row, label, cut.start_ns, cut.end_ns)
