"""Break down the first step of a big profile before the rest is read.

The longest launch latency depends on the whole profile, and is still unknown here. Idle time that
may be either latency or queued time is therefore shown as one sum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from lstmprof.breakdown.attribution import LATENCY, QUEUED
from lstmprof.breakdown.attribution.ledger import ledger
from lstmprof.breakdown.attribution.waits import LEAST_LATENCY_NS, device_activities, waits_of
from lstmprof.breakdown.mean_step import MeanStep, in_reading_order, mean_steps
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import Window
from lstmprof.events.table import EventTable
from lstmprof.formats.kineto.beginning import beginning

LATENCY_OR_QUEUED = f"{LATENCY} or {QUEUED}"
_NO_END_NS = 2**60


@dataclass(frozen=True)
class FirstStep:
    """The breakdown of the first step, computed from ``read_bytes`` of the file's bytes."""

    name: str
    mean_steps: tuple[MeanStep, ...]
    device_names: Mapping[int, str]
    read_bytes: int
    file_bytes: int


def first_step(path: Path, least_bytes: int) -> FirstStep | None:
    """Break down the first step of a big Kineto file, or return None for other files."""
    begun = beginning(path, least_bytes)
    if begun is None:
        return None
    events = annotated(begun.profile.events, captured=False)
    least, most = (_mean_steps(events, begun.step, ns) for ns in (LEAST_LATENCY_NS, _NO_END_NS))
    lanes = tuple(
        lane if lane.parts == at_most.parts else _joined(lane)
        for lane, at_most in zip(least, most, strict=True)
    )
    names = begun.profile.device_names
    return FirstStep(begun.name, lanes, names, begun.read_bytes, begun.file_bytes)


def _mean_steps(events: EventTable, step: Window, latency_ns: int) -> list[MeanStep]:
    """Break down one step with a given longest launch latency."""
    waits = {
        device.number: replace(waits_of(device), latency_ns=latency_ns)
        for device in device_activities(events, step.rank)
    }
    return mean_steps(ledger(events, [step], {step.rank: waits}))


def _joined(lane: MeanStep) -> MeanStep:
    """Replace launch latency and queued time by their sum."""
    parts: Counter[tuple[str, str]] = Counter()
    for state, part, ns in lane.parts:
        parts[state, LATENCY_OR_QUEUED if part in (LATENCY, QUEUED) else part] += ns
    return replace(lane, parts=in_reading_order(parts))


def matches(first: FirstStep, ledger: pa.Table, windows: Sequence[Window]) -> bool:
    """Return whether ``first`` agrees with the ledger of the whole profile."""
    step, rank = windows[0].step, windows[0].rank
    rows = [row for row in ledger.to_pylist() if (row["step"], row["rank"]) == (step, rank)]
    step_ledger = pa.Table.from_pylist(rows, ledger.schema)
    whole = {lane.device: lane for lane in mean_steps(step_ledger)}
    return all(
        lane.device in whole
        and lane.parts in (whole[lane.device].parts, _joined(whole[lane.device]).parts)
        for lane in first.mean_steps
    )
