"""The ledger of drawn programs equals the brute-force reference, and its invariants hold."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa
from breakdown import brute_force
from breakdown.random_programs import cpu_programs, gpu_programs, one_window, scales
from events.rows import Row, row, table
from hypothesis import given, settings, strategies as st

from lstmprof.breakdown.attribution.ledger import ledger
from lstmprof.events.annotate.links import linked
from lstmprof.events.annotate.steps import Window, windows
from lstmprof.events.threads import thread_ids


def account(events: pa.Table, found: list[Window]) -> dict[Any, dict[tuple[str, str], int]]:
    """(step, device) -> (state, part) -> ns, without the events' own ids."""
    accounts: dict[Any, dict[tuple[str, str], int]] = defaultdict(dict)
    for r in ledger(linked(events), found).to_pylist():
        key = (r["state"], r["part"])
        assert r["ns"] > 0
        assert key not in accounts[r["step"], r["device"]]
        accounts[r["step"], r["device"]][key] = r["ns"]
    return dict(accounts)


@settings(max_examples=200, deadline=None)
@given(gpu_programs, st.integers(0, 20), st.integers(1, 45), scales)
def test_device_ledger_equals_the_definition(
    rows: list[Row], t0: int, length: int, scale: int
) -> None:
    rows = [{**r, "start_ns": r["start_ns"] * scale, "dur_ns": r["dur_ns"] * scale} for r in rows]
    t0, length = t0 * scale, length * scale
    events, window = one_window(rows, t0, t0 + length)
    found = account(events, [window])
    step_thread = (1, 1) if window.thread is not None else None
    devices = {r["device"] for r in rows if r["kind"] in brute_force.ACTIVITIES}
    assert {device for _, device in found} == devices
    for device in devices:
        latency = brute_force.most_latency(rows, device)
        expected = brute_force.device_ledger(rows, device, t0, t0 + length, step_thread, latency)
        if not has_ambiguous_order(rows):
            assert found[0, device] == expected
        assert sum(found[0, device].values()) == length


def has_ambiguous_order(rows: list[Row]) -> bool:
    """Whether two activities tie in everything that the definition orders by."""
    keys = [
        (
            r["device"],
            brute_force.activity_class(r),
            r["start_ns"],
            r["correlation_id"],
            r["dur_ns"],
        )
        for r in rows
        if r["kind"] in brute_force.ACTIVITIES
    ]
    return len(keys) != len(set(keys))


@settings(max_examples=150, deadline=None)
@given(cpu_programs, st.integers(0, 20), st.integers(1, 45))
def test_host_ledger_equals_the_definition(rows: list[Row], t0: int, length: int) -> None:
    events, window = one_window(rows, t0, t0 + length)
    assert account(events, [window]) == {(0, None): brute_force.host_ledger(rows, t0, t0 + length)}


@settings(max_examples=80, deadline=None)
@given(
    gpu_programs | cpu_programs, st.randoms(use_true_random=False), st.integers(-(10**15), 10**15)
)
def test_permuting_and_shifting_change_nothing(rows: list[Row], random: Any, shift: int) -> None:
    shuffled = list(rows)
    random.shuffle(shuffled)
    moved = [{**r, "start_ns": r["start_ns"] + shift} for r in shuffled]
    assert whole(rows) == whole(shuffled) == whole(moved)


def whole(rows: list[Row]) -> Any:
    events = table(rows)
    return account(events, windows(events, captured=False))


@settings(max_examples=100, deadline=None)
@given(gpu_programs | cpu_programs, st.integers(1, 39))
def test_a_trace_split_at_a_step_border_adds_up_to_the_whole(rows: list[Row], border: int) -> None:
    # each half keeps what runs in its step, and the launches of its activities
    rows = [*rows, row("step", "step", 0, 45, pid=1, tid=1)]
    whole_trace = accounts_of(rows, [(0, border), (border, 45)])
    left = accounts_of(seen_in(rows, 0, border), [(0, border)])
    right = accounts_of(seen_in(rows, border, 45), [(border, 45)])
    for (step, device), parts in whole_trace.items():
        half = (left, right)[step]
        if (0, device) in half:  # else nothing of the device is in that half
            assert half[0, device] == parts


def seen_in(rows: list[Row], t0: int, t1: int) -> list[Row]:
    running = [r for r in rows if r["start_ns"] < t1 and brute_force.end(r) > t0]
    before = [r for r in rows if r["kind"] in brute_force.ACTIVITIES and r["dur_ns"] > 0]
    before = [r for r in before if brute_force.end(r) <= t0]
    last = [
        max((r for r in before if r["device"] == d), key=brute_force.end, default=None)
        for d in (0, 1)
    ]
    running += [r for r in last if r is not None]  # says when its device fell idle
    used = {r["correlation_id"] for r in running if r["kind"] in brute_force.ACTIVITIES} - {None}
    launches = [r for r in rows if r["kind"] == "runtime" and r["correlation_id"] in used]
    return [r for r in rows if r in running or r in launches]


def accounts_of(rows: list[Row], bounds: list[tuple[int, int]]) -> Any:
    events = table(rows)
    tids = events.column("tid").to_pylist()
    thread = int(thread_ids(events)[tids.index(1)])
    steps = [Window(None, n, t0, t1, thread) for n, (t0, t1) in enumerate(bounds)]
    return account(events, steps)
