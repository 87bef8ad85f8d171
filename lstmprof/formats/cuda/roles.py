"""The events of a CUDA profiler's database by the part that they play, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lstmprof.formats import rows
from lstmprof.formats.cuda import columns
from lstmprof.formats.cuda.columns import Batch
from lstmprof.formats.cuda.sqlite import UNKNOWN, Ints


@dataclass(frozen=True)
class CudaEvents:
    """All events with a possible time, and how many were mended or left out.

    ``busy`` are activities, ``calls`` of the runtime and driver, ``ranges`` NVTX; ``others`` are
    waits on the device and overheads while the program ran: the profiler's own start and end are
    no part of any step.
    """

    busy: Sequence[Batch]
    calls: Sequence[Batch]
    ranges: Sequence[Batch]
    others: Sequence[Batch]
    untimed: int
    open_ranges: int

    @property
    def origin_ns(self) -> int | None:
        """The first start of any event, None where the program has none."""
        found = columns.span([*self.busy, *self.calls, *self.ranges])
        return None if found is None else min(found, columns.span(self.others) or found)[0]

    def table(self, origin_ns: int) -> pa.Table:
        """The events table, its times counted from ``origin_ns``."""
        found = [*self.busy, *self.calls, *self.ranges, *self.others]
        return columns.table(found, origin_ns)

    @property
    def activities(self) -> int:
        """How many activities there are."""
        return sum(map(len, self.busy))

    @property
    def launches(self) -> int:
        """How many calls there are."""
        return sum(map(len, self.calls))

    @property
    def lost_launches(self) -> int:
        """How many activities have no call of their correlation id, and process where known."""
        pid, correlation = _joined(self.busy, "pid"), _joined(self.busy, "correlation_id")
        of, called = _joined(self.calls, "pid"), _joined(self.calls, "correlation_id")
        in_process = np.isin(_pair(pid, correlation), _pair(of, called))
        anywhere = np.isin(correlation, called)
        found = np.where(pid == UNKNOWN, anywhere, in_process) & (correlation != UNKNOWN)
        return int((~found).sum())

    def notes(self) -> Iterator[str]:
        """What the user must be told of any such profile."""
        if self.untimed:
            yield f"{self.untimed} events were left out because they have no possible time"
        if self.open_ranges:
            yield (
                f"{self.open_ranges} NVTX ranges were open when the capture ended: they last until"
                " its last event"
            )
        lost = self.lost_launches
        if lost:
            yield (
                f"{lost} of {self.activities} GPU activities have no launch in this file (a"
                " trimmed capture?): their waiting time is unattributed; export the whole capture"
            )


def gathered(
    busy: Sequence[Batch], calls: Sequence[Batch], ranges: Sequence[Batch], others: Sequence[Batch]
) -> CudaEvents:
    """The events that have a possible time; a range without an end lasts until the last of them."""
    everything = [*busy, *calls, *ranges, *others]
    last_ns = max((_last_ns(batch) for batch in everything), default=UNKNOWN)
    open_ranges = sum(int((batch.ints["end_ns"] == UNKNOWN).sum()) for batch in ranges)
    ranges = [columns.closed(batch, last_ns) for batch in ranges]
    parts = [[columns.timed(b) for b in part] for part in (busy, calls, ranges, others)]
    timed = sum(len(batch) for part in parts for batch in part)
    program = columns.span([batch for part in parts[:3] for batch in part])
    return CudaEvents(
        parts[0],
        parts[1],
        parts[2],
        [] if program is None else [columns.within(batch, *program) for batch in parts[3]],
        untimed=sum(map(len, everything)) - timed,
        open_ranges=open_ranges,
    )


def _last_ns(batch: Batch) -> int:
    """The latest possible time in ``batch``, ``UNKNOWN`` where there is none."""
    times = np.concatenate([batch.ints["start_ns"], batch.ints["end_ns"]])
    return int(times[times <= rows.MAX_NS].max(initial=UNKNOWN))


def _joined(found: Sequence[Batch], column: str) -> Ints:
    parts = [batch.ints.get(column, np.full(len(batch), UNKNOWN)) for batch in found]
    return np.concatenate([np.empty(0, np.int64), *parts])


def _pair(pid: Ints, correlation: Ints) -> Ints:
    """One number a pair: CUPTI's correlation ids are below 2³², pids below 2²⁴."""
    return (pid << 32) + correlation
