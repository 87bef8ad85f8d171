"""When each part of the ledger was: its stretches fill the window and sum to the ledger."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
import shared_traces
from breakdown.test_ledger_properties import cpu_programs, gpu_programs, one_window
from events.rows import Row, table
from hypothesis import given, settings, strategies as st

from lstmprof import formats
from lstmprof.breakdown.account import Stretch, accounts
from lstmprof.breakdown.ledger import ledger
from lstmprof.events.annotate import (
    annotated,
)
from lstmprof.events.annotate.links import linked
from lstmprof.events.annotate.steps import Window, windows


def assert_is_the_ledger_in_time(events: pa.Table, window: Window) -> None:
    expected = {
        device: Counter[tuple[str, str]]()
        for device in ledger(events, [window]).column("device").unique().to_pylist()
    }
    for row in ledger(events, [window]).to_pylist():
        expected[row["device"]][row["state"], row["part"]] = row["ns"]
    found = accounts(events, window)
    assert {d: _sums(s) for d, s in found.items()} == expected
    for stretches in found.values():
        assert (stretches[0].start_ns, stretches[-1].end_ns) == (window.start_ns, window.end_ns)
        ends = [one.end_ns for one in stretches[:-1]]
        assert ends == [one.start_ns for one in stretches[1:]]


def _sums(stretches: list[Stretch]) -> Counter[tuple[str, str]]:
    found = Counter[tuple[str, str]]()
    for one in stretches:
        found[one.state, one.part] += one.end_ns - one.start_ns
    return found


@settings(max_examples=200, deadline=None)
@given(gpu_programs | cpu_programs, st.integers(0, 20), st.integers(1, 45))
def test_of_drawn_programs(rows: list[Row], t0: int, length: int) -> None:
    events, window = one_window(rows, t0, t0 + length)
    assert_is_the_ledger_in_time(linked(events), window)


@shared_traces.needed
@pytest.mark.parametrize("name", ["qa-transformer-h100-a.pt.trace.json.gz", "hta-cpu-only.json.gz"])
def test_of_a_real_profile(name: str) -> None:
    profile = formats.read(shared_traces.FOLDER / "kineto" / name)
    events = annotated(profile.events, captured=False)
    for window in windows(events, captured=False)[:2]:
        assert_is_the_ledger_in_time(events, window)


def test_nothing_is_drawn_of_an_empty_rank() -> None:
    window = Window(None, 0, 0, 10, None)
    (only,) = accounts(table([]), window)[None]
    assert (only.start_ns, only.end_ns, only.state, only.part) == (0, 10, "idle", "host")
