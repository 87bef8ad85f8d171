"""Who has each nanosecond: the intervals of a device fill its windows and sum to the ledger."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
import shared_traces
from breakdown.random_programs import cpu_programs, gpu_programs, one_window
from events.rows import Row, row as event, table
from hypothesis import given, settings, strategies as st

from lstmprof.breakdown.attribution import Intervals, attributed
from lstmprof.breakdown.attribution.ledger import ledger
from lstmprof.events.annotate.links import linked
from lstmprof.events.annotate.steps import Window, windows

Account = dict[int | None, Counter[tuple[str, str]]]


def accounts(events: pa.Table, window: Window) -> Account:
    """Device -> (state, part) -> ns of the ledger."""
    found: Account = {}
    for row in ledger(events, [window]).to_pylist():
        found.setdefault(row["device"], Counter())[row["state"], row["part"]] = row["ns"]
    return found


def sums(intervals: Intervals) -> Counter[tuple[str, str]]:
    found = Counter[tuple[str, str]]()
    lengths = (intervals.end_ns - intervals.start_ns).tolist()
    for label, ns in zip(intervals.label.tolist(), lengths, strict=True):
        found[intervals.labels[label]] += ns
    return found


def assert_is_the_ledger_in_time(events: pa.Table, window: Window) -> None:
    lanes = attributed(events, [window], window.rank)
    assert {device: sums(intervals) for device, intervals in lanes.items()} == accounts(
        events, window
    )
    for intervals in lanes.values():
        ordered = intervals.by_time()
        assert (ordered.start_ns[0], ordered.end_ns[-1]) == (window.start_ns, window.end_ns)
        assert (ordered.start_ns[1:] == ordered.end_ns[:-1]).all()


def test_borders_at_one_instant_cut_once() -> None:
    events, window = one_window([event("op", "aten::lstm", 3, 45)], 3, 45)
    (intervals,) = attributed(linked(events), [window], None).values()
    cut = intervals.cut_at(np.array([4, 4], dtype=np.int64))
    assert (cut.start_ns.tolist(), cut.end_ns.tolist()) == ([3, 4], [4, 45])


def test_of_activities_at_once_a_kernel_counts_before_a_collective_a_copy_and_a_memset() -> None:
    """Each activity lies within the next one, which is less important."""
    activities = [("kernel", "gemm"), ("kernel", "collective"), ("memcpy", None), ("memset", None)]
    rows = [
        event(kind, kind, 30 - 10 * n, 40 + 10 * n, device=0, stream=n, category=category)
        for n, (kind, category) in enumerate(activities)
    ]
    events, window = one_window(rows, 0, 70)
    stream = events.ints("stream", -1)
    device = attributed(events, [window], None)[0].by_time()
    order = [
        (int(stream[row]), int(end)) for row, end in zip(device.row, device.end_ns, strict=True)
    ]
    assert order == [(3, 10), (2, 20), (1, 30), (0, 40), (1, 50), (2, 60), (3, 70)]


@settings(max_examples=80, deadline=None)
@given(gpu_programs | cpu_programs, st.lists(st.integers(-5, 70), max_size=4))
def test_cut_at_borders_nothing_is_lost(rows: list[Row], borders: list[int]) -> None:
    events, window = one_window(rows, 3, 45)
    for intervals in attributed(linked(events), [window], None).values():
        cut = intervals.cut_at(np.array(borders, dtype=np.int64))
        assert sums(cut) == sums(intervals)
        assert (cut.end_ns > cut.start_ns).all()
        for border in borders:
            assert not ((cut.start_ns < border) & (cut.end_ns > border)).any()


@settings(max_examples=100, deadline=None)
@given(gpu_programs | cpu_programs, st.integers(0, 20), st.integers(1, 45))
def test_of_drawn_programs(rows: list[Row], t0: int, length: int) -> None:
    events, window = one_window(rows, t0, t0 + length)
    assert_is_the_ledger_in_time(linked(events), window)


@shared_traces.needed
@pytest.mark.parametrize("name", ["qa-transformer-h100-a.pt.trace.json.gz", "hta-cpu-only.json.gz"])
def test_of_a_real_profile(name: str) -> None:
    events = shared_traces.annotated_events(shared_traces.FOLDER / "kineto" / name)
    for window in windows(events, captured=False)[:2]:
        assert_is_the_ledger_in_time(events, window)


def test_an_empty_rank_is_a_host_of_which_nothing_is_known() -> None:
    only = attributed(table([]), [Window(None, 0, 0, 10, None)], None)[None]
    assert sums(only) == {("idle", "host"): 10}
