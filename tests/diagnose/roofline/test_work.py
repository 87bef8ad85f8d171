"""Operations and bytes of a step, against the reference's own products and torch's counter."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from diagnose.counting import CountingNumpy, counting

from lstmprof import workloads
from lstmprof.capture.worker import reference
from lstmprof.diagnose.roofline.work import CELLS, OPTIMIZERS, Cost, costs, flops
from lstmprof.workloads import GATES, Workload
from lstmprof.workloads.studies import named

SEED = 5
VARIED = Workload("lengths", 2, 4, True, 5, 6, 5, 3, "ce", shortest=2, variable_length=True)
PTB = Workload("ptb", 2, 4, False, 3, 6, 4, 7, "ce", each_step=True, vocabulary=7)
CTC = Workload("bidirectional-ctc", 2, 4, True, 4, 9, 5, 4, "ctc", labels=2, shortest=5)
WORKLOADS = (
    Workload("one-layer-ce", 1, 5, False, 3, 7, 4, 3, "ce"),
    Workload("one-layer-mse", 1, 5, False, 3, 7, 4, 3, "mse"),
    Workload("one-step", 1, 5, False, 3, 1, 4, 3, "mse"),
    Workload("three-layers-bidirectional-ce", 3, 4, True, 4, 6, 5, 3, "ce"),
    Workload("gru", 2, 4, True, 3, 6, 5, 3, "ce", cell="gru"),
    Workload("rnn", 2, 4, True, 3, 6, 5, 3, "ce", cell="rnn"),
    Workload("deepbench", 1, 4, False, 3, 6, 4, 4, "mean", head=False, optimizer="sgd"),
    Workload("glample", 1, 4, False, 3, 6, 4, 4, "mse", head=False, optimizer="sgd"),
    Workload("imdb", 1, 4, False, 3, 6, 5, 2, "ce", cell="gru", vocabulary=7),
    Workload(
        *("tokens-lengths", 1, 4, True, 5, 6, 3, 3, "ce"),
        **{"shortest": 2, "variable_length": True, "vocabulary": 9},
    ),
    Workload(
        *("ctc-lengths", 2, 4, True, 4, 9, 5, 4, "ctc"),
        **{"labels": 2, "shortest": 5, "variable_length": True},
    ),
    *(VARIED, PTB, CTC),
)


def by_name(workload: Workload) -> str:
    return workload.name


def products(rows: tuple[Cost, ...], **only: object) -> int:
    """Flops of the products whose fields are as ``only`` says."""
    chosen = [r for r in rows if all(getattr(r, key) == value for key, value in only.items())]
    return flops(chosen, "gemm")


def needless(w: Workload) -> int:
    """Flops of the products that the reference makes and no weight's gradient depends on."""
    batch: Any = workloads.batch(w, SEED)
    rows = int(batch.lengths.sum()) if w.variable_length else w.batch * w.time_steps
    gates = GATES[w.cell] * w.hidden
    first_state = 2 * w.batch * w.hidden * gates * w.directions * w.layers
    features = 0 if w.vocabulary else 2 * rows * w.features * gates * w.directions
    beyond = w.batch * w.time_steps - rows if w.every_step and w.head else 0
    return first_state + features + 3 * 2 * beyond * w.directions * w.hidden * w.classes


