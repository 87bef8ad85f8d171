"""Loops of cells on a drawn timeline: products, σ and tanh that come round once per time step."""

import pytest
from breakdown.recurrent.rows import Timeline, known

NETWORK = ("time_steps", "batch", "inputs", "hidden", "layers", "directions", "cells")


def cell(timeline: Timeline, batch: int, inputs: int, hidden: int, shapes: bool = True) -> None:
    """One time step of an LSTM of ten ops: W x + U h + b, chunk, the gates."""

    def op(name: str, *of_inputs: list[int]) -> None:
        timeline.op(name, of_inputs if shapes else None)

    op("aten::linear", [batch, inputs], [4 * hidden, inputs], [4 * hidden])
    op("aten::linear", [batch, hidden], [4 * hidden, hidden])
    op("aten::add", [batch, 4 * hidden], [batch, 4 * hidden])
    op("aten::chunk", [batch, 4 * hidden])
    for name in ("sigmoid", "sigmoid", "tanh", "mul", "sigmoid", "tanh", "mul"):
        op(f"aten::{name}", [batch, hidden])


def test_a_loop_of_small_ops_is_one_layer() -> None:
    timeline = Timeline()
    timeline.op("aten::new_zeros")
    for _ in range(9):
        cell(timeline, 6, 10, 16)
    timeline.op("aten::linear", [[6, 16], [5, 16]])
    (layer,) = timeline.layers()
    assert known(layer, *NETWORK) == (9, 6, 10, 16, 1, 1, 9)
    assert known(layer, "form", "op") == ("loop", "2 products, 3 sigmoid, 2 tanh")
    assert layer["ops_per_time_step"] == 8  # a chunk is a view, and linear calls what computes
    assert layer["forward_ns"] == 9 * 11 * 11 - 1


def test_what_follows_the_last_time_step_is_no_part_of_the_loop() -> None:
    timeline = Timeline()
    for _ in range(9):
        cell(timeline, 6, 10, 16)
    timeline.rows.pop()  # the last state is read where the others are multiplied
    timeline.now -= 11
    timeline.op("aten::log_softmax", [[6, 16]])
    assert timeline.layers()[0]["forward_ns"] == (9 * 11 - 1) * 11 - 1


def test_two_directions_of_two_layers_are_one_stack() -> None:
    timeline = Timeline()
    for inputs in (10, 10, 32, 32):
        timeline.op("aten::new_zeros")
        for _ in range(9):
            cell(timeline, 6, inputs, 16)
    (layer,) = timeline.layers()
    assert known(layer, *NETWORK) == (9, 6, 10, 16, 2, 2, 36)


def test_one_layer_twice_is_two_directions_only_where_both_are_read_together() -> None:
    def read_by(width: int) -> list[tuple[object, ...]]:
        timeline = Timeline()
        for _ in range(2):
            timeline.op("aten::new_zeros")
            for _ in range(5):
                cell(timeline, 6, 10, 16)
        timeline.op("aten::linear", [[6, width], [3, width]])
        return [known(layer, "directions", "calls") for layer in timeline.layers()]

    assert read_by(32) == [(2, 1)]
    assert read_by(16) == [(1, 2)]


def test_layers_that_take_turns_at_every_time_step() -> None:
    timeline = Timeline()
    for _ in range(7):
        for inputs in (10, 16, 16):
            cell(timeline, 6, inputs, 16)
    (layer,) = timeline.layers()
    assert known(layer, *NETWORK) == (7, 6, 10, 16, 3, 1, 21)


def test_cells_that_may_be_of_two_layers_are_counted_and_no_time_steps_claimed() -> None:
    def of_weights(gradients: int) -> tuple[object, ...]:
        timeline = Timeline()
        for _ in range(8):
            cell(timeline, 6, 16, 16)
        for _ in range(gradients):
            timeline.op("torch::autograd::AccumulateGrad", [[64, 16]])
        (layer,) = timeline.layers()
        return known(layer, *NETWORK)

    assert of_weights(0) == (None, 6, 16, 16, None, None, 8)
    assert of_weights(2) == (8, 6, 16, 16, 1, 1, 8)
    assert of_weights(4) == (None, 6, 16, 16, None, None, 8)


def test_without_shapes_only_cells_are_counted() -> None:
    timeline = Timeline()
    for _ in range(8):
        cell(timeline, 6, 10, 16, shapes=False)
    (layer,) = timeline.layers()
    assert known(layer, *NETWORK) == (None, None, None, None, None, None, 8)
    assert known(layer, "cell", "form", "ops_per_time_step") == ("lstm", "loop", None)


def test_a_head_at_every_time_step_is_no_part_of_the_cell() -> None:
    timeline = Timeline()
    for _ in range(6):
        cell(timeline, 4, 10, 16)
        timeline.op("aten::linear", [[4, 16], [7, 16]])
    (layer,) = timeline.layers()
    assert known(layer, *NETWORK) == (6, 4, 10, 16, 1, 1, 6)


