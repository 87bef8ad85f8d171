"""Loops of programs that XLA compiled: in a while on a CPU, kernels that come round on a GPU."""

from __future__ import annotations

import json
from typing import Any

import pytest
from breakdown.recurrent.rows import HOST, known, layers_of
from events.rows import Row, row

NETWORK = ("time_steps", "batch", "inputs", "hidden", "layers", "directions", "cells")
FORWARD, BACKWARD = "jit(step)/jvp(forward)/while", "jit(step)/transpose(jvp(forward))/while"


def product(name: str, path: str, start: int, *shapes: list[int], **place: Any) -> Row:
    recorded = {"shapes": json.dumps(shapes), "dtypes": json.dumps(["f32"] * len(shapes))}
    kind = "kernel" if "device" in place else "op"
    return row(kind, name, start, start + 3, op_name=path, **place, **recorded)


def loop(start: int, number: int, inputs: int, path: str = FORWARD, steps: int = 9) -> list[Row]:
    """A while of ``steps``, each of 10 ns: two products and what follows them."""
    rows = [row("op", f"while.{number}", start, start + 10 * steps, op_name=path, **HOST)]
    for at in range(start, start + 10 * steps, 10):
        dot = f"{path}/body/dot_general"
        rows.append(product(f"dot.{number}", dot, at, [6, inputs], [inputs, 64], **HOST))
        rows.append(product(f"dot.{number}1", dot, at + 3, [6, 16], [16, 64], **HOST))
        tanh = row(
            "op", f"tanh_fusion.{number}", at + 6, at + 8, op_name=f"{path}/body/tanh", **HOST
        )
        rows.append(tanh)
    return rows


def test_a_while_is_a_layer_and_its_transpose_the_backward_pass() -> None:
    rows = [*loop(0, 1, 10), *loop(200, 2, 10, BACKWARD)]
    (layer,) = layers_of(rows)
    assert known(layer, *NETWORK) == (9, 6, 10, 16, 1, 1, 9)
    assert known(layer, "form", "framework", "library", "cell", "dtype") == (
        *("loop", "jax", "XLA", "lstm", "float32"),
    )
    assert known(layer, "op", "forward_ns", "backward_ns") == ("while, 2 products", 90, 90)
    assert layer["ops_per_time_step"] == 3


def test_loops_of_one_path_are_one_stack() -> None:
    widths = (10, 10, 32, 32)
    rows = [r for n, inputs in enumerate(widths) for r in loop(100 * n, n, inputs)]
    (layer,) = layers_of(rows)
    assert known(layer, *NETWORK) == (9, 6, 10, 16, 2, 2, 36)


