"""The table of ranks: busy time, waits, imbalance and late arrivals at collectives."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from lstmprof.breakdown.mean_step import waits_for_host_ns
from lstmprof.breakdown.tables.collectives import RankDevice, compared_steps, in_common, rank_device
from lstmprof.events.annotate.steps import Window, bounds_of
from lstmprof.events.intervals import Covered
from lstmprof.events.schema import DEVICE, RANK, Column, schema

_ALONE = "no collective is shared with other ranks"
_SILENT = "the rank has no collectives"
COLUMNS = (
    RANK,
    DEVICE,
    Column.integer("steps", "number of profiled steps; 1 if the profile has no step markers"),
    Column.real("step_ns", "mean length of a step"),
    Column.integer("longest_step_ns", "length of the longest step"),
    Column.real("busy_ns", "mean busy time per step, including collectives"),
    Column.real(
        "waits_for_host_ns",
        "mean time per step in which the device waited for its host",
        "the work ran on the host (CPU)",
    ),
    Column.real("work_ns", "mean busy time per step, without collectives"),
    Column.real(
        "imbalance_share",
        "work_ns divided by the mean work_ns of all ranks and devices, minus 1",
        "there is no other rank or device",
    ),
    Column.real("collective_ns", "mean time per step in which a collective ran"),
    Column.real("exposed_ns", "part of collective_ns in which the device computed nothing"),
    Column.real(
        "overlapped_share",
        "share of the time in collectives in which a computing kernel also ran",
        _SILENT,
    ),
    Column.real(
        "waits_ns",
        "mean time per step that the device waited for other ranks in collectives",
        _ALONE,
    ),
    Column.integer(
        "waits_for_rank",
        "rank for which this device waited longest",
        f"the device waited for no rank, or {_ALONE}",
    ),
    Column.integer(
        "waits_for_device",
        "device for which this device waited longest",
        f"the device waited for no rank, or {_ALONE}",
    ),
    Column.integer("last_in", "number of collectives in which the device arrived last", _ALONE),
    Column.integer("collectives", "number of collectives that all ranks have in common", _ALONE),
    Column.real(
        "late_ns",
        "mean time per step that another rank waited for this device in collectives",
        _ALONE,
    ),
)
SCHEMA = schema(COLUMNS)

_last_rank_device: Callable[[Mapping[str, Any]], RankDevice] = itemgetter(
    "last_rank", "last_device"
)
_Rows = Sequence[dict[str, Any]]
_Key = TypeVar("_Key", bound=Hashable)
_Member = TypeVar("_Member")


def ranks(ledger: pa.Table, collectives: pa.Table, windows: list[Window]) -> pa.Table:
    """Return one row per rank and device."""
    spent: dict[RankDevice, Counter[tuple[str, str]]] = defaultdict(Counter)
    for row in ledger.to_pylist():
        spent[row["rank"], row["device"]][row["state"], row["part"]] += row["ns"]
    calls = collectives.to_pylist()
    of_rank, of_device = _by(windows, lambda window: window.rank), _by(calls, rank_device)
    rows = [
        _times(lane, parts, of_rank[lane[0]], of_device.get(lane, []))
        for lane, parts in spent.items()
    ]
    mean = sum(row["work_ns"] for row in rows) / max(len(rows), 1)
    arrivals = in_common(calls)
    steps = compared_steps(calls, arrivals, windows)
    own, late = _by(arrivals, rank_device), _by(arrivals, _last_rank_device)
    for row in rows:
        row["imbalance_share"] = row["work_ns"] / mean - 1 if len(rows) > 1 and mean else None
        lane = rank_device(row)
        row |= _lateness(own.get(lane, []), late.get(lane, []), len(own) - 1, steps)
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _by(members: Iterable[_Member], key: Callable[[_Member], _Key]) -> dict[_Key, list[_Member]]:
    grouped: dict[_Key, list[_Member]] = {}
    for member in members:
        grouped.setdefault(key(member), []).append(member)
    return grouped


def _times(
    lane: RankDevice, parts: Counter[tuple[str, str]], own: list[Window], calls: _Rows
) -> dict[str, Any]:
    """Return the times of one rank and device as columns, such as ``busy_ns``."""
    lengths = [window.end_ns - window.start_ns for window in own]
    busy = sum(ns for (state, _), ns in parts.items() if state == "busy")
    exposed = parts["busy", "collective"]
    idle = [(part, ns) for (state, part), ns in parts.items() if state == "idle"]
    communicates = _collective_ns(own, calls)
    steps = len(own)
    return {
        "rank": lane[0],
        "device": lane[1],
        "steps": steps,
        "step_ns": sum(lengths) / steps,
        "longest_step_ns": max(lengths),
        "busy_ns": busy / steps,
        "waits_for_host_ns": None if lane[1] is None else waits_for_host_ns(idle) / steps,
        "work_ns": (busy - exposed) / steps,
        "collective_ns": communicates / steps,
        "exposed_ns": exposed / steps,
        "overlapped_share": 1 - exposed / communicates if communicates else None,
    }


def _collective_ns(windows: list[Window], calls: _Rows) -> int:
    """Return how long at least one collective ran within the steps."""
    start = np.array([row["start_ns"] for row in calls], dtype=np.int64)
    length = np.array([row["dur_ns"] for row in calls], dtype=np.int64)
    return int(Covered(start, start + length).within(*bounds_of(windows)).sum())


def _lateness(own: _Rows, late: _Rows, others: int, steps: int) -> dict[str, Any]:
    """Return the columns about waits and lateness of one rank and device."""
    names = ("waits_ns", "waits_for_rank", "waits_for_device", "last_in", "collectives", "late_ns")
    if not own:
        return dict.fromkeys(names)
    waits: Counter[RankDevice] = Counter()
    for row in own:
        waits[_last_rank_device(row)] += row["waits_ns"]
    longest, waited_ns = max(waits.items(), key=lambda item: item[1])
    whom = longest if waited_ns else (None, None)
    # ``late`` has the calls, of all ranks, of collectives at which this device arrived last
    values = (
        sum(waits.values()) / steps,
        *whom,
        len({row["collective"] for row in late}),
        len(own),
        sum(row["waits_ns"] for row in late) / others / steps,
    )
    return dict(zip(names, values, strict=True))
