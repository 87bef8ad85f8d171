"""Find the rank that all others wait for, and how much communication overlaps with computing.

A rank's wait in a collective is the kernel's duration on this rank minus the duration on the rank
that arrived last. Starts cannot be compared, because the clocks of ranks differ. The overlap has
the definition of Holistic Trace Analysis (``get_comm_comp_overlap``), within the profiled steps.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lstmprof.base.names import PART_WORDS
from lstmprof.base.numbers import cropped, milliseconds, percent
from lstmprof.breakdown import Breakdown
from lstmprof.breakdown.attribution import TAIL
from lstmprof.breakdown.clean.clean_step import CleanStep
from lstmprof.breakdown.mean_step import lane_words
from lstmprof.breakdown.tables.collectives import (
    RankDevice,
    compared_steps,
    group_sizes,
    in_common,
    rank_records,
)
from lstmprof.diagnose.step_profile.earlier import earlier_ns
from lstmprof.diagnose.step_profile.meanwhile import Meanwhile
from lstmprof.events.annotate.steps import Window
from lstmprof.events.intervals import Covered
from lstmprof.runs.metadata import RunInfo

FOUND, NONE, UNKNOWN = "found", "none", "unknown"
MEASURED, LIKELY = "measured", "likely"
#: Smallest share of the step at which lstmprof reports waits or communication.
LEAST_SHARE = 0.01
#: Longest wait of a late rank, as a share of the median wait of the other ranks.
LATE = 0.5
#: Smallest share of steps with a late rank at which lstmprof reports that the late rank changes.
CHANGING_SHARE = 0.75
#: Smallest number of collectives at which lstmprof marks a result about ranks as measured, not as
#: likely. Fewer collectives cannot check the alignment of the ranks' clocks.
LEAST_COLLECTIVES = 3

_Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Waiter:
    """A device that waits in collectives or arrives last."""

    rank: int | None
    device: int | None
    waits_ns: float  # per step
    last_in: int  # number of collectives in which the device arrives last

    @property
    def rank_device(self) -> RankDevice:
        return self.rank, self.device


@dataclass(frozen=True)
class WaitsFor:
    """How long one device waits per step for another one that arrives last."""

    rank: int | None
    device: int | None
    for_rank: int | None
    for_device: int | None
    ns: float

    @property
    def rank_device(self) -> RankDevice:
        """Return the device that waits."""
        return self.rank, self.device


@dataclass(frozen=True)
class Excess:
    """The part of a step in which the late rank exceeds the median rank most."""

    state: str
    part: str
    ns: float

    @property
    def words(self) -> str:
        """Return a clause: ``spends 1.2 ms more per step in dispatch than the median rank``."""
        part = PART_WORDS.get(self.part, self.part)
        return f"spends {milliseconds(self.ns)} ms more per step in {part} than the median rank"


@dataclass(frozen=True)
class Straggler:
    """The device that the others wait for in collectives."""

    state: str  # found, none (no device is always last) or unknown
    reason: str | None = None
    # likely if the collectives are few or unmatched, or if their groups of ranks are unknown
    certainty: str | None = None
    rank: int | None = None
    device: int | None = None
    marked: bool = True  # False: no step markers, times are of the whole profile
    world_size: int | None = None
    steps: int = 0
    late_in: int = 0  # steps in which the others waited for this device
    collectives: int = 0
    waiters: tuple[Waiter, ...] = ()
    waits_for: tuple[WaitsFor, ...] = ()
    unmatched: int = 0  # collective kernels without a counterpart on some rank
    moves: bool = False  # the late rank changes from step to step
    meanwhile: Meanwhile | None = None  # what the late rank did while the others waited
    excess: Excess | None = None
    saved_share: float | None = None  # share of the waits that would not become other idle time

    @property
    def rank_device(self) -> RankDevice:
        return self.rank, self.device

    @property
    def longest(self) -> WaitsFor | None:
        """Return the longest wait for the late rank."""
        waits = (w for w in self.waits_for if (w.for_rank, w.for_device) == self.rank_device)
        return max(waits, key=lambda wait: wait.ns, default=None)

    def waits_for_late_ns(self, rank_device: RankDevice) -> float:
        """Return how long a device waits for the late rank per step."""
        waits = (w for w in self.waits_for if (w.for_rank, w.for_device) == self.rank_device)
        return sum(w.ns for w in waits if w.rank_device == rank_device)

    def waits_ns(self, rank_device: RankDevice) -> int:
        """Return how long a device waits for any other rank per step."""
        return round(sum(w.waits_ns for w in self.waiters if w.rank_device == rank_device))


@dataclass(frozen=True)
class Overlap:
    """The time of communication per step, in all and without computing meanwhile."""

    communication_ns: int
    exposed_ns: int  # nothing is computed meanwhile

    @property
    def overlapped_ns(self) -> int:
        """Return the time in which the device both communicates and computes."""
        return self.communication_ns - self.exposed_ns

    @property
    def share(self) -> float:
        """Return the share of the communication that overlaps with computing."""
        return self.overlapped_ns / self.communication_ns


def straggler_of(breakdown: Breakdown, rank_devices: Sequence[RankDevice]) -> Straggler | None:
    """Find the device that all others wait for in collectives."""
    rows = breakdown.table("collectives").to_pylist()
    if len(rank_devices) < 2 and not rows:
        return None
    unmatched = [row for row in rows if row["collective"] is None]
    matters_ns = LEAST_SHARE * statistics.mean(w.length_ns for w in breakdown.windows)
    compared = in_common(rows, matters_ns)
    facts = Straggler(
        UNKNOWN,
        marked=any(window.step is not None for window in breakdown.windows),
        world_size=(size := world_size(breakdown.run.info)),
        unmatched=len(unmatched),
        steps=compared_steps(rows, compared, breakdown.windows),
    )
    if not compared:
        return replace(facts, reason=_why_not_compared(breakdown, rows))
    straggler = _with_late_rank(compared, matters_ns, facts)
    if straggler.state == FOUND:
        straggler = replace(straggler, excess=_excess(breakdown, straggler.rank_device, matters_ns))
    steps = {row["step"] for row in compared}
    partial = any(row["step"] in steps for row in unmatched)
    groups = any(ranks < (size or 0) for ranks in group_sizes(breakdown.run.info))
    unsure = partial or (groups and not all(row["process_group"] for row in compared))
    return replace(straggler, certainty=LIKELY) if unsure else straggler


def saved_share(breakdown: Breakdown, straggler: Straggler, waiting: RankDevice) -> float | None:
    """Return by which share of its waits for the late rank ``waiting`` would end earlier."""
    rank, device = waiting
    waits_ns: dict[int | None, dict[int, int]] = defaultdict(dict)
    for row in in_common(breakdown.table("collectives").to_pylist()):
        late = (row["last_rank"], row["last_device"]) == straggler.rank_device
        if late and _rank_device(row) == waiting:
            waits_ns[row["step"]][row["start_ns"]] = row["waits_ns"]
    # judge by the step with the longest waits
    step = max(waits_ns, key=lambda step: sum(waits_ns[step].values()), default=None)
    window = next((w for w in breakdown.windows if w.rank == rank and w.step == step), None)
    longest_ns = sum(waits_ns[step].values())
    if window is None or not longest_ns:
        return None
    saved_ns = earlier_ns(breakdown.events_of_rank(rank), window, device, waits_ns[step])
    return None if saved_ns is None else min(saved_ns / longest_ns, 1.0)


def _excess(breakdown: Breakdown, late: RankDevice, matters_ns: float) -> Excess | None:
    """Find the part of a step in which the late rank exceeds the median rank most."""
    steps = Counter(window.rank for window in breakdown.windows)
    parts: dict[RankDevice, Counter[tuple[str, str]]] = defaultdict(Counter)
    for row in breakdown.ledger.to_pylist():
        label = row["state"], row["part"].removeprefix(TAIL)
        parts[_rank_device(row)][label] += row["ns"] if row["part"] != "collective" else 0
    own = {label: ns / steps[late[0]] for label, ns in parts.pop(late, Counter()).items()}
    more = {
        label: ns - statistics.median(of[label] / steps[rank] for (rank, _), of in parts.items())
        for label, ns in own.items()
        if parts
    }
    most = max(more, key=more.__getitem__, default=None)
    return None if most is None or more[most] < matters_ns else Excess(*most, more[most])


def _why_not_compared(breakdown: Breakdown, rows: _Rows) -> str:
    """Return why no collectives of the ranks can be compared."""
    if not rows:
        return "the profile has no collectives"
    rank_devices = sorted({_rank_device(row) for row in rows}, key=_order)
    if len(rank_devices) < 2:
        job = world_size(breakdown.run.info) or 1
        only = f"only {lane_words(*rank_devices[0])} has collectives in the profile"
        incomplete = f"the profile has 1 of {job} ranks; give the folder with all ranks"
        return incomplete if job > 1 else only
    steps = [{w.step for w in breakdown.windows if w.rank == rank} for rank, _ in rank_devices]
    common = set.intersection(*steps)
    if not common:
        return "no step was profiled on all ranks"
    unmatched = [r for r in rows if r["collective"] is None and r["step"] in common]
    if len(unmatched) == len(rows):
        return _unequal_numbers(unmatched, rows, rank_devices)
    skew_ns = max((row["skew_ns"] for row in rows if row["collective"] is not None), default=0)
    return (
        f"the ranks end one and the same collective up to {milliseconds(skew_ns)} ms apart, even "
        "after lstmprof aligned the clocks of the ranks"
    )


def _unequal_numbers(unmatched: _Rows, rows: _Rows, rank_devices: Sequence[RankDevice]) -> str:
    first = min(unmatched, key=lambda row: (row["step"] or 0, row["name"]))
    name, step = first["name"], first["step"]
    counts = Counter(_rank_device(r) for r in rows if r["name"] == name and r["step"] == step)
    most = max(rank_devices, key=lambda rank_device: counts[rank_device])
    fewest = min(rank_devices, key=lambda rank_device: counts[rank_device])
    where = "" if step is None else f" in step {step}"
    if counts[most] == counts[fewest]:
        return f"{cropped(name)} runs on different streams on different ranks{where}"
    return (
        f"{lane_words(*most)} runs {cropped(name)} {counts[most]} times{where}, and"
        f" {lane_words(*fewest)} {counts[fewest]} times"
    )


def _with_late_rank(rows: _Rows, matters_ns: float, facts: Straggler) -> Straggler:
    """Add to ``facts`` the waits of all ranks, and the late rank if there is one."""
    steps = facts.steps
    waits: Counter[RankDevice] = Counter()
    for row in rows:
        waits[_rank_device(row)] += row["waits_ns"]
    last_of = {row["collective"]: (row["last_rank"], row["last_device"]) for row in rows}
    last_in = Counter(last_of.values())
    waiters = [
        Waiter(*rank_device, waits[rank_device] / steps, last_in[rank_device])
        for rank_device in sorted(waits, key=_order)
    ]
    facts = replace(
        facts,
        certainty=MEASURED if len(last_of) >= LEAST_COLLECTIVES else LIKELY,
        collectives=len(last_of),
        waiters=tuple(waiters),
        waits_for=_waits_for(rows, steps),
    )
    each = " per step" if facts.marked else ""
    low, high = (f(waiter.waits_ns for waiter in waiters) for f in (min, max))
    if high < matters_ns:
        reason = f"the longest wait of a rank in collectives is {milliseconds(high, 3)} ms{each}"
        return replace(facts, state=NONE, reason=reason)
    late = min(waiters, key=lambda waiter: (waiter.waits_ns, _order(waiter.rank_device)))
    others = statistics.median(w.waits_ns for w in waiters if w is not late)
    late_of_steps = _late_of_steps(rows)
    late_in = late_of_steps.count(late.rank_device)
    if late.waits_ns <= LATE * others and 2 * late_in > steps:
        return replace(facts, state=FOUND, rank=late.rank, device=late.device, late_in=late_in)
    lates = [rank_device for rank_device in late_of_steps if rank_device is not None]
    moves = len(lates) >= CHANGING_SHARE * steps and len(set(lates)) > 1
    reason = "in collectives, all ranks wait for each other:"
    if moves:
        reason = "the late rank is not always the same; the ranks wait"
    reason += f" {milliseconds(low)} to {milliseconds(high)} ms{each}"
    return replace(facts, state=NONE, reason=reason, moves=moves)


def _waits_for(rows: _Rows, steps: int) -> tuple[WaitsFor, ...]:
    waits: Counter[tuple[RankDevice, RankDevice]] = Counter()
    for row in rows:
        waits[_rank_device(row), (row["last_rank"], row["last_device"])] += row["waits_ns"]
    return tuple(
        WaitsFor(*rank_device, *other, ns / steps)
        for (rank_device, other), ns in waits.most_common()
        if ns
    )


def _late_of_steps(rows: _Rows) -> list[RankDevice | None]:
    """Return the late device of each step, or None if no device is clearly late."""
    waits: dict[int | None, Counter[RankDevice]] = defaultdict(Counter)
    for row in rows:
        waits[row["step"]][_rank_device(row)] += row["waits_ns"]
    lates: list[RankDevice | None] = []
    for step in waits.values():
        late = min(step, key=lambda rank_device: (step[rank_device], _order(rank_device)))
        others = statistics.median(ns for rank_device, ns in step.items() if rank_device != late)
        lates.append(late if step[late] <= LATE * others and others else None)
    return lates


def _rank_device(row: dict[str, Any]) -> RankDevice:
    return row["rank"], row["device"]


def _order(rank_device: RankDevice) -> tuple[int, int]:
    rank, device = rank_device
    return (-1 if rank is None else rank, -1 if device is None else device)


def overlap_of(
    breakdown: Breakdown,
    rank_device: RankDevice,
    windows: Sequence[Window],
    clean: CleanStep | None,
) -> Overlap | None:
    """Return how much a device communicates per step, and how much of this is exposed."""
    rows = [
        row
        for row in breakdown.table("collectives").to_pylist()
        if _rank_device(row) == rank_device
    ]
    start = np.array([row["start_ns"] for row in rows], dtype=np.int64)
    end = start + np.array([row["dur_ns"] for row in rows], dtype=np.int64)
    if clean is not None:
        start, end = clean.at(start), clean.at(end)
    covered = Covered(start, end).within(
        np.array([w.start_ns for w in windows], dtype=np.int64),
        np.array([w.end_ns for w in windows], dtype=np.int64),
    )
    if clean is not None:
        # sum exposed communication: the breakdown counts overlapping time as computing
        parts = clean.mean_step.parts
        exposed = sum(ns for _, part, ns in parts if part == "collective")
    else:
        steps = {w.step for w in windows}
        exposed = sum(
            row["ns"]
            for row in breakdown.ledger.to_pylist()
            if _rank_device(row) == rank_device
            and row["part"] == "collective"
            and row["step"] in steps
        )
    mean = [round(ns / len(windows)) for ns in (int(covered.sum()), exposed)]
    return Overlap(*mean) if mean[0] else None


def world_size(info: RunInfo) -> int | None:
    """Return the number of ranks of the job; some may have no profile."""
    sizes = [record.get("world_size") for record in rank_records(info)]
    return max((size for size in sizes if isinstance(size, int)), default=None)


def straggler_sentence(straggler: Straggler) -> str:
    if straggler.state == UNKNOWN:
        return f"straggler unknown: {straggler.reason}"
    size, ranks = straggler.world_size or 0, len({w.rank for w in straggler.waiters})
    others = f"; {size - ranks} of the {size} ranks were not profiled" if size > ranks else ""
    if straggler.unmatched:
        others += f"; {straggler.unmatched:,} collectives have no counterpart on another rank"
    if straggler.state == NONE:
        return f"no straggler: {straggler.reason}{others}"
    late, each = straggler, " per step" if straggler.marked else ""
    own = next(w for w in late.waiters if w.rank_device == late.rank_device)
    longest = max(late.waiters, key=lambda waiter: waiter.waits_ns)
    does = f", which {late.meanwhile.words}" if late.meanwhile else ""
    more = f"; {lane_words(*late.rank_device)} {late.excess.words}" if late.excess else ""
    for_it = late.waits_for_late_ns(longest.rank_device)
    likely = "" if late.certainty == MEASURED else "likely "
    name, other = lane_words(*late.rank_device), lane_words(*longest.rank_device)
    return (
        f"{likely}straggler: {name} arrives last in {own.last_in} of {late.collectives}"
        f" collectives and waits {milliseconds(own.waits_ns)} ms{each}; {other} waits longest:"
        f" {milliseconds(longest.waits_ns)} ms{each}, of which {milliseconds(for_it)} ms for"
        f" {name}{does}{more}{others}"
    )


def overlap_sentence(overlap: Overlap, marked: bool) -> str:
    each = " per step" if marked else ""
    return (
        f"collectives take {milliseconds(overlap.communication_ns)} ms{each}; during"
        f" {milliseconds(overlap.exposed_ns)} ms ({percent(1 - overlap.share)}) of this time, the"
        f" device computes nothing"
    )
