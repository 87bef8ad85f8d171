"""The ledger of batches of events equals the ledger of all events at once, row by row.

::

    one batch      |--------------- op ---------------|
    another                    |------ op ------|          runs on into the third
    the third                                |- launch -|
    kernel            |=====|        (waits)              |====|    launched in an earlier batch
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shared_traces
from breakdown.random_programs import cpu_programs, gpu_programs
from events.rows import Row, row, table
from hypothesis import given, settings, strategies as st

from lstmprof import formats
from lstmprof.base.errors import ProfileError
from lstmprof.breakdown.attribution import waits
from lstmprof.breakdown.attribution.ledger import ledger, packed_ledger
from lstmprof.events import event_types, narrow
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.steps import Window, windows
from lstmprof.events.batches import Batches
from lstmprof.events.narrow import Packed, packed

ranks = st.sampled_from((None, 0, 1))


def decided(held: Packed) -> list[Window]:
    """The windows of many events: by those that decide what they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_types, "FEW_EVENTS", 0)
        return event_types.windows_of(held, captured=False)


def check(events: pa.Table, size: int) -> None:
    held, found = packed(events), windows(events, captured=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(narrow, "PIECE", size)
        patch.setattr(waits, "MOST_EXPLAINING", 2.0)
        assert decided(held) == found
        assert packed_ledger(held, found, size).equals(ledger(events, found))


def marked(rows: list[Row], steps: list[int]) -> list[Row]:
    """``rows`` and a step marker that begins at each of ``steps``."""
    return [*rows, *(row("step", f"step#{s}", s, s + 4, pid=1, tid=1) for s in steps)]


@settings(max_examples=60, deadline=None)
@given(
    rows=st.one_of(gpu_programs, cpu_programs),
    steps=st.lists(st.integers(0, 40), max_size=3, unique=True),
    rank=st.lists(ranks, min_size=1, max_size=3),
    size=st.integers(1, 6),
)
def test_drawn_programs(rows: list[Row], steps: list[int], rank: list[Any], size: int) -> None:
    placed = [r | {"rank": rank[i % len(rank)]} for i, r in enumerate(marked(rows, steps))]
    check(annotated(table(placed), captured=False), size)


HOST, GPU = {"pid": 1, "tid": 1}, {"device": 0, "stream": 0}
#: The second op tells of time in which the device is idle, after the launch that it waits for:
#:
#:     window   |------------------------------|
#:     thread   |L|op     |L|   |-- op --|
#:     device     |====|                          |==|
TAIL = [
    row("runtime", "cudaLaunchKernel", 0, 1, correlation_id=1, **HOST),
    row("kernel", "gemm", 1, 5, correlation_id=1, **GPU),
    row("op", "aten::mm", 2, 3, **HOST),
    row("runtime", "cudaLaunchKernel", 10, 12, correlation_id=2, **HOST),
    row("op", "aten::mm", 15, 25, **HOST),
    row("kernel", "gemm", 60, 70, correlation_id=2, **GPU),
]
#: Two kernels that end a gap together: by its name ``a`` is the one that it waits for, launched
#: after the op.
TOGETHER = [
    row("runtime", "cudaLaunchKernel", 0, 1, **HOST),
    row("kernel", "c", 1, 5, launch_id=0, **GPU),
    row("op", "aten::mm", 2, 3, **HOST),
    row("runtime", "cudaLaunchKernel", 10, 12, **HOST),
    row("op", "aten::mm", 15, 25, **HOST),
    row("runtime", "cudaLaunchKernel", 30, 32, **HOST),
    row("kernel", "b", 60, 70, launch_id=3, device=0, stream=1),
    row("kernel", "a", 60, 70, launch_id=5, **GPU),
]


@pytest.mark.parametrize(
    ("events", "end"), [(annotated(table(TAIL), captured=False), 30), (table(TOGETHER), 70)]
)
def test_what_a_host_did_is_told_where_a_device_waits_for_it(events: pa.Table, end: int) -> None:
    steps = [Window(None, None, 0, end, 0)]
    whole = ledger(events, steps)
    assert any("dispatch" in part for part in whole.column("part").to_pylist())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waits, "MOST_EXPLAINING", 2.0)
        for size in (1, 2, 3):
            assert packed_ledger(packed(events), steps, size).equals(whole)


def test_what_a_host_did_while_its_device_was_busy_is_in_no_batch_of_the_ledger() -> None:
    busy = [row("kernel", "gemm", 1, 1000, correlation_id=1, **GPU)]
    ops = [row("op", "aten::mm", 100 + 10 * n, 105 + 10 * n, **HOST) for n in range(50)]
    last = [row("op", "aten::mm", 1100, 1200, **HOST)]
    events = annotated(table([*TAIL[1:2], *busy, *ops, *last]), captured=False)
    held = packed(events)
    found = windows(events, captured=False)
    asked = waits.may_explain_waits(held, found, waits.all_waits(held, [None]))
    rows = [batch.rows.tolist() for batch in Batches(held, 10).about(asked)]
    # of each batch what is there whatever is asked about: the first op, the launch, the kernel
    assert {row for of_batch in rows for row in of_batch} == {0, 1, 2, len(events) - 1}
    check(events, 10)


@shared_traces.needed
@pytest.mark.parametrize("path", shared_traces.profiles(), ids=shared_traces.name)
def test_real_profiles(path: Path) -> None:
    try:
        profile = formats.read(path)
    except ProfileError as refusal:
        pytest.skip(f"refused: {refusal}")
    events = annotated(profile.events, captured=False)
    check(events, len(events) // 5 + 1)


def test_each_event_begins_in_one_batch_which_has_all_that_runs_then() -> None:
    rows = [row("op", "aten::mm", 7 * i % 90, 7 * i % 90 + 20, pid=1, tid=1) for i in range(90)]
    events = annotated(table(rows), captured=False)
    start, end = (events.column("start_ns").to_numpy() + d for d in (0, 20))
    own = []
    for batch in Batches(packed(events), 16):
        own += batch.rows[batch.own].tolist()
        runs = np.flatnonzero((start < batch.end_ns) & (end > batch.start_ns))
        assert set(runs) <= set(batch.rows.tolist())
        assert batch.events.column("event_id").to_pylist() == list(range(len(batch.rows)))
    assert own == list(range(90))


def test_events_that_all_run_on_come_three_times_at_most() -> None:
    for threads in (1, 400):
        rows = [row("range", "r", i, 1000, pid=1, tid=i % threads) for i in range(400)]
        batches = list(Batches(packed(annotated(table(rows), captured=False)), 10))
        assert sum(len(batch.rows) for batch in batches) <= 3 * 400


def test_events_in_another_order_or_of_other_numbers_are_not_divided() -> None:
    events = annotated(
        table([row("op", "a", i, i + 1, pid=1, tid=1) for i in range(9)]), captured=False
    )
    assert Batches(packed(events), 3).divisible
    assert not Batches(packed(events), 9).divisible
    backwards = packed(events.take(list(range(8, -1, -1))))
    assert not Batches(backwards, 3).divisible
    assert decided(backwards) == windows(events, captured=False)
    assert not Batches(packed(events.slice(4)), 3).divisible
