"""Every part's operations and bytes, against the arrays of the float64 reference as it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from diagnose.counting import counting
from diagnose.roofline.test_work import SEED, WORKLOADS, by_name

from lstmprof import workloads
from lstmprof.capture.worker import reference
from lstmprof.capture.worker.reference import DirectionTrace
from lstmprof.diagnose.roofline.work import OPTIMIZERS, costs
from lstmprof.workloads import Workload

GRU_WITHOUT_HEAD = Workload(
    *("gru-mean", 2, 4, True, 3, 6, 5, 8, "mean"),
    **{"cell": "gru", "head": False, "optimizer": "sgd"},
)
RNN_WITH_TOKENS = Workload(
    *("rnn-tokens", 2, 4, False, 3, 6, 5, 7, "ce"),
    **{"cell": "rnn", "each_step": True, "vocabulary": 50, "optimizer": "sgd"},
)
ALL = (*WORKLOADS, GRU_WITHOUT_HEAD, RNN_WITH_TOKENS)


@dataclass
class Watched:
    """What the reference did: each direction's traces, operations of the cells, its arrays."""

    weights: dict[str, Any]
    batch: Any
    traces: dict[str, list[DirectionTrace]] = field(default_factory=dict)
    hiddens: dict[int, Any] = field(default_factory=dict)  # by id, initial states among them
    operations: Counter[str] = field(default_factory=Counter)
    outcome: Any = None

    def of(self, layer: int, size: Callable[[DirectionTrace], int]) -> int:
        """The sum of ``size`` over both directions of a layer and all its sequences."""
        found = [self.traces.get(f"l{layer}{s}", []) for s in ("", "_reverse")]
        return sum(size(trace) for traces in found for trace in traces)

    def saved(self, trace: DirectionTrace) -> int:
        """Elements kept for the way back, each once, but for states that come in or go out."""
        kept = {id(array): array for step in trace.steps for array in step}
        return sum(array.size for key, array in kept.items() if key not in self.hiddens)

    def matrix(self, name: str, layer: int) -> int:
        """Elements of a weight of a layer, both directions."""
        slots = [f"{name}_l{layer}{s}" for s in ("", "_reverse")]
        return sum(self.weights[slot].size for slot in slots if slot in self.weights)


def watched(w: Workload, patch: pytest.MonkeyPatch) -> Watched:
    """The reference's step of ``w``, counted."""
    counts = counting(patch).counts
    seen = Watched(workloads.weights(w, SEED), workloads.batch(w, SEED))
    forward, backward = reference.forward, reference.backward

    def counted(name: str, function: Callable[..., Any], *given: Any) -> Any:
        before = counts["pointwise"]
        result = function(*given)
        seen.operations[name] += counts["pointwise"] - before
        return result

    def watched_forward(cell: str, weights: Any, slot: str, inputs: Any) -> DirectionTrace:
        trace: DirectionTrace = counted("forward", forward, cell, weights, slot, inputs)
        seen.traces.setdefault(slot, []).append(trace)
        return trace

    cell, cell_back = reference.CELLS[w.cell]

    def watched_cell(x: Any, u: Any, h: Any, c: Any) -> Any:
        found = cell(x, u, h, c)
        seen.hiddens |= {id(h): h, id(found[0]): found[0]}
        return found

    patch.setitem(reference.CELLS, w.cell, (watched_cell, cell_back))
    patch.setattr(reference, "forward", watched_forward)
    patch.setattr(reference, "backward", lambda *given: counted("backward", backward, *given))
    seen.outcome = reference.outcome(w, seen.weights, seen.batch)
    return seen


def inputs(trace: DirectionTrace) -> int:
    return trace.inputs.size


def outputs(trace: DirectionTrace) -> int:
    return trace.hiddens[1:].size


