"""Layers of Keras that TensorFlow runs op by op, by the ranges around them."""

from __future__ import annotations

import json
from typing import Any

from breakdown.recurrent.rows import HOST, known, layers_of
from events.rows import Row, row

NETWORK = ("cell", "time_steps", "batch", "inputs", "hidden", "layers", "directions", "cells")


def layer(at: int, name: str, data: list[int], gates: int = 4, hidden: int = 16) -> list[Row]:
    """A range of 100 ns with two ops in it."""
    shapes = [data, [data[-1], gates * hidden], [hidden, gates * hidden]]
    recorded = {"shapes": json.dumps(shapes), "dtypes": json.dumps(["float32"] * 3)}
    return [
        row("range", f"keras.layers.{name}", at, at + 100, **HOST, **recorded),
        row("op", "EagerLocalExecute: MatMul", at + 10, at + 30, **HOST),
        row("op", "EagerLocalExecute: Tanh", at + 40, at + 90, **HOST),
    ]


def test_each_call_of_a_layer_is_listed_with_its_sizes() -> None:
    gru = layer(200, "GRU gru", [8, 7, 16], gates=3)
    first, second = layers_of([*layer(0, "LSTM lstm", [8, 7, 5]), *gru])
    assert known(first, *NETWORK) == ("lstm", 7, 8, 5, 16, 1, 1, 7)
    assert known(second, *NETWORK) == ("gru", 7, 8, 16, 16, 1, 1, 7)
    assert known(first, "form", "framework", "op", "dtype", "packed") == (
        *("loop", "tensorflow", "keras.layers.LSTM", "float32", False),
    )
    assert known(first, "forward_ns", "backward_ns", "ops_per_time_step") == (100, None, None)


def test_both_directions_are_one_layer() -> None:
    rows = [*layer(0, "LSTM forward_lstm", [8, 7, 5]), *layer(100, "LSTM backward_lstm", [8, 7, 5])]
    (both,) = layers_of(rows)
    assert known(both, *NETWORK) == ("lstm", 7, 8, 5, 16, 1, 2, 14)


def test_the_calls_of_a_cell_are_time_steps() -> None:
    rows = [each for at in range(0, 500, 100) for each in layer(at, "LSTM lstm_cell", [8, 5])]
    (loop,) = layers_of(rows)
    assert known(loop, *NETWORK) == ("lstm", 5, 8, 5, 16, 1, 1, 5)


def test_two_cells_that_alternate_are_two_layers() -> None:
    rows = []
    for at in range(0, 1000, 200):
        rows += [*layer(at, "LSTM cell", [8, 5]), *layer(at + 100, "LSTM cell_1", [8, 16])]
    assert [known(each, *NETWORK)[:5] for each in layers_of(rows)] == [
        ("lstm", 5, 8, 5, 16),
        ("lstm", 5, 8, 16, 16),
    ]


def test_a_range_of_the_user_s_own_with_such_a_name_is_no_layer() -> None:
    rows: list[Any] = [row("range", "keras.layers.LSTM lstm", 0, 100, **HOST)]
    assert layers_of(rows) == []
