"""Layers and loops of TensorFlow's nodes, named as TensorFlow 2.21 and 1.15 name them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from breakdown.recurrent.rows import HOST, known, layers_of
from events.rows import Row, row

NETWORK = ("time_steps", "batch", "inputs", "hidden", "layers", "directions", "cells")


class Nodes:
    """Nodes one after the other, each 10 ns long."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def ran(self, name: str, *shapes: list[int], first: str = "float32") -> None:
        recorded: dict[str, Any] = {}
        if shapes:
            recorded["shapes"] = json.dumps(shapes)
            recorded["dtypes"] = json.dumps([first, *["float32"] * (len(shapes) - 1)])
        start = 11 * len(self.rows)
        self.rows.append(row("op", name, start, start + 10, **HOST, **recorded))

    def loop(self, scope: str, steps: int, inputs: int, hidden: int, shapes: bool = True) -> None:
        """A loop of LSTM cells as TensorFlow 2 names it, and its condition."""

        def ran(node: str, *of_inputs: list[int]) -> None:
            self.ran(f"{scope}/body/_7/{scope}/{node}", *(of_inputs if shapes else ()))

        for _ in range(steps):
            self.ran(f"{scope}/cond/_6/{scope}/Less:Less")
            ran("concat:ConcatV2", [6, inputs], [6, hidden])
            ran("MatMul:_MklMatMul", [6, inputs + hidden], [inputs + hidden, 4 * hidden])
            ran("split:Split", [6, 4 * hidden])
            for node in ("Sigmoid", "Sigmoid_1", "Tanh", "Sigmoid_2", "Tanh_1"):
                ran(f"{node}:{node.partition('_')[0]}", [6, hidden])
        self.ran(f"{scope}/cond/_6/{scope}/Less:Less")

    def gradient(self, scope: str, steps: int) -> None:
        for _ in range(steps):
            self.ran(f"gradient_tape/{scope}/{scope}_grad/body/_9/x/MatMul_grad/MatMul:_MklMatMul")

    def layers(self) -> list[dict[str, Any]]:
        return layers_of(self.rows)


def test_a_while_loop_is_a_layer_with_its_backward_pass() -> None:
    nodes = Nodes()
    nodes.loop("forward/while", 9, 10, 16)
    nodes.ran("forward/Tensordot/MatMul:MatMul", [6, 16], [16, 5])
    nodes.gradient("forward/while", 9)
    (layer,) = nodes.layers()
    assert known(layer, *NETWORK) == (9, 6, 10, 16, 1, 1, 9)
    assert known(layer, "form", "framework", "op", "dtype") == (
        *("loop", "tensorflow", "1 product, 3 sigmoid, 2 tanh", "float32"),
    )
    assert layer["backward_ns"] == 9 * 11 - 1
    assert layer["flops"] == 2 * 4 * 16 * (54 * 26 * 2 + 48 * 16)


def test_loops_of_two_layers_and_directions_are_one_stack() -> None:
    nodes = Nodes()
    for number, inputs in enumerate((10, 10, 32, 32)):
        nodes.loop(f"forward/while_{number}", 9, inputs, 16)
    (layer,) = nodes.layers()
    assert known(layer, *NETWORK) == (9, 6, 10, 16, 2, 2, 36)


def test_both_directions_of_one_layer_are_told_by_what_reads_them() -> None:
    nodes = Nodes()
    for number in range(2):
        nodes.loop(f"while_{number}", 9, 10, 16)
    nodes.ran("head/MatMul:MatMul", [6, 32], [32, 5])
    (layer,) = nodes.layers()
    assert known(layer, "layers", "directions") == (1, 2)


def test_without_shapes_the_condition_tells_time_steps_and_runs() -> None:
    nodes = Nodes()
    for _ in range(3):  # three runs of one program, without markers of steps
        nodes.loop("forward/while", 5, 10, 16, shapes=False)
    (layer,) = nodes.layers()
    assert known(layer, *NETWORK) == (5, None, None, None, 1, 1, 5)
    assert known(layer, "cell", "calls", "per_step") == ("lstm", 3, None)


