"""What is known of the profile of one rank when it is checked."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from lstmprof.breakdown import Breakdown
from lstmprof.breakdown.lacks import Lack
from lstmprof.breakdown.lacks.recording import Recording
from lstmprof.breakdown.lacks.rules import GPU_UNSEEN
from lstmprof.events.annotate import MEASURED
from lstmprof.events.annotate.recorded import Recorded
from lstmprof.events.annotate.tally import ROUNDED_NS
from lstmprof.events.counters import ALLOCATED, CHANGE, RESERVED
from lstmprof.events.intervals import Covered, Flags
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import NONE, EventTable

#: Lacks of a profile without activities whose program used a GPU, or may have.
NO_GPU = ("TPU not read", "no GPU activity", "nothing of the program", GPU_UNSEEN)


@dataclass(frozen=True)
class Part:
    """Counts of one rank beyond ``Recorded``, and what it lacks.

    Of its ops ``with_shapes`` have the shapes of inputs. ``early`` activities begin before the call
    that launched them, by ``early_ns`` at most. The profiler's own events take ``overhead_ns`` of
    the steps' ``steps_ns``. ``inflation_share`` is what the profiled steps of a run that was timed
    too are longer by, None where it was not. ``settings`` are what was recorded that costs the host
    time. ``allocations`` are those and frees that were recorded; ``memory``: so was what was
    allocated or reserved in all.
    """

    has: Recorded
    lacks: tuple[Lack, ...]
    with_shapes: int
    early: int
    early_ns: int
    overheads: int
    overhead_ns: int
    steps_ns: int
    inflation_share: float | None
    settings: tuple[str, ...] = ()
    allocations: int = 0
    memory: bool = False

    @property
    def on_cpu(self) -> bool:
        """Whether ops were recorded, and nothing says that a GPU was used."""
        of_gpu = self.has.activities or self.has.kernel_launches
        unseen = any(lack.kind in NO_GPU for lack in self.lacks)
        return bool(self.has.ops) and not of_gpu and not unseen


def parts_of(breakdown: Breakdown) -> list[Part]:
    """The parts of a breakdown, rank by rank.

    Raises:
        RunError: the events are missing, damaged or of another schema version.
    """
    events = breakdown.events()
    info, timings = breakdown.run.info, breakdown.timings
    timed = timings is not None and info.source in MEASURED
    inflation = timings.inflation_share if timings and timed else None
    counted = _counted(breakdown)
    return [
        replace(
            _part(breakdown, events, has, inflation),
            allocations=counted[has.rank, CHANGE],
            memory=any(counted[has.rank, name] for name in (ALLOCATED, RESERVED)),
        )
        for has in breakdown.recorded
    ]


def _counted(breakdown: Breakdown) -> Counter[tuple[int | None, str]]:
    """How many values each rank has of each counter."""
    counted: Counter[tuple[int | None, str]] = Counter()
    for batch in breakdown.run.counters(("rank", "name")):
        groups = batch.group_by(["rank", "name"]).aggregate([([], "count_all")])
        for row in groups.to_pylist():
            counted[row["rank"], row["name"]] += row["count_all"]
    return counted


def _part(breakdown: Breakdown, events: EventTable, has: Recorded, inflation: float | None) -> Part:
    of_rank = np.zeros(len(events), dtype=bool)
    of_rank[events.of_rank(has.rank)] = True
    shaped = events["shapes"].is_valid().to_numpy(zero_copy_only=False)
    early = _early(events, of_rank)
    overhead = np.flatnonzero(of_rank & events.is_kind("overhead"))
    windows = [window for window in breakdown.windows if window.rank == has.rank]
    start, end = (
        np.array(ns, dtype=np.int64)
        for ns in ([w.start_ns for w in windows], [w.end_ns for w in windows])
    )
    covered = Covered(events.start_ns[overhead], events.end_ns[overhead])
    steps = Covered(start, end)
    return Part(
        has=has,
        lacks=breakdown.lacks_of_rank(has.rank),
        with_shapes=int(np.count_nonzero(of_rank & events.is_kind("op") & shaped)),
        early=len(early),
        early_ns=int(max(early, default=0)),
        overheads=len(overhead),
        overhead_ns=int(covered.within(*steps.bounds).sum()),
        steps_ns=steps.whole_ns,
        inflation_share=inflation,
        settings=tuple(Recording(has, breakdown.run.info).settings),
    )


def _early(events: EventTable, of_rank: Flags) -> list[int]:
    """By how many ns each activity begins before its launch, where it does."""
    launch = events.rows_named("launch_id")
    linked = np.flatnonzero(of_rank & events.is_kind(*ACTIVITY_KINDS) & (launch != NONE))
    by_ns = events.start_ns[launch[linked]] - events.start_ns[linked]
    return [int(ns) for ns in by_ns[by_ns > ROUNDED_NS]]
