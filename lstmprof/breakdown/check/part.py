"""What is known of the profile of one rank when it is checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lstmprof.breakdown import Breakdown
from lstmprof.breakdown.lacks import Lack
from lstmprof.breakdown.lacks.recording import Recording
from lstmprof.breakdown.lacks.rules import GPU_UNSEEN
from lstmprof.events.annotate import MEASURED
from lstmprof.events.annotate.recorded import Recorded
from lstmprof.events.annotate.steps import Window
from lstmprof.events.annotate.tally import ROUNDED_NS
from lstmprof.events.counters import ALLOCATED, CHANGE, RESERVED
from lstmprof.events.groups import Groups
from lstmprof.events.intervals import Covered, Ints
from lstmprof.events.narrow import Packed
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import NONE, UNKNOWN

#: Columns of the events that it is made from.
_READS = ("event_id", "kind", "start_ns", "dur_ns", "rank", "shapes", "launch_id")
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
    events = _Measured(breakdown.packed(_READS))
    windows: dict[int | None, list[Window]] = {}
    for window in breakdown.windows:
        windows.setdefault(window.rank, []).append(window)
    info, timings = breakdown.run.info, breakdown.timings
    timed = timings is not None and info.source in MEASURED
    inflation = timings.inflation_share if timings and timed else None
    counted = _counted(breakdown)
    return [
        replace(
            _part(breakdown, events, windows.get(has.rank, []), has, inflation),
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


class _Measured:
    """What is measured of the events of each rank: those of all are looked at once."""

    def __init__(self, events: Packed) -> None:
        self._events = events
        self._start_ns = events.values("start_ns").astype(np.int64)
        shaped = np.flatnonzero(events.is_kind("op") & events.known("shapes"))
        self._shaped = self._of_ranks(shaped, shaped)
        launch = events.rows_named("launch_id")
        linked = np.flatnonzero(events.is_kind(*ACTIVITY_KINDS) & (launch != NONE))
        by_ns = self._start_ns[launch[linked]] - self._start_ns[linked]
        late = by_ns > ROUNDED_NS
        self._early = self._of_ranks(linked[late], by_ns[late])
        overhead = np.flatnonzero(events.is_kind("overhead"))
        self._overhead = self._of_ranks(overhead, overhead)

    def _of_ranks(self, rows: Ints, values: Ints) -> dict[int, Ints]:
        """``values``, one of each of ``rows``, by its rank."""
        rank = self._events.table(("rank",), rows).ints("rank", UNKNOWN)
        group = Groups(rank)
        members = (values[of_rank] for of_rank in group.members())
        return dict(zip(rank[group.first].tolist(), members, strict=True))

    def with_shapes(self, rank: int | None) -> int:
        """Ops of ``rank`` that have the shapes of their inputs."""
        return len(_of(self._shaped, rank))

    def early_ns(self, rank: int | None) -> Ints:
        """By how much activities of ``rank`` begin before their launch, of those that do."""
        return _of(self._early, rank)

    def overheads(self, rank: int | None) -> tuple[Ints, Ints]:
        """When each of the profiler's own events of ``rank`` begins and ends."""
        rows = _of(self._overhead, rank)
        start = self._start_ns[rows]
        return start, start + self._events.values("dur_ns")[rows]


def _of(by_rank: Mapping[int, Ints], rank: int | None) -> Ints:
    return by_rank.get(UNKNOWN if rank is None else rank, np.empty(0, dtype=np.int64))


def _part(
    breakdown: Breakdown,
    events: _Measured,
    windows: Sequence[Window],
    has: Recorded,
    inflation: float | None,
) -> Part:
    early, overhead = events.early_ns(has.rank), events.overheads(has.rank)
    start, end = (
        np.array(ns, dtype=np.int64)
        for ns in ([w.start_ns for w in windows], [w.end_ns for w in windows])
    )
    covered = Covered(*overhead)
    steps = Covered(start, end)
    return Part(
        has=has,
        lacks=breakdown.lacks_of_rank(has.rank),
        with_shapes=events.with_shapes(has.rank),
        early=len(early),
        early_ns=int(early.max(initial=0)),
        overheads=len(overhead[0]),
        overhead_ns=int(covered.within(*steps.bounds).sum()),
        steps_ns=steps.whole_ns,
        inflation_share=inflation,
        settings=tuple(Recording(has, breakdown.run.info).settings),
    )