def test_kernels_show_a_loop_whose_nodes_were_not_recorded_on_the_host() -> None:
    """Several kernels run one node; those of the most frequent name count its runs."""
    gpu: dict[str, Any] = {"device": 0, "stream": 7}
    rows: list[Row] = []

    def ran(node: str, *kernels: str) -> None:
        for kernel in kernels:
            start = 11 * len(rows)
            rows.append(row("kernel", kernel, start, start + 10, **gpu, op_name=node))

    body = "forward/while/body/_7/forward/while"
    for _ in range(2):  # the program ran twice
        for _ in range(5):
            ran(f"{body}/MatMul:MatMul", "ampere_sgemm_32x32_nn", "splitKreduce_kernel")
            for node in ("Sigmoid", "Sigmoid_1", "Sigmoid_2", "Tanh", "Tanh_1"):
                ran(f"{body}/{node}:{node.partition('_')[0]}", "EigenMetaKernel")
        for number in range(20):
            ran(f"forward/dense_{number}/MatMul:MatMul", "ampere_sgemm_32x32_nn", "add_bias")
    (layer,) = layers_of(rows)
    assert known(layer, "form", "cell", "time_steps", "cells") == ("loop", "lstm", 5, 5)
    assert layer["calls"] == 2
    assert known(layer, "batch", "hidden") == (None, None)
    host = [row("op", "forward/dense/MatMul:MatMul", 0, 10, **HOST)]
    assert known(layers_of([*host, *rows])[0], "time_steps") == known(layer, "time_steps")


def test_loops_of_tensorflow_1_are_frames_named_while() -> None:
    nodes, scope = Nodes(), "n/forward/rnn/while"
    for _ in range(20):
        nodes.ran(f"{scope}/LoopCond:LoopCond")
        nodes.ran(f"{scope}/basic_lstm_cell/BiasAdd:_FusedMatMul")
        for node in ("Sigmoid", "Tanh", "Sigmoid_1", "Tanh_1", "Sigmoid_2"):
            nodes.ran(f"{scope}/basic_lstm_cell/{node}:{node.partition('_')[0]}")
    nodes.ran(f"{scope}/LoopCond:LoopCond")
    for _ in range(20):
        nodes.ran(f"gradients_1/{scope}/basic_lstm_cell/MatMul_grad/MatMul:MatMul")
    (layer,) = nodes.layers()
    assert known(layer, "time_steps", "cells", "cell", "form") == (20, 20, "lstm", "loop")
    assert layer["backward_ns"] == 20 * 11 - 1


def test_a_cells_op_in_a_loop() -> None:
    nodes, scope = Nodes(), "forward/while"
    for _ in range(9):
        nodes.ran(f"{scope}/cond/_6/{scope}/Less:Less")
        shapes = ([6, 10], [6, 16], [6, 16], [26, 64], [16], [16], [16], [64])
        nodes.ran(f"{scope}/body/_7/{scope}/BlockCell/LSTMBlockCell:LSTMBlockCell", *shapes)
    nodes.ran(f"{scope}/cond/_6/{scope}/Less:Less")
    (layer,) = nodes.layers()
    assert known(layer, *NETWORK) == (9, 6, 10, 16, 1, 1, 9)
    assert known(layer, "form", "op") == ("cell op", "LSTMBlockCell")


def test_layer_ops_of_one_direction_each_are_one_stack() -> None:
    nodes = Nodes()
    for number, inputs in enumerate((10, 10, 32, 32)):
        nodes.ran(
            f"forward/BlockLSTM_{number}:BlockLSTM",
            *([], [9, 6, inputs], [6, 16], [6, 16], [inputs + 16, 64], [16], [16], [16], [64]),
            first="int64",  # the longest sequence's length
        )
    for number in range(4):
        nodes.ran(f"gradient_tape/forward/BlockLSTMGrad_{number}:BlockLSTMGrad")
    (layer,) = nodes.layers()
    assert known(layer, *NETWORK) == (9, 6, 10, 16, 2, 2, 36)
    assert known(layer, "form", "op", "backward_ns") == ("layer op", "BlockLSTM", 4 * 11 - 1)
    assert layer["dtype"] == "float32"


