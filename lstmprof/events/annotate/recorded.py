"""Count the events of each rank by kind, to show what a profile lacks.

Reads events with all derived columns. The counts are made once, when a run is written, so that
later commands need not read millions of events.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from lstmprof.events.annotate.calls import ActivityCounts
from lstmprof.events.annotate.tally import COUNTED, Columns, Reading, Tally
from lstmprof.events.intervals import Ints
from lstmprof.events.processes import successive_processes
from lstmprof.events.stored import StoredEvents
from lstmprof.events.table import UNKNOWN, EventTable


@dataclass(frozen=True)
class Recorded:
    """Counts of the events of one rank. Activities are kernels, copies and memsets on a device.

    - ``ops_in_steps`` counts ops that began in a marked step. ``ranges`` are host ranges;
      ``device_ranges`` are copies of host ranges on a device, or hardware counters. ``gpu_ops`` are
      ops and ranges of libraries that run only on GPUs.
    - ``handed_over`` counts runtime calls that gave work to a device. ``kernel_launches`` counts
      launches of kernels and graphs, except launches captured into a graph, which run nothing.
    - ``activity_ns`` is the sum of the durations of the ``activities``. ``migrations`` counts the
      driver's page migrations of managed memory. ``unlaunched`` counts other activities without a
      launch in the profile; ``launched_before`` of the ``unlaunched`` began before the first
      activity of their stream that has a launch.
    - ``lost`` counts kernel launches without an activity. ``lost_first`` of them began before the
      first launch with an activity, up to ``lost_first_ns`` before. ``lost_last`` of them began
      after the last launch with an activity, within ``lost_last_ns``.
    - ``overlaps`` counts activities that began while another activity of their stream ran;
      ``overlap_ns`` is the time in which both ran. Branches of a CUDA graph do not count.
    - ``bare_steps`` counts marked steps without an activity; 0 if no step has an activity.
      ``first_bare`` is the number of the first such step.
    """

    rank: int | None = None
    length_ns: int = 0
    steps: int = 0
    first_step: int | None = None
    last_step: int | None = None
    ops: int = 0
    ops_in_steps: int = 0
    ranges: int = 0
    device_ranges: int = 0
    python_frames: int = 0
    runtime_calls: int = 0
    handed_over: int = 0
    kernel_launches: int = 0
    gpu_ops: int = 0
    activities: int = 0
    kernels: int = 0
    activity_ns: int = 0
    migrations: int = 0
    unlaunched: int = 0
    launched_before: int = 0
    lost: int = 0
    lost_first: int = 0
    lost_first_ns: int = 0
    lost_last: int = 0
    lost_last_ns: int = 0
    overlaps: int = 0
    overlap_ns: int = 0
    bare_steps: int = 0
    first_bare: int | None = None

    @property
    def launchable(self) -> int:
        """Return the number of activities that need a launch: all except page migrations."""
        return self.activities - self.migrations

    @property
    def host_events(self) -> int:
        """Return the number of ops, ranges, steps and Python frames."""
        return self.ops + self.ranges + self.steps + self.python_frames


def recorded(events: EventTable) -> tuple[Recorded, ...]:
    """Return the counts of each rank; ``events`` need all derived columns."""
    if isinstance(events, StoredEvents):
        return _counts_on_disk(events)
    everything = Reading().columns(events)
    return tuple(
        _rank_counts(
            rank,
            [
                _count_process(everything.only(rows))
                for rows in successive_processes(events, of_rank)
            ],
        )
        for rank, of_rank in ((rank, events.rows_of_rank(rank)) for rank in events.ranks())
    )


def _count_process(columns: Columns) -> _ProcessCounts:
    activity_counts = ActivityCounts(
        int(columns.launch.max(initial=columns.row.max(initial=0))) + 1
    )
    activity_counts.add(columns.launch)
    tally = Tally(activity_counts)
    tally.add(columns, np.zeros(len(columns.row), dtype=np.int64))
    return _process_counts(tally)[0]


def _counts_on_disk(events: StoredEvents) -> tuple[Recorded, ...]:
    """Count one batch at a time, or the whole table if processes ran one after the other."""
    # Imported here, because commands that read a stored run do not need the rules for categories.
    from lstmprof.events.annotate.stored_annotation import deciding_events

    deciding = events.once(deciding_events)
    ranks = deciding.ranks()
    if any(len(successive_processes(deciding, deciding.rows_of_rank(rank))) > 1 for rank in ranks):
        return recorded(EventTable(events.arrow))
    tally, reading = Tally(ActivityCounts.of(events), len(ranks)), Reading()
    numbers = np.array([UNKNOWN if rank is None else rank for rank in ranks])
    for part in events.parts(COUNTED):
        tally.add(reading.columns(part), np.searchsorted(numbers, part.ints("rank", UNKNOWN)))
    return tuple(
        _rank_counts(rank, [of]) for rank, of in zip(ranks, _process_counts(tally), strict=True)
    )


@dataclass(frozen=True)
class _ProcessCounts:
    """The counts of one process by name, its step numbers, and those with an activity."""

    counts: dict[str, int]
    steps: Ints
    busy_steps: Ints


def _process_counts(tally: Tally) -> list[_ProcessCounts]:
    return [_ProcessCounts(*of) for of in zip(tally.counts(), *tally.steps(), strict=True)]


def _rank_counts(rank: int | None, processes: list[_ProcessCounts]) -> Recorded:
    """Return the counts of a rank, whose ``processes`` ran one after the other."""
    counts: Counter[str] = Counter()
    for of in processes:
        counts.update(of.counts)
    steps = np.unique(np.concatenate([of.steps for of in processes]))
    busy_steps = np.unique(np.concatenate([of.busy_steps for of in processes]))
    bare = np.setdiff1d(steps, busy_steps) if np.isin(busy_steps, steps).any() else steps[:0]
    return Recorded(
        rank=rank,
        steps=len(steps),
        first_step=int(steps[0]) if len(steps) else None,
        last_step=int(steps[-1]) if len(steps) else None,
        bare_steps=len(bare),
        first_bare=int(bare[0]) if len(bare) else None,
        **counts,
    )
