"""What must hold between the tables of every real profile."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
import shared_traces

from lstmprof.breakdown.attribution.ledger import ledger
from lstmprof.breakdown.tables import TABLES
from lstmprof.breakdown.tables.casts import casts
from lstmprof.breakdown.tables.ops import ranges
from lstmprof.breakdown.tables.steps import steps, streams
from lstmprof.events.annotate.calls import launch_calls
from lstmprof.events.annotate.steps import Window, windows
from lstmprof.events.schema import ACTIVITY_KINDS

copies = TABLES["copies"].of
kernels = TABLES["kernels"].of
launches = TABLES["launches"].of
ops = TABLES["ops"].of

pytestmark = [
    shared_traces.needed,
    pytest.mark.parametrize("path", shared_traces.profiles(), ids=shared_traces.name),
]


def read(path: Path) -> tuple[pa.Table, list[Window]]:
    events = shared_traces.annotated_events(path)
    return events, windows(events, captured=False)


def total(table: pa.Table, column: str) -> int:
    return sum(v for v in table.column(column).to_pylist() if v is not None)


def test_every_activity_is_in_the_kernels_the_streams_and_the_ops(path: Path) -> None:
    events, found = read(path)
    activity = events.is_kind(*ACTIVITY_KINDS)
    dur = events.dur_ns
    by_stream, by_op = streams(events, found), ops(events, found)
    assert total(by_stream, "total_ns") == dur[activity].sum()
    assert total(by_stream, "activities") == activity.sum()
    if activity.any():
        on_device = kernels(events, found).to_pylist()
        assert (
            sum(r["total_ns"] for r in on_device if r["device"] is not None)
            == dur[activity & events.column("device").is_valid().to_numpy()].sum()
        )
    unlinked = activity & events.column("op_id").is_null().to_numpy()
    assert total(by_op, "device_self_ns") + dur[unlinked].sum() == dur[activity].sum()
    for row in by_op.to_pylist():
        if row["device_total_ns"] is not None:
            assert row["device_self_ns"] <= row["device_total_ns"]
        assert row["host_self_ns"] <= row["host_total_ns"]


def test_a_step_is_as_busy_as_the_ledger_says(path: Path) -> None:
    events, found = read(path)
    busy: Counter[tuple[object, ...]] = Counter()
    for row in ledger(events, found).to_pylist():
        lane = (row["rank"], row["step"], row["device"])
        busy[lane] += row["ns"] if row["state"] == "busy" else 0
    made = steps(events, found).to_pylist()
    assert {(r["rank"], r["step"], r["device"]): r["busy_ns"] for r in made} == dict(busy)
    for row in made:
        assert row["busy_ns"] + row["idle_ns"] == row["dur_ns"]
        assert row["idle_ns"] >= 0
        assert row["device"] is None or min(row["overlapped_ns"], row["spilled_ns"]) >= 0


def test_every_copied_byte_is_in_the_copies(path: Path) -> None:
    events, found = read(path)
    copied = events.is_kind("memcpy", "memset")
    sizes = events.column("bytes").filter(pa.array(copied))
    table = copies(events, found)
    if sizes.null_count == 0:
        assert total(table, "bytes") == sum(sizes.to_pylist())
    assert total(table, "count") == copied.sum()
    assert total(table, "total_ns") == events.dur_ns[copied].sum()


def test_launches_casts_and_ranges_hold_what_the_events_do(path: Path) -> None:
    events, found = read(path)
    activity = events.is_kind(*ACTIVITY_KINDS)
    linked = activity & events.column("launch_id").is_valid().to_numpy()
    assert total(launches(events, found), "activities") == linked.sum()
    spent = {r["category"]: 0 for r in kernels(events, found).to_pylist()}
    for row in kernels(events, found).to_pylist():
        spent[row["category"]] += row["total_ns"]
    assert total(casts(events, found), "total_ns") == spent.get("cast", 0)
    caused = total(ranges(events, found), "device_self_ns")
    asked = activity & (
        events.column("launch_id").is_valid().to_numpy()
        | events.column("op_id").is_valid().to_numpy()
    )
    assert caused <= events.dur_ns[asked].sum()


def test_less_than_a_twentieth_is_of_category_other(path: Path) -> None:
    events, found = read(path)
    if not events.is_kind(*ACTIVITY_KINDS).any():
        pytest.skip("no activities")
    rows = ledger(events, found).to_pylist()
    busy = sum(r["ns"] for r in rows if r["state"] == "busy")
    other = sum(r["ns"] for r in rows if r["part"] == "other")
    assert other < 0.05 * busy


def test_the_launches_are_those_of_the_steps_and_of_the_replay(path: Path) -> None:
    events, found = read(path)
    names = Counter(events.take(pa.array(launch_calls(events))).column("name").to_pylist())
    counted: Counter[str] = Counter()
    for row in launches(events, found).to_pylist():
        counted[row["name"]] += row["count"]
    assert counted == names