def test_cudnns_layer_is_told_by_how_long_its_weights_are() -> None:
    nodes = Nodes()
    first, second = 3 * 16 * (10 + 16 + 2) * 2, 3 * 16 * (32 + 16 + 2) * 2
    state = [4, 6, 16]
    nodes.ran("cudnn:CudnnRNNV3", [9, 6, 10], state, [0], [first + second], [6])
    (layer,) = nodes.layers()
    assert known(layer, *NETWORK) == (9, 6, 10, 16, 2, 2, 36)
    assert known(layer, "cell", "library") == ("gru", "cuDNN")
    assert layer["flops"] == 2 * 9 * 6 * 3 * 16 * 2 * ((10 + 16) + (32 + 16))


def test_a_loop_without_a_cell_is_none() -> None:
    nodes = Nodes()
    for _ in range(9):
        nodes.ran("map/while/body/_7/map/while/MatMul:MatMul", [6, 10], [10, 64])
        nodes.ran("map/while/body/_7/map/while/Relu:Relu", [6, 64])
    assert nodes.layers() == []


def test_a_loop_whose_first_product_waits_for_nothing_is_the_layer_above_all_the_same() -> None:
    nodes, above = Nodes(), "forward/while_1"
    nodes.ran("forward/zeros:ZerosLike")
    nodes.loop("forward/while", 5, 10, 16)
    nodes.loop(above, 5, 16, 16)
    products = [r for r in nodes.rows if r["name"] == f"{above}/body/_7/{above}/MatMul:_MklMatMul"]
    products[0]["start_ns"] = 0  # that of the initial state, which is zeros
    assert [known(layer, "layers", "inputs") for layer in nodes.layers()] == [(2, 10)]


def test_a_condition_that_ran_no_oftener_than_the_loop_is_of_one_run() -> None:
    """The last of them was cut off with the profile."""
    nodes = Nodes()
    nodes.loop("forward/while", 5, 10, 16, shapes=False)
    nodes.rows.pop()
    (layer,) = nodes.layers()
    assert known(layer, "time_steps", "calls") == (5, 1)


def keras(nodes: Nodes, layer: str, cell: str, steps: int, ops: tuple[str, ...]) -> None:
    """A loop of a Keras layer in a model, and as many nodes of the model as it has others."""
    scope = f"StatefulPartitionedCall/seq/{layer}/while"
    for op in ("zeros:Fill", "strided_slice:StridedSlice", "Shape:Shape", "transpose:Transpose"):
        nodes.ran(f"StatefulPartitionedCall/seq/{layer}/{op}")
    for _ in range(steps):
        for op in ops:
            nodes.ran(f"{scope}/body/_48/seq/{layer}/while/{cell}/{op}")


PRODUCTS = ("MatMul:_MklMatMul", "MatMul_1:_MklMatMul")


@pytest.mark.parametrize(
    ("layer", "cell", "kind"),
    [
        ("lstm_1", "lstm_cell_1", "lstm"),
        ("gru", "gru_cell", "gru"),
        ("rnn_2", "lstm_cell", "lstm"),
        ("simple_rnn_1", "simple_rnn_cell_1", None),
    ],
)
def test_a_layer_of_keras_is_named_by_its_scope_with_any_activation_or_none(
    layer: str, cell: str, kind: str | None
) -> None:
    for activations in ((), ("Relu:Relu", "Sigmoid:Sigmoid")):
        nodes = Nodes()
        for _ in range(3):
            keras(nodes, layer, cell, 5, (*PRODUCTS, *activations))
        (row,) = nodes.layers()
        assert known(row, "cell", "time_steps", "cells", "calls") == (kind, 5, 5, 3)
        assert known(row, "layers", "directions", "hidden") == (1, 1, None)


