"""No part of a step is negative, and all parts sum to the step: of the samples, of drawn runs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from breakdown.random_programs import cpu_programs, gpu_programs, scales
from diagnose.made import diagnose
from events.rows import Row, row, table
from hypothesis import given, settings, strategies as st

from benchmarks.samples import samples
from lstmprof.breakdown import Breakdown, break_down
from lstmprof.events.annotate import CAPTURED, annotated
from lstmprof.runs.directory import new_run
from lstmprof.runs.metadata import run_info
from lstmprof.runs.run import TIMINGS_SCHEMA, open_run, write_tables

#: Drawn programs are over by then; each step is as long.
STEP = 90


def assert_whole(breakdown: Breakdown) -> None:
    """Check the steps of a run, and the shares that a diagnosis gives to its findings."""
    steps = breakdown.steps()
    assert steps
    assert all(step.clean for step in steps) == breakdown.has_clean
    for step in steps:
        assert all(ns > 0 for _, _, ns in step.parts)
        assert sum(ns for _, _, ns in step.parts) == step.total_ns
        means = [ns for _, _, ns in step.mean_parts]
        assert min(means, default=0) >= 0
        assert sum(means) == round(step.mean_ns)
        assert step.total_ns == 0 or 0 <= step.busy_share <= 1
    document = diagnose(breakdown).to_dict()
    lane = document["lane"]
    (own,) = [s for s in steps if (s.rank, s.device) == (lane["rank"], lane["device"])]
    assert document["slow_ns"] == round(own.mean_ns)
    assert_shares(document["findings"], document["slow_ns"])


def assert_shares(findings: list[dict[str, Any]], step_ns: int) -> None:
    """Check that the findings of a run alone are all of its step."""
    assert sum(finding["slow_ns"] for finding in findings) == step_ns
    for finding in findings:
        assert finding["slow_ns"] == sum(part["slow_ns"] for part in finding["parts"])
        assert min(part["slow_ns"] for part in finding["parts"]) >= 0
        assert finding["share"] is None or 0 <= finding["share"] <= 1
        assert 0 <= finding["saves_ns"] <= step_ns
    if step_ns:
        assert sum(finding["share"] for finding in findings) == pytest.approx(1)


def test_the_parts_of_each_sample_are_its_step() -> None:
    for place in samples():
        assert_whole(break_down(open_run(place)))


programs = st.lists(cpu_programs | gpu_programs, min_size=1, max_size=5)
walls = st.none() | st.lists(st.integers(1, 2 * STEP), min_size=1, max_size=5)
costs = st.none() | st.floats(0.01, 1e5)


@settings(max_examples=150)
@given(programs, scales, walls, costs)
def test_the_parts_of_a_drawn_run_are_its_step(
    steps: list[list[Row]], scale: int, walls_ns: list[int] | None, event_ns: float | None
) -> None:
    rows = [
        {**event, "start_ns": (event["start_ns"] + place * STEP) * scale}
        | {"dur_ns": event["dur_ns"] * scale}
        for place, program in enumerate(steps)
        for event in [row("step", f"step#{place}", 0, STEP, pid=1, tid=1), *program]
    ]
    recording = [{"event_ns": event_ns}] if event_ns else None
    facts = {"source": CAPTURED, "device": "cpu", "recording": recording, "name": "run"}
    timed = None if walls_ns is None else timings([ns * scale for ns in walls_ns])
    with tempfile.TemporaryDirectory() as folder:
        with new_run(Path(folder), "run") as written:
            events = annotated(table(rows), captured=True)
            write_tables(written, run_info(facts), events, timed)
        assert_whole(break_down(open_run(Path(folder) / "run")))


def timings(walls_ns: list[int]) -> pa.Table:
    count = len(walls_ns)
    columns = {name: [None] * count for name in TIMINGS_SCHEMA.names}
    columns |= {"round": [0] * count, "iteration": [*range(count)], "warmup": [False] * count}
    return pa.table({**columns, "wall_ns": walls_ns}).cast(TIMINGS_SCHEMA)
