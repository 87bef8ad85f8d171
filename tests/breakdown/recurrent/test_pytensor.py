"""A Scan and the products in it, as the clocked machine of a capture writes them."""

from __future__ import annotations

import json
from typing import Any

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


def test_a_scan_of_other_products_is_none() -> None:
    assert layers_of(scan("power", 0, 9, [[8, 8], [8, 8]])) == []