@pytest.mark.parametrize("workload", ALL, ids=by_name)
def test_the_cells_of_all_layers_have_these_operations(
    workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = watched(workload, monkeypatch)
    cells = [row for row in costs(workload, seed=SEED) if row.part == "cell"]
    flops = {w: sum(r.flops or 0 for r in cells if r.work == w) for w in {r.work for r in cells}}
    every = sum(seen.of(layer, outputs) for layer in range(workload.layers))
    adding_nothing = 0 if workload.cell == "gru" else every  # + 0.0
    assert flops == {
        "forward": seen.operations["forward"],
        "backward_data": seen.operations["backward"] - adding_nothing,
    }


def layer_bytes(w: Workload, s: Watched, layer: int, element: int, train: bool) -> dict[Any, int]:
    wide, back = s.matrix("weight_ih", layer), s.matrix("weight_hh", layer)
    biases, out, kept = s.matrix("bias", layer), s.of(layer, outputs), s.of(layer, s.saved)
    into = sum(trace.inputs.size for trace in s.traces[f"l{layer}"])
    last = layer == w.layers - 1 and not w.every_step
    looked_at = w.batch * w.directions * w.hidden if last else out
    moved = {
        ("input", "forward"): element * (wide + into),
        ("recurrent", "forward"): element * back,
        ("cell", "forward"): element * (out + kept if train else looked_at) + 4 * biases,
    }
    if not train:
        return moved
    moved |= {
        ("cell", "backward_data"): element * (kept + looked_at) + 4 * biases,
        ("input", "backward_weights"): element * into + 4 * wide,
        ("recurrent", "backward_weights"): element * out + 4 * back,
    }
    if layer or w.vocabulary:
        moved["input", "backward_data"] = element * (wide + into)
    if any(len(trace.steps) > 1 for trace in s.traces[f"l{layer}"]):
        moved["recurrent", "backward_data"] = element * back
    return moved


def head_bytes(w: Workload, s: Watched, element: int, train: bool) -> dict[Any, int]:
    width = w.directions * w.hidden
    looked_at = s.of(w.layers - 1, outputs) if w.every_step else w.batch * width
    scores = looked_at // width * s.outcome.outputs.shape[-1]
    moved = {("loss", "forward"): element * scores * (2 if train else 1)}
    if not w.head:
        return moved
    matrix, both = s.weights["head"].size, looked_at + scores
    moved["head", "forward"] = element * (matrix + both)
    if train:
        moved["head", "backward_data"] = element * (matrix + both)
        moved["head", "backward_weights"] = element * both + 4 * matrix
    return moved


def other_bytes(w: Workload, s: Watched, element: int, train: bool) -> dict[Any, int]:
    into = sum(trace.inputs.size for trace in s.traces["l0"])
    moved, unused = {}, 0
    if w.vocabulary:
        table = s.outcome.gradients["embedding"]
        used = int((np.asarray(table) != 0).any(1).sum()) * w.features
        unused = table.size - used
        reads = 8 * (into // w.features) + 4 * used + element * into
        moved["embedding", "forward"] = reads
        if train:
            moved["embedding", "backward_weights"] = reads
    if element == 2:
        products = sum(x.size for n, x in s.weights.items() if n[:4] in ("weig", "head"))
        moved["cast", "forward"] = (4 + 2) * (products + (0 if w.vocabulary else into))
    if train:
        changed = sum(gradient.size for gradient in s.outcome.gradients.values())
        with_gradient = changed - unused
        # Adam reads and writes parameter and both moments, SGD the parameter; both the gradient
        own = 6 * changed if w.optimizer == "adam" else 2 * with_gradient
        moved["optimizer", "optimizer"] = 4 * (own + with_gradient)
    return moved


@pytest.mark.parametrize("precision", ["fp32", "amp-bf16"])
@pytest.mark.parametrize("mode", ["train", "forward"])
@pytest.mark.parametrize("workload", ALL, ids=by_name)
def test_each_part_moves_the_arrays_of_the_reference(
    workload: Workload, mode: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = watched(workload, monkeypatch)
    given = (workload, seen, 4 if precision == "fp32" else 2, mode == "train")
    expected = {(*key, None): n for key, n in {**head_bytes(*given), **other_bytes(*given)}.items()}
    for layer in range(workload.layers):
        of_layer = layer_bytes(workload, seen, layer, *given[2:])
        expected |= {(*key, layer): n for key, n in of_layer.items()}
    rows = costs(workload, mode, precision, SEED)
    assert {(r.part, r.work, r.layer): r.moved_bytes for r in rows} == expected


@pytest.mark.parametrize("workload", ALL, ids=by_name)
def test_an_optimizer_changes_the_numbers_that_have_a_gradient(
    workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    gradients = watched(workload, monkeypatch).outcome.gradients
    changed = sum(gradient.size for gradient in gradients.values())
    if workload.vocabulary and workload.optimizer == "sgd":
        changed -= int((np.asarray(gradients["embedding"]) == 0).sum())
    (row,) = (row for row in costs(workload, seed=SEED) if row.part == "optimizer")
    assert row.flops == OPTIMIZERS[workload.optimizer][0] * changed


def test_casts_and_look_ups_compute_nothing() -> None:
    rows = costs(RNN_WITH_TOKENS, precision="amp-bf16")
    assert [r.flops for r in rows if r.part in ("cast", "embedding") and r.work == "forward"] == [
        0,
        0,
    ]


def test_lengths_and_tokens_are_those_of_the_seed() -> None:
    lengths = next(w for w in WORKLOADS if w.variable_length)
    assert costs(lengths) == costs(lengths, seed=0)
    assert costs(lengths, seed=0) != costs(lengths, seed=1)