def test_the_body_of_a_while_may_run_after_its_event() -> None:
    rows = [*loop(0, 1, 10), *loop(100, 2, 10, "jit(step)/jvp(decoder)/while")]
    for each in (0, len(rows) // 2):  # the events of the loops end in their second time step
        rows[each] = {**rows[each], "dur_ns": 15}
    (layer,) = layers_of(rows)
    assert known(layer, *NETWORK, "calls") == (9, 6, 10, 16, 1, 1, 9, 2)
    assert layer["forward_ns"] == 88  # to the end of the last tanh


def test_ops_that_are_moved_out_of_the_next_loop_are_no_part_of_a_loop() -> None:
    moved = row("op", "copy.9", 95, 99, op_name=f"{FORWARD}/body/copy", **HOST)
    (layer,) = layers_of([*loop(0, 1, 10), moved, *loop(100, 2, 16)])
    assert known(layer, *NETWORK, "forward_ns") == (9, 6, 10, 16, 2, 1, 18, 190)
    assert layer["ops_per_time_step"] == 6  # of both layers


def test_both_directions_of_one_layer_are_told_by_what_reads_them() -> None:
    rows = [*loop(0, 1, 10), *loop(100, 2, 10)]
    rows.append(product("dot.9", "jit(step)/jvp(forward)/dot", 300, [6, 32], [32, 5], **HOST))
    (layer,) = layers_of(rows)
    assert known(layer, "layers", "directions") == (1, 2)


def test_weights_may_be_the_first_operand() -> None:
    rows = [row("op", "while.1", 0, 50, op_name=FORWARD, **HOST)]
    for at in range(0, 50, 10):
        path = f"{FORWARD}/body/dot_general"
        rows.append(product("dot.1", path, at, [64, 10], [10, 6], **HOST))
        rows.append(product("dot.2", path, at + 4, [64, 16], [16, 6], **HOST))
    assert known(layers_of(rows)[0], *NETWORK) == (5, 6, 10, 16, 1, 1, 5)


def test_a_product_a_gate_tells_the_cell_by_their_number() -> None:
    def cell(gates: int) -> Any:
        rows = [row("op", "while.1", 0, 500, op_name=FORWARD, **HOST)]
        for at in range(0, 500, 100):
            for gate in range(gates):
                path = f"{FORWARD}/body/dot_general"
                place = at + 10 * gate
                rows.append(product(f"dot.x{gate}", path, place, [6, 10], [10, 16], **HOST))
                rows.append(product(f"dot.h{gate}", path, place + 4, [6, 16], [16, 16], **HOST))
        return layers_of(rows)[0]["cell"]

    assert (cell(4), cell(3)) == ("lstm", "gru")


@pytest.mark.parametrize("inputs", [10, 16])
def test_a_gru_of_haiku_has_two_matmuls_for_h(inputs: int) -> None:
    def layers(*widths: tuple[int, int]) -> list[dict[str, Any]]:
        rows = [row("op", "while.1", 0, 90, op_name=FORWARD, **HOST)]
        for at in range(0, 90, 10):
            for number, (inner, outer) in enumerate(widths):
                path, place = f"{FORWARD}/body/gru/dot_general", at + 2 * number
                rows.append(
                    product(f"dot.{number}", path, place, [6, inner], [inner, outer], **HOST)
                )
            rows.append(product("tanh.1", f"{FORWARD}/body/gru/tanh", at + 8, [6, 16], **HOST))
        return layers_of(rows)

    (layer,) = layers((inputs, 48), (16, 32), (16, 16))
    assert known(layer, "cell", *NETWORK) == ("gru", 9, 6, inputs, 16, 1, 1, 9)
    assert not layers((inputs, 40), (16, 32), (16, 16))


def at_once(width: int, *tanhs: int) -> list[dict[str, Any]]:
    """A loop with one product of (6, 26) and (26, 64) a time step, and tanh of these widths."""
    rows = [row("op", "while.1", 0, 90, op_name=FORWARD, **HOST)]
    for at in range(0, 90, 10):
        dot, body = f"{FORWARD}/body/dot_general", f"{FORWARD}/body/tanh"
        rows.append(product("dot.1", dot, at, [6, 26], [26, width], **HOST))
        for n, tanh in enumerate(tanhs):
            rows.append(product(f"tanh.{n}", body, at + 3 + 2 * n, [6, tanh], **HOST))
    return layers_of(rows)


def test_x_and_h_in_one_product_are_told_apart_by_what_a_tanh_reads() -> None:
    (layer,) = at_once(64, 64, 16)
    assert known(layer, *NETWORK) == (9, 6, 10, 16, 1, 1, 9)
    assert known(layer, "cell", "op") == ("lstm", "while, 1 product")
    assert at_once(64) == []
    assert at_once(64, 64) == []  # one gate: a plain cell
    assert at_once(16, 16) == []


def test_on_a_device_the_kernels_of_the_body_come_round() -> None:
    gpu = {"device": 0, "stream": 7}
    rows = []
    for at in range(0, 90, 10):
        dot = f"{FORWARD}/body/dot_general"
        rows.append(product("gemm_x", dot, at, [6, 10], [10, 64], **gpu))
        rows.append(product("gemm_h", dot, at + 3, [6, 16], [16, 64], **gpu))
        rows.append(
            row("kernel", "loop_fusion", at + 7, at + 9, op_name=f"{FORWARD}/body/mul", **gpu)
        )
    (layer,) = layers_of(rows)
    assert known(layer, *NETWORK) == (9, 6, 10, 16, 1, 1, 9)
    assert known(layer, "kernels_per_time_step", "ops_per_time_step") == (3, None)
    assert layer["forward_ns"] == 89


def test_a_while_of_other_products_is_no_layer() -> None:
    rows = [row("op", "while.1", 0, 50, op_name=FORWARD, **HOST)]
    for at in range(0, 50, 10):
        path = f"{FORWARD}/body/dot_general"
        rows.append(product("dot.1", path, at, [8, 8], [8, 8], **HOST))
    assert layers_of(rows) == []


def test_products_of_batches_that_differ_are_no_cell() -> None:
    rows = [row("op", "while.1", 0, 50, op_name=FORWARD, **HOST)]
    for at in range(0, 50, 10):
        path = f"{FORWARD}/body/dot_general"
        rows.append(product("dot.1", path, at, [6, 10], [10, 64], **HOST))
        rows.append(product("dot.2", path, at + 4, [5, 16], [16, 64], **HOST))
    assert layers_of(rows) == []


@pytest.mark.parametrize(
    ("scope", "products", "cell"),
    [
        ("RNN", 8, "lstm"),
        ("RNN", 6, "gru"),
        ("LSTMCell_0", 8, "lstm"),
        ("blocks", 8, None),  # a stack of equal Linear layers
    ],
)
def test_of_products_that_are_all_alike_only_a_name_tells_the_cell(
    scope: str, products: int, cell: str | None
) -> None:
    loop = f"jit(step)/jvp({scope})/while"
    rows = [row("op", "while.1", 0, 500, op_name=loop, **HOST)]
    for at in range(0, 500, 100):
        for n in range(products):
            path = f"{loop}/body/cell/dot_general"
            rows.append(product(f"dot.{n}", path, at + 9 * n, [6, 16], [16, 16], **HOST))
    found = [known(layer, "cell", "inputs", "hidden", "time_steps") for layer in layers_of(rows)]
    assert found == ([(cell, 16, 16, 5)] if cell else [])


def test_a_product_of_the_state_alone_is_as_wide_as_what_a_tanh_reads() -> None:
    loop = "jit(step)/jvp()/while"
    rows = [row("op", "while.1", 0, 90, op_name=loop, **HOST)]
    for at in range(0, 90, 10):
        rows.append(product("dot.1", f"{loop}/body/dot_general", at, [48, 16], [6, 16], **HOST))
        rows.append(product("tanh.1", f"{loop}/body/tanh", at + 5, [6, 16], **HOST))
    (layer,) = layers_of(rows)
    assert known(layer, "cell", "time_steps", "batch", "inputs", "hidden") == (
        *("gru", 9, 6, None, 16),
    )


def test_without_operands_a_name_tells_the_cell_alone() -> None:
    def found(scope: str) -> list[tuple[object, ...]]:
        rows = [row("op", "while.1", 0, 90, op_name=scope, **HOST)]
        for at in range(0, 90, 10):
            dot = f"{scope}/body/dot_general"
            rows.append(row("op", "dot.1", at, at + 5, op_name=dot, **HOST))
        return [known(layer, "cell", "time_steps", "hidden") for layer in layers_of(rows)]

    assert found("jit(step)/jvp(lstm)/while") == [("lstm", 9, None)]
    assert found("jit(step)/jvp(decoder)/while") == []


def successive_processes(
    products: list[tuple[list[int], list[int]]], *tanhs: list[int]
) -> list[dict[str, Any]]:
    """A loop of 5 time steps with these products and tanh."""
    rows = [row("op", "while.1", 0, 100, op_name=FORWARD, **HOST)]
    for at in range(0, 100, 20):
        for n, (left, right) in enumerate(products):
            dot = f"{FORWARD}/body/dot_general"
            rows.append(product(f"dot.{n}", dot, at + 4 * n, left, right, **HOST))
        for n, tanh in enumerate(tanhs):
            rows.append(product(f"tanh.{n}", f"{FORWARD}/body/tanh", at + 12 + n, tanh, **HOST))
    return layers_of(rows)


def test_a_head_within_the_loop_is_no_part_of_the_cell() -> None:
    cell, head = ([6, 26], [26, 64]), ([6, 16], [16, 5])
    (layer,) = successive_processes([cell, head], [6, 64], [6, 16])
    assert known(layer, "cell", *NETWORK) == ("lstm", 5, 6, 10, 16, 1, 1, 5)
    (layer,) = successive_processes([([6, 5], [5, 64]), ([6, 16], [16, 64]), head], [6, 16])
    assert known(layer, "cell", *NETWORK) == ("lstm", 5, 6, 5, 16, 1, 1, 5)
    assert successive_processes([cell, head]) == []  # no tanh confirms it


def test_a_weight_may_be_the_first_operand_of_one_product_and_the_second_of_another() -> None:
    products = [([60, 20], [8, 20]), ([8, 2], [60, 2])]
    (layer,) = successive_processes(products, [8, 20])
    assert known(layer, "cell", *NETWORK) == ("gru", 5, 8, 2, 20, 1, 1, 5)
