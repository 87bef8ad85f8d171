"""A Scan and the products in it, as the clocked machine of a capture writes them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from breakdown.recurrent.rows import HOST, known, layers_of
from events.rows import Row, row

NETWORK = ("time_steps", "batch", "inputs", "hidden", "layers", "directions", "cells")


def scan(label: str, at: int, steps: int, *products: list[list[int]]) -> list[Row]:
    """A Scan of ``steps``, each 10 ns a product."""
    length = 10 * len(products) * steps
    name = f"pytensor::Scan{{{label}, while_loop=False, inplace=all}}"
    rows = [row("op", name, at, at + length, **HOST)]
    for n in range(steps * len(products)):
        shapes: Any = products[n % len(products)]
        op = "pytensor::Gemm{inplace}" if len(shapes) > 2 else "pytensor::Dot22"
        start = at + 10 * n
        rows.append(row("op", op, start, start + 9, shapes=json.dumps(shapes), **HOST))
    return rows


def cell(inputs: int) -> tuple[list[list[int]], list[list[int]]]:
    return [[6, inputs], [inputs, 64]], [[6, 64], [], [6, 16], [16, 64], []]


def test_a_scan_is_a_layer_and_that_of_its_gradient_the_backward_pass() -> None:
    rows = [*scan("l0", 0, 9, *cell(10)), *scan("grad_of_l0", 500, 9, [[6, 64], [64, 16]])]
    (layer,) = layers_of(rows)
    assert known(layer, *NETWORK) == (9, 6, 10, 16, 1, 1, 9)
    assert known(layer, "form", "op", "cell") == ("loop", "Scan, 2 products", "lstm")
    assert known(layer, "forward_ns", "backward_ns") == (180, 90)


def test_merged_scans_hold_both_directions() -> None:
    rows = scan("l0_reverse&l0", 0, 9, *cell(10), *cell(10))
    rows += scan("l1_reverse&l1", 900, 9, *cell(32), *cell(32))
    (layer,) = layers_of(rows)
    assert known(layer, *NETWORK) == (9, 6, 10, 16, 2, 2, 36)


THEANO = (
    "theano::for{{cpu,{}}}",
    "theano::forall_inplace,cpu,{}}}",
    "theano::for{{inplace{{0,1,}},cpu,{}}}",
)


@pytest.mark.parametrize("name", THEANO)
def test_theanos_scans_have_names_of_their_own(name: str) -> None:
    rows = [*scan("l0", 0, 9, *cell(10)), *scan("grad_of_l0", 500, 9, [[6, 64], [64, 16]])]
    (layer,) = layers_of([as_theanos(each, name) for each in rows])
    assert known(layer, *NETWORK) == (9, 6, 10, 16, 1, 1, 9)
    assert known(layer, "framework") == ("theano",)
    assert known(layer, "forward_ns", "backward_ns") == (180, 90)


def as_theanos(event: Row, name: str) -> Row:
    label = re.search(r"Scan\{(\w+)", event["name"])
    plain = event["name"].replace("pytensor::", "theano::")
    return {**event, "name": name.format(label[1]) if label else plain}


def test_of_scans_of_one_name_each_has_a_gradient_where_there_are_as_many() -> None:
    rows = [*scan("scan_fn", 0, 9, *cell(10)), *scan("scan_fn", 180, 9, *cell(16))]
    rows += scan("grad_of_scan_fn", 500, 9, [[6, 64], [64, 16]], [[6, 64], [64, 16]])
    gradient = scan("grad_of_scan_fn", 680, 9, [[6, 64], [64, 16]])
    (layer,) = layers_of(rows + gradient)
    assert known(layer, "layers", "forward_ns", "backward_ns") == (2, 360, 270)
    (layer,) = layers_of(rows)
    assert known(layer, "layers", "forward_ns", "backward_ns") == (2, 360, None)


def test_the_inputs_product_may_be_one_for_all_time_steps_before_the_scan() -> None:
    shapes = json.dumps([[54, 10], [10, 64]])
    head = json.dumps([[6, 16], [16, 64]])
    rows = [
        row("op", "theano::Dot22", 0, 9, shapes=shapes, **HOST),
        *(as_theanos(each, THEANO[0]) for each in scan("scan_fn", 20, 9, cell(10)[1])),
        row("op", "theano::Dot22", 500, 509, shapes=head, **HOST),
    ]
    (layer,) = layers_of(rows)
    assert known(layer, *NETWORK) == (9, 6, 10, 16, 1, 1, 9)
    assert known(layer, "op") == ("Scan, 1 product",)
    assert layers_of(rows[1:]) == []


@pytest.mark.parametrize(("gates", "cell"), [(4, "lstm"), (3, "gru")])
def test_of_gates_apart_the_other_operators_tell_how_often_a_scan_came_round(
    gates: int, cell: str
) -> None:
    products = scan("scan_fn", 0, 9 * gates, [[6, 10], [10, 16]], [[6, 16], [16, 16]])
    tanhs = [row("op", "pytensor::Tanh", 10 * n, 10 * n + 1, **HOST) for n in range(9)]
    gated = [as_theanos(each, THEANO[0]) for each in products + tanhs]
    (layer,) = layers_of(gated)
    assert known(layer, *NETWORK) == (9, 6, 10, 16, 1, 1, 9)
    assert known(layer, "op", "cell") == (f"Scan, {2 * gates} products", cell)
    assert layers_of(gated[:-9]) == []


def test_a_scan_of_other_products_is_none() -> None:
    assert layers_of(scan("power", 0, 9, [[8, 8], [8, 8]])) == []
