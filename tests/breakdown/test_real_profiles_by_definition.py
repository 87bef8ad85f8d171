"""The ledger of real profiles equals the definition, and does not depend on how it is told.

Windows of a few dozen events are cut out of every profile, where every instant can be looked at one
by one.
"""

from __future__ import annotations

import functools
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shared_traces
from breakdown import brute_force

from lstmprof.breakdown.attribution.ledger import ledger
from lstmprof.breakdown.tables import TABLES
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import Window, windows
from lstmprof.events.schema import ACTIVITY_KINDS, COLUMNS
from lstmprof.events.table import events_table
from lstmprof.events.threads import thread_ids

kernels = TABLES["kernels"].of

pytestmark = shared_traces.needed
every_profile = pytest.mark.parametrize("path", shared_traces.profiles(), ids=shared_traces.name)

CUTS = 6  # windows of each profile
BORDERS = 60  # starts and ends of events in one
MOST_EVENTS = 50_000  # of a profile that is permuted whole
#: in a CPU profile of so many threads an instant takes a second to look at
MOST_THREADS = 16
#: What the definition looks at: of a profile of many events all columns take seconds to read.
USED = [
    *("event_id", "rank", "device", "pid", "tid", "kind", "category", "name"),
    *("start_ns", "dur_ns", "correlation_id", "launch_id"),
]
READ = [c.name for c in COLUMNS if not c.derived and c.name != "event_id"]


@every_profile
def test_windows_cut_out_of_a_profile_equal_the_definition(path: Path) -> None:
    events = shared_traces.annotated_events(path)
    rows = events.select(USED).to_pylist()
    of_ranks = {rank: [r for r in rows if r["rank"] == rank] for rank in {r["rank"] for r in rows}}
    most_latency = functools.cache(lambda rank, d: brute_force.most_latency(of_ranks[rank], d))
    threads = thread_ids(events)
    chance = random.Random(path.name)
    for _ in range(CUTS):
        rank, t0, t1 = cut(rows, chance)
        of_rank = of_ranks[rank]
        seen = seen_in(of_rank, t0, t1)
        host = [r for r in seen if r["tid"] is not None and r["device"] is None]
        on = brute_force.thread(chance.choice(host)) if host else None
        places = (i for i, r in enumerate(rows) if r["rank"] == rank and same_thread(r, on))
        number = None if on is None else int(threads[next(places)])
        found = account(ledger(events, [Window(rank, 0, t0, t1, number)]))
        devices = {r["device"] for r in of_rank if is_activity(r)}
        for device in devices:
            latency = most_latency(rank, device)
            expected = brute_force.device_ledger(seen, device, t0, t1, on, latency)
            assert found[rank, device] == expected, (rank, device, t0, t1, on)
        if not devices and len({brute_force.thread(r) for r in host}) <= MOST_THREADS:
            if any(map(launches_a_kernel, of_rank)):
                host = [{**r, "category": None} for r in host]  # its ops computed elsewhere
            assert found[rank, None] == brute_force.host_ledger(host, t0, t1), (t0, t1)


def launches_a_kernel(row: brute_force.Row) -> bool:
    return row["kind"] == "runtime" and "Launch" in row["name"] and "Kernel" in row["name"]


def is_activity(row: brute_force.Row) -> bool:
    return row["kind"] in ACTIVITY_KINDS and row["device"] is not None


def same_thread(row: brute_force.Row, on: Any) -> bool:
    return row["device"] is None and row["tid"] is not None and brute_force.thread(row) == on


def cut(rows: list[brute_force.Row], chance: random.Random) -> tuple[Any, int, int]:
    """A rank, and two instants with some borders between; near an activity where there is one."""
    anchors = [r for r in rows if is_activity(r)] or rows
    anchor = chance.choice(anchors)
    borders = sorted(
        {
            b
            for r in rows
            if r["rank"] == anchor["rank"]
            for b in (r["start_ns"], brute_force.end(r))
        }
    )
    middle = borders.index(anchor["start_ns"])
    first = max(0, middle - chance.randrange(BORDERS))
    t0, last = borders[first], borders[min(first + BORDERS, len(borders) - 1)]
    return anchor["rank"], t0, max(last, t0 + 1)


def seen_in(rows: list[brute_force.Row], t0: int, t1: int) -> list[brute_force.Row]:
    """What runs in [t0, t1), the last activity before, and the launches of the activities."""
    running = [r for r in rows if r["start_ns"] < t1 and brute_force.end(r) > t0]
    before = [r for r in rows if is_activity(r) and brute_force.end(r) <= t0 and r["dur_ns"] > 0]
    for device in {r["device"] for r in before}:
        running.append(max((r for r in before if r["device"] == device), key=brute_force.end))
    by_id = {r["event_id"]: r for r in rows}
    there = {r["event_id"] for r in running}
    launches = {r["launch_id"] for r in running if is_activity(r)} - {None} - there
    return running + [by_id[i] for i in sorted(launches)]


def account(table: pa.Table) -> dict[Any, dict[tuple[str, str], int]]:
    found: dict[Any, dict[tuple[str, str], int]] = {}
    for row in table.to_pylist():
        parts = found.setdefault((row["rank"], row["device"]), {})
        parts[row["state"], row["part"]] = row["ns"]
    return found


def told(events: pa.Table) -> tuple[Any, Any]:
    """The ledger and the kernel table, as values."""
    derived = annotated(events, captured=False)
    found = windows(derived, captured=False)
    parts = Counter(
        {
            tuple(row[n] for n in row if n != "ns"): row["ns"]
            for row in ledger(derived, found).to_pylist()
        }
    )
    names = Counter(tuple(row.values()) for row in kernels(derived, found).to_pylist())
    return parts, names


def rebuilt(events: pa.Table, order: np.ndarray, shift_ns: int) -> pa.Table:
    """The table that a reader makes of the same events in another order, on another clock."""
    moved = events.take(pa.array(order))
    columns = {name: moved.column(name) for name in READ}
    columns["start_ns"] = pa.compute.add(columns["start_ns"], shift_ns)
    return events_table(columns)


@every_profile
def test_the_order_of_the_events_and_the_clock_change_nothing(path: Path) -> None:
    events = shared_traces.events(path)
    if len(events) > MOST_EVENTS:
        pytest.skip("too many events to permute in a test")
    order = np.random.default_rng(1).permutation(len(events))
    assert told(rebuilt(events, order, 86_400 * 10**9)) == told(events)


@every_profile
def test_a_profile_split_at_a_step_border_adds_up_to_the_whole(path: Path) -> None:
    events = shared_traces.annotated_events(path)
    found = windows(events, captured=False)
    whole = ledger(events, found).to_pylist()
    middle = len(found) // 2
    parts = [ledger(events, half).to_pylist() for half in (found[:middle], found[middle:])]
    assert [*parts[0], *parts[1]] == whole
