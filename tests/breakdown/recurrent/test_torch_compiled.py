"""Cells that torch.compile or AOTInductor compiled: regions and products, no activation is seen."""

from __future__ import annotations

from typing import Any

import pytest
from breakdown.recurrent.rows import Timeline, known

NETWORK = ("time_steps", "batch", "inputs", "hidden", "layers", "directions", "cells")


def region(timeline: Timeline, graph: int, *weights: tuple[int, int], shapes: bool = True) -> None:
    """One call of what was compiled, with a product of each of these weights in it."""
    products = [
        ("aten::addmm", [[weight[1]], [6, weight[0]], list(weight)] if shapes else None)
        for weight in weights
    ]
    timeline.op(f"Torch-Compiled Region: 0/{graph}", inside=products)


def loop(timeline: Timeline, inputs: int, hidden: int = 16, steps: int = 9) -> None:
    """A loop whose first time step is a graph of its own, after a new state."""
    timeline.op("aten::new_zeros")
    for step in range(steps):
        region(timeline, int(step > 0), (inputs, 4 * hidden), (hidden, 4 * hidden))


def test_a_compiled_cell_is_told_by_its_products() -> None:
    timeline = Timeline()
    loop(timeline, 10)
    (layer,) = timeline.layers()
    assert known(layer, *NETWORK) == (9, 6, 10, 16, 1, 1, 9)
    assert known(layer, "form", "op", "cell", "dtype") == (
        *("cell op", "Torch-Compiled Region, 2 products", "lstm", "float32"),
    )
    assert layer["forward_ns"] == 9 * 31 - 1  # the regions, not their products alone


def test_compiled_loops_are_one_stack() -> None:
    timeline = Timeline()
    for inputs in (10, 10, 32, 32):
        loop(timeline, inputs)
    (layer,) = timeline.layers()
    assert known(layer, *NETWORK) == (9, 6, 10, 16, 2, 2, 36)


def test_both_directions_may_look_like_one_loop_twice_as_long() -> None:
    # no state is made outside of the graphs: that the first one comes again is all there is
    timeline = Timeline()
    for step in (0, 1, 2, 3) * 2:
        region(timeline, int(step > 0), (10, 64), (16, 64))
    (layer,) = timeline.layers()
    assert known(layer, *NETWORK) == (None, 6, 10, 16, None, None, 8)


def test_a_loop_that_was_compiled_as_a_whole_has_the_time_steps_that_its_gradients_tell() -> None:
    def told(gradients: int) -> tuple[object, ...]:
        timeline = Timeline()
        region(timeline, 0, *[(10, 64), (16, 64)] * 8)
        for _ in range(gradients):
            timeline.op("torch::autograd::AccumulateGrad", [[64, 10]])
            timeline.op("torch::autograd::AccumulateGrad", [[64, 16]])
        (layer,) = timeline.layers()
        return known(layer, "form", *NETWORK)

    assert told(0) == ("loop", None, 6, 10, 16, None, None, 8)
    assert told(1) == ("loop", 8, 6, 10, 16, 1, 1, 8)
    assert told(2) == ("loop", None, 6, 10, 16, None, None, 8)


@pytest.mark.parametrize(
    "weights",
    [
        [(10, 64), (64, 5)],  # a perceptron
        [(512, 1536), (512, 512), (512, 2048), (2048, 512)],  # a layer of a transformer
        [(26, 64)],  # x and h at once, or anything
        [(512, 512)] * 8,  # a stack of equal Linear layers
        [(10, 16), (16, 16)] * 4,  # one gate per product, or a perceptron four times
        [(16, 48), (16, 16)],  # queries, keys and values; then the projection of attention
    ],
)
def test_other_compiled_networks_are_none(weights: list[tuple[int, int]]) -> None:
    timeline = Timeline()
    for _ in range(12):
        region(timeline, 0, *weights)
    assert timeline.layers() == []


def test_without_shapes_nothing_tells_a_compiled_cell() -> None:
    timeline = Timeline()
    for _ in range(12):
        region(timeline, 0, (10, 64), (16, 64), shapes=False)
    assert timeline.layers() == []


LAYER, PRODUCT = "aoti_torch_cpu_mkldnn_rnn_layer", "aoti_torch_cpu_mm_out"


def exported(inputs: int) -> tuple[str, list[Any]]:
    return LAYER, [[9, 6, inputs], [64, inputs], [64, 16]]


def test_layers_of_an_exported_program_are_one_stack() -> None:
    timeline = Timeline()
    for name, shapes in map(exported, (10, 10, 32, 32)):
        timeline.op(name, shapes)
    (layer,) = timeline.layers()
    assert known(layer, *NETWORK) == (9, 6, 10, 16, 2, 2, 36)
    assert known(layer, "form", "op", "library", "cell") == (
        *("layer op", LAYER, "oneDNN", "lstm"),
    )


@pytest.mark.parametrize(("width", "directions"), [(32, 2), (16, 1)])
def test_both_directions_of_an_exported_layer_are_read_together(
    width: int, directions: int
) -> None:
    timeline = Timeline()
    for name, shapes in map(exported, (10, 10)):
        timeline.op(name, shapes)
    timeline.op(PRODUCT, [[6, width], [width, 5]])
    (layer,) = timeline.layers()
    assert layer["directions"] == directions


def test_the_library_itself_tells_no_inputs() -> None:
    timeline = Timeline()
    timeline.op(LAYER)
    timeline.op("aoti_torch_cuda__cudnn_rnn")
    rows = timeline.layers()
    assert [known(row, *NETWORK) for row in rows] == [(None,) * len(NETWORK)] * 2
    assert [row["library"] for row in rows] == ["oneDNN", "cuDNN"]
