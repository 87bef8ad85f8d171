"""Networks beyond an LSTM of features under a head, where a row says that it knows them."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
import reference

from lstmprof import implementations, workloads
from lstmprof.capture.worker_request import CaptureRequest, refusal, wanted
from lstmprof.implementations import UNUSUAL, Implementation
from lstmprof.named_workloads import NAMED
from lstmprof.workloads import Workload

TOLERANCE = 1e-4  # max |a − b| / max |b|, float32
SEED = 5

NETWORKS = (
    Workload("gru", 2, 4, True, 3, 6, 5, 3, "ce", cell="gru"),
    Workload("rnn", 2, 4, True, 3, 6, 5, 3, "ce", cell="rnn"),
    Workload("deepbench", 1, 4, False, 3, 6, 4, 4, "mean", head=False, optimizer="sgd"),
    Workload("glample", 1, 4, False, 3, 6, 4, 4, "mse", head=False, optimizer="sgd"),
    Workload("ptb", 2, 4, False, 3, 6, 4, 7, "ce", each_step=True, vocabulary=7),
    Workload("imdb", 1, 4, False, 3, 6, 5, 2, "ce", cell="gru", vocabulary=7),
)
ROWS = [row for row in implementations.TABLE if row.knows and row.name != "torch-compile"]


@pytest.mark.parametrize("workload", NETWORKS, ids=lambda w: w.name)
@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.name)
@pytest.mark.filterwarnings(r"ignore:.torch\.jit\.script(_method)?. is:DeprecationWarning")
def test_loss_outputs_and_gradients(row: Implementation, workload: Workload) -> None:
    reason = refusal(CaptureRequest(row.name, workload))
    if reason:
        pytest.skip(reason)
    torch = pytest.importorskip("torch")
    from lstmprof.capture import worker_torch_loss

    file: Any = importlib.import_module(row.module)
    weights, batch = workloads.weights(workload, SEED), workloads.batch(workload, SEED)
    module = file.build(workload)
    file.load(module, weights)
    given = [torch.from_numpy(a) for a in (batch.inputs, batch.targets, batch.lengths)]
    outputs = module(given[0])
    loss = worker_torch_loss.loss_of(workload, outputs, given[1], given[2], time_major=True)
    loss.backward()
    gradients = {name: p.grad.numpy() for name, p in file.parameters(module).items()}
    right = reference.outcome(workload, weights, batch)
    found = file.canonical(module, gradients)
    assert loss.item() == pytest.approx(right.loss, rel=TOLERANCE, abs=1e-6)
    assert set(found) == set(right.gradients)
    pairs = [(outputs.detach().numpy(), right.outputs)]
    pairs += [(found[name], right.gradients[name]) for name in found]
    for mine, expected in pairs:
        assert np.shape(mine) == np.shape(expected)
        assert np.abs(mine - expected).max() <= TOLERANCE * (np.abs(expected).max() or 1.0)


def test_every_unusual_need_of_a_named_workload_is_in_the_table_of_needs() -> None:
    usual = set(wanted(CaptureRequest("torch-cudnn", NAMED[0], device="cpu")))
    usual |= set(wanted(CaptureRequest("torch-cudnn", NAMED[3], device="cpu"))) | {"mse"}
    needs = {
        n for w in NAMED for n in wanted(CaptureRequest("torch-cudnn", w, device="cpu"))
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