@pytest.mark.parametrize("workload", WORKLOADS, ids=by_name)
def test_the_reference_makes_these_products_and_the_needless_ones(
    workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = counting(monkeypatch)
    batch = workloads.batch(workload, SEED)
    reference.outcome(workload, workloads.weights(workload, SEED), batch)
    expected = flops(costs(workload, seed=SEED), "gemm") + needless(workload)
    assert counted.counts["gemm"] == expected


def test_an_embedding_adds_each_gradient_to_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = counting(monkeypatch)
    reference.outcome(PTB, workloads.weights(PTB, SEED), workloads.batch(PTB, SEED))
    rows = costs(PTB, seed=SEED)
    assert counted.counts["scatter"] == flops(rows, "embedding")


@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_has_these_operations(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    w = Workload("cell", 1, 4, False, 3, 6, 5, 4, "mean", cell=cell, head=False)
    rows = {row.work: row.flops for row in costs(w) if row.part == "cell"}
    counted = counting(monkeypatch)
    weights = {name: counted.asarray(x) for name, x in workloads.weights(w, 0).items()}
    batch: Any = workloads.batch(w, 0)

    trace = reference.forward(cell, weights, "l0", counted.asarray(batch.inputs))
    assert counted.counts.pop("pointwise") == rows["forward"]

    d_hiddens = counted.zeros((w.time_steps, w.batch, w.hidden))
    reference.backward(cell, weights, "l0", trace, d_hiddens, {})
    adding_nothing = 0 if cell == "gru" else w.time_steps * w.batch * w.hidden  # + 0.0
    assert counted.counts["pointwise"] - adding_nothing == rows["backward_data"]


def test_an_optimizer_has_these_operations_a_parameter() -> None:
    counted = CountingNumpy()
    m, v, g, p = (counted.zeros(1) for _ in range(4))
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * (g * g)
    p = p - 1e-3 * m / (np.sqrt(v) + 1e-8)
    assert counted.counts.pop("pointwise") == OPTIMIZERS["adam"][0]
    p = p - 1e-3 * g
    assert counted.counts["pointwise"] == OPTIMIZERS["sgd"][0]


def counted_by_torch(workload: Workload) -> int:
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    file = importlib.import_module("lstmprof.implementations.torch.lstmcell_basic")
    module = file.build(workload)
    file.load(module, workloads.weights(workload, SEED))
    batch: Any = workloads.batch(workload, SEED)
    with FlopCounterMode(display=False) as counter:
        module(torch.from_numpy(batch.inputs)).sum().backward()
    return int(counter.get_total_flops())


SAME_WORK = [
    w for w in WORKLOADS if w.cell == "lstm" and not w.variable_length and w.loss != "mean"
]


@pytest.mark.parametrize("workload", SAME_WORK, ids=by_name)
def test_torch_counts_the_same_products(workload: Workload) -> None:
    rows = costs(workload, seed=SEED)
    assert counted_by_torch(workload) == flops(rows, "gemm") - pruned(workload)


def pruned(w: Workload) -> int:
    """Autograd's gain where the loss sees one step of the last layer's reverse direction."""
    if w.every_step or not w.bidirectional:
        return 0
    others, gates = w.batch * (w.time_steps - 1), 4 * w.hidden
    inputs = 2 * w.hidden if w.layers > 1 else w.features
    input_gradients = others * gates * inputs if w.layers > 1 else 0
    return 2 * (input_gradients + others * gates * (inputs + 2 * w.hidden))


def test_work_grows_with_the_studies_networks() -> None:
    """Counted by hand with the initial states' gradients: 19.8, 98.8 and 1613 GFLOP."""
    names = ("1x320-ce-short", "1x320-ce-long", "4x320-ce-long")
    found = [products(costs(named(name))) / 1e9 for name in names]
    assert found == pytest.approx([19.708, 98.770, 1612.960], abs=5e-4)
    states = [2 * w.batch * 320 * 1280 * w.directions * w.layers / 1e9 for w in map(named, names)]
    assert [round(f + s, 1) for f, s in zip(found, states, strict=True)] == [19.8, 98.8, 1613.2]


def test_forward_mode_has_the_forward_work_alone() -> None:
    rows = costs(PTB, "forward")
    assert {row.work for row in rows} == {"forward"}
    assert flops(rows) == flops(row for row in costs(PTB) if row.work == "forward")


def moved(rows: tuple[Cost, ...]) -> dict[tuple[str, str], int]:
    return {(row.part, row.work): row.moved_bytes for row in rows}


#: one layer of 2 units, batch 3, 5 time steps, 4 features, 2 classes: W 8×4, U 8×2, b 8, head 2×2
SMALL = Workload("small", 1, 2, False, 3, 5, 4, 2, "ce")


def test_bytes_of_a_training_step() -> None:
    inputs, outputs, seen, scores = 5 * 3 * 4, 5 * 3 * 2, 3 * 2, 3 * 2
    elements = {
        ("input", "forward"): 32 + inputs,
        ("recurrent", "forward"): 16,
        ("cell", "forward"): 8 + outputs + 5 * outputs,
        ("head", "forward"): 4 + seen + scores,
        ("loss", "forward"): scores + scores,
        ("head", "backward_data"): 4 + seen + scores,
        ("cell", "backward_data"): 8 + seen + 5 * outputs,
        ("recurrent", "backward_data"): 16,
        ("head", "backward_weights"): 4 + seen + scores,
        ("input", "backward_weights"): 32 + inputs,
        ("recurrent", "backward_weights"): 16 + outputs,
        ("optimizer", "optimizer"): (32 + 16 + 8 + 4) * 7,
    }
    assert moved(costs(SMALL)) == {key: 4 * count for key, count in elements.items()}
    assert moved(costs(SMALL, "forward")) == {
        ("input", "forward"): 4 * (32 + inputs),
        ("recurrent", "forward"): 4 * 16,
        ("cell", "forward"): 4 * (8 + seen),  # of the last layer what the head looks at
        ("head", "forward"): 4 * (4 + seen + scores),
        ("loss", "forward"): 4 * scores,
    }


def test_amp_halves_the_operands_and_adds_casts() -> None:
    half, whole = moved(costs(SMALL, precision="amp-bf16")), moved(costs(SMALL))
    assert half["cast", "forward"] == 6 * (32 + 16 + 4 + 60)
    assert half["input", "forward"] == whole["input", "forward"] // 2
    assert half["input", "backward_weights"] == 2 * 60 + 4 * 32
    assert half["optimizer", "optimizer"] == whole["optimizer", "optimizer"]
    assert ("cast", "forward") not in moved(costs(SMALL, precision="tf32"))


def test_an_embedding_moves_the_rows_that_tokens_name() -> None:
    few = Workload("few", 1, 2, False, 2, 3, 4, 2, "ce", vocabulary=1000, optimizer="sgd")
    used = len(np.unique(workloads.batch(few, 0).inputs)) * 4  # type: ignore[call-overload]
    sgd = moved(costs(few))
    assert sgd["embedding", "forward"] == 8 * 6 + 4 * used + 4 * 6 * 4
    weights = 32 + 16 + 8 + 4
    assert sgd["optimizer", "optimizer"] == 4 * 3 * (weights + used)
    adam = moved(costs(Workload(**{**vars(few), "optimizer": "adam"})))
    assert adam["optimizer", "optimizer"] == 4 * (7 * weights + used + 6 * 4000)


def test_padding_costs_where_the_layers_do_not_know_lengths() -> None:
    padded = Workload(**{**vars(VARIED), "variable_length": False})
    lengths: Any = workloads.batch(VARIED, SEED).lengths
    share = lengths.sum() / (VARIED.batch * VARIED.time_steps)
    known = products(costs(VARIED, seed=SEED), part="recurrent", work="forward")
    unknown = products(costs(padded, seed=SEED), part="recurrent", work="forward")
    assert known == pytest.approx(unknown * share)
    assert share < 1
