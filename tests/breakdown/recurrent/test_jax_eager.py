"""Cells that JAX runs op by op, each op a program of its own."""

from __future__ import annotations

import json
from typing import Any

import pytest
from breakdown.recurrent.rows import HOST, known, layers_of as layers_of_all
from events.rows import Row, row

NETWORK = ("cell", "time_steps", "batch", "inputs", "hidden", "layers", "directions", "cells")
LSTM, GRU = (4, 2), (3, 1)  # gates, tanhs


def layers_of(rows: list[Row]) -> list[dict[str, Any]]:
    """The layer table of a marked step with these rows."""
    return layers_of_all([row("step", "step 0", 0, 5000, **HOST), *rows])


def program(at: int, name: str, *shapes: list[int], op: str = "") -> Row:
    recorded = {"shapes": json.dumps(shapes), "dtypes": json.dumps(["f32"] * len(shapes))}
    path = f"jit({name})/{op or name}"
    return row("op", "fusion", at, at + 3, op_name=path, **HOST, **(recorded if shapes else {}))


def cells(
    at: int, inputs: int, kind: tuple[int, int] = LSTM, steps: int = 5, hidden: int = 16
) -> list[Row]:
    """The programs of ``steps`` cells, each of 100 ns: x, h, σ and tanhs."""
    (gates, tanhs), rows = kind, []
    for first in range(at, at + 100 * steps, 100):
        for number, width in enumerate((inputs, hidden)):
            wide = [[6, width], [width, gates * hidden]]
            rows.append(program(first + 5 * number, "dot", *wide, op="dot_general"))
        rows.append(program(first + 20, "sigmoid", op="div"))
        rows += [program(first + 30 + 10 * n, "tanh", [6, hidden]) for n in range(tanhs)]
    return rows


@pytest.mark.parametrize(("kind", "name"), [(LSTM, "lstm"), (GRU, "gru")])
def test_a_loop_in_python_is_a_layer(kind: tuple[int, int], name: str) -> None:
    head = program(900, "dot", [6, 16], [16, 3], op="dot_general")
    gradient = program(950, "dot_general", [6, kind[0] * 16], [10, kind[0] * 16])
    (layer,) = layers_of([*cells(0, 10, kind), head, gradient])
    assert known(layer, *NETWORK) == (name, 5, 6, 10, 16, 1, 1, 5)
    assert known(layer, "form", "framework", "library", "dtype") == (
        "loop",
        "jax",
        "XLA",
        "float32",
    )
    assert (layer["forward_ns"], layer["backward_ns"]) == (400 + 23 + 10 * kind[1], 3)


def test_programs_that_overtake_each_other_change_nothing() -> None:
    rows = cells(0, 10)
    for late, early in ((5, 0), (16, 8)):  # matmuls of x do not wait for the cell before
        rows[late]["start_ns"] = rows[early]["start_ns"] + 6
    assert known(layers_of(rows)[0], *NETWORK) == ("lstm", 5, 6, 10, 16, 1, 1, 5)


def test_without_marked_steps_only_the_number_of_cells_is_known() -> None:
    (layer,) = layers_of_all(cells(0, 10))
    assert known(layer, *NETWORK) == ("lstm", None, 6, 10, 16, None, None, 5)


def test_layers_above_have_inputs_as_wide_as_the_state() -> None:
    (layer,) = layers_of([*cells(0, 10), *cells(500, 16)])
    assert known(layer, *NETWORK) == ("lstm", 5, 6, 10, 16, 2, 1, 10)


def test_inputs_as_wide_as_the_state_leave_the_number_of_time_steps_open() -> None:
    (layer,) = layers_of(cells(0, 16))
    assert known(layer, *NETWORK) == ("lstm", None, 6, 16, 16, None, None, 5)


def test_a_matmul_that_reads_two_states_leaves_the_number_of_time_steps_open() -> None:
    both = program(2000, "dot", [6, 32], [32, 3], op="dot_general")
    (layer,) = layers_of([*cells(0, 10, steps=10), both])
    assert known(layer, *NETWORK) == ("lstm", None, 6, 10, 16, None, None, 10)


def joined(width: int) -> list[Row]:
    rows = []
    for at in range(0, 500, 100):
        rows.append(program(at, "matmul", [6, width], [width, 64], op="dot_general"))
        rows.append(program(at + 20, "logistic"))
        rows += [program(at + 30 + 10 * n, "tanh", [6, 16]) for n in range(2)]
    return rows


def test_x_and_h_may_be_one_matmul() -> None:
    assert known(layers_of(joined(26))[0], *NETWORK) == ("lstm", 5, 6, 10, 16, 1, 1, 5)
    assert known(layers_of(joined(32))[0], *NETWORK) == ("lstm", None, 6, 16, 16, None, None, 5)


def test_a_gru_may_have_one_matmul_for_two_gates_of_the_state() -> None:
    rows = []
    for at in range(0, 500, 100):
        for number, (inner, outer) in enumerate(((10, 48), (16, 32), (16, 16))):
            rows.append(
                program(at + 5 * number, "dot", [6, inner], [inner, outer], op="dot_general")
            )
        rows.append(program(at + 20, "sigmoid", op="div"))
        rows.append(program(at + 30, "tanh", [6, 16]))
    assert known(layers_of(rows)[0], *NETWORK) == ("gru", 5, 6, 10, 16, 1, 1, 5)


def without(role: str) -> list[Row]:
    return [row for row in cells(0, 10) if not str(row["op_name"]).startswith(f"jit({role})")]


@pytest.mark.parametrize(
    "rows",
    [
        without("sigmoid"),
        without("tanh"),
        without("dot"),
        cells(0, 10, steps=2),
        cells(0, 10, (2, 1)),  # a highway layer
        [row | {"op_name": f"{row['op_name']}/x"} for row in cells(0, 10)],  # inside a program
    ],
    ids=["no sigmoid", "no tanh", "no matmul", "two cells", "two gates", "compiled"],
)
def test_other_programs_are_no_layer(rows: list[Any]) -> None:
    assert layers_of(rows) == []
