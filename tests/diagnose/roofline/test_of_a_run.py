"""Which peaks a run is held against, and when products cannot be put at their roofline."""

from __future__ import annotations

from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import pytest
from diagnose.made import contributor, profile

from lstmprof.base.errors import UsageError
from lstmprof.diagnose.roofline import Peaks, Roofline, gemm_factor, roofline_of
from lstmprof.diagnose.step_profile import StepProfile
from lstmprof.workloads import with_overrides
from lstmprof.workloads.studies import NAMED

WORKLOAD = asdict(with_overrides(NAMED[0], hidden=8, batch=2, time_steps=3))


def run(peak: float | None, **facts: Any) -> StepProfile:
    known = {"workload": WORKLOAD, "mode": "train", "precision": "fp32", "seed": 0}
    peaks = {"gemm_flops_per_s": peak, "copy_bytes_per_s": peak}
    contributors = (
        contributor("busy", "gemm", 9_000_000, "aten::mm"),
        contributor("idle", "python", 1_000_000),
    )
    return profile(*contributors, facts={**known, "device_name": "d", "peaks": peaks, **facts})


def test_the_highest_peaks_of_runs_on_one_device_are_the_devices() -> None:
    own, faster = run(1e9), run(2e9)
    elsewhere, other = run(9e9, device_name="e"), run(9e9, precision="amp-bf16")
    found = roofline_of(own, [faster, elsewhere, other], None)
    assert found is not None
    assert found.peaks == Peaks(2e9, 2e9)
    assert found.clean_ns == 10_000_000
    assert [(r.categories, r.busy_ns) for r in found.reaches] == [(("gemm",), 9_000_000.0)]


def test_given_peaks_come_first_and_unknown_ones_give_no_roofline() -> None:
    found = roofline_of(run(1e9), [], Peaks(5e9, 6e9))
    assert found is not None
    assert found.peaks == Peaks(5e9, 6e9)
    assert roofline_of(run(None), [], None) is None
    assert roofline_of(run(1e9, workload={}), [], None) is None


@pytest.mark.parametrize(("peak", "factor"), [(1e12, 100.0), (1e3, 1.0)])
def test_products_at_their_roofline_are_never_slower(peak: float, factor: float) -> None:
    one = run(peak)
    found = gemm_factor(one, roofline_of(one, [], None))
    assert found == factor if factor == 1 else found > factor


@pytest.mark.parametrize(("part", "category"), [("memory", "gemm"), ("gemm", "pointwise")])
def test_of_no_products_or_none_that_are_known_there_is_no_factor(part: str, category: str) -> None:
    one = profile(contributor("busy", part, 9_000_000, "k"))
    cost: Any = SimpleNamespace(ns=1.0, cost=SimpleNamespace(category=category))
    with pytest.raises(UsageError, match="no separate matmuls"):
        gemm_factor(one, Roofline(1.0, Peaks(1.0, 1.0), (cost,), ()))
