"""The least time of a step, and the share of it that a run reached."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from lstmprof.diagnose.roofline import (
    Peaks,
    Reach,
    Roofline,
    bounds,
    costs_of,
    roofline,
    workload_of,
)
from lstmprof.diagnose.roofline.work import Cost, costs
from lstmprof.diagnose.verdict.sentences import roofline_sentence
from lstmprof.runs.metadata import RunInfo, decoded, encoded, run_info
from lstmprof.workloads.studies import named

MS = 1_000_000
#: 10 flops and 2 bytes a ns
PEAKS = Peaks(10e9, 2e9)
PRODUCT = Cost("head", "forward", "gemm", None, 1000, 40)  # 100 and 20 ns
CELL = Cost("cell", "forward", "pointwise", 0, 100, 60)  # 10 and 30 ns
LOSS = Cost("loss", "forward", "softmax_loss", None, None, 10)  # unknown and 5 ns
ROWS = (PRODUCT, CELL, LOSS)


def test_a_part_takes_the_longer_of_computing_and_moving() -> None:
    found = bounds(ROWS, PEAKS)
    assert [(b.compute_ns, b.memory_ns, b.ns, b.limit) for b in found] == [
        (100, 20, 100, "compute"),
        (10, 30, 30, "memory"),
        (None, 5, 5, "memory"),
    ]


def test_a_step_takes_the_sum_of_its_parts() -> None:
    found = roofline(ROWS, PEAKS, 270, {})
    assert found.step_ns == 135
    assert found.share == pytest.approx(0.5)
    assert found.memory_share == pytest.approx(35 / 135)
    assert found.gemm_flops_per_s == pytest.approx(1000 / 270e-9)


def reached(busy_ns: dict[str, float]) -> list[tuple[Any, ...]]:
    found = roofline(ROWS, PEAKS, 500, busy_ns).reaches
    return [(reach.categories, reach.busy_ns, reach.bound_ns, reach.share) for reach in found]


def test_each_category_reaches_a_share_of_its_own_work_s_least_time() -> None:
    busy = {"gemm": 200.0, "pointwise": 120.0, "layout": 50.0, "softmax_loss": 10.0, "cast": 0.0}
    assert reached(busy) == [
        (("gemm",), 200, 100, 0.5),
        (("pointwise",), 120, 30, 0.25),
        (("layout",), 50, None, None),  # no work is known that needs it
        (("softmax_loss",), 10, 5, 0.5),
    ]


def test_an_rnn_op_shares_the_layers_work_with_products_and_pointwise_kernels() -> None:
    busy = {"rnn": 200.0, "gemm": 50.0, "pointwise": 10.0, "cast": 5.0}
    assert reached(busy) == [
        (("rnn", "gemm", "pointwise"), 260, 130, 0.5),
        (("cast",), 5, None, None),
    ]


def test_no_timing_gives_no_share() -> None:
    found = roofline(ROWS, PEAKS, 0, {})
    assert (found.share, found.gemm_flops_per_s, found.step_ns) == (None, None, 135)


def info(**changed: Any) -> RunInfo:
    workload = dataclasses.asdict(named("1x320-ce-short"))
    told = {"workload": workload, "mode": "train", "precision": "fp32", "seed": 0, **changed}
    return run_info(told)


def test_a_captured_run_says_what_its_step_costs() -> None:
    assert workload_of(info()) == named("1x320-ce-short")
    assert costs_of(info(mode="forward")) == costs(named("1x320-ce-short"), "forward")
    newer = encoded(info()).replace(b'"layers"', b'"of_a_later_version": 1, "layers"')
    assert workload_of(decoded(newer, "run.json")) == named("1x320-ce-short")


@pytest.mark.parametrize("workload", [{}, {"name": "ptb"}, {"layers": 2}])
def test_a_foreign_profile_has_no_known_work(workload: Any) -> None:
    assert costs_of(info(workload=workload)) is None


@pytest.mark.parametrize(
    "strange",
    [
        *({"loss": "brew"}, {"cell": "brew"}, {"hidden": 0}, {"layers": -1}, {"layers": 10**12}),
        *({"batch": 2**40, "variable_length": True, "shortest": 1}, {"loss": "ctc"}),
    ],
)
def test_a_workload_that_cannot_be_has_no_known_work(strange: Any) -> None:
    known = dataclasses.asdict(named("1x320-ce-short"))
    assert costs_of(info(workload={**known, **strange})) is None


def test_a_run_that_tells_no_mode_has_no_known_work() -> None:
    assert costs_of(info(mode=None)) is None


def test_the_short_asr_network_is_bound_by_its_products_on_a_cpu() -> None:
    found = roofline(costs(named("1x320-ce-short")), Peaks(100e9, 40e9), 287e6, {})
    assert found.step_ns == pytest.approx(199e6, rel=0.02)
    assert found.share == pytest.approx(0.69, abs=0.02)
    assert found.memory_share is not None
    assert found.memory_share < 0.02


@pytest.mark.parametrize(("busy_ns", "told"), [(30 * MS, False), (20 * MS, False), (16 * MS, True)])
def test_work_that_took_less_than_its_least_is_explained(busy_ns: int, told: bool) -> None:
    reaches = (Reach(("gemm",), 90 * MS, 60 * MS), Reach(("optimizer",), busy_ns, 20 * MS))
    said = roofline_sentence(Roofline(100 * MS, Peaks(1.0, 1.0), (), reaches))
    assert ("optimizer" in said) == told
