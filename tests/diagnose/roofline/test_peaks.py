"""The device's peaks: read from a run, taken from several, or given by a user."""

from __future__ import annotations

from typing import Any

import pytest

from lstmprof.base.errors import UsageError
from lstmprof.diagnose.roofline import Peaks, highest, parsed, recorded
from lstmprof.runs.metadata import run_info


@pytest.mark.parametrize(
    "text",
    [
        "67e12,3.35e12",
        "67TFLOP/s,3.35TB/s",
        " 67 tflops , 3350 GB/s ",
        "0.067PFLOP/s,3.35e12",
        "67000000000000.,3350000000000",
    ],
)
def test_a_user_gives_peaks_with_units_or_without(text: str) -> None:
    found = parsed(text)
    assert found.gemm_flops_per_s == pytest.approx(67e12)
    assert found.copy_bytes_per_s == pytest.approx(3.35e12)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("67e12", "not a matmul rate and a copy rate"),
        ("1,2,3", "not a matmul rate and a copy rate"),
        ("3.35TB/s,67TFLOP/s", "'3.35TB/s' is not a rate of matmuls above 0"),
        ("67e12,0", "'0' is not a rate of copies above 0"),
        ("-1,1", "'-1' is not a rate of matmuls"),
        ("nan,1", "'nan' is not a rate"),
        ("1e999,1", "'1e999' is not a rate"),
        ("67e12,3TiB/s", "'3TiB/s' is not a rate of copies"),
        (",", "'' is not a rate"),
    ],
)
def test_what_is_no_pair_of_rates_is_refused_with_an_example(text: str, fault: str) -> None:
    with pytest.raises(UsageError, match=fault) as refused:
        parsed(text)
    assert "67TFLOP/s,3.35TB/s" in str(refused.value)


@pytest.mark.parametrize(
    "peaks",
    [
        None,
        {},
        {"gemm_flops_per_s": None, "copy_bytes_per_s": None, "reason": "not asked for"},
        {"gemm_flops_per_s": 1e9, "copy_bytes_per_s": 0},
        {"gemm_flops_per_s": -1.0, "copy_bytes_per_s": 1e9},
    ],
)
def test_a_run_without_both_peaks_has_none(peaks: Any) -> None:
    assert recorded(run_info({"peaks": peaks})) is None


def test_the_device_s_peaks_are_the_highest_that_runs_on_it_measured() -> None:
    mkl = recorded(run_info({"peaks": {"gemm_flops_per_s": 100e9, "copy_bytes_per_s": 42e9}}))
    eigen = recorded(run_info({"peaks": {"gemm_flops_per_s": 240e9, "copy_bytes_per_s": 40e9}}))
    assert mkl is not None
    assert eigen is not None
    assert highest([mkl, eigen]) == Peaks(240e9, 42e9)
    assert highest([]) is None
