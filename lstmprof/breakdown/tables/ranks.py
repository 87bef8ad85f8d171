"""The rank table: each rank and device of a job beside the others, of a mean step.

Made of the ledger and of the table of collectives: what a rank waits in a collective is what its
kernel is longer than the shortest, which is that of the last to arrive. Only lengths of ranks are
compared, never their clocks. Where the profile marks no steps, times are of the whole profile.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from lstmprof.breakdown.mean_step import waits_for_host_ns
from lstmprof.events.annotate.steps import Window
from lstmprof.events.intervals import Covered
from lstmprof.events.schema import DEVICE, RANK, Column, schema

#: Kernels of ranks that end this share of their longest wait apart are not one collective.
MOST_SKEW_SHARE = 0.5

_ALONE = (
    "the rank shares no collective with another rank, or the ranks' clocks "
    "disagree (see the table collectives)"
)
_SILENT = "the rank has no collectives"
COLUMNS = (
    RANK,
    DEVICE,
    Column.integer("steps", "number of profiled steps; 1 if the profile has no step markers"),
    Column.real("step_ns", "mean length of a step"),
    Column.integer("longest_step_ns", "length of the longest step"),
    Column.real("busy_ns", "busy time per mean step, including collectives"),
    Column.real(
        "waits_for_host_ns",
        "time per mean step in which a device waited for its host",
        "the work ran on the host (CPU)",
    ),
    Column.real("work_ns", "busy time per mean step, without collectives"),
    Column.real(
        "imbalance_share",
        "work_ns divided by the mean over all ranks and devices, minus 1",
        "there is no other rank or device, or none does any work",
    ),
    Column.real("collective_ns", "time per mean step in which a collective ran"),
    Column.real("exposed_ns", "part of collective_ns in which nothing else ran on the device"),
    Column.real(
        "overlapped_share",
        "share of the time in collectives during which a computing kernel also ran",
        _SILENT,
    ),
    Column.real(
        "waits_ns",
        "time per mean step in which the device waited for other ranks in collectives",
        _ALONE,
    ),
    Column.integer(
        "waits_for_rank",
        "rank that the device waited for the longest",
        f"it waited for no rank; {_ALONE}",
    ),
    Column.integer(
        "waits_for_device", "device of waits_for_rank", f"it waited for no rank; {_ALONE}"
    ),
    Column.integer("last_in", "number of collectives in which the device arrived last", _ALONE),
    Column.integer("collectives", "number of collectives shared with all other ranks", _ALONE),
    Column.real(
        "late_ns",
        "mean time per step for which another rank waited for this device in collectives",
        _ALONE,
    ),
)
SCHEMA = schema(COLUMNS)

_Place = tuple[int | None, int | None]
_Rows = Sequence[dict[str, Any]]
_Key = TypeVar("_Key", bound=Hashable)
_Member = TypeVar("_Member")


def ranks(ledger: pa.Table, collectives: pa.Table, windows: list[Window]) -> pa.Table:
    """One row a rank and device, in their order, of the tables of these names; ``SCHEMA``."""
    spent: dict[_Place, Counter[tuple[str, str]]] = defaultdict(Counter)
    for row in ledger.to_pylist():
        spent[row["rank"], row["device"]][row["state"], row["part"]] += row["ns"]
    calls = collectives.to_pylist()
    of_rank, of_place = _by(windows, lambda window: window.rank), _by(calls, _place)
    rows = [
        _times(place, parts, of_rank[place[0]], of_place.get(place, []))
        for place, parts in spent.items()
    ]
    mean = sum(row["work_ns"] for row in rows) / max(len(rows), 1)
    arrivals = in_common(calls)
    steps = compared_steps(calls, arrivals, windows)
    own, late = _by(arrivals, _place), _by(arrivals, _last_place)
    for row in rows:
        row["imbalance_share"] = row["work_ns"] / mean - 1 if len(rows) > 1 and mean else None
        place = _place(row)
        row |= _lateness(own.get(place, []), late.get(place, []), len(own) - 1, steps)
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _by(members: Iterable[_Member], key: Callable[[_Member], _Key]) -> dict[_Key, list[_Member]]:
    """The ``members`` by their ``key``, in their order."""
    grouped: dict[_Key, list[_Member]] = {}
    for member in members:
        grouped.setdefault(key(member), []).append(member)
    return grouped


def _place(row: Mapping[str, Any]) -> _Place:
    return row["rank"], row["device"]


def _last_place(row: Mapping[str, Any]) -> _Place:
    return row["last_rank"], row["last_device"]


def _times(
    place: _Place, parts: Counter[tuple[str, str]], own: list[Window], calls: _Rows
) -> dict[str, Any]:
    """What a rank and device did in its ``own`` windows, of which ``calls`` are the collectives."""
    lengths = [window.end_ns - window.start_ns for window in own]
    busy = sum(ns for (state, _), ns in parts.items() if state == "busy")
    exposed = parts["busy", "collective"]
    idle = [(part, ns) for (state, part), ns in parts.items() if state == "idle"]
    communicates = _collective_ns(own, calls)
    steps = len(own)
    return {
        "rank": place[0],
        "device": place[1],
        "steps": steps,
        "step_ns": sum(lengths) / steps,
        "longest_step_ns": max(lengths),
        "busy_ns": busy / steps,
        "waits_for_host_ns": None if place[1] is None else waits_for_host_ns(idle) / steps,
        "work_ns": (busy - exposed) / steps,
        "collective_ns": communicates / steps,
        "exposed_ns": exposed / steps,
        "overlapped_share": 1 - exposed / communicates if communicates else None,
    }


def _collective_ns(windows: list[Window], calls: _Rows) -> int:
    """Time of the windows in which one of ``calls`` ran."""
    start = np.array([row["start_ns"] for row in calls], dtype=np.int64)
    length = np.array([row["dur_ns"] for row in calls], dtype=np.int64)
    begins, ends = (
        np.array([getattr(window, edge) for window in windows], dtype=np.int64)
        for edge in ("start_ns", "end_ns")
    )
    return int(Covered(start, start + length).within(begins, ends).sum())


def in_common(calls: Sequence[dict[str, Any]], least_skew_ns: float = 0.0) -> list[dict[str, Any]]:
    """Return those of ``calls``, rows of the table of collectives, that all ranks have in common.

    The ends of each collective agree if its ``skew_ns`` is at most ``least_skew_ns``, or half of
    its longest wait or of a mean wait. None is returned if most of the waits are in collectives
    whose ends do not agree: then the ranks communicate in groups.
    """
    longest: Counter[int] = Counter()
    for row in calls:
        if (number := row["collective"]) is not None:
            longest[number] = max(longest[number], row["waits_ns"])
    mean_ns = longest.total() / max(len(longest), 1)
    agree = [
        row
        for row in calls
        if (number := row["collective"]) is not None
        and row["skew_ns"] <= max(least_skew_ns, MOST_SKEW_SHARE * max(longest[number], mean_ns))
    ]
    agreed_ns = sum(longest[number] for number in {row["collective"] for row in agree})
    return agree if 2 * agreed_ns >= longest.total() else []


def compared_steps(calls: _Rows, compared: _Rows, windows: Iterable[Window]) -> int:
    """Return the number of steps in which the waits of the ``compared`` of ``calls`` are known.

    These are the steps of all ranks that communicate, except steps whose collectives all lack
    their partners.
    """
    steps: dict[int | None, set[int | None]] = defaultdict(set)
    for window in windows:
        steps[window.rank].add(window.step)
    ranks = {row["rank"] for row in calls}
    common = set.intersection(*(steps[rank] for rank in ranks)) if ranks else set()
    blind = {row["step"] for row in calls} - {row["step"] for row in compared}
    return len(common - blind)


def _lateness(own: _Rows, late: _Rows, others: int, steps: int) -> dict[str, Any]:
    """Whom it waits for in its ``own`` collectives, and how late it is itself.

    ``late`` are the rows of all those to which it was the last; ``others`` wait there.
    """
    names = ("waits_ns", "waits_for_rank", "waits_for_device", "last_in", "collectives", "late_ns")
    if not own:
        return dict.fromkeys(names)
    waits: Counter[_Place] = Counter()
    for row in own:
        waits[_last_place(row)] += row["waits_ns"]
    longest, waited_ns = max(waits.items(), key=lambda item: item[1])
    whom = longest if waited_ns else (None, None)
    values = (
        sum(waits.values()) / steps,
        *whom,
        len({row["collective"] for row in late}),
        len(own),
        sum(row["waits_ns"] for row in late) / others / steps,
    )
    return dict(zip(names, values, strict=True))
