"""Recurrent nodes of ONNX Runtime and OpenVINO, as their profiles list the inputs."""

from __future__ import annotations

from typing import Any

import pytest
from breakdown.recurrent.rows import Timeline, known

NETWORK = ("time_steps", "batch", "inputs", "hidden", "layers", "directions", "packed", "cells")
RUNTIME, VINO = "onnxruntime::", "openvino::"


def layers_of(*nodes: tuple[str, list[Any] | None, list[str] | None]) -> list[dict[str, Any]]:
    timeline = Timeline()
    for name, shapes, dtypes in nodes:
        timeline.op(name, shapes, dtypes)
    return timeline.layers()


def node(name: str, *shapes: list[int], dtypes: list[str] | None = None) -> Any:
    return name, list(shapes), dtypes


def test_onnx_runtime_lists_the_bias_where_it_packed_the_weights() -> None:
    first = node(RUNTIME + "LSTM", [9, 6, 10], [2, 128])
    (layer,) = layers_of(first, node(RUNTIME + "LSTM", [9, 6, 32], [2, 128]))
    assert known(layer, *NETWORK) == (9, 6, 10, 16, 2, 2, False, 36)
    assert known(layer, "form", "framework", "op", "cell", "dtype", "library") == (
        *("layer op", "onnxruntime", "onnxruntime::LSTM", "lstm", "float32", None),
    )
    assert layer["backward_ns"] is None


@pytest.mark.parametrize(
    ("cell", "gates", "directions", "inputs"),
    [("LSTM", 4, 1, 10), ("LSTM", 4, 2, 16), ("GRU", 3, 2, 10), ("GRU", 3, 1, 16)],
)
def test_weights_that_are_listed_tell_the_same(
    cell: str, gates: int, directions: int, inputs: int
) -> None:
    width = gates * 16
    weights = ([directions, width, inputs], [directions, width, 16], [directions, 2 * width])
    state = [directions, 6, 16]
    (layer,) = layers_of(node(RUNTIME + cell, [9, 6, inputs], *weights, state))
    assert known(layer, *NETWORK[:6]) == (9, 6, inputs, 16, 1, directions)
    assert layer["cell"] == cell.lower()


def test_lengths_of_sequences_are_told_by_their_input() -> None:
    types = ["float", "float", "int32"]
    (layer,) = layers_of(node(RUNTIME + "LSTM", [9, 6, 10], [1, 128], [6], dtypes=types))
    assert known(layer, *NETWORK) == (9, 6, 10, 16, 1, 1, True, 9)
    assert layer["flops"] is None  # how long they are is not told


def test_of_a_quantized_layer_the_first_matrix_may_be_scales() -> None:
    (layer,) = layers_of(node(RUNTIME + "DynamicQuantizeLSTM", [9, 6, 10], [1, 64]))
    assert known(layer, *NETWORK) == (9, 6, 10, None, 1, None, False, None)


def test_an_rnn_does_not_say_its_activation_and_without_shapes_nothing_is_known() -> None:
    (layer,) = layers_of(node(RUNTIME + "RNN", [9, 6, 10], [1, 32]))
    assert known(layer, "cell", "hidden") == (None, 16)
    (layer,) = layers_of((RUNTIME + "LSTM", None, None))
    assert known(layer, *NETWORK) == (None,) * len(NETWORK)


def of_openvino(inputs: int, name: str = "LSTMSequence") -> Any:
    state = [6, 1, 16]
    return node(VINO + name, [6, 9, inputs], state, state, [6], [1, 64, inputs], [1, 64, 16])


def test_openvino_runs_a_node_of_each_direction() -> None:
    (layer,) = layers_of(*map(of_openvino, (10, 10, 32, 32)))
    assert known(layer, *NETWORK) == (9, 6, 10, 16, 2, 2, False, 36)
    assert known(layer, "op", "library") == ("openvino::LSTMSequence", "oneDNN")


@pytest.mark.parametrize(("width", "directions", "calls"), [(32, 2, 1), (16, 1, 2)])
def test_two_nodes_are_two_directions_where_the_next_product_reads_both(
    width: int, directions: int, calls: int
) -> None:
    head = node(VINO + "FullyConnected", [6, width], [5, width])
    (layer,) = layers_of(of_openvino(10), of_openvino(10), head)
    assert known(layer, "directions", "calls") == (directions, calls)


def test_a_loop_of_openvino_may_be_of_anything() -> None:
    assert layers_of(of_openvino(10, "TensorIterator")) == []
