"""The ledger by its definition, one instant at a time: what ``lstmprof.breakdown`` is held to.

Written from the definition alone, over plain dictionaries, with no code of the package. Slow on
purpose. Nothing changes between two neighbouring ends of events, so an instant of each such stretch
stands for all of it.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from typing import Any

Row = dict[str, Any]
ACTIVITIES = ("kernel", "memcpy", "memset")
HOST_KINDS = ("step", "range", "python", "op", "runtime", "overhead")
INFINITE = float("inf")


def end(row: Row) -> int:
    return int(row["start_ns"] + row["dur_ns"])


def stretches(rows: list[Row], t0: int, t1: int) -> list[tuple[int, int]]:
    """(first instant, length) of the stretches of [t0, t1) in which no event starts or ends."""
    borders = {border for r in rows for border in (r["start_ns"], end(r)) if t0 < border < t1}
    edges = sorted({t0, t1} | borders)
    return [(a, b - a) for a, b in itertools.pairwise(edges)]


def runs_at(row: Row, t: int) -> bool:
    return bool(row["start_ns"] <= t < end(row))


def correlation(row: Row) -> float:
    return INFINITE if row["correlation_id"] is None else row["correlation_id"]


def activity_class(row: Row) -> int:
    if row["kind"] == "kernel":
        return 1 if row["category"] == "collective" else 0
    return 2 if row["kind"] == "memcpy" else 3


def state(row: Row | None) -> str:
    """What a host thread does while ``row`` is its innermost event."""
    if row is None:
        return "host"
    if row["kind"] in ("step", "range", "python"):
        return "python"
    if row["kind"] == "op":
        return "dispatch"
    if row["kind"] == "overhead":
        return "profiler"
    name = row["name"]
    blocking_copy = "Memcpy" in name and not re.search("Memcpy.*Async", name)
    blocking_copy |= name.startswith("cuMemcpy") and "Async" not in name
    if "Synchronize" in name or "EventQuery" in name or blocking_copy:
        return "sync"
    if any(word in name for word in ("Malloc", "Free", "HostAlloc")) or name.startswith("cuMem"):
        return "alloc"
    return "runtime"


def thread(row: Row) -> tuple[Any, Any]:
    return (row["pid"], row["tid"])


def innermost(rows: list[Row], on: tuple[Any, Any], t: int) -> Row | None:
    """Of the host events of a thread that run at ``t``, the one that started last."""
    running = [
        r for r in rows if r["kind"] in HOST_KINDS and r["device"] is None and thread(r) == on
    ]
    running = [r for r in running if runs_at(r, t)]
    if not running:
        return None
    return max(running, key=depth)


def depth(row: Row) -> tuple[Any, ...]:
    """Started last; equal starts go to the shorter, then to the deeper kind, then by content."""
    kind = HOST_KINDS.index(row["kind"])
    return (row["start_ns"], -row["dur_ns"], kind, row["name"], row["category"] or "")


def launch_of(rows: list[Row], activity: Row) -> Row | None:
    if activity["correlation_id"] is None:
        return None
    calls = [
        r
        for r in rows
        if r["kind"] == "runtime" and r["correlation_id"] == activity["correlation_id"]
    ]
    return min(calls, key=lambda r: (r["start_ns"], -r["dur_ns"]), default=None)


def device_ledger(
    rows: list[Row], device: int, t0: int, t1: int, step_thread: tuple[Any, Any] | None
) -> dict[tuple[str, str], int]:
    """(state, part) -> ns of one device in the window [t0, t1)."""
    account: Counter[tuple[str, str]] = Counter()
    mine = [r for r in rows if r["kind"] in ACTIVITIES and r["device"] == device]
    mine = [r for r in mine if r["dur_ns"] > 0]
    for t, length in stretches(rows, t0, t1):
        running = [r for r in mine if runs_at(r, t)]
        if running:
            first = min(
                running,
                key=lambda r: (activity_class(r), r["start_ns"], correlation(r), end(r)),
            )
            account["busy", first["category"] or "other"] += length
        else:
            account["idle", idle_cause(rows, mine, t, t1, step_thread)] += length
    return dict(account)


def idle_cause(
    rows: list[Row], mine: list[Row], t: int, t1: int, step_thread: tuple[Any, Any] | None
) -> str:
    later = [r for r in mine if t < r["start_ns"] < t1]
    if not later:
        if step_thread is None:
            return "tail:unattributed"
        return "tail:" + state(innermost(rows, step_thread, t))
    soonest = min(r["start_ns"] for r in later)
    ends_gap = min(
        (r for r in later if r["start_ns"] == soonest), key=lambda r: (end(r), correlation(r))
    )
    launch = launch_of(rows, ends_gap)
    if launch is None:
        return "unattributed"
    if t >= end(launch):
        return "launch latency"
    if t >= launch["start_ns"]:
        return "launch call"
    return state(innermost(rows, thread(launch), t))


def host_ledger(rows: list[Row], t0: int, t1: int) -> dict[tuple[str, str], int]:
    """(state, part) -> ns of a run without a device: the lanes are the host threads."""
    merge = ("dispatch", "runtime", "alloc", "sync", "profiler", "python", "host")
    account: Counter[tuple[str, str]] = Counter()
    threads = {thread(r) for r in rows}
    for t, length in stretches(rows, t0, t1):
        lanes = [lane(innermost(rows, on, t), merge) for on in threads]
        account[min(lanes, default=(99, 0, 0, "idle", "host"))[-2:]] += length
    return dict(account)


def lane(row: Row | None, merge: tuple[str, ...]) -> tuple[Any, ...]:
    """Sorts before another lane's where this thread's state goes first."""
    if row is not None and row["kind"] == "op" and row["category"] is not None:
        order = {"collective": 1, "transfer": 2, "memset": 3}.get(row["category"], 0)
        return (order, row["start_ns"], thread(row), "busy", row["category"])
    place = 4 + merge.index(state(row))
    return (place, 0, (0, 0), "idle", state(row))
