"""The ledger by its definition, one instant at a time: what ``lstmprof.breakdown`` is held to.

Written from the definition alone, over plain dictionaries, with no code of the package. Slow on
purpose. Nothing changes between two neighbouring ends of events, so an instant of each such stretch
stands for all of it.
"""

from __future__ import annotations

import itertools
import re
import statistics
from collections import Counter
from typing import Any

Row = dict[str, Any]
ACTIVITIES = ("kernel", "memcpy", "memset")
HOST_KINDS = ("step", "range", "python", "op", "runtime", "overhead")
INFINITE = float("inf")
LEAST_LATENCY_NS = 100_000


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
    if "synchronize" in name.lower() or "EventQuery" in name or blocking_copy:
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


def fell_idle(mine: list[Row], activity: Row) -> float:
    """When the device fell idle before ``activity``: no later than its start where it did."""
    before = (end(r) for r in mine if r["start_ns"] < activity["start_ns"])
    return max(before, default=-INFINITE)


def next_of(later: list[Row]) -> Row:
    """The activity that ends a gap, of those that start after its begin."""
    soonest = min(r["start_ns"] for r in later)
    starting = [r for r in later if r["start_ns"] == soonest]
    return min(starting, key=lambda r: (end(r), correlation(r)))


def timed(rows: list[Row], device: int) -> list[Row]:
    """The activities of a device that take time."""
    mine = [r for r in rows if r["kind"] in ACTIVITIES and r["device"] == device]
    return [r for r in mine if r["dur_ns"] > 0]


def most_latency(rows: list[Row], device: int) -> int:
    """λ: a launch that takes longer to reach the idle ``device`` is not what it waits for.

    ``rows`` are all of the device's rank in the profile.
    """
    mine = sorted(timed(rows, device), key=lambda r: (r["start_ns"], end(r), correlation(r)))
    calls: dict[Any, list[Row]] = {}
    for r in rows:
        if r["kind"] == "runtime":
            calls.setdefault(r["correlation_id"], []).append(r)
    latencies, idle_since = [], -INFINITE
    for _, together in itertools.groupby(mine, key=lambda r: int(r["start_ns"])):
        first, *others = together
        launch = launch_of(calls.get(first["correlation_id"], []), first)
        if launch is not None and -INFINITE < idle_since < min(first["start_ns"], end(launch)):
            latencies.append(first["start_ns"] - end(launch))
        idle_since = max(idle_since, *(end(r) for r in (first, *others)))
    if not latencies:
        return LEAST_LATENCY_NS
    return max(10 * statistics.median_low(latencies), LEAST_LATENCY_NS)


def device_ledger(
    rows: list[Row],
    device: int,
    t0: int,
    t1: int,
    step_thread: tuple[Any, Any] | None,
    latency_ns: int,
) -> dict[tuple[str, str], int]:
    """(state, part) -> ns of one device in the window [t0, t1); ``latency_ns`` is its λ."""
    account: Counter[tuple[str, str]] = Counter()
    mine = timed(rows, device)
    for t, length in stretches(rows, t0, t1):
        running = [r for r in mine if runs_at(r, t)]
        if running:
            first = min(
                running,
                key=lambda r: (activity_class(r), r["start_ns"], correlation(r), end(r)),
            )
            account["busy", first["category"] or "other"] += length
        else:
            for cause, ns in idle_causes(rows, mine, t, length, t1, step_thread, latency_ns):
                account["idle", cause] += ns
    return {part: ns for part, ns in account.items() if ns}


def idle_causes(
    rows: list[Row],
    mine: list[Row],
    t: int,
    length: int,
    t1: int,
    step_thread: tuple[Any, Any] | None,
    latency_ns: int,
) -> list[tuple[str, int]]:
    """(cause, ns) of a stretch from ``t`` in which nothing starts, nothing ends and none runs."""
    later = [r for r in mine if t < r["start_ns"] < t1]
    if not later:
        if step_thread is None:
            return [("tail:unattributed", length)]
        return [("tail:" + state(innermost(rows, step_thread, t)), length)]
    ends_gap = next_of(later)
    launch = launch_of(rows, ends_gap)
    if launch is None and (step_thread is None or "UVM" not in ends_gap["name"]):
        return [("unattributed", length)]
    if launch is None:
        return [(state(innermost(rows, step_thread, t)), length)]
    if end(launch) <= fell_idle(mine, ends_gap):
        return [("queued", length)]
    if t >= end(launch):
        if state(innermost(rows, thread(launch), t)) == "sync":
            return [("queued", length)]
        latency = min(max(end(launch) + latency_ns - t, 0), length)
        return [("launch latency", latency), ("queued", length - latency)]
    if t >= launch["start_ns"]:
        return [("launch call", length)]
    return [(state(innermost(rows, thread(launch), t)), length)]


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
