"""PyTorch's layer ops by the shapes of their inputs, as PyTorch 2.13 and older ones record them."""

import importlib
from pathlib import Path
from typing import Any

import pytest
from breakdown.recurrent.rows import HOST, Timeline, known
from capture.rows import layer_computes_in_bfloat16
from events.rows import row
from ingested import ingest_profile

from lstmprof import implementations
from lstmprof.breakdown import break_down
from lstmprof.workloads import Workload

NETWORK = ("time_steps", "batch", "inputs", "hidden", "layers", "directions", "packed", "cells")


def weights(inputs: int, hidden: int, layers: int, directions: int, gates: int = 4) -> list[Any]:
    shapes = []
    for layer in range(layers):
        width = directions * hidden if layer else inputs
        for _ in range(directions):
            shapes += [[gates * hidden, width], [gates * hidden, hidden]]
            shapes += [[gates * hidden], [gates * hidden]]
    return shapes


def lstm(steps: int, batch: int, inputs: int, hidden: int, layers: int, directions: int) -> Any:
    state = [layers * directions, batch, hidden]
    return [[steps, batch, inputs], [state, state], weights(inputs, hidden, layers, directions)]


@pytest.mark.parametrize(
    "network",
    [(9, 6, 10, 16, 1, 1), (9, 6, 10, 16, 1, 2), (9, 6, 10, 16, 3, 2), (7, 7, 5, 4, 2, 1)],
)
def test_a_layer_op_says_its_network(network: tuple[int, ...]) -> None:
    timeline = Timeline()
    timeline.op("aten::lstm", lstm(*network), ["c10::Half", "TensorList", "TensorList"])
    (layer,) = timeline.layers()
    cells = network[0] * network[4] * network[5]
    assert known(layer, *NETWORK) == (*network, False, cells)
    assert known(layer, "form", "op", "dtype") == ("layer op", "aten::lstm", "float16")


def test_calls_outside_of_marked_steps_do_not_count() -> None:
    timeline = Timeline()
    for _ in range(2):
        timeline.op("aten::lstm", lstm(9, 6, 10, 16, 1, 1))
    timeline.op("aten::lstm")  # a warm-up step, whose shapes are not recorded
    timeline.rows.append(row("step", "ProfilerStep#0", 0, 2 * timeline.now // 3, step=0, **HOST))
    (layer,) = timeline.layers()
    assert known(layer, "calls", "per_step", "rank") == (2, 2.0, None)


def test_batch_first_is_told_by_the_state() -> None:
    timeline = Timeline()
    shapes = lstm(9, 6, 10, 16, 1, 1)
    timeline.op("aten::lstm", [[6, 9, 10], *shapes[1:]])
    assert known(timeline.layers()[0], "time_steps", "batch") == (9, 6)


def test_layers_and_directions_that_look_alike_are_not_told_apart() -> None:
    # two layers, or two directions of one: all weights are (4·8, 8)
    timeline = Timeline()
    timeline.op("aten::lstm", lstm(9, 6, 8, 8, 2, 1))
    assert known(timeline.layers()[0], *NETWORK[:6]) == (9, 6, 8, 8, None, None)


def test_packed_sequences_have_an_entry_a_time_step_and_a_row_each() -> None:
    timeline = Timeline()
    _, states, of_weights = lstm(9, 6, 10, 16, 1, 1)
    timeline.op(
        "aten::lstm",
        [[36, 10], [9], states, of_weights],
        ["float", "long int", "TensorList", "TensorList"],
    )
    (layer,) = timeline.layers()
    assert known(layer, *NETWORK) == (9, 6, 10, 16, 1, 1, True, 9)
    assert layer["flops"] == 2 * 36 * 4 * 16 * (10 + 16)


def test_a_projection_is_a_third_matrix() -> None:
    timeline = Timeline()
    of_weights = [[64, 10], [64, 5], [64], [64], [5, 16]]
    timeline.op("aten::lstm", [[9, 6, 10], [[1, 6, 5], [1, 6, 16]], of_weights])
    assert known(timeline.layers()[0], "hidden", "projection", "layers") == (16, 5, 1)


@pytest.mark.parametrize(("layers", "directions"), [(1, 2), (2, 1), (2, 2), (3, 1)])
def test_before_lists_were_recorded_the_weights_length_tells_the_layers(
    layers: int, directions: int
) -> None:
    units, length = layers * directions, 0
    for shape in weights(10, 16, layers, directions):
        length += shape[0] * (shape[1] if len(shape) == 2 else 1)
    timeline = Timeline()
    inner = [[9, 6, 10], [], [], [length], [units, 6, 16], [units, 6, 16]]
    timeline.op("aten::lstm", [[9, 6, 10], [], []], inside=[("aten::_cudnn_rnn", inner)])
    (layer,) = timeline.layers()
    assert known(layer, *NETWORK[:6]) == (9, 6, 10, 16, layers, directions)
    assert layer["library"] == "cuDNN"


def test_without_shapes_the_ops_inside_tell_layers_and_directions() -> None:
    timeline = Timeline()
    unit = ("aten::mkldnn_rnn_layer", None)
    timeline.op("aten::lstm", inside=[unit, unit, ("aten::cat", None)] * 2)
    (layer,) = timeline.layers()
    assert known(layer, *NETWORK) == (None, None, None, None, 2, 2, None, None)
    assert known(layer, "library", "cell") == ("oneDNN", "lstm")


@pytest.mark.parametrize("cast", [True, False])
@pytest.mark.parametrize(
    ("name", "onednn"),
    [
        ("torch-nn-lstm", True),
        ("torch-nn-lstm", False),
        ("torch-lstmcell-fused", True),
        ("torch-lstmcell-basic", True),
    ],
)
def test_a_layer_has_the_type_that_autocast_computes_in(
    name: str, onednn: bool, cast: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    if cast and onednn and name == "torch-nn-lstm" and not layer_computes_in_bfloat16():
        pytest.skip("oneDNN has no bfloat16 LSTM on this CPU")
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", onednn)
    workload = Workload("two-ways", 1, 4, True, 3, 6, 8, 5, "ce")
    module = importlib.import_module(implementations.find(name).module).build(workload)
    with (
        torch.autocast("cpu", torch.bfloat16, enabled=cast),
        torch.profiler.profile(record_shapes=True) as session,
    ):
        module(torch.randn(6, 3, 8))
    session.export_chrome_trace(str(tmp_path / "trace.json"))
    run = ingest_profile(tmp_path / "trace.json", tmp_path / "runs")
    (layer,) = break_down(run, None, ["layers"]).table("layers").to_pylist()
    assert layer["dtype"] == ("bfloat16" if cast else "float32")
    assert known(layer, "time_steps", "layers", "directions") == (6, 1, 2)


def test_other_ops_are_no_layers() -> None:
    timeline = Timeline()
    timeline.op("aten::linear", [[6, 10], [16, 10], [16]])
    timeline.op("my_lstm_model")
    assert timeline.layers() == []