def test_inputs_of_all_time_steps_at_once_are_a_product_before_the_loop() -> None:
    timeline = Timeline()
    timeline.op("aten::matmul", [[4, 6, 10], [10, 64]])
    for _ in range(6):
        timeline.op("aten::matmul", [[4, 16], [16, 64]])
        for name in ("sigmoid", "sigmoid", "tanh", "sigmoid", "tanh"):
            timeline.op(f"aten::{name}", [[4, 16]])
    assert known(timeline.layers()[0], *NETWORK) == (6, 4, 10, 16, 1, 1, 6)


def test_x_and_h_in_one_product() -> None:
    timeline = Timeline()
    for _ in range(6):
        timeline.op("aten::addmm", [[64], [4, 26], [26, 64]])
        for name in ("sigmoid", "sigmoid", "tanh", "sigmoid", "tanh"):
            timeline.op(f"aten::{name}", [[4, 16]])
    assert known(timeline.layers()[0], *NETWORK) == (6, 4, 10, 16, 1, 1, 6)


def test_products_of_a_batch_of_matrices() -> None:
    timeline = Timeline()
    for _ in range(6):
        timeline.op("aten::bmm", [[1, 4, 10], [1, 10, 64]])
        timeline.op("aten::bmm", [[1, 4, 16], [1, 16, 64]])
        for name in ("sigmoid", "sigmoid", "tanh", "sigmoid", "tanh"):
            timeline.op(f"aten::{name}", [[4, 16]])
    assert known(timeline.layers()[0], *NETWORK) == (6, 4, 10, 16, 1, 1, 6)


def test_a_batch_that_shrinks_leaves_the_loop_one() -> None:
    timeline = Timeline()
    for batch in (6, 6, 5, 3, 2):
        cell(timeline, batch, 10, 16)
    assert known(timeline.layers()[0], *NETWORK) == (5, None, 10, 16, 1, 1, 5)


def test_cell_ops_in_a_row_are_one_layer() -> None:
    timeline = Timeline()
    for _ in range(9):
        state = [6, 16]
        timeline.op("aten::lstm_cell", [[6, 10], [state, state], [64, 10], [64, 16], [64], [64]])
    (layer,) = timeline.layers()
    assert known(layer, *NETWORK) == (9, 6, 10, 16, 1, 1, 9)
    assert known(layer, "form", "op", "cell") == ("cell op", "aten::lstm_cell", "lstm")


def test_a_gated_network_without_recurrence_has_no_cells() -> None:
    # three blocks alike, without a sigmoid: layers of a network of another kind
    timeline = Timeline()
    for _ in range(3):
        timeline.op("aten::linear", [[6, 16], [16, 16]])
        timeline.op("aten::tanh", [[6, 16]])
    timeline.op("aten::sigmoid", [[6, 16]])
    assert timeline.layers() == []


@pytest.mark.parametrize("shapes", [True, False])
def test_a_highway_network_gates_its_layers_and_has_no_cells(shapes: bool) -> None:
    timeline = Timeline()
    for _ in range(12):
        for gate in ("sigmoid", "tanh"):
            timeline.op("aten::linear", [[6, 16], [16, 16], [16]] if shapes else None)
            timeline.op(f"aten::{gate}", [[6, 16]] if shapes else None)
    assert timeline.layers() == []


def test_a_gru_by_hand_has_three_gates() -> None:
    timeline = Timeline()
    for _ in range(6):
        timeline.op("aten::linear", [[6, 26], [32, 26]])
        for _ in range(2):
            timeline.op("aten::sigmoid", [[6, 16]])
        timeline.op("aten::linear", [[6, 26], [16, 26]])
        timeline.op("aten::tanh", [[6, 16]])
    assert known(timeline.layers()[0], "cell", "hidden", "cells") == ("gru", 16, 6)


def test_torchscript_records_its_whole_stack_and_the_last_of_it_are_the_inputs() -> None:
    timeline = Timeline()
    for _ in range(5):
        timeline.op("aten::linear", [[], [], [6, 10], [64, 10], [64]], ["", "", *["float"] * 3])
        timeline.op("aten::linear", [[], [6, 16], [64, 16], []], ["", "float", "float", ""])
        for name in ("sigmoid", "sigmoid", "tanh", "sigmoid", "tanh"):
            timeline.op(f"aten::{name}", [[], [6, 16]], ["", "float"])
    (layer,) = timeline.layers()
    assert known(layer, *NETWORK) == (5, 6, 10, 16, 1, 1, 5)
    assert layer["dtype"] == "float32"


@pytest.mark.parametrize(("gates", "cell"), [(4, "lstm"), (3, "gru")])
def test_gates_tell_a_cell_of_any_activation(gates: int, cell: str) -> None:
    timeline = Timeline()
    for _ in range(9):
        timeline.op("aten::linear", [[6, 10], [gates * 16, 10], [gates * 16]])
        timeline.op("aten::linear", [[6, 16], [gates * 16, 16], [gates * 16]])
        for _ in range(2):
            timeline.op("aten::hardsigmoid", [[6, 16]])
        timeline.op("aten::relu", [[6, 16]])
    (layer,) = timeline.layers()
    names = ("cell", "time_steps", "batch", "inputs", "hidden", "layers", "directions")
    assert known(layer, *names) == (cell, 9, 6, 10, 16, 1, 1)
    assert layer["op"] == "2 products"
