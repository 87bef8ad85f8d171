"""Networks beyond an LSTM of features under a head are known by a row, or refused up front."""

from __future__ import annotations

import dataclasses

import pytest

from lstmprof import implementations
from lstmprof.capture.request import CaptureRequest, refusal, wanted
from lstmprof.implementations import UNUSUAL, Implementation
from lstmprof.workloads.studies import NAMED


def test_every_unusual_need_of_a_named_workload_is_in_the_table_of_needs() -> None:
    usual = set(wanted(CaptureRequest("torch-nn-lstm", NAMED[0], device="cpu")))
    usual |= set(wanted(CaptureRequest("torch-nn-lstm", NAMED[3], device="cpu"))) | {"mse"}
    networks = (*NAMED, dataclasses.replace(NAMED[0], variable_length=True))
    needs = {
        n for w in networks for n in wanted(CaptureRequest("torch-nn-lstm", w, device="cpu"))
    } - usual
    assert needs == set(UNUSUAL)


@pytest.mark.parametrize("row", implementations.TABLE, ids=lambda r: r.name)
def test_what_a_row_does_not_know_is_refused_before_a_worker_starts(row: Implementation) -> None:
    for workload in NAMED:
        needs = set(wanted(CaptureRequest(row.name, workload))) & set(UNUSUAL)
        if needs - set(row.knows):
            assert refusal(CaptureRequest(row.name, workload)) is not None


def test_every_workload_has_an_implementation() -> None:
    for workload in NAMED:
        assert any(
            refusal(CaptureRequest(row.name, workload)) is None for row in implementations.TABLE
        )
