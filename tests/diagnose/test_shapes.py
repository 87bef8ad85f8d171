"""The network that a run computes: by run.json, else by its slowest recurrent layer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from lstmprof.base.errors import UsageError
from lstmprof.diagnose.recommend.shapes import shape_of
from lstmprof.runs.metadata import run_info
from lstmprof.workloads import Workload

ROW: dict[str, Any] = {
    **{"form": "cell op", "framework": "torch", "op": "aten::lstm_cell", "library": None},
    **{"cell": "lstm", "time_steps": 30, "batch": 8, "inputs": 16, "hidden": 32, "layers": 1},
    **{"directions": 1, "dtype": "float", "packed": False, "projection": None, "calls": 3},
    **{"ops_per_time_step": 9.0, "kernels_per_time_step": None},
    **{"forward_ns": 4e6, "backward_ns": 6e6},
}


def breakdown(*rows: dict[str, Any], **facts: Any) -> Any:
    info = run_info({"name": "mine", **facts})
    run = SimpleNamespace(name="mine", info=info)
    return SimpleNamespace(run=run, table=lambda name: pa.Table.from_pylist(list(rows)))


def test_a_captures_network_is_that_of_its_run_json() -> None:
    workload = Workload("tiny", 2, 4, True, 2, 5, 3, 6, "ce")
    facts = {"implementation": "torch-nn-lstm", "framework": "torch", "mode": "forward"}
    facts |= {"workload": vars(workload), "precision": "amp-bf16", "device": "cpu", "threads": 2}
    shape = shape_of(breakdown(**facts, seed=3))
    assert shape.workload == workload
    assert (shape.precision, shape.mode, shape.device) == ("amp-bf16", "forward", "cpu")
    assert (shape.threads, shape.seed, shape.layer) == (2, 3, None)


def test_a_strangers_network_is_that_of_its_slowest_layer() -> None:
    short = {**ROW, "hidden": 64, "forward_ns": 1e6, "backward_ns": None}
    shape = shape_of(breakdown(short, {**ROW, "directions": 2, "dtype": "c10::Half"}))
    w = shape.workload
    assert (w.layers, w.hidden, w.batch, w.time_steps, w.features) == (1, 32, 8, 30, 16)
    assert (w.bidirectional, w.head, w.classes, w.loss) == (True, False, 64, "mean")
    assert (shape.precision, shape.mode, shape.framework) == ("amp-fp16", "train", "torch")
    assert shape.layer is not None
    assert shape_of(breakdown(short)).mode == "forward"


def test_the_slowest_layer_may_have_an_unknown_number_of_calls() -> None:
    slow = {**ROW, "hidden": 64, "forward_ns": 9e9, "calls": None}
    assert shape_of(breakdown(ROW, slow)).workload.hidden == 64


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "no recurrent layer was recognised; give --hidden"),
        ([{**ROW, "batch": None, "inputs": None}], "batch and inputs of the layer"),
        ([{**ROW, "cell": "rnn_relu"}], "its layer has rnn_relu cells, which no implementation"),
        ([{**ROW, "projection": 8}], "its layer has a projection"),
        ([{**ROW, "dtype": "double"}], "its layer has double numbers"),
    ],
)
def test_what_is_not_known_or_cannot_be_captured_is_said(
    rows: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        shape_of(breakdown(*rows))


def test_shapes_that_cost_too_much_to_record_are_not_asked_for() -> None:
    layer = {**ROW, "batch": None}
    with pytest.raises(UsageError, match=r"unknown, because .* 40 % longer"):
        shape_of(breakdown(layer, shapes_cost=0.4))
    with pytest.raises(UsageError, match=r"batch of the layer .* is unknown; record the shapes"):
        shape_of(breakdown(layer, shapes_cost=0.01))
