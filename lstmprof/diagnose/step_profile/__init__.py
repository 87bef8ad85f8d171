"""What the time of a step consists of, on one device of a rank or on a host without devices.

::

    clean step ─▶ intervals ─ contributors, lost overhead ─┐
                  events ──── tally, seen ─────────────────┴▶ StepProfile

The clean step is a step without profiler overhead and disturbances. The default device is the
device that all others wait for, else the busiest device of the first rank.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from lstmprof.base import numbers
from lstmprof.base.errors import UsageError
from lstmprof.breakdown import Breakdown
from lstmprof.breakdown.attribution import Intervals, attributed
from lstmprof.breakdown.clean.now_and_then import Rare
from lstmprof.breakdown.clean.slot_times import Span
from lstmprof.breakdown.clean.timings import Warning
from lstmprof.breakdown.lacks import CLOCKS, GPU_UNSEEN, NO_GPU, TPU_UNREAD, Lack
from lstmprof.breakdown.mean_step import (
    MeanStep,
    lane_words,
    mean_of,
    mean_steps,
    waits_for_host_ns,
)
from lstmprof.breakdown.tables import tables_of
from lstmprof.breakdown.tables.collectives import RankDevice, in_common
from lstmprof.diagnose.seen import Seen, seen_in
from lstmprof.diagnose.seen.lane import in_steps
from lstmprof.diagnose.step_profile.contributors import (
    Contributor,
    contributors,
    lost_overhead_ns,
)
from lstmprof.diagnose.step_profile.meanwhile import Meanwhile, meanwhile_of, waits_of
from lstmprof.diagnose.step_profile.ranks import (
    FOUND,
    LEAST_SHARE,
    Overlap,
    Straggler,
    overlap_of,
    overlap_sentence,
    saved_share,
    straggler_of,
    straggler_sentence,
)
from lstmprof.diagnose.step_profile.tally import Spread, tally
from lstmprof.events.annotate.recorded import ROUNDED_NS
from lstmprof.events.annotate.steps import Window
from lstmprof.events.schema import ACTIVITY_KINDS
from lstmprof.events.table import NONE, UNKNOWN, EventTable
from lstmprof.events.threads import STATES, state_codes
from lstmprof.runs.metadata import RunInfo

#: State, and category of work or cause of idle time, such as ``("idle", "dispatch")``.
Part = tuple[str, str]
#: Name → (ns, calls).
Spent = dict[str, tuple[int, float]]

#: Tables of the breakdown with evidence for diagnoses.
_EVIDENCE = ("kernels", "ops", "casts", "copies", "ranges", "layers")
#: Largest share of activities that may begin before their launch if clocks agree. Chosen by hand.
EARLY_SHARE = 0.1
#: Most ranks and devices that an error lists.
_MOST_LISTED = 8


@dataclass(frozen=True)
class StepProfile:
    """The step of one device of a rank, or of the host if ``device`` is None."""

    name: str
    info: RunInfo
    step_ns: int | None  # None: no iteration was timed
    steps: int
    marked: bool  # False: no step markers, the profile counts as one step
    rank: int | None
    device: int | None
    contributors: tuple[Contributor, ...]  # sum to the length of the step
    sync_calls: float | None = None
    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    tally: Mapping[str, Spread] = field(default_factory=dict)
    seen: Seen = field(default_factory=Seen)
    doubts: tuple[Warning, ...] = ()
    rounds: int = 1  # timed processes
    span: Span | None = None  # None: contributors sum to the mean profiled step
    part_spans: Mapping[Part, Span] = field(default_factory=dict)
    lost_ns: float | None = None  # how much longer the median iteration is than an undisturbed step
    cpu_share: float | None = None  # share of time in which the step's thread had a CPU
    rare: tuple[Rare, ...] = ()  # events of only some steps
    notes: tuple[str, ...] = ()
    lacks: tuple[Lack, ...] = ()
    lanes: int = 1  # devices and hosts in the run
    straggler: Straggler | None = None  # the device that the others wait for
    overlap: Overlap | None = None
    lost_overhead_ns: int = 0  # idle time that may be the profiler's work

    def __repr__(self) -> str:
        step = f"{numbers.milliseconds(self.length_ns)} ms"
        return f"<StepProfile {self.name}: {step}, {self.steps} profiled steps>"

    @property
    def rank_device(self) -> RankDevice:
        return self.rank, self.device

    @property
    def runs_on(self) -> str | None:
        """Return ``cuda``, ``cpu``, or None if unknown."""
        missing = {lack.kind for lack in self.lacks}
        # ``NO_GPU``: the GPU was used, but not recorded
        if self.device is not None or NO_GPU in missing:
            return "cuda"
        return None if missing & {GPU_UNSEEN, TPU_UNREAD} else "cpu"

    @property
    def length_ns(self) -> int:
        return total_ns(self.contributors)

    @property
    def parts(self) -> dict[Part, int]:
        """Return the time of each part of the breakdown."""
        parts: Counter[Part] = Counter()
        for contributor in self.contributors:
            parts[contributor.state, contributor.part] += contributor.ns
        return dict(parts)

    @property
    def waits_for_host_ns(self) -> int:
        """Return how long the device waits for its host or for input."""
        return waits_for_host_ns((c.part, c.ns) for c in self.contributors if c.state != "busy")

    @property
    def busy_ns(self) -> int:
        return total_ns(c for c in self.contributors if c.state == "busy")

    @property
    def time_steps(self) -> int | None:
        return self.info.workload.time_steps

    @property
    def cells(self) -> int | None:
        """Return how often a cell runs per step: time steps × layers × directions."""
        w = self.info.workload
        return (w.time_steps or 0) * (w.layers or 0) * (2 if w.bidirectional else 1) or None

    @property
    def shows_waits(self) -> bool:
        """Return whether the profile shows how long lines of the script waited."""
        lines = self.info.script_lines
        return lines is not None and all(x.beside or x.waits_ns is not None for x in lines)

    @property
    def implementation(self) -> str | None:
        """Return the name of the implementation; profiles of other tools have none."""
        return self.info.implementation

    @property
    def framework(self) -> str | None:
        """Return the framework from run.json, or from names in the profile."""
        return self.info.framework or self.seen.framework

    @property
    def label(self) -> str:
        """Return a short name of the run: implementation and label."""
        return self.info.called or self.name

    @property
    def per_step(self) -> str:
        """Return `` per step``, or nothing without step markers."""
        return " per step" if self.marked else ""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return the reasons to doubt the times as text."""
        return tuple(map(str, self.doubts))

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return the rows of a table of the breakdown."""
        return list(self.tables[table].to_pylist()) if table in self.tables else []


def step_profile_of(
    breakdown: Breakdown, rank: int | None = None, device: int | None = None
) -> StepProfile:
    """Summarise the step of the chosen device, or of the one that matters most."""
    if not breakdown.windows:
        raise breakdown.no_steps
    lanes = mean_steps(breakdown.ledger)
    straggler = straggler_of(breakdown, [(lane.rank, lane.device) for lane in lanes])
    lane, reason = _chosen(breakdown.run.name, lanes, straggler, (rank, device))
    info, timings = breakdown.run.info, breakdown.timings
    clean = breakdown.clean(lane.rank, lane.device) if breakdown.has_clean else None
    events, windows, intervals = breakdown.attributed_steps(lane.rank, lane.device)
    inside = in_steps(events, windows)
    if lane.device is not None:  # leave out events of the rank's other devices
        devices = events.ints("device", UNKNOWN)
        inside &= (devices == UNKNOWN) | (devices == lane.device)
    rows = events.filter(inside)
    if straggler is not None and straggler.state == FOUND:
        late = straggler.rank_device
        own = intervals if clean is None and late == (lane.rank, lane.device) else None
        here, longest = (lane.rank, lane.device), straggler.longest
        waiting = longest.rank_device if here == late and longest else here
        straggler = replace(
            straggler,
            meanwhile=_meanwhile(breakdown, late, own),
            saved_share=saved_share(breakdown, straggler, waiting),
        )
    overlap = overlap_of(breakdown, (lane.rank, lane.device), windows, clean)
    parts = _means(contributors(events, windows, lane.rank, lane.device, intervals), len(windows))
    return StepProfile(
        name=breakdown.run.name,
        info=info,
        step_ns=None if timings is None else total_ns(parts),
        steps=len(windows),
        marked=windows[0].step is not None,
        rank=lane.rank,
        device=lane.device,
        contributors=parts,
        sync_calls=_sync_calls(rows, len(windows)),
        tables=tables_of(_EVIDENCE, rows, windows, info),
        tally=tally(events, windows, lane.rank, lane.device),
        seen=seen_in(events, windows, lane.device, intervals, info),
        doubts=() if timings is None else timings.warnings,
        rounds=1 if timings is None else timings.rounds,
        span=None if clean is None else clean.span,
        part_spans={} if clean is None else dict(clean.parts),
        lost_ns=None if timings is None else timings.lost_ns,
        cpu_share=None if timings is None else timings.cpu_share,
        rare=() if clean is None else clean.rare,
        notes=(
            *_which_lane(lane, lanes, reason),
            *_communication(windows, straggler, overlap, len(lanes)),
        ),
        lanes=len(lanes),
        straggler=straggler,
        overlap=overlap,
        lacks=tuple(  # first the lacks (missing data) that hide where time goes
            sorted(
                (*_clocks(rows), *breakdown.lacks_of_rank(lane.rank)),
                key=lambda lack: not lack.blinds,
            )
        ),
        lost_overhead_ns=lost_overhead_ns(events, windows, lane.rank, intervals),
    )


def _meanwhile(breakdown: Breakdown, late: RankDevice, own: Intervals | None) -> Meanwhile | None:
    """Return what the straggler (``late``) did while the other ranks waited."""
    rank, device = late
    events = breakdown.events_of_rank(rank)
    if own is None:
        windows = [window for window in breakdown.windows if window.rank == rank]
        own = attributed(events, windows, rank)[device]
    calls = in_common(breakdown.table("collectives").to_pylist())
    return meanwhile_of(events, own, waits_of(calls, late))


def _chosen(
    name: str, lanes: Sequence[MeanStep], straggler: Straggler | None, wanted: RankDevice
) -> tuple[MeanStep, str]:
    """Choose the device or host to diagnose, and say why."""
    rank, device = wanted
    fitting = [
        lane for lane in lanes if rank in (None, lane.rank) and device in (None, lane.device)
    ]
    if not fitting:
        raise _no_such_lane(name, lanes, wanted)
    if len(fitting) == 1:
        return fitting[0], "" if wanted == (None, None) else "chosen by an option"
    if straggler is not None and straggler.state == FOUND:
        for lane in fitting:
            if (lane.rank, lane.device) == straggler.rank_device:
                return lane, "the straggler"
    first_lanes = [lane for lane in fitting if lane.rank == fitting[0].rank]
    lane = max(first_lanes, key=lambda lane: lane.busy_share)
    whose = "" if len(first_lanes) == len(fitting) else " of the first rank"
    return lane, f"the busiest device{whose}"


def _no_such_lane(name: str, lanes: Sequence[MeanStep], wanted: RankDevice) -> UsageError:
    rank, device = wanted
    words = [] if device is None else [f"device {device}"]
    words += [] if rank is None else [f"rank {rank}"]
    fault = f"{name}: the run has no {' of '.join(words)}"
    if len(lanes) == 1 and (lanes[0].rank, lanes[0].device) == (None, None):
        return UsageError(fault, "the run has one process on a CPU; omit --rank and --device")
    named = [lane_words(lane.rank, lane.device) for lane in lanes]
    if len(named) > _MOST_LISTED:
        named[_MOST_LISTED:] = [f"{len(named) - _MOST_LISTED} more"]
    return UsageError(fault, f"the run has {numbers.listed(named)}")


def _means(sums: Sequence[Contributor], steps: int) -> tuple[Contributor, ...]:
    means = mean_of([c.ns for c in sums], steps)
    return tuple(
        replace(c, ns=ns, count=c.count / steps, recorded=c.recorded / steps)
        for c, ns in zip(sums, means, strict=True)
    )


def _sync_calls(events: EventTable, steps: int) -> float | None:
    calls = events.is_kind("runtime")
    blocking = calls & (state_codes(events) == STATES.index("sync"))
    return int(blocking.sum()) / steps if calls.any() else None


def _clocks(events: EventTable) -> tuple[Lack, ...]:
    """Report that host and device clocks differ if work begins before its launch."""
    launch = events.rows_named("launch_id")
    linked = np.flatnonzero(events.is_kind(*ACTIVITY_KINDS) & (launch != NONE))
    early_ns = events.start_ns[launch[linked]] - events.start_ns[linked]
    early_ns = np.sort(early_ns[early_ns > ROUNDED_NS])
    if len(early_ns) <= EARLY_SHARE * len(linked):
        return ()
    usual, most = (numbers.quantity(int(ns), "ns") for ns in np.quantile(early_ns, (0.5, 1)))
    sentence = (
        "the clocks of host and device differ, so the causes of short idle gaps are uncertain: "
        f"{len(early_ns):,} of {len(linked):,} GPU activities begin before their launch call, "
        f"by {usual} (median) and by up to {most}; record fewer steps"
    )
    return (Lack(CLOCKS, sentence, len(early_ns) / len(linked), hides="causes of short gaps"),)


def _which_lane(lane: MeanStep, lanes: Sequence[MeanStep], reason: str) -> tuple[str, ...]:
    """Say which of several devices and hosts is diagnosed, and why."""
    if len(lanes) == 1:
        return ()
    return (
        f"this diagnosis is about {lane_words(lane.rank, lane.device)} only (1 of {len(lanes)} "
        f"devices: {reason})",
    )


def _communication(
    windows: Sequence[Window], straggler: Straggler | None, overlap: Overlap | None, lanes: int
) -> list[str]:
    """Write notes on the straggler and on the time of communication."""
    least_ns = LEAST_SHARE * statistics.mean(w.length_ns for w in windows)
    matters = overlap if overlap and overlap.communication_ns >= least_ns else None
    lines = [straggler_sentence(straggler)] if straggler and (matters or lanes > 1) else []
    return [*lines, overlap_sentence(matters, windows[0].step is not None)] if matters else lines


def total_ns(contributors: Iterable[Contributor]) -> int:
    return sum(contributor.ns for contributor in contributors)


def by_name(contributors: Iterable[Contributor]) -> Spent:
    spent: Spent = {}
    for contributor in contributors:
        if contributor.name is not None:
            ns, calls = spent.get(contributor.name, (0, 0.0))
            spent[contributor.name] = (ns + contributor.ns, calls + contributor.count)
    return spent


def labels(fast: StepProfile, slow: StepProfile) -> tuple[str, str]:
    """Return short, different names for two runs."""
    first, second = numbers.labels([fast.name, slow.name], [fast.label, slow.label])
    return first, second