def test_both_directions_of_keras_are_named_so() -> None:
    nodes = Nodes()
    for _ in range(3):
        for direction in ("forward", "backward"):
            keras(nodes, f"bidirectional/{direction}_lstm", "lstm_cell", 5, PRODUCTS)
    (row,) = nodes.layers()
    assert known(row, "layers", "directions", "time_steps", "cells", "calls") == (1, 2, 5, 10, 3)


def test_cells_that_keras_stacks_in_one_loop_are_told_apart_by_their_names() -> None:
    nodes = Nodes()
    for _ in range(3):
        for op in ("zeros:Fill", "Shape:Shape", "transpose:Transpose", "stack:Pack"):
            nodes.ran(f"seq/rnn/{op}")
        for _ in range(5):
            for cell in ("lstm_cell", "lstm_cell_1"):
                for op in PRODUCTS:
                    nodes.ran(f"seq/rnn/while/body/_1/seq/rnn/while/{cell}/{op}")
    (row,) = nodes.layers()
    assert known(row, "cell", "time_steps", "cells", "layers") == ("lstm", 5, 10, None)


def test_how_often_a_program_ran_is_unknown_if_its_nodes_disagree() -> None:
    nodes = Nodes()
    keras(nodes, "lstm", "lstm_cell", 5, PRODUCTS)
    keras(nodes, "lstm", "lstm_cell", 4, PRODUCTS)  # the profile ends in this run
    (row,) = nodes.layers()
    assert known(row, "cell", "time_steps", "cells") == ("lstm", None, None)


def test_directions_side_by_side_are_one_layer_though_one_ends_after_what_reads_them() -> None:
    nodes = Nodes()
    for number in range(2):
        nodes.loop(f"forward/while_{number}", 9, 10, 16)
    nodes.ran("forward/dense/MatMul:MatMul", [6, 32], [32, 5])
    nodes.ran("forward/while_1/body/_7/forward/while_1/add:AddV2")
    (layer,) = nodes.layers()
    assert known(layer, "layers", "directions") == (1, 2)


def small_layer(
    *products: tuple[list[int], list[int]], activations: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """A loop of 5 time steps with the products and activations that the profiler recorded."""
    nodes = Nodes()
    for _ in range(5):
        nodes.ran("f/while/cond/_6/f/while/Less:Less")
        for number, (data, weight) in enumerate(products):
            nodes.ran(f"f/while/body/_7/f/while/MatMul_{number}:_MklMatMul", data, weight)
        for name in activations:
            nodes.ran(f"f/while/body/_7/f/while/{name}_1:{name}", [6, 16])
    nodes.ran("f/while/cond/_6/f/while/Less:Less")
    return nodes.layers()


def test_products_show_a_small_layer_whose_activations_were_omitted() -> None:
    (layer,) = small_layer(([6, 10], [10, 64]), ([6, 16], [16, 64]))
    assert known(layer, "cell", *NETWORK) == ("lstm", 5, 6, 10, 16, 1, 1, 5)
    assert small_layer(([6, 10], [10, 32]), ([6, 16], [16, 32])) == []  # two gates are no cell


@pytest.mark.parametrize("activations", [("Tanh",), ("Sigmoid",), ("Sigmoid", "Tanh")])
def test_products_show_a_small_layer_of_which_some_activations_were_omitted(
    activations: tuple[str, ...],
) -> None:
    (layer,) = small_layer(([6, 10], [10, 64]), ([6, 16], [16, 64]), activations=activations)
    assert known(layer, "cell", *NETWORK) == ("lstm", 5, 6, 10, 16, 1, 1, 5)
    if "Tanh" in activations:
        (joined,) = small_layer(([6, 26], [26, 64]), activations=activations)
        assert known(joined, "cell", *NETWORK) == ("lstm", 5, 6, 10, 16, 1, 1, 5)
