"""Two clean steps: the interval of their ratio, what only one of them does, what both lost."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from diagnose.made import contributor, profile, span, table

from lstmprof.breakdown.clean.now_and_then import Rare
from lstmprof.breakdown.clean.slot_times import BETWEEN_PROCESSES, Span
from lstmprof.diagnose.certainty.pair import (
    in_words,
    layer_in_words,
    ratio_of,
    structure_in_words,
    structure_of,
)
from lstmprof.diagnose.diagnosis import alone, compare
from lstmprof.diagnose.step_profile import StepProfile

MS = 1_000_000


def ran(*calls: tuple[str, int, float], name: str = "run", **fields: Any) -> StepProfile:
    """A host that makes these calls: name, ns of all of them, how many."""
    parts = [contributor("busy", "gemm", ns, op, count=number) for op, ns, number in calls]
    return profile(*parts, name=name, **fields)


def test_the_ratio_s_interval_has_the_errors_of_both_steps_on_each_side() -> None:
    base = ran(("mm", 100, 1), span=Span(80, 100, 125))
    new = ran(("mm", 300, 1), span=Span(200, 300, 390))
    ratio = ratio_of(base, new)
    assert ratio.value == 3
    # the new step at its shortest, the base at its longest; and the other way round
    below = math.hypot(math.log(300 / 200), math.log(125 / 100))
    above = math.hypot(math.log(390 / 300), math.log(100 / 80))
    assert ratio.low == pytest.approx(3 * math.exp(-below))
    assert ratio.high is not None
    assert ratio.high == pytest.approx(3 * math.exp(above))
    back = ratio_of(new, base)
    assert back.low * ratio.high == pytest.approx(1)


@pytest.mark.parametrize(("high", "words"), [(500.0, "ms (95 % interval)"), (2_100.0, "unknown")])
def test_an_interval_of_a_factor_above_twenty_is_unknown(high: float, words: str) -> None:
    step = ran(("mm", 100 * MS, 1), span=Span(100 * MS, 100 * MS, high * MS))
    (doubt,) = alone(step).verdict.reasons
    assert words in doubt
    ratio = ratio_of(ran(("mm", 100 * MS, 1), span=span(100 * MS, 0.0)), step)
    assert (in_words(ratio) == "unknown") is (words == "unknown")


def test_a_step_without_a_clean_one_may_be_off_by_what_processes_differ_by() -> None:
    ratio = ratio_of(ran(("mm", 100, 1)), ran(("mm", 100, 1)))
    both = math.hypot(1.96 * BETWEEN_PROCESSES, 1.96 * BETWEEN_PROCESSES)
    assert (ratio.low, ratio.high) == pytest.approx((math.exp(-both), math.exp(both)))


@pytest.mark.parametrize(
    ("ends", "sure"),
    [((1.01, 1.2), False), ((1.03, 1.2), True), ((0.0, None), False)],
)
def test_a_ratio_is_sure_if_its_interval_lies_above_one_and_what_counts_as_equal(
    ends: tuple[float, float | None], sure: bool
) -> None:
    base = ran(("mm", 100, 1), span=span(100, 0.0))
    low = 0.0 if ends[1] is None else ends[0] * 100
    assert ratio_of(base, ran(("mm", 115, 1), span=Span(low, 115, 120))).sure is sure


def test_steps_without_time_have_no_ratio() -> None:
    assert ratio_of(ran(), ran(("mm", 100, 1))).high is None
    assert not ratio_of(ran(), ran(("mm", 100, 1))).sure


def test_the_same_calls_are_the_same_structure_whatever_they_take() -> None:
    fast = ran(("mm", 100, 10), ("add", 10, 90))
    slow = ran(("mm", 300, 10), ("add", 100, 90))
    structure = structure_of(fast, slow)
    assert structure.same
    assert structure.factor == pytest.approx(3)  # of the calls that take most, not the mean of all


@pytest.mark.parametrize(
    ("calls", "same"),
    [
        ([("mm", 100, 10), ("add", 10, 88)], True),  # a profiler left out 2 of 100
        ([("mm", 100, 10), ("add", 10, 86)], False),
        ([("mm", 100, 10), ("sub", 10, 90)], False),
        ([], False),
    ],
)
def test_counts_that_differ_by_more_than_a_few_percent_are_another_structure(
    calls: Any, same: bool
) -> None:
    fast, slow = ran(("mm", 100, 10), ("add", 10, 90)), ran(*calls)
    assert structure_of(fast, slow).same is same
    assert structure_of(slow, fast).same is same


def test_what_is_called_is_counted_by_events_and_not_by_time() -> None:
    # of short ops all may be recording cost: they have no time in one of two clean steps
    ops = {"ops": table({"name": "mm", "count": 20}, {"name": "view", "count": 180})}
    fast = ran(("mm", 100, 10), ("view", 1, 90), steps=2, tables=ops)
    slow = ran(("mm", 110, 10), steps=2, tables=ops)
    assert structure_of(fast, slow).same
    half = {"ops": table({"name": "mm", "count": 10}, {"name": "view", "count": 90})}
    assert structure_of(fast, ran(("mm", 110, 10), steps=1, tables=half)).same
    assert not structure_of(fast, ran(("mm", 110, 10), steps=2, tables=half)).same


def test_kernels_are_counted_on_a_device_alone() -> None:
    ops = {"name": "mm", "count": 1}
    first, second = (
        {"ops": table(ops), "kernels": table({"name": name, "count": 9})} for name in "ab"
    )
    on_host = [ran(("mm", 100, 1), tables=tables) for tables in (first, second)]
    assert structure_of(*on_host).same
    assert not structure_of(*(replace(run, device=0) for run in on_host)).same


def test_an_executor_that_leaves_short_ops_out_makes_no_other_structure() -> None:
    def of_executor(ops: int, framework: str = "tensorflow") -> StepProfile:
        by = contributor("idle", "dispatch", 10, "SessionRun")
        rows = [{"name": "MatMul", "count": 20}, {"name": "Slice", "count": ops}]
        return profile(by, tables={"ops": table(*rows)}, facts={"framework": framework})

    assert structure_of(of_executor(80), of_executor(50)).same
    assert not structure_of(of_executor(80), of_executor(20)).same
    assert structure_of(of_executor(80), of_executor(20, "torch")).certain
    assert not structure_of(of_executor(80), of_executor(20)).certain


def test_a_gpu_s_step_is_never_the_structure_of_a_cpu_s() -> None:
    assert not structure_of(ran(("mm", 100, 10)), ran(("mm", 100, 10), device=0)).same


def layer(
    form: str, op: str | None, cells: int | None, ns: int = 1, per_step: float | None = 1.0
) -> dict[str, Any]:
    facts = {"form": form, "op": op, "cells": cells, "forward_ns": ns, "backward_ns": None}
    return {**facts, "per_step": per_step, "calls": 20}


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], ""),
        ([layer("cell op", "aten::lstm_cell", 50)], "50 LSTMCell calls per step"),
        ([layer("cell op", "aten::gru_cell", 1_200)], "1,200 GRUCell calls per step"),
        ([layer("cell op", "custom::cell", 5)], "5 custom::cell calls per step"),
        ([layer("layer op", "aten::lstm", 50)], "1 aten::lstm call per step"),
        ([layer("layer op", "aten::lstm", 50)] * 2, "2 aten::lstm calls per step"),
        ([layer("layer op", "aten::lstm", 50, 1, 0.1)] * 10, "1 aten::lstm call per step"),
        ([layer("layer op", "aten::lstm", 1, 1, 50.0)], "50 aten::lstm calls per step"),
        ([layer("layer op", "aten::lstm", 1, 1, None)], "1 aten::lstm call per step"),
        ([layer("loop", None, 20)], "a loop runs the cell 20 times per step"),
        ([layer("loop", None, 20, 1, 3.0)], "3 loops run the cell 20 times each per step"),
        ([layer("loop", None, 20)] * 2, "2 loops run the cell 20 times each per step"),
        (
            [layer("loop", None, n) for n in (29, 40)],
            "2 loops run the cell 69 times in all per step",
        ),
        (
            [layer("loop", None, n, 1, 0.5) for n in (23, 24)],
            "a loop runs the cell 23.5 times per step",
        ),
        ([layer("loop", None, None)], ""),
        (
            [layer("layer op", "aten::lstm", 9), layer("loop", None, 20, 2)],
            "a loop runs the cell 20 times",
        ),
    ],
)
def test_a_layer_is_called_by_its_calls(rows: list[dict[str, Any]], words: str) -> None:
    found = layer_in_words(profile(tables={"layers": table(*rows)} if rows else {}))
    assert found.startswith(words)
    assert bool(found) == bool(words)


def counted(name: str, ops: int, layers: list[dict[str, Any]]) -> StepProfile:
    tables = {"ops": table({"name": "aten::mm", "count": ops}), "layers": table(*layers)}
    return profile(contributor("busy", "gemm", MS, "mm"), name=name, tables=tables)


def test_what_only_one_run_does_are_its_layers_else_its_ops() -> None:
    cells, one = [layer("cell op", "aten::lstm_cell", 50)], [layer("layer op", "aten::lstm", 50)]
    assert structure_in_words(counted("b", 349, one), counted("a", 7_354, cells)) == (
        "50 LSTMCell calls per step (baseline: 1 aten::lstm call)"
    )
    assert structure_in_words(counted("b", 349, one), counted("a", 7_354, one)) == (
        "7,354 ops per step (baseline: 349)"
    )
    assert structure_in_words(counted("b", 349, one), counted("a", 360, one)) == ""
    block = [layer("layer op", "BlockLSTM", 50)]
    assert structure_in_words(counted("b", 349, one), counted("a", 360, block)) == (
        "BlockLSTM instead of aten::lstm runs the recurrent layer (1 call per step)"
    )


@pytest.mark.parametrize(
    ("lost_ms", "cpu_share", "words"),
    [
        (None, None, ()),
        (0.9, 0.5, ()),  # under a tenth of the step
        (5.5, None, ("15.5 ms", "5.5 ms")),
        (5.5, 0.42, ("15.5 ms", "5.5 ms", "58 %")),
    ],
)
def test_what_the_timed_steps_lost_is_one_line_with_its_evidence(
    lost_ms: float | None, cpu_share: float | None, words: tuple[str, ...]
) -> None:
    lost_ns = None if lost_ms is None else lost_ms * MS
    run = ran(("mm", 10 * MS, 1), step_ns=10 * MS, lost_ns=lost_ns, cpu_share=cpu_share)
    assert alone(run).verdict.lost_ns == lost_ns
    notes = alone(run).notes
    assert len(notes) == bool(words)
    assert [word for word in words if word not in notes[0]] == []


def test_what_happens_now_and_then_is_a_note_of_each_run() -> None:
    rare = tuple(Rare(f"gc{n}", 2, n * MS) for n in range(1, 5))
    run = ran(("mm", 10 * MS, 1), name="a", steps=12, rare=rare)
    notes = alone(run).notes
    for part in ("gc1", "1.0 ms", "in only 2 of 12 steps"):
        assert part in notes[0]
    assert len(notes) == 3  # not all of many
    assert f"a: {notes[0]}" in compare(run, ran(("mm", 20 * MS, 1), name="b")).notes
    assert alone(run).verdict.now_and_then == rare
    written = alone(run).to_dict()["verdict"]["now_and_then"]
    assert written[0] == {"name": "gc1", "steps": 2, "each_ns": MS}
