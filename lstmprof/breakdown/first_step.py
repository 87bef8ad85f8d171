"""The first step of a big profile, accounted for before the rest of the profile is read.

It is the ledger of that step, made as any other, of what began before the step's end. Only how long
a launch takes to reach its device is a number of the whole profile: where a gap is longer than the
least that it can be, what is the launch's latency and what is queued cannot be told apart yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from lstmprof.breakdown.attribution import LATENCY, QUEUED
from lstmprof.breakdown.ledger import ledger
from lstmprof.breakdown.mean_step import MeanStep, in_reading_order, mean_steps
from lstmprof.breakdown.waits import LEAST_LATENCY_NS, device_lanes, waits_of
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import Window
from lstmprof.events.table import EventTable
from lstmprof.formats.kineto.beginning import beginning

#: What cannot be told apart before the whole profile is read.
LATENCY_OR_QUEUED = f"{LATENCY} or {QUEUED}"
_NO_END_NS = 2**60


@dataclass(frozen=True)
class FirstStep:
    """Where the time of the first step goes, whose marker is called ``name``, lane by lane.

    That is from ``read_bytes`` of the ``file_bytes``. ``device_names`` are as the profile has them.
    """

    name: str
    lanes: tuple[MeanStep, ...]
    device_names: Mapping[int, str]
    read_bytes: int
    file_bytes: int


def first_step(path: Path, least_bytes: int) -> FirstStep | None:
    """The first step of the profile at ``path``, None where it is not known without the rest.

    It is of plain Kineto files of ``least_bytes`` and more.
    """
    begun = beginning(path, least_bytes)
    if begun is None:
        return None
    events = annotated(begun.profile.events, captured=False)
    least, most = (_lanes(events, begun.step, ns) for ns in (LEAST_LATENCY_NS, _NO_END_NS))
    lanes = tuple(
        one if one.parts == other.parts else _told_together(one)
        for one, other in zip(least, most, strict=True)
    )
    names = begun.profile.device_names
    return FirstStep(begun.name, lanes, names, begun.read_bytes, begun.file_bytes)


def _lanes(events: EventTable, step: Window, latency_ns: int) -> list[MeanStep]:
    """Each lane of ``step``, if a launch reaches an idle device within ``latency_ns``."""
    waits = {
        lane.device: replace(waits_of(lane), latency_ns=latency_ns)
        for lane in device_lanes(events, step.rank)
    }
    return mean_steps(ledger(events, [step], {step.rank: waits}))


def _told_together(lane: MeanStep) -> MeanStep:
    """``lane`` with its latency and what is queued in one part."""
    parts: Counter[tuple[str, str]] = Counter()
    for state, part, ns in lane.parts:
        parts[state, LATENCY_OR_QUEUED if part in (LATENCY, QUEUED) else part] += ns
    return replace(lane, parts=in_reading_order(parts))


def holds(first: FirstStep, ledger: pa.Table, windows: Sequence[Window]) -> bool:
    """Whether the ``ledger`` of the whole profile says of the first of its ``windows`` the same."""
    step, rank = windows[0].step, windows[0].rank
    rows = [row for row in ledger.to_pylist() if (row["step"], row["rank"]) == (step, rank)]
    of_step = pa.Table.from_pylist(rows, ledger.schema)
    whole = {lane.device: lane for lane in mean_steps(of_step)}
    return all(
        lane.device in whole
        and lane.parts in (whole[lane.device].parts, _told_together(whole[lane.device]).parts)
        for lane in first.lanes
    )
