"""The kernel table equals its definition, however few events are looked at at once."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from breakdown.random_programs import cpu_programs, gpu_programs
from events.rows import Row, row, table
from hypothesis import given, settings, strategies as st

from lstmprof.base.errors import RunError
from lstmprof.breakdown.tables import TABLES
from lstmprof.events import narrow
from lstmprof.events.annotate import annotated
from lstmprof.events.annotate.calls import is_kernel_launch
from lstmprof.events.annotate.steps import Window, windows
from lstmprof.events.schema import ACTIVITY_KINDS

KINDS = TABLES["kernels"]
GPU = {"device": 0, "stream": 7}


def in_pieces(events: pa.Table, of: list[Window], piece: int) -> pa.Table:
    """The table, made of so many events at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(narrow, "PIECE", piece)
        return KINDS.of(events, of)


def by_definition(events: pa.Table, of: Sequence[Window]) -> list[dict[str, Any]]:
    rows = events.to_pylist()
    inside: Counter[int | None] = Counter()
    for event in rows:
        inside[event["parent_id"]] += event["dur_ns"]
    device_ranks = {r["rank"] for r in rows if r["kind"] in ACTIVITY_KINDS}
    device_ranks |= {
        r["rank"] for r in rows if r["kind"] == "runtime" and is_kernel_launch(r["name"])
    }
    groups: dict[tuple[Any, ...], list[tuple[int, Row]]] = defaultdict(list)
    for event in rows:
        key = tuple(event[n] for n in ("rank", "device", "name", "category", "family"))
        if event["kind"] in ACTIVITY_KINDS:
            groups[key].append((event["dur_ns"], event))
        elif event["kind"] == "op" and event["category"] and event["rank"] not in device_ranks:
            groups[key].append((max(event["dur_ns"] - inside[event["event_id"]], 0), event))
    lane: Counter[tuple[Any, ...]] = Counter()
    for key, members in groups.items():
        lane[key[:2]] += sum(ns for ns, _ in members)
    steps = Counter(w.rank for w in of if w.step is not None)
    return [
        row_by_definition(key, members, lane[key[:2]], steps[key[0]])
        for key, members in groups.items()
    ]


def row_by_definition(
    key: tuple[Any, ...], members: list[tuple[int, Row]], lane_ns: int, steps: int
) -> dict[str, Any]:
    times = sorted(ns for ns, _ in members)
    total, in_steps = sum(times), sum(event["step"] is not None for _, event in members)
    rules = Counter(event["rule"] for _, event in members)
    spent: Counter[str] = Counter()
    for ns, event in members:
        if event["launch_config"] is not None:
            spent[event["launch_config"]] += ns
    return {
        **dict(zip(("rank", "device", "name", "category", "family"), key, strict=True)),
        "count": len(times),
        "total_ns": total,
        "mean_ns": total / len(times),
        "p50_ns": times[math.ceil(len(times) * 50 / 100) - 1],
        "p95_ns": times[math.ceil(len(times) * 95 / 100) - 1],
        "max_ns": times[-1],
        "share": total / lane_ns if lane_ns else None,
        "per_step": in_steps / steps if steps else None,
        "rule": max(rules, key=lambda rule: (rules[rule], rule or "")),
        "launch_configs": len(spent) or None,
        "launch_config": min(spent, key=lambda c: (-spent[c], c), default=None),
    }


@settings(max_examples=60, deadline=None)
@given(
    rows=st.one_of(gpu_programs, cpu_programs),
    steps=st.lists(st.integers(0, 40), max_size=3, unique=True),
    rank=st.lists(st.sampled_from((None, 0, 1)), min_size=1, max_size=3),
    piece=st.integers(1, 9),
    config=st.lists(st.sampled_from((None, "a", "b", "c")), min_size=1, max_size=5),
)
def test_the_table_is_what_its_columns_say(
    rows: list[Row],
    steps: list[int],
    rank: list[int | None],
    piece: int,
    config: list[str | None],
) -> None:
    launched = [
        r | {"launch_config": config[i % len(config)] if r["kind"] == "kernel" else None}
        for i, r in enumerate(rows)
    ]
    marked = [*launched, *(row("step", f"step#{s}", s, s + 4, pid=1, tid=1) for s in steps)]
    placed = [r | {"rank": rank[i % len(rank)]} for i, r in enumerate(marked)]
    events = annotated(table(placed), captured=False)
    of = windows(events, captured=False)
    made = in_pieces(events, of, piece)
    assert made.equals(KINDS.of(events, of))
    wanted = by_definition(events, of)
    by_key = {tuple(r[n] for n in made.column_names[:5]): r for r in wanted}
    assert len(by_key) == made.num_rows
    for found in made.to_pylist():
        assert found == by_key[tuple(found[n] for n in made.column_names[:5])]


def test_rows_of_one_total_stand_by_name_then_by_lane() -> None:
    lanes = [(1, 0), (0, 1), (0, 0), (None, 0)]
    rows = [
        row("kernel", name, 10 * i, 10 * i + 2, rank=rank, device=device, stream=7)
        for i, (rank, device) in enumerate(lanes)
        for name in ("b", "a")
    ]
    found = KINDS.of(annotated(table(rows), captured=False), []).to_pylist()
    assert [(r["name"], r["rank"], r["device"]) for r in found] == [
        (name, *lane) for name in ("a", "b") for lane in [(None, 0), (0, 0), (0, 1), (1, 0)]
    ]


def test_of_two_rules_that_decided_as_often_it_is_the_one_of_an_op() -> None:
    rows = [row("kernel", "k", 10 * i, 10 * i + 2, **GPU) for i in range(4)]
    events = annotated(table(rows), captured=False)
    for rules, most in (
        (["kernel: x", "op: y", "kernel: x", "op: y"], "op: y"),
        ([None, "kernel: x", "kernel: x", None], "kernel: x"),
        ([None, "kernel: x", None, None], None),
    ):
        told = events.with_columns({"rule": pa.array(rules, pa.string())})
        assert in_pieces(told, [], 2).column("rule").to_pylist() == [most]


def test_times_that_are_more_than_a_number_are_refused() -> None:
    rows = [row("kernel", "k", i, i + 2**62, **GPU) for i in range(3)]
    with pytest.raises(RunError, match=r"kernels: .* exceeds 64 bits"):
        KINDS.of(annotated(table(rows), captured=False), [])


def test_a_kernel_that_is_launched_in_several_ways_tells_how_many_and_the_most() -> None:
    small, large = '{"grid":[1,1,1]}', '{"grid":[80,1,1]}'
    launched = [(small, 5), (small, 5), (large, 40), (None, 99)]
    rows = [
        row("kernel", "k", 100 * i, 100 * i + ns, launch_config=config, **GPU)
        for i, (config, ns) in enumerate(launched)
    ]
    rows += [row("memcpy", "Memcpy HtoD", 900, 950, **GPU)]
    told = KINDS.of(annotated(table(rows), captured=False), [])
    columns = ("name", "count", "launch_configs", "launch_config")
    assert [tuple(r[c] for c in columns) for r in told.to_pylist()] == [
        ("k", 4, 2, large),
        ("Memcpy HtoD", 1, None, None),
    ]
